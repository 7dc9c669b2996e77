//! Copies that are behind, as data servers say it.

use crate::output::{bytes, millis};
use braid_api::data::DataStatus;

/// Where programs write, copies are behind by what is on its way to them: that takes milliseconds, seconds on a busy machine.
const LACKING_MS: u64 = 5_000;

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

    fn said(&self) -> String {
        let Lacking { copies, chunks, .. } = self;
        format!("{copies} copies of {chunks} chunks are behind, {} are being copied", bytes(self.bytes))
    }

    pub fn problem(&self) -> Option<String> {
        (self.ms >= LACKING_MS).then(|| format!("{}, the longest for {}", self.said(), millis(self.ms)))
    }

    pub fn note(&self) -> Option<String> {
        let some = self.copies > 0 || self.bytes > 0;
        (some && self.ms < LACKING_MS).then(|| format!("{}: what was written last is on its way", self.said()))
    }
}
