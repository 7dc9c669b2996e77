//! Is a snapshot the state of one moment between its request and its answer?
//!
//! Every object that can be told apart is a cell: a place of a file, or all names of one task. Its writes are recorded with where they began and
//! ended in the one order of all events of a world. Which of them a snapshot shows is known by its value; then three things are asked: nothing
//! is missing that had ended before the request; nothing is there that began after the answer; and what had ended before something began that is
//! there is there too, whichever cell it is of. That is all that a single look at registers with different values can break.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// A place in the one order of all events.
pub type At = u64;

/// One life of a client.
pub type Life = u64;

/// A write of a cell.
#[derive(Clone, Debug)]
struct Write<V> {
    value: V,
    life: Life,
    begun: At,
    ended: Option<At>,
    /// It survives its client, from there on.
    sure: Option<At>,
}

/// Writes of cells `C` with values `V`.
pub struct History<C, V> {
    cells: BTreeMap<C, Vec<Write<V>>>,
    now: At,
    /// Lives that ended before they had stored all.
    lost: BTreeMap<Life, At>,
}

/// When a snapshot was asked for, and when it was known that there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub asked: At,
    pub known: At,
}

/// More than this many explanations are not tried.
const TRIES_MAX: usize = 100_000;

impl<C: Clone + Ord + Debug, V: Clone + PartialEq + Debug> History<C, V> {
    pub fn new() -> Self {
        History { cells: BTreeMap::new(), now: 0, lost: BTreeMap::new() }
    }

    /// What the cell was at first.
    pub fn add(&mut self, cell: C, value: V) {
        let first = Write { value, life: 0, begun: 0, ended: Some(0), sure: Some(0) };
        self.cells.entry(cell).or_insert_with(|| vec![first]);
    }

    pub fn now(&mut self) -> At {
        self.now += 1;
        self.now
    }

    /// A write begins. Answers its number in its cell.
    pub fn begin(&mut self, cell: &C, value: V, life: Life) -> usize {
        let begun = self.now();
        let writes = self.cells.entry(cell.clone()).or_default();
        writes.push(Write { value, life, begun, ended: None, sure: None });
        writes.len() - 1
    }

    pub fn end(&mut self, cell: &C, number: usize) {
        let now = self.now();
        if let Some(write) = self.cells.get_mut(cell).and_then(|writes| writes.get_mut(number)) {
            write.ended = Some(now);
        }
    }

    /// What this life had written to these cells before `at` survives it from now on.
    pub fn make_sure(&mut self, cells: impl Fn(&C) -> bool, life: Life, at: At) {
        let now = self.now();
        let writes = self.cells.iter_mut().filter(|(cell, _)| cells(cell)).flat_map(|(_, writes)| writes);
        for write in writes.filter(|write| write.life == life && write.ended.is_some_and(|ended| ended < at)) {
            write.sure.get_or_insert(now);
        }
    }

    /// The client has died.
    pub fn lose(&mut self, life: Life) {
        let now = self.now();
        self.lost.insert(life, now);
    }

    /// From where on it is sure to be in snapshots that were known at `known`.
    fn holds_from(&self, write: &Write<V>, known: At) -> Option<At> {
        let is_lost = self.lost.get(&write.life).is_some_and(|lost| *lost < known);
        if is_lost { write.sure } else { write.ended }
    }

    /// A write of the cell that holds by `end` and certainly came after that one.
    fn missing(&self, cell: &C, shown: &Write<V>, end: At, known: At) -> Option<&Write<V>> {
        let ended = shown.ended?;
        self.cells.get(cell)?.iter().find(|write| {
            let comes_after = write.begun > ended;
            comes_after && self.holds_from(write, known).is_some_and(|from| from < end)
        })
    }

    /// Why no moment of it shows these values. A cell without one may be anything.
    pub fn wrong(&self, taken: Taken, seen: &BTreeMap<C, V>) -> Option<String> {
        let mut candidates: Vec<(&C, Vec<&Write<V>>)> = Vec::new();
        for (cell, writes) in &self.cells {
            let Some(value) = seen.get(cell) else { continue };
            let mut reason = format!("{cell:?} is {value:?}, which was never written");
            let mut possible = Vec::new();
            for write in writes.iter().filter(|write| write.value == *value) {
                if write.begun > taken.known {
                    reason = format!("{cell:?} is {value:?}, which was begun after the answer");
                } else if let Some(missing) = self.missing(cell, write, taken.asked, taken.known) {
                    reason = format!("{cell:?} is {value:?}, and {missing:?} had ended before the request {taken:?}");
                } else {
                    possible.push(write);
                }
            }
            if possible.is_empty() {
                return Some(reason);
            }
            candidates.push((cell, possible));
        }
        // Mostly there is one candidate of each.
        candidates.sort_by_key(|(_, possible)| possible.len());
        let (mut chosen, mut tries, mut reason) = (Vec::new(), TRIES_MAX, None);
        match self.choose(taken, &candidates, &mut chosen, &mut tries, &mut reason) {
            true => None,
            false => reason,
        }
    }

    fn choose<'a>(
        &'a self,
        taken: Taken,
        left: &[(&'a C, Vec<&'a Write<V>>)],
        chosen: &mut Vec<(&'a C, &'a Write<V>)>,
        tries: &mut usize,
        reason: &mut Option<String>,
    ) -> bool {
        let Some(((cell, possible), left)) = left.split_first() else { return true };
        for write in possible {
            *tries = tries.saturating_sub(1);
            if *tries == 0 {
                // It is no verdict.
                return true;
            }
            match self.clash(taken, chosen, (cell, write)) {
                Some(text) => *reason = Some(text),
                None => {
                    chosen.push((cell, write));
                    if self.choose(taken, left, chosen, tries, reason) {
                        return true;
                    }
                    chosen.pop();
                }
            }
        }
        false
    }

    /// Something of one cell that must be there because of what is there of another.
    fn clash(&self, taken: Taken, chosen: &[(&C, &Write<V>)], new: (&C, &Write<V>)) -> Option<String> {
        chosen.iter().find_map(|old| {
            [(*old, new), (new, *old)].into_iter().find_map(|((cell, shown), (other, later))| {
                let missing = self.missing(cell, shown, later.begun, taken.known)?;
                Some(format!(
                    "{cell:?} is {:?}, without {missing:?}, which had ended before {later:?} of {other:?} began, and that is there",
                    shown.value
                ))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: [u64; 2]) -> BTreeMap<char, u64> {
        BTreeMap::from([('a', values[0]), ('b', values[1])])
    }

    fn history() -> History<char, u64> {
        let mut history = History::new();
        history.add('a', 0);
        history.add('b', 0);
        history
    }

    #[test]
    fn what_had_ended_before_is_there_and_what_begins_after_is_not() {
        let mut history = history();
        let first = history.begin(&'a', 1, 1);
        history.end(&'a', first);
        let running = history.begin(&'a', 2, 1);
        let taken = Taken { asked: history.now(), known: history.now() };
        let later = history.begin(&'b', 3, 1);
        history.end(&'b', later);
        history.end(&'a', running);
        for good in [[1, 0], [2, 0]] {
            assert_eq!(history.wrong(taken, &seen(good)), None);
        }
        for bad in [[0, 0], [1, 3], [4, 0]] {
            assert!(history.wrong(taken, &seen(bad)).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn what_ended_before_something_began_is_there_with_it() {
        let mut history = history();
        let asked = history.now();
        let first = history.begin(&'a', 1, 1);
        history.end(&'a', first);
        let second = history.begin(&'b', 2, 2);
        history.end(&'b', second);
        let taken = Taken { asked, known: history.now() };
        for good in [[0, 0], [1, 0], [1, 2]] {
            assert_eq!(history.wrong(taken, &seen(good)), None);
        }
        assert!(history.wrong(taken, &seen([0, 2])).is_some());
    }

    #[test]
    fn what_a_lost_client_had_not_synced_may_be_missing() {
        let mut history = history();
        let first = history.begin(&'a', 1, 1);
        history.end(&'a', first);
        let synced = history.now();
        history.make_sure(|_| true, 1, synced);
        let second = history.begin(&'a', 2, 1);
        history.end(&'a', second);
        history.lose(1);
        let taken = Taken { asked: history.now(), known: history.now() };
        for good in [[1, 0], [2, 0]] {
            assert_eq!(history.wrong(taken, &seen(good)), None);
        }
        assert!(history.wrong(taken, &seen([0, 0])).is_some());
    }

    #[test]
    fn of_values_that_come_again_any_may_be_meant() {
        let mut history = history();
        for value in [1, 0, 1] {
            let write = history.begin(&'a', value, 1);
            history.end(&'a', write);
            let beside = history.begin(&'b', 10 + history.now, 1);
            history.end(&'b', beside);
        }
        let asked = 0;
        let values: Vec<u64> = history.cells[&'b'].iter().map(|write| write.value).collect();
        let taken = Taken { asked, known: history.now() };
        assert_eq!(history.wrong(taken, &seen([1, values[1]])), None);
        assert_eq!(history.wrong(taken, &seen([1, values[3]])), None);
        // The last but one of the other was written before the first had this value again.
        assert_eq!(history.wrong(taken, &seen([1, values[2]])), None);
        assert!(history.wrong(taken, &seen([0, values[3]])).is_some());
    }
}
