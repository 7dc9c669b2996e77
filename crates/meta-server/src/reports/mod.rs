//! Block reports: what data servers have against what rows name (docs/design/0025-block-reports.md).
//!
//! A round asks every server for the hash of all it has, reads the rows page by page, and goes on asking where the two differ. What two rounds
//! in a row have seen is acted on: copies are restored by their chain, what no row names is deleted, what only one server had is
//! counted and named.

mod ask;
mod extra;
mod lost;
mod rows;

use crate::server::MetaServer;
use braid_api::Result;
use braid_api::admin::{MissingChunk, ReportsStatus};
use braid_api::meta::ServerState;
use braid_report::{Doubt, Doubts, Expected, Mixer, View, Wrong};
use braid_types::{ChainEpoch, ChunkId, ContainerId, ReportAsk, ReportPart, ServerId};
use parking_lot::Mutex;
use rows::Places;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The next round comes so soon while there is something to be seen a second time.
const AGAIN: Duration = Duration::from_secs(10);
/// Of the time, at most this part goes into rounds: reading all rows of a large cluster takes a while.
const SHARE: u32 = 20;
/// Containers whose ids are compared in one round, 256 chunks each; of more the rest comes with the next.
const CONTAINERS_AT_ONCE: usize = 4096;
/// Missing chunks that are named in the status.
const NAMED: usize = 16;

pub(crate) struct Reports {
    mixer: Mixer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    doubts: Doubts,
    counts: ReportsStatus,
    /// Found missing in two rounds, and still so.
    missing: BTreeMap<(ServerId, ChunkId), MissingChunk>,
    /// Copies for which an epoch was begun, and how often.
    restoring: BTreeMap<(ServerId, ChunkId), Restoring>,
    /// The last round saw something that the one before did not.
    is_news: bool,
}

#[derive(Clone, Copy)]
struct Restoring {
    container: ContainerId,
    tries: u32,
}

impl Reports {
    pub fn new(key: u64) -> Reports {
        Reports { mixer: Mixer { key }, state: Mutex::default() }
    }

    pub fn status(&self) -> ReportsStatus {
        let state = self.state.lock();
        let some_missing = state.missing.values().take(NAMED).cloned().collect();
        let (missing, restoring) = (state.missing.len() as u64, state.restoring.len() as u64);
        ReportsStatus { missing, restoring, some_missing, ..state.counts.clone() }
    }

    fn count(&self, count: impl FnOnce(&mut ReportsStatus)) {
        count(&mut self.state.lock().counts);
    }

    /// Extra chunks that the last round saw: the next looks whether any row names them, wherever that is.
    fn watched(&self) -> BTreeSet<ChunkId> {
        let state = self.state.lock();
        state.doubts.all().filter(|doubt| doubt.wrong == Wrong::Extra).map(|doubt| doubt.chunk).collect()
    }
}

impl MetaServer {
    pub(crate) fn keep_comparing(self: Arc<Self>) {
        let env = self.env.clone();
        let every = self.config.report_every;
        if every.is_zero() {
            return;
        }
        env.clone().spawn("block reports", async move {
            let (mut pause, mut is_second) = (every, false);
            while !self.stopping.load(Relaxed) {
                // Not all servers of a cluster that was started at once, and not all clusters of a machine, in the same moment.
                let jitter = self.env.random.below((pause.as_nanos() as u64 / 5).max(1));
                self.env.sleep(pause - pause / 10 + Duration::from_nanos(jitter)).await;
                if self.stopping.load(Relaxed) {
                    return;
                }
                let begun = self.env.clock.now();
                let done = self.compare_reports().await;
                if let Err(error) = &done {
                    tracing::warn!("block reports go on later: {error}");
                    self.reports.state.lock().doubts = Doubts::default();
                }
                // Where much is written each round sees something on its way: one more look, and then as ever.
                let (is_news, restores) = {
                    let mut state = self.reports.state.lock();
                    (std::mem::take(&mut state.is_news), !state.restoring.is_empty())
                };
                is_second = is_news && !is_second;
                pause = if is_second || restores { every.min(AGAIN) } else { every };
                pause = pause.max(self.env.clock.now().since(begun) * SHARE);
            }
        });
    }

    /// One round.
    pub(crate) async fn compare_reports(&self) -> Result<()> {
        // What rows of a backup do not know may be all that there is of it, and what they know may have been elsewhere since. What clients
        // keep of a predecessor's answers is no row yet.
        if self.restored.lock().is_some() || !self.recovery.is_open() {
            self.reports.state.lock().doubts = Doubts::default();
            return Ok(());
        }
        let mixer = self.reports.mixer;
        // First what is there, then what rows say: the order on which it rests that a chunk no row names is named by none for ever.
        let infos = self.servers.infos(self.env.clock.now());
        self.reports.state.lock().forget_all_but(&infos.iter().map(|info| info.id).collect());
        let mut said: BTreeMap<ServerId, ReportPart> = BTreeMap::new();
        for info in infos {
            if info.state != ServerState::Up {
                self.reports.state.lock().doubts.forget(info.id);
                continue;
            }
            match self.ask_report(info.id, ReportAsk::All).await {
                Ok(part) => drop(said.insert(info.id, part)),
                Err(error) => {
                    tracing::warn!(server = info.id.0, "no block report: {error}");
                    self.reports.state.lock().doubts.forget(info.id);
                }
            }
        }
        let places = self.read_places().await?;
        let view = self.read_view(View::new(mixer, BTreeSet::new(), BTreeSet::new())).await?;
        let mut compared: BTreeMap<ServerId, Vec<(ContainerId, u32)>> = BTreeMap::new();
        for (server, part) in said {
            let expected = Expected::of(&view, mixer, places.of(server));
            match self.differing(server, &expected, &part).await {
                Ok(differ) => drop(compared.insert(server, differ)),
                Err(error) => {
                    tracing::info!(server = server.0, "no block report: {error}");
                    self.reports.state.lock().doubts.forget(server);
                }
            }
        }
        let wanted = compared.values().flatten().map(|(id, _)| *id).collect::<BTreeSet<_>>();
        let wanted: BTreeSet<ContainerId> = wanted.into_iter().take(CONTAINERS_AT_ONCE).collect();
        // The rows once more, with the ids of these.
        let view = match wanted.is_empty() {
            true => view,
            false => self.read_view(View::new(mixer, wanted.clone(), self.reports.watched())).await?,
        };
        let mut confirmed: Vec<(ServerId, Doubt)> = Vec::new();
        for (server, differ) in compared {
            let is_equal = differ.is_empty();
            self.reports.count(|counts| {
                counts.compared += 1;
                counts.differing += u64::from(!is_equal);
            });
            let asked: Vec<(ContainerId, u32)> = differ.into_iter().filter(|(id, _)| wanted.contains(id)).collect();
            match self.doubts_of(server, &asked, &view, &places).await {
                Ok(now) => confirmed.extend(self.saw(server, now).await.into_iter().map(|doubt| (server, doubt))),
                Err(error) => {
                    tracing::info!(server = server.0, "no block report: {error}");
                    self.reports.state.lock().doubts.forget(server);
                }
            }
        }
        if confirmed.is_empty() {
            return Ok(());
        }
        // Who has lost the lead knows old rows.
        self.may_answer().await?;
        self.remove_extra(&confirmed, &view, &places).await;
        self.see_to_lost(&confirmed, &view, &places).await;
        Ok(())
    }

    /// What this round has seen at the server; answers what was so before, too.
    async fn saw(&self, server: ServerId, now: BTreeSet<Doubt>) -> Vec<Doubt> {
        let lost = now.iter().filter(|doubt| doubt.wrong == Wrong::Lost).map(|doubt| doubt.chunk);
        let lost: BTreeSet<ChunkId> = lost.collect();
        let back: Vec<(ChunkId, Restoring)> = {
            let mut state = self.reports.state.lock();
            // While a chain is changing nothing can be seen of it.
            let changes = |id| self.chains.row(id).is_some() && self.acting_chain(id).is_none();
            state.missing.retain(|(of, chunk), it| *of != server || lost.contains(chunk) || changes(it.container));
            let of_it = state.restoring.iter().filter(|((of, chunk), _)| *of == server && !lost.contains(chunk));
            of_it.map(|((_, chunk), it)| (*chunk, *it)).collect()
        };
        for (chunk, restoring) in back {
            // It may have been freed instead.
            let Ok(Some(is_back)) = self.is_back(server, restoring.container, chunk).await else { continue };
            let mut state = self.reports.state.lock();
            state.restoring.remove(&(server, chunk));
            state.counts.restored += u64::from(is_back);
            if is_back {
                tracing::info!(server = server.0, chunk = chunk.0, "a lost copy is whole again");
            }
        }
        let mut state = self.reports.state.lock();
        let count = now.len();
        let confirmed = state.doubts.saw(server, now);
        state.is_news |= confirmed.len() < count;
        confirmed
    }
}

impl State {
    /// Of servers that are no more nothing is missing.
    fn forget_all_but(&mut self, servers: &BTreeSet<ServerId>) {
        self.missing.retain(|(server, _), _| servers.contains(server));
        self.restoring.retain(|(server, _), _| servers.contains(server));
    }
}

/// The epoch under which a doubt counts; none while the chain is changing, for then everything is on its way.
fn at_rest(server: &MetaServer, places: &Places, id: ContainerId) -> Option<ChainEpoch> {
    match places.get(id) {
        None => Some(ChainEpoch(0)),
        Some(place) if place.chain.len() == 1 => Some(place.epoch),
        Some(_) => server.acting_chain(id).map(|(epoch, _)| epoch),
    }
}
