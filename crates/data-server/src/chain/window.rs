//! How much content may be on its way to one server at once: as much as arrives soon.
//!
//! What is sent beyond that waits in a queue of the link, in which nobody can tell it from what is lost, and keeps words of other chunks
//! waiting. 16 MiB are 0.13 s at 1 Gbit/s and 4.5 s at 30 Mbit/s, which five such servers share.
//!
//! Promises: one message may always be on its way; what has arrived late, or not at all, halves the rest once for all that was sent before.

use braid_env::Monotonic;
use std::time::Duration;

/// Of one message, at most.
pub(super) const CONTENT_BYTES: usize = 1 << 20;
/// A server that takes 200 MB/s each 80 ms.
const BYTES_MAX: usize = 16 << 20;
/// A second at 30 Mbit/s: what a slow link gets before it has said anything. Doubled with each that has arrived while none was late.
const BYTES_AT_FIRST: usize = 4 << 20;
/// The queue is short.
const SOON: Duration = Duration::from_millis(300);
/// The queue is as long as words to a server may take.
const LATE: Duration = Duration::from_secs(1);
/// Content that nothing has been heard of counts as lost after this time, or after so many times what the last one has taken.
pub(super) const GIVEN_UP: Duration = Duration::from_secs(2);
const GIVEN_UP_TIMES: u32 = 4;

pub(super) struct Window {
    most: usize,
    held: usize,
    /// None was late yet.
    begins: bool,
    /// Of what was sent before this it is known that it is late.
    cut: Monotonic,
    took: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Window { most: BYTES_AT_FIRST, held: 0, begins: true, cut: Monotonic::default(), took: Duration::ZERO }
    }
}

impl Window {
    pub fn has_room(&self, bytes: usize) -> bool {
        self.held == 0 || self.held + bytes <= self.most
    }

    pub fn enter(&mut self, bytes: usize) {
        self.held += bytes;
    }

    /// Nothing was sent of it.
    pub fn give_back(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// What was sent then has been taken, or is lost.
    pub fn leave(&mut self, bytes: usize, sent: Monotonic, now: Monotonic, is_taken: bool) {
        self.give_back(bytes);
        let took = now.since(sent);
        if is_taken {
            self.took = took;
        }
        if !is_taken || took > LATE {
            if sent >= self.cut {
                self.most = CONTENT_BYTES.max(self.most / 2);
                (self.begins, self.cut) = (false, now);
            }
        } else if took < SOON {
            let more = if self.begins { bytes } else { bytes * CONTENT_BYTES / self.most };
            self.most = BYTES_MAX.min(self.most + more);
        }
    }

    pub fn given_up_after(&self) -> Duration {
        GIVEN_UP.max(self.took * GIVEN_UP_TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    /// As much as there is room for is sent over a link of so many bytes a millisecond for `seconds`: the longest that a message has taken in
    /// the second half, in milliseconds, and the part of the time in which something was on its way.
    fn over(bytes_a_ms: u64, seconds: u64) -> (u64, f64) {
        let (mut window, mut queue, mut left) = (Window::default(), VecDeque::new(), 0i64);
        let (mut longest, mut busy) = (0, 0);
        for ms in 0..seconds * 1000 {
            while window.has_room(CONTENT_BYTES) {
                window.enter(CONTENT_BYTES);
                queue.push_back(ms);
            }
            busy += u64::from(!queue.is_empty());
            left += bytes_a_ms as i64;
            while left >= CONTENT_BYTES as i64 && !queue.is_empty() {
                left -= CONTENT_BYTES as i64;
                let sent = queue.pop_front().unwrap();
                window.leave(CONTENT_BYTES, at(sent), at(ms + 1), true);
                if ms > seconds * 500 {
                    longest = longest.max(ms + 1 - sent);
                }
            }
        }
        (longest, busy as f64 / (seconds * 1000) as f64)
    }

    #[test]
    fn a_link_is_full_all_the_time_and_its_queue_is_short() {
        // 1 Gbit/s, 100, 30 and 10 Mbit/s.
        for (bytes_a_ms, longest_ms) in [(125_000, 200), (12_500, 1200), (3750, 1200), (1250, 2000)] {
            let (longest, busy) = over(bytes_a_ms, 60);
            assert!(longest <= longest_ms && busy > 0.99, "{bytes_a_ms}: {longest} ms, {busy}");
        }
    }

    #[test]
    fn a_fast_link_has_all_there_is_within_some_messages() {
        let mut window = Window::default();
        for n in 0..12 {
            window.enter(CONTENT_BYTES);
            window.leave(CONTENT_BYTES, at(10 * n), at(10 * n + 10), true);
        }
        window.enter(BYTES_MAX - CONTENT_BYTES);
        assert!(window.has_room(CONTENT_BYTES));
    }

    #[test]
    fn what_is_lost_together_counts_once_and_one_may_always_go() {
        let mut window = Window::default();
        for _ in 0..4 {
            window.enter(CONTENT_BYTES);
        }
        for _ in 0..4 {
            window.leave(CONTENT_BYTES, at(0), at(10_000), false);
        }
        assert_eq!(window.most, BYTES_AT_FIRST / 2);
        assert_eq!(window.given_up_after(), GIVEN_UP);
        for n in 1..9 {
            window.leave(0, at(10_000 * n), at(10_000 * n + 9_000), true);
        }
        assert_eq!(window.given_up_after(), Duration::from_secs(36));
        assert!(window.most == CONTENT_BYTES && window.has_room(2 * CONTENT_BYTES));
    }
}
