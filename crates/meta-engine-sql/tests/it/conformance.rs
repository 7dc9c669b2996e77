//! The examination every engine takes, on a real server.

use crate::server::{database, open, shared};
use braid_meta_engine::conformance;
use braid_meta_engine_sql::{Fencing, PlantedBug, SqlOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    conformance::test_all(|| async { open(shared().options(&database())).await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_with_fences() {
    conformance::test_all(|| async {
        open(SqlOptions { fencing: Fencing::Always, ..shared().options(&database()) }).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_what_is_committed() {
    conformance::test_durable(database, |database| open(shared().options(database))).await;
}

/// As on a database whose statements cannot share a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_without_snapshots() {
    conformance::test_all(|| async {
        open(SqlOptions { without_snapshots: true, ..shared().options(&database()) }).await
    })
    .await;
}

/// The examination is worth something: an engine with one of these mistakes does not pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_mistakes_do_not_pass() {
    for bug in [PlantedBug::NoLocks, PlantedBug::AbsenceForgotten] {
        let examined = tokio::spawn(conformance::test_all(move || async move {
            open(SqlOptions { planted: Some(bug), ..shared().options(&database()) }).await
        }));
        assert!(examined.await.is_err_and(|error| error.is_panic()), "{bug:?} was not found");
    }
}
