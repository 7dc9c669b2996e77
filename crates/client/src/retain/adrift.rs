//! What was written under leases that are lost.

use super::{ChunkKey, Retain};
use braid_types::{ChunkId, InodeId};
use std::collections::BTreeSet;

/// What a server says of a chunk, when it has made stable what it has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// All that this incarnation answered.
    All(u64),
    /// The chunk is not there, and in no file.
    Removed,
    /// Nobody knows.
    Unknown,
}

impl Retain {
    /// The session's leases have ended, and with them what kept others from changing what is kept here.
    pub fn lose_leases(&mut self) {
        self.chunks.values_mut().for_each(|kept| kept.adrift = true);
    }

    /// The same of one file.
    pub fn lose_lease(&mut self, inode: InodeId) {
        self.chunks.values_mut().filter(|kept| kept.key.inode == inode).for_each(|kept| kept.adrift = true);
    }

    pub fn has_adrift(&self) -> bool {
        self.chunks.values().any(|kept| kept.adrift)
    }

    pub fn adrift_files(&self) -> BTreeSet<InodeId> {
        self.adrift().iter().map(|key| key.inode).collect()
    }

    pub fn adrift(&self) -> Vec<ChunkKey> {
        self.chunks.values().filter(|kept| kept.adrift).map(|kept| kept.key).collect()
    }

    /// Forgets what is adrift of the chunk. Gives how many bytes the server does not have any more, if it was to have some.
    pub fn found(&mut self, chunk: ChunkId, has: Has) -> Option<u64> {
        let kept = self.chunks.get(&chunk).filter(|kept| kept.adrift)?;
        let (key, bytes) = (kept.key, kept.extents.bytes());
        let is_safe = match has {
            Has::All(incarnation) => kept.tags().all(|tag| tag.incarnation == incarnation),
            Has::Removed => true,
            Has::Unknown => false,
        };
        self.change(chunk, |chunks| drop(chunks.remove(&chunk)));
        if matches!(has, Has::All(_)) && is_safe {
            self.prove(key);
        }
        (!is_safe).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retain::{Receipt, tests::key};
    use braid_api::meta::Cuts;
    use braid_env::Monotonic;
    use braid_types::{ByteRange, TruncGen};
    use bytes::Bytes;

    #[test]
    fn what_was_written_under_a_lost_lease_is_neither_shown_nor_repeated() {
        let mut retain = Retain::default();
        let write = |retain: &mut Retain, chunk, incarnation| {
            let receipt = Receipt { incarnation, sequence: chunk, stable: 0 };
            let data = Bytes::from(vec![chunk as u8; 10]);
            retain.answered(key(chunk), (TruncGen(0), Cuts::new()), (0, data), receipt, Monotonic::default());
        };
        (1..=4).for_each(|chunk| write(&mut retain, chunk, 1));
        retain.lose_leases();
        assert_eq!(retain.adrift_files(), BTreeSet::from([InodeId(9)]));
        write(&mut retain, 5, 2);
        assert_eq!(
            (retain.lost(), retain.has_lost()),
            (Vec::new(), false),
            "not of the server that has restarted either"
        );
        assert_eq!((retain.chunks(), retain.adrift().len()), (vec![ChunkId(5)], 4));
        assert!(retain.overlay(ChunkId(1), ByteRange::new(0, 100)).is_empty());
        assert_eq!(retain.overlay(ChunkId(5), ByteRange::new(0, 100)).len(), 1);
        // A server that has not restarted has all it answered.
        assert_eq!(retain.found(ChunkId(1), Has::All(1)), None);
        assert!(retain.is_proven(ChunkId(1)));
        assert_eq!(retain.found(ChunkId(2), Has::All(2)), Some(10));
        assert_eq!(retain.found(ChunkId(3), Has::Removed), None);
        assert_eq!(retain.found(ChunkId(4), Has::Unknown), Some(10));
        assert_eq!(retain.found(ChunkId(5), Has::Unknown), None, "it is not adrift");
        assert!(!retain.has_adrift() && !retain.is_proven(ChunkId(2)) && retain.bytes() == 10);
    }
}
