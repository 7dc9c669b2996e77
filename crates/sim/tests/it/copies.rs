//! Chunks with several copies on four data servers under fire: no seed may fail, together they must get everywhere, and
//! planted bugs must be found.
//!
//! `SIM_COPIES_SEEDS` and `SIM_COPIES_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_WITH_COPIES;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together; about 35 s on two free cores in the dev profile.
const SEEDS: u64 = 84;

#[test]
fn no_seed_with_copies_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("COPIES", SEEDS);
    let all = scenario::with_copies();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::with_copies_of_seed, &all, MUST_BE_REACHED_WITH_COPIES);
}

#[test]
fn the_same_seed_with_copies_gives_the_same_history() {
    for scenario in scenario::with_copies() {
        for seed in 0..2 {
            let (first, second) = (run(seed, &scenario, false), run(seed, &scenario, false));
            let name = scenario.name;
            assert_eq!((first.hash, first.events), (second.hash, second.events), "seed {seed} of {name}");
            assert_eq!(first.failures, second.failures);
        }
    }
}

#[test]
fn a_skipped_sync_of_copies_is_found() {
    let also = [
        // The store syncs files of its own too, and is no store without them: then its server does not start.
        Invariant::NothingPanics,
        // A chunk of which members remember blocks that no copy has any more is never open again: calls wait until their
        // deadline.
        Invariant::OperationsSurviveFaults,
        // Members that have lost different blocks believe that they have all.
        Invariant::CopiesAreEqual,
        // A deletion is lost as well as a write.
        Invariant::ChunksHaveRows,
    ];
    hunt(Bug::SkippedDataSync, "copies-fsync", 20, Invariant::FsyncIsKept, &also);
}

#[test]
#[ignore = "it takes a minute: to be seen, two servers must stop within a moment of an fsync"]
fn a_copy_that_is_acknowledged_too_early_is_found() {
    hunt(Bug::CopyAcknowledgedTooEarly, "copies-fsync", 90, Invariant::FsyncIsKept, &[]);
}

#[test]
fn a_stale_epoch_that_is_accepted_is_found() {
    // A copy that believes to have heard what it has not never has all there is, and is read for what it lacks.
    let also = [Invariant::CopiesAreEqual, Invariant::BytesAreLinearizable];
    hunt(Bug::StaleEpochAccepted, "copies-bytes", 10, Invariant::CopiesAreWhole, &also);
}

#[test]
fn a_word_that_does_not_change_with_an_announced_change_is_found() {
    hunt(Bug::WordsKept, "copies-bytes-local", 40, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_board_that_is_believed_for_ever_is_found() {
    hunt(Bug::TimesKept, "copies-bytes-local", 40, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_next_owner_that_tells_nothing_is_found() {
    // Who has to wait until the others know waits in vain once there are faults; what another mount reads may be old, and a copy
    // never has all there is.
    let also = [Invariant::CloseToOpen, Invariant::CopiesAreWhole, Invariant::CopiesAreEqual, Invariant::FsyncIsKept];
    hunt(Bug::NextOwnerTellsNothing, "copies-moves", 40, Invariant::OperationsSurviveFaults, &also);
}

#[test]
fn a_prefix_over_a_gap_is_found() {
    // Where such a member becomes the owner, all copies become like its own, and what was synced is in none.
    hunt(Bug::PrefixOverGap, "copies", 20, Invariant::CopiesAreEqual, &[Invariant::FsyncIsKept]);
}

#[test]
fn a_copy_that_is_deleted_before_the_one_made_in_its_stead_was_read_back_is_found() {
    hunt(Bug::NotReadBack, "copies", 10, Invariant::UnlinkedAfterReplaced, &[]);
}

#[test]
fn a_lease_that_is_taken_for_longer_than_it_is_is_found() {
    // Also by who reads and writes there, if somebody does.
    hunt(Bug::LeaseTooLong, "copies-bytes", 10, Invariant::OneOwnerAtAnInstant, &[Invariant::BytesAreLinearizable]);
}
