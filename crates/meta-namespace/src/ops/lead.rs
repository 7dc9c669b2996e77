//! The row that says which of several metadata servers leads: reading it, and writing it if it is as expected.

use crate::rows::{LeadRow, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Lock, Operation, Tx};

pub struct ReadLead;

impl Operation for ReadLead {
    type Output = Option<LeadRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<LeadRow>, OpError> {
        Unit::new(tx, Lock::None).get(&keys::lead()).await
    }
}

/// Answers the row that was there instead, if it was another one.
pub struct WriteLead {
    pub expects: Option<LeadRow>,
    pub row: LeadRow,
}

impl Operation for WriteLead {
    type Output = Result<(), Option<LeadRow>>;
    type Error = OpError;

    /// Without it nobody may remove anything.
    fn may_use_reserve(&self) -> bool {
        true
    }

    /// Whom the row names is all that it goes by.
    fn outlives_its_epoch(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let found: Option<LeadRow> = unit.get(&keys::lead()).await?;
        if found != self.expects {
            return Ok(Err(found));
        }
        match found {
            Some(_) => unit.put(keys::lead(), &self.row),
            None => unit.insert(keys::lead(), &self.row),
        }
        Ok(Ok(()))
    }
}
