//! Ownership that moves: that it does, when it does not, and with one fault at every place of a move.
#![allow(clippy::unwrap_used)]

use crate::world::faults::Fault;
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

/// Each kind of fault of each server, and of the leader, every half millisecond (`CHAIN_STEP_US`) from the moment a writer is beside
/// another server until ownership has moved, and in the time after in which members greet.
#[test]
fn one_fault_at_every_place_of_a_move() {
    let step = std::env::var("CHAIN_STEP_US").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let mut moved = 0;
    let kinds = |node: usize| {
        let cut = |other: u64| Fault::Cut(other.min(node as u64 + 1), other.max(node as u64 + 1), 7 * S);
        let all = [Fault::Kill(node), Fault::Power(node), Fault::Lose(node), Fault::Pause(node, 7 * S), cut(0)];
        all.into_iter().chain((1..4).filter(move |other| *other != node as u64 + 1).map(cut)).collect::<Vec<_>>()
    };
    for after in (0..14_000).step_by(step) {
        for fault in (0..3).flat_map(kinds).chain([Fault::LeaderDies, Fault::ClientDies(0)]) {
            let mut world = World::calm(7, 2, 6 * S);
            let at = 900 * MS;
            world.at(at, Item::Want { node: 1, chunk: CHUNK });
            world.at(at + after as Us, Item::Fault(fault));
            if let Fault::Kill(node) | Fault::Power(node) = fault {
                world.at(at + after as Us + S, Item::Fault(Fault::Start(node)));
            }
            if let Fault::LeaderDies = fault {
                world.at(at + S, Item::Fault(Fault::LeaderStarts));
            }
            let outcome = world.run();
            assert_eq!(outcome.failure, None, "{fault:?} {after} us after");
            moved += u64::from(outcome.seen.contains_key("ownership taken"));
        }
    }
    assert!(moved > 100, "it moved {moved} times");
}
