//! chmod -R, chown -R and setfacl -R: begun by a request, and gone on with behind it (`meta_namespace::ops::change_tree`).
//!
//! Promises: what mounts cache of a page is recalled before it changes, as for any change; whoever asked may go away, and ask another server
//! how far it is; a small tree is changed altogether when the request is answered.

use crate::server::MetaServer;
use crate::subtree_ops::BREATH;
use braid_api::meta::{LeftInDir, TreeOp, TreeOpStatus};
use braid_api::{Code, Error, Result};
use braid_lease::Key;
use braid_meta_engine::{Engine, Table};
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::change_tree::{ChangeEntries, ForgetLeft, LeftBehind, NextEntries};
use braid_meta_namespace::ops::check::CheckPath;
use braid_meta_namespace::ops::subtree_ops::{ENTRIES_A_PAGE, Listed};
use braid_types::{InodeId, SessionId, Timestamp};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A tree of some thousand inodes is changed when the request is answered.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// How long whoever asked may ask what was left as it is.
pub(crate) const LEFT_KEPT: Duration = Duration::from_secs(3600);
/// Of one directory, before it is the turn of others.
const PAGES_A_TURN: u32 = 8;
/// Directories that wait are counted up to this.
const WAITING_MAX: u64 = 100_000;
/// Pages of what was left in an answer: with names of 255 bytes a megabyte.
const LEFT_AT_ONCE: usize = 16;
/// How often a page is announced anew because something was made or removed in it meanwhile.
const ATTEMPTS: u32 = 64;

impl MetaServer {
    /// Begun; returns when all is changed, or a moment later.
    pub(crate) async fn tree_is_changed(&self, op: TreeOp) -> Result<()> {
        self.until_looked_through(WAIT_MAX, |listed| matches!(listed, Listed::Change(_, of) if *of == op)).await
    }

    /// Changes some of what is in a listed directory, a page at a time: others that are listed have their turn then.
    pub(crate) async fn change_entries(&self, dir: InodeId, op: TreeOp) -> Result<()> {
        let (mut attempts, mut pages) = (0, 0);
        while !self.stopping.load(Relaxed) && pages < PAGES_A_TURN {
            match self.change_page(dir, op).await {
                Ok(false) => return Ok(()),
                Ok(true) => (attempts, pages) = (0, pages + 1),
                Err(e) if e.code == Code::StaleLease && attempts < ATTEMPTS => attempts += 1,
                Err(e) => return Err(e),
            }
            self.env.sleep(BREATH).await;
        }
        Ok(())
    }

    /// Answers whether there are more.
    async fn change_page(&self, dir: InodeId, op: TreeOp) -> Result<bool> {
        let (own, limit) = (SessionId(0), ENTRIES_A_PAGE);
        let next = ReadOnly(NextEntries { dir, op, limit });
        let Some(announced) = self.engine.read(dir.0, next).await.map_err(Error::from)? else { return Ok(false) };
        let mut keys: Vec<Key> = announced.iter().map(|id| Key::Attr(*id)).collect();
        keys.sort();
        keys.dedup();
        let page = ChangeEntries { dir, op, limit, announced, now: self.env.clock.wall() };
        let change = async { self.engine.transact(dir.0, page).await.map_err(Error::from) };
        self.announced_keys(own, keys, change).await
    }

    pub(crate) async fn tree_op(&self, op: TreeOp, after: Option<Vec<u8>>) -> Result<TreeOpStatus> {
        let waiting =
            self.count_listed(WAITING_MAX, |listed| matches!(listed, Listed::Change(_, of) if *of == op)).await?;
        let mut status = TreeOpStatus { waiting, ..TreeOpStatus::default() };
        if waiting > 0 {
            return Ok(status);
        }
        let after = after.and_then(|bytes| braid_meta_engine::Key::from_bytes(Table::SubtreeOps, &bytes));
        let left = LeftBehind { op, after, limit: LEFT_AT_ONCE };
        let rows = self.engine.read(op.top.0, ReadOnly(left)).await.map_err(Error::from)?;
        if rows.len() == LEFT_AT_ONCE {
            status.next = rows.last().map(|(key, _)| key.bytes().to_vec());
        }
        for (_, row) in rows {
            let dir = self.engine.read(row.dir.0, ReadOnly(CheckPath(row.dir))).await.map_err(Error::from)?.names;
            status.left.push(LeftInDir { dir, sealed: row.sealed, refused: row.refused });
        }
        Ok(status)
    }

    /// What was left at that time is forgotten when its hour is over.
    pub(crate) async fn forget_left(&self, key: braid_meta_engine::Key, at: Timestamp) -> Result<()> {
        if at.until(self.env.clock.wall()) < LEFT_KEPT {
            return Ok(());
        }
        let partition = key.partition();
        self.engine.transact(partition, ForgetLeft(key)).await.map_err(Error::from)
    }
}
