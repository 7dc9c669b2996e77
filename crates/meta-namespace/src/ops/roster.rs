//! The row that says which metadata servers serve at once: reading it, and writing it if it is as expected.
//!
//! Promises: epochs of rosters, and those of servers that serve alone, rise together, whatever is set up in turn: clients and data servers take what
//! is older for outdated.

use super::ids::{Counter, next};
use crate::rows::{RosterRow, keys};
use crate::{OpError, Unit};
use braid_members::Roster;
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{LeaderEpoch, MemberId, MembershipEpoch};

pub struct ReadRoster;

impl Operation for ReadRoster {
    type Output = Option<RosterRow>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<RosterRow>, OpError> {
        Unit::new(tx, Lock::None).get(&keys::roster()).await
    }
}

/// The row, which is made where nobody has served beside others yet: of nobody, in an epoch that no server alone has had.
pub struct FirstRoster;

impl Operation for FirstRoster {
    type Output = RosterRow;
    type Error = OpError;

    fn may_use_reserve(&self) -> bool {
        true
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<RosterRow, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        if let Some(found) = unit.get(&keys::roster()).await? {
            return Ok(found);
        }
        let epoch = MembershipEpoch(next(&mut unit, Counter::Leaders).await?);
        let (elected, leader) = (LeaderEpoch(0), MemberId(0));
        let row = RosterRow { roster: Roster { epoch, elected, leader, lease_ms: 0, members: Vec::new() }, fence: 0 };
        unit.insert(keys::roster(), &row);
        Ok(row)
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
