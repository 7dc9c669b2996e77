//! Content of blocks between messages and the store.

use super::blocks;
use braid_api::data::{BlockContent, CopyHead, SameBlocks};
use braid_chain::BlockSet;
use braid_data_store::{ChunkHead, ChunkStore, Cuts, StoreError, WriteInfo};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, Version};
use bytes::{Bytes, BytesMut};
use std::ops::Range;

type Result<T> = std::result::Result<T, StoreError>;

/// Content that came with a message.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    head: ChunkHead,
    /// First block, how many, and where their bytes begin.
    data: Vec<(u64, u64, usize)>,
    payload: Bytes,
    same: Option<FromOther>,
}

/// Blocks that are those of another chunk.
#[derive(Clone, Debug)]
pub(crate) struct FromOther {
    pub from: ChunkId,
    pub at: Version,
    /// As the chain counts them.
    pub blocks: BlockSet,
}

/// Runs in order, none of them empty; `None` if they are not.
fn checked(runs: &[(u64, u64)]) -> Option<Vec<Range<u64>>> {
    let mut next = 0;
    let run = |(first, count): &(u64, u64)| {
        let end = first.checked_add(*count)?;
        if *first < next || *count == 0 || end >= braid_chain::BLOCKS_MAX {
            return None;
        }
        next = end;
        Some(*first..end)
    };
    runs.iter().map(run).collect()
}

impl Incoming {
    /// `None` if head and payload do not fit together.
    pub fn new(content: &BlockContent, payload: Bytes) -> Option<Incoming> {
        let mut data = Vec::with_capacity(content.data.len());
        let mut at = 0usize;
        let mut blocks = BlockSet::new();
        for run in checked(&content.data)? {
            let count = run.end - run.start;
            data.push((run.start, count, at));
            at = at.checked_add(usize::try_from(count.checked_mul(BLOCK_BYTES)?).ok()?)?;
            blocks.union(&blocks::of_data(run));
        }
        let mut same = None;
        if let Some(SameBlocks { from, at, runs }) = &content.same {
            let mut of_other = BlockSet::new();
            checked(runs)?.into_iter().for_each(|run| of_other.union(&blocks::of_data(run)));
            if !of_other.intersection(&blocks).is_empty() {
                return None;
            }
            same = Some(FromOther { from: *from, at: *at, blocks: of_other });
        }
        let CopyHead { chunk_bytes, length, trunc_gen, inode, index } = content.head;
        let head = ChunkHead { chunk_bytes, length, trunc_gen, inode, index };
        (at == payload.len()).then_some(Incoming { head, data, payload, same })
    }

    pub fn head(&self) -> &ChunkHead {
        &self.head
    }

    pub fn same(&self) -> Option<&FromOther> {
        self.same.as_ref()
    }

    /// Does the error say that it cannot be taken from the other chunk, and nothing of this one?
    pub fn is_of_other(&self, error: &StoreError) -> bool {
        let (StoreError::NoSuchChunk(chunk) | StoreError::BadBlock { chunk, .. } | StoreError::BadHeader { chunk, .. }) =
            error
        else {
            return false;
        };
        self.same.as_ref().is_some_and(|same| same.from == *chunk)
    }

    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Puts the blocks that are wanted into the store. The chunk exists.
    pub fn store(&self, store: &dyn ChunkStore, chunk: ChunkId, wanted: &BlockSet) -> Result<()> {
        let stat = store.stat(chunk)?;
        // Behind the end of both there is nothing: no block makes the chunk longer than it is at its owner.
        let length = stat.length.max(self.head.length);
        let cuts = Cuts { trunc_gen: stat.trunc_gen, list: &[] };
        let info = WriteInfo { container: stat.container, cuts, ..WriteInfo::default() };
        if stat.chunk_bytes != self.head.chunk_bytes && self.head.chunk_bytes > 0 {
            let head = ChunkHead {
                chunk_bytes: self.head.chunk_bytes,
                length: stat.length,
                trunc_gen: stat.trunc_gen,
                inode: stat.inode,
                index: stat.index,
            };
            store.set_head(chunk, &head)?;
        }
        let mut here = wanted.clone();
        if let Some(same) = &self.same {
            here.subtract(&same.blocks);
            for run in blocks::data(&wanted.intersection(&same.blocks)) {
                store.clone_blocks(chunk, same.from, run, &info)?;
            }
        }
        for run in blocks::data(&here) {
            let mut hole_from = run.start;
            for (first, count, at) in &self.data {
                let (from, to) = (run.start.max(*first), run.end.min(first + count));
                if from >= to {
                    continue;
                }
                self.hole(store, chunk, ByteRange::new(hole_from * BLOCK_BYTES, from * BLOCK_BYTES), &info)?;
                hole_from = to;
                let (start, end) = (from * BLOCK_BYTES, (to * BLOCK_BYTES).min(length));
                if start < end {
                    let at = at + ((from - first) * BLOCK_BYTES) as usize;
                    let bytes = &self.payload[at..at + (end - start) as usize];
                    store.write(chunk, start, bytes, &info)?;
                }
            }
            self.hole(store, chunk, ByteRange::new(hole_from * BLOCK_BYTES, run.end * BLOCK_BYTES), &info)?;
        }
        // Last, because data may have made the chunk longer.
        let chunk_bytes = if self.head.chunk_bytes > 0 { self.head.chunk_bytes } else { stat.chunk_bytes };
        let head = ChunkHead { chunk_bytes, ..self.head };
        if blocks::has_head(wanted) { store.set_head(chunk, &head) } else { Ok(()) }
    }

    fn hole(&self, store: &dyn ChunkStore, chunk: ChunkId, range: ByteRange, info: &WriteInfo) -> Result<()> {
        if range.is_empty() { Ok(()) } else { store.punch(chunk, range, info).map(drop) }
    }
}

/// Content of blocks that is to be sent, and the blocks without those that cannot be read.
pub(crate) struct Outgoing {
    pub content: BlockContent,
    pub payload: Bytes,
    pub unreadable: BlockSet,
}

/// Reads what a message names; of a chunk that does not exist all is holes.
pub(crate) fn read(store: &dyn ChunkStore, chunk: ChunkId, exists: bool, wanted: &BlockSet) -> Result<Outgoing> {
    let mut unreadable = BlockSet::new();
    if !exists {
        return Ok(Outgoing { content: BlockContent::default(), payload: Bytes::new(), unreadable });
    }
    let stat = store.stat(chunk)?;
    let (mut data, mut payload): (Vec<(u64, u64)>, _) = (Vec::new(), BytesMut::new());
    for run in blocks::data(wanted) {
        let extents = store.extents(chunk, blocks::bytes(&run))?;
        for extent in extents.iter().filter(|extent| extent.data) {
            let found = extent.range.start / BLOCK_BYTES..extent.range.end.div_ceil(BLOCK_BYTES);
            let at = payload.len();
            payload.resize(at + blocks::bytes(&found).len() as usize, 0);
            if store.read(chunk, found.start * BLOCK_BYTES, &mut payload[at..]).is_ok() {
                data.push((found.start, found.end - found.start));
                continue;
            }
            // Some block of it is bad: one by one.
            payload.truncate(at);
            for block in found {
                let at = payload.len();
                payload.resize(at + BLOCK_BYTES as usize, 0);
                match store.read(chunk, block * BLOCK_BYTES, &mut payload[at..]) {
                    Ok(()) => data.push((block, 1)),
                    Err(StoreError::BadBlock { .. }) => {
                        payload.truncate(at);
                        unreadable.union(&blocks::of_data(block..block + 1));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let head = CopyHead {
        chunk_bytes: stat.chunk_bytes,
        length: stat.length,
        trunc_gen: stat.trunc_gen,
        inode: stat.inode,
        index: stat.index,
    };
    Ok(Outgoing { content: BlockContent { head, data, same: None }, payload: payload.freeze(), unreadable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_data_store::MemoryStore;
    use braid_types::{ContainerId, TruncGen};

    const CHUNK: ChunkId = ChunkId(5);

    fn made(store: &MemoryStore) {
        store.create_copy(CHUNK, ContainerId(1), 1 << 20).unwrap();
    }

    fn all(store: &MemoryStore) -> (Vec<u8>, u64, TruncGen) {
        let stat = store.stat(CHUNK).unwrap();
        let mut bytes = vec![1; 40_960];
        store.read(CHUNK, 0, &mut bytes).unwrap();
        (bytes, stat.length, stat.trunc_gen)
    }

    #[test]
    fn what_is_sent_is_what_is_stored() {
        let (from, to) = (MemoryStore::new(1 << 20), MemoryStore::new(1 << 20));
        made(&from);
        made(&to);
        let info = WriteInfo { cuts: Cuts { trunc_gen: TruncGen(3), list: &[] }, ..WriteInfo::default() };
        from.write(CHUNK, 4_000, &[7; 5_000], &info).unwrap();
        from.write(CHUNK, 30_000, &[8; 100], &info).unwrap();
        // Longer, with content where the other has a hole.
        to.write(CHUNK, 0, &[9; 40_000], &WriteInfo::default()).unwrap();
        let everything = BlockSet::of(0..11);
        let sent = read(&from, CHUNK, true, &everything).unwrap();
        assert_eq!(sent.content.data, [(0, 3), (7, 1)]);
        let incoming = Incoming::new(&sent.content, sent.payload).unwrap();
        incoming.store(&to, CHUNK, &everything).unwrap();
        assert_eq!(all(&to), all(&from));
        assert_eq!(all(&to).1, 30_100);
    }

    #[test]
    fn only_what_is_wanted_is_stored() {
        let (from, to) = (MemoryStore::new(1 << 20), MemoryStore::new(1 << 20));
        made(&from);
        made(&to);
        from.write(CHUNK, 0, &[7; 12_000], &WriteInfo::default()).unwrap();
        let sent = read(&from, CHUNK, true, &BlockSet::of(0..4)).unwrap();
        let incoming = Incoming::new(&sent.content, sent.payload).unwrap();
        incoming.store(&to, CHUNK, &BlockSet::of(3..4)).unwrap();
        let (bytes, length, _) = all(&to);
        assert_eq!((bytes[0], bytes[8_192], length), (0, 7, 12_000), "and its end is the owner's, not the block's");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let head = CopyHead::default();
        let fits = |data: &[(u64, u64)], len| {
            Incoming::new(&BlockContent { head, data: data.to_vec(), same: None }, Bytes::from(vec![0; len])).is_some()
        };
        assert!(fits(&[(3, 2), (7, 1)], 3 * 4096) && fits(&[], 0));
        assert!(!fits(&[(3, 2)], 4096) && !fits(&[(7, 1), (3, 1)], 8192) && !fits(&[(3, 2), (4, 1)], 3 * 4096));
        assert!(!fits(&[(3, 0)], 0) && !fits(&[(u64::MAX, 2)], 8192) && !fits(&[(0, 1 << 52)], 0));
    }
}
