//! Random runs: nothing that was promised is ever broken, and everything becomes whole again.
#![allow(clippy::unwrap_used)]

use crate::world::run::Outcome;
use crate::world::*;
use std::collections::BTreeMap;

fn seeds(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(seed: u64, trace: bool) -> Outcome {
    let mut rng = Rng(seed ^ 0x5eed);
    let (copies, min_copies) =
        rng.pick(&[(3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (1, 1), (3, 3), (4, 2), (5, 3), (2, 1), (3, 1)]);
    let mut limits = braid_chain::Limits::default();
    if rng.chance(50) {
        // So that few blocks are many.
        limits.groups_max = 4;
        limits.pull_blocks = 2;
        limits.announce_blocks = 4;
    }
    let setup = Setup {
        servers: u64::from(copies) + rng.below(3),
        copies,
        min_copies,
        chunks: rng.between(1, 2),
        blocks: rng.between(2, 8),
        clients: rng.between(1, 3) as usize,
        limits,
        bug: None,
        // Most runs: every fault of the others also meets moves.
        moves_percent: rng.pick(&[0, 10, 10, 50]),
        loss_percent: rng.pick(&[0, 1, 10]),
        late: rng.pick(&[(2, 2 * S), (2, 2 * S), (10, 8 * S)]),
        storm: rng.between(2, 20) * S,
        trace,
    };
    let mut world = World::new(seed, setup);
    let faults = world.rng.pick(&[0, 1, 1, 3, 8, 15]);
    world.plan_faults(faults, true);
    if seed.is_multiple_of(3) {
        let full = world.rng.between(1, 3);
        world.plan_full_disks(full);
    }
    world.run()
}

/// What 400 seeds must have met, or they prove less than they say.
const MUST_BE_REACHED: &[&str] = &[
    "a gap was noticed",
    "answered: both",
    "answered: shared",
    "answered: stable",
    "answered: the owner has it",
    "blocks went back to the prefix",
    "client met a new epoch",
    "fault: cut between servers",
    "fault: cut from the leader",
    "fault: full disk",
    "fault: leader dies",
    "fault: pause",
    "fault: power cut of all",
    "fault: server lost for ever",
    "newer blocks fetched",
    "no room for a record",
    "ownership handed over",
    "ownership taken",
    "read from a member",
    "removal asked",
    "reported: suspect after a crash",
    "reported: told of more than it has",
    "reported: torn blocks",
    "said to be full",
    "third epoch of a chunk",
];

/// A seed to be looked at: `SEED=17 cargo test -p braid-chain --test it one_seed -- --nocapture`.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) else { return };
    let outcome = run(seed, true);
    outcome.log.iter().for_each(|line| println!("{line}"));
    println!("{:?}", outcome.seen);
    assert_eq!(outcome.failure, None, "seed {seed}");
}

#[test]
fn no_seed_breaks_a_promise() {
    let (first, count) = (seeds("CHAIN_FIRST_SEED", 1), seeds("CHAIN_SEEDS", 400));
    let (mut seen, mut steps, mut failures, mut longest) = (BTreeMap::new(), 0, Vec::new(), 0);
    for seed in first..first + count {
        let outcome = run(seed, false);
        for (what, count) in outcome.seen {
            *seen.entry(what).or_insert(0) += count;
        }
        steps += outcome.steps;
        longest = longest.max(outcome.healed_after);
        if let Some(failure) = outcome.failure {
            failures.push(format!("SEED={seed}: {failure}"));
        }
    }
    println!("{count} seeds, {steps} steps; whole again after at most {} ms", longest / MS);
    seen.iter().for_each(|(what, count)| println!("{count:>9} {what}"));
    for what in MUST_BE_REACHED.iter().filter(|what| count >= 400 && !seen.contains_key(*what)) {
        failures.push(format!("{what:?} was never reached"));
    }
    assert!(
        failures.is_empty(),
        "{} of {count} seeds fail:\n{}",
        failures.len(),
        failures[..failures.len().min(12)].join("\n")
    );
}
