//! Is there one order of all operations that explains every answer? (Lowe's just-in-time linearization.)
//!
//! Operations come as they begin and end. Kept are all configurations still possible: a state, and which of the
//! operations under way have taken effect in it, with what answer. When an operation ends, configurations in which it
//! took no effect, or gave another answer, are given up; if none is left, no order exists. An operation whose client
//! died never ends: it may take effect at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};

/// A sequential object.
pub trait Sequential: Clone + Ord {
    type Op: Clone;
    type Answer: Clone + Ord;

    /// Takes effect.
    fn apply(&mut self, op: &Self::Op) -> Self::Answer;
}

type Id = u64;

/// Configurations beyond this number are a sign of too many operations at once, not of a fault.
const CONFIGURATIONS_MAX: usize = 200_000;

pub struct Linear<S: Sequential> {
    possible: BTreeSet<(S, BTreeMap<Id, S::Answer>)>,
    running: BTreeMap<Id, S::Op>,
    next: Id,
}

impl<S: Sequential> Linear<S> {
    pub fn new(initial: S) -> Self {
        Linear { possible: BTreeSet::from([(initial, BTreeMap::new())]), running: BTreeMap::new(), next: 0 }
    }

    pub fn begin(&mut self, op: S::Op) -> Id {
        self.next += 1;
        self.running.insert(self.next, op);
        self.next
    }

    /// False if no order explains this answer.
    #[must_use]
    pub fn end(&mut self, id: Id, answer: &S::Answer) -> bool {
        let mut todo: Vec<_> = std::mem::take(&mut self.possible).into_iter().collect();
        let mut seen: BTreeSet<_> = todo.iter().cloned().collect();
        while let Some((state, mut effects)) = todo.pop() {
            if let Some(given) = effects.get(&id) {
                if given == answer {
                    effects.remove(&id);
                    self.possible.insert((state, effects));
                }
                continue;
            }
            for (other, op) in self.running.iter().filter(|(other, _)| !effects.contains_key(other)) {
                let mut after = state.clone();
                let mut effects = effects.clone();
                effects.insert(*other, after.apply(op));
                let configuration = (after, effects);
                if seen.len() < CONFIGURATIONS_MAX && seen.insert(configuration.clone()) {
                    todo.push(configuration);
                }
            }
        }
        self.running.remove(&id);
        !self.possible.is_empty()
    }

    /// It changes nothing, and nobody learns its answer.
    pub fn forget(&mut self, id: Id) {
        self.running.remove(&id);
        let possible = std::mem::take(&mut self.possible);
        self.possible = possible
            .into_iter()
            .map(|(state, mut effects)| {
                effects.remove(&id);
                (state, effects)
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: `Some` writes, `None` reads.
    impl Sequential for u8 {
        type Op = Option<u8>;
        type Answer = u8;
        fn apply(&mut self, op: &Option<u8>) -> u8 {
            *self = op.unwrap_or(*self);
            *self
        }
    }

    #[test]
    fn a_read_sees_what_was_written_before_it_began() {
        let mut linear = Linear::new(0u8);
        let write = linear.begin(Some(1));
        assert!(linear.end(write, &1));
        let read = linear.begin(None);
        assert!(!linear.end(read, &0));
    }

    #[test]
    fn reads_during_a_write_may_see_either_but_not_go_back() {
        let mut linear = Linear::new(0u8);
        let _write = linear.begin(Some(1));
        for (value, possible) in [(0, true), (1, true), (0, false)] {
            let read = linear.begin(None);
            assert_eq!(linear.end(read, &value), possible, "{value}");
        }
    }
}
