//! What a data server keeps on stable storage of each chunk of a chain.
//!
//! A record speaks of the copy as it was at a sync, and is written after that sync; so all it claims is stable. What
//! was stored since is found in the data store's activity log and comes as *suspect* blocks.
//!
//! Framing and checksum are the caller's: a record is a value in a log or a database.

use crate::{BlockSet, Changes, Lineage};
use braid_types::{ChainEpoch, OwnerTerm, ServerId, Version};
use serde::{Deserialize, Serialize};

/// The format written; older ones are read, newer ones refused.
pub const FORMAT: u8 = 1;

/// What a copy of a chunk holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claims {
    pub lineage: Lineage,
    pub changes: Changes,
    /// Blocks with content that the chain left behind, and its versions: never served, but in a take-over, while no
    /// newer epoch is open, worth more than nothing.
    pub stale: Vec<(Version, BlockSet)>,
    /// Blocks whose content may be newer than told, after a crash or a long absence: never served.
    pub suspect: BlockSet,
    /// Blocks that do not match their checksum.
    pub bad: BlockSet,
    /// Blocks whose content may have writes this copy was not told of yet, and up to which version. They may be served:
    /// such a write is answered to no other session before all are told. But when the chain goes on without it, they
    /// are to be made equal.
    pub ahead: Vec<(Version, BlockSet)>,
    /// While there are stale, suspect or bad blocks, nothing is claimed beyond this version.
    pub sure: Version,
    /// One past the highest block ever written or told.
    pub end: u64,
}

impl Claims {
    /// Every write up to here is in this copy; bad blocks excepted, which are named.
    pub fn complete(&self) -> Version {
        let is_clean = self.stale.is_empty() && self.suspect.is_empty() && self.bad.is_empty();
        let complete = self.changes.complete();
        if is_clean { complete } else { complete.min(self.sure) }
    }

    /// What was written after `version` and is here, newest version last.
    pub fn newer_than(&self, version: Version) -> Vec<(Version, BlockSet)> {
        let mut newer: Vec<_> = self.changes.held_above(version, self.end);
        for (at, blocks) in self.stale.iter().filter(|(at, _)| *at > version) {
            newer.push((*at, blocks.clone()));
        }
        newer.iter_mut().for_each(|(_, blocks)| blocks.subtract(&self.bad));
        newer.retain(|(_, blocks)| !blocks.is_empty());
        newer
    }

    /// Blocks that must not be served.
    pub fn invalid(&self) -> BlockSet {
        let mut invalid = self.changes.missing();
        self.stale.iter().for_each(|(_, blocks)| invalid.union(blocks));
        invalid.union(&self.suspect);
        invalid.union(&self.bad);
        invalid
    }

    pub fn is_invalid(&self, blocks: &BlockSet) -> bool {
        self.changes.lacks(blocks)
            || self.suspect.touches_any(blocks)
            || self.bad.touches_any(blocks)
            || self.stale.iter().any(|(_, stale)| stale.touches_any(blocks))
    }

    /// Content of the present lineage came for these blocks.
    pub(crate) fn overwritten(&mut self, blocks: &BlockSet) {
        self.stale.iter_mut().for_each(|(_, stale)| stale.subtract(blocks));
        self.stale.retain(|(_, stale)| !stale.is_empty());
        self.suspect.subtract(blocks);
        self.bad.subtract(blocks);
    }
}

/// A chunk's record: who owns it, and what the copy claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChunkRecord {
    pub epoch: ChainEpoch,
    pub term: OwnerTerm,
    pub owner: ServerId,
    pub claims: Claims,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the chunk's record has format {0}, this program reads up to {FORMAT}")]
    Newer(u8),
    #[error("the chunk's record is damaged: {0}")]
    Damaged(String),
}

impl ChunkRecord {
    pub fn encode(&self) -> Vec<u8> {
        // Into a vector of a value that is all plain data: nothing in it can fail.
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Result<ChunkRecord, RecordError> {
        match bytes.split_first() {
            Some((&FORMAT, body)) => postcard::from_bytes(body).map_err(|e| RecordError::Damaged(e.to_string())),
            Some((0, _)) => Err(RecordError::Damaged("format 0".to_owned())),
            Some((newer, _)) => Err(RecordError::Newer(*newer)),
            None => Err(RecordError::Damaged("it is empty".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Group;

    fn sample() -> ChunkRecord {
        let v = |epoch, counter| Version { chain_epoch: ChainEpoch(epoch), owner_term: OwnerTerm(1), counter };
        let lineage = Lineage::new(ChainEpoch(1)).extended(ChainEpoch(3), v(1, 300), 8);
        let mut changes = Changes::from(v(1, 200));
        let blocks: BlockSet = (0..10).chain(5000..5002).collect();
        let missing = BlockSet::of(5001..5002);
        assert!(changes.append(Group { base: v(1, 200), upto: v(3, 0), blocks, missing }, 8));
        let scattered: BlockSet = (0..200).step_by(2).collect();
        let claims = Claims {
            lineage,
            changes,
            stale: vec![(v(1, 310), BlockSet::of(7..9))],
            suspect: scattered,
            bad: BlockSet::of(4..5),
            ahead: vec![(v(3, 2), BlockSet::of(3..4))],
            sure: v(1, 200),
            end: 5002,
        };
        ChunkRecord { epoch: ChainEpoch(3), term: OwnerTerm(1), owner: ServerId(4), claims }
    }

    /// Written by format 1, on disks that exist. Never to be changed: a new format gets a new file and reads this one.
    #[test]
    fn the_first_format_is_read_for_ever() {
        let golden = include_bytes!("../tests/golden/chunk-record.v1");
        assert_eq!(ChunkRecord::decode(golden).unwrap(), sample());
        assert_eq!(sample().encode(), golden);
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let bytes = sample().encode();
        assert_eq!(ChunkRecord::decode(&[2, 0, 0]), Err(RecordError::Newer(2)));
        assert!(matches!(ChunkRecord::decode(&[]), Err(RecordError::Damaged(_))));
        for cut in 1..bytes.len() {
            assert!(ChunkRecord::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn bad_and_suspect_blocks_are_not_claimed() {
        let claims = sample().claims;
        let newer = claims.newer_than(Version::default());
        let (_, blocks) = newer.iter().find(|(at, _)| at.chain_epoch == ChainEpoch(3)).unwrap();
        assert!(blocks.contains(3) && !blocks.contains(4) && !blocks.contains(5001));
        let (_, blocks) = newer.iter().find(|(at, _)| at.counter == 310).unwrap();
        assert!(blocks.contains(7) && blocks.contains(8), "8 is suspect: what it holds is that or newer");
        assert!(claims.is_invalid(&BlockSet::of(7..8)) && !claims.is_invalid(&BlockSet::of(9..10)));
    }
}
