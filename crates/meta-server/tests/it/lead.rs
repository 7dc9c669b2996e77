//! Who leads, over a store that takes its time.

use crate::common::{FakeNode, Peers, World, beat, fast_config, registers};
use braid_api::{AnyPeers, Context, Namespace};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, EngineError, EngineStats, MemEngine, MemStore, Operation, Snapshot, Table};
use braid_meta_server::{Backing, Lead, LeadLimits, MetaServer};
use braid_types::{ClusterId, Policy, ServerId};
use std::sync::Arc;
use std::time::Duration;

/// It takes so long to fence others.
struct Slow(Arc<MemEngine>, Duration);

impl Engine for Slow {
    async fn transact<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.0.transact(partition, op).await
    }

    async fn read<O: Operation>(&self, partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.0.read(partition, op).await
    }

    async fn snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.0.snapshot(tables).await
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        tokio::time::sleep(self.1).await;
        self.0.fence_others().await
    }

    fn stats(&self) -> &EngineStats {
        self.0.stats()
    }

    fn name(&self) -> &'static str {
        "slow"
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_longer_than_a_lease_to_fence_the_others_leads_all_the_same() {
    let rows = Arc::new(MemEngine::new(MemStore::new()));
    let lease = Duration::from_secs(1);
    let limits = LeadLimits { lease_min: lease, lease_max: lease, ..LeadLimits::default() };
    let win = |engine: Slow| Lead::win(Env::os(), AnyEngine::new(Arc::new(engine)), limits.clone());
    let slow = tokio::spawn(win(Slow(rows.clone(), lease * 3)));
    tokio::time::sleep(lease / 4).await;
    let other = tokio::spawn(win(Slow(rows.clone(), Duration::ZERO)));
    let lead = slow.await.expect("it ends").expect("it leads");
    lead.may_answer().expect("its lease has been renewed all the while");
    assert!(!other.is_finished(), "two lead");
    other.abort();
}

/// Data servers take the end of a session from nobody who may have been succeeded, so they are told until when that is not so.
#[tokio::test]
async fn data_servers_hear_for_how_long_no_other_leads() {
    let alone = World::new().await;
    let registered = alone.call(registers(ServerId(0))).await.unwrap();
    let heard = alone.call(beat(registered.id)).await.unwrap();
    assert_eq!([registered.leads_for_ms, heard.leads_for_ms], [u32::MAX; 2], "no other can ever lead");

    let lease = Duration::from_secs(60);
    let limits = LeadLimits { lease_min: lease, lease_max: lease, ..LeadLimits::default() };
    let engine = AnyEngine::new(Arc::new(MemEngine::new(MemStore::new())));
    let lead = Lead::win(Env::os(), engine.clone(), limits).await.unwrap();
    let (backing, peers) = (Backing { lead: Some(lead), ..Backing::default() }, Peers(Arc::new(FakeNode::default())));
    let (config, cluster) = (fast_config(), ClusterId([7; 16]));
    let start =
        MetaServer::start_with(Env::os(), engine, AnyPeers::new(peers), config, cluster, Policy::PLAIN, backing);
    let server = start.await.unwrap();
    let registered = server.call(Context::default(), registers(ServerId(0))).await.unwrap();
    assert!((30_000..60_000).contains(&registered.leads_for_ms), "{}", registered.leads_for_ms);
    // Its lease goes on for a quarter of a minute before the next sign of life.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let heard = server.call(Context::default(), beat(registered.id)).await.unwrap();
    assert!(heard.leads_for_ms + 300 <= registered.leads_for_ms, "{}", heard.leads_for_ms);
}
