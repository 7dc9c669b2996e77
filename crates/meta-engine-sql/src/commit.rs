//! The end of a transaction that changed something: its writes, its mark, its fence and COMMIT, in one message.
//!
//! The database carries out a message up to the first statement that fails and says after each what it did, so a failure is
//! known by its number: at a write it is that write's, at the mark or the fence it is a no, and the COMMIT behind it
//! was not reached. Nothing is done twice or by half. (Galera's word for a COMMIT does not suffice: see [`Commit::check`].) What is too large for a message goes out in several; the COMMIT is in the last.

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
    pub message_bytes_max: usize,
    /// The database's word that it committed is not enough; what stands before the SELECT that looks.
    pub check: Option<&'static str>,
}

impl Commit<'_> {
    pub async fn run(&self, lease: &mut Lease, stats: &EngineStats) -> Ended {
        let mark = lease.mark().next();
        let messages = self.messages(mark);
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
                    return self.failed(lease, mark, roles, failed, commit_sent).await;
                }
            }
        }
        Ended::Committed
    }

    fn messages(&self, mark: Mark) -> Vec<(Message, Vec<Role>)> {
        let mut statements: Vec<(Role, &str)> = Vec::new();
        let (marks, fences) = (mark.write(), self.fence.write(self.partitions.iter().copied()));
        statements.extend(self.begins.then_some((Role::Begin, "START TRANSACTION")));
        statements.extend(self.writes.iter().enumerate().map(|(n, write)| (Role::Write(n), write.text.as_str())));
        statements.push((Role::Mark, &marks));
        statements.extend(fences.as_deref().map(|text| (Role::Fence, text)));
        statements.push((Role::Commit, "COMMIT"));
        let check = self.check.map(|prefix| mark.read(prefix));
        statements.extend(check.as_deref().map(|text| (Role::Check, text)));
        let mut messages: Vec<(Message, Vec<Role>)> = vec![Default::default()];
        for (role, text) in statements {
            if let Some((message, _)) = messages.last()
                && message.statements > 0
                && message.text.len() + text.len() + 1 > self.message_bytes_max
            {
                messages.push(Default::default());
            }
            if let Some((message, roles)) = messages.last_mut() {
                message.push(text);
                roles.push(role);
            }
        }
        messages
    }

    async fn failed(&self, lease: &mut Lease, mark: Mark, roles: &[Role], failed: Failed, commit_sent: bool) -> Ended {
        let Failed { done, cause } = failed;
        match (roles.get(done), cause) {
            (_, cause) if cause.is_lost() && commit_sent => Ended::Unknown(mark),
            (Some(Role::Write(number)), Cause::Duplicate) => self.duplicate(lease, &self.writes[*number]).await,
            (Some(Role::Fence), Cause::SaidNo) => {
                Ended::Not(Verdict::Final(EngineError::Fenced(format!("its epoch {} is over", self.fence.epoch()))))
            }
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
