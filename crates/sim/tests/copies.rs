//! Chunks with several copies on four data servers under fire: no seed may fail, together they must get everywhere, and
//! planted bugs must be found.
//!
//! `SIM_COPIES_SEEDS` and `SIM_COPIES_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use braid_sim::coverage::{Counts, MUST_BE_REACHED_WITH_COPIES};
use braid_sim::{Bug, Outcome, Scenario, run, scenario};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of all scenarios together; about 25 s on two free cores in the dev profile.
const SEEDS: u64 = 48;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn run_all(first: u64, count: u64) -> Vec<Outcome> {
    let (next, outcomes) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let outcome = run(seed, &Scenario::with_copies_of_seed(seed), false);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

#[test]
fn no_seed_with_copies_fails_and_every_state_is_reached() {
    let (first, seeds) = (number("SIM_COPIES_FIRST_SEED").unwrap_or(0), number("SIM_COPIES_SEEDS").unwrap_or(SEEDS));
    let outcomes = run_all(first, seeds);
    let mut coverage = Counts::default();
    outcomes.iter().for_each(|outcome| coverage.merge(&outcome.coverage));
    println!("{seeds} seeds reached:\n{coverage}");
    let mut failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).collect();
    failed.sort_by_key(|outcome| outcome.seed);
    for outcome in &failed {
        println!("seed {} ({}) failed:", outcome.seed, outcome.scenario);
        outcome.failures.iter().for_each(|failure| println!("    {failure}"));
        println!(
            "    cargo run -p braid-sim --release -- --scenario {} --seed {} --trace",
            outcome.scenario, outcome.seed
        );
    }
    assert!(failed.is_empty(), "{} of {seeds} seeds failed", failed.len());
    let all = scenario::with_copies();
    let faults: BTreeSet<&str> =
        all.iter().flat_map(|scenario| scenario.faults.iter().map(|(kind, _)| kind.text())).collect();
    let faults: Vec<&str> = faults.into_iter().collect();
    let missing = [coverage.missing(MUST_BE_REACHED_WITH_COPIES), coverage.missing(&faults)].concat();
    assert!(missing.is_empty(), "never reached in {seeds} seeds: {missing:?}");
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

/// Within so many seeds of the scenario.
fn hunt(bug: Bug, scenario: &str, seeds: u64) {
    let scenario = Scenario::named(scenario).unwrap().with_bug(bug);
    for seed in 0..seeds {
        let outcome = run(seed, &scenario, false);
        if let Some(failure) = outcome.failures.first() {
            println!("{bug:?} found by seed {seed} of {}: {failure}", scenario.name);
            return;
        }
    }
    panic!("{bug:?} was not found by {seeds} seeds of {}", scenario.name);
}

#[test]
fn a_skipped_sync_of_copies_is_found() {
    hunt(Bug::SkippedDataSync, "copies-fsync", 20);
}

#[test]
#[ignore = "it takes a minute: to be seen, two servers must stop within a moment of an fsync"]
fn a_copy_that_is_acknowledged_too_early_is_found() {
    hunt(Bug::CopyAcknowledgedTooEarly, "copies-fsync", 90);
}

#[test]
fn a_prefix_over_a_gap_is_found() {
    hunt(Bug::PrefixOverGap, "copies", 20);
}
