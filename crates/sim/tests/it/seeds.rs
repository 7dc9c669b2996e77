//! Hundreds of short seeds of every scenario: none may fail, and together they must get everywhere.
#![allow(clippy::unwrap_used)]

use braid_sim::coverage::MUST_BE_REACHED;
use braid_sim::{Scenario, scenario};

/// Of all scenarios together; about a minute and a half on two free cores in the dev profile.
const SEEDS: u64 = 350;
/// And these of `session-loss` alone, about 12 s: that a commit is told to use the chunk that is in its place already takes a client
/// that goes on after its session has ended, 12 of 220 seeds there and hardly any elsewhere since file leases keep writers apart.
const SEEDS_OF_SESSION_LOSS: u64 = 100;

fn of_seed(seed: u64) -> Scenario {
    let alone = (seed >= SEEDS).then(|| scenario::all().into_iter().find(|s| s.name == "session-loss"));
    alone.flatten().unwrap_or_else(|| Scenario::of_seed(seed))
}

#[test]
fn no_seed_fails_and_everything_is_reached() {
    let seeds = SEEDS + SEEDS_OF_SESSION_LOSS;
    crate::many::none_fails_and_all_is_reached((0, seeds), of_seed, &scenario::all(), MUST_BE_REACHED);
}

/// About 20 s.
const SEEDS_OF_MODEL: u64 = 300;

#[test]
fn every_call_gives_what_the_model_gives() {
    let reached = &["write repeated to a server that had lost it", "orphan freed", "truncate applied by the owner"];
    crate::many::none_fails_and_all_is_reached(
        (0, SEEDS_OF_MODEL),
        |_| scenario::model(),
        &[scenario::model()],
        reached,
    );
}
