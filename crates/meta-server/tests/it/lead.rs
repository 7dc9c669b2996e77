//! Who leads, over a store that takes its time.

use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, EngineError, EngineStats, MemEngine, MemStore, Operation, Snapshot, Table};
use braid_meta_server::{Lead, LeadLimits};
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
