//! A chunk that was handed out: its files, and the word that says whether that still holds.

use crate::{LocalChunk, LocalFetch, LocalRead};
use braid_env::{BoardView, DiskFile, Monotonic};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// With a ticket come the board, the data and the table, in this order.
pub const FILES: usize = 3;

/// See [`HandOut::read`].
pub struct HandOut {
    board: BoardView,
    word: u64,
    value: u64,
    chunk: LocalChunk,
}

impl HandOut {
    /// `None` if these are not the files of a ticket.
    pub fn of(files: Vec<Arc<dyn DiskFile>>, word: u64, value: u64) -> Option<HandOut> {
        let [board, data, meta]: [_; FILES] = files.try_into().ok()?;
        Some(HandOut { board: BoardView::of(board), word, value, chunk: LocalChunk::of(data, meta) })
    }

    /// Is it still to be used?
    pub fn holds(&self, now: impl FnOnce() -> Monotonic) -> bool {
        self.board.says(self.word, self.value, now)
    }

    /// The data file, if it has exactly the chunk's bytes up to `len` (see [`LocalChunk::is_plain`]) and they are the server's: for as
    /// long as nobody changes the chunk it can be read as it is. Waits for the disk.
    pub fn whole(&self, len: u64, now: impl Fn() -> Monotonic) -> Option<Arc<OwnedFd>> {
        if !self.holds(&now) || !self.chunk.is_plain(len) {
            return None;
        }
        let file = self.chunk.files()[0].descriptor()?.try_clone_to_owned().ok()?;
        self.holds(&now).then(|| Arc::new(file))
    }

    /// As [`LocalChunk::read`], of a chunk that may be read here all the while; `None`: not any more.
    pub fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        fetch: LocalFetch,
        now: impl Fn() -> Monotonic,
    ) -> Option<LocalRead> {
        if !self.holds(&now) {
            return None;
        }
        let read = self.chunk.read(offset, buf, fetch);
        // What the files had is worth something only if the word was the same afterwards: it changes before the server answers
        // whoever has ended this.
        self.holds(&now).then_some(read)
    }
}
