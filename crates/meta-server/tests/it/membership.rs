//! Several that serve at once, with real clocks and a third of the real times: who answers for what when one comes, stops or dies.

mod world;

use braid_members::Seat;
use braid_types::{MemberId, SlotSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use world::{World, limits, rounds};

#[test]
fn all_slots_are_answered_for_each_by_one_and_who_comes_takes_only_its_share() {
    let mut world = World::new();
    world.start(true);
    world.until_well(rounds(4));
    let alone = world.answers(0);
    assert_eq!(alone, SlotSet::all());
    world.start(false);
    world.until_well(rounds(5));
    let shared = [world.answers(0), world.answers(1)];
    world.start(false);
    world.until_well(rounds(5));
    for (which, before) in shared.iter().enumerate() {
        assert!(world.answers(which).is_within(before), "{which} took something from another that stays");
    }
    world.there.iter().for_each(|process| world.changes(process).expect("it is of the present epoch"));
}

/// What it held is nobody's for its lease and no longer; and it changes nothing after that, if it was not dead after all.
#[test]
fn what_a_killed_one_held_is_answered_for_by_others_when_its_lease_is_over() {
    let mut world = World::new();
    world.start(true);
    world.start(false);
    world.start(false);
    world.until_well(rounds(7));
    let held = world.answers(2);
    let stays = [world.answers(0), world.answers(1)];
    let killed = world.kill(2);
    world.until("its slots are taken", limits().believed(limits().lease) + rounds(4), |world| {
        for (which, before) in stays.iter().enumerate() {
            assert!(before.is_within(&world.answers(which)), "{which} stood still for the death of another");
        }
        let taken = world.answers(0).or(&world.answers(1)).both(&held);
        let still = world::answers_of(&killed.membership);
        assert!(still.both(&taken).is_empty(), "the one that was taken for dead answers as well");
        taken == held
    });
    assert!(!killed.membership.is_member());
    world.changes(&killed).expect_err("a process that was written out changes nothing");
    world.changes(&world.there[1]).expect("it has heard of the next epoch");
}

#[test]
fn one_that_stops_in_order_is_waited_for_by_nobody() {
    let mut world = World::new();
    world.start(true);
    world.start(false);
    world.until_well(rounds(5));
    world.stop(1);
    let took = world.until_well(rounds(4));
    assert!(took < limits().lease, "{took:?}, as if it had been killed");
}

#[test]
fn the_next_leader_finds_the_others_and_they_go_on_meanwhile() {
    let mut world = World::new();
    world.start(true);
    world.start(false);
    world.start(false);
    world.until_well(rounds(7));
    let (killed, id) = (world.kill(0), world.there[0].membership.me());
    // What it has with the next one as well.
    let mut next = killed.membership.roster().expect("it led");
    next.members.retain(|seat| seat.id != next.leader);
    next.members.push(Seat { id: MemberId(4), addresses: Vec::new() });
    let stays = world.answers(0).both(&next.slots_of(id));
    assert!(stays.len() > 500, "{stays:?}");
    let (begun, watched, done) = (Instant::now(), world.there[0].membership.clone(), Arc::new(AtomicBool::new(false)));
    let is_done = done.clone();
    let watching = std::thread::spawn(move || {
        while !is_done.load(SeqCst) {
            assert!(stays.is_within(&world::answers_of(&watched)), "it stood still after {:?}", begun.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    world.start(true);
    // Before it gives anything to the new one.
    world.until("the others follow the next leader", rounds(9), |world| {
        let roster = world.there[1].membership.roster();
        roster.is_some_and(|roster| roster.leader == world.there[2].membership.me())
    });
    done.store(true, SeqCst);
    watching.join().expect("it never stood still");
    world.until_well(limits().believed(limits().lease) + rounds(5));
    world.there.iter().for_each(|process| world.changes(process).expect("it is of the present epoch"));
}

/// What one has lost is not taken as long as something of it may be under way there.
#[test]
fn nothing_is_taken_over_before_it_is_let_go() {
    let mut world = World::new();
    world.start(true);
    world.until_well(rounds(4));
    world.there[0].server.is_busy.store(true, SeqCst);
    world.start(false);
    world.until("the second is in the roster", rounds(5), |world| world.there[1].membership.roster().is_some());
    let begun = Instant::now();
    while begun.elapsed() < rounds(3) {
        world.check();
        assert!(world.answers(1).is_empty(), "it took what the first has not let go");
        assert!(!world.answers(0).is_empty(), "what stays with the first waits for nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
    world.there[0].server.is_busy.store(false, SeqCst);
    world.until_well(rounds(4));
}
