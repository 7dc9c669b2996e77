//! What is remembered of locks while the slot holder is asked and told.

use super::*;
use crate::cache::Cache;
use braid_types::ByteRange;

const FILE: InodeId = InodeId(1);
const NOW: Monotonic = Monotonic(std::time::Duration::ZERO);
const AT: (InodeId, HandleId) = (FILE, HandleId(7));

const HOLDER: MemberId = MemberId(1);

fn say_all(locks: &Locks) -> Vec<(InodeId, Vec<LockRequest>)> {
    locks.say_all(HOLDER, &SlotSet::all())
}

fn request(owner: u64, kind: LockKind) -> LockRequest {
    LockRequest { space: LockSpace::Posix, owner, pid: 1, kind, range: ByteRange::new(0, 10) }
}

/// Nothing is granted here: there is no lease.
fn ask(locks: &Locks, cache: &Cache, request: &LockRequest) -> Asked {
    match locks.begin(cache, NOW, AT, request, false) {
        Step::Ask(asked) => asked,
        _ => panic!("the slot holder is to be asked"),
    }
}

#[test]
fn a_lock_that_came_while_everything_was_told_is_asked_for_again() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    let write = request(1, LockKind::Write);
    let asked = ask(&locks, &cache, &write);
    assert!(say_all(&locks).is_empty());
    assert_eq!(locks.taken(AT, &write, asked), Answered::Unsure);
    locks.heard_all(HOLDER);
    assert_eq!(locks.taken(AT, &write, asked), Answered::Unsure, "what was told did not have it");
    let again = Asked { said: locks.said(FILE).unwrap(), ..asked };
    assert_eq!(locks.taken(AT, &write, again), Answered::Taken);
    assert_eq!(say_all(&locks), [(FILE, vec![write])]);
}

#[test]
fn nothing_is_taken_or_freed_while_the_slot_holder_is_told_what_is_held() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    let write = request(1, LockKind::Write);
    let asked = ask(&locks, &cache, &write);
    assert_eq!(locks.taken(AT, &write, asked), Answered::Taken);
    let (former, recall, later) = (Generation(4), Generation(5), Generation(6));
    locks.hand_back(FILE, recall, true);
    assert_eq!(locks.handing(FILE, recall), Some(vec![write]));
    assert_eq!(locks.handing(FILE, former), Some(vec![write]), "what is heard is taken for all there is");
    assert_eq!(locks.handing(FILE, later), None);
    locks.handed(FILE, former);
    assert!(matches!(locks.begin(&cache, NOW, AT, &request(1, LockKind::Unlock), false), Step::Later));
    assert!(matches!(locks.begin(&cache, NOW, AT, &request(2, LockKind::Read), true), Step::Later));
    locks.handed(FILE, recall);
    let asked = ask(&locks, &cache, &request(1, LockKind::Unlock));
    assert!(say_all(&locks).is_empty(), "what is being freed is not said to be held");
    locks.heard_all(HOLDER);
    locks.not_taken(FILE, asked);
    let nothing = locks.begin(&cache, NOW, AT, &request(1, LockKind::Unlock), false);
    assert!(matches!(nothing, Step::Done(Ok(()))), "freeing what is not held asks nobody");
}

#[test]
fn numbers_below_the_oldest_request_on_its_way_are_done() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    let (one, two) = (request(1, LockKind::Read), request(2, LockKind::Read));
    let (first, second) = (ask(&locks, &cache, &one), ask(&locks, &cache, &two));
    assert!(first.op < second.op && locks.done() == first.op);
    assert_eq!(locks.taken(AT, &two, second), Answered::Taken);
    assert_eq!(locks.done(), first.op);
    locks.not_taken(FILE, first);
    assert_eq!(locks.done(), second.op + 1);
}

#[test]
fn handles_whose_locks_are_gone_are_named_and_no_others() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    for (owner, handle) in [(1, HandleId(7)), (2, HandleId(8))] {
        let read = request(owner, LockKind::Read);
        let asked = ask(&locks, &cache, &read);
        assert_eq!(locks.taken((FILE, handle), &read, asked), Answered::Taken);
    }
    let asked = ask(&locks, &cache, &request(2, LockKind::Unlock));
    locks.not_taken(FILE, asked);
    assert_eq!(locks.lose_all(), BTreeSet::from([HandleId(7)]));
    assert!(locks.lose_all().is_empty());
}

/// One process turns its lock into one for reading, another takes one too, and the second answer comes first.
#[test]
fn answers_that_overtake_one_another_leave_what_the_slot_holder_has() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    let (write, one, two) = (request(1, LockKind::Write), request(1, LockKind::Read), request(2, LockKind::Read));
    let first = ask(&locks, &cache, &write);
    assert_eq!(locks.taken(AT, &write, first), Answered::Taken);
    let (first, second) = (ask(&locks, &cache, &one), ask(&locks, &cache, &two));
    assert_eq!(locks.taken(AT, &two, second), Answered::Taken);
    assert_eq!(locks.taken(AT, &one, first), Answered::Taken);
    let mut held = say_all(&locks).remove(0).1;
    held.sort();
    assert_eq!(held, [one, two]);
}

#[test]
fn one_holder_is_told_of_its_own_slots_and_the_rest_goes_on() {
    let (locks, cache) = (Locks::default(), Cache::new(10));
    let other = InodeId(2);
    let write = request(1, LockKind::Write);
    let asked = ask(&locks, &cache, &write);
    assert_eq!(locks.taken(AT, &write, asked), Answered::Taken);
    let (own, others): (SlotSet, SlotSet) = ([FILE.slot()].into_iter().collect(), [other.slot()].into_iter().collect());
    assert_eq!(locks.say_all(HOLDER, &own), [(FILE, vec![write])]);
    assert_eq!(locks.say_all(MemberId(2), &others), []);
    assert!(locks.said(FILE).is_none() && locks.said(other).is_none());
    locks.heard_all(MemberId(2));
    assert!(locks.said(FILE).is_none() && locks.said(other).is_some());
    assert!(matches!(locks.begin(&cache, NOW, AT, &request(1, LockKind::Unlock), false), Step::Later));
    locks.holders_are(&BTreeSet::from([MemberId(2)]));
    assert!(locks.said(FILE).is_some(), "whoever holds it now asks");
}
