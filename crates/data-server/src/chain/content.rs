//! Content of blocks between messages and the store.

use super::blocks;
use braid_api::data::{BlockContent, CopyHead};
use braid_chain::BlockSet;
use braid_data_store::{ChunkHead, ChunkStore, Cuts, StoreError, WriteInfo};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId};
use bytes::{Bytes, BytesMut};

type Result<T> = std::result::Result<T, StoreError>;

/// Content that came with a message.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    head: ChunkHead,
    /// First block, how many, and where their bytes begin.
    data: Vec<(u64, u64, usize)>,
    payload: Bytes,
}

impl Incoming {
    /// `None` if head and payload do not fit together.
    pub fn new(content: &BlockContent, payload: Bytes) -> Option<Incoming> {
        let mut data = Vec::with_capacity(content.data.len());
        let (mut at, mut next) = (0usize, 0);
        for (first, count) in &content.data {
            let end = first.checked_add(*count)?;
            if *first < next || *count == 0 || end > braid_chain::BLOCKS_MAX {
                return None;
            }
            data.push((*first, *count, at));
            at = at.checked_add(usize::try_from(count.checked_mul(BLOCK_BYTES)?).ok()?)?;
            next = end;
        }
        let CopyHead { chunk_bytes, length, trunc_gen, inode, index } = content.head;
        let head = ChunkHead { chunk_bytes, length, trunc_gen, inode, index };
        (at == payload.len()).then_some(Incoming { head, data, payload })
    }

    pub fn head(&self) -> &ChunkHead {
        &self.head
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
        for run in blocks::data(wanted) {
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
