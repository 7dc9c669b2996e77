//! Where a file's bytes are, as far as this client knows: inline, or in chunks.

use crate::ranges::RangeSet;
use crate::room::SPARE_ROOM;
use crate::spares::Spare;
use braid_api::meta::{ChunkPage, ChunkRef, Content};
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId, SessionId};
use bytes::Bytes;
use std::collections::BTreeMap;

pub enum Body {
    /// All bytes; what the size has beyond them is zero. Unsaved if the file's state says so.
    Inline(Vec<u8>),
    Chunked(ChunkTable),
}

/// One chunk of a file.
#[derive(Clone, Debug)]
pub struct ChunkSlot {
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// Taken from this session's spares and not yet known to the metadata server.
    pub fresh: Option<SessionId>,
    /// Of a fresh chunk: what was written to it.
    pub written: RangeSet,
    /// Space was reserved: the chunk exists although nothing was written.
    pub reserved: bool,
    /// Its row says that it is on stable storage.
    pub stable: bool,
    /// A snapshot has it: see [`crate::thaw`].
    pub frozen: bool,
    /// Bytes that its server has set aside and that are not used up by what was written here, see [`crate::room`].
    pub room: u64,
    /// So much is asked for the next time.
    pub ask: u64,
}

#[derive(Default)]
pub struct ChunkTable {
    pub slots: BTreeMap<ChunkIndex, ChunkSlot>,
    /// The map is known for all smaller indices; `None` if all of it is known.
    pub known_below: Option<ChunkIndex>,
}

impl Default for Body {
    fn default() -> Self {
        Body::Inline(Vec::new())
    }
}

impl Body {
    pub fn from_content(content: &Content) -> Body {
        match content {
            Content::Inline(bytes) => Body::Inline(bytes.to_vec()),
            Content::Chunked(page) => {
                let mut table = ChunkTable { known_below: Some(ChunkIndex(0)), ..ChunkTable::default() };
                table.adopt(page);
                Body::Chunked(table)
            }
        }
    }

    /// No chunk waits for a commit.
    pub fn is_clean(&self) -> bool {
        match self {
            Body::Inline(_) => true,
            Body::Chunked(table) => table.slots.values().all(|slot| slot.fresh.is_none() || !slot.exists()),
        }
    }

    pub fn slot(&self, index: ChunkIndex) -> Option<&ChunkSlot> {
        match self {
            Body::Inline(_) => None,
            Body::Chunked(table) => table.slots.get(&index),
        }
    }

    pub fn slot_mut(&mut self, index: ChunkIndex) -> Option<&mut ChunkSlot> {
        match self {
            Body::Inline(_) => None,
            Body::Chunked(table) => table.slots.get_mut(&index),
        }
    }

    /// If the map must be fetched to know the chunk at `index`: from where.
    pub fn unknown_from(&self, index: ChunkIndex) -> Option<ChunkIndex> {
        match self {
            Body::Chunked(ChunkTable { known_below: Some(below), .. }) if *below <= index => Some(*below),
            _ => None,
        }
    }
}

impl ChunkTable {
    /// A page of the map that begins where the known part ends. What was taken here meanwhile stays.
    pub fn adopt(&mut self, page: &ChunkPage) {
        for chunk in &page.chunks {
            self.slots.entry(chunk.index).or_insert_with(|| ChunkSlot::committed(chunk));
        }
        self.known_below = match (page.more, page.chunks.last()) {
            (true, Some(last)) => Some(ChunkIndex(last.index.0 + 1)),
            (true, None) => self.known_below,
            (false, _) => None,
        };
    }

    /// Chunks the metadata server does not know and that hold something.
    pub fn fresh(&self) -> Vec<ChunkRef> {
        let fresh = self.slots.iter().filter(|(_, slot)| slot.fresh.is_some() && slot.exists());
        fresh
            .map(|(&index, slot)| ChunkRef {
                index,
                chunk: slot.chunk,
                container: slot.container,
                stable: false,
                frozen: false,
            })
            .collect()
    }

    /// Drops the chunks a file of `size` bytes does not reach.
    pub fn cut(&mut self, size: u64, chunk_bytes: u64) -> Vec<ChunkSlot> {
        let gone = self.slots.split_off(&ChunkIndex(size.div_ceil(chunk_bytes)));
        if let Some((index, slot)) = self.slots.iter_mut().next_back() {
            slot.written.cut(size.saturating_sub(index.0 * chunk_bytes));
        }
        gone.into_values().collect()
    }
}

impl ChunkSlot {
    /// Its server has heard of it.
    pub fn exists(&self) -> bool {
        self.fresh.is_none() || self.reserved || !self.written.is_empty()
    }

    pub fn committed(chunk: &ChunkRef) -> ChunkSlot {
        ChunkSlot {
            chunk: chunk.chunk,
            container: chunk.container,
            fresh: None,
            written: RangeSet::default(),
            reserved: false,
            stable: chunk.stable,
            frozen: chunk.frozen,
            room: 0,
            ask: 2 * SPARE_ROOM,
        }
    }

    pub fn fresh(spare: &Spare) -> ChunkSlot {
        let Spare { chunk, container, session, room } = *spare;
        let (written, ask) = (RangeSet::default(), 2 * SPARE_ROOM);
        ChunkSlot {
            chunk,
            container,
            fresh: Some(session),
            written,
            reserved: false,
            stable: false,
            frozen: false,
            room,
            ask,
        }
    }
}

/// Writes into inline bytes; they grow with zeros up to `offset`.
pub fn write_inline(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(data);
}

/// Reads inline bytes; zeros where the size goes beyond them.
pub fn read_inline(bytes: &[u8], range: ByteRange) -> Bytes {
    let len = bytes.len() as u64;
    let held = &bytes[range.start.min(len) as usize..range.end.min(len) as usize];
    let mut out = held.to_vec();
    out.resize(range.len() as usize, 0);
    out.into()
}
