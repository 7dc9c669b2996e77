//! Nothing is wrong but that members come and go: what stays where it is is answered for all the while, and what moves is soon.

use crate::process::Flaw;
use crate::world::{SECOND, World};
use rand::RngExt;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Comes,
    TwoCome,
    Stops,
    LeaderStops,
    IsKilled,
    LeaderIsKilled,
}

const SEEDS: u64 = 12;

/// From then on until each slot is answered for and everybody agrees, at most.
fn at_most(what: Happens) -> u64 {
    match what {
        // Gathered, written; heard of in the next round by who loses, in the one after that by the leader, then by who gains.
        Happens::Comes | Happens::TwoCome => 4 * SECOND,
        Happens::Stops => 2 * SECOND,
        // Who stands by looks within a second.
        Happens::LeaderStops => 4 * SECOND,
        // 9 s and a twentieth, by as much more on a slow clock, and a round.
        Happens::IsKilled => 11_200_000,
        // 4 s and a twentieth, a look, and three rounds as above.
        Happens::LeaderIsKilled => 9 * SECOND,
    }
}

#[test]
fn what_stays_is_answered_for_without_a_pause_when_others_come_and_go() {
    let mut longest: BTreeMap<Happens, u64> = BTreeMap::new();
    let mut moved = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Flaw::None);
        world.until_well(20 * SECOND).unwrap_or_else(|why| panic!("seed {seed} begins: {why}"));
        // All that start together are one epoch, behind the leader's own.
        assert!(world.seen.rosters <= 2, "seed {seed}: {} rosters", world.seen.rosters);
        for _ in 0..12 {
            let calm = world.random.random_range(SECOND..6 * SECOND);
            world.run(false, calm).unwrap();
            let alive = world.alive();
            let leader =
                alive.iter().copied().find(|which| world.processes[*which].leader.is_some()).expect("one leads");
            let others: Vec<usize> = alive.iter().copied().filter(|which| *which != leader).collect();
            let happens = match world.random.random_range(0..6) {
                _ if others.is_empty() => Happens::TwoCome,
                0 if alive.len() < 6 => Happens::Comes,
                1 if alive.len() < 6 => Happens::TwoCome,
                2 => Happens::LeaderStops,
                3 => Happens::IsKilled,
                4 => Happens::LeaderIsKilled,
                _ => Happens::Stops,
            };
            let rosters = world.seen.rosters;
            match happens {
                Happens::Comes => world.start(),
                Happens::TwoCome => (0..2).for_each(|_| world.start()),
                Happens::Stops => world.stop(others[0]),
                Happens::IsKilled => world.kill(others[0]),
                Happens::LeaderStops => world.stop(leader),
                Happens::LeaderIsKilled => world.kill(leader),
            }
            let took = world.until_well(at_most(happens));
            let took = took.unwrap_or_else(|why| panic!("seed {seed}, {happens:?} at {}: {why}", world.now));
            let longest = longest.entry(happens).or_default();
            *longest = (*longest).max(took);
            assert_eq!(world.seen.gaps, 0, "seed {seed}: {happens:?} makes a pause of what stays");
            assert_eq!(world.seen.rosters, rosters + 1, "seed {seed}: {happens:?} is one epoch");
            moved += 1;
        }
    }
    assert!(longest.len() == 6 && moved == 12 * SEEDS, "{longest:?}");
}

/// Others stop when what they were granted is over, 9 s and a twentieth, by as much more on a slow clock, and a round; what the leader has is
/// answered for all the while. When it is over they come back.
#[test]
fn who_is_to_serve_alone_does_after_a_lease_and_others_come_back() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Flaw::None);
        let count = world.alive().len();
        world.until_well(20 * SECOND).unwrap();
        let leader = world.alive().into_iter().find(|which| world.processes[*which].leader.is_some()).unwrap();
        let (id, stays) = (world.processes[leader].id, world.processes[leader].member.held().clone());
        world.alone(40 * SECOND);
        let began = world.now;
        while world.roster.as_ref().is_none_or(|row| row.members.len() > 1) {
            assert!(world.now < began + 11_200_000, "seed {seed}: others still serve");
            world.run(false, SECOND / 20).unwrap();
            assert!(stays.is_within(world.processes[leader].member.held()), "seed {seed}");
        }
        world.run(false, 2 * SECOND).unwrap();
        assert!(world.roster.as_ref().is_some_and(|row| row.leader == id && row.members.len() == 1), "seed {seed}");
        assert_eq!(world.processes[leader].member.held().len(), braid_types::SlotSet::all().len(), "seed {seed}");
        let until = began + 40 * SECOND;
        let time = until - world.now;
        world.run(false, time).unwrap();
        assert_eq!(world.roster.as_ref().map(|row| row.members.len()), Some(1), "seed {seed}: for all of the time");
        // They ask once a second, each at its own time: that may be two epochs.
        world.until_well(8 * SECOND).unwrap();
        assert_eq!(world.alive().len(), count);
    }
}

/// The measure itself: a leader that is cut off is not one, and a slot that stays is then missed.
#[test]
fn a_pause_is_seen() {
    let mut world = World::new(3, Flaw::None);
    world.until_well(20 * SECOND).unwrap();
    let alive = world.alive();
    let leader = alive.iter().copied().find(|which| world.processes[*which].leader.is_some()).expect("one leads");
    world.cut(leader, 60 * SECOND);
    world.run(false, 9 * SECOND / 2).unwrap();
    assert_eq!(world.seen.gaps, 0);
    world.run(false, 30 * SECOND).unwrap();
    assert!(world.seen.gaps > SECOND, "members that hear of no leader for long answer nothing");
}
