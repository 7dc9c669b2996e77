//! A data server's disk: content of blocks as numbers, a page cache, and what is left of it after a power cut.

use super::*;
use braid_types::Version;
use std::collections::BTreeSet;

/// What a block holds that was being written when the power went.
pub const TORN: u64 = u64::MAX;

#[derive(Default, Clone)]
pub struct Disk {
    pub chunks: BTreeMap<ChunkId, Stored>,
    /// Copies that it is to forget when their server begins anew.
    pub losing: BTreeSet<ChunkId>,
    /// Up to where it had those that it has forgotten: it was counted on for that.
    pub had: BTreeMap<ChunkId, Version>,
}

#[derive(Default, Clone)]
pub struct Stored {
    pub cache: BTreeMap<u64, u64>,
    pub stable: BTreeMap<u64, u64>,
    pub record: Option<Vec<u8>>,
    /// The activity log: blocks written since the sync the record speaks of, and the number of the last write.
    touched: BTreeMap<u64, u64>,
    writes: u64,
    syncs: BTreeMap<u64, (u64, BTreeMap<u64, u64>)>,
    /// The last write that is stable.
    mark: u64,
    pub busy_until: Us,
}

pub enum Io {
    Apply { op: u64, chunk: ChunkId, version: Version },
    Store { chunk: ChunkId, number: u64, content: Vec<(u64, u64)> },
    Invalidate { chunk: ChunkId, upto: Version },
    SyncBegins { chunk: ChunkId, number: u64 },
    Synced { chunk: ChunkId, number: u64 },
    Persist { chunk: ChunkId, number: u64, record: Vec<u8> },
    Content { to: ServerId, envelope: Envelope },
    HandsOff { epoch: braid_types::ChainEpoch },
}

impl Stored {
    pub fn complete(&self) -> Version {
        let record = self.record.as_ref().and_then(|record| ChunkRecord::decode(record).ok());
        record.map_or(Version::default(), |record| record.claims.complete())
    }

    pub fn write(&mut self, block: u64, value: u64) {
        self.writes += 1;
        self.cache.insert(block, value);
        self.touched.insert(block, self.writes);
    }

    pub fn sync_begins(&mut self, number: u64) {
        self.syncs.insert(number, (self.writes, self.cache.clone()));
    }

    pub fn synced(&mut self, number: u64) {
        if let Some((mark, content)) = self.syncs.get(&number)
            && *mark >= self.mark
        {
            (self.mark, self.stable) = (*mark, content.clone());
        }
    }

    pub fn persisted(&mut self, number: u64, record: Vec<u8>) {
        self.record = Some(record);
        if let Some((mark, _)) = self.syncs.remove(&number) {
            self.touched.retain(|_, write| *write > mark);
        }
        self.syncs.retain(|other, _| *other > number);
    }
}

impl Disk {
    pub fn power_cut(&mut self, rng: &mut Rng) {
        for stored in self.chunks.values_mut() {
            let blocks: BTreeSet<u64> = stored.cache.keys().chain(stored.stable.keys()).copied().collect();
            for block in blocks {
                let (new, old) = (stored.cache.get(&block).copied(), stored.stable.get(&block).copied());
                if new != old {
                    let kept = match rng.below(5) {
                        0 | 1 => old,
                        2 | 3 => new,
                        _ => Some(TORN),
                    };
                    match kept {
                        Some(value) => drop(stored.stable.insert(block, value)),
                        None => drop(stored.stable.remove(&block)),
                    }
                }
            }
            stored.cache = stored.stable.clone();
        }
    }

    /// What the store says when it is opened: the log is of extents of four blocks here.
    pub fn found(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        for (chunk, stored) in &mut self.chunks {
            stored.syncs.clear();
            stored.busy_until = 0;
            let extents: BTreeSet<u64> = stored.touched.keys().map(|block| block / 4).collect();
            let suspect: BlockSet = extents.iter().flat_map(|extent| extent * 4..extent * 4 + 4).collect();
            let torn = |(block, value): (&u64, &u64)| (*value == TORN).then_some(*block);
            let bad: BlockSet = stored.cache.iter().filter_map(torn).collect();
            let record = match &stored.record {
                Some(bytes) => ChunkRecord::decode(bytes).unwrap(),
                None => ChunkRecord::default(),
            };
            found.push(Found { container: C, chunk: *chunk, record, suspect, bad });
        }
        found
    }
}
