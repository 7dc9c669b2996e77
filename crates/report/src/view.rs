//! The side of rows, read page by page while they change.
//!
//! A chunk's life goes spare, file, waiting to be freed, gone, and never back; ids are never used again. So rows are read in this order,
//! spares and what waits to be freed once more at the end: a chunk that is in none of these pages, and was at a server before the
//! first, is named by no row and never will be.

use crate::Mixer;
use braid_types::{ChunkId, ChunkIndex, ContainerId, InodeId, Tally};
use std::collections::{BTreeMap, BTreeSet};

/// A chunk of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub inode: InodeId,
    pub index: ChunkIndex,
    /// Its bytes have reached a disk.
    pub stable: bool,
}

/// 20 bytes or so a container, and for those of which the ids are wanted 40 a chunk.
#[derive(Clone, Debug, Default)]
pub struct View {
    mixer: Mixer,
    named: BTreeMap<ContainerId, Tally>,
    may: BTreeMap<ContainerId, BTreeSet<ChunkId>>,
    wanted: BTreeSet<ContainerId>,
    ids: BTreeMap<ContainerId, BTreeMap<ChunkId, Named>>,
    watched: BTreeSet<ChunkId>,
    seen: BTreeSet<ChunkId>,
}

impl View {
    /// With the ids of these containers, and whether these chunks are seen in any.
    pub fn new(mixer: Mixer, wanted: BTreeSet<ContainerId>, watched: BTreeSet<ChunkId>) -> View {
        View { mixer, wanted, watched, ..View::default() }
    }

    /// A file has it: its servers do.
    pub fn names(&mut self, container: ContainerId, chunk: ChunkId, named: Named) {
        self.note(chunk);
        self.named.entry(container).or_default().add(self.mixer.number(container, chunk));
        if self.wanted.contains(&container) {
            self.ids.entry(container).or_default().insert(chunk, named);
        }
    }

    /// A spare, or waiting to be freed: its servers may have it or not.
    pub fn may_be(&mut self, container: ContainerId, chunk: ChunkId) {
        self.note(chunk);
        self.may.entry(container).or_default().insert(chunk);
    }

    fn note(&mut self, chunk: ChunkId) {
        if self.watched.contains(&chunk) {
            self.seen.insert(chunk);
        }
    }

    /// Of a chunk that was watched: some row speaks of it, under whatever container.
    pub fn has_seen(&self, chunk: ChunkId) -> bool {
        self.seen.contains(&chunk)
    }

    pub fn containers(&self) -> BTreeSet<ContainerId> {
        self.named.keys().chain(self.may.keys()).copied().collect()
    }

    pub fn tally(&self, container: ContainerId) -> Tally {
        self.named.get(&container).copied().unwrap_or_default()
    }

    pub fn may(&self, container: ContainerId) -> impl Iterator<Item = ChunkId> + '_ {
        self.may.get(&container).into_iter().flatten().copied()
    }

    pub fn is_pending(&self, container: ContainerId, chunk: ChunkId) -> bool {
        self.may.get(&container).is_some_and(|chunks| chunks.contains(&chunk))
    }

    /// Of a container whose ids were wanted.
    pub fn named(&self, container: ContainerId, chunk: ChunkId) -> Option<Named> {
        self.ids.get(&container)?.get(&chunk).copied()
    }

    /// The same, all of them.
    pub fn ids(&self, container: ContainerId) -> impl Iterator<Item = (ChunkId, Named)> + '_ {
        self.ids.get(&container).into_iter().flatten().map(|(chunk, named)| (*chunk, *named))
    }
}
