//! Sealing a file and unsealing it, and what each change of a file asks first (docs/design/0015-sealed-files.md).
//!
//! Promises: between the transaction that seals a file and the one that unseals it none changes its bytes, attributes, extended
//! attributes or names. Two things do change: the time of the last read, and what is repaired by an administrator.

use super::attr::attr_answer;
use crate::rows::{Inode, SealedCount, flags, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{AttrAnswer, HoldSealed, SealFile};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{Attr, Timestamp};

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
            count_sealed(unit, if self.sealed { 1 } else { -1 }).await?;
        }
        Ok(attr_answer(&self.inode, &located))
    }
}

/// So that a tree need not be looked through for sealed files where nothing is sealed. Only a store that was made before they were
/// counted has no count, and gets none: how many there are then is unknown.
pub(super) async fn count_sealed(unit: &mut Unit<'_>, by: i64) -> Result<(), OpError> {
    let key = keys::sealed_count();
    if let Some(SealedCount(count)) = unit.get(&key).await? {
        unit.put(key, &SealedCount(count.saturating_add_signed(by)));
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
