//! Where inodes were last seen: HopsFS's inode hint cache. Soft, may be wrong, costs a second round trip then.

use braid_types::{InodeId, Name};
use parking_lot::Mutex;
use std::collections::HashMap;

const SHARDS: usize = 64;

pub struct HintCache {
    shards: Vec<Mutex<HashMap<InodeId, (InodeId, Name)>>>,
    shard_max: usize,
}

impl HintCache {
    pub fn new(hints_max: usize) -> Self {
        HintCache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_max: (hints_max / SHARDS).max(1) }
    }

    fn shard(&self, id: InodeId) -> &Mutex<HashMap<InodeId, (InodeId, Name)>> {
        // The counter of the id, because inodes of one directory share the low bits.
        &self.shards[(id.0 >> braid_types::SLOT_BITS) as usize % SHARDS]
    }

    pub fn get(&self, id: InodeId) -> Option<(InodeId, Name)> {
        self.shard(id).lock().get(&id).cloned()
    }

    pub fn set(&self, id: InodeId, parent: InodeId, name: &Name) {
        let mut shard = self.shard(id).lock();
        if shard.len() >= self.shard_max && !shard.contains_key(&id) {
            // Any other goes: the order of a hash table is as good as random, and a miss costs little.
            let victim = shard.keys().next().copied();
            if let Some(victim) = victim {
                shard.remove(&victim);
            }
        }
        shard.insert(id, (parent, name.clone()));
    }

    pub fn forget(&self, id: InodeId) {
        self.shard(id).lock().remove(&id);
    }
}

/// Which directory a name stood for: with it the rows of a path are read in one round trip, as far as it is right.
pub struct DirCache {
    shards: Vec<Mutex<HashMap<(InodeId, Name), InodeId>>>,
    shard_max: usize,
}

impl DirCache {
    pub fn new(dirs_max: usize) -> Self {
        DirCache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_max: (dirs_max / SHARDS).max(1) }
    }

    /// By the directory it is in: all its children share the lock, of which a path takes one after the other.
    fn shard(&self, parent: InodeId) -> &Mutex<HashMap<(InodeId, Name), InodeId>> {
        &self.shards[(parent.0 >> braid_types::SLOT_BITS) as usize % SHARDS]
    }

    /// The directories in which the names of `path` are to be looked for, beginning with `from`, as far as is known.
    pub fn guess(&self, from: InodeId, path: &[Name]) -> Vec<InodeId> {
        let mut dirs = vec![from];
        for name in path.iter().take(path.len().saturating_sub(1)) {
            let at = dirs[dirs.len() - 1];
            let found = self.shard(at).lock().get(&(at, name.clone())).copied();
            let Some(next) = found else { break };
            dirs.push(next);
        }
        dirs
    }

    pub fn set(&self, parent: InodeId, name: &Name, dir: InodeId) {
        let mut shard = self.shard(parent).lock();
        if shard.len() >= self.shard_max {
            let victim = shard.keys().next().cloned();
            if let Some(victim) = victim {
                shard.remove(&victim);
            }
        }
        shard.insert((parent, name.clone()), dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::Slot;

    #[test]
    fn the_cache_is_bounded_and_forgets() {
        let cache = HintCache::new(128);
        let name: Name = "a".parse().unwrap();
        for n in 0..10_000 {
            cache.set(InodeId::new(n, Slot(0)), InodeId::ROOT, &name);
        }
        assert!(cache.shards.iter().map(|s| s.lock().len()).sum::<usize>() <= 128);
        let last = InodeId::new(9_999, Slot(0));
        assert!(cache.get(last).is_some());
        cache.forget(last);
        assert!(cache.get(last).is_none());
    }

    #[test]
    fn directories_are_guessed_as_far_as_they_are_known() {
        let cache = DirCache::new(128);
        let path: Vec<Name> = ["a", "b", "c"].map(|name| name.parse().unwrap()).to_vec();
        let [a, b] = [1, 2].map(|n| InodeId::new(n, Slot(0)));
        assert_eq!(cache.guess(InodeId::ROOT, &path), [InodeId::ROOT]);
        cache.set(InodeId::ROOT, &path[0], a);
        cache.set(a, &path[1], b);
        assert_eq!(cache.guess(InodeId::ROOT, &path), [InodeId::ROOT, a, b]);
        assert_eq!(
            cache.guess(InodeId::ROOT, &path[..2]),
            [InodeId::ROOT, a],
            "what the last name stands for is asked"
        );
        assert_eq!(cache.guess(b, &path), [b]);
        assert_eq!(cache.guess(b, &[]), [b]);
        for n in 0..10_000 {
            cache.set(InodeId::new(n, Slot(0)), &path[0], a);
        }
        assert!(cache.shards.iter().map(|s| s.lock().len()).sum::<usize>() <= 128, "it is bounded");
    }
}
