//! A cluster that has worked, and one at work, are clean.

use super::workload;
use super::world::World;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[tokio::test]
async fn random_operations_leave_a_clean_namespace() {
    for seed in 1..=4 {
        let w = World::new().await;
        workload::run(&w, seed, 3000).await;
        let report = w.finds(&[]).await;
        assert!(report.seen.names > 20 && report.seen.chunk_rows > 5, "{}", report.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cluster_at_work_is_clean() {
    let w = Arc::new(World::new().await);
    let (stop, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for worker in 0..2 {
        let (w, stop, steps) = (w.clone(), stop.clone(), steps.clone());
        workers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let seed = worker * 1_000_000 + steps.fetch_add(20, Ordering::Relaxed);
                workload::run(&w, seed, 20).await;
            }
        }));
    }
    let (mut checks, mut doubts) = (0, 0);
    // A busy machine may run checks and workers one after the other for a while: go on until they met, within a bound.
    while checks < 10 || steps.load(Ordering::Relaxed) < 5_000 || doubts == 0 && checks < 1_000 {
        doubts += w.finds(&[]).await.seen.doubts;
        checks += 1;
    }
    assert!(doubts > 0, "nothing happened between two pages: this test proves nothing");
    // Repairs must not touch what is at work either.
    let repaired = w.check(true).await;
    assert!(repaired.findings.is_empty(), "{}", repaired.text());
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    w.finds(&[]).await;
}
