//! The side of the data server: what it has, and answers. About 100 bytes a chunk.

use crate::Mixer;
use braid_types::{ChunkId, ContainerId, ReportAsk, ReportPart, Tally};
use std::collections::{BTreeMap, BTreeSet};

/// Of one question; more is answered in part, and whoever asked sees that it is strange.
const SHELVES_MAX: u32 = 1 << 12;
const BUCKETS_MAX: u32 = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct Holdings {
    mixer: Mixer,
    all: Tally,
    chunks: BTreeMap<ChunkId, ContainerId>,
    containers: BTreeMap<ContainerId, (Tally, BTreeSet<ChunkId>)>,
}

impl Holdings {
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub fn has(&self, chunk: ChunkId) -> bool {
        self.chunks.contains_key(&chunk)
    }

    pub fn all(&self) -> Tally {
        self.all
    }

    /// Under another key all numbers are others.
    pub fn use_key(&mut self, key: u64) {
        if self.mixer.key != key {
            let chunks = std::mem::take(&mut self.chunks);
            *self = Holdings { mixer: Mixer { key }, ..Holdings::default() };
            chunks.into_iter().for_each(|(chunk, container)| self.insert(chunk, container));
        }
    }

    pub fn insert(&mut self, chunk: ChunkId, container: ContainerId) {
        self.remove(chunk);
        let number = self.mixer.number(container, chunk);
        self.chunks.insert(chunk, container);
        let (tally, chunks) = self.containers.entry(container).or_default();
        chunks.insert(chunk);
        tally.add(number);
        self.all.add(number);
    }

    pub fn remove(&mut self, chunk: ChunkId) {
        let Some(container) = self.chunks.remove(&chunk) else { return };
        let number = self.mixer.number(container, chunk);
        self.all.remove(number);
        if let Some((tally, chunks)) = self.containers.get_mut(&container) {
            chunks.remove(&chunk);
            tally.remove(number);
            if chunks.is_empty() {
                self.containers.remove(&container);
            }
        }
    }

    /// Those that are not among `kept` go.
    pub fn retain(&mut self, kept: &BTreeSet<ChunkId>) {
        let gone: Vec<ChunkId> = self.chunks.keys().filter(|chunk| !kept.contains(chunk)).copied().collect();
        gone.into_iter().for_each(|chunk| self.remove(chunk));
    }

    pub fn answer(&self, ask: &ReportAsk) -> ReportPart {
        match ask {
            ReportAsk::All => ReportPart::All(self.all),
            ReportAsk::Shelves { shelves } => {
                let shelves = (*shelves).clamp(1, SHELVES_MAX);
                let mut tallies = vec![Tally::default(); shelves as usize];
                for (container, (tally, _)) in &self.containers {
                    tallies[self.mixer.shelf(*container, shelves) as usize].merge(*tally);
                }
                ReportPart::Shelves(tallies)
            }
            ReportAsk::Containers { shelves, of } => {
                let wanted: BTreeSet<u32> = of.iter().copied().collect();
                let is_asked = |id: ContainerId| wanted.contains(&self.mixer.shelf(id, *shelves));
                let found = self.containers.iter().filter(|(id, _)| is_asked(**id));
                ReportPart::Containers(found.map(|(id, (tally, _))| (*id, *tally)).collect())
            }
            ReportAsk::Buckets { of } => {
                let mut room = BUCKETS_MAX;
                let mut all = Vec::with_capacity(of.len().min(BUCKETS_MAX as usize));
                for (container, buckets) in of {
                    let buckets = (*buckets).clamp(1, BUCKETS_MAX);
                    let Some(left) = room.checked_sub(buckets) else { break };
                    room = left;
                    let mut tallies = vec![Tally::default(); buckets as usize];
                    for chunk in self.chunks_of(*container) {
                        let bucket = self.mixer.bucket(*container, chunk, buckets);
                        tallies[bucket as usize].add(self.mixer.number(*container, chunk));
                    }
                    all.push(tallies);
                }
                ReportPart::Buckets(all)
            }
            ReportAsk::Ids { of } => {
                let ids = |(container, buckets, which): &(ContainerId, u32, Vec<u32>)| {
                    let is_asked = |chunk: &ChunkId| which.contains(&self.mixer.bucket(*container, *chunk, *buckets));
                    self.chunks_of(*container).filter(is_asked).collect()
                };
                ReportPart::Ids(of.iter().map(ids).collect())
            }
        }
    }

    fn chunks_of(&self, container: ContainerId) -> impl Iterator<Item = ChunkId> + '_ {
        self.containers.get(&container).into_iter().flat_map(|(_, chunks)| chunks.iter().copied())
    }
}
