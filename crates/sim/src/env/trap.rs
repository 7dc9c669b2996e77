//! A machine that stops in the middle of what it does: at one of the messages it sends.
//!
//! Between two steps of the world no task is half done with what it could do at once. A trap closes the gate of its machine within a step, before
//! a message that it sends or after it: nothing of the machine runs from there on, and the injector finds it sprung and goes on from there.

use super::PauseGate;
use parking_lot::Mutex;

#[derive(Default)]
pub struct Trap {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    /// At the next move of ownership, of which the one side or the other stops.
    AtMove {
        taker: bool,
        messages: u64,
        after: bool,
    },
    /// At the message after so many.
    AtMessage {
        machine: String,
        messages: u64,
        after: bool,
    },
    Sprung(String),
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
    /// False if there is one already.
    pub fn set_at_message(&self, machine: &str, messages: u64, after: bool) -> bool {
        self.set(State::AtMessage { machine: machine.to_owned(), messages, after })
    }

    pub fn set_at_move(&self, taker: bool, messages: u64, after: bool) -> bool {
        self.set(State::AtMove { taker, messages, after })
    }

    fn set(&self, trap: State) -> bool {
        let mut state = self.state.lock();
        let is_open = matches!(*state, State::Open);
        if is_open {
            *state = trap;
        }
        is_open
    }

    /// One asks another for a chunk.
    pub fn move_begins(&self, owner: &str, taker: &str) {
        let mut state = self.state.lock();
        if let State::AtMove { taker: of_taker, messages, after } = *state {
            let machine = if of_taker { taker } else { owner }.to_owned();
            *state = State::AtMessage { machine, messages, after };
        }
    }

    /// The machine whose trap has sprung, once.
    pub fn take_sprung(&self) -> Option<String> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Sprung(_)) {
            return None;
        }
        match std::mem::take(&mut *state) {
            State::Sprung(machine) => Some(machine),
            _ => None,
        }
    }

    /// Nothing is set any more.
    pub fn clear(&self) {
        *self.state.lock() = State::Open;
    }

    /// A message of this machine is to be sent.
    pub fn at_message(&self, machine: &str, gate: &PauseGate) -> Passes {
        let mut state = self.state.lock();
        let State::AtMessage { machine: trapped, messages, after } = &mut *state else { return Passes::Goes };
        if trapped != machine || gate.is_closed() {
            return Passes::Goes;
        }
        if *messages > 0 {
            *messages -= 1;
            return Passes::Goes;
        }
        let after = *after;
        *state = State::Sprung(machine.to_owned());
        gate.pause();
        if after { Passes::Last } else { Passes::Not }
    }
}
