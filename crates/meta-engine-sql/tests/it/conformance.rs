//! The examination every engine takes, on a real server.

use crate::server::{database, open, shared};
use braid_meta_engine::conformance;
use braid_meta_engine_sql::{Fencing, SqlOptions};

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
