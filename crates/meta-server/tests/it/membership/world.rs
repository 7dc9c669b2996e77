//! Processes that serve at once, each with a runtime of its own, so that one can be killed.

use super::rows::Rows;
use braid_api::erased::{Meta, MetaPeers};
use braid_api::meta::{Mark, MetaAnswer, MetaRequest};
use braid_api::{Code, Context, Error, Result};
use braid_env::{BoxFuture, Env};
use braid_members::Roster;
use braid_meta_engine::{AnyEngine, Engine, Key, MemStore, Operation, Table, Tx};
use braid_meta_namespace::OpError;
use braid_meta_server::{Holding, Lead, LeadLimits, MemberLimits, Membership};
use braid_types::{MemberId, MembershipEpoch, SLOT_COUNT, Slot, SlotSet};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A third of what they are.
pub fn limits() -> MemberLimits {
    let first = MemberLimits::default();
    MemberLimits { lease: first.lease / 3, gather: first.gather / 3, ..first }
}

pub fn lead_limits() -> LeadLimits {
    let first = LeadLimits::default();
    LeadLimits { lease_min: first.lease_min / 3, ..first }
}

/// Rounds of members and of the election, with what a busy machine takes.
pub fn rounds(count: u32) -> Duration {
    limits().round() * count + Duration::from_millis(500)
}

/// Who is where; who is not there does not answer.
#[derive(Clone, Default)]
pub struct Net(Arc<Mutex<BTreeMap<String, Arc<Membership>>>>);

impl MetaPeers for Net {
    fn meta(&self, addresses: &[String]) -> Arc<dyn Meta> {
        Arc::new(Way { net: self.clone(), addresses: addresses.to_vec() })
    }
}

struct Way {
    net: Net,
    addresses: Vec<String>,
}

impl Meta for Way {
    fn execute(&self, _: Context, request: MetaRequest) -> BoxFuture<'_, Result<(MetaAnswer, Mark)>> {
        Box::pin(async move {
            let there = self.addresses.iter().find_map(|address| self.net.0.lock().get(address).cloned());
            match (there, request) {
                (Some(there), MetaRequest::AskToServe(m)) => {
                    Ok((MetaAnswer::AskToServe(there.asks(m.question)), Mark::default()))
                }
                _ => Err(Error::new(Code::Unreachable, "a metadata server", "unplugged")),
            }
        })
    }
}

/// What a metadata server would do, as far as it is to be seen.
pub struct Server {
    engine: AnyEngine,
    /// It cannot follow: something is under way.
    pub is_busy: AtomicBool,
    held: Mutex<SlotSet>,
    follows: Mutex<Option<MembershipEpoch>>,
}

impl Holding for Server {
    fn follows<'a>(&'a self, roster: &'a Roster, fence: u64, stays: &'a SlotSet) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.is_busy.load(SeqCst) {
                return Err(Error::bare(Code::Busy));
            }
            self.engine.join_at(fence).await.map_err(OpError::from)?;
            let (mut held, mut follows) = (self.held.lock(), self.follows.lock());
            assert!(stays.is_within(&held), "what stays has been here before");
            assert!(follows.is_none_or(|epoch| epoch < roster.epoch), "a roster is followed once");
            let is_next = follows.is_none_or(|epoch| epoch.next() == roster.epoch);
            assert!(is_next || stays.is_empty(), "somebody may have held it in between");
            (*held, *follows) = (stays.clone(), Some(roster.epoch));
            Ok(())
        })
    }

    fn gains(&self, epoch: MembershipEpoch, slots: SlotSet) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            assert_eq!(*self.follows.lock(), Some(epoch), "it is told who serves before it is told for what");
            let mut held = self.held.lock();
            assert!(held.both(&slots).is_empty(), "nothing is gained twice");
            held.extend(&slots);
            Ok(())
        })
    }
}

pub struct Process {
    runtime: Option<Runtime>,
    pub membership: Arc<Membership>,
    pub server: Arc<Server>,
    /// What the server changes its rows through.
    pub engine: AnyEngine,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub struct World {
    store: MemStore,
    net: Net,
    numbers: u64,
    pub there: Vec<Process>,
}

impl World {
    pub fn new() -> World {
        World { store: MemStore::new(), net: Net::default(), numbers: 0, there: Vec::new() }
    }

    /// One more process; which. It waits until it leads, if it is to.
    pub fn start(&mut self, leads: bool) -> usize {
        self.numbers += 1;
        let (me, address) = (MemberId(self.numbers), format!("tcp:host-{}:7400", self.numbers));
        let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = workers.expect("a runtime");
        let (store, way, at) = (self.store.clone(), Arc::new(self.net.clone()), vec![address.clone()]);
        let begun = runtime.block_on(runtime.spawn(async move {
            let rows = AnyEngine::new(Arc::new(Rows::open(&store).await));
            let env = Env::os();
            let lead = match leads {
                true => Some(Lead::win(env.clone(), rows.clone(), lead_limits()).await.expect("it leads")),
                false => None,
            };
            let membership = Membership::new(env.clone(), rows, me, at, way, limits());
            if let Some(lead) = lead {
                membership.leads(lead);
            }
            let engine = AnyEngine::new(Arc::new(Rows::open(&store).await));
            let (is_busy, held, follows) = (AtomicBool::new(false), Mutex::new(SlotSet::none()), Mutex::default());
            let server = Arc::new(Server { engine: engine.clone(), is_busy, held, follows });
            env.spawn("member", membership.clone().run(server.clone()));
            (membership, server, engine)
        }));
        let (membership, server, engine) = begun.expect("it begins");
        self.net.0.lock().insert(address.clone(), membership.clone());
        self.there.push(Process { runtime: Some(runtime), membership, server, engine, address });
        self.there.len() - 1
    }

    /// Nothing of it goes on, and nobody reaches it. What it would still say of itself is to be seen.
    pub fn kill(&mut self, which: usize) -> Process {
        let mut process = self.there.remove(which);
        self.net.0.lock().remove(&process.address);
        if let Some(runtime) = process.runtime.take() {
            runtime.shutdown_background();
        }
        process
    }

    pub fn stop(&mut self, which: usize) {
        let mut process = self.there.remove(which);
        let runtime = process.runtime.take().expect("it runs");
        runtime.block_on(process.membership.stop());
        self.net.0.lock().remove(&process.address);
        runtime.shutdown_background();
    }

    /// What it may answer for now.
    pub fn answers(&self, which: usize) -> SlotSet {
        answers_of(&self.there[which].membership)
    }

    /// Whether all slots are answered for, each by one, and everybody knows the same roster.
    fn is_well(&self) -> bool {
        let rosters: Vec<_> = self.there.iter().map(|process| process.membership.roster()).collect();
        let all: Vec<_> = (0..self.there.len()).map(|which| self.answers(which)).collect();
        let count: usize = all.iter().map(SlotSet::len).sum();
        let together = all.iter().fold(SlotSet::none(), |together, own| together.or(own));
        let is_whole = together == SlotSet::all() && count == together.len();
        let of = rosters.first().cloned().flatten();
        is_whole
            && rosters.iter().all(|roster| *roster == of)
            && of.is_some_and(|of| of.members.len() == self.there.len())
            && all.iter().all(|own| !own.is_empty())
    }

    /// Two never answer for one slot.
    pub fn check(&self) {
        for (which, one) in self.there.iter().enumerate() {
            let before = answers_of(&one.membership);
            for other in &self.there[which + 1..] {
                let twice = answers_of(&other.membership).both(&before);
                // Nothing that was answered for then and is now was somebody else's in between.
                let twice = twice.both(&answers_of(&one.membership));
                assert!(twice.is_empty(), "{twice:?} are answered for by two");
            }
        }
    }

    /// How long it takes until all is well.
    pub fn until_well(&self, at_most: Duration) -> Duration {
        self.until("all is well", at_most, |world| world.is_well())
    }

    pub fn until(&self, what: &str, at_most: Duration, is_so: impl Fn(&World) -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so(self) {
            self.check();
            let rosters = || self.there.iter().map(|process| process.membership.roster()).collect::<Vec<_>>();
            assert!(begun.elapsed() < at_most, "not after {at_most:?}: {what}\n{:#?}", rosters());
            std::thread::sleep(Duration::from_millis(2));
        }
        begun.elapsed()
    }

    /// A change as a metadata server makes it.
    pub fn changes(&self, process: &Process) -> Result<()> {
        let runtime = self.there.iter().find_map(|there| there.runtime.as_ref()).expect("somebody runs");
        let engine = process.engine.clone();
        runtime.block_on(async move { engine.transact(0, Put).await.map_err(|OpError(error)| error) })
    }
}

struct Put;

impl Operation for Put {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<(), OpError> {
        tx.put(Key::new(Table::Inodes, 1, b"changed"), vec![1]);
        Ok(())
    }
}

pub fn answers_of(membership: &Membership) -> SlotSet {
    (0..SLOT_COUNT).map(Slot).filter(|slot| membership.may_answer(*slot)).collect()
}
