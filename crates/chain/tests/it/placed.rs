//! One fault at every place of one short history, and two faults at every pair of places of a coarser grid: where
//! random faults are rare, all of these are looked at.
#![allow(clippy::unwrap_used)]

use crate::world::faults::{ByNumber, Fault};
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

/// The owner loses its power, or a member is lost for ever and another gets its place; from then on until all is whole again whoever is to send
/// a message, to begin work on its disk, to answer or to commit dies before it does.
#[test]
fn a_death_before_every_command_of_the_first_ones_mending() {
    let begun = 500 * MS;
    let world = |seed: u64, first: Fault, by_number: Option<ByNumber>| {
        let mut world = World::calm(seed, 2, 9 * S);
        world.by_number = by_number;
        world.at(begun, Item::Fault(first));
        if let Fault::Power(node) = first {
            world.at(begun + S, Item::Fault(Fault::Start(node)));
        }
        world
    };
    let mut ran = 0;
    for (seed, first) in [(11, Fault::Power(0)), (12, Fault::Lose(2)), (13, Fault::Lose(0))] {
        let mut mending = world(seed, first, None);
        mending.run_for(begun).unwrap();
        let before = mending.commands;
        mending.run_for(8 * S).unwrap();
        let leader = mending.leader.machine.as_ref().unwrap();
        let members = leader.row(C).unwrap().members().to_vec();
        assert!(leader.is_settled(C) && members.len() == 3, "seed {seed}, {first:?}: {members:?}");
        for command in before + 1..mending.commands + 1 {
            let failure = world(seed, first, Some(ByNumber::Command(command, command % 2 == 0))).run().failure;
            assert_eq!(failure, None, "seed {seed}, {first:?}, command {command}");
            ran += 1;
        }
    }
    assert!(ran > 1000, "{ran} deaths");
}
