use crate::hello::Role;
use braid_api::Context;
use braid_api::admin::Waiting;
use braid_env::{Clock, Monotonic};
use braid_types::{InodeId, ServerId};
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
    waiting: Waiting,
    since: Monotonic,
}

/// Something that knows what waits for it.
pub(crate) trait WaitSource: Send + Sync {
    fn waits(&self, show: &mut dyn FnMut(Waiting, Monotonic));
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

    /// It waits since `since`.
    pub fn enter(self: &Arc<Self>, waiting: Waiting, since: Monotonic) -> WaitGuard {
        let mut entries = self.entries.lock();
        entries.next += 1;
        let id = entries.next;
        entries.waits.insert(id, Wait { waiting, since });
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
        let mut show = |waiting: Waiting, since: Monotonic| {
            let waited = now.since(since);
            if waited > SHOWN_FROM {
                found.push(Waiting { since_ms: waited.as_millis() as u64, ..waiting });
            }
        };
        let sources = {
            let entries = self.entries.lock();
            for wait in entries.waits.values() {
                show(wait.waiting.clone(), wait.since);
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
            wait.waiting.for_what = for_what;
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.waits.entries.lock().waits.remove(&self.id);
    }
}

/// A call to a server, as it is shown while it waits.
pub(crate) fn of_call(message: &str, cx: &Context, (role, server): (Role, ServerId), for_what: String) -> Waiting {
    let (session, about) = (cx.token.session, cx.about);
    let mut who = match session.0 {
        0 => message.to_owned(),
        id => format!("{message} of session {id}"),
    };
    if about.inode != InodeId(0) {
        who = format!("{who}, for inode {}", about.inode);
    }
    let epoch = cx.token.chain_epoch.max(about.epoch).0;
    let is_data = role == Role::Data;
    Waiting {
        who,
        for_what,
        trace: cx.trace,
        session: (session.0 != 0).then_some(session),
        inodes: (about.inode.0 != 0).then_some(about.inode).into_iter().collect(),
        servers: (is_data && server.0 != 0).then_some(server).into_iter().collect(),
        metadata: role == Role::Metadata,
        container: (about.container.0 != 0).then_some(about.container),
        chunk: (about.chunk.0 != 0).then_some(about.chunk),
        epoch: (is_data && epoch != 0).then_some(epoch.into()),
        ..Waiting::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_api::About;
    use braid_types::{ChainEpoch, ChunkId, ContainerId, SessionId, Token, TraceId};

    #[test]
    fn a_call_that_waits_says_what_it_is_about_and_whom_it_asked() {
        let token = Token { session: SessionId(3), chain_epoch: ChainEpoch(4), ..Token::default() };
        let about = About { inode: InodeId(7), container: ContainerId(9), chunk: ChunkId(12), ..About::default() };
        let cx = Context { token, about, trace: TraceId(77), ..Context::default() };
        let told = of_call("WriteCopies", &cx, (Role::Data, ServerId(2)), "data server 2".into());
        assert_eq!(told.who, "WriteCopies of session 3, for inode 7");
        let fields = (told.trace, told.session, told.inodes, told.servers, told.metadata);
        assert_eq!(fields, (cx.trace, Some(SessionId(3)), vec![InodeId(7)], vec![ServerId(2)], false));
        assert_eq!((told.container, told.chunk, told.epoch), (Some(ContainerId(9)), Some(ChunkId(12)), Some(4)));
        // What names no epoch is of the one that is known.
        let about = About { epoch: ChainEpoch(6), ..about };
        let cx = Context { token: Token::default(), about, ..cx };
        assert_eq!(of_call("WaitCopies", &cx, (Role::Data, ServerId(2)), String::new()).epoch, Some(6));
        // The metadata server has no chain, and is called so by nobody.
        let told = of_call("Rename", &Context::default(), (Role::Metadata, ServerId(0)), "metadata server".into());
        assert_eq!((told.who.as_str(), told.metadata, told.epoch, told.session), ("Rename", true, None, None));
        assert!(told.inodes.is_empty() && told.servers.is_empty() && told.container.is_none());
    }
}
