//! Requests that were not answered at once: what each waits for, for `braid admin why`.

use crate::chain::{members, words};
use crate::core::Call;
use braid_api::admin::Waiting;
use braid_chain::Waits;
use braid_env::{Clock, Monotonic};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId, SessionId, TraceId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What waits shorter is not worth showing.
const SHOWN_FROM: Duration = Duration::from_secs(1);

pub(crate) struct Work {
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

/// Words are made only when somebody looks.
struct Entry {
    what: &'static str,
    session: SessionId,
    trace: TraceId,
    chunk: ChunkId,
    /// As the request has it; 0 if it names none.
    epoch: ChainEpoch,
    stage: &'static str,
    /// What waits for other copies: the container, and the number of the call in its chain.
    copy: Option<(ContainerId, u64)>,
    since: Monotonic,
}

/// An entry, until dropped.
pub(crate) struct WorkGuard {
    work: Arc<Work>,
    id: u64,
}

impl Work {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Work> {
        Arc::new(Work { clock, table: Mutex::default() })
    }

    pub fn enter(self: &Arc<Self>, call: &Call, chunk: ChunkId, stage: &'static str) -> WorkGuard {
        let since = self.clock.now();
        let (what, session, trace, epoch) = (call.what, call.token.session, call.trace, call.token.chain_epoch);
        let mut table = self.table.lock();
        table.next += 1;
        let id = table.next;
        table.entries.insert(id, Entry { what, session, trace, chunk, epoch, stage, copy: None, since });
        WorkGuard { work: self.clone(), id }
    }

    pub fn count(&self) -> u64 {
        self.table.lock().entries.len() as u64
    }

    /// All that has waited for more than a second at this server, the longest first. `chains`: what calls wait for there.
    pub fn list(&self, here: ServerId, chains: &BTreeMap<u64, Waits>) -> Vec<Waiting> {
        let now = self.clock.now();
        let table = self.table.lock();
        let shown = table.entries.values().filter(|entry| now.since(entry.since) >= SHOWN_FROM);
        let mut found: Vec<Waiting> = shown.map(|entry| entry.told(here, chains, now)).collect();
        found.sort_by_key(|waiting| std::cmp::Reverse(waiting.since_ms));
        found
    }
}

impl Entry {
    fn told(&self, here: ServerId, chains: &BTreeMap<u64, Waits>, now: Monotonic) -> Waiting {
        let waits = self.copy.and_then(|(_, op)| chains.get(&op));
        let stage = waits.map_or_else(|| self.stage.to_owned(), words);
        let epoch = waits.map_or(self.epoch, |waits| waits.chain_epoch);
        let session = (self.session.0 != 0).then_some(self.session);
        let chunk = (self.chunk.0 != 0).then_some(self.chunk);
        let container = self.copy.map(|(container, _)| container);
        Waiting {
            who: match session {
                Some(session) => format!("{} of session {session}", self.what),
                None => self.what.to_owned(),
            },
            for_what: match (chunk, container) {
                (Some(chunk), Some(id)) => format!("chunk {chunk} of container {id}, epoch {epoch}: {stage}"),
                (Some(chunk), None) => format!("chunk {chunk}: {stage}"),
                (None, _) => stage,
            },
            since_ms: now.since(self.since).as_millis() as u64,
            trace: self.trace,
            session,
            // One that waits for its own disk waits for itself.
            servers: waits.map(members).unwrap_or_else(|| vec![here]),
            container,
            chunk,
            epoch: (epoch.0 != 0).then_some(epoch.0.into()),
            ..Waiting::default()
        }
    }
}

impl WorkGuard {
    /// It waits for something else now.
    pub fn stage(&self, stage: &'static str) {
        if let Some(entry) = self.work.table.lock().entries.get_mut(&self.id) {
            entry.stage = stage;
        }
    }

    /// It waits for other copies.
    pub fn copy(&self, place: (ContainerId, u64)) {
        if let Some(entry) = self.work.table.lock().entries.get_mut(&self.id) {
            entry.copy = Some(place);
        }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.work.table.lock().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_copies_names_the_container_its_epoch_and_who_has_not_answered() {
        let copy = Some((ContainerId(9), 5));
        let (session, trace, epoch) = (SessionId(3), TraceId(77), ChainEpoch(2));
        let since = Monotonic::default();
        let entry = |copy| {
            let (what, chunk, stage) = ("WaitCopies", ChunkId(12), "the chunk's other copies");
            Entry { what, session, trace, chunk, epoch, stage, copy, since }
        };
        let waits = Waits {
            op: 5,
            container: ContainerId(9),
            chain_epoch: ChainEpoch(4),
            chunk: ChunkId(12),
            version: Default::default(),
            invalidation: vec![ServerId(3)],
            bytes: (Vec::new(), 0),
            stable: (vec![ServerId(2), ServerId(3)], 1),
            epoch: false,
        };
        let chains = BTreeMap::from([(5, waits)]);
        let told = entry(copy).told(ServerId(1), &chains, since + Duration::from_secs(8));
        assert_eq!(told.who, "WaitCopies of session 3");
        assert_eq!(
            told.for_what,
            "chunk 12 of container 9, epoch 4: data servers 3 to know what changed; \
             1 of data servers 2, 3 to have them on stable storage"
        );
        let fields = (told.since_ms, told.trace, told.session, told.container, told.chunk, told.epoch);
        assert_eq!(fields, (8_000, trace, Some(session), Some(ContainerId(9)), Some(ChunkId(12)), Some(4)));
        assert_eq!(told.servers, [ServerId(2), ServerId(3)]);
        // Answered meanwhile, or not yet applied.
        let told = entry(copy).told(ServerId(1), &BTreeMap::new(), since);
        assert_eq!(told.for_what, "chunk 12 of container 9, epoch 2: the chunk's other copies");
        let told = entry(None).told(ServerId(1), &BTreeMap::new(), since);
        assert_eq!((told.for_what.as_str(), told.servers), ("chunk 12: the chunk's other copies", vec![ServerId(1)]));
    }
}
