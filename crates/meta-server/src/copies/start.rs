//! A metadata server begins: it gets a term, or is told that another one leads.

use super::link::Link;
use super::{CopySet, decode_set, encode_set, info};
use braid_api::data::{KeeperReport, PromiseTerm};
use braid_api::meta::RegisterServer;
use braid_api::{AnyPeers, Context, DataNode, DataPeers};
use braid_copyset::{Candidate, Leader, Limits, OwnDisk, Verdict};
use braid_env::Env;
use braid_meta_engine::{Copied, EngineError, Outlet};
use braid_types::{MetaTerm, ServerId, Voter};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is asked of one data server when terms are promised.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// Rounds between two words on what is waited for.
const ROUNDS_SILENT: u32 = 25;

#[derive(Clone, Debug)]
pub struct CopyConfig {
    /// How many data servers are to have a copy.
    pub wanted: usize,
    /// Name of this machine: a copy here is the last choice.
    pub host: String,
    pub limits: Limits,
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Stored(String),
    #[error(
        "the metadata here is of the past: it was recovered on another machine, which leads with term {by} (this one was at \
         term {own}). Start the metadata server there; this directory is not needed any more"
    )]
    Fenced { by: MetaTerm, own: MetaTerm },
}

/// What data servers say of where they are before the metadata server can register anybody.
#[derive(Debug, Default)]
pub struct Registrations(Mutex<BTreeMap<ServerId, Voter>>);

impl Registrations {
    pub fn note(&self, m: &RegisterServer) {
        if m.id != ServerId(0) {
            let voter = Voter { id: m.id, host: m.host.clone(), addresses: m.addresses.clone() };
            self.0.lock().insert(m.id, voter);
        }
    }

    pub fn of(&self, voter: &Voter) -> Voter {
        self.0.lock().get(&voter.id).cloned().unwrap_or_else(|| voter.clone())
    }
}

/// Asks all of these at once.
pub async fn ask_all(
    env: &Env,
    peers: &AnyPeers,
    voters: &[Voter],
    term: Option<MetaTerm>,
) -> Vec<(ServerId, KeeperReport)> {
    let (send, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for voter in voters {
        let (node, send, id) = (peers.node(&info(voter)), send.clone(), voter.id);
        env.spawn("metadata copies: a term", async move {
            let cx = Context { deadline: PATIENCE, ..Context::default() };
            if let Ok((report, _)) = node.call(cx, PromiseTerm { term }, Bytes::new()).await {
                let _ = send.send((id, report));
            }
        });
    }
    drop(send);
    let mut all = Vec::new();
    while let Some(answer) = answers.recv().await {
        all.push(answer);
    }
    all
}

impl CopySet {
    /// Waits until enough data servers have promised to follow; then the engine's groups go to copies, and after that this
    /// returns. `words` and `content` are ways of their own: leases are never behind rows.
    pub async fn start(
        env: Env,
        engine: Arc<dyn Copied>,
        words: AnyPeers,
        content: AnyPeers,
        config: CopyConfig,
        registrations: &Registrations,
    ) -> Result<Arc<CopySet>, CopyError> {
        let stored = engine.stored_set()?.map(|bytes| decode_set(&bytes)).transpose().map_err(CopyError::Stored)?;
        let own = OwnDisk { set: stored.unwrap_or_default(), at: engine.position()? };
        let before = own.set.term;
        let mut candidate = Candidate::start(own, env.random.u64());
        let mut rounds = 0_u32;
        let (term, set, at) = loop {
            match candidate.verdict() {
                Verdict::Fenced { by } => return Err(CopyError::Fenced { by, own: before }),
                Verdict::Lead { term, set, at } => break (term, set, at),
                Verdict::Wait { have, need, missing } => {
                    if rounds % ROUNDS_SILENT == 5 {
                        let missing: Vec<String> = missing.iter().map(|v| format!("{} on {}", v.id, v.host)).collect();
                        let missing = missing.join(", ");
                        tracing::warn!(
                            "{have} of {need} data servers needed to lead have answered; missing: {missing}"
                        );
                    }
                    if rounds > 0 {
                        env.sleep(PAUSE).await;
                    }
                    let voters: Vec<Voter> = missing.iter().map(|voter| registrations.of(voter)).collect();
                    // The first round disturbs nobody.
                    let term = (rounds > 0).then(|| candidate.term());
                    for (id, report) in ask_all(&env, &words, &voters, term).await {
                        candidate.answered(id, report);
                    }
                    rounds += 1;
                }
                // Of a recovery.
                Verdict::Take { .. } | Verdict::Unsure { .. } | Verdict::Nothing => env.sleep(PAUSE).await,
            }
        };
        tracing::info!(%term, %at, members = set.members.len(), "leads the copies of the metadata");
        let now = env.clock.now().0;
        let leader = Leader::new(term, set, at, config.wanted, config.host.clone(), config.limits, now);
        let first = encode_set(leader.set());
        let storing = engine.clone();
        env.blocking(move || storing.store_set(&first)).await?;
        let outlet = Arc::new(Outlet::new(term, at.number));
        engine.copy_to(outlet.clone());
        let known: Vec<Voter> = leader.peers().map(|voter| registrations.of(voter)).collect();
        let linking = engine.clone();
        let spawn = Box::new(move |set: &Arc<CopySet>, id| {
            let (set, engine, words, content) = (set.clone(), linking.clone(), words.clone(), content.clone());
            Link { set, engine, words, content, id }.spawn();
        });
        let copies = CopySet::new(env.clone(), &config, leader, outlet, spawn);
        known.into_iter().for_each(|voter| copies.learn(voter));
        let (pump, watch) = (copies.clone(), copies.clone());
        env.spawn("metadata copies: pump", pump.pump());
        env.spawn("metadata copies: set", watch.watch(engine));
        Ok(copies)
    }
}
