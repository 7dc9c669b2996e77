//! Answers before durability (design.md §4 *Early reply*): who may be given one, and who may see what was changed.
//!
//! A transaction may be answered when it is *ordered*: it has run, its place among the others is fixed, and it is not
//! durable yet. Whoever gets such an answer keeps what it asked for and asks again after a crash. So nobody else may
//! depend on it: every engine keeps in a [`Dirty`] what has been changed so, and by whom.

use crate::{Key, Table};
use std::collections::HashMap;

/// On whose behalf a transaction runs that may be answered early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// Who keeps what is answered early: an opaque number. One owner sees its own changes, others wait for them.
    pub owner: u64,
    /// It repeats what had been admitted before a crash: it may use the room that is kept for removals.
    pub admitted: bool,
}

impl Early {
    pub fn of(owner: u64) -> Self {
        Early { owner, admitted: false }
    }
}

/// How far a transaction was when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Durable, with everything it saw.
    Durable,
    /// It, or what it saw of its own owner's, is durable when [`Engine::durable`](crate::Engine::durable) reaches
    /// this number.
    Early(u64),
}

/// What a transaction has touched of changes that are not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub own: bool,
    pub foreign: bool,
}

impl Touched {
    fn add(&mut self, holder: Option<&Holder>, owner: Option<u64>) {
        match holder {
            None => {}
            Some(Holder::One(of)) if Some(*of) == owner => self.own = true,
            Some(_) => self.foreign = true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    One(u64),
    Several,
}

/// What transactions that were answered early have changed and is not durable: rows by their keys, and for scans the
/// partitions and tables they lie in.
#[derive(Clone, Debug, Default)]
pub struct Dirty {
    keys: HashMap<Key, Holder>,
    partitions: HashMap<(Table, u64), Holder>,
    tables: HashMap<Table, Holder>,
}

impl Dirty {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// `owner` has changed this row.
    pub fn add(&mut self, key: &Key, owner: u64) {
        let join = |holder: &mut Holder| {
            if *holder != Holder::One(owner) {
                *holder = Holder::Several;
            }
        };
        let new = || Holder::One(owner);
        self.keys.entry(key.clone()).and_modify(join).or_insert_with(new);
        self.partitions.entry((key.table(), key.partition())).and_modify(join).or_insert_with(new);
        self.tables.entry(key.table()).and_modify(join).or_insert_with(new);
    }

    /// It has changed, for one who waits, and is not durable: nobody's to see.
    pub fn add_for_nobody(&mut self, key: &Key) {
        self.keys.insert(key.clone(), Holder::Several);
        self.partitions.insert((key.table(), key.partition()), Holder::Several);
        self.tables.insert(key.table(), Holder::Several);
    }

    /// A transaction for `owner`, or for nobody, reads or writes this row.
    pub fn touch(&self, key: &Key, owner: Option<u64>, touched: &mut Touched) {
        touched.add(self.keys.get(key), owner);
    }

    /// It scans rows of one partition, whichever there are.
    pub fn touch_partition(&self, table: Table, partition: u64, owner: Option<u64>, touched: &mut Touched) {
        touched.add(self.partitions.get(&(table, partition)), owner);
    }

    pub fn touch_table(&self, table: Table, owner: Option<u64>, touched: &mut Touched) {
        touched.add(self.tables.get(&table), owner);
    }

    /// All of it is durable.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.partitions.clear();
        self.tables.clear();
    }
}

/// May a transaction be answered now that it has run? Not if it touched what nobody keeps, or another: what has been changed for those
/// who wait for durability is to be among what it `touched` ([`Dirty::add_for_nobody`]).
///
/// Failures are told early as well: what they come from is the owner's, who keeps it.
pub fn may_answer(touched: Touched, result: Result<bool, ()>) -> bool {
    !touched.foreign && result.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(partition: u64, rest: &str) -> Key {
        Key::new(Table::Inodes, partition, rest.as_bytes())
    }

    fn touch(dirty: &Dirty, key: &Key, owner: Option<u64>) -> (bool, bool) {
        let mut touched = Touched::default();
        dirty.touch(key, owner, &mut touched);
        (touched.own, touched.foreign)
    }

    #[test]
    fn a_row_is_its_owners_and_foreign_to_all_others() {
        let mut dirty = Dirty::default();
        assert!(dirty.is_empty());
        dirty.add(&key(1, "a"), 7);
        assert_eq!(touch(&dirty, &key(1, "a"), Some(7)), (true, false));
        assert_eq!(touch(&dirty, &key(1, "a"), Some(8)), (false, true));
        assert_eq!(touch(&dirty, &key(1, "a"), None), (false, true));
        assert_eq!(touch(&dirty, &key(1, "b"), Some(8)), (false, false), "another row of the partition");
        dirty.clear();
        assert!(dirty.is_empty());
        assert_eq!(touch(&dirty, &key(1, "a"), None), (false, false));
    }

    #[test]
    fn a_scan_meets_whatever_lies_in_its_partition_or_table() {
        let mut dirty = Dirty::default();
        dirty.add(&key(1, "a"), 7);
        dirty.add(&key(2, "a"), 8);
        let scan = |partition, owner| {
            let mut touched = Touched::default();
            dirty.touch_partition(Table::Inodes, partition, owner, &mut touched);
            (touched.own, touched.foreign)
        };
        assert_eq!(scan(1, Some(7)), (true, false));
        assert_eq!(scan(2, Some(7)), (false, true));
        assert_eq!(scan(3, Some(7)), (false, false));
        let mut touched = Touched::default();
        dirty.touch_table(Table::Inodes, Some(7), &mut touched);
        assert!(touched.foreign, "two owners changed the table");
    }

    #[test]
    fn who_may_be_answered() {
        let (clean, own, foreign) =
            (Touched::default(), Touched { own: true, foreign: false }, Touched { own: false, foreign: true });
        assert!(may_answer(own, Ok(true)) && may_answer(clean, Err(())));
        assert!(!may_answer(foreign, Ok(true)), "on what another one keeps, or nobody");
        assert!(may_answer(own, Err(())), "its reason is kept");
        assert!(!may_answer(clean, Ok(false)), "the operation said no");
    }
}
