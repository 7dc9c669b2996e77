//! Sealing a file and unsealing it, and what each change of a file asks first (docs/design/0015-sealed-files.md).
//!
//! Promises: between the transaction that seals a file and the one that unseals it none changes its bytes, attributes, extended
//! attributes or names. Two things do change: the time of the last read, and what is repaired by an administrator.

use super::attr::attr_answer;
use crate::rows::{Inode, flags};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{AttrAnswer, HoldSealed, SealFile};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Tx};

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

    async fn apply<T: Tx>(&self, unit: &mut Unit<'_, T>, cx: &OpContext) -> Result<AttrAnswer, OpError> {
        let mut located = unit.find(&self.inode).await?;
        super::open::expect_file(&located.inode)?;
        if located.inode.has(flags::SEALED) != self.sealed {
            located.inode.set(flags::SEALED, self.sealed);
            located.inode.change(cx.now);
            unit.store(&located);
        }
        Ok(attr_answer(&self.inode, &located))
    }
}

/// Whether it is sealed; of a file that has gone nothing is.
impl Query for HoldSealed {
    type Answer = bool;

    async fn ask<T: Tx>(&self, unit: &mut Unit<'_, T>) -> Result<bool, OpError> {
        match unit.find(&self.inode).await {
            Ok(located) => Ok(located.inode.has(flags::SEALED)),
            Err(OpError(error)) if error.code == Code::Stale => Ok(false),
            Err(error) => Err(error),
        }
    }
}
