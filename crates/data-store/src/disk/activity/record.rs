//! The bytes of the activity log: see docs/formats/data-store.md.

use crate::checksum::record_sum;
use crate::{Result, StoreError};
use braid_types::ChunkId;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

pub(super) const RECORD: usize = 32;
const MAGIC: [u8; 8] = *b"BRACTIV\0";
const FORMAT: u32 = 1;

/// Extents by chunk.
pub(super) type Logged = HashMap<ChunkId, BTreeSet<u64>>;

pub(super) fn record(generation: u64, chunk: u64, extent: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..8].copy_from_slice(&generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&chunk.to_le_bytes());
    bytes[16..24].copy_from_slice(&extent.to_le_bytes());
    let sum = record_sum(&bytes[..28]);
    bytes[28..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub(super) fn header(generation: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&generation.to_le_bytes());
    let sum = record_sum(&bytes[..28]);
    bytes[28..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// What the file says was logged, and its generation. Records count up to the first that is not whole: later ones
/// were not synced.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<(u64, Logged)> {
    let mut logged = Logged::new();
    let bad = |cause: &str| StoreError::NotAStore {
        dir: path.parent().unwrap_or(path).to_owned(),
        cause: format!("{}: {cause}", path.display()),
    };
    let mut records = bytes.chunks_exact(RECORD);
    let head = records.next().ok_or_else(|| bad("it is too short"))?;
    if head[..8] == MAGIC && half(head, 8) > FORMAT {
        return Err(StoreError::NewerFormat { file: path.to_owned(), found: half(head, 8), known: FORMAT });
    }
    if head[..8] != MAGIC || record_sum(&head[..28]) != half(head, 28) {
        return Err(bad("its header is damaged"));
    }
    let generation = word(head, 16);
    for bytes in records {
        if word(bytes, 0) != generation || record_sum(&bytes[..28]) != half(bytes, 28) {
            break;
        }
        logged.entry(ChunkId(word(bytes, 8))).or_default().insert(word(bytes, 16));
    }
    Ok((generation, logged))
}
