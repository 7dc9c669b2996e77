//! Random runs in which a server is drained: nothing that was promised is broken, and in the end nothing counts it.
#![allow(clippy::unwrap_used)]

use crate::world::run::Outcome;
use crate::world::*;
use braid_types::ServerId;
use std::collections::BTreeMap;

fn run(seed: u64, bug: Option<Bug>) -> Outcome {
    let mut rng = Rng(seed ^ 0xd2a1);
    let (copies, min_copies) = match bug {
        // With one copy there is no other that would hide it.
        Some(_) => (1, 1),
        None => rng.pick(&[(3, 2), (3, 2), (2, 2), (1, 1), (2, 1), (4, 2)]),
    };
    let setup = Setup {
        servers: u64::from(copies) + rng.between(1, 2),
        copies,
        min_copies,
        chunks: rng.between(1, 2),
        blocks: rng.between(2, 8),
        clients: rng.between(1, 3) as usize,
        limits: braid_chain::Limits::default(),
        bug,
        loss_percent: rng.pick(&[0, 1, 10]),
        late: (2, 2 * S),
        storm: rng.between(4, 20) * S,
        trace: std::env::var("SEED").is_ok(),
    };
    let mut world = World::new(seed, setup);
    // The owner, or another.
    let leaves = ServerId(world.rng.between(1, copies.into()));
    world.leaves = Some((leaves, world.rng.between(500 * MS, 4 * S)));
    let faults = if bug.is_some() { 0 } else { world.rng.pick(&[0, 1, 3, 8]) };
    world.plan_faults(faults, true);
    world.run()
}

const MUST_BE_REACHED: &[&str] = &[
    "drain: all are whole",
    "drain: an old copy is deleted",
    "drain: one member more",
    "fault: kill",
    "fault: leader dies",
    "fault: pause",
    "fault: power cut",
];

#[test]
fn a_drain_breaks_no_promise_and_comes_to_its_end() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) {
        let outcome = run(seed, None);
        outcome.log.iter().for_each(|line| println!("{line}"));
        return assert_eq!(outcome.failure, None, "seed {seed}");
    }
    let seeds = std::env::var("CHAIN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=seeds {
        let outcome = run(seed, None);
        assert_eq!(outcome.failure, None, "SEED={seed} cargo test -p braid-chain --test it drain");
        outcome.seen.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    println!("{seen:#?}");
    let missed: Vec<_> = MUST_BE_REACHED.iter().filter(|what| seen.get(*what).is_none_or(|count| *count < 5)).collect();
    assert!(missed.is_empty(), "not reached: {missed:?}");
}

/// The alarm's test.
#[test]
fn a_copy_that_is_deleted_before_the_new_one_has_everything_is_found() {
    let found = (1..=20).find_map(|seed| run(seed, Some(Bug::UnlinkedBeforeReplaced)).failure.map(|why| (seed, why)));
    let (seed, why) = found.expect("not found in 20 seeds");
    println!("seed {seed}: {}", &why[..why.len().min(200)]);
}
