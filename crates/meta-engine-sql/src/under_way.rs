//! Commits that were sent and whose end nobody knows yet.
//!
//! Promises: a commit whose caller has gone, or that could not be settled, is remembered until it is known what became of it.
//! [`UnderWay::of_now`] and [`UnderWay::ended`] wait for nothing that begins later.

use crate::settle::Mark;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct UnderWay {
    table: Mutex<Table>,
    ended: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    commits: BTreeMap<u64, Sent>,
}

#[derive(Clone, Copy)]
struct Sent {
    mark: Mark,
    /// Its caller waits for it no more.
    left: bool,
}

/// A commit. Dropped without [`Committing::end`], it counts as left behind.
pub(crate) struct Committing<'a> {
    all: &'a UnderWay,
    number: u64,
    known: bool,
}

impl UnderWay {
    /// Before it is sent.
    pub fn begin(&self, mark: Mark) -> Committing<'_> {
        let mut table = self.table.lock();
        table.next += 1;
        let number = table.next;
        table.commits.insert(number, Sent { mark, left: false });
        Committing { all: self, number, known: false }
    }

    /// The last of those that were sent until now.
    pub fn of_now(&self) -> u64 {
        self.table.lock().next
    }

    /// Returns when nobody waits any more for those up to `last`. Gives what was left behind of them.
    pub async fn ended(&self, last: u64) -> Vec<(u64, Mark)> {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Registered before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            {
                let table = self.table.lock();
                let sent = table.commits.range(..=last);
                if sent.clone().all(|(_, sent)| sent.left) {
                    return sent.map(|(number, sent)| (*number, sent.mark)).collect();
                }
            }
            ended.await;
        }
    }

    /// It is known what became of it.
    pub fn settled(&self, number: u64) {
        self.table.lock().commits.remove(&number);
        self.ended.notify_waiters();
    }
}

impl Committing<'_> {
    pub fn end(mut self) {
        self.known = true;
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        match self.known {
            true => self.all.settled(self.number),
            false => {
                if let Some(sent) = self.all.table.lock().commits.get_mut(&self.number) {
                    sent.left = true;
                }
                self.all.ended.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_is_left_behind_is_told_until_it_is_settled() {
        let all = UnderWay::default();
        let (known, left, waits) = (all.begin(Mark::new()), all.begin(Mark::new()), all.begin(Mark::new()));
        let last = all.of_now();
        let later = all.begin(Mark::new());
        known.end();
        drop(left);
        let short = Duration::from_millis(20);
        assert!(timeout(short, all.ended(last)).await.is_err(), "one is being waited for");
        waits.end();
        let found = timeout(short, all.ended(last)).await.expect("what began later is not waited for");
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
        all.settled(2);
        assert!(all.ended(last).await.is_empty());
        drop(later);
        assert_eq!(all.ended(all.of_now()).await.len(), 1);
    }
}
