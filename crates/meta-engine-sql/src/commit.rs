//! The end of a transaction that changed something: its writes, its mark, its fence and COMMIT, in one message.
//!
//! The database carries out a message up to the first statement that fails and says after each what it did, so a failure is
//! known by its number: at a write it is that write's, at the mark or the fence it is a no, and the COMMIT behind it
//! was not reached. Nothing is done twice or by half. (Galera's word for a COMMIT does not suffice: see [`Commit::check`].)
//! What is too large for a message goes out in several; all that decides is in the last.

use crate::failure::{Cause, Failed, Verdict};
use crate::fence::Fence;
use crate::pool::Lease;
use crate::select::{bytes, number};
use crate::session::{Done, Message};
use crate::settle::{Mark, Settled};
use crate::write::Write;
use braid_meta_engine::{EngineError, EngineStats, Key, Table};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

/// What the mark, the fence, COMMIT and the look behind it take at most: some 100 bytes each, and the fence 3 for each of its
/// 64 rows. Room is kept for them, as they go out together: a COMMIT in any message but the last could be lost unseen.
const TAIL_BYTES_MAX: usize = 1024;

/// What became of it.
#[derive(Debug)]
pub(crate) enum Ended {
    Committed,
    /// It did not commit, and why.
    Not(Verdict),
    /// The answer was lost after COMMIT had been sent.
    Unknown(Mark),
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Begin,
    Write(usize),
    Mark,
    Fence,
    Commit,
    /// Reads the mark, committed.
    Check,
}

/// A transaction that is ready to commit.
pub(crate) struct Commit<'a> {
    pub writes: Vec<Write>,
    /// The message has to begin it.
    pub begins: bool,
    pub absent: &'a BTreeSet<Key>,
    pub partitions: BTreeSet<u64>,
    pub fence: &'a Fence,
    /// In which the transaction was begun: who was asked before it who else changes these rows was asked then.
    pub epoch: u64,
    /// It may be made again in one that this engine has begun since.
    pub outlives_its_epoch: bool,
    pub message_bytes_max: usize,
    /// The database's word that it committed is not enough; what stands before the SELECT that looks.
    pub check: Option<&'static str>,
}

impl Commit<'_> {
    pub async fn run(&self, lease: &mut Lease, stats: &EngineStats) -> Ended {
        let mark = lease.mark().next();
        let epoch = self.epoch;
        let messages = self.messages(mark, epoch);
        let last = messages.len() - 1;
        for (number, (message, roles)) in messages.iter().enumerate() {
            stats.round_trips.fetch_add(1, Relaxed);
            let ran = match number == last {
                true => lease.run_whole(message).await,
                false => lease.run_open(message).await,
            };
            match ran {
                Ok(done) if number == last => return self.committed(lease, mark, roles, &done),
                Ok(_) => {}
                Err(failed) => {
                    let commit_sent = number == last;
                    return self.failed(lease, (mark, epoch), roles, failed, commit_sent).await;
                }
            }
        }
        Ended::Committed
    }

    fn messages(&self, mark: Mark, epoch: u64) -> Vec<(Message, Vec<Role>)> {
        let mut messages: Vec<(Message, Vec<Role>)> = vec![Default::default()];
        let mut push = |role: Role, text: &str, bytes_max: usize| {
            let is_full = |(message, _): &(Message, Vec<Role>)| message.text.len() + text.len() + 1 > bytes_max;
            if messages.last().is_some_and(|last| last.0.statements > 0 && is_full(last)) {
                messages.push(Default::default());
            }
            if let Some((message, roles)) = messages.last_mut() {
                message.push(text);
                roles.push(role);
            }
        };
        if self.begins {
            push(Role::Begin, "START TRANSACTION", usize::MAX);
        }
        let bytes_max = self.message_bytes_max - TAIL_BYTES_MAX;
        self.writes.iter().enumerate().for_each(|(n, write)| push(Role::Write(n), &write.text, bytes_max));
        push(Role::Mark, &mark.write(), usize::MAX);
        if let Some(fences) = self.fence.write(epoch, self.partitions.iter().copied()) {
            push(Role::Fence, &fences, usize::MAX);
        }
        push(Role::Commit, "COMMIT", usize::MAX);
        if let Some(prefix) = self.check {
            push(Role::Check, &mark.read(prefix), usize::MAX);
        }
        messages
    }

    async fn failed(
        &self,
        lease: &mut Lease,
        (mark, epoch): (Mark, u64),
        roles: &[Role],
        failed: Failed,
        commit_sent: bool,
    ) -> Ended {
        let Failed { done, cause } = failed;
        match (roles.get(done), cause) {
            (_, cause) if cause.is_lost() && commit_sent => Ended::Unknown(mark),
            (Some(Role::Write(number)), Cause::Duplicate) => self.duplicate(lease, &self.writes[*number]).await,
            (Some(Role::Fence), Cause::SaidNo) => match self.outlives_its_epoch && self.fence.is_own_doing(epoch) {
                true => Ended::Not(Cause::SaidNo.verdict()),
                false => Ended::Not(Verdict::Final(EngineError::Fenced(format!("its epoch {epoch} is over")))),
            },
            (Some(Role::Mark), Cause::SaidNo) => {
                lease.spend();
                Ended::Not(Cause::SaidNo.verdict())
            }
            (Some(Role::Commit | Role::Check), _) if self.check.is_some() => self.look(lease, mark).await,
            // What stops a COMMIT may come before or after it took effect, but for a conflict that it lost.
            (Some(Role::Commit) | None, cause) if cause != Cause::Deadlock => {
                lease.spend();
                Ended::Unknown(mark)
            }
            (_, cause) => Ended::Not(cause.verdict()),
        }
    }

    /// The database has answered everything.
    fn committed(&self, lease: &mut Lease, mark: Mark, roles: &[Role], done: &[Done]) -> Ended {
        if self.check.is_some() && mark.judge(done.last()) != Settled::Committed {
            tracing::warn!("the database answered a COMMIT and has rolled the transaction back");
            lease.spend();
            return Ended::Not(Verdict::Conflict);
        }
        lease.set_mark(mark);
        let marked = roles.iter().zip(done).any(|(role, done)| matches!(role, Role::Mark) && done.changed == 1);
        if !marked {
            // It committed; but what comes after it on this connection could not be settled.
            tracing::warn!("a connection's row is missing in the table marks: the connection is given up");
            lease.spend();
        }
        Ended::Committed
    }

    /// The database has said no to a COMMIT, or after it, and is asked what that means.
    async fn look(&self, lease: &mut Lease, mark: Mark) -> Ended {
        let answer = lease.run(&Message::of([mark.read(self.check.unwrap_or_default())])).await;
        lease.spend();
        match answer.map(|done| mark.judge(done.first())) {
            Ok(Settled::NotCommitted) => Ended::Not(Verdict::Conflict),
            Ok(Settled::Committed) => Ended::Committed,
            _ => Ended::Unknown(mark),
        }
    }

    /// A row was there that was not to be. Which one the database says only in words, so it is asked.
    async fn duplicate(&self, lease: &mut Lease, write: &Write) -> Ended {
        let there = match write.keys.as_slice() {
            [key] => Some(key.clone()),
            keys => match lease.run(&Message::of([write.which_is_there()])).await {
                Ok(done) => found(&done, keys),
                Err(failed) => return Ended::Not(failed.cause.verdict()),
            },
        };
        match there {
            // The transaction had been told with a lock that the row is not there: it looks again.
            Some(key) if !self.absent.contains(&key) => Ended::Not(Verdict::Final(EngineError::Exists(key))),
            _ => Ended::Not(Cause::Duplicate.verdict()),
        }
    }
}

fn found(done: &[Done], keys: &[Key]) -> Option<Key> {
    let mut cells = done.first()?.rows.first()?.clone();
    let rest = bytes(cells.pop())?;
    let part = number(cells.pop())?;
    let table = keys.first().map_or(Table::Globals, Key::table);
    let key = Key::new(table, part, &rest);
    keys.contains(&key).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::writes;
    use braid_meta_engine::Overlay;

    /// However it is cut, what decides is together at the end, and a message is no larger than the server takes.
    #[test]
    fn what_decides_is_in_the_last_message() {
        let mut overlay = Overlay::default();
        (0..40).for_each(|n| overlay.insert(Key::new(Table::Requests, n, b""), vec![7; 100_000]));
        let fence = Fence::new(true, 1);
        for message_bytes_max in [600_000, 700_000, 1 << 20, 16 << 20] {
            let commit = Commit {
                writes: writes(&overlay, &BTreeSet::new()).expect("they fit"),
                begins: true,
                absent: &BTreeSet::new(),
                partitions: (0..1000).collect(),
                fence: &fence,
                epoch: 1,
                outlives_its_epoch: false,
                message_bytes_max,
                check: Some("SET STATEMENT wsrep_sync_wait=0 FOR "),
            };
            let messages = commit.messages(Mark::new().next(), 1);
            assert!(messages.iter().all(|(message, _)| message.text.len() <= message_bytes_max), "{message_bytes_max}");
            let (decides, last) = messages.last().map(|(message, roles)| (roles, message)).expect("there is one");
            let tail = &decides[decides.len() - 4..];
            assert!(
                matches!(tail, [Role::Mark, Role::Fence, Role::Commit, Role::Check]),
                "{message_bytes_max}: {tail:?}"
            );
            assert_eq!(last.statements, decides.len());
        }
    }
}
