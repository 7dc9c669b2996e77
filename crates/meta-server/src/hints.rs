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
}
