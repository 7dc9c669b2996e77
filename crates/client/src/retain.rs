//! Writes a server has answered but not yet made stable. Pure.
//!
//! A server that restarts forgets what was not stable; its new incarnation shows in every answer. What is kept
//! here is then written again. Per chunk only the newest bytes are kept: an older write under them would be
//! overwritten by the repetition anyway, so repeating in any order gives the same chunk.

mod adrift;

pub use adrift::Has;

use crate::buffer::Extents;
use braid_api::meta::Cuts;
use braid_env::Monotonic;
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, TruncGen};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// What a write to a chunk says of it, needed again to repeat the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkKey {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub chunk_bytes: u64,
    /// Its row says that it is on stable storage.
    pub stable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Tag {
    incarnation: u64,
    sequence: u64,
    /// Place in this client's order: fsync waits for what came before it, not for what comes later.
    order: u64,
    /// In the same order, when the answer came that the server has it. Later than `order` if it was repeated: a sync that was asked
    /// for before the repetition does not cover it.
    heard: u64,
}

struct Kept {
    key: ChunkKey,
    generation: TruncGen,
    /// Cuts inside this chunk at the time of its last write.
    cuts: Cuts,
    extents: Extents<Tag>,
    /// All that was written since is cut or punched again, but that the chunk is there is not stable yet: a file's row may name it.
    bare: Option<Tag>,
    oldest: Monotonic,
    /// The lease it was written under is lost, so others may have changed the file since: nothing of it is repeated or shown.
    /// What the server has of it is being asked, see `lost`.
    adrift: bool,
}

impl Kept {
    fn tags(&self) -> impl Iterator<Item = Tag> {
        self.extents.tags().map(|(_, _, tag)| tag).chain(self.bare)
    }

    /// Nothing waits to become stable.
    fn is_done(&self) -> bool {
        self.extents.is_empty() && self.bare.is_none()
    }

    /// The chunk stays: of what was written to it nothing does.
    fn cut(&mut self, range: ByteRange) {
        let first = self.tags().min_by_key(|tag| tag.order);
        self.extents.remove(range);
        if self.extents.is_empty() {
            self.bare = first;
        }
    }
}

/// A write that has to be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    pub key: ChunkKey,
    pub generation: TruncGen,
    pub cuts: Cuts,
    pub offset: u64,
    pub data: Bytes,
    pub order: u64,
}

/// A server's answer to a write.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    pub incarnation: u64,
    pub sequence: u64,
    pub stable: u64,
}

#[derive(Default)]
pub struct Retain {
    incarnation: u64,
    chunks: HashMap<ChunkId, Kept>,
    bytes: u64,
    order: u64,
    /// Up to here everything of this incarnation was released already.
    released: u64,
    /// The incarnation changed while something was kept: look for what was lost.
    suspect: bool,
    /// Chunks of which a write became stable, and whose rows do not say so: see `marks`. Beyond [`PROVEN_MAX`] none is noted, and
    /// rows say it after a later write.
    proven: BTreeMap<ChunkId, ChunkKey>,
}

/// 65,536 × about 90 bytes: 6 MB for a metadata server that is away for long.
const PROVEN_MAX: usize = 1 << 16;

impl Retain {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing waits to become stable.
    pub fn is_idle(&self) -> bool {
        self.minded().next().is_none()
    }

    fn minded(&self) -> impl Iterator<Item = &Kept> {
        self.chunks.values().filter(|kept| !kept.adrift)
    }

    /// The order of the last write kept so far.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// The server's, as it was in its last answer.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// When the oldest unstable write was answered.
    pub fn oldest(&self) -> Option<Monotonic> {
        self.minded().map(|kept| kept.oldest).min()
    }

    /// A write was answered.
    pub fn answered(
        &mut self,
        key: ChunkKey,
        (generation, cuts): (TruncGen, Cuts),
        (offset, data): (u64, Bytes),
        receipt: Receipt,
        now: Monotonic,
    ) {
        self.order += 1;
        self.saw(receipt.incarnation);
        self.stable(receipt.incarnation, receipt.stable);
        if receipt.sequence <= receipt.stable {
            // Older bytes under it are stable too, or overwritten by it after a repetition.
            self.prove(key);
            return self.change(key.chunk, |chunks| {
                if let Some(kept) = chunks.get_mut(&key.chunk) {
                    kept.bare = None;
                    kept.extents.remove(ByteRange::at(offset, data.len() as u64));
                }
            });
        }
        let tag =
            Tag { incarnation: receipt.incarnation, sequence: receipt.sequence, order: self.order, heard: self.order };
        self.change(key.chunk, |chunks| {
            let kept = chunks.entry(key.chunk).or_insert_with(|| Kept {
                key,
                generation,
                cuts: Cuts::new(),
                extents: Extents::default(),
                bare: None,
                oldest: now,
                adrift: false,
            });
            kept.key.stable |= key.stable;
            kept.generation = kept.generation.max(generation);
            kept.cuts = cuts;
            kept.extents.insert_whole(offset, data, tag);
        });
    }

    fn saw(&mut self, incarnation: u64) {
        if self.incarnation != incarnation {
            self.suspect = !self.chunks.is_empty();
            (self.incarnation, self.released) = (incarnation, 0);
        }
    }

    /// A repeated write was answered: what is still kept of it has a new place in the server's order.
    pub fn repeated(&mut self, repeat: &Repeat, receipt: Receipt) {
        self.saw(receipt.incarnation);
        self.order += 1;
        let heard = self.order;
        self.change(repeat.key.chunk, |chunks| {
            let Some(kept) = chunks.get_mut(&repeat.key.chunk) else { return };
            if let Some(bare) = kept.bare.as_mut().filter(|bare| bare.order == repeat.order) {
                *bare = Tag { incarnation: receipt.incarnation, sequence: receipt.sequence, heard, ..*bare };
            }
            let range = ByteRange::at(repeat.offset, repeat.data.len() as u64);
            for (start, data, tag) in kept.extents.take(range).into_pieces() {
                let tag = match tag.order == repeat.order {
                    true => Tag { incarnation: receipt.incarnation, sequence: receipt.sequence, heard, ..tag },
                    false => tag,
                };
                kept.extents.insert_whole(start, data, tag);
            }
        });
        self.released = 0;
        self.stable(receipt.incarnation, receipt.stable);
    }

    /// Everything up to `sequence` of this incarnation is stable.
    pub fn stable(&mut self, incarnation: u64, sequence: u64) {
        self.saw(incarnation);
        if sequence <= self.released {
            return;
        }
        self.released = sequence;
        self.release(|_, tag| tag.incarnation == incarnation && tag.sequence <= sequence);
    }

    /// These chunks were synced: what the server was known to have of them at `order`, when that was asked for, is stable if it
    /// was written in this incarnation.
    pub fn synced(&mut self, chunks: &[ChunkId], order: u64, incarnation: u64) {
        self.saw(incarnation);
        self.release(|id, tag| tag.incarnation == incarnation && tag.heard <= order && chunks.contains(&id));
    }

    fn release(&mut self, stable: impl Fn(ChunkId, Tag) -> bool) {
        let mut bytes = 0;
        let mut proven = Vec::new();
        self.chunks.retain(|&id, kept| {
            if kept.tags().any(|tag| stable(id, tag)) {
                proven.push(kept.key);
            }
            kept.extents.keep(|tag| !stable(id, tag));
            kept.bare = kept.bare.filter(|tag| !stable(id, *tag));
            bytes += kept.extents.bytes();
            !kept.is_done()
        });
        self.bytes = bytes;
        proven.into_iter().for_each(|key| self.prove(key));
    }

    fn prove(&mut self, key: ChunkKey) {
        if !key.stable && self.proven.len() < PROVEN_MAX {
            self.proven.insert(key.chunk, key);
        }
    }

    /// Chunks that are on stable storage, and of which no row is known to say so.
    pub fn proven(&self) -> Vec<ChunkKey> {
        self.proven.values().copied().collect()
    }

    pub fn is_proven(&self, chunk: ChunkId) -> bool {
        self.proven.contains_key(&chunk)
    }

    pub fn has_proven(&self) -> bool {
        !self.proven.is_empty()
    }

    /// The chunk's row says that it is stable.
    pub fn marked(&mut self, chunk: ChunkId) {
        self.proven.remove(&chunk);
        if let Some(kept) = self.chunks.get_mut(&chunk) {
            kept.key.stable = true;
        }
    }

    fn change(&mut self, id: ChunkId, change: impl FnOnce(&mut HashMap<ChunkId, Kept>)) {
        let bytes = |chunks: &HashMap<ChunkId, Kept>| chunks.get(&id).map_or(0, |kept| kept.extents.bytes());
        let before = bytes(&self.chunks);
        change(&mut self.chunks);
        self.bytes = self.bytes - before + bytes(&self.chunks);
        if self.chunks.get(&id).is_some_and(Kept::is_done) {
            self.chunks.remove(&id);
        }
    }

    /// A write of an earlier incarnation is waiting to be repeated.
    pub fn has_lost(&mut self) -> bool {
        let now = self.incarnation;
        self.suspect = self.suspect && self.minded().any(|kept| kept.tags().any(|tag| tag.incarnation != now));
        self.suspect
    }

    /// Writes of an earlier incarnation, to be repeated now.
    pub fn lost(&self) -> Vec<Repeat> {
        let mut lost = Vec::new();
        for kept in self.minded() {
            if let Some(tag) = kept.bare.filter(|tag| tag.incarnation != self.incarnation) {
                let (key, generation, cuts, data) = (kept.key, kept.generation, kept.cuts.clone(), Bytes::new());
                lost.push(Repeat { key, generation, cuts, offset: 0, data, order: tag.order });
            }
            let pieces = kept.extents.tags().filter(|(_, _, tag)| tag.incarnation != self.incarnation);
            for (offset, len, tag) in pieces {
                for (offset, data) in kept.extents.snapshot(ByteRange::at(offset, len)) {
                    let (key, generation, cuts) = (kept.key, kept.generation, kept.cuts.clone());
                    lost.push(Repeat { key, generation, cuts, offset, data, order: tag.order });
                }
            }
        }
        lost.sort_by_key(|repeat| repeat.order);
        lost
    }

    /// The server does not know this chunk: all of it has to be repeated.
    pub fn forgotten_by_server(&mut self, chunk: ChunkId) {
        self.suspect = true;
        let before = |tag| Tag { incarnation: !self.incarnation, sequence: 0, ..tag };
        if let Some(kept) = self.chunks.get_mut(&chunk) {
            kept.bare = kept.bare.map(before);
            let all = kept.extents.take(ByteRange::new(0, u64::MAX));
            for (start, data, tag) in all.into_pieces() {
                kept.extents.insert_whole(start, data, before(tag));
            }
        }
    }

    /// Chunks with unstable writes.
    pub fn chunks(&self) -> Vec<ChunkId> {
        self.minded().map(|kept| kept.key.chunk).collect()
    }

    /// Chunks with writes up to `order` that are not stable.
    pub fn chunks_until(&self, order: u64) -> Vec<ChunkId> {
        let old = |kept: &&Kept| kept.tags().any(|tag| tag.order <= order);
        self.minded().filter(old).map(|kept| kept.key.chunk).collect()
    }

    /// Chunks of a file with writes up to `order` that are not stable.
    pub fn chunks_of(&self, inode: InodeId, order: u64) -> Vec<ChunkId> {
        let old = |kept: &&Kept| kept.key.inode == inode && kept.tags().any(|tag| tag.order <= order);
        self.minded().filter(old).map(|kept| kept.key.chunk).collect()
    }

    /// Files with writes that are not stable.
    pub fn files(&self) -> Vec<InodeId> {
        self.minded().map(|kept| kept.key.inode).collect()
    }

    /// Nothing of the file is to be repeated or shown any more. Gives how many bytes that is.
    pub fn forget_file(&mut self, inode: InodeId) -> u64 {
        let before = self.bytes;
        self.chunks.retain(|_, kept| kept.key.inode != inode);
        self.proven.retain(|_, key| key.inode != inode);
        self.bytes = self.chunks.values().map(|kept| kept.extents.bytes()).sum();
        before - self.bytes
    }

    /// Something of it waits to become stable.
    pub fn minds(&self, chunk: ChunkId) -> bool {
        self.chunks.get(&chunk).is_some_and(|kept| !kept.adrift)
    }

    pub fn has(&self, chunk: ChunkId) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// What a reader of the chunk must see over the server's bytes.
    pub fn overlay(&self, chunk: ChunkId, range: ByteRange) -> Vec<(u64, Bytes)> {
        match self.chunks.get(&chunk) {
            Some(kept) if !kept.adrift => kept.extents.snapshot(range),
            _ => Vec::new(),
        }
    }

    /// The range was punched: it must not come back by a repetition.
    pub fn remove(&mut self, chunk: ChunkId, range: ByteRange) {
        self.change(chunk, |chunks| {
            if let Some(kept) = chunks.get_mut(&chunk) {
                kept.cut(range);
            }
        });
    }

    /// A newer truncate generation of the file is known: what it cut off is not repeated. `cuts` are the file's.
    pub fn cut_file(&mut self, inode: InodeId, generation: TruncGen, cuts: &Cuts) {
        let of_file: Vec<ChunkKey> =
            self.chunks.values().map(|kept| kept.key).filter(|key| key.inode == inode).collect();
        for key in of_file {
            let base = key.index.0.saturating_mul(key.chunk_bytes);
            self.change(key.chunk, |chunks| {
                let Some(kept) = chunks.get_mut(&key.chunk) else { return };
                let seen = kept.generation;
                for &(_, size) in cuts.iter().filter(|(g, _)| *g > seen) {
                    if size <= base {
                        // The chunk went as a whole.
                        return drop(chunks.remove(&key.chunk));
                    }
                    kept.cut(ByteRange::new(size - base, u64::MAX));
                }
                kept.generation = kept.generation.max(generation);
                kept.cuts = crate::cuts::in_chunk(cuts, key.index, key.chunk_bytes);
            });
        }
    }

    /// The chunk is no longer part of a file.
    pub fn forget(&mut self, chunk: ChunkId) {
        self.proven.remove(&chunk);
        self.change(chunk, |chunks| drop(chunks.remove(&chunk)));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    const LEN: usize = 256;

    pub fn key(chunk: u64) -> ChunkKey {
        ChunkKey {
            chunk: ChunkId(chunk),
            container: ContainerId(1),
            inode: InodeId(9),
            index: ChunkIndex(0),
            chunk_bytes: 1 << 20,
            stable: false,
        }
    }

    /// A server that keeps an unstable copy and forgets it when it restarts.
    struct Server {
        incarnation: u64,
        sequence: u64,
        now: [Vec<u8>; 2],
        stable: [Vec<u8>; 2],
        /// Which chunks it has, and has on stable storage.
        there: [bool; 2],
        kept: [bool; 2],
    }

    impl Server {
        fn write(&mut self, chunk: usize, offset: u64, data: &[u8]) -> Receipt {
            self.now[chunk][offset as usize..offset as usize + data.len()].copy_from_slice(data);
            self.sequence += 1;
            self.there[chunk] = true;
            Receipt { incarnation: self.incarnation, sequence: self.sequence, stable: 0 }
        }
    }

    #[test]
    fn whatever_a_server_forgets_is_repeated() {
        for seed in 0..300 {
            let mut rng = StdRng::seed_from_u64(seed);
            let clear = || [vec![0; LEN], vec![0; LEN]];
            let (now, stable, there, kept) = (clear(), clear(), [false; 2], [false; 2]);
            let mut server = Server { incarnation: 1, sequence: 0, now, stable, there, kept };
            let (mut truth, mut made) = (clear(), [false; 2]);
            let mut retain = Retain::default();
            // Answers of syncs that other tasks have asked for.
            let mut on_their_way: Vec<(ChunkId, u64, u64)> = Vec::new();
            for _ in 0..80 {
                let chunk = rng.random_range(0..2usize);
                if rng.random_range(0..4) == 0
                    && let Some((chunk, order, incarnation)) = on_their_way.pop()
                    && incarnation == server.incarnation
                {
                    retain.synced(&[chunk], order, incarnation);
                }
                match rng.random_range(0..11) {
                    0..6 => {
                        let offset = rng.random_range(0..LEN as u64 - 60);
                        let data = Bytes::from(vec![rng.random(); rng.random_range(1..60)]);
                        truth[chunk][offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                        made[chunk] = true;
                        let receipt = server.write(chunk, offset, &data);
                        let cuts = (TruncGen(0), Cuts::new());
                        retain.answered(key(chunk as u64), cuts, (offset, data), receipt, Monotonic::default());
                    }
                    6 => {
                        server.stable[chunk] = server.now[chunk].clone();
                        server.kept[chunk] = server.there[chunk];
                        on_their_way.push((ChunkId(chunk as u64), retain.order(), server.incarnation));
                    }
                    7 => {
                        server.stable = server.now.clone();
                        server.kept = server.there;
                        retain.stable(server.incarnation, server.sequence);
                    }
                    8 => {
                        // The power goes: an arbitrary server restart, seen at the next answer.
                        server.now = server.stable.clone();
                        server.there = server.kept;
                        (server.incarnation, server.sequence) = (server.incarnation + 1, 0);
                        retain.stable(server.incarnation, 0);
                        // Covers nothing of what is repeated next.
                        on_their_way.push((ChunkId(chunk as u64), retain.order(), server.incarnation));
                        for repeat in retain.lost() {
                            let receipt = server.write(repeat.key.chunk.0 as usize, repeat.offset, &repeat.data);
                            retain.repeated(&repeat, receipt);
                        }
                        assert!(retain.lost().is_empty());
                    }
                    9 => {
                        // Punched: stable when it is answered, as far as the chunk is there.
                        let from = rng.random_range(0..LEN);
                        for bytes in [&mut truth[chunk], &mut server.now[chunk], &mut server.stable[chunk]] {
                            bytes[from..].fill(0);
                        }
                        retain.remove(ChunkId(chunk as u64), ByteRange::new(from as u64, LEN as u64));
                    }
                    _ => {
                        let mut seen = server.now[chunk].clone();
                        let overlay = retain.overlay(ChunkId(chunk as u64), ByteRange::new(0, LEN as u64));
                        crate::buffer::paint(&mut seen, 0, &overlay);
                        assert_eq!(seen, truth[chunk]);
                    }
                }
                assert_eq!((&server.now, server.there), (&truth, made));
                assert_eq!(retain.bytes(), retain.chunks.values().map(|kept| kept.extents.bytes()).sum::<u64>());
            }
        }
    }

    #[test]
    fn a_cut_is_not_undone_by_a_repetition() {
        let mut retain = Retain::default();
        let receipt = Receipt { incarnation: 1, sequence: 1, stable: 0 };
        let data = Bytes::from(vec![1; 100]);
        retain.answered(key(1), (TruncGen(0), Cuts::new()), (0, data), receipt, Monotonic::default());
        retain.cut_file(InodeId(9), TruncGen(1), &vec![(TruncGen(1), 40)]);
        retain.stable(2, 0);
        let lost = retain.lost();
        assert_eq!((lost.len(), lost[0].data.len(), lost[0].generation), (1, 40, TruncGen(1)));
        retain.forget(ChunkId(1));
        assert!(retain.is_idle() && retain.bytes() == 0);
    }
}
