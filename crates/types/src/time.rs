use serde::{Deserialize, Serialize};

/// Wall-clock time of a file: nanoseconds since 1970, before it negative. Decides nothing; only shown.
/// An `i64` of nanoseconds reaches from 1677 to 2262; times outside are clamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

const NANOS_PER_SEC: i64 = 1_000_000_000;

impl Timestamp {
    pub fn from_parts(secs: i64, nanos: u32) -> Self {
        Timestamp(secs.saturating_mul(NANOS_PER_SEC).saturating_add(i64::from(nanos)))
    }

    /// Whole seconds, rounded down, as `stat` shows them.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(NANOS_PER_SEC)
    }

    /// How long after this `later` is; nothing if it is before.
    pub fn until(self, later: Timestamp) -> std::time::Duration {
        std::time::Duration::from_nanos(later.0.saturating_sub(self.0).max(0) as u64)
    }

    /// Nanoseconds past [`Timestamp::secs`], always in `0..1e9`.
    pub fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(NANOS_PER_SEC) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_and_split_also_before_1970() {
        let t = Timestamp::from_parts(-2, 250);
        assert_eq!((t.secs(), t.subsec_nanos()), (-2, 250));
    }
}
