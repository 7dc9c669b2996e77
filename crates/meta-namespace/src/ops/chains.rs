//! Chains: what the leader writes down before it says it to anybody.

use super::ids::{Counter, next};
use crate::rows::{ContainerRow, CopiesRow, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Lock, Operation, Tx};
use braid_types::{ChainEpoch, ContainerId, LeaderEpoch, ServerId};

/// The part of a container's row that is the leader's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainPart {
    pub epoch: ChainEpoch,
    pub chain: Vec<ServerId>,
    pub older: Vec<(ChainEpoch, Vec<ServerId>)>,
    pub copies: CopiesRow,
}

impl ChainPart {
    pub fn of(row: &ContainerRow) -> Option<ChainPart> {
        let ContainerRow { epoch, chain, older, .. } = row.clone();
        Some(ChainPart { epoch, chain, older, copies: row.copies.clone()? })
    }
}

/// Changes a chain from what this leader read to what it decided.
pub struct CommitChain {
    pub leader: LeaderEpoch,
    pub container: ContainerId,
    pub was: ChainPart,
    pub now: ChainPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainCommit {
    /// It is so, now or since an attempt whose outcome was not known.
    Done,
    /// The container's last chunk was freed, and its row with it.
    Gone,
    /// Somebody else leads, or has changed the row: this one must lead no more.
    Deposed,
}

impl Operation for CommitChain {
    type Output = ChainCommit;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<ChainCommit, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let key = keys::container(self.container);
        let newest = next(&mut unit, Counter::Leaders).await?;
        let Some(mut row) = unit.get::<ContainerRow>(&key).await? else { return Ok(ChainCommit::Gone) };
        let found = ChainPart::of(&row);
        if newest != self.leader.0 + 1 || (found.as_ref() != Some(&self.was) && found.as_ref() != Some(&self.now)) {
            return Ok(ChainCommit::Deposed);
        }
        let ChainPart { epoch, chain, older, copies } = self.now.clone();
        (row.epoch, row.chain, row.older, row.copies) = (epoch, chain, older, Some(copies));
        unit.put(key, &row);
        Ok(ChainCommit::Done)
    }
}
