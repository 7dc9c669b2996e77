//! Several metadata servers that serve at once, under fire: no seed may fail, together they must get everywhere, and planted bugs must be found.
//!
//! `SIM_SEVERAL_SEEDS` and `SIM_SEVERAL_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_BY_SEVERAL;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together.
const SEEDS: u64 = 40;

#[test]
fn no_seed_with_several_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("SEVERAL", SEEDS);
    let all = scenario::several();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::several_of_seed, &all, MUST_BE_REACHED_BY_SEVERAL);
}

#[test]
fn the_same_seed_with_several_gives_the_same_history() {
    for scenario in scenario::several().into_iter().take(2) {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
        assert_eq!(first.failures, second.failures);
    }
}

#[test]
fn holders_that_are_not_asked_are_found() {
    hunt(Bug::OthersNotAsked, "several-names", 60, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn a_holder_that_waits_for_nobody_is_found() {
    // A mount has to miss that a slot moves, while another changes something there.
    hunt(Bug::GainedAtOnce, "several-cut", 240, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn a_snapshot_for_which_others_do_not_stand_still_is_found() {
    for bug in [Bug::OthersNotAsked, Bug::NotStill] {
        hunt(bug, "several-snapshots", 20, Invariant::SnapshotsAreOfOneMoment, &[Invariant::SnapshotsStay]);
    }
}
