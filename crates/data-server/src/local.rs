//! What was handed out to readers on this host (docs/design/0013-local-reads.md).
//!
//! Promises: once [`Local::end`] of a chunk has returned, no reader takes what was handed out of it for good; nor [`UNTIL`] after this
//! process has stood still or ended. A word is given before it is looked whether the chunk may be handed out, so that
//! whatever comes between ends that.

use braid_env::{Board, DiskFile, Env, Monotonic, Tickets};
use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// So long a board is believed after it was last extended: a reader that finds it over asks, so what is lost is the time of a message.
pub(crate) const UNTIL: Duration = Duration::from_millis(250);
pub(crate) const EXTENDED_EVERY: Duration = Duration::from_millis(50);

/// Chunks that can be handed out at once of either kind, 1 TiB of 64 MiB each: 128 KiB of memory.
const WORDS: u64 = 16 << 10;
/// Whoever has a ticket comes at once.
const TICKET_FOR: Duration = Duration::from_secs(5);
const TICKETS_MAX: usize = 256;

/// Copies are believed under the server's lease only, and have a board of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    One,
    Copies,
}

/// A word, and what it says as long as nothing has come between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    kind: Kind,
    pub word: u64,
    pub value: u64,
}

pub(crate) struct Local {
    env: Env,
    pub socket: PathBuf,
    boards: [Board; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    given: HashMap<ChunkId, Given>,
    /// Of each kind: never used are those from here on; these were used and are free.
    fresh: [u64; 2],
    free: [Vec<u64>; 2],
    /// Values of words only rise.
    last_value: u64,
    tickets: BTreeMap<u64, Ticket>,
    has_ended: bool,
}

struct Ticket {
    files: Vec<Arc<dyn DiskFile>>,
    until: Monotonic,
}

impl Local {
    pub fn new(env: Env, socket: PathBuf) -> io::Result<Local> {
        let boards = [Board::new(&*env.disk, WORDS)?, Board::new(&*env.disk, WORDS)?];
        Ok(Local { env, socket, boards, state: Mutex::default() })
    }

    fn board(&self, kind: Kind) -> &Board {
        &self.boards[kind as usize]
    }

    /// The word of the chunk. What may not be handed out is looked at after this.
    pub fn give(&self, chunk: ChunkId, kind: Kind) -> io::Result<Given> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if let Some(given) = state.given.get(&chunk).filter(|given| given.kind == kind) {
            return Ok(*given);
        }
        self.end_of(&mut state, chunk)?;
        let word = match state.free[kind as usize].pop() {
            Some(word) => word,
            None if state.fresh[kind as usize] < WORDS => {
                state.fresh[kind as usize] += 1;
                state.fresh[kind as usize] - 1
            }
            None => {
                let other = state.given.iter().find(|(_, given)| given.kind == kind).map(|(chunk, _)| *chunk);
                let other = other.ok_or(io::ErrorKind::QuotaExceeded)?;
                self.end_of(&mut state, other)?;
                state.free[kind as usize].pop().ok_or(io::ErrorKind::QuotaExceeded)?
            }
        };
        state.last_value += 1;
        let given = Given { kind, word, value: state.last_value };
        self.board(kind).set(word, given.value)?;
        state.given.insert(chunk, given);
        Ok(given)
    }

    /// Of the chunk and its files, which were looked at after the word was given.
    pub fn ticket(&self, given: Given, files: Vec<Arc<dyn DiskFile>>) -> u64 {
        let now = self.env.clock.now();
        let mut all = vec![self.board(given.kind).to_hand_out()];
        all.extend(files);
        let mut state = self.state.lock();
        state.tickets.retain(|_, ticket| now < ticket.until);
        if state.tickets.len() >= TICKETS_MAX {
            state.tickets.pop_first();
        }
        let number = self.env.random.u64();
        state.tickets.insert(number, Ticket { files: all, until: now + TICKET_FOR });
        number
    }

    /// What was handed out of the chunk is not used any more when this has returned.
    pub fn end(&self, chunk: ChunkId) {
        let mut state = self.state.lock();
        if let Err(error) = self.end_of(&mut state, chunk) {
            // Memory that cannot be written is no reason to let anybody read what is not so.
            tracing::error!(%chunk, %error, "what was handed out cannot be ended");
            std::process::abort();
        }
    }

    fn end_of(&self, state: &mut State, chunk: ChunkId) -> io::Result<()> {
        let Some(given) = state.given.remove(&chunk) else { return Ok(()) };
        state.last_value += 1;
        self.board(given.kind).set(given.word, state.last_value)?;
        state.free[given.kind as usize].push(given.word);
        Ok(())
    }

    /// Of all chunks.
    pub fn end_all(&self) {
        let chunks: Vec<ChunkId> = self.state.lock().given.keys().copied().collect();
        chunks.into_iter().for_each(|chunk| self.end(chunk));
    }

    /// Nothing is handed out any more.
    pub fn close(&self) {
        self.state.lock().has_ended = true;
        self.end_all();
    }

    /// Up to when the copies of this server may be read, if they may.
    pub fn extend(&self, copies: Option<Monotonic>) -> io::Result<()> {
        let soon = self.env.clock.now() + UNTIL;
        self.board(Kind::One).extend(soon)?;
        self.board(Kind::Copies).extend(copies.map_or(Monotonic::default(), |until| until.min(soon)))
    }
}

impl Tickets for Local {
    fn redeem(&self, ticket: u64) -> Vec<Arc<dyn DiskFile>> {
        let now = self.env.clock.now();
        let ticket = self.state.lock().tickets.remove(&ticket);
        ticket.filter(|ticket| now < ticket.until).map(|ticket| ticket.files).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_env::BoardView;

    fn says(local: &Local, given: Given) -> bool {
        BoardView::of(local.board(given.kind).to_hand_out()).says(given.word, given.value, Monotonic::default)
    }

    #[test]
    fn what_ends_is_not_believed_and_its_word_says_something_else_next_time() {
        let local = Local::new(Env::os(), PathBuf::new()).unwrap();
        local.extend(Some(Monotonic(Duration::MAX))).unwrap();
        let [one, two] = [1, 2].map(ChunkId);
        let first = local.give(one, Kind::Copies).unwrap();
        assert_eq!(local.give(one, Kind::Copies).unwrap(), first, "two readers share a word");
        let other = local.give(two, Kind::One).unwrap();
        assert!(says(&local, first) && says(&local, other));
        local.end(one);
        assert!(!says(&local, first) && says(&local, other));
        let again = local.give(one, Kind::Copies).unwrap();
        assert!(again.word == first.word && again.value != first.value && says(&local, again) && !says(&local, first));
        // Its chunk has become one of the other kind.
        let one_copy = local.give(one, Kind::One).unwrap();
        assert!(says(&local, one_copy) && !says(&local, again));
        local.extend(None).unwrap();
        let copies = local.give(two, Kind::Copies).unwrap();
        assert!(!says(&local, copies), "no lease");
        local.close();
        assert!(!says(&local, one_copy) && local.give(one, Kind::One).is_err());
    }

    #[test]
    fn words_are_used_again_when_there_are_no_more() {
        let local = Local::new(Env::os(), PathBuf::new()).unwrap();
        local.extend(None).unwrap();
        let given: Vec<Given> = (0..=WORDS).map(|chunk| local.give(ChunkId(chunk), Kind::One).unwrap()).collect();
        let holds = given.iter().filter(|given| says(&local, **given)).count();
        assert_eq!(holds as u64, WORDS);
        assert!(given.last().is_some_and(|last| says(&local, *last)));
    }

    #[test]
    fn a_ticket_is_good_once() {
        let local = Local::new(Env::os(), PathBuf::new()).unwrap();
        let given = local.give(ChunkId(1), Kind::One).unwrap();
        let ticket = local.ticket(given, Vec::new());
        assert_eq!((local.redeem(ticket).len(), local.redeem(ticket).len(), local.redeem(0).len()), (1, 0, 0));
    }
}
