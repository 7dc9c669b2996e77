//! The alarm's test: each planted bug must be found, within so many seeds of the scenario that is made to see it.
#![allow(clippy::unwrap_used)]

use braid_sim::{Bug, Invariant, Scenario, run};

/// The seed that found it, and what it said.
fn hunt(bug: Bug, scenario: &str, seeds: u64) -> (u64, Vec<Invariant>) {
    let scenario = Scenario::named(scenario).unwrap().with_bug(bug);
    for seed in 0..seeds {
        let outcome = run(seed, &scenario, false);
        if !outcome.failures.is_empty() {
            let found: Vec<Invariant> = outcome.failures.iter().map(|failure| failure.invariant).collect();
            println!("{bug:?} found by seed {seed} of {}: {}", scenario.name, outcome.failures[0]);
            return (seed, found);
        }
    }
    panic!("{bug:?} was not found by {seeds} seeds of {}", scenario.name);
}

#[test]
fn a_skipped_sync_of_a_data_server_is_found() {
    hunt(Bug::SkippedDataSync, "fsync", 20);
}

#[test]
fn a_skipped_sync_of_the_metadata_server_is_found() {
    hunt(Bug::SkippedMetaSync, "names", 20);
}

#[test]
fn a_lost_replay_is_found() {
    hunt(Bug::LostReplay, "close", 20);
}

#[test]
fn a_lost_replay_of_metadata_is_found() {
    hunt(Bug::LostReplayOfMetadata, "names", 20);
}

#[test]
fn an_ignored_truncate_generation_is_found() {
    hunt(Bug::TruncateIgnored, "close", 20);
}

#[test]
fn a_revocation_acknowledged_before_it_is_carried_out_is_found() {
    hunt(Bug::AcknowledgedBeforeDropped, "names-mounts", 20);
}

#[test]
fn a_file_given_up_before_it_is_flushed_is_found() {
    hunt(Bug::GivenUpUnflushed, "bytes", 5);
}

#[test]
fn a_chunk_marked_as_stable_too_early_is_found() {
    hunt(Bug::MarkedTooEarly, "fsync", 20);
}

#[test]
fn a_request_applied_twice_is_found() {
    hunt(Bug::RequestAppliedTwice, "names", 40);
}
