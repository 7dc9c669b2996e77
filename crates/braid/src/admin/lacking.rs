//! Copies that are behind, as data servers say it.
//!
//! Promises: nothing is said to be well before every copy was seen to be whole, or for as long as a copy could be taken for one that
//! follows what is written: whoever restarts one server after the other may go by that.

use crate::output::{bytes, millis};
use braid_api::data::DataStatus;
use std::time::Duration;

/// Where programs write, copies are behind by what is on its way to them: that takes milliseconds, seconds on a busy machine.
const LACKING_MS: u64 = 5_000;

/// Between two looks at copies that may be just about to have everything.
pub const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A data server looks once a second at what is behind since when.
const SEEN_WITHIN_MS: u64 = 1_000;

/// What is still to be copied at all servers that answer.
#[derive(Default)]
pub struct Lacking {
    pub chunks: u64,
    pub copies: u64,
    pub bytes: u64,
    /// The longest.
    pub ms: u64,
    pub mended: u64,
}

impl Lacking {
    pub fn of<'a>(servers: impl Iterator<Item = &'a DataStatus>) -> Lacking {
        servers.fold(Lacking::default(), |sum, own| Lacking {
            chunks: sum.chunks + own.chunks_lacking,
            copies: sum.copies + own.copies_lacking,
            bytes: sum.bytes + own.bytes_lacking,
            ms: sum.ms.max(own.lacking_ms),
            mended: sum.mended + own.mended_blocks,
        })
    }

    fn is_some(&self) -> bool {
        self.copies > 0 || self.bytes > 0
    }

    /// What it means is known: all copies are whole, or some have been behind for long, or they have been looked at for so long that what
    /// they lack can only be what was written last. A copy that has just come back would be taken for one that follows, else.
    pub fn is_clear(&self, looked_for: Duration) -> bool {
        !self.is_some() || self.ms >= LACKING_MS || looked_for.as_millis() as u64 > LACKING_MS + SEEN_WITHIN_MS
    }

    fn said(&self) -> String {
        let Lacking { copies, chunks, .. } = self;
        format!("{copies} copies of {chunks} chunks are behind, {} are being copied", bytes(self.bytes))
    }

    pub fn problem(&self) -> Option<String> {
        (self.ms >= LACKING_MS).then(|| format!("{}, the longest for {}", self.said(), millis(self.ms)))
    }

    pub fn note(&self) -> Option<String> {
        (self.is_some() && self.ms < LACKING_MS)
            .then(|| format!("{}: what was written last is on its way", self.said()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_well_before_it_was_seen_whole_or_is_known_to_follow() {
        let (at_once, late) = (Duration::ZERO, Duration::from_millis(6_100));
        let whole = Lacking::default();
        assert!(whole.is_clear(at_once) && whole.problem().is_none() && whole.note().is_none());
        // It may follow, or have come back a moment ago.
        let some = Lacking { chunks: 1, copies: 1, ms: 300, ..whole };
        assert!(!some.is_clear(at_once) && some.is_clear(late));
        assert!(some.problem().is_none() && some.note().unwrap().contains("on its way"));
        // After so long it is not one that has come back: that would be behind since then.
        let back = Lacking { ms: 5_100, ..some };
        assert!(back.is_clear(at_once) && back.problem().is_some() && back.note().is_none());
    }
}
