//! The examination every engine takes, on real directories.

use braid_meta_engine::conformance;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::path::Path;
use tempfile::TempDir;

fn open(dir: &Path) -> EmbeddedEngine {
    EmbeddedEngine::open(dir, EmbeddedOptions::default()).expect("the directory opens")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    let root = TempDir::new().expect("a directory");
    let number = std::sync::atomic::AtomicU32::new(0);
    conformance::test_all(|| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(open(&root.path().join(number.to_string())))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_what_is_committed() {
    let place = || TempDir::new().expect("a directory");
    conformance::test_durable(place, |dir| std::future::ready(open(dir.path()))).await;
}
