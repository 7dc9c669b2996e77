//! A data server's door: as the metadata server's (`meta_door`).

use super::words;
use crate::bug::Bug;
use crate::check::instant::Change;
use crate::check::unlinked;
use crate::cluster::Cluster;
use braid_api::data::{
    CopiesAnswer, DataAnswer, DataNode, DataRequest, DeleteChunks, Fenced, ScrubAnswer, UnlockRegion,
};
use braid_api::{Code, Context, Result};
use braid_data_server::DataServer;
use braid_env::Env;
use braid_types::{ChainEpoch, ChunkId, OwnerTerm, ReportAsk, TruncGen, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
            // Nobody waits for the answer; that it would have been given is as bad.
            let change = Change::asked(&cluster, &request, payload.len()).map(Change::comes_late);
            let done = server.execute(cx, request, payload).await;
            if let Some(change) = change {
                change.answered(&cluster, server.id(), &done);
            }
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
