//! What the `containers` row says of a chain.

use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChainRow {
    pub epoch: ChainEpoch,
    pub members: Vec<ServerId>,
}

/// At most 256 chunks are listed, for as long as they are not open in the newest epoch: about 1.3 KB.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContainerRow {
    pub id: ContainerId,
    /// Copies there should be, and copies that a promise needs.
    pub copies: u8,
    pub min_copies: u8,
    /// The newest last; older ones as long as a chunk is not open in the newest.
    pub chains: Vec<ChainRow>,
    /// It is written down who goes on with each chunk in the newest epoch; data servers may act in it.
    pub settled: bool,
    /// Of chunks that are not open in the newest epoch: the last in which they were.
    pub last_open: BTreeMap<ChunkId, ChainEpoch>,
    /// The same for all other chunks.
    pub default_open: ChainEpoch,
}

impl ContainerRow {
    /// A new container, without chunks.
    pub fn new(id: ContainerId, members: Vec<ServerId>, copies: u8, min_copies: u8) -> ContainerRow {
        let epoch = ChainEpoch(1);
        let chains = vec![ChainRow { epoch, members }];
        let last_open = BTreeMap::new();
        ContainerRow { id, copies, min_copies, chains, settled: true, last_open, default_open: epoch }
    }

    pub fn epoch(&self) -> ChainEpoch {
        self.chains.last().map_or(ChainEpoch(0), |chain| chain.epoch)
    }

    pub fn members(&self) -> &[ServerId] {
        self.chains.last().map_or(&[], |chain| &chain.members)
    }

    /// Of all chains that are kept.
    pub fn known(&self) -> BTreeSet<ServerId> {
        self.chains.iter().flat_map(|chain| chain.members.iter().copied()).collect()
    }

    pub fn knows(&self, server: ServerId) -> bool {
        self.chains.iter().any(|chain| chain.members.contains(&server))
    }

    /// The last epoch in which the chunk was open.
    pub fn open_in(&self, chunk: ChunkId) -> ChainEpoch {
        self.last_open.get(&chunk).copied().unwrap_or(self.default_open)
    }

    /// The members a take-over of the chunk counts.
    pub fn counted(&self, chunk: Option<ChunkId>) -> &[ServerId] {
        let epoch = chunk.map_or(self.default_open, |chunk| self.open_in(chunk));
        self.chains.iter().find(|chain| chain.epoch == epoch).map_or(&[], |chain| &chain.members)
    }

    /// The next epoch, with these members; who goes on is not known yet.
    #[must_use]
    pub fn raised(&self, members: Vec<ServerId>) -> ContainerRow {
        let mut row = self.clone();
        row.chains.push(ChainRow { epoch: self.epoch().next(), members });
        row.settled = false;
        row.forget_chains();
        row
    }

    /// It is known who goes on. These chunks are to be copied before they are open; all others have nothing yet.
    #[must_use]
    pub fn decided(&self, chunks: impl Iterator<Item = ChunkId>) -> ContainerRow {
        let mut row = self.clone();
        row.last_open = chunks.map(|chunk| (chunk, self.open_in(chunk))).collect();
        (row.settled, row.default_open) = (true, self.epoch());
        row.forget_chains();
        row
    }

    #[must_use]
    pub fn opened<'a>(&self, chunks: impl Iterator<Item = &'a ChunkId>) -> ContainerRow {
        let mut row = self.clone();
        for chunk in chunks {
            row.last_open.remove(chunk);
        }
        row.forget_chains();
        row
    }

    /// Chains that no take-over will count. A chain that was never settled acknowledged nothing.
    fn forget_chains(&mut self) {
        let newest = self.epoch();
        let used: BTreeSet<ChainEpoch> = self.last_open.values().copied().chain([newest, self.default_open]).collect();
        self.chains.retain(|chain| used.contains(&chain.epoch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(servers: &[u64]) -> Vec<ServerId> {
        servers.iter().copied().map(ServerId).collect()
    }

    #[test]
    fn a_chain_is_kept_until_every_chunk_is_open_in_the_newest() {
        let row = ContainerRow::new(ContainerId(1), ids(&[1, 2, 3]), 3, 2);
        let (a, b) = (ChunkId(1), ChunkId(2));
        let second = row.raised(ids(&[2, 3, 4]));
        assert_eq!(second.counted(Some(a)), ids(&[1, 2, 3]));
        let second = second.decided([a, b].into_iter()).opened([a].iter());
        assert_eq!((second.counted(Some(a)), second.counted(Some(b))), (&ids(&[2, 3, 4])[..], &ids(&[1, 2, 3])[..]));
        let third = second.raised(ids(&[3, 4, 5]));
        assert_eq!(third.counted(Some(a)), ids(&[2, 3, 4]), "open in 2");
        assert_eq!(third.counted(Some(b)), ids(&[1, 2, 3]), "never open in 2");
        assert_eq!(third.counted(None), ids(&[2, 3, 4]), "made in 2");
        let third = third.decided([a, b].into_iter()).opened([b].iter());
        assert_eq!(third.chains.len(), 2, "chunk {a} is open in 2 only");
        assert_eq!(third.opened([a].iter()).chains.len(), 1);
    }

    #[test]
    fn an_epoch_that_nobody_acted_in_is_not_counted() {
        let row = ContainerRow::new(ContainerId(1), ids(&[1, 2, 3]), 3, 2).raised(ids(&[2, 3, 4]));
        let third = row.raised(ids(&[3, 4, 5]));
        assert_eq!((third.counted(None), third.chains.len()), (&ids(&[1, 2, 3])[..], 2));
    }
}
