//! Machines that stop in the middle of what they do: before or after each word of a chain, between data servers, of the leader and to it, and
//! of clients.
//!
//! `SIM_MESSAGES_SEEDS` and `SIM_MESSAGES_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::{MUST_BE_REACHED_AT_MESSAGES, MUST_BE_REACHED_BY_QUEUES};
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

const SEEDS: u64 = 64;
const QUEUED_SEEDS: u64 = 24;

#[test]
fn no_seed_fails_whose_machines_stop_at_messages() {
    let (seeds, all) = (crate::many::seeds("MESSAGES", SEEDS), scenario::at_messages());
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::at_messages_of_seed, &all, MUST_BE_REACHED_AT_MESSAGES);
}

/// `SIM_QUEUED_SEEDS`, `SIM_QUEUED_FIRST_SEED`.
#[test]
fn who_waits_for_a_region_of_a_chunk_that_moves_goes_along() {
    let (seeds, all) = (crate::many::seeds("QUEUED", QUEUED_SEEDS), scenario::queued());
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::queued_of_seed, &all, MUST_BE_REACHED_BY_QUEUES);
}

#[test]
fn the_same_seed_stops_at_the_same_messages() {
    for scenario in scenario::at_messages() {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
    }
}

/// Each of whom would own what it writes.
#[test]
fn chunks_move_between_three_writers() {
    let all = scenario::at_messages();
    let three = all.iter().find(|scenario| scenario.settings.third_client).unwrap();
    let moves: Vec<u64> =
        (0..6).map(|seed| run(seed, three, false).coverage.of("chunk owned beside its writer")).collect();
    assert!(moves.iter().filter(|moves| **moves > 0).count() >= 3, "{moves:?}");
}

#[test]
fn a_past_owner_that_answers_is_found() {
    hunt(Bug::PastOwnerAnswers, "messages-moves", 20, Invariant::CloseToOpen, &[]);
}

#[test]
fn an_fsync_that_is_answered_by_who_does_not_own_the_chunk_any_more_is_found() {
    hunt(Bug::PastOwnerAnswers, "messages-moves-fsync", 100, Invariant::FsyncIsKept, &[]);
}

#[test]
fn a_write_that_is_answered_by_who_does_not_own_the_chunk_any_more_is_found() {
    hunt(Bug::PastOwnerWrites, "messages-moves", 20, Invariant::OneOwnerAtAnInstant, &[]);
}
