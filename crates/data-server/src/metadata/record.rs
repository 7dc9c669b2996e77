//! Records of a copy's file: length (4 bytes), crc32c of what follows (4), kind (1), body; little-endian.

use braid_env::DiskFile;
use braid_types::MetaPosition;
use std::io;

pub const HEAD_BYTES: usize = 9;
/// No group and no page is larger: a length beyond it is a torn one.
const BODY_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A position: the base begins after it.
    Begin = 1,
    /// Changes of rows.
    Page = 2,
    /// A number: the base is whole with the groups up to it.
    End = 3,
    /// A position and changes.
    Group = 4,
    /// A number: the groups after it are none.
    Drop = 5,
}

impl Kind {
    fn read(byte: u8) -> Option<Kind> {
        [Kind::Begin, Kind::Page, Kind::End, Kind::Group, Kind::Drop].into_iter().find(|kind| *kind as u8 == byte)
    }
}

pub fn encode(kind: Kind, parts: &[&[u8]], out: &mut Vec<u8>) {
    let at = out.len();
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(kind as u8);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let sum = sum(&out[at + 8..], len as u32);
    out[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Over the length too: an empty record of zeros must not be one.
fn sum(rest: &[u8], len: u32) -> u32 {
    braid_data_store::record_sum(rest) ^ len ^ 0x5bd1_e995
}

/// The record at `offset`; `None` at the end, and where it is torn.
pub fn read(file: &dyn DiskFile, offset: u64) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; HEAD_BYTES];
    if file.read_at(&mut head, offset)? < HEAD_BYTES {
        return Ok(None);
    }
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len as usize > BODY_BYTES_MAX || offset + (HEAD_BYTES as u64) + u64::from(len) > file.len()? {
        return Ok(None);
    }
    let mut rest = vec![head[8]; 1 + len as usize];
    if file.read_at(&mut rest[1..], offset + HEAD_BYTES as u64)? < len as usize {
        return Ok(None);
    }
    if sum(&rest, len) != u32::from_le_bytes([head[4], head[5], head[6], head[7]]) {
        return Ok(None);
    }
    let kind = Kind::read(rest.remove(0));
    Ok(kind.map(|kind| (kind, rest)))
}

pub fn position(body: &[u8]) -> Option<MetaPosition> {
    body.first_chunk().map(MetaPosition::from_bytes)
}

pub fn number(body: &[u8]) -> Option<u64> {
    body.first_chunk().map(|word| u64::from_le_bytes(*word))
}
