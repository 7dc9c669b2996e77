//! Evening out data servers: what of it outlives a metadata server.

use crate::rows::{MoveRow, MovesRow, RebalanceRow, keys};
use crate::{OpError, Unit};
use braid_api::admin::{Moves, RebalanceChange, RebalanceState};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Tx};
use braid_types::ContainerId;

fn key() -> Key {
    keys::global("rebalance")
}

/// As it is; the default if nobody has ever asked for it.
pub struct ReadRebalance;

impl Operation for ReadRebalance {
    type Output = RebalanceRow;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<RebalanceRow, OpError> {
        Ok(Unit::new(tx, Lock::None).get(&key()).await?.unwrap_or_default())
    }
}

/// An administrator's word; answers the row as it is then.
pub struct ChangeRebalance {
    pub change: RebalanceChange,
    /// As it is, or `within_default` for a new one, if `None`.
    pub within_permille: Option<u32>,
    pub within_default: u32,
    /// Bytes a second for all moves, from now on.
    pub move_rate: Option<u64>,
}

impl Operation for ChangeRebalance {
    type Output = RebalanceRow;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<RebalanceRow, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let old: RebalanceRow = unit.get(&key()).await?.unwrap_or_default();
        let goes_on = matches!(old.state, RebalanceState::Runs | RebalanceState::Paused);
        if !goes_on && self.change != RebalanceChange::Run {
            return Err(Error::new(Code::Invalid, "rebalance", "none is under way").into());
        }
        // A new one counts anew. Of one that was cancelled nothing is left here: chains that are half changed go back.
        let mut row =
            if goes_on { old } else { RebalanceRow { within_permille: self.within_default, ..Default::default() } };
        row.within_permille = self.within_permille.unwrap_or(row.within_permille);
        row.state = match self.change {
            RebalanceChange::Run | RebalanceChange::Resume => RebalanceState::Runs,
            RebalanceChange::Pause => RebalanceState::Paused,
            RebalanceChange::Cancel => RebalanceState::Off,
        };
        if self.change == RebalanceChange::Cancel {
            row.moves.clear();
        }
        unit.put(key(), &row);
        if let Some(rate) = self.move_rate {
            unit.put(keys::global("moves"), &MovesRow { rate });
        }
        Ok(row)
    }
}

/// What the server that carries it out has done; answers the row as it is then. Without effect on one that was cancelled or paused
/// meanwhile, but that what has ended is taken out.
pub struct StepRebalance {
    pub begun: Vec<MoveRow>,
    pub ended: Vec<ContainerId>,
    /// Of what has ended, what came to where it was to go.
    pub moved: Moves,
    pub is_done: bool,
}

impl Operation for StepRebalance {
    type Output = RebalanceRow;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<RebalanceRow, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let mut row: RebalanceRow = unit.get(&key()).await?.unwrap_or_default();
        let old = row.clone();
        if matches!(row.state, RebalanceState::Runs | RebalanceState::Paused) {
            row.moves.retain(|it| !self.ended.contains(&it.container));
            row.moved.copies += self.moved.copies;
            row.moved.bytes += self.moved.bytes;
        }
        if row.state == RebalanceState::Runs {
            let is_new = |it: &&MoveRow| old.moves.iter().all(|known| known.container != it.container);
            row.moves.extend(self.begun.iter().filter(is_new));
            if self.is_done && row.moves.is_empty() {
                row.state = RebalanceState::Done;
            }
        }
        if row != old {
            unit.put(key(), &row);
        }
        Ok(row)
    }
}
