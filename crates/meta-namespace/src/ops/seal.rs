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
/// are. What has several names, or none, or was sealed before directories were counted, is in no directory's count, and so not in the
/// sum of these. A store that was made before files were counted at all has no count, and gets none: how many there are then is unknown.
pub(super) async fn count_sealed(unit: &mut Unit<'_>, dir: Option<InodeId>, by: i64) -> Result<(), OpError> {
    let all = keys::sealed_count();
    let mut rows = vec![all.clone(), keys::sealed_placed()];
    rows.extend(dir.map(keys::sealed_in));
    unit.load(&rows).await?;
    let Some(SealedCount(count)) = unit.get(&all).await? else { return Ok(()) };
    unit.put(all, &SealedCount(count.saturating_add_signed(by)));
    match dir {
        Some(dir) if by > 0 || unit.get_raw(&keys::sealed_in(dir)).await?.is_some() => {
            add(unit, keys::sealed_placed(), by).await?;
            add(unit, keys::sealed_in(dir), by).await
        }
        _ => Ok(()),
    }
}

/// A sealed file's one name goes from one directory to another: none is renamed, but what would be removed is given another.
pub(in crate::ops) async fn moves_sealed(unit: &mut Unit<'_>, from: InodeId, to: InodeId) -> Result<(), OpError> {
    if unit.get_raw(&keys::sealed_in(from)).await?.is_some() {
        add(unit, keys::sealed_in(from), -1).await?;
        add(unit, keys::sealed_in(to), 1).await?;
    }
    Ok(())
}

/// The name of a sealed file that was in this directory's count leads to a row elsewhere now.
pub(in crate::ops) async fn is_elsewhere(unit: &mut Unit<'_>, dir: InodeId) -> Result<(), OpError> {
    if unit.get_raw(&keys::sealed_in(dir)).await?.is_some() {
        add(unit, keys::sealed_in(dir), -1).await?;
        add(unit, keys::sealed_placed(), -1).await?;
    }
    Ok(())
}

async fn add(unit: &mut Unit<'_>, key: Key, by: i64) -> Result<(), OpError> {
    let was = unit.get::<SealedCount>(&key).await?.map_or(0, |SealedCount(count)| count);
    match was.saturating_add_signed(by) {
        0 => unit.delete(key),
        count => unit.put(key, &SealedCount(count)),
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
