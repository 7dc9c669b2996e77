//! Files that were open here, with their maps, for the next open. Pure but for the inodes themselves.
//!
//! Promises: what is given out is as the metadata server has it, for its attributes were leased since it was kept and its bytes held
//! under one lease, without a gap; bounded in files and in bytes of small files. As `lru`: two generations.

use crate::inode::Inode;
use braid_lease::Generation;
use braid_types::InodeId;
use std::collections::HashMap;
use std::sync::Arc;

/// A map takes about 1 KiB: 64 MiB. Half of them at the least: a tree of so many files is read again without a message. A metadata server keeps
/// 384 Ki leases on files by default, of all sessions.
const FILES_MAX: usize = 64 << 10;
/// Of the small files among them, whose bytes are in the map: half of the files at 4 KiB each.
const BYTES_MAX: usize = 128 << 20;

struct File {
    inode: Arc<Inode>,
    /// Of the lease under which its map is right.
    number: Generation,
    bytes: usize,
}

#[derive(Default)]
struct Files {
    map: HashMap<InodeId, File>,
    bytes: usize,
}

impl Files {
    fn remove(&mut self, id: InodeId) -> Option<File> {
        let file = self.map.remove(&id)?;
        self.bytes -= file.bytes;
        Some(file)
    }

    fn is_full(&self, more: usize) -> bool {
        self.map.len() >= FILES_MAX / 2 || self.bytes + more > BYTES_MAX / 2
    }
}

#[derive(Default)]
pub struct Kept {
    young: Files,
    old: Files,
}

impl Kept {
    /// `bytes`: of the file, in its map. Gives what is forgotten for it, up to half of all: to be dropped when no lock is held.
    #[must_use]
    pub fn insert(&mut self, inode: Arc<Inode>, number: Generation, bytes: usize) -> Option<Kept> {
        let id = inode.id;
        self.forget(id);
        let forgotten = self.young.is_full(bytes).then(|| {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            Kept { young: Files::default(), old }
        });
        self.young.bytes += bytes;
        self.young.map.insert(id, File { inode, number, bytes });
        forgotten
    }

    /// Takes it out, if it was kept under this lease; else it is of no use.
    pub fn take(&mut self, id: InodeId, number: Generation) -> Option<Arc<Inode>> {
        let file = self.young.remove(id).or_else(|| self.old.remove(id))?;
        (file.number == number).then_some(file.inode)
    }

    pub fn forget(&mut self, id: InodeId) {
        self.young.remove(id);
        self.old.remove(id);
    }

    pub fn retain(&mut self, stays: impl Fn(&InodeId) -> bool) {
        for files in [&mut self.young, &mut self.old] {
            for (_, file) in files.map.extract_if(|id, _| !stays(id)) {
                files.bytes -= file.bytes;
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Kept::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::attr;

    fn inode(id: u64) -> Arc<Inode> {
        Arc::new(Inode::new(attr(id), 1))
    }

    #[test]
    fn a_file_is_given_once_and_under_its_lease() {
        let (mut kept, one, two) = (Kept::default(), Generation(1), Generation(2));
        _ = kept.insert(inode(7), one, 0);
        assert!(kept.take(InodeId(7), two).is_none() && kept.take(InodeId(7), one).is_none(), "the lease was another");
        _ = kept.insert(inode(7), one, 0);
        _ = kept.insert(inode(7), two, 0);
        assert!(kept.take(InodeId(7), two).is_some() && kept.take(InodeId(7), two).is_none());
        _ = kept.insert(inode(7), two, 0);
        kept.forget(InodeId(7));
        assert!(kept.take(InodeId(7), two).is_none());
    }

    #[test]
    fn files_and_bytes_are_bounded() {
        let (mut kept, one) = (Kept::default(), Generation(1));
        let all = |kept: &Kept| kept.young.map.len() + kept.old.map.len();
        for id in 0..100_000 {
            _ = kept.insert(inode(id), one, 0);
            assert!(all(&kept) <= FILES_MAX);
        }
        assert!(all(&kept) >= FILES_MAX / 2 && kept.take(InodeId(99_999), one).is_some());
        for id in 0..10_000 {
            _ = kept.insert(inode(id), one, 64 << 10);
            assert!(kept.young.bytes + kept.old.bytes <= BYTES_MAX);
        }
        assert!(kept.take(InodeId(9_999), one).is_some());
        kept.retain(|id| *id == InodeId(9_998));
        assert_eq!((all(&kept), kept.young.bytes + kept.old.bytes), (1, 64 << 10));
        kept.clear();
        assert_eq!((all(&kept), kept.young.bytes + kept.old.bytes), (0, 0));
    }
}
