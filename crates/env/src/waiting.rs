//! Whether the thread that is running may wait for the disk: a thread of the runtime never may, one that serves a single request of a
//! kernel may, if others are left to serve the next.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static PLACES: Cell<usize> = const { Cell::new(0) };
}

/// Of the whole process: with two mounts in one, each has the places that the other leaves, which is on the safe side.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` as what may wait, if fewer than `places` threads do.
pub fn may_wait_during<T>(places: usize, work: impl FnOnce() -> T) -> T {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            PLACES.set(self.0);
        }
    }
    let _back = Back(PLACES.replace(places));
    work()
}

/// The place of a thread that waits, until dropped.
pub struct WaitPlace(());

impl WaitPlace {
    /// `None`: the caller must not wait, or too many do.
    pub fn take() -> Option<WaitPlace> {
        let places = PLACES.get();
        let one_more = |waiting| (waiting < places).then_some(waiting + 1);
        let is_taken = places > 0 && WAITING.fetch_update(Relaxed, Relaxed, one_more).is_ok();
        // Not made where there is none: its end would give one back.
        is_taken.then(|| WaitPlace(()))
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the count is the process's.
    #[test]
    fn places_are_taken_inside_only_and_no_more_than_there_are() {
        let may = || WaitPlace::take().is_some();
        assert!(!may());
        assert!(may_wait_during(1, || may_wait_during(1, may) && may()));
        assert!(std::panic::catch_unwind(|| may_wait_during(1, || panic!("as the test wants it"))).is_err());
        assert!(!may());
        may_wait_during(2, || {
            let (one, two) = (WaitPlace::take(), WaitPlace::take());
            assert!(one.is_some() && two.is_some() && !may());
            assert!(!std::thread::spawn(move || may_wait_during(2, may)).join().unwrap(), "another thread's count too");
            drop(one);
            assert!(may() && !may_wait_during(0, may));
        });
    }
}
