//! Sealing a file and unsealing it, and what each change of a file asks first (docs/design/0015-sealed-files.md).
//!
//! Promises: between the transaction that seals a file and the one that unseals it none changes its bytes, attributes, extended
//! attributes or names. Two things do change: the time of the last read, and what is repaired by an administrator.

use super::attr::attr_answer;
use crate::rows::{Inode, SealedCount, flags, keys};
use crate::{Mutation, OpContext, OpError, Place, Query, Unit};
use braid_api::meta::{AttrAnswer, HoldSealed, SealFile};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{Attr, InodeId, Timestamp};

pub(super) fn expect_unsealed(inode: &Inode) -> Result<(), OpError> {
    if inode.has(flags::SEALED) {
        let subject = format_args!("inode {}", inode.id);
        return Err(Error::new(Code::Sealed, subject, "nothing of it changes until it is unsealed").into());
    }
    Ok(())
}

impl Mutation for SealFile {
    type Answer = AttrAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.inode)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<AttrAnswer, OpError> {
        let mut located = unit.find(&self.inode).await?;
        super::open::expect_file(&located.inode)?;
        if located.inode.has(flags::SEALED) != self.sealed {
            located.inode.set(flags::SEALED, self.sealed);
            // Each seal has a time of its own: what was seen under one is not taken for what is there under another.
            let later = Timestamp(located.inode.ctime.0.saturating_add(1));
            located.inode.change(cx.now.max(later));
            unit.store(&located);
            let by = if self.sealed { 1 } else { -1 };
            count_sealed(unit, directory(&located.place), by).await?;
        }
        Ok(attr_answer(&self.inode, &located))
    }
}

/// The directory with the one name of what has one.
fn directory(place: &Place) -> Option<InodeId> {
    match place {
        Place::Entry(parent, Some(_)) => Some(*parent),
        Place::Entry(_, None) | Place::Id => None,
    }
}

/// So that a tree need not be looked through for sealed files where nothing is sealed, nor where it is known in which directories files
/// are. A store in which something was sealed before that was counted begins when nothing is; one that was made before files were
/// counted at all has no count, and gets none: how many there are then is unknown.
pub(super) async fn count_sealed(unit: &mut Unit<'_>, dir: Option<InodeId>, by: i64) -> Result<(), OpError> {
    let (all, elsewhere) = (keys::sealed_count(), keys::sealed_elsewhere());
    let here = match dir {
        // Nobody removes it.
        Some(InodeId::ROOT) => None,
        Some(dir) => Some(keys::sealed_in(dir)),
        None => Some(elsewhere.clone()),
    };
    let rows = [Some(all.clone()), Some(elsewhere.clone()), here.clone()];
    unit.load(&rows.into_iter().flatten().collect::<Vec<_>>()).await?;
    let Some(SealedCount(count)) = unit.get(&all).await? else { return Ok(()) };
    unit.put(all, &SealedCount(count.saturating_add_signed(by)));
    if unit.get::<SealedCount>(&elsewhere).await?.is_none() {
        if count > 0 {
            return Ok(());
        }
        unit.put(elsewhere.clone(), &SealedCount(0));
    }
    match here {
        Some(here) => add(unit, here, by).await,
        None => Ok(()),
    }
}

/// What is sealed in it leaves a directory that is being removed, for the root directory.
pub(super) async fn leave_sealed(unit: &mut Unit<'_>, dir: InodeId) -> Result<(), OpError> {
    add(unit, keys::sealed_in(dir), -1).await
}

async fn add(unit: &mut Unit<'_>, key: Key, by: i64) -> Result<(), OpError> {
    let was = unit.get::<SealedCount>(&key).await?.map_or(0, |SealedCount(count)| count);
    let count = was.saturating_add_signed(by);
    if count == 0 && key != keys::sealed_elsewhere() {
        unit.delete(key);
    } else {
        unit.put(key, &SealedCount(count));
    }
    Ok(())
}

/// What it is while it is sealed.
impl Query for HoldSealed {
    type Answer = Option<Attr>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Option<Attr>, OpError> {
        match unit.find(&self.inode).await {
            Ok(located) => Ok(located.inode.has(flags::SEALED).then(|| located.inode.attr())),
            Err(OpError(error)) if error.code == Code::Stale => Ok(None),
            Err(error) => Err(error),
        }
    }
}
