//! Whether a transaction committed whose answer was lost.
//!
//! Every connection has a row in `marks`, and each of its transactions that changes something counts that row's `op` up by one in
//! the same transaction. When the answer to a commit is lost, another connection locks the row, which waits until the
//! database has ended the transaction one way or the other, reads how far it counted, and closes it: a message that
//! still lies in a buffer of the network finds the row closed and is refused, so what was told to be undone is never done
//! later. The statements say no by putting NULL where none may be, which ends the message before its commit.
//!
//! A row for each connection and not for each transaction: there is nothing to prune but what dead processes leave.

use crate::failure::{Cause, Failed};
use crate::options::SqlOptions;
use crate::pool::Pool;
use crate::select::number;
use crate::session::{Done, Message};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The row of one connection and how far it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    slot: u64,
    op: u64,
}

/// Rows are dropped when they are this old. Connections are not used for so long by far (`pool.rs`).
const KEPT_DAYS: u64 = 7;

impl Mark {
    /// Of a connection that changes nothing.
    pub fn none() -> Mark {
        Mark { slot: 0, op: 0 }
    }

    /// For a new connection.
    pub fn new() -> Mark {
        Mark { slot: rand::random::<u64>() | 1, op: 0 }
    }

    pub fn create(&self) -> String {
        format!("INSERT INTO marks (slot,op,closed,born) VALUES ({},0,0,UNIX_TIMESTAMP())", self.slot)
    }

    pub fn prune() -> String {
        format!("DELETE FROM marks WHERE born<UNIX_TIMESTAMP()-{}", KEPT_DAYS * 24 * 3600)
    }

    /// Of the transaction that comes after `self`.
    pub fn next(&self) -> Mark {
        Mark { op: self.op + 1, ..*self }
    }

    /// How far the connection has counted; `prefix` stands before the SELECT.
    pub fn read(&self, prefix: &str) -> String {
        format!("{prefix}SELECT op FROM marks WHERE slot={}", self.slot)
    }

    /// What this answer to [`Mark::read`] says of the transaction.
    pub fn judge(&self, answer: Option<&Done>) -> Settled {
        let cells = answer.and_then(|done| done.rows.first()).cloned();
        match cells.and_then(|mut cells| number(cells.pop())) {
            Some(op) if op == self.op => Settled::Committed,
            Some(op) if op + 1 == self.op => Settled::NotCommitted,
            other => Settled::Unknown(format!("its mark says {other:?} where {} was to be", self.op)),
        }
    }

    /// In the transaction whose mark this is.
    pub fn write(&self) -> String {
        let (slot, op, before) = (self.slot, self.op, self.op.saturating_sub(1));
        format!("UPDATE marks SET op=IF(op={before} AND closed=0,{op},NULL) WHERE slot={slot}")
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Committed,
    /// And never will be.
    NotCommitted,
    Unknown(String),
}

/// Asks until it is told, or has asked for too long.
pub(crate) async fn settle(pool: &Pool, options: &SqlOptions, mark: Mark) -> Settled {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let why = match ask(pool, mark).await {
            Ok(settled) => return settled,
            Err(cause) => format!("{cause:?}"),
        };
        if begun.elapsed() >= options.give_up_after {
            return Settled::Unknown(why);
        }
        tracing::debug!(why, "asking again what became of a commit");
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

async fn ask(pool: &Pool, mark: Mark) -> Result<Settled, Cause> {
    let slot = mark.slot;
    // Done twice it says the same. It writes also where the row is closed on another server and not yet here. What counts is
    // what the last statement finds committed: `commit.rs` tells of a COMMIT that is answered and was none.
    let message = Message::of([
        "START TRANSACTION".to_owned(),
        format!("SELECT op FROM marks WHERE slot={slot} FOR UPDATE"),
        format!("UPDATE marks SET closed=1 WHERE slot={slot}"),
        "COMMIT".to_owned(),
        format!("SELECT op FROM marks WHERE slot={slot} AND closed=1"),
    ]);
    let mut lease = pool.lease_for_settling().await?;
    lease.spend();
    let done = match lease.run_whole(&message).await {
        Ok(done) => done,
        Err(Failed { cause, .. }) => return Err(cause),
    };
    if done.get(1).is_some_and(|locked| !locked.rows.is_empty()) && done.last().is_none_or(|end| end.rows.is_empty()) {
        return Err(Cause::Deadlock);
    }
    Ok(mark.judge(done.last()))
}
