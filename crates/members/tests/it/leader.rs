//! What one leader does, to the millisecond.

use crate::roster::roster;
use braid_members::{Answer, Heard, Leader, Limits, MemberId, Moment, Question, Reply, Roster, Seat, Step, Written};
use braid_types::{LeaderEpoch, MembershipEpoch, SlotSet};
use std::time::Duration;

const ME: u64 = 1;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn seat(id: u64) -> Seat {
    Seat { id: MemberId(id), addresses: vec![format!("host-{id}:7000")] }
}

/// Elected as the second, for long, at 1000.
fn elected() -> Leader {
    Leader::new(seat(ME), LeaderEpoch(2), Limits::default(), ms(1_000_000), ms(1_000))
}

fn question(id: u64, knows: Option<u64>) -> Question {
    let Seat { id, addresses } = seat(id);
    Question { member: id, addresses, knows: knows.map(MembershipEpoch), heard: None, leaves: false }
}

fn ids(roster: &Roster) -> Vec<u64> {
    roster.members.iter().map(|seat| seat.id.0).collect()
}

fn writes(leader: &mut Leader, now: Moment) -> Roster {
    match leader.next(now) {
        Step::Write { roster, .. } => roster,
        other => panic!("at {now:?} {other:?}"),
    }
}

/// One that has taken over this row at 1000 and written its own.
fn leader(found: Option<Roster>) -> (Leader, Roster) {
    let mut leader = elected();
    assert_eq!(leader.next(ms(1_000)), Step::Read);
    leader.read(found.clone(), ms(1_000));
    let Step::Write { expects, roster } = leader.next(ms(1_000)) else { panic!("it is not its own") };
    assert_eq!(expects, found);
    leader.wrote(Written::Done, ms(1_000));
    assert_eq!(leader.roster(), Some(&roster));
    (leader, roster)
}

/// The predecessor, 9, led; 2 and 3 were members.
fn predecessors() -> Roster {
    Roster { leader: MemberId(9), ..roster(7, &[ME, 2, 3, 9]) }
}

#[track_caller]
fn told(reply: Reply) -> Answer {
    match reply {
        Reply::Member(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_nothing_is_it_is_the_only_member() {
    let (mut leader, row) = leader(None);
    assert_eq!(
        (row.epoch, row.elected, row.leader, ids(&row)),
        (MembershipEpoch(1), LeaderEpoch(2), MemberId(ME), vec![ME])
    );
    let answer = told(leader.asks(question(ME, None), ms(1_000)));
    assert!(answer.is_settled && answer.lease == ms(999_000), "the election's");
    assert_eq!(leader.next(ms(1_000)), Step::Wait(ms(2_000)));
}

#[test]
fn who_comes_together_is_one_epoch_and_has_nothing_before_it_is_written() {
    let (mut leader, _) = leader(None);
    leader.asks(question(ME, Some(1)), ms(2_000));
    assert_eq!(leader.others(), 0);
    for (id, at) in [(2, 5_000), (3, 5_100), (4, 5_290)] {
        assert_eq!(leader.asks(question(id, None), ms(at)), Reply::Wait);
    }
    assert_eq!(leader.next(ms(5_299)), Step::Wait(ms(5_300)));
    let row = writes(&mut leader, ms(5_300));
    assert_eq!((row.epoch, ids(&row)), (MembershipEpoch(2), vec![1, 2, 3, 4]));
    assert_eq!(leader.others(), 3, "that they come is on its way");
    assert_eq!(leader.asks(question(2, None), ms(5_310)), Reply::Wait);
    assert_eq!(told(leader.asks(question(ME, Some(1)), ms(5_310))).roster.epoch, MembershipEpoch(1));
    leader.wrote(Written::Done, ms(5_320));
    let answer = told(leader.asks(question(2, None), ms(5_330)));
    assert_eq!(
        (answer.roster, answer.is_settled, answer.lease),
        (row, false, ms(9_000)),
        "the leader itself has to follow"
    );
    leader.asks(question(ME, Some(1)), ms(5_340));
    assert!(!told(leader.asks(question(3, None), ms(5_350))).is_settled);
    leader.asks(question(ME, Some(2)), ms(5_360));
    assert!(told(leader.asks(question(3, None), ms(5_370))).is_settled);
    // One that asked once and has gone since is not taken in, and holds up nobody.
    leader.asks(question(5, None), ms(5_400));
    assert!(matches!(leader.next(ms(14_400)), Step::Wait(_)));
}

#[test]
fn who_is_silent_is_written_out_when_its_lease_is_surely_over() {
    let (mut leader, _) = leader(Some(predecessors()));
    for at in [20_000, 21_000] {
        for id in [ME, 2, 3] {
            let heard = Some(Heard { elected: LeaderEpoch(2), given: ms(at - 10) });
            leader.asks(Question { heard, ..question(id, Some(8)) }, ms(at));
        }
    }
    // 9 s and a twentieth from when it was answered last.
    leader.asks(question(3, Some(8)), ms(25_000));
    assert_eq!(leader.next(ms(30_449)), Step::Wait(ms(30_450)));
    // It comes back in the last moment: nobody else has had anything.
    let mut back = leader.clone();
    told(back.asks(question(2, Some(8)), ms(30_449)));
    assert!(matches!(back.next(ms(34_449)), Step::Wait(_)));
    let row = writes(&mut leader, ms(30_450));
    assert_eq!(ids(&row), [1, 3]);
    assert_eq!(leader.asks(question(2, Some(8)), ms(30_460)), Reply::Wait, "nothing, from now on");
    assert_eq!(told(leader.asks(question(3, Some(8)), ms(30_470))).roster.epoch, MembershipEpoch(8));
    leader.wrote(Written::Unknown, ms(31_000));
    assert_eq!(leader.asks(question(2, Some(8)), ms(31_000)), Reply::Wait);
    assert_eq!(leader.next(ms(31_000)), Step::Read);
    leader.read(leader.roster().cloned(), ms(31_010));
    assert_eq!(leader.asks(question(2, Some(8)), ms(31_010)), Reply::Wait, "the first attempt may come through");
    assert_eq!(writes(&mut leader, ms(31_010)), row, "the same again");
    leader.wrote(Written::Not(Some(row.clone())), ms(31_020));
    assert_eq!(leader.asks(question(2, Some(8)), ms(31_030)), Reply::Out(row.epoch));
    // Nobody else lost anything: no need to wait for them.
    let answer = told(leader.asks(question(3, Some(8)), ms(31_030)));
    assert_eq!((answer.roster, answer.is_settled), (row, true));
}

#[test]
fn a_write_of_which_nothing_was_heard_is_believed_when_it_is_seen() {
    let (mut leader, _) = leader(None);
    leader.asks(question(2, None), ms(2_000));
    let row = writes(&mut leader, ms(2_300));
    leader.wrote(Written::Unknown, ms(5_300));
    assert_ne!(leader.roster(), Some(&row));
    assert_eq!(leader.next(ms(5_300)), Step::Read);
    leader.read(Some(row.clone()), ms(5_310));
    assert_eq!(leader.roster(), Some(&row));
}

#[test]
fn one_that_takes_over_waits_for_what_was_granted_before_it_or_for_those_who_have_it() {
    let (first, row) = leader(Some(predecessors()));
    assert_eq!((row.epoch, ids(&row)), (MembershipEpoch(8), vec![1, 2, 3]), "the predecessor answers nothing more");
    let settled = |leader: &mut Leader, now| told(leader.asks(question(ME, Some(8)), ms(now))).is_settled;
    // Nobody but the leader itself speaks: 9.45 s since it was elected.
    let mut silent = first.clone();
    assert!(!settled(&mut silent, 10_449) && settled(&mut silent, 10_450));
    // They follow the row of before, and nobody has lost anything since: that is enough.
    let mut soon = first.clone();
    soon.asks(question(2, Some(7)), ms(1_100));
    assert!(!settled(&mut soon, 1_200));
    soon.asks(question(3, Some(7)), ms(1_300));
    assert!(settled(&mut soon, 1_400));
    // An older one may mean anything. What is granted now counts as well.
    let mut old = first.clone();
    old.asks(question(2, Some(6)), ms(1_100));
    old.asks(question(3, Some(7)), ms(5_000));
    assert!(!settled(&mut old, 10_549) && settled(&mut old, 10_550));
    // A longer lease of the predecessor's is waited for, and told to the next.
    let (mut long, row) = leader(Some(Roster { lease_ms: 20_000, ..predecessors() }));
    assert!(row.lease_ms == 20_000 && !settled(&mut long, 21_999) && settled(&mut long, 22_000));
    let (_, row) = leader(Some(Roster { lease_ms: 10, ..predecessors() }));
    assert_eq!(row.lease_ms, 9_000);
}

#[test]
fn one_that_was_elected_and_wrote_nothing_is_a_member_like_others() {
    let found = Roster { leader: MemberId(8), ..predecessors() };
    let (mut leader, row) = leader(Some(found));
    assert_eq!(ids(&row), [1, 2, 3, 9]);
    for id in [2, 3] {
        leader.asks(question(id, Some(7)), ms(9_000));
    }
    assert!(matches!(leader.next(ms(10_449)), Step::Wait(_)));
    assert_eq!(ids(&writes(&mut leader, ms(10_450))), [1, 2, 3]);
}

#[test]
fn a_new_member_takes_what_others_have_let_go() {
    let (mut leader, _) = leader(Some(roster(7, &[ME, 2])));
    leader.asks(question(ME, Some(8)), ms(2_000));
    leader.asks(question(2, Some(8)), ms(2_000));
    leader.asks(question(3, None), ms(2_500));
    let row = writes(&mut leader, ms(2_800));
    assert!(!Roster::slots_that_move(&roster(8, &[ME, 2]), &row).is_empty());
    leader.wrote(Written::Done, ms(2_810));
    leader.asks(question(ME, Some(9)), ms(2_820));
    assert!(!told(leader.asks(question(3, None), ms(2_830))).is_settled);
    // It is told, and goes on for what stays: nobody is kept waiting but who gains.
    let answer = told(leader.asks(question(2, Some(8)), ms(3_000)));
    assert_eq!((answer.roster.epoch, answer.lease), (MembershipEpoch(9), ms(9_000)));
    assert!(!told(leader.asks(question(3, Some(9)), ms(3_010))).is_settled);
    let mut silent = leader.clone();
    assert!(!told(silent.asks(question(3, Some(9)), ms(12_449))).is_settled, "it may not have heard");
    assert!(told(silent.asks(question(3, Some(9)), ms(12_450))).is_settled);
    leader.asks(question(2, Some(9)), ms(4_000));
    assert!(told(leader.asks(question(3, Some(9)), ms(4_010))).is_settled);
}

#[test]
fn who_leaves_in_order_is_written_out_at_once() {
    let (mut leader, _) = leader(Some(roster(7, &[ME, 2, 3])));
    leader.asks(question(2, Some(8)), ms(2_000));
    leader.leaves(MemberId(2));
    assert_eq!(leader.asks(question(2, Some(8)), ms(2_001)), Reply::Wait, "what it asked before comes late");
    leader.leaves(MemberId(ME));
    assert_eq!(ids(&writes(&mut leader, ms(2_002))), [ME, 3], "the leader has to be succeeded first");
    leader.wrote(Written::Done, ms(2_003));
    let last_word = Question { leaves: true, ..question(3, Some(9)) };
    assert_eq!(leader.asks(last_word, ms(2_004)), Reply::Wait);
    assert_eq!(ids(&writes(&mut leader, ms(2_005))), [ME]);
}

#[test]
fn who_hears_nothing_is_given_nothing() {
    let (mut leader, _) = leader(Some(roster(7, &[ME, 2])));
    let ask = |leader: &mut Leader, now, heard: Option<(u64, u64)>| {
        let heard = heard.map(|(elected, given)| Heard { elected: LeaderEpoch(elected), given: ms(given) });
        told(leader.asks(Question { heard, ..question(2, Some(8)) }, ms(now))).lease
    };
    assert_eq!(ask(&mut leader, 18_999, Some((1, 900_000))), ms(9_000), "another leader's time says nothing");
    assert_eq!(ask(&mut leader, 19_000, None), ms(0), "two leases without a word");
    let mut hears = leader.clone();
    assert_eq!(ask(&mut hears, 20_000, Some((2, 19_000))), ms(9_000));
    ask(&mut leader, 28_448, None);
    assert!(matches!(leader.next(ms(28_448)), Step::Wait(_)));
    assert_eq!(ids(&writes(&mut leader, ms(28_449))), [ME]);
}

#[test]
fn a_leader_that_was_none_for_a_while_grants_nothing_then_and_counts_nobody_out_at_once() {
    let (mut leader, _) = leader(Some(roster(7, &[ME, 2])));
    leader.leads(ms(3_000), ms(2_000));
    told(leader.asks(question(2, Some(8)), ms(2_999)));
    assert_eq!(leader.asks(question(2, Some(8)), ms(3_000)), Reply::NotLeading);
    assert!(matches!(leader.next(ms(14_000)), Step::Wait(_)));
    leader.leads(ms(1_000_000), ms(14_000));
    assert!(matches!(leader.next(ms(14_000)), Step::Wait(_)));
    assert!(matches!(leader.next(ms(22_999)), Step::Wait(_)));
    assert_eq!(ids(&writes(&mut leader, ms(23_000))), [ME]);
}

#[test]
fn rows_of_others_end_it_or_are_taken_over() {
    // A predecessor's last word comes through before this one's first.
    let mut late = elected();
    late.next(ms(1_000));
    late.read(Some(predecessors()), ms(1_000));
    writes(&mut late, ms(1_000));
    let last = Roster { epoch: MembershipEpoch(8), ..roster(8, &[ME, 3, 9]) };
    late.wrote(Written::Not(Some(Roster { leader: MemberId(9), ..last })), ms(1_010));
    let row = writes(&mut late, ms(1_020));
    assert_eq!((row.epoch, ids(&row)), (MembershipEpoch(9), vec![ME, 3]));
    // Everything else is a successor's.
    let next = Roster { elected: LeaderEpoch(3), ..predecessors() };
    for found in [Some(next.clone()), None] {
        let (mut one, _) = leader(None);
        one.asks(question(2, None), ms(2_000));
        writes(&mut one, ms(2_300));
        one.wrote(Written::Not(found), ms(2_310));
        assert!(one.is_over() && one.roster().is_none());
        assert_eq!(one.asks(question(ME, Some(1)), ms(2_320)), Reply::NotLeading);
        assert_eq!(one.next(ms(2_320)), Step::Wait(Moment::MAX));
    }
    let mut one = elected();
    one.read(Some(next), ms(1_000));
    assert!(one.is_over());
}

#[test]
fn a_roster_has_room_for_so_many() {
    let limits = Limits { members_max: 3, ..Limits::default() };
    let mut leader = Leader::new(seat(ME), LeaderEpoch(2), limits, ms(1_000_000), ms(0));
    leader.read(None, ms(0));
    writes(&mut leader, ms(0));
    leader.wrote(Written::Done, ms(0));
    (2..100).for_each(|id| assert_eq!(leader.asks(question(id, None), ms(100)), Reply::Wait));
    assert_eq!(ids(&writes(&mut leader, ms(500))), [1, 2, 3]);
    leader.wrote(Written::Done, ms(510));
    leader.asks(question(50, None), ms(520));
    assert!(matches!(leader.next(ms(900)), Step::Wait(at) if at > ms(900)), "it waits until one goes");
    let shares = leader.roster().map(Roster::shares).unwrap_or_default();
    assert_eq!(shares.values().fold(SlotSet::none(), |all, share| all.or(share)), SlotSet::all());
}
