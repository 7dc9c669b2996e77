//! The row that says which metadata servers serve at once: reading it, and writing it if it is as expected.

use crate::rows::{RosterRow, keys};
use crate::{OpError, Unit};
use braid_members::Roster;
use braid_meta_engine::{Lock, Operation, Tx};

pub struct ReadRoster;

impl Operation for ReadRoster {
    type Output = Option<RosterRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<RosterRow>, OpError> {
        Unit::new(tx, Lock::None).get(&keys::roster()).await
    }
}

/// Answers the row that was there instead, if it has another roster than is expected.
#[derive(Clone)]
pub struct WriteRoster {
    pub expects: Option<Roster>,
    pub row: RosterRow,
}

impl Operation for WriteRoster {
    type Output = Result<(), Option<RosterRow>>;
    type Error = OpError;

    /// Without it nobody may remove anything.
    fn may_use_reserve(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let found: Option<RosterRow> = unit.get(&keys::roster()).await?;
        if found.as_ref().map(|row| &row.roster) != self.expects.as_ref() {
            return Ok(Err(found));
        }
        match found {
            Some(_) => unit.put(keys::roster(), &self.row),
            None => unit.insert(keys::roster(), &self.row),
        }
        Ok(Ok(()))
    }
}
