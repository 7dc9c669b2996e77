//! How far to read ahead of one handle. Pure.
//!
//! A reader that goes on where it stopped gets a window that doubles with each step; one that jumps gets
//! exactly what it asks for. Doors with several threads deliver the pieces of one stream slightly out of order,
//! so a read that lands near the expected place still counts as going on.

use braid_types::ByteRange;

/// Reads this near to the expected place belong to the stream. A kernel that reads ahead has two windows under way, of 1 MiB each, of 2 MiB where a
/// program said that it reads in order, as `cat` does; they are taken up by several threads in any order. So the last to come is up to 4 MiB
/// behind the first, and what was read ahead for it must be there still.
const SLACK_BYTES: u64 = 4 << 20;
/// What has been answered whole is kept so far behind, for other handles.
const SERVED_SLACK_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub window_bytes_min: u64,
    pub window_bytes_max: u64,
}

#[derive(Debug, Default)]
pub struct Window {
    /// Where the next read of the stream would begin.
    next: u64,
    /// Bytes to keep requested ahead; 0 while no stream is seen.
    window: u64,
    /// Requested up to here.
    ahead: u64,
    started: bool,
}

/// What to do beside serving the read.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Forget all that was read ahead for this handle.
    pub forget_all: bool,
    /// Forget what lies wholly before this offset.
    pub forget_before: u64,
    /// And of what was answered, what lies before this one.
    pub forget_served_before: u64,
    /// Read this now.
    pub fetch: Option<ByteRange>,
}

impl Window {
    /// The handle reads `range` of a file of `size` bytes.
    pub fn read(&mut self, range: ByteRange, size: u64, limits: Limits) -> Plan {
        let near = range.start <= self.next + SLACK_BYTES && range.start + SLACK_BYTES >= self.next;
        let goes_on = self.started && (range.start == self.next || (self.window > 0 && near));
        if !goes_on {
            let forget_all = self.window > 0;
            *self = Window { next: range.end, window: 0, ahead: range.end, started: true };
            return Plan { forget_all, forget_before: 0, forget_served_before: 0, fetch: None };
        }
        // A limit below the least window is the limit.
        self.window = (self.window * 2).max(limits.window_bytes_min).min(limits.window_bytes_max);
        self.next = self.next.max(range.end);
        let from = self.ahead.max(range.end);
        let until = (self.next + self.window).min(size);
        // Asking again only when half of the window is used makes requests large.
        let fetch = (until > from && (self.ahead < self.next + self.window / 2)).then(|| ByteRange::new(from, until));
        if let Some(fetch) = fetch {
            self.ahead = fetch.end;
        }
        let forget_before = self.next.saturating_sub(SLACK_BYTES);
        let forget_served_before = self.next.saturating_sub(SERVED_SLACK_BYTES);
        Plan { forget_all: false, forget_before, forget_served_before, fetch }
    }

    /// What was asked ahead could not be had: go on from `at`.
    pub fn refused(&mut self, at: u64) {
        self.ahead = self.ahead.min(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { window_bytes_min: 256 << 10, window_bytes_max: 8 << 20 };

    #[test]
    fn a_stream_opens_the_window_up_to_the_limit() {
        let mut window = Window::default();
        let (size, step) = (64 << 20, 128 << 10);
        let mut requested = ByteRange::new(0, step);
        for i in 0..400u64 {
            let range = ByteRange::at(i * step, step);
            if let Some(fetch) = window.read(range, size, LIMITS).fetch {
                assert!(fetch.start >= requested.end && fetch.start - requested.end <= step);
                assert!(fetch.end <= range.end + LIMITS.window_bytes_max);
                requested = fetch;
            }
        }
        assert!(window.window == LIMITS.window_bytes_max);
        assert!(requested.end >= 400 * step + LIMITS.window_bytes_max / 4);
    }

    #[test]
    fn a_limit_below_the_least_window_holds() {
        for window_bytes_max in [0, 1, 4096, LIMITS.window_bytes_min - 1] {
            let mut window = Window::default();
            for i in 0..8u64 {
                let range = ByteRange::at(i << 17, 1 << 17);
                if let Some(fetch) = window.read(range, 64 << 20, Limits { window_bytes_max, ..LIMITS }).fetch {
                    assert!(fetch.end <= range.end + window_bytes_max);
                }
            }
        }
    }

    #[test]
    fn random_reads_ask_for_nothing_more() {
        let mut window = Window::default();
        for offset in [5 << 20, 1 << 20, 9 << 20, 0, 30 << 20] {
            let plan = window.read(ByteRange::at(offset, 4096), 64 << 20, LIMITS);
            assert_eq!(plan, Plan { forget_all: false, forget_before: 0, forget_served_before: 0, fetch: None });
        }
    }

    #[test]
    fn a_jump_forgets_the_stream() {
        let mut window = Window::default();
        for i in 0..4u64 {
            window.read(ByteRange::at(i << 17, 1 << 17), 64 << 20, LIMITS);
        }
        assert!(window.read(ByteRange::at(40 << 20, 4096), 64 << 20, LIMITS).forget_all);
    }

    #[test]
    fn pieces_that_overtake_each_other_stay_one_stream() {
        let mut window = Window::default();
        for i in [0u64, 1, 3, 2, 5, 4, 6] {
            assert!(!window.read(ByteRange::at(i << 17, 1 << 17), 64 << 20, LIMITS).forget_all);
        }
        assert!(window.window > LIMITS.window_bytes_min);
    }

    /// A kernel asks for the next window but one when it has the one before. So two are under way, each of two requests, here taken up from the last
    /// to the first.
    #[test]
    fn what_a_kernel_has_under_way_is_not_forgotten() {
        let (mut window, step) = (Window::default(), 1u64 << 20);
        let mut read = |piece: u64| window.read(ByteRange::at(piece * step, step), 256 << 20, LIMITS);
        read(0);
        read(1);
        for first in (2..200).step_by(4) {
            for piece in (first..first + 4).rev() {
                let plan = read(piece);
                assert!(!plan.forget_all && plan.forget_before <= first * step, "{piece} of {first}: {plan:?}");
            }
        }
    }
}
