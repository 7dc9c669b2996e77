//! What one member does.

use crate::roster::roster;
use braid_members::{Answer, Change, Heard, Limits, Member, MemberId, Moment, Next, Question, Reply, Roster};
use braid_types::{LeaderEpoch, MembershipEpoch, Slot, SlotSet};
use std::time::Duration;

const ME: u64 = 2;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn answer(roster: &Roster, is_settled: bool) -> Reply {
    Reply::Member(Answer { roster: roster.clone(), is_settled, lease: ms(9_000), given: ms(77) })
}

fn one() -> Member {
    Member::new(MemberId(ME), vec!["here:7000".into()], Limits::default())
}

/// One that was told at 100 what it had asked at 0.
fn member(roster: &Roster) -> Member {
    let mut one = one();
    assert!(matches!(one.next(ms(0)), Next::Ask(_)));
    one.hears(answer(roster, true), ms(0), ms(100));
    one
}

fn answers(one: &Member, now: Moment) -> SlotSet {
    (0..braid_types::SLOT_COUNT).map(Slot).filter(|slot| one.may_answer(*slot, now)).collect()
}

fn slots(list: &[(Slot, Option<MemberId>)]) -> SlotSet {
    list.iter().map(|(slot, _)| *slot).collect()
}

#[test]
fn it_answers_for_its_slots_for_a_lease_from_when_it_asked() {
    let row = roster(4, &[1, ME, 3]);
    let mut one = one();
    let Next::Ask(Question { knows: None, heard: None, .. }) = one.next(ms(0)) else { panic!("it knows nothing") };
    assert_eq!(one.next(ms(999)), Next::Wait(ms(1_000)));
    assert_eq!(one.hears(Reply::Wait, ms(0), ms(10)), Change::default());
    assert!(answers(&one, ms(10)).is_empty());
    let change = one.hears(answer(&row, true), ms(0), ms(4_000));
    assert!(slots(&change.gained) == row.slots_of(MemberId(ME)) && change.lost.is_empty());
    assert_eq!(answers(&one, ms(8_999)), row.slots_of(MemberId(ME)));
    assert!(answers(&one, ms(9_000)).is_empty(), "and not from when it was answered");
    let Next::Ask(question) = one.next(ms(4_000)) else { panic!("a round is over") };
    assert_eq!(question.knows, Some(MembershipEpoch(4)));
    assert_eq!(question.heard, Some(Heard { elected: LeaderEpoch(1), given: ms(77) }));
    one.is_outdated(ms(4_100));
    assert!(matches!(one.next(ms(4_100)), Next::Ask(_)), "there is news");
}

#[test]
fn what_it_lost_is_gone_at_once_and_what_it_gained_is_there_when_all_have_let_go() {
    let (few, more) = (roster(4, &[1, ME]), roster(5, &[1, ME, 3]));
    let mut one = member(&few);
    let (before, after) = (few.slots_of(MemberId(ME)), more.slots_of(MemberId(ME)));
    let change = one.hears(answer(&more, false), ms(1_000), ms(1_100));
    assert_eq!(slots(&change.lost), before.without(&after));
    assert!(change.gained.is_empty() && change.lost.iter().all(|(_, to)| *to == Some(MemberId(3))));
    assert_eq!(answers(&one, ms(1_100)), after);
    // The one that came goes again.
    let again = roster(6, &[1, ME]);
    assert!(one.hears(answer(&again, false), ms(2_000), ms(2_100)).is_empty());
    assert_eq!(answers(&one, ms(2_100)), after, "somebody may answer still");
    let change = one.hears(answer(&again, true), ms(3_000), ms(3_100));
    assert_eq!(slots(&change.gained), before.without(&after));
    assert!(change.lost.is_empty() && change.gained.iter().all(|(_, from)| *from == Some(MemberId(3))));
}

#[test]
fn what_is_late_changes_nothing() {
    let (few, more) = (roster(4, &[1, ME]), roster(5, &[1, ME, 3]));
    let mut one = member(&more);
    assert!(one.hears(answer(&few, true), ms(5_000), ms(5_100)).is_empty());
    assert!(one.hears(Reply::Out(MembershipEpoch(5)), ms(5_000), ms(5_100)).is_empty());
    assert!(one.learns(few, ms(5_100)).is_empty());
    assert_eq!(answers(&one, ms(8_999)), more.slots_of(MemberId(ME)));
    assert!(answers(&one, ms(9_000)).is_empty(), "an older row's lease is none");
    // An answer to an older question does not make the lease shorter.
    one.hears(answer(&more, true), ms(6_000), ms(6_100));
    one.hears(answer(&more, true), ms(3_000), ms(6_200));
    assert!(!answers(&one, ms(14_999)).is_empty() && answers(&one, ms(15_000)).is_empty());
}

/// E, in which it holds a slot; E + 1, of which it does not hear and which gives it to another; E + 2, which gives it back.
#[test]
fn what_another_may_have_held_meanwhile_is_lost_and_gained() {
    let (few, again) = (roster(4, &[1, ME]), roster(6, &[1, ME]));
    let own = few.slots_of(MemberId(ME));
    let mut late = member(&few);
    let change = late.hears(answer(&again, false), ms(10_000), ms(10_100));
    assert_eq!((slots(&change.lost), answers(&late, ms(10_100))), (own.clone(), SlotSet::none()), "its lease was over");
    let change = late.hears(answer(&again, true), ms(11_000), ms(11_100));
    assert!(
        slots(&change.gained) == own && change.gained.iter().all(|(_, from)| from.is_none()),
        "whose it was is not known"
    );
    let mut both = member(&few);
    let change = both.hears(answer(&again, true), ms(10_000), ms(10_100));
    assert!(slots(&change.lost) == own && slots(&change.gained) == own, "both in one answer");
    // The leader had to wait for the end of its lease before it let the other have anything.
    let mut soon = member(&few);
    assert!(soon.hears(answer(&again, false), ms(8_000), ms(8_100)).is_empty());
    assert_eq!(answers(&soon, ms(8_100)), own);
    // Or there was no row in between.
    let mut next = member(&few);
    assert!(next.hears(answer(&roster(5, &[1, ME]), false), ms(10_000), ms(10_100)).is_empty());
    assert_eq!(answers(&next, ms(10_100)), own);
}

#[test]
fn who_is_a_member_no_more_is_over() {
    let row = roster(4, &[1, ME]);
    let own = row.slots_of(MemberId(ME));
    let without = roster(6, &[1, 3]);
    let ends: [fn(&mut Member, &Roster) -> Change; 4] = [
        |one, without| one.hears(answer(without, true), ms(1_000), ms(1_100)),
        |one, _| one.hears(Reply::Out(MembershipEpoch(6)), ms(1_000), ms(1_100)),
        |one, without| one.learns(without.clone(), ms(1_100)),
        |one, _| one.leaves(),
    ];
    for end in ends {
        let mut one = member(&row);
        let change = end(&mut one, &without);
        assert_eq!((slots(&change.lost), change.gained.len()), (own.clone(), 0));
        assert!(one.is_over() && answers(&one, ms(1_100)).is_empty() && one.answers_until() == Moment::ZERO);
        assert_eq!(one.next(ms(9_000)), Next::Over);
        assert!(one.hears(answer(&roster(7, &[1, ME]), true), ms(2_000), ms(2_100)).is_empty() && one.is_over());
    }
    let mut new = one();
    new.hears(Reply::Out(MembershipEpoch(6)), ms(0), ms(10));
    assert!(!new.is_over(), "it has not been one yet");
}

#[test]
fn it_learns_from_the_row_itself_what_it_lost_and_no_more() {
    let (few, more) = (roster(4, &[1, ME, 3]), roster(5, &[1, ME, 4]));
    let mut one = member(&few);
    let change = one.learns(more.clone(), ms(2_000));
    let stays = few.slots_of(MemberId(ME)).both(&more.slots_of(MemberId(ME)));
    assert!(!change.lost.is_empty() && change.gained.is_empty());
    assert_eq!((answers(&one, ms(2_000)), one.epoch()), (stays, Some(MembershipEpoch(5))));
    assert!(answers(&one, ms(9_000)).is_empty(), "a row is no lease");
    assert!(member(&few).learns(few, ms(10)).is_empty());
}

#[test]
fn one_that_leads_has_the_election_s_lease_and_listens_to_nobody() {
    let row = roster(4, &[1, ME]);
    let mut one = member(&row);
    one.leads(ms(5_000), ms(1_100));
    assert!(
        !answers(&one, ms(4_999)).is_empty() && answers(&one, ms(5_000)).is_empty(),
        "not the nine it had been given"
    );
    one.hears(answer(&row, true), ms(2_000), ms(2_100));
    assert!(one.hears(Reply::Out(MembershipEpoch(9)), ms(2_000), ms(2_100)).is_empty());
    one.learns(roster(9, &[1]), ms(2_100));
    assert!(!one.is_over() && one.answers_until() == ms(5_000));
    one.leads(ms(6_000), ms(2_000));
    assert_eq!(one.answers_until(), ms(6_000));
    let own = Roster { leader: MemberId(ME), elected: LeaderEpoch(2), ..roster(5, &[ME]) };
    let reply = Reply::Member(Answer { roster: own, is_settled: true, lease: ms(3_500), given: ms(2_200) });
    let change = one.hears(reply, ms(2_200), ms(2_200));
    assert_eq!((change.gained.len(), one.answers_until()), (row.slots_of(MemberId(1)).len(), ms(5_700)));
    // One whose lease was over when it was elected has nothing before it has asked itself.
    let mut late = member(&row);
    late.leads(ms(20_000), ms(10_000));
    assert!(answers(&late, ms(10_000)).is_empty());
}
