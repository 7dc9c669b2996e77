//! What one process does.

use braid_election::{Candidate, Limits, Record, Role, Step, Written};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const RECORD: Record = Record { epoch: 7, leader: 1, beat: 3, lease_ms: 4000, released: false };

/// One that leads under epoch 1 since 0.
fn leader() -> (Candidate, Record) {
    let mut one = Candidate::new(9, Limits::default());
    assert_eq!(one.next(ms(0)), Step::Read);
    one.read(None, ms(0));
    let Step::Write { expects: None, record } = one.next(ms(0)) else { panic!("nobody leads") };
    one.wrote(record, Written::Done, ms(0), ms(10));
    assert_eq!((one.role(), record.epoch), (Role::Leads(1), 1));
    (one, record)
}

#[test]
fn a_leader_that_says_nothing_is_succeeded_after_its_lease_and_not_before() {
    let mut other = Candidate::new(9, Limits::default());
    other.next(ms(0));
    other.read(Some(RECORD), ms(100));
    assert_eq!(other.next(ms(200)), Step::Wait(ms(1100)));
    assert_eq!(other.next(ms(1100)), Step::Read);
    other.read(Some(Record { beat: 4, ..RECORD }), ms(1200));
    other.read(Some(Record { beat: 4, ..RECORD }), ms(4000));
    assert_eq!(other.next(ms(5399)), Step::Read, "counted from when the beat was heard first");
    let Step::Write { expects, record } = other.next(ms(5400)) else { panic!("it is over, and a twentieth") };
    assert_eq!((expects, record.epoch, record.beat), (Some(Record { beat: 4, ..RECORD }), 8, 0));
    assert_eq!(other.role(), Role::Stands);
}

#[test]
fn one_that_has_released_is_succeeded_at_once() {
    let mut other = Candidate::new(9, Limits::default());
    other.next(ms(0));
    other.read(Some(Record { released: true, ..RECORD }), ms(5));
    assert!(matches!(other.next(ms(5)), Step::Write { .. }));
    let (mut one, record) = leader();
    let Some(Step::Write { expects, record: last }) = one.release() else { panic!("it led") };
    assert!(expects == Some(record) && last.released && one.role() == Role::Over && !one.may_answer(ms(11)));
    assert_eq!(one.release(), None);
}

#[test]
fn a_leader_answers_for_a_lease_from_the_beginning_of_its_last_beat() {
    let (mut one, record) = leader();
    assert!(one.may_answer(ms(3999)) && !one.may_answer(ms(4000)));
    let Step::Write { expects, record: next } = one.next(ms(1000)) else { panic!("a beat is due") };
    assert_eq!((expects, next.beat), (Some(record), 1));
    one.wrote(next, Written::Done, ms(1000), ms(1500));
    assert!(one.may_answer(ms(4999)) && !one.may_answer(ms(5000)));
    // Nobody has taken it meanwhile: it may again. But not for ever, for who is connected here is to find the next.
    let mut silent = one.clone();
    assert_eq!((silent.next(ms(9000)), silent.role()), (Step::Wait(Duration::MAX), Role::Over));
    let Step::Write { record: late, .. } = one.next(ms(8900)) else { panic!("a beat is due") };
    one.wrote(late, Written::Done, ms(8900), ms(8910));
    assert!(one.may_answer(ms(8910)));
    let Step::Write { record: lost, .. } = one.next(ms(10_000)) else { panic!("a beat is due") };
    one.wrote(lost, Written::Not(Some(RECORD)), ms(10_000), ms(10_010));
    assert!(one.role() == Role::Over && !one.may_answer(ms(10_010)));
}

#[test]
fn a_beat_of_which_nothing_was_heard_is_looked_at() {
    let (mut one, record) = leader();
    let Step::Write { record: next, .. } = one.next(ms(1000)) else { panic!("a beat is due") };
    one.wrote(next, Written::Unknown, ms(1000), ms(3000));
    assert_eq!(one.next(ms(3000)), Step::Read);
    let mut was_done = one.clone();
    was_done.read(Some(next), ms(3010));
    assert!(was_done.may_answer(ms(4999)) && !was_done.may_answer(ms(5000)), "from when it was begun");
    one.read(Some(record), ms(3010));
    assert!(one.may_answer(ms(3999)) && !one.may_answer(ms(4000)));
    let Step::Write { expects, record: again } = one.next(ms(3010)) else { panic!("it is written again") };
    assert_eq!((expects, again.beat, next.beat), (Some(record), 2, 1), "no two attempts say the same");
    // The first of the two comes through after all; of neither is an answer heard.
    let mut late = one.clone();
    late.wrote(again, Written::Unknown, ms(3010), ms(5010));
    late.read(Some(next), ms(5020));
    assert!(matches!(late.role(), Role::Leads(1)) && !late.may_answer(ms(5020)), "since when it stands is not known");
    let Step::Write { expects, record: third } = late.next(ms(5020)) else { panic!("it is written once more") };
    assert_eq!((expects, third.beat), (Some(next), 3));
    one.wrote(again, Written::Not(Some(next)), ms(3010), ms(3020));
    assert!(matches!(one.role(), Role::Leads(1)) && !one.may_answer(ms(4000)), "since when it stands is not known");
    let mut taken = one.clone();
    taken.read(Some(RECORD), ms(3030));
    assert_eq!(taken.role(), Role::Over);
}

#[test]
fn a_slow_database_makes_the_lease_longer_and_a_fast_one_shorter_again() {
    let limits = Limits::default();
    assert_eq!(limits.next_lease(ms(4000), ms(2000)), ms(8000));
    assert_eq!(limits.next_lease(ms(8000), ms(2000)), ms(8000));
    assert_eq!(limits.next_lease(ms(8000), ms(500)), ms(6000));
    assert_eq!(limits.next_lease(ms(4000), ms(1)), ms(4000));
    assert_eq!(limits.next_lease(ms(16_000), ms(12_000)), ms(20_000));
    let (mut one, _) = leader();
    let Step::Write { record, .. } = one.next(ms(1000)) else { panic!("a beat is due") };
    assert_eq!(record.lease_ms, 4000);
    one.wrote(record, Written::Done, ms(1000), ms(3500));
    let Step::Write { record, .. } = one.next(ms(3500)) else { panic!("a beat is due") };
    assert_eq!(record.lease_ms, 8000);
    one.wrote(record, Written::Done, ms(3500), ms(3600));
    assert!(one.may_answer(ms(11_499)) && !one.may_answer(ms(11_500)));
}
