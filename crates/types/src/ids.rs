use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

/// Low bits of an inode's id that name its slot.
pub const SLOT_BITS: u32 = 12;
/// Slots over which inodes are spread: 4,096.
pub const SLOT_COUNT: u64 = 1 << SLOT_BITS;

id!(
    /// One of the [`SLOT_COUNT`] shares of the namespace's soft state; see the glossary of design.md.
    Slot
);
id!(
    /// An inode. Never reused. The low [`SLOT_BITS`] bits are its slot, the rest a counter.
    InodeId
);
id!(
    /// A chunk of a file's data. Never reused; 0 is no chunk.
    ChunkId
);
id!(
    /// A container: up to 256 chunks with one chain.
    ContainerId
);
id!(
    /// A data server or metadata server, given at its first start and kept in its directory.
    ServerId
);
id!(
    /// A client's registration. Never reused; 0 is no session.
    SessionId
);
id!(
    /// One mutating request of a session; rises within the session, so that the low-water mark prunes.
    RequestId
);
id!(
    /// Follows one file operation through every process and log line; 0 is untraced.
    TraceId
);

/// One start of a metadata server, among those that serve at once. Drawn at each start: nobody is taken for its predecessor, which granted
/// and announced what this one knows nothing of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl InodeId {
    /// The root directory: counter 1, slot 0. FUSE calls it node 1, which only the front knows.
    pub const ROOT: InodeId = InodeId(1 << SLOT_BITS);

    pub fn new(counter: u64, slot: Slot) -> Self {
        debug_assert!(slot.0 < SLOT_COUNT);
        InodeId(counter << SLOT_BITS | (slot.0 & (SLOT_COUNT - 1)))
    }

    pub fn slot(self) -> Slot {
        Slot(self.0 & (SLOT_COUNT - 1))
    }

    /// The inode as it was in a snapshot: an id of its own, so that whoever caches by ids knows the two apart. `None` where
    /// the number of the inode leaves no room for that: 2^39 inodes have been made.
    pub fn in_snapshot(self, handle: SnapshotHandle) -> Option<InodeId> {
        (self.0 >> SNAPSHOT_ID_BITS == 0)
            .then(|| InodeId(IN_SNAPSHOT | u64::from(handle.0) << SNAPSHOT_ID_BITS | self.0))
    }

    /// Which inode it is in which snapshot; `None` of one that lives.
    pub fn of_snapshot(self) -> Option<(SnapshotHandle, InodeId)> {
        let handle = (self.0 >> SNAPSHOT_ID_BITS) as u16 & SnapshotHandle::MAX;
        self.is_in_snapshot().then_some((SnapshotHandle(handle), InodeId(self.0 & ((1 << SNAPSHOT_ID_BITS) - 1))))
    }

    pub fn is_in_snapshot(self) -> bool {
        self.0 & IN_SNAPSHOT != 0
    }
}

/// Bits of an inode's id that name the inode where the others say in which snapshot. With the slot's twelve that is room for 2^39 inodes;
/// 12 are left for the snapshot, and one says that there is one.
const SNAPSHOT_ID_BITS: u32 = 51;
const IN_SNAPSHOT: u64 = 1 << 63;

/// Names a snapshot as long as it exists, in ids of inodes. Not on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotHandle(pub u16);

impl SnapshotHandle {
    pub const MAX: u16 = (1 << 12) - 1;
}

/// Which chunk of a file: offset / chunk bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChunkIndex(pub u64);

/// Names one BraidFS cluster; drawn at random when it is made, checked in every hello and data directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ClusterId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("a cluster id is 32 hexadecimal digits, not {text:?}");
        if text.len() != 32 || !text.is_ascii() {
            return Err(bad());
        }
        let mut id = [0; 16];
        for (i, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(ClusterId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_id_carries_its_slot() {
        let id = InodeId::new(77, Slot(4095));
        assert_eq!((id.slot(), id.0 >> SLOT_BITS), (Slot(4095), 77));
        assert_eq!(InodeId::ROOT.slot(), Slot(0));
    }

    #[test]
    fn an_inode_in_a_snapshot_has_an_id_of_its_own_and_the_same_slot() {
        let id = InodeId::new(77, Slot(4095));
        for handle in [0, 1, SnapshotHandle::MAX].map(SnapshotHandle) {
            let then = id.in_snapshot(handle).unwrap();
            assert_eq!((then.of_snapshot(), then.slot()), (Some((handle, id)), id.slot()));
            assert!(then.is_in_snapshot() && then.in_snapshot(handle).is_none());
        }
        assert_eq!((id.of_snapshot(), InodeId(1 << 51).in_snapshot(SnapshotHandle(1))), (None, None));
    }

    #[test]
    fn a_cluster_id_reads_back_what_it_prints() {
        let id = ClusterId([0xab; 16]);
        assert_eq!(id.to_string().parse::<ClusterId>().unwrap(), id);
        assert!("xyz".parse::<ClusterId>().is_err());
        assert!("é".repeat(16).parse::<ClusterId>().is_err());
    }
}
