//! A file of the log: records of committed groups one after the other. What counts is what was synced; where a record is torn, or of an
//! earlier use of the file, it ends (docs/formats/metadata-log.md).

use braid_types::MetaPosition;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Length (4), checksum (4), series (8), number (8), kind (1), nothing (7), position (24); little-endian.
const HEAD_BYTES: usize = 56;
const POSITION_AT: usize = HEAD_BYTES - MetaPosition::BYTES;
/// The checksum is of all that follows it, and of the length.
const SUMMED_AT: usize = 8;
/// A group takes at most 8 MiB and what its last operation writes; a length beyond this is a torn one.
const BODY_BYTES_MAX: u32 = 1 << 30;
/// So much is written with zeros at once: a sync of what overwrites them has no metadata of the file system to write (98 µs and not 216 on
/// the disk where this was measured).
pub const STEP_BYTES: u64 = 1 << 20;
/// A file that has become larger, because a checkpoint took long, is cut when it is used again.
const KEPT_BYTES: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Group = 1,
    /// The group of this number is none: the store refused it after it was in the log.
    Retracted = 2,
}

/// What is found in the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Group { number: u64, position: MetaPosition, changes: Vec<u8> },
    Retracted { number: u64 },
}

pub struct Segment {
    file: File,
    /// Which use of which file: rises with each.
    series: u64,
    /// Where the next record begins.
    at: u64,
    /// Up to here the file system has nothing to allocate.
    written_to: u64,
    buffer: Vec<u8>,
}

impl Segment {
    /// Opens the file, or makes it. What is in it can be read until [`Segment::begin`].
    pub fn open(path: &Path) -> io::Result<Segment> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let written_to = file.metadata()?.len();
        let mut segment = Segment { file, series: 0, at: 0, written_to, buffer: Vec::new() };
        // If the first record is torn nothing was made durable in it since it was begun.
        let file_bytes = segment.file.metadata()?.len();
        segment.series = segment.head(0, file_bytes)?.map_or(0, |(head, _)| head.series);
        if segment.record(0, file_bytes)?.is_none() {
            segment.series = 0;
        }
        // Removing works on a full disk, and so needs a place in the log.
        if segment.written_to < STEP_BYTES {
            segment.allocate(STEP_BYTES)?;
            segment.sync()?;
        }
        Ok(segment)
    }

    pub fn series(&self) -> u64 {
        self.series
    }

    /// Bytes of records in it.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    pub fn disk_bytes(&self) -> u64 {
        self.written_to
    }

    /// From the beginning again: what was in it counts no more.
    pub fn begin(&mut self, series: u64) -> io::Result<()> {
        (self.series, self.at) = (series, 0);
        if self.written_to > KEPT_BYTES {
            self.file.set_len(KEPT_BYTES)?;
            self.written_to = KEPT_BYTES;
        }
        Ok(())
    }

    /// Not durable before [`Segment::sync`].
    pub fn append_group(&mut self, number: u64, position: MetaPosition, changes: &[u8]) -> io::Result<()> {
        self.append(Kind::Group, number, position, changes)
    }

    pub fn append_retracted(&mut self, number: u64) -> io::Result<()> {
        self.append(Kind::Retracted, number, MetaPosition::default(), &[])
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn append(&mut self, kind: Kind, number: u64, position: MetaPosition, changes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(changes.len()).ok().filter(|len| *len <= BODY_BYTES_MAX);
        let len = len.ok_or_else(|| io::Error::other(format!("a group of {} bytes", changes.len())))?;
        let mut record = std::mem::take(&mut self.buffer);
        record.clear();
        record.extend_from_slice(&len.to_le_bytes());
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(&self.series.to_le_bytes());
        record.extend_from_slice(&number.to_le_bytes());
        record.extend_from_slice(&[kind as u8, 0, 0, 0, 0, 0, 0, 0]);
        record.extend_from_slice(&position.to_bytes());
        record.extend_from_slice(changes);
        let sum = sum(&record[SUMMED_AT..], len);
        record[4..SUMMED_AT].copy_from_slice(&sum.to_le_bytes());
        let end = self.at + record.len() as u64;
        let written = self.allocate(end).and_then(|()| self.file.write_all_at(&record, self.at));
        self.buffer = record;
        written?;
        self.at = end;
        Ok(())
    }

    fn allocate(&mut self, end: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let wanted = end.next_multiple_of(STEP_BYTES);
        while self.written_to < wanted {
            let len = (wanted - self.written_to).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..len as usize], self.written_to)?;
            self.written_to += len;
        }
        Ok(())
    }

    /// What is in the file, in order, up to where it is torn or older.
    pub fn read(&self) -> impl Iterator<Item = io::Result<Found>> {
        let (mut at, mut ended, mut file_bytes) = (0, false, None);
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let found = match file_bytes {
                Some(len) => Ok(len),
                None => self.file.metadata().map(|file| *file_bytes.insert(file.len())),
            };
            match found.and_then(|len| self.record(at, len)) {
                Ok(Some((found, end))) => {
                    at = end;
                    Some(Ok(found))
                }
                other => {
                    ended = true;
                    other.err().map(Err)
                }
            }
        })
    }

    /// `None` where no whole record is.
    fn record(&self, at: u64, file_bytes: u64) -> io::Result<Option<(Found, u64)>> {
        let Some((head, bytes)) = self.head(at, file_bytes)? else { return Ok(None) };
        if head.series != self.series || head.series == 0 {
            return Ok(None);
        }
        let mut summed = bytes[SUMMED_AT..].to_vec();
        summed.resize(HEAD_BYTES - SUMMED_AT + head.len as usize, 0);
        self.file.read_exact_at(&mut summed[HEAD_BYTES - SUMMED_AT..], at + HEAD_BYTES as u64)?;
        if sum(&summed, head.len) != head.sum {
            return Ok(None);
        }
        let changes = summed.split_off(HEAD_BYTES - SUMMED_AT);
        let found = match head.kind {
            kind if kind == Kind::Group as u8 => Found::Group { number: head.number, position: head.position, changes },
            kind if kind == Kind::Retracted as u8 => Found::Retracted { number: head.number },
            kind => return Err(io::Error::other(format!("a record of kind {kind} at byte {at}"))),
        };
        Ok(Some((found, at + HEAD_BYTES as u64 + u64::from(head.len))))
    }

    /// `None` where no whole record can be.
    fn head(&self, at: u64, file_bytes: u64) -> io::Result<Option<(Head, [u8; HEAD_BYTES])>> {
        let mut bytes = [0; HEAD_BYTES];
        if at + HEAD_BYTES as u64 > file_bytes {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, at)?;
        let head = Head::read(&bytes);
        let fits = head.len <= BODY_BYTES_MAX && at + HEAD_BYTES as u64 + u64::from(head.len) <= file_bytes;
        Ok(fits.then_some((head, bytes)))
    }
}

struct Head {
    len: u32,
    sum: u32,
    series: u64,
    number: u64,
    kind: u8,
    position: MetaPosition,
}

impl Head {
    fn read(bytes: &[u8; HEAD_BYTES]) -> Head {
        let half = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let position = bytes[POSITION_AT..].first_chunk().map(MetaPosition::from_bytes).unwrap_or_default();
        Head { len: half(0), sum: half(4), series: word(8), number: word(16), kind: bytes[24], position }
    }
}

/// Over the length too: zeros must not be a record.
fn sum(rest: &[u8], len: u32) -> u32 {
    crc_fast::crc32_iscsi(rest) ^ len ^ 0x6c6f_6721
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::MetaTerm;
    use tempfile::TempDir;

    fn position(number: u64) -> MetaPosition {
        MetaPosition { term: MetaTerm { counter: 3, nonce: 4 }, number }
    }

    fn group(number: u64, changes: &[u8]) -> Found {
        Found::Group { number, position: position(number), changes: changes.to_vec() }
    }

    fn all(path: &Path) -> Vec<Found> {
        Segment::open(path).and_then(|segment| segment.read().collect()).expect("it reads")
    }

    #[test]
    fn what_was_appended_is_found_up_to_where_it_is_torn_or_older() {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join("log");
        assert!(all(&path).is_empty(), "zeros are no record");
        let mut segment = Segment::open(&path).expect("it opens");
        segment.begin(7).expect("it begins");
        segment.append_group(1, position(1), b"first").expect("it is written");
        segment.append_group(2, position(2), b"").expect("it is written");
        segment.append_retracted(2).expect("it is written");
        let large = vec![9; STEP_BYTES as usize];
        segment.append_group(3, position(3), &large).expect("it is written");
        let end = segment.bytes();
        let written = || [group(1, b"first"), group(2, b""), Found::Retracted { number: 2 }, group(3, &large)];
        assert_eq!(all(&path), written());
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 2 * STEP_BYTES, "allocated in steps");

        // Of a newer use: what is left of the older one behind it is none of it.
        segment.begin(8).expect("it begins");
        segment.append_group(4, position(4), b"fresh").expect("it is written");
        assert_eq!(all(&path), [group(4, b"fresh")]);

        // Each byte of a record is looked at.
        let mut segment = Segment::open(&path).expect("it opens");
        segment.begin(9).expect("it begins");
        segment.append_group(5, position(5), b"whole").expect("it is written");
        let whole = segment.bytes();
        segment.append_group(6, position(6), b"to be torn").expect("it is written");
        for at in whole..segment.bytes() {
            let file = File::options().read(true).write(true).open(&path).expect("it opens");
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("it reads");
            file.write_all_at(&[byte[0] ^ 0x40], at).expect("it writes");
            assert_eq!(all(&path), [group(5, b"whole")], "byte {at} of {end}");
            file.write_all_at(&byte, at).expect("it writes");
        }
        assert_eq!(all(&path), [group(5, b"whole"), group(6, b"to be torn")]);
    }

    #[test]
    fn a_file_that_has_grown_is_cut_when_it_is_used_again() {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join("log");
        let mut segment = Segment::open(&path).expect("it opens");
        segment.begin(1).expect("it begins");
        segment.append_group(1, position(1), &vec![1; 40 << 20]).expect("it is written");
        segment.begin(2).expect("it begins");
        assert_eq!(std::fs::metadata(&path).expect("it is there").len(), KEPT_BYTES);
        segment.append_group(2, position(2), &vec![2; 33 << 20]).expect("it grows again");
        assert_eq!(all(&path).len(), 1);
    }
}
