//! Attributes that the kernel is asking for.
//!
//! Why: a kernel that is told to forget attributes while it asks for them does not take the answer. For a `stat` it shows what the answer
//! says, but whether a program may open the file it then decides by the mode of before (docs/posix.md), which another mount may have
//! changed long ago. So the answer is let in first. Its lease is what is being taken away, so that the change waits for this.
//!
//! Promises: nobody waits for longer than [`PATIENCE`].

use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Who asked runs by then, and has taken the answer in, unless the machine has many others to run.
const ARRIVES: Duration = Duration::from_millis(1);

/// An answer may itself wait for another mount. Twenty times a round trip that does not.
const PATIENCE: Duration = Duration::from_millis(20);

/// Answers that have arrived are forgotten when there are so many.
const KEPT: usize = 64;

#[derive(Clone, Copy)]
struct Of {
    open: u32,
    /// When the last answer was given.
    answered: Option<Instant>,
}

#[derive(Default)]
pub struct Asked {
    of: Mutex<HashMap<InodeId, Of>>,
    answered: Notify,
}

/// One question, until dropped, which is to be done when its answer is with the kernel.
pub struct Question(Arc<Asked>, InodeId);

impl Asked {
    pub fn begin(self: &Arc<Self>, id: InodeId) -> Question {
        let mut of = self.of.lock();
        if of.len() >= KEPT {
            of.retain(|_, of| of.open > 0 || !of.has_arrived());
        }
        of.entry(id).or_insert(Of { open: 0, answered: None }).open += 1;
        Question(self.clone(), id)
    }

    /// Returns when the kernel has taken in what it asked for of these, or after [`PATIENCE`].
    pub async fn until_answered(&self, ids: impl Iterator<Item = InodeId>) {
        let end = Instant::now() + PATIENCE;
        for id in ids {
            self.until_answered_of(id, end).await;
        }
    }

    async fn until_answered_of(&self, id: InodeId, end: Instant) {
        loop {
            let answered = self.answered.notified();
            let mut answered = std::pin::pin!(answered);
            // Registered before the look, so that nothing between the two is missed.
            answered.as_mut().enable();
            let Some(of) = self.of.lock().get(&id).copied() else { return };
            if of.open == 0 && of.has_arrived() {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match of.open {
                0 => tokio::time::sleep(ARRIVES.min(left)).await,
                _ => _ = tokio::time::timeout(left, answered).await,
            }
        }
    }
}

impl Of {
    fn has_arrived(&self) -> bool {
        self.answered.is_none_or(|at| at.elapsed() >= ARRIVES)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(of) = self.0.of.lock().get_mut(&self.1) {
            of.open -= 1;
            of.answered = Some(Instant::now());
        }
        self.0.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_asked_for_is_waited_for_and_not_for_ever() {
        let asked = Arc::new(Asked::default());
        let (one, other) = (InodeId(1), InodeId(2));
        // At its first look, however busy the machine is.
        let at_once =
            async |id| tokio::time::timeout(Duration::ZERO, asked.until_answered([id].into_iter())).await.is_ok();
        assert!(at_once(one).await);
        let question = asked.begin(one);
        assert!(at_once(other).await, "nobody asks for it");
        let begun = Instant::now();
        asked.until_answered([one].into_iter()).await;
        assert!(begun.elapsed() >= PATIENCE);
        let answering = async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            drop(question);
            Instant::now()
        };
        let (answered, ()) = tokio::join!(answering, asked.until_answered([one].into_iter()));
        assert!(answered.elapsed() >= ARRIVES);
        for id in 10..1000 {
            drop(asked.begin(InodeId(id)));
            if id % KEPT as u64 == 0 {
                tokio::time::sleep(2 * ARRIVES).await;
            }
        }
        assert!(asked.of.lock().len() <= 2 * KEPT);
    }
}
