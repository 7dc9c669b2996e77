//! Hundreds of short seeds of every scenario: none may fail, and together they must get everywhere.

use braid_sim::coverage::{Counts, MUST_BE_REACHED};
use braid_sim::{Outcome, run, scenario};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of all scenarios together; about a minute and a half on two free cores in the dev profile.
const SEEDS: u64 = 350;

fn run_all() -> Vec<Outcome> {
    let (next, outcomes) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let outcome = run(seed, &scenario::Scenario::of_seed(seed), false);
                    outcomes.lock().expect("no worker panics").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no worker panics")
}

#[test]
fn no_seed_fails_and_everything_is_reached() {
    let outcomes = run_all();
    let mut coverage = Counts::default();
    outcomes.iter().for_each(|outcome| coverage.merge(&outcome.coverage));
    println!("{SEEDS} seeds reached:\n{coverage}");
    let mut failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).collect();
    failed.sort_by_key(|outcome| outcome.seed);
    for outcome in &failed {
        println!("seed {} ({}) failed:", outcome.seed, outcome.scenario);
        outcome.failures.iter().for_each(|failure| println!("    {failure}"));
        println!("    cargo run -p braid-sim --release -- --seed {} --trace", outcome.seed);
    }
    assert!(failed.is_empty(), "{} of {SEEDS} seeds failed", failed.len());
    let all = scenario::all();
    let faults: BTreeSet<&str> =
        all.iter().flat_map(|scenario| scenario.faults.iter().map(|(kind, _)| kind.text())).collect();
    let faults: Vec<&str> = faults.into_iter().collect();
    let missing = [coverage.missing(MUST_BE_REACHED), coverage.missing(&faults)].concat();
    assert!(missing.is_empty(), "never reached in {SEEDS} seeds: {missing:?}");
}
