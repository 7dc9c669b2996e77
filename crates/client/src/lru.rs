//! A bounded map that forgets what was not used lately. Pure.
//!
//! Two generations: when the young one is full it becomes the old one, and what was old is forgotten. A use
//! brings an entry back to the young. That keeps between half of the bound and the bound, in constant time and
//! without a list.

use hashbrown::{Equivalent, HashMap};
use std::hash::Hash;

pub struct Lru<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    pub fn new(entries_max: usize) -> Self {
        Lru { young: HashMap::new(), old: HashMap::new(), half: (entries_max / 2).max(1) }
    }

    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        if !self.old.is_empty() && !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        self.young.insert(key, value);
    }

    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let old = self.old.remove(key);
        self.young.remove(key).or(old)
    }

    pub fn retain(&mut self, keeps: impl Fn(&K, &V) -> bool) {
        self.young.retain(|key, value| keeps(key, value));
        self.old.retain(|key, value| keeps(key, value));
    }

    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_bound_holds() {
        let mut lru = Lru::new(10);
        lru.insert(0, "kept");
        for i in 1..1000 {
            lru.insert(i, "other");
            assert!(lru.get(&0).is_some() && lru.len() <= 10);
        }
        assert!(lru.get(&5).is_none());
        lru.retain(|_, value| *value == "kept");
        assert_eq!(lru.len(), 1);
        assert_eq!(lru.remove(&0), Some("kept"));
        assert!(lru.get(&0).is_none());
    }
}
