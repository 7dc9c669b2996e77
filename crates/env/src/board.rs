//! A board: words that one process writes and others on its host read without asking it (docs/design/0013-local-reads.md).
//!
//! Promises: a view that finds a word and the time as they should be found them so at some moment of the call; once
//! [`Board::set`] has returned, no view finds what was there before. Nothing is found when the writer has not extended the
//! time: one that stands still, or is gone, says nothing.
//!
//! A file in memory, read by calls and not mapped: a reader needs no trust in its writer (a mapping ends in SIGBUS where the file
//! is cut short), and the simulator has such files too. A look costs two calls, about 0.3 µs.

use crate::{Disk, DiskFile, Monotonic};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The time, in nanoseconds, and its complement: half of a change is seen as none of both.
const TIME_BYTES: usize = 16;
const WORD_BYTES: u64 = 8;

/// The writer's end. One process has it.
pub struct Board {
    file: Arc<dyn DiskFile>,
    reads: Arc<dyn DiskFile>,
}

impl Board {
    /// All words are 0, and no time is given: nothing holds yet.
    pub fn new(disk: &dyn Disk, words: u64) -> io::Result<Board> {
        let [file, reads] = disk.memory_file(TIME_BYTES as u64 + words * WORD_BYTES)?;
        Ok(Board { file, reads })
    }

    /// What readers are given, to make a [`BoardView`] of.
    pub fn to_hand_out(&self) -> Arc<dyn DiskFile> {
        self.reads.clone()
    }

    /// When this has returned nobody finds what the word was. A value that was there once is never to come back: who looked then
    /// and looks now takes it for the same.
    pub fn set(&self, word: u64, value: u64) -> io::Result<()> {
        self.file.write_at(&value.to_le_bytes(), TIME_BYTES as u64 + word * WORD_BYTES)?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Until then, by the clock of the host, all words are to be believed; zero ends that at once.
    pub fn extend(&self, until: Monotonic) -> io::Result<()> {
        let nanos = u64::try_from(until.0.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; TIME_BYTES];
        bytes[..8].copy_from_slice(&nanos.to_le_bytes());
        bytes[8..].copy_from_slice(&(!nanos).to_le_bytes());
        self.file.write_at(&bytes, 0)?;
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// A reader's end.
#[derive(Clone)]
pub struct BoardView(Arc<dyn DiskFile>);

impl BoardView {
    pub fn of(file: Arc<dyn DiskFile>) -> BoardView {
        BoardView(file)
    }

    /// Does the word have this value, and is that to be believed now? What was read before the call was read while it had.
    pub fn says(&self, word: u64, value: u64, now: impl FnOnce() -> Monotonic) -> bool {
        // What was read before stays before, also on machines that would read ahead.
        fence(Ordering::SeqCst);
        let offset = word.checked_mul(WORD_BYTES).and_then(|at| at.checked_add(TIME_BYTES as u64));
        let found = offset.and_then(|at| self.bytes(at)).map(u64::from_le_bytes);
        // The clock after the word: what the word was is believed up to then.
        let holds = found == Some(value) && self.until().is_some_and(|until| now() < until);
        fence(Ordering::SeqCst);
        holds
    }

    fn until(&self) -> Option<Monotonic> {
        let bytes: [u8; TIME_BYTES] = self.bytes(0)?;
        let (nanos, complement) = bytes.split_first_chunk()?;
        let nanos = u64::from_le_bytes(*nanos);
        let is_whole = complement == (!nanos).to_le_bytes();
        is_whole.then_some(Monotonic(Duration::from_nanos(nanos)))
    }

    fn bytes<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        matches!(self.0.read_at(&mut bytes, offset), Ok(read) if read == N).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::OsDisk;

    fn at(ms: u64) -> Monotonic {
        Monotonic(Duration::from_millis(ms))
    }

    #[test]
    fn a_word_is_believed_as_long_as_it_stays_and_the_time_lasts() {
        let board = Board::new(&OsDisk, 3).unwrap();
        let view = BoardView::of(board.to_hand_out());
        let says = |word, value, now| view.says(word, value, || at(now));
        assert!(!says(1, 0, 0), "no time was given");
        board.extend(at(500)).unwrap();
        board.set(1, 7).unwrap();
        assert!(says(1, 7, 499) && says(0, 0, 0) && says(2, 0, 0));
        assert!(!says(1, 6, 0) && !says(1, 7, 500));
        board.set(1, 8).unwrap();
        assert!(!says(1, 7, 0) && says(1, 8, 0));
        board.extend(at(0)).unwrap();
        assert!(!says(1, 8, 0));
        for beyond in [3, 1 << 40, u64::MAX] {
            assert!(!says(beyond, 0, 0), "word {beyond}");
        }
    }

    #[test]
    fn half_of_a_time_is_none_and_readers_change_nothing() {
        let board = Board::new(&OsDisk, 1).unwrap();
        let view = BoardView::of(board.to_hand_out());
        board.extend(at(500)).unwrap();
        board.file.write_at(&[0xff; 8], 0).unwrap();
        assert!(!view.says(0, 0, || at(0)), "as if the far future had been written, and its complement not yet");
        board.extend(at(500)).unwrap();
        let given = board.to_hand_out();
        assert!(given.write_at(&[1; 8], TIME_BYTES as u64).is_err() && given.set_len(0).is_err());
        assert!(board.file.set_len(0).is_err() && board.file.set_len(4096).is_err(), "it is sealed");
        assert!(view.says(0, 0, || at(0)));
    }
}
