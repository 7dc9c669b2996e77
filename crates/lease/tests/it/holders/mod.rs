//! Two holders, two sessions, two servers that run changes, every interleaving: changes of what both hold beside changes of what
//! one holds, messages between servers that are lost, repeated and overtaken, answers of the engine that get lost, a server that
//! dies, a slot that moves.
//!
//! What must hold: as in `names.rs`, from a commit on no session shows what it made old, except the one that made it and has no
//! answer yet; and each change ends.
#![allow(clippy::unwrap_used)]

mod clients;
mod servers;
mod world;

use crate::explore::{Bounds, Report, explore};
use std::collections::BTreeMap;
use world::{Action, Budget, NONE, Plan, Plant, World};

/// Of both keys, run by the holder of the first or of the second.
const ACROSS: Plan = (0b11, 0);
const BACK: Plan = (0b11, 1);
const FIRST: Plan = (0b01, 0);
const SECOND: Plan = (0b10, 1);
/// Of the first key, run by the holder of the second.
const FIRST_BEHIND: Plan = (0b01, 1);

/// Each small in another direction. A slot moves with the second epoch; or its holder dies, and is counted out with it.
fn system(name: &'static str, plant: Plant) -> (&'static str, World) {
    let world = |plans: [&[Plan]; 2], left: Budget| World::new(plans, left, plant).warm();
    let moves = Budget { raises: 1, ..NONE };
    let dies = Budget { deaths: 1, raises: 1, ..NONE };
    let world = match name {
        "one across beside one" => world([&[ACROSS], &[SECOND]], Budget { looks: 1, ..NONE }),
        "across both ways" => world([&[ACROSS], &[BACK]], NONE),
        "one across and another behind it" => world([&[ACROSS, FIRST], &[]], Budget { looks: 1, ..NONE }),
        "a message is lost" => world([&[ACROSS], &[]], Budget { losses: 1, ticks: 1, ..NONE }),
        "a message is repeated" => world([&[ACROSS], &[]], Budget { repeats: 1, looks: 1, ..NONE }),
        "its end is not known" => world([&[ACROSS], &[]], Budget { unknowns: 1, looks: 1, ..moves }),
        "a slot moves under one across" => world([&[ACROSS], &[]], Budget { ticks: 2, ..moves }),
        "a slot moves, and a lease is out" => {
            let heard = [Action::Raise, Action::Hear(1)];
            world([&[FIRST_BEHIND], &[]], Budget { ticks: 2, renewals: 1, ..moves }).renewing(1, 0).after(&heard)
        }
        "a slot moves, and its session says so" => world([&[FIRST_BEHIND], &[]], Budget { renewals: 1, ..moves }),
        "a slot moves, and a session says nothing" => {
            // It has learned of the roster with its first renewal.
            let moved = [Action::Raise, Action::Hear(0), Action::Hear(1), Action::Gain(1), Action::Renew(1, 1)];
            world([&[SECOND], &[]], Budget { ticks: 2, renewals: 2, ..moves }).after(&moved).delivered(3)
        }
        "the announcer dies" => world([&[ACROSS], &[]], Budget { looks: 1, ..dies }),
        "the announcer dies, and terms end" => world([&[ACROSS], &[]], Budget { ticks: 2, renewals: 1, ..dies }),
        "the other holder dies" => world([&[BACK], &[FIRST]], dies),
        other => unreachable!("{other}"),
    };
    (name, world)
}

const ALL: [&str; 13] = [
    "one across beside one",
    "across both ways",
    "one across and another behind it",
    "a message is lost",
    "a message is repeated",
    "its end is not known",
    "a slot moves under one across",
    "a slot moves, and a lease is out",
    "a slot moves, and its session says so",
    "a slot moves, and a session says nothing",
    "the announcer dies",
    "the announcer dies, and terms end",
    "the other holder dies",
];

const BOUNDS: Bounds = Bounds { states_max: 8_000, drain_every: 16, drain_max: 400 };

#[test]
fn no_session_shows_what_a_change_at_two_holders_made_stale_and_each_change_ends() {
    let mut marks = BTreeMap::new();
    for (name, world) in ALL.map(|name| system(name, Plant::Nothing)) {
        let at = std::time::Instant::now();
        let report: Report = explore(world, &BOUNDS).unwrap_or_else(|failure| panic!("{name}: {failure:#?}"));
        println!("{name}: {:?} {report:?}", at.elapsed());
        for (mark, count) in report.marks {
            *marks.entry(mark).or_insert(0) += count;
        }
    }
    for mark in [
        "a change waits for both holders",
        "one of two is ready",
        "a release is under way",
        "a slot has moved",
        "a session does not know the roster",
        "an announcer is dead",
        "a change is fenced",
        "both sessions cache",
        "a change has ended after the move",
    ] {
        assert!(marks.get(mark).is_some_and(|count| *count > 20), "hardly reached: {mark}, of {marks:?}");
    }
}

#[test]
fn every_planted_mistake_of_several_holders_is_found() {
    // Each where it shows: to look for it in all of them would only take longer.
    let plants = [
        (Plant::OneReadyIsEnough, "one across beside one"),
        (Plant::ReleasedBeforeTheEpoch, "the announcer dies"),
        (Plant::NoTermForTheNewHolder, "a slot moves, and a lease is out"),
        (Plant::EpochNotCompared, "the announcer dies"),
        (Plant::GainedBeforeAllHeard, "a slot moves, and a lease is out"),
        (Plant::UnknownTakenForFailed, "its end is not known"),
        (Plant::RenewalOfANewerEpochCounts, "a slot moves, and a lease is out"),
        (Plant::SaidBeforeDropped, "a slot moves, and its session says so"),
        (Plant::EndedWhileLive, "a slot moves, and a session says nothing"),
    ];
    for (plant, name) in plants {
        let found = explore(system(name, plant).1, &Bounds { states_max: 40_000, drain_every: 0, drain_max: 0 });
        let failure = found.expect_err(&format!("{plant:?} was not found"));
        println!("{plant:?}: {} in {} states, {} steps ({name})", failure.what, failure.states, failure.trace.len());
        assert!(failure.what.contains("shows"), "{plant:?}: {failure:#?}");
    }
}
