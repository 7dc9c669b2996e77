//! The client over real servers does what the model does.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_model::stream::Weights;
use braid_model::{Model, compare_stream};
use braid_types::Policy;
use std::time::{Duration, Instant};

/// `braid_model::compare` over a third of `seeds`, and as many more as there is time for.
async fn agree(policy: Policy, seeds: std::ops::Range<u64>, steps: usize, weights: Weights) {
    let (started, wanted) = (Instant::now(), (seeds.end - seeds.start) / 3);
    let (mut done, mut succeeded, mut steps_done) = (0, 0, 0);
    for seed in seeds {
        let world = World::new(Storage::Memory, policy).await;
        let client = world.client().await;
        let summary = compare_stream(&Model::default(), &*client, seed, weights, steps).await;
        let summary = summary.unwrap_or_else(|report| panic!("{report}"));
        (done, succeeded, steps_done) = (done + 1, succeeded + summary.succeeded, steps_done + summary.steps);
        client.shutdown().await.unwrap();
        if done >= wanted && started.elapsed() > Duration::from_secs(14) {
            break;
        }
    }
    println!("{done} seeds, {succeeded} of {steps_done} steps succeeded, {:?}", started.elapsed());
    assert!(succeeded * 3 > steps_done, "a stream that mostly fails proves nothing: {succeeded} of {steps_done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_what_the_model_does() {
    // Of the policy attribute the client knows what the model does not: what servers there are, and a file's own
    // policy.
    agree(Policy::PLAIN, 0..100, 400, Weights { policies: false, ..Weights::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_keeps_bytes_as_the_model_does() {
    let weights = Weights {
        names: 6,
        attributes: 10,
        handles: 12,
        data: 60,
        listings: 1,
        xattrs: 0,
        seals: 1,
        trees: 0,
        policies: false,
        locks: 1,
        syncs: 9,
    };
    agree(SMALL, 1000..1100, 500, weights).await;
}

/// Without open directories: of one that has gone it is nobody's business when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_removes_trees_as_the_model_does() {
    let weights = Weights { names: 40, data: 10, listings: 0, policies: false, trees: 3, ..Weights::default() };
    agree(Policy::PLAIN, 2000..2030, 300, weights).await;
}
