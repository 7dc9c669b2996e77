//! One fault at every place of one short history, and two faults at every pair of places of a coarser grid: where
//! random faults are rare, all of these are looked at.
#![allow(clippy::unwrap_used)]

use crate::world::faults::Fault;
use crate::world::*;

fn kinds(node: usize) -> Vec<Fault> {
    let other = node as u64 % 3 + 1;
    let cut = |a: u64, b: u64| Fault::Cut(a.min(b), a.max(b), 7 * S);
    let mut kinds = vec![Fault::Kill(node), Fault::Power(node), Fault::Lose(node), Fault::Pause(node, 7 * S)];
    kinds.push(Fault::Full(node, 12 * S));
    kinds.extend([cut(0, node as u64 + 1), cut(node as u64 + 1, other % 3 + 1)]);
    kinds.retain(|kind| !matches!(kind, Fault::Cut(a, b, _) if a == b));
    kinds
}

fn run(seed: u64, faults: &[(Us, Fault)]) {
    let mut world = World::calm(seed, 2, 9 * S);
    for (at, fault) in faults {
        world.at(*at, Item::Fault(*fault));
        if let Fault::Kill(node) | Fault::Power(node) = fault {
            world.at(at + S, Item::Fault(Fault::Start(*node)));
        }
        if let Fault::LeaderDies = fault {
            world.at(at + S, Item::Fault(Fault::LeaderStarts));
        }
    }
    let failure = world.run().failure;
    assert_eq!(failure, None, "seed {seed}, {faults:?}");
}

/// Each kind of fault of each server, and of the leader, every 75 ms of 1.5 s (`CHAIN_STEP_MS`): with one fault nothing
/// that was acknowledged is ever lost, what is only in memory included.
#[test]
fn one_fault_at_every_place() {
    let step = std::env::var("CHAIN_STEP_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(75);
    for at in (300..1800).step_by(step) {
        for fault in (0..4).flat_map(kinds).chain([Fault::LeaderDies]) {
            run(7, &[(at as Us * MS, fault)]);
        }
    }
}

/// The second fault hits each stage of mending the first.
#[test]
fn a_second_fault_at_every_place_of_the_first_ones_mending() {
    let step = std::env::var("CHAIN_STEP_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(75) * 5;
    for first in [Fault::Power(0), Fault::Kill(1), Fault::Pause(0, 7 * S)] {
        for at in (600..9000).step_by(step) {
            for second in [Fault::Power(1), Fault::Kill(2), Fault::Lose(3), Fault::LeaderDies, Fault::PowerOfAll] {
                run(11, &[(500 * MS, first), (at as Us * MS, second)]);
            }
        }
    }
}
