//! What the checkers learn at the servers' doors; survives the servers.

use braid_api::LockRequest;
use braid_api::meta::{CommitContent, MetaAnswer, MetaRequest};
use braid_types::{ChunkId, InodeId, RequestId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub struct Witness(Mutex<Seen>);

/// A life of the metadata server, and a session.
pub type Granter = (u64, SessionId);

type WatchesLocks = Arc<dyn Fn(Granter, &LockRequest) + Send + Sync>;

#[derive(Default)]
struct Seen {
    /// Mutations that were answered with success, perhaps into the void.
    done: BTreeSet<(SessionId, RequestId)>,
    /// Clients that have registered.
    clients: BTreeSet<u64>,
    /// Spares given out, and those of them that came back in a commit.
    given: BTreeMap<ChunkId, SessionId>,
    committed: BTreeSet<ChunkId>,
    orphans: BTreeSet<InodeId>,
    /// Chunks that were deleted at the metadata server's word.
    deleted: BTreeSet<ChunkId>,
    /// Of these, such that a late copy of a write has made again.
    revived: BTreeSet<ChunkId>,
    next_forged: u64,
    /// Is told of each lock that the metadata server says it has granted.
    watches_locks: Option<WatchesLocks>,
}

impl Witness {
    pub fn watch_locks(&self, told: impl Fn(Granter, &LockRequest) + Send + Sync + 'static) {
        self.0.lock().watches_locks = Some(Arc::new(told));
    }

    pub fn lock_granted(&self, by: Granter, lock: &LockRequest) {
        let told = self.0.lock().watches_locks.clone();
        told.iter().for_each(|told| told(by, lock));
    }

    /// Has this request been carried out before?
    pub fn was_done(&self, session: SessionId, request: RequestId) -> bool {
        self.0.lock().done.contains(&(session, request))
    }

    pub fn done(&self, session: SessionId, request: RequestId) {
        self.0.lock().done.insert((session, request));
    }

    /// Did this client register before?
    pub fn registers(&self, client: u64) -> bool {
        !self.0.lock().clients.insert(client)
    }

    /// A request id that no client uses.
    pub fn forge(&self) -> RequestId {
        let mut seen = self.0.lock();
        seen.next_forged += 1;
        RequestId(1 << 60 | seen.next_forged)
    }

    pub fn answered(&self, session: SessionId, request: &MetaRequest, answer: &MetaAnswer) {
        let mut seen = self.0.lock();
        match (request, answer) {
            (_, MetaAnswer::TakeSpares(given) | MetaAnswer::TakeBeside(given)) => {
                seen.given.extend(given.spares.iter().map(|(chunk, _)| (*chunk, session)));
            }
            (MetaRequest::CommitFile(commit), MetaAnswer::CommitFile(_)) => {
                if let CommitContent::Chunks(chunks) = &commit.content {
                    seen.committed.extend(chunks.iter().map(|chunk| chunk.chunk));
                }
            }
            _ => {}
        }
    }

    pub fn deletes(&self, chunks: &[ChunkId]) {
        self.0.lock().deleted.extend(chunks);
    }

    pub fn was_deleted(&self, chunk: ChunkId) -> bool {
        self.0.lock().deleted.contains(&chunk)
    }

    /// A copy of a write that was held up was carried out.
    pub fn comes_late(&self, chunk: ChunkId) {
        let mut seen = self.0.lock();
        if seen.deleted.contains(&chunk) {
            seen.revived.insert(chunk);
        }
    }

    pub fn was_revived(&self, chunk: ChunkId) -> bool {
        self.0.lock().revived.contains(&chunk)
    }

    /// Chunk rows whose chunk no client ever committed were put there for a lost client.
    pub fn adopted(&self, rows: impl IntoIterator<Item = ChunkId>) -> u64 {
        let seen = self.0.lock();
        rows.into_iter().filter(|chunk| seen.given.contains_key(chunk) && !seen.committed.contains(chunk)).count()
            as u64
    }

    /// Of the orphans seen at the last look, how many are orphans no more.
    pub fn orphans_now(&self, now: BTreeSet<InodeId>) -> u64 {
        let mut seen = self.0.lock();
        let gone = seen.orphans.difference(&now).count() as u64;
        seen.orphans = now;
        gone
    }
}
