//! Many seeds side by side, and what is expected of all of them.
#![allow(clippy::unwrap_used)]

use braid_sim::coverage::Counts;
use braid_sim::{Outcome, Scenario, run};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first and how many: those of the variables `SIM_NAME_FIRST_SEED` and `SIM_NAME_SEEDS`, or from 0 on so many.
pub fn seeds(name: &str, count: u64) -> (u64, u64) {
    let number = |what: &str| std::env::var(format!("SIM_{name}_{what}")).ok().map(|text| text.parse().unwrap());
    (number("FIRST_SEED").unwrap_or(0), number("SEEDS").unwrap_or(count))
}

fn run_all(first: u64, count: u64, of_seed: fn(u64) -> Scenario) -> Vec<Outcome> {
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
                    let outcome = run(seed, &of_seed(seed), false);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

/// No seed fails, and together they reach each of these states and each fault of `scenarios`.
pub fn none_fails_and_all_is_reached(
    (first, seeds): (u64, u64),
    of_seed: fn(u64) -> Scenario,
    scenarios: &[Scenario],
    must_be_reached: &[&'static str],
) {
    let outcomes = run_all(first, seeds, of_seed);
    let mut coverage = Counts::default();
    outcomes.iter().for_each(|outcome| coverage.merge(&outcome.coverage));
    // Not by `println!`, which a passing test is not heard with: how often each fault and state was reached is for everybody.
    let _ = writeln!(std::io::stdout().lock(), "\n{seeds} seeds reached:\n{coverage}");
    let mut failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).collect();
    failed.sort_by_key(|outcome| outcome.seed);
    for outcome in &failed {
        let (name, seed) = (outcome.scenario, outcome.seed);
        println!("seed {seed} ({name}) failed:");
        outcome.failures.iter().for_each(|failure| println!("    {failure}"));
        println!("    {}", outcome.command());
    }
    assert!(failed.is_empty(), "{} of {seeds} seeds failed", failed.len());
    let faults: BTreeSet<&str> =
        scenarios.iter().flat_map(|scenario| scenario.faults.iter().map(|(kind, _)| kind.text())).collect();
    let faults: Vec<&str> = faults.into_iter().collect();
    let missing = [coverage.missing(must_be_reached), coverage.missing(&faults)].concat();
    assert!(missing.is_empty(), "never reached in {seeds} seeds: {missing:?}");
}
