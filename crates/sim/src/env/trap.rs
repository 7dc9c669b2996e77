//! A machine that stops in the middle of what it does: at one of the messages it sends.
//!
//! Between two steps of the world no task is half done with what it could do at once. A trap closes the gate of its machine within a step, before
//! a message that it sends or after it: nothing of the machine runs from there on, and the injector finds it sprung and goes on from there.

use super::PauseGate;
use braid_api::data::DataRequest;
use braid_chain::{Body, Envelope, Message};
use braid_wire::{Header, Kind, Limits, PREFIX_BYTES};
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
    /// At the next word of this kind, whoever says it.
    AtWord {
        before: &'static str,
        after: bool,
    },
    Sprung(Sprung),
}

/// A machine has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sprung {
    pub machine: String,
    /// Before or after which word between data servers, if it was one.
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
    /// False if there is one already.
    pub fn set_at_message(&self, machine: &str, messages: u64, after: bool) -> bool {
        self.set(State::AtMessage { machine: machine.to_owned(), messages, after })
    }

    pub fn set_at_move(&self, taker: bool, messages: u64, after: bool) -> bool {
        self.set(State::AtMove { taker, messages, after })
    }

    /// `word` is of [`WORDS`].
    pub fn set_at_word(&self, word: usize, after: bool) -> bool {
        self.set(State::AtWord { before: WORDS[word % WORDS.len()].0, after })
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

    /// Once.
    pub fn take_sprung(&self) -> Option<Sprung> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Sprung(_)) {
            return None;
        }
        match std::mem::take(&mut *state) {
            State::Sprung(sprung) => Some(sprung),
            _ => None,
        }
    }

    /// Nothing is set any more.
    pub fn clear(&self) {
        *self.state.lock() = State::Open;
    }

    /// A message of this machine is to be sent: these bytes of it now.
    pub fn at_message(&self, machine: &str, gate: &PauseGate, bytes: &[u8]) -> Passes {
        let mut state = self.state.lock();
        if gate.is_closed() {
            return Passes::Goes;
        }
        let (after, word) = match &mut *state {
            State::AtMessage { machine: trapped, messages: 0, after } if trapped == machine => (*after, word_in(bytes)),
            State::AtMessage { machine: trapped, messages, .. } if trapped == machine => {
                *messages -= 1;
                return Passes::Goes;
            }
            State::AtWord { before, after } => match word_in(bytes) {
                Some(word) if named(&word).0 == *before => (*after, Some(word)),
                _ => return Passes::Goes,
            },
            _ => return Passes::Goes,
        };
        let at = word.map(|word| if after { named(&word).1 } else { named(&word).0 });
        *state = State::Sprung(Sprung { machine: machine.to_owned(), at });
        gate.pause();
        if after { Passes::Last } else { Passes::Not }
    }
}

/// The first word of one data server to another that begins in these bytes.
fn word_in(bytes: &[u8]) -> Option<Body> {
    let mut rest = bytes;
    loop {
        let header = Header::decode(rest.first_chunk::<PREFIX_BYTES>()?, &Limits::default()).ok()?;
        let body = rest.get(PREFIX_BYTES..PREFIX_BYTES + header.body_len)?;
        if header.kind == Kind::Request
            && let Ok(DataRequest::PeerSays(says)) = braid_wire::decode(body)
            && let Ok((Envelope { body, .. }, _)) = Envelope::decode_first(&says.message)
        {
            return Some(body);
        }
        rest = rest.get(PREFIX_BYTES + header.body_len + header.payload_len..)?;
    }
}

/// As coverage counts them: who says it stopped before that, and after it.
pub const WORDS: [(&str, &str); 9] = [
    ("stopped before Want", "stopped after Want"),
    ("stopped before Hand", "stopped after Hand"),
    ("stopped before Owns", "stopped after Owns"),
    ("stopped before Hello", "stopped after Hello"),
    ("stopped before Tell", "stopped after Tell"),
    ("stopped before Ack", "stopped after Ack"),
    ("stopped before Blocks", "stopped after Blocks"),
    ("stopped before Pull", "stopped after Pull"),
    ("stopped before a fetch", "stopped after a fetch"),
];

fn named(word: &Body) -> (&'static str, &'static str) {
    WORDS[match word {
        Body::Want => 0,
        Body::Hand { .. } | Body::HandQueue { .. } => 1,
        Body::Owns => 2,
        Body::Hello { .. } => 3,
        Body::Tell { .. } => 4,
        Body::Ack { .. } => 5,
        Body::Blocks { .. } => 6,
        Body::Pull { .. } => 7,
        Body::Fetch { .. } | Body::Fetched { .. } => 8,
    }]
}
