//! Where inodes were last seen, and where paths led: HopsFS's inode hint cache. Soft, may be wrong: whoever uses a hint finds that out in
//! the rows themselves, and it costs a second round trip then.

use braid_meta_namespace::ops::lookup::Step;
use braid_types::{Attr, FileKind, InodeId, Name};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;

const SHARDS: usize = 64;
/// Of a way to the root, in one read: a key each.
const WAY_MAX: usize = 64;

pub struct HintCache {
    places: Shards<InodeId, (InodeId, Name)>,
    /// What names of directories lead to.
    dirs: Shards<(InodeId, Name), InodeId>,
    /// What names led to, at the end of paths, that is no directory.
    files: Shards<(InodeId, Name), InodeId>,
    /// Whose policy held in a directory.
    policies: Shards<InodeId, InodeId>,
}

impl HintCache {
    /// So many of each.
    pub fn new(hints_max: usize) -> Self {
        let (places, dirs) = (Shards::new(hints_max), Shards::new(hints_max));
        HintCache { places, dirs, files: Shards::new(hints_max), policies: Shards::new(hints_max) }
    }

    pub fn get(&self, id: InodeId) -> Option<(InodeId, Name)> {
        self.places.get(spread(id), &id)
    }

    pub fn set(&self, id: InodeId, parent: InodeId, name: &Name) {
        self.places.set(spread(id), id, (parent, name.clone()));
    }

    /// It was found under this name.
    pub fn note(&self, attr: &Attr, parent: InodeId, name: &Name) {
        self.set(attr.id, parent, name);
        if attr.kind == FileKind::Directory {
            self.dirs.set(spread(parent), (parent, name.clone()), attr.id);
        }
    }

    pub fn forget(&self, id: InodeId) {
        self.places.forget(spread(id), &id);
    }

    /// The directory whose policy held in `dir`.
    pub fn policy_root(&self, dir: InodeId) -> Option<InodeId> {
        self.policies.get(spread(dir), &dir)
    }

    pub fn set_policy_root(&self, dir: InodeId, root: InodeId) {
        self.policies.set(spread(dir), dir, root);
    }

    /// The directories that `path` leads through from `from`, as far as that is known.
    pub fn way_down(&self, from: InodeId, path: &[Name]) -> Vec<InodeId> {
        let (mut way, mut at) = (Vec::new(), from);
        for name in path.iter().take(WAY_MAX) {
            let Some(next) = self.dirs.get(spread(at), &(at, name.clone())) else { break };
            way.push(next);
            at = next;
        }
        way
    }

    /// What `path` led to from `from` the last time, if that was no directory, each step of it.
    pub fn led(&self, from: InodeId, path: &[Name]) -> Option<Vec<Step>> {
        let (last, dirs) = path.split_last()?;
        let mut way = self.way_down(from, dirs);
        let dir = way.last().copied().unwrap_or(from);
        if way.len() < dirs.len() {
            return None;
        }
        way.push(self.files.get(spread(dir), &(dir, last.clone()))?);
        let froms = std::iter::once(from).chain(way.clone());
        Some(froms.zip(path).zip(way).map(|((dir, name), to)| Step { dir, name: name.clone(), to }).collect())
    }

    /// A path has led to it, which is no directory.
    pub fn led_to(&self, file: InodeId, dir: InodeId, name: &Name) {
        self.files.set(spread(dir), (dir, name.clone()), file);
    }

    /// The name leads to something else, or to nothing.
    pub fn led_elsewhere(&self, dir: InodeId, name: &Name) {
        self.files.forget(spread(dir), &(dir, name.clone()));
    }

    /// The directories above `dir`, itself the first and the root left out, as far as that is known.
    pub fn way_up(&self, dir: InodeId) -> Vec<InodeId> {
        let (mut way, mut at) = (Vec::new(), dir);
        while at != InodeId::ROOT && way.len() < WAY_MAX {
            way.push(at);
            let Some((parent, _)) = self.get(at) else { break };
            at = parent;
        }
        way
    }
}

/// By the counter of the id, because inodes of one directory share the low bits.
fn spread(id: InodeId) -> usize {
    (id.0 >> braid_types::SLOT_BITS) as usize % SHARDS
}

struct Shards<K, V> {
    shards: Vec<Mutex<HashMap<K, V>>>,
    shard_max: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Shards<K, V> {
    fn new(max: usize) -> Self {
        Shards { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_max: (max / SHARDS).max(1) }
    }

    fn get(&self, shard: usize, key: &K) -> Option<V> {
        self.shards[shard].lock().get(key).cloned()
    }

    fn set(&self, shard: usize, key: K, value: V) {
        let mut shard = self.shards[shard].lock();
        if shard.len() >= self.shard_max && !shard.contains_key(&key) {
            // Any other goes: the order of a hash table is as good as random, and a miss costs little.
            let victim = shard.keys().next().cloned();
            if let Some(victim) = victim {
                shard.remove(&victim);
            }
        }
        shard.insert(key, value);
    }

    fn forget(&self, shard: usize, key: &K) {
        self.shards[shard].lock().remove(key);
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
        assert!(cache.places.shards.iter().map(|s| s.lock().len()).sum::<usize>() <= 128);
        let last = InodeId::new(9_999, Slot(0));
        assert!(cache.get(last).is_some());
        cache.forget(last);
        assert!(cache.get(last).is_none());
    }

    #[test]
    fn ways_are_known_as_far_as_they_were_seen_and_are_bounded() {
        let cache = HintCache::new(1 << 12);
        let path: Vec<Name> = (0..100).map(|n| format!("d{n}").parse().unwrap()).collect();
        let dir = |n: u64| InodeId::new(n + 2, Slot(0));
        assert!(cache.way_down(InodeId::ROOT, &path).is_empty());
        for (n, name) in (0..).zip(&path) {
            let parent = if n == 0 { InodeId::ROOT } else { dir(n - 1) };
            cache.set(dir(n), parent, name);
            cache.dirs.set(spread(parent), (parent, name.clone()), dir(n));
        }
        let expected: Vec<InodeId> = (0..3).map(dir).collect();
        assert_eq!(cache.way_down(InodeId::ROOT, &path[..3]), expected);
        assert_eq!(cache.way_down(dir(0), &path[1..3]), expected[1..]);
        assert_eq!(cache.way_up(dir(2)), [dir(2), dir(1), dir(0)]);
        assert!(cache.way_up(InodeId::ROOT).is_empty());
        assert_eq!((cache.way_down(InodeId::ROOT, &path).len(), cache.way_up(dir(99)).len()), (WAY_MAX, WAY_MAX));
    }
}
