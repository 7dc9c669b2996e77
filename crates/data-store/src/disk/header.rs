//! The head of a chunk's `.meta` file: see docs/formats/data-store.md.

use crate::checksum::record_sum;
use braid_types::{ChainEpoch, ChunkId, ChunkIndex, ContainerId, InodeId, OwnerTerm, TruncGen, Version};

/// Three slots, a sector each: one is on stable storage, one is being synced, one is written now. So whatever a
/// power cut does to the sectors in flight, the last synced header is whole.
pub(crate) const SLOTS: u64 = 3;
pub(crate) const SLOT_BYTES: u64 = 512;
/// Where the table of checksums begins.
pub(crate) use braid_local::TABLE_OFFSET;
const _: () = assert!(TABLE_OFFSET == SLOTS * SLOT_BYTES);

const MAGIC: [u8; 8] = *b"BRCHUNK\0";
/// The newest that is known.
pub(crate) const FORMAT: u32 = 3;
/// Of chunks without a base: programs that know no other read them.
const FORMAT_BASELESS: u32 = 2;
pub(crate) const HEADER_BYTES: usize = 112;

/// Where the sum of a header of this format is. The first one did not know the chunk's file.
const fn sum_at(format: u32) -> usize {
    if format == 1 { 92 } else { HEADER_BYTES - 4 }
}
const SUM_AT: usize = sum_at(FORMAT);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub chunk_bytes: u64,
    pub length: u64,
    /// A length that a completed sync covered. Never lowered: a cut does not make it smaller.
    pub synced_len: u64,
    /// Rises at every sync; the valid slot with the highest counts.
    pub slot_seq: u64,
    pub version: Version,
    pub trunc_gen: TruncGen,
    /// The file the chunk was last written for; 0 is unknown.
    pub inode: InodeId,
    pub index: ChunkIndex,
    /// See [`crate::ChunkStat::unsure`].
    pub unsure: bool,
    /// Whose blocks those are that the table has as [`crate::checksum::BASE`]; 0: it has none.
    pub base: ChunkId,
}

/// Above the header's length, which needs 16 bits of its word.
const UNSURE: u32 = 1 << 16;

/// What a slot holds.
pub(crate) enum Slot {
    /// Never written.
    Empty,
    Damaged,
    Newer(u32),
    Valid(Header),
}

impl Header {
    /// A sync has returned, directory included. The slot's number does not say so: it rises when a sync begins, and
    /// writes meanwhile bear it.
    pub fn names_are_stable(&self) -> bool {
        self.synced_len > 0
    }

    /// Where it is written.
    pub fn slot_offset(&self) -> u64 {
        self.slot_seq % SLOTS * SLOT_BYTES
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let format = if self.base.0 == 0 { FORMAT_BASELESS } else { FORMAT };
        bytes[8..12].copy_from_slice(&format.to_le_bytes());
        let flags = if self.unsure { UNSURE } else { 0 };
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32 | flags).to_le_bytes());
        let words = [
            self.chunk.0,
            self.container.0,
            self.chunk_bytes,
            self.length,
            self.synced_len,
            self.slot_seq,
            self.version.counter,
        ];
        for (word, at) in words.iter().zip((16..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let halves = [self.version.chain_epoch.0, self.version.owner_term.0, self.trunc_gen.0];
        for (half, at) in halves.iter().zip((72..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        for (word, at) in [self.inode.0, self.index.0, self.base.0].iter().zip((84..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = record_sum(&bytes[..SUM_AT]);
        bytes[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Slot {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes.iter().all(|&b| b == 0) {
            return Slot::Empty;
        }
        if bytes[..8] == MAGIC && half(8) > FORMAT {
            return Slot::Newer(half(8));
        }
        let sum_at = sum_at(half(8));
        if bytes[..8] != MAGIC || half(8) == 0 || record_sum(&bytes[..sum_at]) != half(sum_at) {
            return Slot::Damaged;
        }
        let of_file = |at| if half(8) == 1 { 0 } else { word(at) };
        Slot::Valid(Header {
            chunk: ChunkId(word(16)),
            container: ContainerId(word(24)),
            chunk_bytes: word(32),
            length: word(40),
            synced_len: word(48),
            slot_seq: word(56),
            version: Version { counter: word(64), chain_epoch: ChainEpoch(half(72)), owner_term: OwnerTerm(half(76)) },
            trunc_gen: TruncGen(half(80)),
            inode: InodeId(of_file(84)),
            index: ChunkIndex(of_file(92)),
            unsure: half(12) & UNSURE != 0,
            base: ChunkId(if half(8) < FORMAT { 0 } else { word(100) }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_every_damage_shows() {
        let header = Header {
            chunk: ChunkId(1),
            container: ContainerId(2),
            chunk_bytes: 3,
            length: 4,
            synced_len: 5,
            slot_seq: 6,
            version: Version { chain_epoch: ChainEpoch(7), owner_term: OwnerTerm(8), counter: 9 },
            trunc_gen: TruncGen(10),
            inode: InodeId(11),
            index: ChunkIndex(12),
            unsure: false,
            base: ChunkId(13),
        };
        let unsure = Header { unsure: true, ..header.clone() };
        assert!(matches!(Header::decode(&unsure.encode()), Slot::Valid(h) if h == unsure));
        let bytes = header.encode();
        assert!(matches!(Header::decode(&bytes), Slot::Valid(h) if h == header));
        for at in (0..HEADER_BYTES).filter(|at| !(8..12).contains(at)) {
            let mut bad = bytes;
            bad[at] ^= 0x10;
            assert!(matches!(Header::decode(&bad), Slot::Damaged), "byte {at}");
        }
        let baseless = Header { base: ChunkId(0), ..header.clone() };
        assert_eq!(baseless.encode()[8], 2);
        assert!(matches!(Header::decode(&baseless.encode()), Slot::Valid(h) if h == baseless));
        let mut newer = bytes;
        newer[8] = 4;
        assert!(matches!(Header::decode(&newer), Slot::Newer(4)));
        assert!(matches!(Header::decode(&[0; HEADER_BYTES]), Slot::Empty));
    }

    #[test]
    fn a_header_of_the_first_format_is_read() {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = 1;
        bytes[12] = 96;
        bytes[16] = 7;
        let sum = record_sum(&bytes[..92]);
        bytes[92..96].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Header::decode(&bytes), Slot::Valid(h) if h.chunk == ChunkId(7) && h.inode == InodeId(0)));
        bytes[84] = 1;
        assert!(matches!(Header::decode(&bytes), Slot::Damaged));
    }
}
