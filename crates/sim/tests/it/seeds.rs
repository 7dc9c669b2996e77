//! Hundreds of short seeds of every scenario: none may fail, and together they must get everywhere.
#![allow(clippy::unwrap_used)]

use braid_sim::coverage::MUST_BE_REACHED;
use braid_sim::{Scenario, scenario};

/// Of all scenarios together; about a minute and a half on two free cores in the dev profile.
const SEEDS: u64 = 350;

#[test]
fn no_seed_fails_and_everything_is_reached() {
    crate::many::none_fails_and_all_is_reached((0, SEEDS), Scenario::of_seed, &scenario::all(), MUST_BE_REACHED);
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
