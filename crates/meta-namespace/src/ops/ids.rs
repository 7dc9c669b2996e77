//! Ids come in blocks from counters and are never reused: a block is durable before its first id is used.

use crate::rows::{RowFormat, keys};
use crate::{OpError, Unit};
use braid_meta_engine::{Lock, Operation, Tx};
use serde::{Deserialize, Serialize};

/// A counter; its name is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Inodes,
    Chunks,
    Containers,
    Servers,
    Sessions,
    /// Epochs of the leader.
    Leaders,
}

impl Counter {
    fn name(self) -> &'static str {
        match self {
            Counter::Inodes => "next_inode",
            Counter::Chunks => "next_chunk",
            Counter::Containers => "next_container",
            Counter::Servers => "next_server",
            Counter::Sessions => "next_session",
            Counter::Leaders => "next_leader",
        }
    }

    /// The first number ever given. Inode 1 is the root.
    fn first(self) -> u64 {
        match self {
            Counter::Inodes => 2,
            _ => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CounterRow {
    next: u64,
}

impl RowFormat for CounterRow {}

/// The number that will be given next.
pub async fn next<T: Tx>(unit: &mut Unit<'_, T>, counter: Counter) -> Result<u64, OpError> {
    Ok(unit.get::<CounterRow>(&keys::global(counter.name())).await?.map_or(counter.first(), |row| row.next))
}

/// Takes `count` numbers; answers the first.
pub struct TakeIds {
    pub counter: Counter,
    pub count: u64,
}

/// The same inside another transaction.
pub async fn take<T: Tx>(unit: &mut Unit<'_, T>, counter: Counter, count: u64) -> Result<u64, OpError> {
    let key = keys::global(counter.name());
    let next = unit.get::<CounterRow>(&key).await?.map_or(counter.first(), |row| row.next);
    unit.put(key, &CounterRow { next: next + count });
    Ok(next)
}

impl Operation for TakeIds {
    type Output = u64;
    type Error = OpError;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u64, OpError> {
        take(&mut Unit::new(tx, Lock::Exclusive), self.counter, self.count).await
    }
}
