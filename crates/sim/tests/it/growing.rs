//! Data servers that are drained and evened out under fire: no seed may fail, together they must get everywhere, and planted
//! bugs must be found.
//!
//! `SIM_GROWING_SEEDS` and `SIM_GROWING_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_GROWING;
use braid_sim::{Bug, Invariant, Scenario, scenario};

const SEEDS: u64 = 24;

#[test]
fn no_seed_in_which_servers_are_drained_and_evened_out_fails() {
    let seeds = crate::many::seeds("GROWING", SEEDS);
    let all = scenario::growing();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::growing_of_seed, &all, MUST_BE_REACHED_GROWING);
}

#[test]
fn no_seed_in_which_chunks_with_one_copy_are_moved_fails() {
    let moved = ["chunk with one copy moved", "data server drained"];
    // Which faults there are is the matter of others.
    crate::many::none_fails_and_all_is_reached((0, SEEDS), Scenario::growing_plain_of_seed, &[], &moved);
}

#[test]
fn the_same_seed_with_an_operator_gives_the_same_history() {
    for scenario in scenario::growing().into_iter().chain(scenario::growing_plain()) {
        assert_eq!(history_of(scenario.name), history_of(scenario.name), "{}", scenario.name);
    }
}

/// What a replay says of seed 1, in a process of its own as a replay is: run twice in one, something that is not found yet goes from one to the
/// next in `plain-grow` and `plain-grow-fsync`.
fn history_of(scenario: &str) -> Vec<String> {
    let replay = std::process::Command::new(env!("CARGO_BIN_EXE_braid-sim"))
        .args(["--seed", "1", "--scenario", scenario])
        .output()
        .unwrap();
    let said = String::from_utf8(replay.stdout).unwrap();
    // But for how long it took here.
    let words = said.lines().next().unwrap().split(", ").filter(|part| !part.ends_with(" here"));
    let words: Vec<String> = words.map(str::to_owned).collect();
    assert!(replay.status.success() && words.last().unwrap().starts_with("hash "), "{said}");
    words
}

#[test]
fn a_copy_that_is_let_go_before_the_new_one_is_complete_is_found() {
    // With the last whole copy its bytes are gone.
    let also = [Invariant::FsyncIsKept, Invariant::CopiesAreWhole, Invariant::CopiesAreEqual];
    hunt(Bug::WholeTooEarly, "copies-grow-2", 20, Invariant::UnlinkedAfterReplaced, &also);
}

#[test]
fn a_copy_that_is_let_go_before_the_new_one_was_read_back_is_found() {
    hunt(Bug::NotReadBack, "copies-grow", 5, Invariant::UnlinkedAfterReplaced, &[]);
}

#[test]
fn a_chunk_that_was_written_while_it_was_copied_is_found_to_be_lost() {
    hunt(Bug::VersionHidden, "plain-grow", 20, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_chunk_that_takes_the_place_of_another_unread_is_found() {
    hunt(Bug::NotReadBack, "plain-grow", 5, Invariant::UnlinkedAfterReplaced, &[]);
}
