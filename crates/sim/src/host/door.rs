//! The servers' doors: between wire and server, where protocol states are counted and mistakes are planted.
//!
//! Both are the simulator's own: the servers know nothing of them.

use super::words;
use crate::bug::Bug;
use crate::check::instant::Change;
use crate::check::unlinked;
use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_api::admin::AdminQuery;
use braid_api::data::{
    CopiesAnswer, DataAnswer, DataNode, DataRequest, DeleteChunks, Fenced, ScrubAnswer, UnlockRegion,
};
use braid_api::lease::{LockReply, Order};
use braid_api::meta::{
    Acknowledge, ChunkRef, CommitContent, CommitFile, Content, EarlyMark, Grant, Kept, LeaveSealed, MapAnswer, Mark,
    MetaAnswer, MetaRequest, Namespace, OpenAnswer, YieldFiles,
};
use braid_api::{Code, Context, LockKind, Result, When};
use braid_data_server::DataServer;
use braid_env::Env;
use braid_meta_server::MetaServer;
use braid_types::{ChainEpoch, ChunkId, InodeId, OwnerTerm, ReportAsk, SessionId, Token, TruncGen, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub struct MetaDoor {
    server: Arc<MetaServer>,
    cluster: Arc<Cluster>,
    /// Changes under way.
    changes: Arc<()>,
    /// Who reads which sealed file without asking: as whom it would say that it has left it.
    holds: Mutex<BTreeMap<(SessionId, InodeId), (Token, u64)>>,
}

impl MetaDoor {
    pub fn new(server: Arc<MetaServer>, cluster: Arc<Cluster>) -> Self {
        MetaDoor { server, cluster, changes: Arc::default(), holds: Mutex::default() }
    }

    fn count(&self, what: &'static str) {
        self.cluster.coverage.count(what);
    }

    /// Locks that a session says it holds.
    fn saw_locks(&self, request: &MetaRequest) {
        let (what, locks) = match request {
            MetaRequest::YieldFiles(given_up) => ("lock recalled with its file", &given_up.locks),
            MetaRequest::Reassert(said) => ("lock kept through a start of the metadata server", &said.locks),
            _ => return,
        };
        self.cluster.coverage.add(what, locks.iter().map(|(_, held)| held.len() as u64).sum());
    }

    /// Who reads sealed files without asking.
    fn saw_holds(&self, token: Token, request: &MetaRequest, answer: &MetaAnswer) {
        let (session, mut holds) = (token.session, self.holds.lock());
        match (request, answer) {
            (MetaRequest::HoldSealed(hold), MetaAnswer::HoldSealed(Some(_))) => {
                holds.insert((session, hold.inode.id), (token, hold.number));
            }
            (MetaRequest::Reassert(said), _) => {
                self.cluster
                    .coverage
                    .add("sealed file held through a start of the metadata server", said.sealed.len() as u64);
                holds.extend(said.sealed.iter().map(|(inode, number)| ((session, *inode), (token, *number))));
            }
            (MetaRequest::LeaveSealed(left), _) => {
                left.holds.iter().for_each(|(inode, _)| _ = holds.remove(&(session, *inode)));
            }
            _ => {}
        }
    }

    /// Says for those who read the file without asking that they have left it.
    async fn leave_for_all(&self, cx: &Context, inode: InodeId) {
        let held: Vec<(Token, u64)> = {
            let holds = self.holds.lock();
            holds.iter().filter(|((_, of), _)| *of == inode).map(|(_, held)| *held).collect()
        };
        for (token, number) in held {
            let leave = LeaveSealed { holds: vec![(inode, number)] };
            let _ = self.server.execute(Context { token, ..*cx }, MetaRequest::LeaveSealed(leave)).await;
        }
    }

    fn saw(&self, session: SessionId, request: &MetaRequest, result: &Result<MetaAnswer>) {
        match result {
            Ok(answer) => {
                self.saw_locks(request);
                self.cluster.witness.answered(session, request, answer);
                if let (MetaRequest::SetLock(asked), MetaAnswer::SetLock(LockReply::Granted)) = (request, answer)
                    && asked.lock.kind != LockKind::Unlock
                {
                    let by = (self.cluster.meta_starts(), session);
                    self.cluster.witness.lock_granted(by, &asked.lock);
                }
                match answer {
                    MetaAnswer::CommitFile(commit) if !commit.instead.chunks.is_empty() => {
                        self.count("commit told to use another's chunk instead");
                    }
                    MetaAnswer::SetLock(LockReply::Granted) => self.count("lock granted by the metadata server"),
                    MetaAnswer::SetLock(LockReply::Waiting) => self.count("lock waited for at the metadata server"),
                    MetaAnswer::MoveChunk(is_there) => match request {
                        MetaRequest::MoveChunk(moved) if moved.why != braid_api::meta::MoveKind::Moved => {
                            self.count(match is_there {
                                true => "chunk of a snapshot made way for another",
                                false => "chunk of a snapshot had made way for another before",
                            })
                        }
                        MetaRequest::MoveChunk(moved) if *is_there => {
                            unlinked::check_moved(&self.cluster, moved.to);
                            self.cluster.answered.moved(moved.from);
                        }
                        _ => {}
                    },
                    MetaAnswer::Acknowledge(()) => self.count("leases dropped for another mount's change"),
                    MetaAnswer::Reassert(answer) => {
                        self.count("leases given up after a start of the metadata server");
                        let kept = answer.held.len() as u64;
                        self.cluster.coverage.add("file lease kept through a start of the metadata server", kept);
                        self.cluster.coverage.add("locks lost to another mount", answer.locks_lost.len() as u64);
                    }
                    MetaAnswer::YieldFiles(()) => self.count("file given up for another mount"),
                    MetaAnswer::Heartbeat(beat) if beat.register_again => self.count("data server registered again"),
                    _ => {}
                }
            }
            Err(error) => match error.code {
                Code::Busy if matches!(request, MetaRequest::AdminQuery(AdminQuery::CreateSnapshot { .. })) => {
                    self.count("snapshot not made in time");
                }
                Code::SessionUnknown => self.count("unknown session refused"),
                Code::MaybeCommitted => self.count("outcome of a commit unknown"),
                Code::StaleTruncGen => self.count("commit under a stale truncate generation refused"),
                Code::Recovering => self.count("request told to come again while kept changes are collected"),
                Code::NoServers => self.count("no data server for a new chunk"),
                _ => {}
            },
        }
    }
}

impl Namespace for MetaDoor {
    async fn execute(&self, cx: Context, request: MetaRequest) -> Result<MetaAnswer> {
        Ok(self.execute_early(Context { when: When::Durable, ..cx }, request).await?.0)
    }

    async fn execute_early(&self, mut cx: Context, mut request: MetaRequest) -> Result<(MetaAnswer, Mark)> {
        if let MetaRequest::Replay(replay) = &mut request {
            if self.cluster.settings.bug == Some(Bug::LostReplayOfMetadata) {
                replay.kept.clear();
            }
            let is_unanswered = |kept: &Kept| kept.mark.number == EarlyMark::UNANSWERED;
            if self.cluster.settings.bug == Some(Bug::LostReplayOfUnanswered) {
                replay.kept.retain(|kept| !is_unanswered(kept));
            }
            let unanswered = replay.kept.iter().filter(|kept| is_unanswered(kept)).count();
            self.cluster.coverage.add("removal sent again unanswered", unanswered as u64);
            self.cluster.coverage.add("kept changes sent again to the metadata server", replay.kept.len() as u64);
        }
        let (session, number) = (cx.token.session, cx.request);
        let witness = &self.cluster.witness;
        let repeated = request.is_mutation() && witness.was_done(session, number);
        if repeated && self.cluster.settings.bug == Some(Bug::RequestAppliedTwice) {
            cx.request = witness.forge();
        }
        if let MetaRequest::CommitFile(CommitFile { content: CommitContent::Chunks(chunks), .. }) = &mut request {
            let stable = chunks.iter().filter(|chunk| chunk.stable).count() as u64;
            self.cluster.coverage.add("chunk committed and known to be stable", stable);
            let early = self.cluster.settings.bug == Some(Bug::MarkedTooEarly);
            chunks.iter_mut().for_each(|chunk| chunk.stable |= early);
        }
        if let (MetaRequest::YieldFiles(given_up), Some(Bug::LocksNotSaid)) = (&mut request, self.cluster.settings.bug)
        {
            given_up.locks.clear();
        }
        if let (MetaRequest::Reassert(said), Some(Bug::HoldsForgotten)) = (&mut request, self.cluster.settings.bug) {
            said.sealed.clear();
        }
        if let (MetaRequest::SealFile(seal), Some(Bug::UnsealedUnderReaders)) = (&request, self.cluster.settings.bug)
            && !seal.sealed
        {
            self.leave_for_all(&cx, seal.inode.id).await;
        }
        if let MetaRequest::MarkStable(mark) = &request {
            self.cluster.coverage.add("chunk marked as stable after its commit", mark.chunks.len() as u64);
        }
        if let MetaRequest::ServerSays(piece) = &request {
            self.cluster.words.to_leader(&self.cluster, piece);
        }
        if let MetaRequest::OpenSession(open) = &request
            && witness.registers(open.client)
        {
            self.count("session registered again");
        }
        let change = request.is_mutation().then(|| self.changes.clone());
        let mut marked = self.server.execute_early(cx, request.clone()).await;
        drop(change);
        if self.cluster.settings.bug == Some(Bug::GrantedDuringACommit) && Arc::strong_count(&self.changes) > 1 {
            let all = Grant { entry: true, attr: true };
            match &mut marked {
                Ok((MetaAnswer::Lookup(answer), _)) => answer.grant = all,
                Ok((MetaAnswer::GetAttr(answer), _)) => answer.grant = all,
                _ => {}
            }
        }
        if self.cluster.settings.bug == Some(Bug::AcknowledgedBeforeDropped)
            && let Ok((MetaAnswer::Listen(heard), _)) = &mut marked
        {
            let revoked = heard.orders.extract_if(.., |order| matches!(order, Order::Revoke { .. }));
            let numbers = revoked.filter_map(|order| match order {
                Order::Revoke { revocation, .. } => Some(revocation),
                Order::Recall { .. } | Order::Leave { .. } | Order::LeaveSlot { .. } | Order::Renew => None,
            });
            let acknowledge = Acknowledge { member: heard.member, revocations: numbers.collect() };
            self.server.execute(cx, MetaRequest::Acknowledge(acknowledge)).await?;
        }
        if self.cluster.settings.bug == Some(Bug::GivenUpUnflushed)
            && let Ok((MetaAnswer::Listen(heard), _)) = &mut marked
        {
            let recalled = heard.orders.extract_if(.., |order| matches!(order, Order::Recall { .. }));
            let files = recalled.filter_map(|order| match order {
                Order::Recall { inode, generation, to, .. } => Some((inode, generation, to)),
                Order::Revoke { .. } | Order::Leave { .. } | Order::LeaveSlot { .. } | Order::Renew => None,
            });
            let given_up = YieldFiles {
                member: heard.member,
                files: files.collect(),
                locks: Vec::new(),
                locks_done: 0,
                handles: Vec::new(),
            };
            self.server.execute(cx, MetaRequest::YieldFiles(given_up)).await?;
        }
        if let (Some(Bug::WritesFrozen), Ok((answer, _))) = (self.cluster.settings.bug, &mut marked) {
            chunks_in(answer).iter_mut().for_each(|chunk| chunk.frozen = false);
        }
        if let (true, Ok((_, Mark { early: Some(_), .. }))) = (request.is_mutation(), &marked) {
            self.count("answered before it was durable");
        }
        let (_, failed) = self.server.repeated();
        if failed > 0 {
            let failures = &self.cluster.around.failures;
            failures.add(Invariant::EarlyAnswersAreKept, format_args!("{failed} changes failed when repeated"));
        }
        let mark = marked.as_ref().map(|(_, mark)| *mark).unwrap_or_default();
        let result = marked.map(|(answer, _)| answer);
        if result.is_ok() && request.is_mutation() {
            if repeated {
                self.count("request answered from its row");
            }
            witness.done(session, number);
        }
        self.saw(session, &request, &result);
        if let Ok(answer) = &result {
            self.saw_holds(cx.token, &request, answer);
        }
        let shown = !matches!(
            request,
            MetaRequest::Heartbeat(_)
                | MetaRequest::RenewSession(_)
                | MetaRequest::Listen(_)
                | MetaRequest::ServerSays(_)
        );
        if shown {
            let history = &self.cluster.around.history;
            history.detail("meta", || format!("{session}.{number}: {request:?} -> {result:?} {mark:?}"));
        }
        Ok((result?, mark))
    }
}

/// Chunks of a file that an answer says where they are.
fn chunks_in(answer: &mut MetaAnswer) -> &mut [ChunkRef] {
    let page = match answer {
        MetaAnswer::CommitFile(commit) | MetaAnswer::DropChunks(commit) => &mut commit.instead,
        MetaAnswer::CreateFile(OpenAnswer { map, .. })
        | MetaAnswer::OpenFile(OpenAnswer { map, .. })
        | MetaAnswer::GetMap(MapAnswer { map, .. }) => match &mut map.content {
            Content::Chunked(page) => page,
            Content::Inline(_) => return &mut [],
        },
        _ => return &mut [],
    };
    &mut page.chunks
}

pub struct DataDoor {
    server: Arc<DataServer>,
    cluster: Arc<Cluster>,
    env: Env,
    /// The chunk of the last.
    written: Mutex<Option<ChunkId>>,
    /// Changes that have come.
    changes: AtomicU64,
    /// The chains that this server was told to act in.
    epochs: Arc<Mutex<words::Epochs>>,
}

/// One of so many changes is held up.
const HELD_UP: u64 = 11;
/// For at most so long, at least a tenth of it: what comes instead is done by then, or under way.
const HELD_UP_MS_MAX: u64 = 2000;
/// Twice the time after which a session that stands still has ended ([`crate::settings::Settings::very_late`]).
const VERY_LATE_MS_MAX: u64 = 8000;
/// One of so many then: what matters is one that comes when its session has ended, and before others write there.
const VERY_LATE: u64 = 3;

/// The chunk of a request that carries cuts, and the cuts.
fn cuts_of(request: &mut DataRequest) -> Option<(ChunkId, &mut braid_api::meta::Cuts)> {
    match request {
        DataRequest::WriteChunk(m) => Some((m.chunk, &mut m.cuts)),
        DataRequest::ReadChunk(m) => Some((m.chunk, &mut m.cuts)),
        DataRequest::CutChunk(m) => Some((m.chunk, &mut m.cuts)),
        DataRequest::PunchChunk(m) => Some((m.chunk, &mut m.cuts)),
        DataRequest::StatChunk(m) => Some((m.chunk, &mut m.cuts)),
        _ => None,
    }
}

/// The chunk of a write.
fn chunk_of(request: &DataRequest) -> Option<ChunkId> {
    match request {
        DataRequest::WriteChunk(m) => Some(m.chunk),
        DataRequest::WriteCopies(m) => Some(m.write.chunk),
        _ => None,
    }
}

/// What frees the lock of an operation that has one beyond this request.
fn unlock(request: &DataRequest) -> Option<UnlockRegion> {
    let (chunk, once) = match request {
        DataRequest::WriteChunk(m) => (m.chunk, m.once),
        DataRequest::WriteCopies(m) => (m.write.chunk, m.write.once),
        DataRequest::ReadChunk(m) => (m.chunk, m.hold),
        DataRequest::ReadCopy(m) => (m.chunk, m.hold),
        _ => return None,
    };
    Some(UnlockRegion { chunk, number: once?.number })
}

impl DataDoor {
    pub fn new(server: Arc<DataServer>, cluster: Arc<Cluster>, env: Env) -> Self {
        DataDoor { server, cluster, env, written: Mutex::default(), changes: AtomicU64::new(0), epochs: Arc::default() }
    }

    /// The network keeps the change, and its sender believes that it is lost.
    fn holds_up(&self, cx: &Context, request: &DataRequest, payload: &Bytes) -> bool {
        let settings = &self.cluster.settings;
        let is_late = match request {
            DataRequest::WriteChunk(_)
            | DataRequest::PunchChunk(_)
            | DataRequest::WriteCopies(_)
            | DataRequest::PunchCopies(_) => settings.late_copies && cx.token.session.0 != 0,
            DataRequest::PeerSays(says) => settings.late_words && words::tells(says),
            _ => false,
        };
        if !is_late || self.cluster.is_calm() {
            return false;
        }
        let number = self.changes.fetch_add(1, Relaxed);
        let (most, one_of) = match settings.very_late {
            true => (VERY_LATE_MS_MAX, VERY_LATE),
            false => (HELD_UP_MS_MAX, HELD_UP),
        };
        if number % one_of != one_of - 1 {
            return false;
        }
        let (server, env, cluster) = (self.server.clone(), self.env.clone(), self.cluster.clone());
        let (cx, request, payload, epochs) = (*cx, request.clone(), payload.clone(), self.epochs.clone());
        // As good as drawn: numbers and times of requests have nothing to do with each other.
        let after = most / 10 + number * 7919 % (most * 9 / 10);
        self.env.spawn("a change that is held up", async move {
            env.sleep(Duration::from_millis(after)).await;
            cluster.note("network", format_args!("what was held up arrives: {}", words::shown(&request, &payload)));
            let request = epochs.lock().spoiled(cluster.settings.bug, request);
            if matches!(request, DataRequest::PeerSays(_)) {
                cluster.coverage.count("late word of a data server");
                let _ = server.execute(cx, request, payload).await;
                return;
            }
            let chunk = chunk_of(&request);
            let done = server.execute(cx, request, payload).await;
            if let (Ok(_), Some(chunk)) = (&done, chunk) {
                cluster.witness.comes_late(chunk);
            }
            cluster.coverage.count(match done {
                Ok(_) => "late copy of a change carried out",
                Err(_) => "late copy of a change refused",
            });
        });
        true
    }

    fn count(&self, what: &'static str) {
        self.cluster.coverage.count(what);
    }

    /// How far the chunk has been cut; `None` if there is none.
    fn generation(&self, chunk: ChunkId) -> Option<TruncGen> {
        self.server.store().stat(chunk).ok().map(|stat| stat.trunc_gen)
    }

    fn saw(&self, request: &DataRequest, before: Option<(ChunkId, TruncGen)>, result: &Result<(DataAnswer, Bytes)>) {
        match result {
            Ok(_) => {
                if let Some((chunk, generation)) = before
                    && self.generation(chunk).is_some_and(|now| now > generation)
                {
                    self.count("truncate applied by the owner");
                }
                match (request, result) {
                    (DataRequest::GetReport(report), _) => match report.ask {
                        ReportAsk::All => self.count("block report"),
                        ReportAsk::Shelves { .. } => self.count("block report that differed"),
                        _ => {}
                    },
                    (DataRequest::FenceSession(_), _) => self.count("session fenced at a data server"),
                    (DataRequest::CloneChunk(_) | DataRequest::CloneCopies(_), _) => {
                        self.count("chunk that begins as another");
                    }
                    (DataRequest::CheckRegion(_), Ok((DataAnswer::CheckRegion(true), _))) => {
                        self.count("call over two chunks that held both");
                    }
                    (DataRequest::CheckRegion(_), Ok((DataAnswer::CheckRegion(false), _))) => {
                        self.count("lock lost with its server while a call was under way");
                    }
                    _ => {}
                }
            }
            Err(error) => match error.code {
                Code::StaleTruncGen => self.count("stale truncate generation refused by the owner"),
                Code::SessionFenced => self.count("fenced session refused by a data server"),
                Code::ChunkUnknown => self.count("unknown chunk asked for"),
                Code::BadBlock => self.count("bad block met"),
                _ => {}
            },
        }
    }
}

impl DataDoor {
    /// Everything that was ever written to these is stable.
    fn as_if_it_owned(&self, chunks: &[ChunkId]) -> Vec<CopiesAnswer> {
        let all = |chain_epoch| Version { chain_epoch, owner_term: OwnerTerm(u32::MAX), counter: u64::MAX };
        let answer = |chunk: &ChunkId| {
            let copy = self.server.copies(ChunkId(chunk.0.saturating_sub(1)), 1).into_iter().next();
            let version = all(copy.map_or(ChainEpoch(0), |copy| copy.epoch));
            CopiesAnswer { chunk: *chunk, version, kept: version }
        };
        chunks.iter().map(answer).collect()
    }

    /// A write by who has owned the chunk.
    fn as_of_its_last_term(&self, chunk: ChunkId) -> Option<CopiesAnswer> {
        let version = self.cluster.answered.last_of(chunk, self.server.id())?;
        Some(CopiesAnswer { chunk, version, kept: Version::default() })
    }

    async fn remove_the_last(&self, request: &DataRequest) -> Result<()> {
        let gone = match request {
            DataRequest::WriteChunk(write) => {
                *self.written.lock() = Some(write.chunk);
                None
            }
            DataRequest::GetReport(_) => self.written.lock().take(),
            _ => None,
        };
        match gone {
            Some(chunk) => {
                let chunks = vec![chunk];
                self.server.call(Context::default(), DeleteChunks { chunks }, Bytes::new()).await.map(drop)
            }
            None => Ok(()),
        }
    }
}

impl DataNode for DataDoor {
    async fn execute(
        &self,
        mut cx: Context,
        mut request: DataRequest,
        mut payload: Bytes,
    ) -> Result<(DataAnswer, Bytes)> {
        let bug = self.cluster.settings.bug;
        if bug == Some(Bug::RemovesWhatIsNotKnownYet) {
            self.remove_the_last(&request).await?;
        }
        if bug == Some(Bug::TruncateIgnored) {
            cx.token.trunc_gen = TruncGen(0);
            if let Some((_, cuts)) = cuts_of(&mut request) {
                cuts.clear();
            }
        }
        if bug == Some(Bug::StaleTokenAccepted) {
            (cx.token.lease_gen, cx.request, cx.behind) = Default::default();
        }
        if bug == Some(Bug::OnceIgnored) {
            match &mut request {
                DataRequest::WriteChunk(write) => write.once = None,
                DataRequest::WriteCopies(copies) => copies.write.once = None,
                _ => {}
            }
        }
        if self.holds_up(&cx, &request, &payload) {
            if self.cluster.settings.very_late {
                self.env.sleep(cx.deadline).await;
            }
            return Err(Code::Disconnected.into());
        }
        let before = cuts_of(&mut request).and_then(|(chunk, _)| Some((chunk, self.generation(chunk)?)));
        if let DataRequest::DeleteChunks(delete) = &request {
            let there = delete.chunks.iter().filter(|chunk| self.generation(**chunk).is_some()).count();
            let outside = cx.token.chain_epoch.0 != 0;
            let what = if outside { "copy outside its chain deleted" } else { "chunk reclaimed" };
            self.cluster.coverage.add(what, there as u64);
            match outside {
                true => unlinked::check(&self.cluster, self.server.id(), cx.token.chain_epoch, &delete.chunks),
                false => self.cluster.witness.deletes(&delete.chunks),
            }
        }
        request = self.epochs.lock().spoiled(bug, request);
        match &mut request {
            DataRequest::PeerSays(says) => {
                words::spoil(bug, says);
                self.cluster.words.of_peer(&self.cluster, self.server.id(), says);
            }
            DataRequest::LeaderSays(_) => {
                self.cluster.words.of_leader(&self.cluster, &payload);
                self.epochs.lock().of_leader(&payload);
                payload = words::spoil_of_leader(bug, payload);
            }
            _ => {}
        }
        if let (DataRequest::ScrubChunk(_), Some(Bug::NotReadBack)) = (&request, bug) {
            return Ok((DataAnswer::ScrubChunk(ScrubAnswer { blocks: 0, bad: Vec::new() }), Bytes::new()));
        }
        if let (DataRequest::FenceSession(_), Some(Bug::SkippedFence)) = (&request, bug) {
            return Ok((DataAnswer::FenceSession(Fenced::default()), Bytes::new()));
        }
        let (brought, session) = (payload.clone(), cx.token.session);
        let change = Change::asked(&self.cluster, &request, payload.len());
        let mut result = self.server.execute(cx, request.clone(), payload).await;
        if let (DataRequest::WaitCopies(wait), Some(Bug::PastOwnerAnswers), Err(error)) = (&request, bug, &result)
            && error.owner().is_some()
        {
            result = Ok((DataAnswer::WaitCopies(self.as_if_it_owned(&wait.chunks)), Bytes::new()));
        }
        if bug == Some(Bug::LockFreedTooEarly) {
            match (&request, &mut result) {
                (_, Ok((DataAnswer::CheckRegion(holds), _))) => *holds = true,
                (request, Ok(_)) => {
                    if let Some(unlock) = unlock(request) {
                        self.server.execute(cx, DataRequest::UnlockRegion(unlock), Bytes::new()).await?;
                    }
                }
                _ => {}
            }
        }
        if let (DataRequest::WriteCopies(m), Some(Bug::PastOwnerWrites), Err(error)) = (&request, bug, &result)
            && error.owner().is_some()
            && let Some(answer) = self.as_of_its_last_term(m.write.chunk)
        {
            result = Ok((DataAnswer::WriteCopies(answer), Bytes::new()));
        }
        if let Some(change) = change {
            change.answered(&self.cluster, self.server.id(), &result);
        }
        self.cluster.words.of_client(&self.cluster, self.server.id(), session, &request, &brought, &result);
        if let (DataRequest::ScrubChunk(scrub), Ok((DataAnswer::ScrubChunk(answer), _))) = (&request, &result)
            && answer.bad.is_empty()
        {
            self.cluster.moves.read_back(self.server.id(), scrub.chunk);
        }
        if bug == Some(Bug::WholeTooEarly)
            && let Ok((DataAnswer::GetCopies(copies), _)) = &mut result
        {
            copies.iter_mut().for_each(|copy| copy.stable.chain_epoch = copy.epoch);
        }
        if bug == Some(Bug::VersionHidden)
            && let Ok((DataAnswer::StatChunk(status), _)) = &mut result
        {
            status.version = Version::default();
        }
        if bug == Some(Bug::LostReplay)
            && let Ok((DataAnswer::WriteChunk(answer), _)) = &mut result
        {
            answer.stable = answer.sequence;
        }
        self.saw(&request, before, &result);
        let name = format_args!("data {}", self.server.id()).to_string();
        self.cluster.around.history.detail(&name, || {
            let (asked, answer) = (words::shown(&request, &brought), result.as_ref().map(|(answer, _)| answer));
            format!("{:?} {asked} -> {answer:?}", cx.token.trunc_gen)
        });
        result
    }
}
