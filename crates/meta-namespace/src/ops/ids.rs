//! Ids come in blocks from counters and are never reused: a block is durable before its first id is used.

use crate::rows::{RowFormat, keys};
use crate::{OpError, Unit};
use braid_api::{Code, Error};
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
    Snapshots,
}

impl Counter {
    pub const ALL: [Counter; 7] = [
        Counter::Inodes,
        Counter::Chunks,
        Counter::Containers,
        Counter::Servers,
        Counter::Sessions,
        Counter::Leaders,
        Counter::Snapshots,
    ];

    fn name(self) -> &'static str {
        match self {
            Counter::Inodes => "next_inode",
            Counter::Chunks => "next_chunk",
            Counter::Containers => "next_container",
            Counter::Servers => "next_server",
            Counter::Sessions => "next_session",
            Counter::Leaders => "next_leader",
            Counter::Snapshots => "next_snapshot",
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
pub async fn next(unit: &mut Unit<'_>, counter: Counter) -> Result<u64, OpError> {
    Ok(unit.get::<CounterRow>(&keys::global(counter.name())).await?.map_or(counter.first(), |row| row.next))
}

/// Takes `count` numbers; answers the first.
pub struct TakeIds {
    pub counter: Counter,
    pub count: u64,
}

/// The same inside another transaction.
pub async fn take(unit: &mut Unit<'_>, counter: Counter, count: u64) -> Result<u64, OpError> {
    let next = next(unit, counter).await?;
    put_next(unit, counter, next.checked_add(count).ok_or_else(|| spent(counter))?);
    Ok(next)
}

fn put_next(unit: &mut Unit<'_>, counter: Counter, next: u64) {
    unit.put(keys::global(counter.name()), &CounterRow { next });
}

fn spent(counter: Counter) -> OpError {
    Error::new(Code::Internal, format_args!("the counter {}", counter.name()), "its numbers are all given").into()
}

/// The next number is `least`, or further on: none below is given any more.
pub(super) async fn go_on_from(unit: &mut Unit<'_>, counter: Counter, least: u64) -> Result<(), OpError> {
    let next = next(unit, counter).await?.checked_add(1).ok_or_else(|| spent(counter))?;
    put_next(unit, counter, next.max(least));
    Ok(())
}

impl Operation for TakeIds {
    type Output = u64;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, OpError> {
        take(&mut Unit::new(tx, Lock::Exclusive), self.counter, self.count).await
    }
}
