//! Is there one order of all operations that explains every answer? (Lowe's just-in-time linearization.)
//!
//! Operations come as they begin and end. Kept are all configurations still possible: a state, and which of the
//! operations under way have taken effect in it, with what answer. When an operation ends, configurations in which it
//! took no effect, or gave another answer, are given up; if none is left, no order exists. An operation whose client
//! died never ends: it may take effect at any later time, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A sequential object.
pub trait Sequential: Clone + Ord + Send + Sync {
    type Op: Clone;
    type Answer: Clone + Ord + Send + Sync;

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

/// States that no configuration is in any more are dropped when there are as many as this beside as many as there are configurations.
const STATES_DEAD_MAX: usize = 4096;

/// There are too many orders to try; to go on with some of them would prove nothing, so this history is not judged any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// [`Linear::try_end`].
pub type End<S> = fn(&mut Linear<S>, Id, &<S as Sequential>::Answer) -> Result<bool, TooMany>;

/// Where a value is in [`Numbered`]: equal numbers, equal values.
type Number = u32;

/// Values, each kept once: a state may be a whole tree of names, and is in thousands of configurations.
struct Numbered<T: Ord> {
    numbers: BTreeMap<Arc<T>, Number>,
    values: Vec<Arc<T>>,
}

impl<T: Ord> Numbered<T> {
    fn new() -> Self {
        Numbered { numbers: BTreeMap::new(), values: Vec::new() }
    }

    fn number(&mut self, value: impl Into<Arc<T>>) -> Number {
        let value = value.into();
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number =
            Number::try_from(self.values.len()).expect("states and answers of one history are fewer than 2^32");
        self.numbers.insert(value.clone(), number);
        self.values.push(value);
        number
    }
}

/// A state, and the operations that have taken effect in it and not ended, with their answers, by their ids.
type Configuration = (Number, Vec<(Id, Number)>);

/// Where it stands among those that have taken effect, or would.
fn place_of(effects: &[(Id, Number)], id: Id) -> Result<usize, usize> {
    effects.binary_search_by_key(&id, |(id, _)| *id)
}

fn without((state, mut effects): Configuration, id: Id) -> Configuration {
    effects.retain(|(other, _)| *other != id);
    (state, effects)
}

struct Running<S: Sequential> {
    op: S::Op,
    /// By state, what becomes of it with which answer, as far as it was asked for.
    outcomes: BTreeMap<Number, Vec<(Number, Number)>>,
}

pub struct Linear<S: Sequential> {
    states: Numbered<S>,
    answers: Numbered<S::Answer>,
    possible: BTreeSet<Configuration>,
    running: BTreeMap<Id, Running<S>>,
    next: Id,
}

impl<S: Sequential> Linear<S> {
    pub fn new(initial: S) -> Self {
        let (mut states, answers) = (Numbered::new(), Numbered::new());
        let possible = BTreeSet::from([(states.number(initial), Vec::new())]);
        Linear { states, answers, possible, running: BTreeMap::new(), next: 0 }
    }

    pub fn begin(&mut self, op: S::Op) -> Id {
        self.next += 1;
        self.running.insert(self.next, Running { op, outcomes: BTreeMap::new() });
        self.next
    }

    /// False if no order explains this answer.
    ///
    /// # Panics
    /// When there are too many orders to try.
    #[must_use]
    pub fn end(&mut self, id: Id, answer: &S::Answer) -> bool {
        self.try_end(id, answer).expect("few operations at once")
    }

    /// [`Self::end`], for histories in which too much may happen at once now and then.
    pub fn try_end(&mut self, id: Id, answer: &S::Answer) -> Result<bool, TooMany> {
        let given = self.answers.number(answer.clone());
        let reached = self.reached(Some((id, given)))?;
        let has_ended = |(_, effects): &Configuration| place_of(effects, id).is_ok();
        self.possible = reached.into_iter().filter(has_ended).map(|at| without(at, id)).collect();
        self.running.remove(&id);
        self.drop_dead_states();
        Ok(!self.possible.is_empty())
    }

    /// It has taken effect by now, or never will.
    ///
    /// # Panics
    /// When there are too many orders to try.
    pub fn perhaps(&mut self, id: Id) {
        self.try_perhaps(id).expect("few operations at once");
    }

    /// [`Self::perhaps`], for histories in which too much may happen at once now and then.
    pub fn try_perhaps(&mut self, id: Id) -> Result<(), TooMany> {
        self.possible = self.reached(None)?;
        self.forget(id);
        self.drop_dead_states();
        Ok(())
    }

    /// It has not taken effect, and never will.
    pub fn never(&mut self, id: Id) {
        self.possible.retain(|(_, effects)| place_of(effects, id).is_err());
        self.running.remove(&id);
    }

    /// It changes nothing, and nobody learns its answer.
    pub fn forget(&mut self, id: Id) {
        self.running.remove(&id);
        self.possible = std::mem::take(&mut self.possible).into_iter().map(|at| without(at, id)).collect();
    }

    /// What is possible now, where any of the running operations may have taken effect. `last` is the one that has just answered, and its
    /// answer: with another it has not taken effect, and once it has, it goes no further.
    fn reached(&mut self, last: Option<(Id, Number)>) -> Result<BTreeSet<Configuration>, TooMany> {
        let (states, answers) = (&mut self.states, &mut self.answers);
        let mut seen = std::mem::take(&mut self.possible);
        if let Some((last, given)) = last {
            seen.retain(|(_, effects)| place_of(effects, last).map_or(true, |at| effects[at].1 == given));
        }
        let mut todo: Vec<_> = seen.iter().cloned().collect();
        while let Some((state, effects)) = todo.pop() {
            if last.is_some_and(|(last, _)| place_of(&effects, last).is_ok()) {
                continue;
            }
            for (id, running) in &mut self.running {
                let Err(place) = place_of(&effects, *id) else { continue };
                let outcomes = running.outcomes.entry(state).or_insert_with(|| {
                    let outcomes = states.values[state as usize].outcomes(&running.op);
                    outcomes.into_iter().map(|(after, answer)| (states.number(after), answers.number(answer))).collect()
                });
                for (after, answer) in outcomes {
                    if last.is_some_and(|(last, given)| last == *id && given != *answer) {
                        continue;
                    }
                    let mut effects = effects.clone();
                    effects.insert(place, (*id, *answer));
                    let configuration = (*after, effects);
                    if !seen.contains(&configuration) {
                        todo.push(configuration.clone());
                        seen.insert(configuration);
                    }
                    if seen.len() > CONFIGURATIONS_MAX {
                        return Err(TooMany);
                    }
                }
            }
        }
        Ok(seen)
    }

    /// A history of any length takes the memory of what is possible in it now.
    fn drop_dead_states(&mut self) {
        if self.states.values.len() <= STATES_DEAD_MAX + self.possible.len() {
            return;
        }
        let (states, answers) = (
            std::mem::replace(&mut self.states, Numbered::new()),
            std::mem::replace(&mut self.answers, Numbered::new()),
        );
        let possible = std::mem::take(&mut self.possible);
        for (state, effects) in possible {
            let state = self.states.number(states.values[state as usize].clone());
            let answer =
                |(id, answer): (Id, Number)| (id, self.answers.number(answers.values[answer as usize].clone()));
            let effects = effects.into_iter().map(answer).collect();
            self.possible.insert((state, effects));
        }
        self.running.values_mut().for_each(|running| running.outcomes.clear());
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

    /// A sum, which is another with each operation.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Long(u64);

    impl Sequential for Long {
        type Op = u64;
        type Answer = u64;
        fn apply(&mut self, op: &u64) -> u64 {
            self.0 += op;
            self.0
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
    fn a_long_history_takes_the_memory_of_what_is_possible_now() {
        let mut linear = Linear::new(Long(0));
        for number in 1..=3 * STATES_DEAD_MAX as u64 {
            let add = linear.begin(number);
            assert!(linear.end(add, &(number * (number + 1) / 2)));
        }
        assert!(linear.states.values.len() <= STATES_DEAD_MAX + 1);
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
