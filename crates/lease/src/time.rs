//! Time as the caller reads it, and how far two clocks may be trusted to agree.
//!
//! Clocks are never compared, only terms are: each side counts a term on its own monotonic clock (one that counts
//! suspension), whose rate is within [`DRIFT_PERCENT`] of true time (design.md §5 *Fencing*).

use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of the caller's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_sub(duration))
    }
}

/// How much faster or slower than true time a clock may run.
pub const DRIFT_PERCENT: u32 = 1;

/// How much of a term that a server counts its client may count.
///
/// The server counts `t` on a clock that is fast at most by 1 %: at least t/1.01 of true time pass. A client whose clock
/// is slow by 1 % takes c/0.99 of true time to count `c`. c/0.99 ≤ t/1.01 gives c ≤ 0.9801 t; 98 % is taken. The client
/// counts from when it asked, the server from when it heard, which is later: transit only adds to the margin.
pub fn usable(term: Duration) -> Duration {
    term * (100 - 2 * DRIFT_PERCENT) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_client_is_done_before_the_fastest_server() {
        for ms in [1u64, 10, 999, 4_000, 10_000, 3_600_000] {
            let term = Duration::from_millis(ms);
            let longest_at_client = usable(term).as_secs_f64() / 0.99;
            let shortest_at_server = term.as_secs_f64() / 1.01;
            assert!(longest_at_client <= shortest_at_server, "{ms} ms");
            // And no more is given away than the drift asks for, to a fifth of a percent.
            assert!(longest_at_client >= shortest_at_server * 0.998, "{ms} ms");
        }
    }

    #[test]
    fn moments_saturate() {
        let second = Duration::from_secs(1);
        assert_eq!(Moment::default() - second, Moment::default());
        assert_eq!(Moment(second).since(Moment(second * 2)), Duration::ZERO);
        assert_eq!(Moment(Duration::MAX) + second, Moment(Duration::MAX));
    }
}
