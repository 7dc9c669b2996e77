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

    /// What may have happened when it has taken effect, where that is more than one thing; nothing, where it cannot take effect now.
    fn outcomes(&self, op: &Self::Op) -> Vec<(Self, Self::Answer)> {
        let mut after = self.clone();
        let answer = after.apply(op);
        vec![(after, answer)]
    }
}

type Id = u64;

/// Configurations beyond this number are a sign of too many operations at once, not of a fault: there is no verdict then.
const CONFIGURATIONS_MAX: usize = 200_000;

/// The same for [`Linear::try_end`]: of histories that may have too much at once a few look at nearly so many with each operation, for a
/// minute and more.
const CONFIGURATIONS_TRIED_MAX: usize = 50_000;

/// There are too many orders to try; to go on with some of them would prove nothing, so this history is not judged any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// A state, and the operations that have taken effect in it and not ended.
type Configuration<S> = (S, BTreeMap<Id, <S as Sequential>::Answer>);

/// [`Linear::try_end`].
pub type End<S> = fn(&mut Linear<S>, Id, &<S as Sequential>::Answer) -> Result<bool, TooMany>;

pub struct Linear<S: Sequential> {
    possible: BTreeSet<Configuration<S>>,
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
    ///
    /// # Panics
    /// When there are too many orders to try.
    #[must_use]
    pub fn end(&mut self, id: Id, answer: &S::Answer) -> bool {
        self.end_within(id, answer, CONFIGURATIONS_MAX).expect("few operations at once")
    }

    /// [`Self::end`], for histories in which too much may happen at once now and then.
    pub fn try_end(&mut self, id: Id, answer: &S::Answer) -> Result<bool, TooMany> {
        self.end_within(id, answer, CONFIGURATIONS_TRIED_MAX)
    }

    fn end_within(&mut self, id: Id, answer: &S::Answer, most: usize) -> Result<bool, TooMany> {
        let has_given = |(state, mut effects): Configuration<S>| {
            (effects.remove(&id).as_ref() == Some(answer)).then_some((state, effects))
        };
        self.possible = self.reached(Some(id), most)?.into_iter().filter_map(has_given).collect();
        self.running.remove(&id);
        Ok(!self.possible.is_empty())
    }

    /// It has taken effect by now, or never will.
    ///
    /// # Panics
    /// When there are too many orders to try.
    pub fn perhaps(&mut self, id: Id) {
        self.perhaps_within(id, CONFIGURATIONS_MAX).expect("few operations at once");
    }

    /// [`Self::perhaps`], for histories in which too much may happen at once now and then.
    pub fn try_perhaps(&mut self, id: Id) -> Result<(), TooMany> {
        self.perhaps_within(id, CONFIGURATIONS_TRIED_MAX)
    }

    fn perhaps_within(&mut self, id: Id, most: usize) -> Result<(), TooMany> {
        let without = |(state, mut effects): Configuration<S>| {
            effects.remove(&id);
            (state, effects)
        };
        self.possible = self.reached(None, most)?.into_iter().map(without).collect();
        self.running.remove(&id);
        Ok(())
    }

    /// It has not taken effect, and never will.
    pub fn never(&mut self, id: Id) {
        self.possible.retain(|(_, effects)| !effects.contains_key(&id));
        self.running.remove(&id);
    }

    /// What is possible now, where any of the running operations may have taken effect; once `last` has, it goes no further.
    fn reached(&mut self, last: Option<Id>, most: usize) -> Result<BTreeSet<Configuration<S>>, TooMany> {
        let mut todo: Vec<_> = std::mem::take(&mut self.possible).into_iter().collect();
        let mut seen: BTreeSet<_> = todo.iter().cloned().collect();
        while let Some((state, effects)) = todo.pop() {
            if last.is_some_and(|last| effects.contains_key(&last)) {
                continue;
            }
            for (other, op) in self.running.iter().filter(|(other, _)| !effects.contains_key(other)) {
                for (after, answer) in state.outcomes(op) {
                    let mut effects = effects.clone();
                    effects.insert(*other, answer);
                    let configuration = (after, effects);
                    if seen.insert(configuration.clone()) {
                        todo.push(configuration);
                    }
                    if seen.len() > most {
                        return Err(TooMany);
                    }
                }
            }
        }
        Ok(seen)
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
    fn what_is_too_much_to_try_is_said_and_no_verdict() {
        let mut linear = Linear::new(0u8);
        let writes: Vec<_> = (1..=20).map(|value| linear.begin(Some(value))).collect();
        assert_eq!(linear.try_end(writes[0], &1), Err(TooMany));
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
