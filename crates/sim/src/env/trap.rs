//! A machine that stops in the middle of what it does: at one of the messages it sends.
//!
//! Between two steps of the world no task is half done with what it could do at once. A trap closes the gate of its machine within a step, before
//! a message that it sends or after it: nothing of the machine runs from there on, and the injector finds it sprung and goes on from there.

use super::PauseGate;
use super::word::{Sent, Word};
use parking_lot::Mutex;

#[derive(Default)]
pub struct Trap {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// At a message of one machine.
    of_one: Option<OfOne>,
    /// At the next word of this kind, whoever says it: before or after it. Beside the other, because it may never be said, and two, because
    /// one of them waits for what is rare.
    at_words: [Option<(Word, bool)>; 2],
    sprung: Option<Sprung>,
}

enum OfOne {
    /// At the next move of ownership, of which the one side or the other stops.
    AtMove { taker: bool, messages: u64, after: bool },
    /// At the message after so many.
    AtMessage { machine: String, messages: u64, after: bool },
}

/// A machine has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sprung {
    pub machine: String,
    /// Before or after which word, if it was one.
    pub at: Option<&'static str>,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    Goes,
    /// And it was the last.
    Last,
    /// It is not sent.
    Not,
}

impl Trap {
    /// Unless there is one already of a machine.
    pub fn set_at_message(&self, machine: &str, messages: u64, after: bool) {
        self.set(OfOne::AtMessage { machine: machine.to_owned(), messages, after })
    }

    pub fn set_at_move(&self, taker: bool, messages: u64, after: bool) {
        self.set(OfOne::AtMove { taker, messages, after })
    }

    fn set(&self, trap: OfOne) {
        self.state.lock().of_one.get_or_insert(trap);
    }

    /// Instead of the one that was set so.
    pub fn set_at_word(&self, word: Word, after: bool) {
        self.state.lock().at_words[0] = Some((word, after));
    }

    /// False if there is one already that was set so.
    pub fn set_at_rare_word(&self, word: Word, after: bool) -> bool {
        let trap = &mut self.state.lock().at_words[1];
        let is_open = trap.is_none();
        trap.get_or_insert((word, after));
        is_open
    }

    /// One asks another for a chunk.
    pub fn move_begins(&self, owner: &str, taker: &str) {
        let mut state = self.state.lock();
        if let Some(OfOne::AtMove { taker: of_taker, messages, after }) = state.of_one {
            let machine = if of_taker { taker } else { owner }.to_owned();
            state.of_one = Some(OfOne::AtMessage { machine, messages, after });
        }
    }

    /// Once.
    pub fn take_sprung(&self) -> Option<Sprung> {
        self.state.lock().sprung.take()
    }

    /// Nothing is set any more.
    pub fn clear(&self) {
        *self.state.lock() = State::default();
    }

    /// A message of this machine is to be sent: these bytes of it now.
    pub fn at_message(&self, machine: &str, gate: &PauseGate, bytes: &[u8], sent: Sent) -> Passes {
        let mut state = self.state.lock();
        // One machine is stopped in a step.
        if gate.is_closed() || state.sprung.is_some() {
            return Passes::Goes;
        }
        let Some((word, after)) = state.stops_at(machine, bytes, sent) else { return Passes::Goes };
        let at = word.map(|word| if after { word.after() } else { word.before() });
        state.sprung = Some(Sprung { machine: machine.to_owned(), at });
        gate.pause();
        if after { Passes::Last } else { Passes::Not }
    }
}

impl State {
    /// At which word, if it is one, and whether after it.
    fn stops_at(&mut self, machine: &str, bytes: &[u8], sent: Sent) -> Option<(Option<Word>, bool)> {
        if self.at_words != [None; 2] {
            let words = Word::all_in(bytes, sent);
            let found = self.at_words.iter_mut().find(|at| at.is_some_and(|(word, _)| words.contains(&word)));
            if let Some((word, after)) = found.and_then(Option::take) {
                return Some((Some(word), after));
            }
        }
        match &mut self.of_one {
            Some(OfOne::AtMessage { machine: trapped, messages, .. }) if trapped == machine && *messages > 0 => {
                *messages -= 1;
                None
            }
            Some(OfOne::AtMessage { machine: trapped, after, .. }) if trapped == machine => {
                let after = *after;
                self.of_one = None;
                Some((Word::all_in(bytes, sent).first().copied(), after))
            }
            _ => None,
        }
    }
}
