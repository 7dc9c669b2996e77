//! Start and end of a client.

use crate::ahead::Ahead;
use crate::beneath::Beneath;
use crate::cache::Cache;
use crate::commit::Reach;
use crate::config::{ClientConfig, Routing};
use crate::core::Core;
use crate::local::LocalReads;
use crate::lru::Lru;
use crate::memory::Memory;
use crate::readers::Readers;
use crate::reopens::Reopens;
use crate::route::{Doors, Members, Route};
use crate::servers::Directory;
use crate::session::{Registration, Session};
use crate::shared::MARKED_MAX;
use crate::stop::Stop;
use crate::unknown::LOST_MAX;
use crate::wait::{Deadline, Waits};
use braid_api::erased::Peers;
use braid_api::meta::{GetRoster, Mark, OpenSession, SessionReply};
use braid_api::{Carries, Code, Context, Error, Result, Retry, When};
use braid_env::Env;
use braid_types::{SessionId, TraceId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Answers to `statfs` that are kept, each a second: of a few that are asked about again and again.
const STATFS_KEPT: usize = 16;

/// Before it is asked again who leads.
const AGAIN: Duration = Duration::from_millis(100);

fn may_be_another(route: &Route, error: &Error) -> bool {
    error.code == Code::HeldElsewhere || (route.is_several() && error.retry() != Retry::No)
}

/// Whoever answers first may not lead, but knows who does.
async fn open_session(
    env: &Env,
    route: &Route,
    open: &OpenSession,
    deadline: Duration,
) -> Result<(SessionReply, Mark)> {
    loop {
        let cx = Context { deadline, when: When::Marked, ..Context::default() };
        let answered = match route.ask_leader(cx, open.clone().wrap()).await {
            Err(error) if route.has_ways() && may_be_another(route, &error) => error,
            answered => {
                let (answer, mark) = answered?;
                return Ok((OpenSession::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?, mark));
            }
        };
        tracing::debug!(error = %answered, "it is asked who leads");
        let (answer, _) = route.say(None, cx, GetRoster {}.wrap()).await?;
        match GetRoster::unwrap(answer).and_then(Members::of) {
            Some(members) if members.roster.epoch() > route.epoch() => drop(route.adopt(members)),
            _ => env.sleep(AGAIN).await,
        }
    }
}

impl Core {
    pub async fn start(
        env: Env,
        calls: Doors,
        control: Doors,
        peers: Box<dyn Peers>,
        config: ClientConfig,
    ) -> Result<Arc<Core>> {
        let client = env.random.u64();
        let open = OpenSession {
            client,
            former: None,
            since: SessionId(0),
            description: config.description.clone(),
            host: config.host.clone(),
            caches: true,
        };
        let turn = if config.routing == Routing::BySlot { 0 } else { env.random.u64() };
        let route = Route::new(calls, control, config.routing, turn);
        let sent = env.clock.now();
        let opened = env.timeout(config.deadline, open_session(&env, &route, &open, config.deadline)).await;
        let late = |_| Error::new(Code::DeadlineExceeded, "opening a session", "the metadata server did not answer");
        let (reply, mark) = opened.map_err(late)??;
        let memory = Arc::new(Memory::default());
        let core = Arc::new_cyclic(|this| Core {
            this: this.clone(),
            session: Session::new(client, Registration::from_reply(&reply, sent)),
            requests: Default::default(),
            behind: Default::default(),
            replaying: Default::default(),
            servers: Directory::new(peers, memory.clone(), config.server_writes_max),
            spares: Default::default(),
            written: Default::default(),
            room: Default::default(),
            cache: Cache::new(config.cache_entries),
            leases: Default::default(),
            files: Default::default(),
            inodes: Default::default(),
            returns: Default::default(),
            handles: Default::default(),
            locks: Default::default(),
            told: Default::default(),
            reopens: Reopens::default(),
            readers: Readers::default(),
            ahead: Ahead::default(),
            marked: Mutex::new(Lru::new(MARKED_MAX)),
            lost: Mutex::new(Lru::new(LOST_MAX)),
            local: LocalReads::default(),
            beneath: Beneath::default(),
            memory,
            counters: Default::default(),
            waits: Waits::default(),
            statfs: Mutex::new(Lru::new(STATFS_KEPT)),
            atimes: Mutex::default(),
            wake: Notify::new(),
            marks: Arc::default(),
            stop: Stop::default(),
            env,
            route,
            config,
        });
        core.servers.adopt(&reply.servers);
        core.requests.observe(&mark);
        let lease = Duration::from_millis(reply.lease_ms.into());
        if core.route.is_several() {
            core.members_are(core.route.roster(), core.route.seats(), None);
        }
        core.heard_term(sent, lease, reply.term);
        core.keep_session();
        core.keep_time();
        core.keep_dropping();
        core.keep_settling();
        core.keep_writing_back();
        core.keep_marking();
        if reply.term.is_some_and(|term| !term.alone && term.epoch > core.route.epoch()) {
            // Whose it is, is known then. Else it is soon, and until then nothing is kept.
            core.learn_roster(Deadline::after(&core.env, core.config.attempt)).await;
            core.heard_term(sent, lease, reply.term);
        }
        Ok(core)
    }

    /// Everything of every file, as far as `reach`.
    async fn save_all(self: &Arc<Self>, reach: Reach) -> Result<()> {
        let op = self.own_op();
        let mut result = Ok(());
        for inode in self.inodes.all() {
            // One file that cannot be saved must not keep the others from it.
            if let Err(error) = self.commit(&inode, reach, op).await {
                tracing::warn!(%error, inode = inode.id.0, "cannot be saved");
                result = Err(error);
            }
        }
        result
    }

    pub async fn sync_fs(self: &Arc<Self>) -> Result<()> {
        self.save_all(Reach::Stable).await?;
        self.sync_all(self.own_op()).await?;
        self.settle_changes(self.own_op()).await
    }

    pub async fn shutdown(self: &Arc<Self>) -> Result<()> {
        let saved = self.sync_fs().await;
        let soon = Deadline::after(&self.env, Duration::from_secs(1));
        // Not said, it is found out at the next write.
        let _ = self.mark_stable(crate::core::Op { deadline: soon, trace: TraceId(0) }).await;
        let reads: Vec<_> = self.atimes.lock().keys().copied().collect();
        for id in reads {
            // Nice to have: not worth a long wait for a server that is gone.
            let soon = Deadline::after(&self.env, Duration::from_secs(1));
            self.report_atime(id, crate::core::Op { deadline: soon, trace: TraceId(0) }).await;
        }
        let soon = Deadline::after(&self.env, Duration::from_secs(5));
        let closed = self.close_session(crate::core::Op { deadline: soon, trace: TraceId(0) }).await;
        if let Err(error) = closed {
            // The session ends by itself when it is silent for long enough; nothing depends on it any more.
            tracing::info!(%error, "the session was not closed");
        }
        saved
    }
}
