//! The parts of a client, and its background tasks' reins.

use crate::ahead::Ahead;
use crate::behind::Behind;
use crate::beneath::Beneath;
use crate::cache::Cache;
use crate::config::ClientConfig;
use crate::files::Files;
use crate::handles::Handles;
use crate::inode::{FileState, Inode, Inodes};
use crate::leases::Leases;
use crate::local::LocalReads;
use crate::locks::Locks;
use crate::lru::Lru;
use crate::memory::Memory;
use crate::nearer::Written;
use crate::quota::Returns;
use crate::readers::Readers;
use crate::reopens::Reopens;
use crate::requests::Requests;
use crate::room::Room;
use crate::route::Route;
use crate::servers::Directory;
use crate::session::Session;
use crate::shared::Told;
use crate::spares::Spares;
use crate::stats::{Counters, Stats};
use crate::stop::Stop;
use crate::wait::{Deadline, Waits};
use braid_api::StatFs;
use braid_env::{Env, Monotonic};
use braid_types::{ChunkId, InodeId, Timestamp, TraceId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

pub struct Core {
    /// For what goes on in the background.
    pub this: Weak<Core>,
    pub env: Env,
    pub config: ClientConfig,
    pub route: Route,
    pub session: Session,
    pub requests: Requests,
    pub behind: Behind,
    /// Async: one sends what is kept.
    pub replaying: tokio::sync::Mutex<()>,
    pub servers: Directory,
    pub spares: Spares,
    pub written: Written,
    pub room: Room,
    pub cache: Cache,
    pub leases: Leases,
    pub files: Files,
    pub told: Told,
    pub reopens: Reopens,
    pub readers: Readers,
    pub ahead: Ahead,
    /// Files that are marked for several writers, as far as that is remembered.
    pub marked: Mutex<Lru<InodeId, ()>>,
    pub inodes: Inodes,
    pub returns: Returns,
    pub handles: Handles,
    pub locks: Locks,
    /// Chunks that read as holes, see `unknown`.
    pub lost: Mutex<Lru<ChunkId, ()>>,
    pub local: LocalReads,
    pub beneath: Beneath,
    pub memory: Arc<Memory>,
    pub counters: Counters,
    pub waits: Waits,
    /// By what was asked about: of the last who asked, those of one `df`.
    pub statfs: Mutex<Lru<InodeId, (StatFs, Monotonic)>>,
    /// Reads not yet reported, and since when.
    pub atimes: Mutex<HashMap<InodeId, (Timestamp, Monotonic)>>,
    /// Wakes the write-back: something became dirty, or memory is short.
    pub wake: Notify,
    /// Chunks have become stable whose rows do not say so.
    pub marks: Arc<Notify>,
    /// True once the client stops; ends background tasks.
    pub stop: Stop,
}

/// One file operation: until when it may wait, and its trace.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub deadline: Deadline,
    pub trace: TraceId,
}

impl Core {
    pub fn now(&self) -> Monotonic {
        self.env.clock.now()
    }

    pub fn op(&self, trace: TraceId) -> Op {
        Op { deadline: Deadline::after(&self.env, self.config.deadline), trace }
    }

    /// An operation whose caller is not named: the one that is being worked for, or the client's own.
    pub fn own_op(&self) -> Op {
        self.op(braid_api::trace::current())
    }

    /// A task of its own that works for an operation: its messages and its lines in the log carry the operation's trace.
    pub fn spawn_for(&self, what: &'static str, trace: TraceId, task: impl Future<Output = ()> + Send + 'static) {
        self.env.spawn(what, braid_api::trace::under(trace, task));
    }

    /// Brings the file's share of the write buffer up to date. Call after every change to what it holds.
    pub fn settle(&self, state: &mut FileState) {
        let buffered = state.buffered();
        self.memory.buffered.settle(state.charged, buffered);
        state.charged = buffered;
    }

    /// Changes a file's state and keeps the accounts.
    pub fn update<T>(&self, inode: &Inode, change: impl FnOnce(&mut FileState) -> T) -> T {
        let mut state = inode.state.lock();
        let value = change(&mut state);
        self.settle(&mut state);
        drop(state);
        inode.changed.notify_waiters();
        value
    }

    pub fn stats(&self) -> Stats {
        Stats {
            bytes_buffered: self.memory.buffered.used(),
            bytes_retained: self.memory.retained.used(),
            bytes_prefetched: self.memory.prefetched.used(),
            removals_unanswered: self.behind.unanswered() as u64,
            changes_kept: self.requests.kept().0 as u64,
            open_inodes: self.inodes.len() as u64,
            open_handles: self.handles.len() as u64,
            sealed_held: self.beneath.len() as u64,
            ..self.counters.read()
        }
    }
}
