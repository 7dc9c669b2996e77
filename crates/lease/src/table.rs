//! Hash tables that the state of a machine may lie in.
//!
//! Promises: two that have the same entries are equal and have the same hash, whatever happened to them before; what is gone through
//! is in the order of the keys. So a run can be repeated, and two states that differ in nothing are one to whoever explores them,
//! although the hashes are others in each process (names come from users, who are not to choose which of them collide).
//!
//! A listing of 16 names with their attributes is 33 leases. In B-trees, where each step down compares names, that was 220 µs of the
//! server and as much of the client (docs/benchmarks.md); of the tables only what has an order is one.

use hashbrown::{Equivalent, HashMap};
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug)]
pub struct Table<K, V = ()>(HashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table(HashMap::new())
    }
}

impl<K: Eq + Hash, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Eq + Hash, V: Eq> Eq for Table<K, V> {}

impl<K: Ord + Hash, V: Hash> Hash for Table<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len());
        self.in_order().for_each(|entry| entry.hash(state));
    }
}

impl<K, V> Table<K, V> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        // The hash of a long name costs more than this.
        if self.0.is_empty() { None } else { self.0.get(key) }
    }

    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        if self.0.is_empty() { None } else { self.0.get_mut(key) }
    }

    pub fn get_key_value<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<(&K, &V)> {
        if self.0.is_empty() { None } else { self.0.get_key_value(key) }
    }

    pub fn get_key_value_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<(&K, &mut V)> {
        if self.0.is_empty() { None } else { self.0.get_key_value_mut(key) }
    }

    pub fn has<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        !self.0.is_empty() && self.0.contains_key(key)
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.0.entry(key).or_default()
    }

    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        if self.0.is_empty() { None } else { self.0.remove(key) }
    }

    /// In no order, so what it does with one has nothing to do with the others.
    pub fn retain(&mut self, keeps: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(keeps);
    }

    /// By key. Sorts, so not for what happens often.
    pub fn in_order(&self) -> impl Iterator<Item = (&K, &V)>
    where
        K: Ord,
    {
        let mut entries: Vec<(&K, &V)> = self.0.iter().collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
        entries.into_iter()
    }

    pub fn keys_in_order(&self) -> impl Iterator<Item = &K>
    where
        K: Ord,
    {
        self.in_order().map(|(key, _)| key)
    }

    /// In no order: for what is sorted afterwards.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// In no order: for sums.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    #[test]
    fn what_it_has_is_all_that_counts() {
        let (mut one, mut two) = (Table::default(), Table::default());
        for key in 0..100 {
            one.insert(key, key * 2);
            two.insert(99 - key, (99 - key) * 2);
        }
        two.insert(1000, 0);
        assert_ne!(one, two);
        assert_eq!((two.remove(&1000), two.remove(&1000)), (Some(0), None));
        let hash = |table: &Table<i32, i32>| BuildHasherDefault::<DefaultHasher>::default().hash_one(table);
        assert_eq!((&one, hash(&one)), (&two, hash(&two)));
        assert_eq!(two.keys_in_order().copied().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        *two.get_or_default(5) += 1;
        assert_ne!((&one, hash(&one)), (&two, hash(&two)));
    }
}
