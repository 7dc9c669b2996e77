//! Room for what makes a file longer where somebody pays for it who has a quota (docs/design/0024-quotas.md).
//!
//! Bytes are written long before they are committed, and whoever wrote them must not hear of a quota then. So a client asks before it
//! takes them: the file is charged up to where they may go, and a commit up to there costs nothing more. What was not used goes back
//! when the file is closed, and with the session.

use super::open::expect_file;
use super::seal::expect_unsealed;
use crate::rows::{Inode, flags, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::Code;
use braid_api::meta::{OpenAnswer, OpenFile, ReturnRoom, TakeRoom};
use braid_meta_engine::{Key, Lock, Operation, Tx};
use braid_types::{FILE_BYTES_MAX, InodeId, SessionId};

/// Of a new file, with its creation: most need no more.
const FIRST_BYTES: u64 = 1 << 20;
/// Nobody takes more ahead than this part of what is left, so that many can write until the last of it.
const PART_AHEAD: u64 = 16;
/// Files of one transaction when a session ends.
pub const RETURNED_A_PAGE: usize = 256;

/// The answer where nobody who pays has a quota of bytes.
pub const UNLIMITED: u64 = u64::MAX;

impl Mutation for TakeRoom {
    type Answer = u64;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.inode)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<u64, OpError> {
        let mut located = unit.find(&self.inode).await?;
        let inode = &mut located.inode;
        expect_file(inode)?;
        expect_unsealed(inode)?;
        if self.until > FILE_BYTES_MAX {
            return Err(Code::FileTooBig.into());
        }
        let has = inode.charge().bytes;
        let Some(left) = left(unit, inode).await? else { return Ok(UNLIMITED) };
        if self.until <= has {
            return Ok(has);
        }
        // Whether so much is left is found when it is charged.
        inode.room = self.wish.min(has.saturating_add(left / PART_AHEAD)).min(FILE_BYTES_MAX).max(self.until);
        note(unit, cx.session, inode.id);
        let room = inode.room;
        unit.store(&located);
        Ok(room)
    }
}

/// What whoever pays for the file may still have; `None`: it has no quota of bytes.
async fn left(unit: &mut Unit<'_>, inode: &Inode) -> Result<Option<u64>, OpError> {
    unit.bytes_left(inode.charge().payers()).await
}

fn note(unit: &mut Unit<'_>, session: SessionId, inode: InodeId) {
    unit.put_raw(keys::room(session, inode), vec![1]);
}

/// A file is made, to be written.
pub(super) async fn first(unit: &mut Unit<'_>, cx: &OpContext, inode: &mut Inode) -> Result<(), OpError> {
    if let Some(left) = left(unit, inode).await? {
        inode.room = FIRST_BYTES.min(left / PART_AHEAD);
        if inode.room > 0 {
            note(unit, cx.session, inode.id);
        }
    }
    Ok(())
}

/// Up to where a file may be written that was made or is opened; `None`: as far as one likes.
pub(super) async fn opened(unit: &mut Unit<'_>, inode: &Inode) -> Result<Option<u64>, OpError> {
    Ok(left(unit, inode).await?.map(|_| inode.charge().bytes))
}

/// [`OpenFile`] where somebody has a quota and the file is opened to be written.
pub struct OpenLimited {
    pub open: OpenFile,
    pub limits: bool,
}

impl Query for OpenLimited {
    type Answer = OpenAnswer;

    fn ahead(&self) -> Vec<Key> {
        self.open.ahead()
    }

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<OpenAnswer, OpError> {
        let answer = Query::ask(&self.open, unit).await?;
        if !self.limits {
            return Ok(answer);
        }
        let inode = unit.find(&self.open.inode).await?.inode;
        Ok(OpenAnswer { room: opened(unit, &inode).await?, ..answer })
    }
}

impl Mutation for ReturnRoom {
    type Answer = ();

    fn first_keys(&self) -> Vec<Key> {
        self.inodes.iter().flat_map(super::keys_of).collect()
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<(), OpError> {
        if self.inodes.len() > ReturnRoom::MAX {
            return Err(Code::TooBig.into());
        }
        for inode in &self.inodes {
            give_back(unit, inode).await?;
            unit.delete(keys::room(cx.session, inode.id));
        }
        Ok(())
    }
}

async fn give_back(unit: &mut Unit<'_>, inode: &braid_api::meta::InodeRef) -> Result<(), OpError> {
    match unit.find(inode).await {
        Ok(mut located) if located.inode.room > 0 && !located.inode.has(flags::DEAD) => {
            located.inode.room = 0;
            unit.store(&located);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(OpError(e)) if e.code == Code::Stale => Ok(()),
        Err(e) => Err(e),
    }
}

/// A page of what a session has taken and not given back: it ends. Answers whether there is more.
pub struct GiveBack {
    pub session: SessionId,
    /// Files of the page.
    pub limit: usize,
}

impl Operation for GiveBack {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let more = give_back_some(&mut unit, self.session, self.limit).await?;
        unit.charge_without_limits().await?;
        Ok(more)
    }
}

/// The rest of it.
pub(super) async fn give_back_all(unit: &mut Unit<'_>, session: SessionId) -> Result<(), OpError> {
    give_back_some(unit, session, usize::MAX >> 1).await.map(drop)
}

async fn give_back_some(unit: &mut Unit<'_>, session: SessionId, limit: usize) -> Result<bool, OpError> {
    let page = unit.scan(&keys::rooms(session), None, limit).await?;
    for (key, _) in page.rows {
        if let Some(inode) = keys::room_of(&key) {
            give_back(unit, &inode.into()).await?;
        }
        unit.delete(key);
    }
    Ok(page.more)
}
