//! The metadata's machine is lost: its rows are fetched from the copies, and the machine that was lost is left behind.

use super::start::ask_all;
use super::{encode_set, info};
use braid_api::data::FetchedRows;
use braid_api::data::{FetchRows, RecordSet};
use braid_api::{AnyPeers, Code, Context, DataNode, DataPeers, Error};
use braid_copyset::{Candidate, Limits, Source, Verdict, quorum};
use braid_env::Env;
use braid_meta_engine::{Copied, EngineError};
use braid_types::{CopySet as Set, MetaPosition, MetaTerm, ServerId, Voter};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
/// Before the first piece is given the whole copy is read and verified: ten gigabytes in half a minute, and a slow disk.
const VERIFY_PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(200);

/// What was recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub from: ServerId,
    pub at: MetaPosition,
    pub term: MetaTerm,
    pub bytes: u64,
    /// It is known to be all that was acknowledged.
    pub is_complete: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{have} data servers have answered, {need} of {all} are needed; these have not: {missing}")]
    TooFew { have: usize, need: usize, all: usize, missing: String },
    #[error("none of the data servers that answer ever had a copy of the metadata: give the address of others")]
    Nothing,
    #[error(
        "no copy that answers is known to have everything ({best}), and these members have not answered: {missing}. Start them, \
         or, if they are lost for good, say --accept-loss"
    )]
    Unsure { best: String, missing: String },
    #[error("data server {from} stopped answering while its copy was fetched: {error}")]
    Fetch { from: ServerId, error: braid_api::Error },
    #[error("another metadata server has begun to lead meanwhile: is the old one running?")]
    Overtaken,
}

fn names(set: &Set, ids: &[ServerId]) -> String {
    let one = |id: &ServerId| match set.voter(*id) {
        Some(voter) => format!("data server {id} on {} ({})", voter.host, voter.addresses.join(" ")),
        None => format!("data server {id}"),
    };
    ids.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Fetches the rows into the engine of `make`, which has a new and empty store. `known` are data servers to begin with; what
/// they have recorded names the others. Tries for `patience` to reach enough of them.
pub async fn recover(
    env: &Env,
    make: impl FnOnce() -> Result<Arc<dyn Copied>, EngineError>,
    peers: &AnyPeers,
    known: Vec<Voter>,
    accept_loss: bool,
    patience: Duration,
    limits: Limits,
) -> Result<Recovered, RecoverError> {
    let mut voters: BTreeMap<ServerId, Voter> = known.into_iter().map(|voter| (voter.id, voter)).collect();
    let mut candidate = Candidate::recover(env.random.u64(), accept_loss);
    let end = env.clock.now() + patience;
    let mut first = true;
    // Whose copy has rotted, and what its server says of it.
    let mut damaged: BTreeMap<ServerId, Error> = BTreeMap::new();
    let (term, set, from) = loop {
        let all: Vec<Voter> = voters.values().cloned().collect();
        // Whether there is anything to recover is asked before anybody promises anything.
        let asked = (!first).then(|| candidate.term());
        for (id, mut report) in ask_all(env, peers, &all, asked).await {
            report.copy = report.copy.filter(|_| !damaged.contains_key(&id));
            candidate.answered(id, report);
        }
        let newest = candidate.set();
        for voter in newest.voters.iter().cloned() {
            voters.entry(voter.id).or_insert(voter);
        }
        let is_over = env.clock.now() >= end && !first;
        first = false;
        match candidate.verdict() {
            Verdict::Take { term, set, from } => {
                match fetch_piece(peers, &source_of(&voters, from.server), term, 0).await {
                    Err(error) if error.code == Code::DiskError => {
                        tracing::error!(%error, "this copy cannot be used; is there another?");
                        damaged.insert(from.server, error);
                    }
                    // What else is wrong shows when it is fetched.
                    _ => break (term, set, from),
                }
            }
            Verdict::Nothing => return Err(RecoverError::Nothing),
            Verdict::Wait { have, need, missing } if is_over => {
                let missing: Vec<ServerId> = missing.iter().map(|voter| voter.id).collect();
                let (all, missing) = (newest.voters.len(), names(&newest, &missing));
                return Err(RecoverError::TooFew { have, need, all, missing });
            }
            _ if is_over && !damaged.is_empty() => {
                let Some((from, error)) = damaged.pop_first() else { continue };
                return Err(RecoverError::Fetch { from, error });
            }
            Verdict::Unsure { best, missing } if is_over => {
                let best = best.map_or("none has one".to_owned(), |best| {
                    format!("the best is {} at data server {}", best.at, best.server)
                });
                return Err(RecoverError::Unsure { best, missing: names(&newest, &missing) });
            }
            _ => env.sleep(PAUSE).await,
        }
    };
    // From here on nobody who promised follows the old server; what it was granted before must be over.
    let over = env.clock.now() + limits.waited_out();
    let Source { server, at, is_complete } = from;
    tracing::info!(%term, %at, server = server.0, "the metadata is fetched");
    let engine = make()?;
    let source = source_of(&voters, server);
    let (at, bytes) = fetch(env, &engine, peers, &source, term).await?;
    let left = over.since(env.clock.now());
    env.sleep(left).await;

    // The set of this term: whoever was behind or ahead gets a copy anew.
    let set = Set { term, number: 1, members: vec![server], voters: set.voters };
    let (stored, storing) = (encode_set(&set), engine.clone());
    env.blocking(move || storing.store_set(&stored)).await?;
    record(env, peers, &voters, &set, end.max(env.clock.now() + patience)).await?;
    Ok(Recovered { from: server, at, term, bytes, is_complete })
}

fn source_of(voters: &BTreeMap<ServerId, Voter>, server: ServerId) -> Voter {
    voters.get(&server).cloned().unwrap_or_else(|| Voter { id: server, host: String::new(), addresses: vec![] })
}

async fn fetch_piece(
    peers: &AnyPeers,
    source: &Voter,
    term: MetaTerm,
    after: u64,
) -> Result<(FetchedRows, Bytes), Error> {
    let deadline = if after == 0 { VERIFY_PATIENCE } else { PATIENCE };
    let cx = Context { deadline, ..Context::default() };
    peers.node(&info(source)).call(cx, FetchRows { term, after }, Bytes::new()).await
}

async fn fetch(
    env: &Env,
    engine: &Arc<dyn Copied>,
    peers: &AnyPeers,
    source: &Voter,
    term: MetaTerm,
) -> Result<(MetaPosition, u64), RecoverError> {
    let (mut after, mut bytes) = (0, 0);
    loop {
        let fetched = fetch_piece(peers, source, term, after).await;
        let (answer, rows) = fetched.map_err(|error| RecoverError::Fetch { from: source.id, error })?;
        bytes += rows.len() as u64;
        let (at, storing) = (answer.at, engine.clone());
        env.blocking(move || storing.load(&rows, at)).await?;
        match answer.next {
            Some(next) => after = next,
            None => return Ok((at, bytes)),
        }
    }
}

/// A majority records the set: from then on the old disk is of the past.
async fn record(
    env: &Env,
    peers: &AnyPeers,
    voters: &BTreeMap<ServerId, Voter>,
    set: &Set,
    end: braid_env::Monotonic,
) -> Result<(), RecoverError> {
    let need = quorum(set.voters.len(), false);
    loop {
        let (mut have, mut missing, mut overtaken) = (0, Vec::new(), false);
        for voter in &set.voters {
            let cx = Context { deadline: PATIENCE / 5, ..Context::default() };
            let node = peers.node(&info(voters.get(&voter.id).unwrap_or(voter)));
            match node.call(cx, RecordSet { set: set.clone() }, Bytes::new()).await {
                Ok((report, _)) if report.set.as_ref().is_some_and(|told| told.order() == set.order()) => have += 1,
                Ok((report, _)) if report.promised > set.term => overtaken = true,
                _ => missing.push(voter.id),
            }
        }
        if have >= need {
            return Ok(());
        }
        if overtaken {
            return Err(RecoverError::Overtaken);
        }
        if env.clock.now() >= end {
            let (all, missing) = (set.voters.len(), names(set, &missing));
            return Err(RecoverError::TooFew { have, need, all, missing });
        }
        env.sleep(PAUSE).await;
    }
}
