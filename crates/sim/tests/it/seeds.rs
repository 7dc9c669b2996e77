//! Hundreds of short seeds of every scenario: none may fail, and together they must get everywhere.
#![allow(clippy::unwrap_used)]

use braid_sim::coverage::MUST_BE_REACHED;
use braid_sim::{Scenario, scenario};

/// Of all scenarios together; about a minute and a half on two free cores in the dev profile.
const SEEDS: u64 = 350;
/// And these of `evicted` alone, about 10 s: a session ends in most of them, and in one of three something is lost with it.
const SEEDS_OF_EVICTED: u64 = 60;

fn of_seed(seed: u64) -> Scenario {
    let alone = (seed >= SEEDS).then(|| scenario::all().into_iter().find(|s| s.name == "evicted"));
    alone.flatten().unwrap_or_else(|| Scenario::of_seed(seed))
}

#[test]
fn no_seed_fails_and_everything_is_reached() {
    let seeds = SEEDS + SEEDS_OF_EVICTED;
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
