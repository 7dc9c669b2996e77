use braid_env::{BoxFuture, Clock, Monotonic};
use braid_types::Timestamp;
use rand::RngExt;
use std::time::Duration;

/// 2026-01-01: wall clocks begin around here.
const WALL_START_NS: i64 = 1_767_225_600_000_000_000;

/// How far a wall clock is from the truth, either way.
const WALL_SKEW_NS_MAX: i64 = 5_000_000_000;

/// How wrong a machine's clock is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Monotonic clocks of different machines have nothing in common.
    pub uptime: Duration,
    /// Of the wall clock; may be negative.
    pub wall_ns: i64,
    /// It runs faster by so many millionths; at most 1 % either way (design.md §5 *Fencing*).
    pub drift_ppm: i64,
}

impl Skew {
    pub const DRIFT_PPM_MAX: i64 = 10_000;

    pub fn draw(random: &mut crate::seed::Stream) -> Self {
        Skew {
            uptime: Duration::from_millis(random.random_range(0..1_000_000)),
            wall_ns: random.random_range(-WALL_SKEW_NS_MAX..=WALL_SKEW_NS_MAX),
            drift_ppm: random.random_range(-Self::DRIFT_PPM_MAX..=Self::DRIFT_PPM_MAX),
        }
    }

    /// What this clock shows of a true span.
    fn shown(&self, real: Duration) -> Duration {
        Duration::from_nanos((real.as_nanos() as i128 * (1_000_000 + self.drift_ppm) as i128 / 1_000_000) as u64)
    }

    /// The true span after which this clock has gone on by `shown`.
    fn real(&self, shown: Duration) -> Duration {
        let nanos = shown.as_nanos() as i128 * 1_000_000 / (1_000_000 + self.drift_ppm) as i128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The simulator's time through a machine's skew.
pub struct SimClock(Skew);

impl SimClock {
    pub fn new(skew: Skew) -> Self {
        SimClock(skew)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Monotonic {
        // Without a host there is no time: only while a crashed process is taken apart, where it decides nothing.
        let real = turmoil::sim_elapsed().unwrap_or_default();
        Monotonic(self.0.uptime + self.0.shown(real))
    }

    fn wall(&self) -> Timestamp {
        let shown = self.0.shown(turmoil::sim_elapsed().unwrap_or_default());
        Timestamp(WALL_START_NS + self.0.wall_ns + shown.as_nanos() as i64)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(self.0.real(duration)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_shows_more_than_is_true() {
        let skew = Skew { drift_ppm: 10_000, ..Skew::default() };
        assert_eq!(skew.shown(Duration::from_secs(100)), Duration::from_secs(101));
        assert_eq!(skew.real(Duration::from_secs(101)), Duration::from_secs(100));
    }
}
