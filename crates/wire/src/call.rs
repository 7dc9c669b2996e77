//! The calls of one connection that wait for their answers.

use braid_api::{Code, Context, Error, Result};
use braid_env::Monotonic;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

pub(crate) type Answer = Result<(Bytes, Bytes)>;

pub(crate) struct Call {
    pub answer: oneshot::Sender<Answer>,
    /// Number of the message, for its name.
    pub message: usize,
    pub cx: Context,
    pub since: Monotonic,
    /// Whoever made the call tells by itself that it waits.
    pub listed: bool,
}

/// Ordered by call, so that a broken connection fails them in the order they were made: the simulator's runs
/// must not depend on a hash.
pub(crate) struct Calls {
    peer: String,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: BTreeMap<u64, Call>,
    next: u64,
    broken: Option<String>,
}

impl Calls {
    pub fn new(peer: String) -> Self {
        Calls { peer, table: Mutex::default() }
    }

    /// Registers a call; tells its number and how many wait with it. Nothing was sent if this fails.
    pub fn begin(&self, call: Call) -> Result<(u64, usize)> {
        let mut table = self.table.lock();
        if let Some(why) = &table.broken {
            return Err(Error::new(Code::Unreachable, &self.peer, why));
        }
        table.next += 1;
        let id = table.next;
        table.calls.insert(id, call);
        Ok((id, table.calls.len()))
    }

    /// Takes a call out; `None` if it has its answer or its caller has gone.
    pub fn end(&self, id: u64) -> Option<Call> {
        self.table.lock().calls.remove(&id)
    }

    /// Fails all calls and those to come.
    pub fn fail(&self, why: &str) {
        let calls = {
            let mut table = self.table.lock();
            table.broken.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut table.calls)
        };
        for call in calls.into_values() {
            let _ = call.answer.send(Err(Error::new(Code::Disconnected, &self.peer, why)));
        }
    }

    pub fn is_broken(&self) -> bool {
        self.table.lock().broken.is_some()
    }

    /// Runs `show` on each call.
    pub fn each(&self, mut show: impl FnMut(&Call)) {
        self.table.lock().calls.values().for_each(&mut show);
    }
}
