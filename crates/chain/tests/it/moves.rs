//! Ownership that moves: that it does, when it does not, and with one fault at every place of a move.
#![allow(clippy::unwrap_used)]

use crate::world::faults::{ByNumber, Fault};
use crate::world::*;
use braid_chain::{Body, CopyStatus, Envelope, Event};
use braid_types::{ChainEpoch, ChunkId, OwnerTerm, ServerId};

const CHUNK: ChunkId = ChunkId(1);

fn copy(world: &World, node: usize) -> CopyStatus {
    world.nodes[node].machine.as_ref().unwrap().copy(C, CHUNK).unwrap()
}

fn owner(world: &World) -> Vec<ServerId> {
    let owns = |node: &&Node| {
        let copy = node.machine.as_ref().and_then(|machine| machine.copy(C, CHUNK));
        copy.is_some_and(|copy| copy.is_owner)
    };
    world.nodes.iter().filter(owns).map(|node| node.id).collect()
}

/// One client writes; the server beside it asks once.
#[test]
fn ownership_goes_to_the_member_beside_the_writer() {
    let mut world = World::calm(3, 1, 5 * S);
    world.run_for(S).unwrap();
    assert_eq!(owner(&world), [ServerId(1)]);
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    world.run_for(500 * MS).unwrap();
    assert_eq!((owner(&world), copy(&world, 1).term), (vec![ServerId(2)], OwnerTerm(2)));
    let before = world.clients[0].done;
    world.run_for(2 * S).unwrap();
    assert!(world.clients[0].done > before + 20, "{} calls in two seconds", world.clients[0].done - before);
    for node in 0..3 {
        assert_eq!((copy(&world, node).owner, copy(&world, node).epoch), (ServerId(2), Some(ChainEpoch(1))));
    }
    assert_eq!(world.run().failure, None);
}

#[test]
fn ownership_stays_where_it_is_while_a_member_does_not_answer() {
    let mut world = World::calm(3, 1, 20 * S);
    world.run_for(S).unwrap();
    // Until that member is out of the chain, or back.
    world.at(0, Item::Fault(Fault::Pause(2, 1_700 * MS)));
    world.run_for(1_300 * MS).unwrap();
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    world.run_for(350 * MS).unwrap();
    assert_eq!(owner(&world), [ServerId(1)]);
    assert_eq!(world.run().failure, None);
}

/// For how much of so much more time calls wait at the first server for a move.
fn waits(world: &mut World, time: Us) -> Us {
    let end = world.now + time;
    let mut waits = 0;
    while world.now < end {
        world.run_for(MS).unwrap();
        waits += if world.nodes[0].machine.as_ref().unwrap().is_moving(C, CHUNK) { MS } else { 0 };
    }
    waits
}

/// What is refused costs nobody anything: no call waits for a move that cannot be.
#[test]
fn nobody_waits_for_a_move_that_is_refused() {
    // A member has not answered for as long as a move may last.
    let mut world = World::calm(3, 1, 20 * S);
    world.run_for(S).unwrap();
    world.at(0, Item::Fault(Fault::Pause(2, 1_700 * MS)));
    world.run_for(1_300 * MS).unwrap();
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    assert_eq!(waits(&mut world, 350 * MS), 0, "while another member is silent");
    assert_eq!(owner(&world), [ServerId(1)]);
    assert_eq!(world.run().failure, None);
    // Who asks lacks more than what is on its way while a stream is written.
    let mut setup = World::calm(3, 1, 20 * S).setup;
    (setup.blocks, setup.limits.announce_blocks) = (12, 1);
    let mut world = World::new(3, setup);
    world.run_for(S).unwrap();
    world.at(0, Item::Fault(Fault::Full(1, 3 * S)));
    world.run_for(S).unwrap();
    let asks = copy(&world, 1);
    assert!(asks.invalid.len() > 2 && asks.told > asks.complete, "{asks:?}");
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    assert_eq!(waits(&mut world, 800 * MS), 0, "while who asks lacks much");
    assert_eq!(owner(&world), [ServerId(1)]);
    assert_eq!(world.run().failure, None);
}

/// Who asks lacks little, and does not get it: what waits goes on after a second, where it was, in the same epoch.
#[test]
fn a_move_that_comes_to_nothing_ends_after_a_second() {
    let mut world = World::calm(3, 1, 20 * S);
    world.run_for(S).unwrap();
    world.at(0, Item::Fault(Fault::Full(1, 4 * S)));
    while copy(&world, 1).invalid.is_empty() {
        world.run_for(MS).unwrap();
    }
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    let waited = waits(&mut world, 1_800 * MS);
    // It asks again as long as a writer is beside it, for a second: by then the move that began first is over.
    // Clocks are off by up to 1 %, and tick every 50 ms.
    assert!((980 * MS..1_070 * MS).contains(&waited), "calls waited for {waited} us");
    assert_eq!((owner(&world), copy(&world, 0).epoch), (vec![ServerId(1)], Some(ChainEpoch(1))));
    assert_eq!(world.run().failure, None);
}

#[test]
fn who_has_come_to_own_keeps_it_for_a_while() {
    let mut world = World::calm(3, 1, 20 * S);
    world.run_for(S).unwrap();
    world.at(0, Item::Want { node: 1, chunk: CHUNK });
    while owner(&world) != [ServerId(2)] {
        world.run_for(MS).unwrap();
    }
    world.at(0, Item::Want { node: 0, chunk: CHUNK });
    // Clocks are off by up to 1 %.
    world.run_for(240 * MS).unwrap();
    assert_eq!(owner(&world), [ServerId(2)], "less than 250 ms after the first move");
    // It asks for a second, and is refused while it lacks what was written since.
    for _ in 0..5 {
        world.at(0, Item::Want { node: 0, chunk: CHUNK });
        world.run_for(S).unwrap();
    }
    assert_eq!(owner(&world), [ServerId(1)]);
    assert_eq!(world.run().failure, None);
}

/// Of a member that has not got everything nobody waits until it has.
#[test]
fn a_member_that_is_being_repaired_does_not_come_to_own() {
    let mut world = World::calm(5, 1, 25 * S);
    world.run_for(S).unwrap();
    // Server 4 gets the place of server 3, and no content.
    world.at(0, Item::Fault(Fault::Full(3, 30 * S)));
    world.at(0, Item::Fault(Fault::Lose(2)));
    world.run_for(12 * S).unwrap();
    let without = copy(&world, 3);
    assert!(without.epoch > Some(ChainEpoch(1)) && without.complete < without.told, "{without:?}");
    world.at(0, Item::Want { node: 3, chunk: CHUNK });
    world.run_for(S).unwrap();
    assert_ne!(owner(&world), [ServerId(4)]);
    assert_eq!(world.run().failure, None);
}

/// A message that says that ownership is handed over comes again when it has come back since. It must not be believed: that it would be
/// found if it were is seen by the same with the term of now.
#[test]
fn a_late_word_that_hands_over_gives_nothing() {
    for believed in [false, true] {
        let mut world = World::calm(3, 1, 20 * S);
        world.run_for(S).unwrap();
        world.calm = true;
        world.run_for(S).unwrap();
        for node in [1, 0] {
            world.at(0, Item::Want { node, chunk: CHUNK });
            world.run_for(400 * MS).unwrap();
        }
        assert_eq!((owner(&world), copy(&world, 0).term), (vec![ServerId(1)], OwnerTerm(3)));
        let term = if believed { OwnerTerm(3) } else { OwnerTerm(1) };
        let body = Body::Hand { told: copy(&world, 1).told, moves: 1 };
        let envelope = Envelope { container: C, chunk: CHUNK, epoch: ChainEpoch(1), term, body };
        world.node_event(1, Event::FromPeer { from: ServerId(1), envelope }, &[]);
        let checked = world.check_step();
        assert_eq!(checked.is_err(), believed, "{checked:?}");
        assert_eq!(owner(&world).len(), if believed { 2 } else { 1 });
    }
}

/// Two clients write, and from this moment on the server beside one of them wants to own the chunk.
const WANTED: Us = 900 * MS;
/// Members greet who has come to own.
const GREETED: Us = 8 * MS;

fn moving(seed: u64, by_number: Option<ByNumber>) -> World {
    let mut world = World::calm(seed, 2, 6 * S);
    world.by_number = by_number;
    world.at(WANTED, Item::Want { node: 1, chunk: CHUNK });
    world
}

/// The numbers of all steps, or commands, from then on until ownership has moved and members have greeted, where nothing goes wrong.
fn numbers(seed: u64, seen: fn(&World) -> u64) -> std::ops::Range<u64> {
    let mut world = moving(seed, None);
    world.run_for(WANTED - 1).unwrap();
    let before = seen(&world);
    while owner(&world) != [ServerId(2)] {
        assert!(world.now < WANTED + 500 * MS, "seed {seed}: it does not move");
        world.run_for(MS).unwrap();
    }
    world.run_for(GREETED).unwrap();
    before + 1..seen(&world) + 1
}

fn moves_with(seed: u64, by_number: ByNumber) -> bool {
    let outcome = moving(seed, Some(by_number)).run();
    assert_eq!(outcome.failure, None, "seed {seed}, {by_number:?}");
    outcome.seen.contains_key("ownership taken")
}

/// Each kind of fault of each server, and of the leader, before every step of a move: every arrival of a message, every end of work on a
/// disk, every tick. It begins at once in the first; in the second the taker pulls what it lacks while a client writes; in the third it waits
/// for a copy that is on its way.
#[test]
fn one_fault_before_every_step_of_a_move() {
    let kinds = |node: usize| {
        let cut = |other: u64| Fault::Cut(other.min(node as u64 + 1), other.max(node as u64 + 1), 7 * S);
        let all = [Fault::Kill(node), Fault::Power(node), Fault::Lose(node), Fault::Pause(node, 7 * S), cut(0)];
        all.into_iter().chain((1..4).filter(move |other| *other != node as u64 + 1).map(cut)).collect::<Vec<_>>()
    };
    let (mut moved, mut ran) = (0, 0);
    for seed in [0, 4, 7] {
        for step in numbers(seed, |world| world.steps) {
            for fault in (0..3).flat_map(kinds).chain([Fault::LeaderDies, Fault::ClientDies(0)]) {
                moved += u64::from(moves_with(seed, ByNumber::Step(step, fault)));
                ran += 1;
            }
        }
    }
    println!("{ran} faults, it moved {moved} times");
    assert!(ran > 2000 && moved > ran / 4 && moved < ran, "of {ran} it moved {moved} times");
}

/// Whoever is to send a message of a move, to begin work on its disk or to answer dies before it does, all that comes before that done.
#[test]
fn who_is_to_send_a_message_of_a_move_dies_before_it() {
    let (mut moved, mut ran) = (0, 0);
    for seed in 0..12 {
        for command in numbers(seed, |world| world.commands) {
            for power in [false, true] {
                moved += u64::from(moves_with(seed, ByNumber::Command(command, power)));
                ran += 1;
            }
        }
    }
    println!("{ran} deaths, it moved {moved} times");
    assert!(ran > 500 && moved > ran / 4 && moved < ran, "of {ran} it moved {moved} times");
}

/// That these faults would find a mistake, is seen by one.
#[test]
fn a_past_owner_that_answers_is_found_by_a_fault_at_some_place_of_a_move() {
    let mut numbers = numbers(0, |world| world.steps);
    let found = numbers.any(|step| {
        let mut world = moving(0, Some(ByNumber::Step(step, Fault::Pause(0, 7 * S))));
        world.setup.bug = Some(Bug::PastOwnerAnswers);
        world.run().failure.is_some()
    });
    assert!(found);
}
