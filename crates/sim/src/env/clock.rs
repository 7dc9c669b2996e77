use crate::seed::Stream;
use braid_env::{BoxFuture, Clock, Monotonic};
use braid_types::Timestamp;
use parking_lot::Mutex;
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

    pub fn draw(random: &mut Stream) -> Self {
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

/// How late a process's timers are. On a busy machine the task that waits runs some time after its moment, and another has noticed
/// by then that the moment is over.
pub struct Lateness(Option<Mutex<Stream>>);

impl Lateness {
    /// Of so many processes one is on a busy machine: in the others what depends on exact timers is found as before.
    const BUSY_ONE_OF: u32 = 3;
    /// Of so many of its timers one is late.
    const LATE_ONE_OF: u32 = 4;
    /// A few turns of a scheduler that has ten others to run.
    const MOST: Duration = Duration::from_millis(40);

    pub fn draw(mut random: Stream) -> Self {
        let is_busy = random.random_range(0..Self::BUSY_ONE_OF) == 0;
        Lateness(is_busy.then(|| Mutex::new(random)))
    }

    fn next(&self) -> Duration {
        let Some(random) = &self.0 else { return Duration::ZERO };
        let mut random = random.lock();
        match random.random_range(0..Self::LATE_ONE_OF) {
            0 => random.random_range(Duration::ZERO..=Self::MOST),
            _ => Duration::ZERO,
        }
    }
}

/// The simulator's time through a machine's skew.
pub struct SimClock {
    skew: Skew,
    lateness: Lateness,
}

impl SimClock {
    pub fn new(skew: Skew, lateness: Lateness) -> Self {
        SimClock { skew, lateness }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Monotonic {
        // Without a host there is no time: only while a crashed process is taken apart, where it decides nothing.
        let real = turmoil::sim_elapsed().unwrap_or_default();
        Monotonic(self.skew.uptime + self.skew.shown(real))
    }

    fn wall(&self) -> Timestamp {
        let shown = self.skew.shown(turmoil::sim_elapsed().unwrap_or_default());
        Timestamp(WALL_START_NS + self.skew.wall_ns + shown.as_nanos() as i64)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(self.skew.real(duration) + self.lateness.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_of_some_processes_are_late() {
        let lateness = |seed| Lateness::draw(crate::seed::stream(seed, "timers", 0));
        let late = (0..300).filter(|seed| lateness(*seed).0.is_some()).count();
        assert!((70..130).contains(&late), "{late} of 300");
        let busy = (0..).map(lateness).find(|lateness| lateness.0.is_some()).unwrap();
        let drawn: Vec<Duration> = (0..100).map(|_| busy.next()).collect();
        assert!(drawn.iter().all(|late| *late <= Lateness::MOST) && drawn.iter().any(|late| !late.is_zero()));
    }

    #[test]
    fn a_fast_clock_shows_more_than_is_true() {
        let skew = Skew { drift_ppm: 10_000, ..Skew::default() };
        assert_eq!(skew.shown(Duration::from_secs(100)), Duration::from_secs(101));
        assert_eq!(skew.real(Duration::from_secs(101)), Duration::from_secs(100));
    }
}
