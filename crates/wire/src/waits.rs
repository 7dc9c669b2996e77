use braid_api::admin::Waiting;
use braid_env::{Clock, Monotonic};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What waits shorter is not worth showing.
const SHOWN_FROM: Duration = Duration::from_secs(1);

/// What waits here, for what and since when: the source of `braid admin why`.
///
/// A call that is answered in time costs nothing: connections are asked for their calls only when somebody looks.
/// Other waits (for a lease, for a lock) are entered with [`Waits::enter`].
pub struct Waits {
    clock: Arc<dyn Clock>,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    waits: BTreeMap<u64, Wait>,
    sources: Vec<Weak<dyn WaitSource>>,
}

struct Wait {
    who: String,
    for_what: String,
    since: Monotonic,
}

/// Something that knows what waits for it.
pub(crate) trait WaitSource: Send + Sync {
    fn waits(&self, show: &mut dyn FnMut(String, String, Monotonic));
}

/// An entry in [`Waits`], until dropped.
pub struct WaitGuard {
    waits: Arc<Waits>,
    id: u64,
}

impl Waits {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Waits { clock, entries: Mutex::default() })
    }

    /// `who` waits since `since` for `for_what`.
    pub fn enter(self: &Arc<Self>, who: String, for_what: String, since: Monotonic) -> WaitGuard {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = entries.next;
        entries.waits.insert(id, Wait { who, for_what, since });
        WaitGuard { waits: self.clone(), id }
    }

    pub(crate) fn add_source(&self, source: Weak<dyn WaitSource>) {
        let mut entries = self.entries.lock();
        entries.sources.retain(|source| source.strong_count() > 0);
        entries.sources.push(source);
    }

    /// All that has waited for more than a second, the longest first.
    pub fn list(&self) -> Vec<Waiting> {
        let now = self.clock.now();
        let mut found = Vec::new();
        let mut show = |who: String, for_what: String, since: Monotonic| {
            let waited = now.since(since);
            if waited > SHOWN_FROM {
                found.push(Waiting { who, for_what, since_ms: waited.as_millis() as u64 });
            }
        };
        let sources = {
            let entries = self.entries.lock();
            for wait in entries.waits.values() {
                show(wait.who.clone(), wait.for_what.clone(), wait.since);
            }
            entries.sources.clone()
        };
        for source in sources.iter().filter_map(Weak::upgrade) {
            source.waits(&mut show);
        }
        found.sort_by_key(|waiting| std::cmp::Reverse(waiting.since_ms));
        found
    }
}

impl WaitGuard {
    /// It waits for something else now.
    pub fn set(&self, for_what: String) {
        if let Some(wait) = self.waits.entries.lock().waits.get_mut(&self.id) {
            wait.for_what = for_what;
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.waits.entries.lock().waits.remove(&self.id);
    }
}
