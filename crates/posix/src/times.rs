//! When a read is written down.

use braid_types::Timestamp;

const DAY_NANOS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Relatime, as Linux mounts by default: a read is recorded if nobody has read since the last change, or the record
/// is a day old. So a file that is only read costs one write a day.
pub fn atime_is_due(atime: Timestamp, mtime: Timestamp, ctime: Timestamp, now: Timestamp) -> bool {
    atime <= mtime || atime <= ctime || now.0.saturating_sub(atime.0) >= DAY_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_read_is_not_recorded_until_tomorrow() {
        let t = Timestamp;
        assert!(atime_is_due(t(5), t(5), t(1), t(6)));
        assert!(atime_is_due(t(5), t(1), t(7), t(6)));
        assert!(!atime_is_due(t(5), t(1), t(1), t(6)));
        assert!(atime_is_due(t(5), t(1), t(1), t(5 + DAY_NANOS)));
    }
}
