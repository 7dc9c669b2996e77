//! A backup as a file, or as a stream that is only written and read from begin to end.
//!
//! Eight bytes that say what it is, then pieces: kind (1 byte), length of the body (4), crc32c of kind, length and body (4), body;
//! numbers little-endian. The first piece says what the backup is of, the last how many rows there are; those between are rows
//! in the order of their keys, in the format of [`RowChanges`]. So a file that was not written to its end is known for that.

use crate::{Batch, RowSource, TransferError};
use braid_meta_engine::{Key, Table};
use braid_types::{ClusterId, RowChange, RowChanges, Timestamp};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};

/// 1: as above.
pub const FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"BRAIDMD\n";
const HEAD_BYTES: usize = 9;
/// A piece is full beyond this.
const PIECE_BYTES: usize = 256 << 10;
/// No piece is larger: one that is full, and one row more.
const PIECE_BYTES_MAX: usize = 32 << 20;

const ABOUT: u8 = 1;
const ROWS: u8 = 2;
const END: u8 = 3;

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub format: u32,
    pub cluster: ClusterId,
    pub taken: Timestamp,
    /// Of the program that wrote it.
    pub version: String,
    /// Of the store that it is of.
    pub engine: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    rows: u64,
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    sum.update(head);
    sum.update(body);
    sum.finalize() as u32
}

/// Writes one.
pub struct BackupWriter<W> {
    to: W,
    rows: RowChanges,
    end: End,
    bytes: u64,
}

impl<W: Write> BackupWriter<W> {
    pub fn begin(mut to: W, about: &About) -> Result<Self, TransferError> {
        to.write_all(&MAGIC).map_err(TransferError::Write)?;
        let bytes = MAGIC.len() as u64;
        let mut writer = BackupWriter { to, rows: RowChanges::default(), end: End::default(), bytes };
        writer.piece(ABOUT, &encode(about))?;
        Ok(writer)
    }

    pub fn row(&mut self, key: &Key, row: &[u8]) -> Result<(), TransferError> {
        self.rows.push(RowChange { table: key.table() as u8, key: key.bytes(), row: Some(row) });
        self.end.rows += 1;
        if self.rows.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    pub fn rows(&self) -> u64 {
        self.end.rows
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last piece; what was written to. It is not synced.
    pub fn end(mut self) -> Result<W, TransferError> {
        self.flush()?;
        let end = encode(&self.end);
        self.piece(END, &end)?;
        self.to.flush().map_err(TransferError::Write)?;
        Ok(self.to)
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        let rows = std::mem::take(&mut self.rows).into_bytes();
        match rows.is_empty() {
            true => Ok(()),
            false => self.piece(ROWS, &rows),
        }
    }

    fn piece(&mut self, kind: u8, body: &[u8]) -> Result<(), TransferError> {
        let too_large = || TransferError::Write(std::io::Error::other("a row is too large"));
        let length = u32::try_from(body.len())
            .ok()
            .filter(|length| *length as usize <= PIECE_BYTES_MAX)
            .ok_or_else(too_large)?;
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[1..5].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&head[..5], body);
        head[5..].copy_from_slice(&sum.to_le_bytes());
        self.to.write_all(&head).and_then(|()| self.to.write_all(body)).map_err(TransferError::Write)?;
        self.bytes += (HEAD_BYTES + body.len()) as u64;
        Ok(())
    }
}

/// Plain structs: encoding them to memory cannot fail, and nothing is refused when it is read.
fn encode<T: Serialize>(what: &T) -> Vec<u8> {
    postcard::to_extend(what, Vec::new()).unwrap_or_default()
}

/// Reads one.
pub struct BackupReader<R> {
    from: R,
    about: About,
    at: u64,
    rows: u64,
    ended: bool,
}

impl<R: Read> BackupReader<R> {
    pub fn open(mut from: R) -> Result<Self, TransferError> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(TransferError::Read(error)),
            _ => return Err(TransferError::NotOurs),
        }
        let (mut at, begin) = (magic.len() as u64, magic.len() as u64);
        let (kind, body) = read_piece(&mut from, &mut at)?;
        let damaged = |why: String| TransferError::Damaged { at: begin, why };
        if kind != ABOUT {
            return Err(damaged(format!("it begins with a piece of kind {kind}")));
        }
        // The number comes first, so that it is read also where what follows is of a newer version.
        let (format, _) = postcard::take_from_bytes::<u32>(&body).map_err(|e| damaged(e.to_string()))?;
        if format > FORMAT {
            return Err(TransferError::Newer { found: format, known: FORMAT });
        }
        let about = postcard::from_bytes(&body).map_err(|e| damaged(e.to_string()))?;
        Ok(BackupReader { from, about, at, rows: 0, ended: false })
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    /// The next rows; `None` after the last.
    pub fn read(&mut self) -> Result<Option<Batch>, TransferError> {
        if self.ended {
            return Ok(None);
        }
        let begin = self.at;
        let (kind, body) = read_piece(&mut self.from, &mut self.at)?;
        let damaged = |why: String| TransferError::Damaged { at: begin, why };
        match kind {
            ROWS => {
                let batch = rows_of(&body).map_err(damaged)?;
                self.rows += batch.len() as u64;
                Ok(Some(batch))
            }
            END => {
                let end: End = postcard::from_bytes(&body).map_err(|e| damaged(e.to_string()))?;
                if end.rows != self.rows {
                    return Err(damaged(format!("{} rows were written and {} are here", end.rows, self.rows)));
                }
                if self.from.read(&mut [0]).map_err(TransferError::Read)? != 0 {
                    return Err(TransferError::Damaged { at: self.at, why: "something follows its last piece".into() });
                }
                self.ended = true;
                Ok(None)
            }
            other => Err(damaged(format!("a piece of the unknown kind {other}"))),
        }
    }
}

impl<R: Read + Send> RowSource for BackupReader<R> {
    /// Reads without waiting for others: for a runtime that has nothing else to do.
    async fn next(&mut self) -> Result<Option<Batch>, TransferError> {
        self.read()
    }
}

fn rows_of(body: &[u8]) -> Result<Batch, String> {
    let mut batch = Batch::new();
    for change in RowChanges::read(body) {
        let change = change.map_err(|_| "these are no rows".to_owned())?;
        let table =
            Table::from_number(change.table).ok_or_else(|| format!("rows of the unknown table {}", change.table))?;
        let key = Key::from_bytes(table, change.key).ok_or_else(|| "a key is too short".to_owned())?;
        batch.push((key, change.row.ok_or_else(|| format!("{key:?} has no row", key = change.key))?.to_vec()));
    }
    match batch.is_empty() {
        true => Err("a piece without rows".to_owned()),
        false => Ok(batch),
    }
}

fn read_piece(from: &mut impl Read, at: &mut u64) -> Result<(u8, Vec<u8>), TransferError> {
    let begin = *at;
    let mut read = |bytes: &mut [u8]| {
        from.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => TransferError::CutOff { at: begin },
            _ => TransferError::Read(error),
        })
    };
    let mut head = [0; HEAD_BYTES];
    read(&mut head)?;
    let word = |from: usize| head[from..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let (length, sum) = (word(1) as usize, word(5));
    if length > PIECE_BYTES_MAX {
        return Err(TransferError::Damaged { at: begin, why: format!("a piece of {length} bytes") });
    }
    let mut body = vec![0; length];
    read(&mut body)?;
    if checksum(&head[..5], &body) != sum {
        return Err(TransferError::Damaged { at: begin, why: "its checksum does not fit".into() });
    }
    *at += (HEAD_BYTES + length) as u64;
    Ok((head[0], body))
}
