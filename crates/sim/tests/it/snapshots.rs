//! Snapshots of what is being written, under fire: no seed may fail, together they must get everywhere, and planted bugs must be found.
//!
//! `SIM_SNAPSHOT_SEEDS` and `SIM_SNAPSHOT_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_BY_SNAPSHOTS;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together; about two minutes on two free cores in the dev profile. What is rarest, a snapshot that is found to be made, one of fifteen to forty reaches.
const SEEDS: u64 = 160;

#[test]
fn no_seed_with_snapshots_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("SNAPSHOT", SEEDS);
    let all = scenario::snapshots();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::snapshots_of_seed, &all, MUST_BE_REACHED_BY_SNAPSHOTS);
}

#[test]
fn the_same_seed_with_snapshots_gives_the_same_history() {
    for scenario in scenario::snapshots() {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
        assert_eq!(first.failures, second.failures);
    }
}

/// What a snapshot that can be read again shows may be seen to change as well.
const ALSO: &[Invariant] = &[Invariant::SnapshotsStay];

#[test]
fn a_chunk_of_a_snapshot_that_is_written_is_found() {
    for scenario in ["snapshots", "snapshots-copies"] {
        hunt(Bug::WritesFrozen, scenario, 5, Invariant::SnapshotsAreOfOneMoment, ALSO);
    }
}

#[test]
fn a_snapshot_that_waits_for_nobody_who_writes_is_found() {
    for scenario in ["snapshots", "snapshots-copies"] {
        hunt(Bug::NotStill, scenario, 5, Invariant::SnapshotsAreOfOneMoment, ALSO);
    }
}

#[test]
fn changes_that_are_not_kept_are_found() {
    for scenario in ["snapshots", "snapshots-copies"] {
        hunt(Bug::NotKept, scenario, 5, Invariant::SnapshotsAreOfOneMoment, ALSO);
    }
}
