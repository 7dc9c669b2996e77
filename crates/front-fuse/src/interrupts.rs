use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use tokio::sync::oneshot;

/// Interrupts that came before their request, kept at most. Request numbers rise, so the oldest go first.
const EARLY_MAX: usize = 1024;

/// Waits that a signal may end. Only waits for locks: a read or a rename that ended with EINTR half way would surprise
/// every program there is.
#[derive(Default)]
pub struct Interrupts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<()>>,
    /// The kernel's threads are ours: an interrupt may be read before the request it means was registered.
    early: BTreeSet<u64>,
}

/// Ends the registration with the wait, however that ends.
struct Registered<'a> {
    interrupts: &'a Interrupts,
    unique: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.interrupts.state.lock().waiting.remove(&self.unique);
    }
}

impl Interrupts {
    /// `wait`, or `None` if request `unique` was interrupted first; `wait` is dropped then.
    pub async fn until<T>(&self, unique: u64, wait: impl Future<Output = T>) -> Option<T> {
        let (send, interrupted) = oneshot::channel();
        let registered = {
            let mut state = self.state.lock();
            if state.early.remove(&unique) {
                return None;
            }
            state.waiting.insert(unique, send);
            Registered { interrupts: self, unique }
        };
        let result = tokio::select! {
            biased;
            value = wait => Some(value),
            _ = interrupted => None,
        };
        drop(registered);
        result
    }

    pub fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock();
        if let Some(wait) = state.waiting.remove(&unique) {
            let _ = wait.send(());
            return;
        }
        state.early.insert(unique);
        if state.early.len() > EARLY_MAX {
            state.early.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_interrupt_ends_the_wait_whenever_it_comes() {
        let interrupts = Interrupts::default();
        assert_eq!(interrupts.until(1, async { 5 }).await, Some(5));
        interrupts.interrupt(2);
        assert_eq!(interrupts.until(2, std::future::pending::<()>()).await, None);
        let (waited, ()) = tokio::join!(interrupts.until(3, std::future::pending::<()>()), async {
            tokio::task::yield_now().await;
            interrupts.interrupt(3);
        });
        assert_eq!(waited, None);
        assert!(interrupts.state.lock().waiting.is_empty());
    }

    #[test]
    fn interrupts_for_nobody_are_bounded() {
        let interrupts = Interrupts::default();
        (0..5000).for_each(|unique| interrupts.interrupt(unique));
        assert_eq!(interrupts.state.lock().early.len(), EARLY_MAX);
    }
}
