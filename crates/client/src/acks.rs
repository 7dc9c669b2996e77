//! Revocations that are said to be carried out with the next listening, instead of by a message of their own.
//!
//! Promises: one that was heard with an answer is said with the next `Listen` if it is carried out before that is sent, and is left to whoever
//! says it otherwise; it is said in one way or the other, and what is not heard is revoked again.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

#[derive(Default)]
pub struct Acks {
    state: Mutex<State>,
    done: Notify,
}

#[derive(Default)]
struct State {
    /// Heard, and not carried out.
    awaited: BTreeSet<u64>,
    /// To be said.
    done: Vec<u64>,
}

impl Acks {
    /// These are about to be carried out, and the next listening waits for them for a moment.
    pub fn expect(&self, revocations: impl Iterator<Item = u64>) {
        self.state.lock().awaited.extend(revocations);
    }

    /// It is carried out. False if no listening takes it along.
    pub fn takes(&self, revocation: u64) -> bool {
        let mut state = self.state.lock();
        if !state.awaited.remove(&revocation) {
            return false;
        }
        state.done.push(revocation);
        if state.awaited.is_empty() {
            self.done.notify_one();
        }
        true
    }

    /// Returns when all that was heard is carried out.
    pub async fn all_done(&self) {
        while !self.state.lock().awaited.is_empty() {
            self.done.notified().await;
        }
    }

    /// What the next listening says. What is not carried out by now it does not take along.
    pub fn take(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        state.awaited.clear();
        std::mem::take(&mut state.done)
    }

    /// It was not heard: the next one says it.
    pub fn put_back(&self, revocations: Vec<u64>) {
        self.state.lock().done.extend(revocations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_in_one_way() {
        let acks = Acks::default();
        assert!(!acks.takes(1), "nobody listens");
        acks.expect([2, 3].into_iter());
        assert!(acks.takes(2));
        assert!(!acks.takes(2), "it is carried out again, and said again");
        assert_eq!(acks.take(), [2]);
        assert!(!acks.takes(3), "the listening has gone without it");
        acks.put_back(vec![2]);
        acks.expect([4].into_iter());
        assert!(acks.takes(4));
        assert_eq!((acks.take(), acks.take()), (vec![2, 4], vec![]));
    }

    #[tokio::test]
    async fn it_is_waited_for_all() {
        let acks = std::sync::Arc::new(Acks::default());
        acks.all_done().await;
        acks.expect([1, 2].into_iter());
        let waits = tokio::spawn({
            let acks = acks.clone();
            async move { acks.all_done().await }
        });
        tokio::task::yield_now().await;
        assert!(acks.takes(1));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        assert!(acks.takes(2));
        waits.await.unwrap();
    }
}
