//! Which connections between two machines still hold.
//!
//! turmoil drops what is sent over a partitioned link and never repeats it, where TCP would either repeat it after the
//! repair or break the connection. The first is `hold` and `release`; the second is this table: a connection remembers
//! how often its link had been broken when it was made, and is reset once that number has risen.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::task::Waker;

#[derive(Default)]
pub struct Links {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: BTreeMap<(String, String), Link>,
    next: u64,
}

#[derive(Default)]
struct Link {
    broken: u64,
    /// Ends of connections that wait to read.
    readers: BTreeMap<u64, Waker>,
}

/// One end of a connection.
pub struct LinkEnd {
    pair: (String, String),
    broken: u64,
    id: u64,
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (a, b) = if a < b { (a, b) } else { (b, a) };
    (a.to_owned(), b.to_owned())
}

impl Links {
    /// A new connection.
    pub fn join(&self, a: &str, b: &str) -> LinkEnd {
        let (pair, mut state) = (pair(a, b), self.state.lock());
        state.next += 1;
        let id = state.next;
        let broken = state.links.entry(pair.clone()).or_default().broken;
        LinkEnd { pair, broken, id }
    }

    /// Resets all connections between two machines.
    pub fn break_all(&self, a: &str, b: &str) {
        let readers = {
            let mut state = self.state.lock();
            let link = state.links.entry(pair(a, b)).or_default();
            link.broken += 1;
            std::mem::take(&mut link.readers)
        };
        readers.into_values().for_each(Waker::wake);
    }

    pub fn holds(&self, end: &LinkEnd) -> bool {
        self.state.lock().links.get(&end.pair).is_some_and(|link| link.broken == end.broken)
    }

    /// Wakes the reader when the connection is reset.
    pub fn watch(&self, end: &LinkEnd, waker: &Waker) {
        if let Some(link) = self.state.lock().links.get_mut(&end.pair) {
            link.readers.insert(end.id, waker.clone());
        }
    }

    pub fn leave(&self, end: &LinkEnd) {
        if let Some(link) = self.state.lock().links.get_mut(&end.pair) {
            link.readers.remove(&end.id);
        }
    }
}
