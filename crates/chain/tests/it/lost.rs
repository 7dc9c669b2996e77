//! A disk loses a copy beneath a running server, which is told and begins anew with the next epoch, while everything else goes wrong around it:
//! nothing that was promised is lost.
#![allow(clippy::unwrap_used)]

use crate::world::faults::Fault;
use crate::world::*;
use braid_chain::Limits;
use std::collections::BTreeMap;

fn run(seed: u64, bug: Option<Bug>) -> (Option<String>, BTreeMap<&'static str, u64>) {
    let mut rng = Rng(seed ^ 0x1057);
    let (copies, min_copies) = rng.pick(&[(2, 2), (2, 2), (3, 2), (3, 2), (3, 3), (4, 2)]);
    let setup = Setup {
        servers: u64::from(copies) + rng.below(2),
        copies,
        min_copies,
        chunks: rng.between(1, 2),
        blocks: rng.between(2, 6),
        clients: 2,
        limits: Limits::default(),
        bug,
        moves_percent: rng.pick(&[0, 20]),
        loss_percent: rng.pick(&[0, 1, 10]),
        late: (2, 2 * S),
        storm: 16 * S,
        trace: std::env::var("SEED").is_ok(),
    };
    let mut world = World::new(seed, setup);
    let loser = rng.below(copies.into()) as usize;
    for _ in 0..rng.between(1, 3) {
        let at = rng.between(S, 14 * S);
        world.at(at, Item::Fault(Fault::LosesCopy(loser)));
        // Others are away in just that moment.
        for _ in 0..rng.below(3) {
            let other = rng.below(world.nodes.len() as u64) as usize;
            if other == loser {
                continue;
            }
            let (near, long) = (at + rng.below(600 * MS), rng.between(200 * MS, 12 * S));
            let fault = rng.pick(&[
                Fault::Pause(other, long),
                Fault::Cut(0, other as u64 + 1, long),
                Fault::Cut(loser as u64 + 1, other as u64 + 1, long),
                Fault::Power(other),
                Fault::LeaderDies,
            ]);
            let fault = match fault {
                Fault::Cut(a, b, long) => Fault::Cut(a.min(b), a.max(b), long),
                other => other,
            };
            world.at(near, Item::Fault(fault));
            match fault {
                Fault::Power(node) => world.at(near + long, Item::Fault(Fault::Start(node))),
                Fault::LeaderDies => world.at(near + S, Item::Fault(Fault::LeaderStarts)),
                _ => {}
            }
        }
    }
    let outcome = world.run();
    outcome.log.iter().for_each(|line| println!("{line}"));
    (outcome.failure, outcome.seen)
}

#[test]
fn a_copy_that_its_disk_has_lost_takes_no_promise_with_it() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) {
        return assert_eq!(run(seed, None).0, None, "seed {seed}");
    }
    let (mut failures, mut all) = (Vec::new(), BTreeMap::new());
    let seeds = std::env::var("CHAIN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 1..=seeds {
        let (failure, seen) = run(seed, None);
        seen.into_iter().for_each(|(what, count)| *all.entry(what).or_insert(0) += count);
        failures.extend(failure.map(|failure| format!("SEED={seed}: {failure}")));
    }
    for what in ["fault: copy lost", "reported: lost", "fault: pause", "fault: leader dies"] {
        assert!(all.get(what).is_some_and(|count| *count > 20), "{what}: {all:?}");
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures[..failures.len().min(5)].join("\n"));
}

#[test]
fn a_lost_copy_that_is_taken_for_nothing_is_found() {
    let bug = Some(Bug::LostTakenForNothing);
    let found = (1..=600).find(|seed| run(*seed, bug).0.is_some());
    assert!(found.is_some(), "not found in 600 seeds");
    println!("found by seed {found:?}");
}
