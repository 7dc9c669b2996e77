//! Requests that were not answered at once: what each waits for, for `braid admin why`.

use braid_api::admin::Waiting;
use braid_env::{Clock, Monotonic};
use braid_types::{ChunkId, SessionId};
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
    chunk: ChunkId,
    stage: &'static str,
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

    pub fn enter(
        self: &Arc<Self>,
        what: &'static str,
        session: SessionId,
        chunk: ChunkId,
        stage: &'static str,
    ) -> WorkGuard {
        let since = self.clock.now();
        let mut table = self.table.lock();
        table.next += 1;
        let id = table.next;
        table.entries.insert(id, Entry { what, session, chunk, stage, since });
        WorkGuard { work: self.clone(), id }
    }

    pub fn count(&self) -> u64 {
        self.table.lock().entries.len() as u64
    }

    /// All that has waited for more than a second, the longest first.
    pub fn list(&self) -> Vec<Waiting> {
        let now = self.clock.now();
        let table = self.table.lock();
        let shown = table.entries.values().filter(|entry| now.since(entry.since) >= SHOWN_FROM);
        let mut found: Vec<Waiting> = shown
            .map(|entry| Waiting {
                who: format!("{} of session {}", entry.what, entry.session),
                for_what: match entry.chunk {
                    ChunkId(0) => entry.stage.to_owned(),
                    chunk => format!("chunk {chunk}: {}", entry.stage),
                },
                since_ms: now.since(entry.since).as_millis() as u64,
            })
            .collect();
        found.sort_by_key(|waiting| std::cmp::Reverse(waiting.since_ms));
        found
    }
}

impl WorkGuard {
    /// It waits for something else now.
    pub fn stage(&self, stage: &'static str) {
        if let Some(entry) = self.work.table.lock().entries.get_mut(&self.id) {
            entry.stage = stage;
        }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.work.table.lock().entries.remove(&self.id);
    }
}
