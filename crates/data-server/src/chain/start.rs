//! How the part of a data server in chains begins: with what is on its disk, in no chain, until the leader is heard.

use super::copy::Copy;
use super::early::Early;
use super::{ChainLinks, Chains, State, blocks};
use crate::late::Late;
use crate::once::Writes;
use crate::regions::Regions;
use braid_api::Code;
use braid_chain::{Behind, BlockSet, ChunkRecord, Event, Found, Limits, RecordError};
use braid_data_store::{ChunkStore, FoundCopy};
use braid_env::{Env, TaskHandle};
use braid_types::ServerId;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Between two looks at what is to be done by the clock; the shortest time of the machine is 200 ms.
const TICK: Duration = Duration::from_millis(50);
/// What is behind is looked for in every chunk: once a second is often enough for what is told in seconds.
const TICKS_A_LOOK: u64 = 20;

impl Chains {
    pub fn new(
        env: Env,
        store: Arc<dyn ChunkStore>,
        (id, incarnation): (ServerId, u64),
        limits: Limits,
        (once, late, regions): (Arc<Writes>, Late, Arc<Regions>),
    ) -> Arc<Self> {
        let (mut copies, mut halted) = (BTreeMap::new(), None);
        let mut found = Vec::new();
        for here in store.copies() {
            let record = match here.record.as_deref().map(ChunkRecord::decode) {
                Some(Ok(record)) => record,
                None => ChunkRecord::default(),
                Some(Err(error @ RecordError::Newer(_))) => {
                    halted = Some(format!("chunk {}: {error} ({})", here.chunk, Code::Newer.text()));
                    ChunkRecord::default()
                }
                // As good as a copy that was lost: it claims nothing.
                Some(Err(error)) => {
                    tracing::error!("data server {id}, chunk {}: {error}", here.chunk);
                    ChunkRecord::default()
                }
            };
            let torn: BlockSet = here.bad.iter().flat_map(|block| block + 1..block + 2).collect();
            let copy = Copy { container: here.container, exists: true, torn: torn.clone(), ..Copy::default() };
            copies.insert(here.chunk, copy);
            let suspect = suspect(&here);
            found.push(Found { container: here.container, chunk: here.chunk, record, suspect, bad: torn });
        }
        let machine = braid_chain::DataServer::new(id, incarnation, limits.clone(), found);
        let (ops, epochs, gone) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let early = Early::default();
        let state = Mutex::new(State {
            machine,
            behind: Behind::default(),
            copies,
            ops,
            next_op: 0,
            epochs,
            gone,
            early,
            moving: BTreeMap::new(),
            halted,
        });
        Arc::new(Chains {
            env,
            store,
            id,
            incarnation,
            limits,
            state,
            links: RwLock::default(),
            mended: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            agreed: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            once,
            late,
            regions,
            local: OnceLock::new(),
        })
    }

    /// The metadata server has taken this process in: a lease can be had now, and not only when the next is due.
    pub fn registered(self: &Arc<Self>) {
        self.on(Event::Registered, None);
    }

    /// So many bytes a second may be moved to here.
    pub fn move_rate(self: &Arc<Self>, bytes_per_s: u64) {
        self.on(Event::MoveRate(bytes_per_s), None);
    }

    /// Takes part from now on, until the server is dropped or the task is ended.
    pub fn join(self: &Arc<Self>, links: Arc<dyn ChainLinks>) -> TaskHandle {
        *self.links.write() = Some(links);
        // What was said before had no way to the leader.
        self.registered();
        let (env, this) = (self.env.clone(), Arc::downgrade(self));
        self.env.spawn("chains", async move {
            for tick in 0u64.. {
                let Some(chains) = this.upgrade() else { break };
                chains.on(Event::Tick, None);
                if tick % TICKS_A_LOOK == 0 {
                    chains.behind();
                }
                drop(chains);
                env.sleep(TICK).await;
            }
        })
    }
}

/// The head is always among them: a header that was written is not logged.
fn suspect(here: &FoundCopy) -> BlockSet {
    let mut suspect = blocks::head();
    here.suspect.iter().for_each(|run| suspect.union(&blocks::of_data(run.clone())));
    suspect
}
