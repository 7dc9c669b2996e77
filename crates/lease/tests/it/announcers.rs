//! The rules of several holders one by one: announcements, epochs, numbers, and what a client keeps of whom.
#![allow(clippy::unwrap_used)]

use crate::server::*;
use braid_lease::*;
use braid_types::{InodeId, MemberId, MembershipEpoch, SessionId, Slot, SlotSet};

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);

/// An inode in slot 0, which the first holds, and one in slot 1.
const NEAR: InodeId = InodeId(4096);
const FAR: InodeId = InodeId(4097);

/// Slot 0 is the first's; slot 1 the second's, or with `moved` the first's; all others are the first's.
fn roster(epoch: u64, moved: bool, members: &[MemberId]) -> Roster {
    let members = members.iter().copied().collect();
    Roster::new(MembershipEpoch(epoch), members, |slot| if slot.0 == 1 && !moved { TWO } else { ONE })
}

fn announcer() -> Announcer {
    Announcer::new(&Limits::default(), ONE, roster(1, false, &[ONE, TWO]))
}

fn on(announcer: &mut Announcer, at: u64, happened: Happened) -> Vec<Step> {
    let mut steps = Vec::new();
    announcer.on(Moment(ms(at)), happened, &mut steps);
    steps
}

fn begin(announcer: &mut Announcer, change: u64, keys: &[Key]) -> Vec<Step> {
    on(announcer, 0, Happened::Begin { change, session: A, keys: keys.to_vec(), unlinks: None })
}

fn ready(announcer: &mut Announcer, change: u64, from: MemberId, epoch: u64) -> Vec<Step> {
    let (epoch, open) = (MembershipEpoch(epoch), vec![]);
    on(announcer, 0, Happened::Ready { from, change, epoch, open, unsure: false })
}

fn released(steps: &[Step]) -> Vec<(MemberId, Vec<Key>)> {
    let release = |step: &Step| match step {
        Step::Release { to, keep, .. } => Some((*to, keep.clone())),
        _ => None,
    };
    steps.iter().filter_map(release).collect()
}

fn is_transacted(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Transact { .. }))
}

// --- the server that runs a change ---

#[test]
fn a_change_is_transacted_when_all_are_ready_under_the_epoch_it_was_begun_under() {
    let mut a = announcer();
    let steps = begin(&mut a, 5, &[Key::Dir(NEAR), Key::Dir(FAR), Key::Attr(NEAR)]);
    let told: Vec<_> = steps
        .iter()
        .map(|step| match step {
            Step::Announce { to, keys, epoch: MembershipEpoch(1), .. } => (*to, keys.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [(ONE, vec![Key::Dir(NEAR), Key::Attr(NEAR)]), (TWO, vec![Key::Dir(FAR)])]);
    assert!(!is_transacted(&ready(&mut a, 5, ONE, 1)));
    assert!(!is_transacted(&ready(&mut a, 5, ONE, 1)), "a repetition is not the other's");
    assert!(!is_transacted(&ready(&mut a, 5, TWO, 2)), "under another epoch");
    assert!(is_transacted(&ready(&mut a, 5, TWO, 1)));
    assert!(!is_transacted(&ready(&mut a, 5, TWO, 1)), "once");
}

#[test]
fn a_change_of_one_slot_that_is_held_here_needs_nobody_else() {
    let mut a = announcer();
    let steps = begin(&mut a, 5, &[Key::Dir(NEAR), Key::Attr(NEAR)]);
    assert!(matches!(steps[..], [Step::Announce { to: ONE, .. }]), "{steps:?}");
    assert!(is_transacted(&ready(&mut a, 5, ONE, 1)));
    let keep = vec![Key::Attr(NEAR)];
    let steps = on(&mut a, 0, Happened::Answered { change: 5, keep: keep.clone() });
    assert_eq!(released(&steps), [(ONE, keep.clone())]);
    let steps = on(&mut a, 0, Happened::Released { from: ONE, change: 5, granted: keep.clone() });
    assert_eq!(steps, [Step::Kept { change: 5, granted: keep }]);
    assert!(a.is_empty() && a.wakeup().is_none());
}

#[test]
fn what_is_lost_is_said_again_and_no_answer_waits_for_long() {
    let mut a = announcer();
    begin(&mut a, 5, &[Key::Dir(NEAR), Key::Dir(FAR)]);
    ready(&mut a, 5, ONE, 1);
    assert_eq!(a.wakeup(), Some(Moment(ms(500))));
    let steps = on(&mut a, 500, Happened::Tick);
    assert!(matches!(steps[..], [Step::Announce { to: TWO, .. }]), "{steps:?}");
    ready(&mut a, 5, TWO, 1);
    assert_eq!(a.wakeup(), None, "the engine has it");
    let keep = vec![Key::Dir(NEAR), Key::Dir(FAR)];
    on(&mut a, 600, Happened::Answered { change: 5, keep });
    let near = vec![Key::Dir(NEAR)];
    assert_eq!(on(&mut a, 600, Happened::Released { from: ONE, change: 5, granted: near.clone() }), []);
    let steps = on(&mut a, 1100, Happened::Tick);
    assert_eq!(released(&steps), [(TWO, vec![Key::Dir(FAR)])]);
    assert!(steps.contains(&Step::Kept { change: 5, granted: near }), "{steps:?}");
    assert_eq!(released(&on(&mut a, 1600, Happened::Tick)), [(TWO, vec![Key::Dir(FAR)])]);
    assert_eq!(on(&mut a, 1700, Happened::Released { from: TWO, change: 5, granted: vec![Key::Dir(FAR)] }), []);
    assert!(a.is_empty());
}

#[test]
fn what_is_not_known_is_released_when_it_is_or_when_the_epoch_was_raised() {
    let mut a = announcer();
    for change in [5, 6, 7] {
        begin(&mut a, change, &[Key::Dir(NEAR), Key::Dir(FAR)]);
        ready(&mut a, change, ONE, 1);
        ready(&mut a, change, TWO, 1);
    }
    assert_eq!(on(&mut a, 0, Happened::Unknown { change: 5 }), []);
    assert_eq!(on(&mut a, 9_000, Happened::Tick), []);
    assert_eq!(on(&mut a, 0, Happened::Unknown { change: 6 }), []);
    assert_eq!(released(&on(&mut a, 0, Happened::Failed { change: 6 })).len(), 2);
    let steps = on(&mut a, 0, Happened::EpochChanged(roster(2, false, &[ONE, TWO])));
    assert_eq!(released(&steps).len(), 2, "only that which is not known: {steps:?}");
    assert!(steps.iter().all(|step| matches!(step, Step::Release { announcement, .. } if announcement.number == 5)));
    assert_eq!(released(&on(&mut a, 0, Happened::Unknown { change: 7 })).len(), 2, "fenced by now");
}

#[test]
fn a_change_that_waits_is_given_up_with_its_epoch_and_who_is_no_member_is_told_nothing() {
    let mut a = announcer();
    begin(&mut a, 5, &[Key::Dir(NEAR), Key::Dir(FAR)]);
    ready(&mut a, 5, ONE, 1);
    let steps = on(&mut a, 0, Happened::EpochChanged(roster(2, true, &[ONE])));
    assert!(steps.contains(&Step::GiveUp { change: 5, why: Why::EpochChanged }), "{steps:?}");
    assert_eq!(released(&steps), [(ONE, vec![])]);
    on(&mut a, 0, Happened::Released { from: ONE, change: 5, granted: vec![] });
    assert!(a.is_empty());
    let steps = begin(&mut a, 6, &[Key::Dir(NEAR), Key::Dir(FAR)]);
    assert!(matches!(&steps[..], [Step::Announce { to: ONE, keys, .. }] if keys.len() == 2), "{steps:?}");
}

#[test]
fn who_refuses_or_says_nothing_is_named() {
    let mut a = announcer();
    let refused = |change, epoch| Happened::Refused { from: TWO, change, epoch: MembershipEpoch(epoch) };
    begin(&mut a, 5, &[Key::Dir(FAR)]);
    assert_eq!(on(&mut a, 0, refused(5, 0)), [], "it has not heard of the epoch, and is asked again");
    let steps = on(&mut a, 0, refused(5, 1));
    assert_eq!(steps[0], Step::GiveUp { change: 5, why: Why::Refused(TWO) });
    assert_eq!(released(&steps), [(TWO, vec![])]);
    begin(&mut a, 6, &[Key::Dir(NEAR), Key::Dir(FAR)]);
    ready(&mut a, 6, ONE, 1);
    let steps = on(&mut a, 39_000, Happened::Tick);
    assert!(steps.contains(&Step::GiveUp { change: 6, why: Why::Silent(TWO) }), "{steps:?}");
}

#[test]
fn who_has_the_file_open_is_asked_by_the_holder_of_the_file() {
    let mut a = announcer();
    let event = Happened::Begin { change: 5, session: A, keys: vec![Key::Dir(NEAR)], unlinks: Some(FAR) };
    let steps = on(&mut a, 0, event);
    let asks =
        |step: &Step| matches!(step, Step::Announce { to: TWO, keys, unlinks: Some(FAR), .. } if keys.is_empty());
    assert!(steps.len() == 2 && steps.iter().any(asks), "{steps:?}");
    ready(&mut a, 5, ONE, 1);
    let (epoch, open) = (MembershipEpoch(1), vec![B]);
    let steps = on(&mut a, 0, Happened::Ready { from: TWO, change: 5, epoch, open: open.clone(), unsure: true });
    assert_eq!(steps, [Step::Transact { change: 5, epoch, open, unsure: true }]);
}

// --- the holder ---

fn epoch(epoch: u64, members: &[MemberId], keeps: SlotSet) -> Event {
    Event::Epoch { epoch: MembershipEpoch(epoch), members: members.iter().copied().collect(), keeps }
}

fn slots(slots: &[u64]) -> SlotSet {
    slots.iter().map(|slot| Slot(*slot)).collect()
}

/// Holds slots 0 and 1 under the first epoch; both servers are members.
fn holder(sessions: &[SessionId]) -> Server {
    let mut s = Server { holder: Holder::new(Limits::default(), 1000), now: ms(0), last: 0 };
    s.on(epoch(1, &[ONE, TWO], SlotSet::none()));
    s.on(Event::Gained { epoch: MembershipEpoch(1), slots: slots(&[0, 1]), sessions: vec![] });
    sessions.iter().for_each(|session| _ = s.on(Event::Renew { session: *session }));
    s
}

fn announce(s: &mut Server, server: MemberId, number: u64, keys: &[Key]) -> Vec<Command> {
    let announcement = AnnouncementId { server, number };
    s.on(Event::Announce { announcement, session: A, keys: keys.to_vec(), unlinks: None })
}

fn is_void(out: &[Command]) -> bool {
    out.iter().any(|command| matches!(command, Command::Void { .. }))
}

#[test]
fn what_was_announced_by_who_is_no_member_any_more_is_released_with_the_epoch() {
    let mut s = holder(&[A, B]);
    assert!(is_ready(&announce(&mut s, TWO, 7, &[Key::Attr(NEAR)])));
    assert!(is_ready(&announce(&mut s, ONE, 3, &[Key::Attr(FAR)])));
    assert_eq!(s.get(B, &Key::Attr(NEAR)), Err(Refusal::Changing));
    s.on(epoch(2, &[ONE], slots(&[0, 1])));
    assert_eq!(s.get(B, &Key::Attr(NEAR)), Ok(()));
    assert_eq!(s.get(B, &Key::Attr(FAR)), Err(Refusal::Changing), "of a member it stays");
    assert!(is_void(&announce(&mut s, TWO, 8, &[Key::Attr(NEAR)])), "what comes late nobody would release");
    s.on(Event::Release { announcement: AnnouncementId { server: ONE, number: 3 }, keep: vec![] });
    assert_eq!(s.get(B, &Key::Attr(FAR)), Ok(()));
}

#[test]
fn an_announcement_that_comes_after_its_release_is_not_taken_for_new() {
    let mut s = holder(&[A, B]);
    announce(&mut s, TWO, 7, &[Key::Attr(NEAR)]);
    s.on(Event::Release { announcement: AnnouncementId { server: TWO, number: 7 }, keep: vec![] });
    assert!(is_void(&announce(&mut s, TWO, 7, &[Key::Attr(NEAR)])), "repeated");
    s.on(Event::Release { announcement: AnnouncementId { server: TWO, number: 9 }, keep: vec![] });
    assert!(is_void(&announce(&mut s, TWO, 9, &[Key::Attr(NEAR)])), "overtaken");
    assert!(is_void(&announce(&mut s, TWO, 8, &[Key::Attr(NEAR)])), "by another: it is made again");
    assert!(is_ready(&announce(&mut s, TWO, 10, &[Key::Attr(NEAR)])));
    assert_eq!(s.get(B, &Key::Attr(FAR)), Ok(()));
}

#[test]
fn slots_that_stay_go_on_and_of_those_that_go_nothing_is_left() {
    let mut s = holder(&[A, B]);
    for id in [NEAR, FAR] {
        assert_eq!(s.get(B, &Key::Attr(id)), Ok(()));
    }
    let across =
        announce(&mut s, TWO, 7, &[Key::Name(NEAR, "x".parse().unwrap()), Key::Name(FAR, "x".parse().unwrap())]);
    assert!(is_ready(&across));
    let lock_ask = s.ask_id();
    let spec = lock(B, 1, (0, 9));
    s.on(Event::Lock { ask: lock_ask, inode: FAR, space: Space::Posix, lock: spec, until: None });
    for session in [A, B] {
        let (ask, until) = (s.ask_id(), Some(Moment(ms(50_000))));
        s.on(Event::Lock { ask, inode: FAR, space: Space::Posix, lock: lock(session, 2, (0, 9)), until });
    }
    let out = s.on(epoch(2, &[ONE, TWO], slots(&[0])));
    assert!(is_void(&out), "ready, and yet never again: {out:?}");
    assert_eq!(answers(&out), [], "nobody is granted a lock on what is forgotten");
    let refused = out.iter().filter(|c| matches!(c, Command::Refuse { why: Refusal::NotHere, .. })).count();
    assert_eq!(refused, 2, "{out:?}");
    assert!(is_void(&announce(&mut s, TWO, 7, &[])), "asked again it says the same");
    assert!(s.holder.has(B, &Key::Attr(NEAR)) && !s.holder.has(B, &Key::Attr(FAR)));
    assert_eq!(s.get(B, &Key::Attr(FAR)), Err(Refusal::NotHere));
    assert!(s.on(Event::Renew { session: B }).iter().all(|c| matches!(c, Command::Renewed { reassert: None, .. })));
}

#[test]
fn who_missed_an_epoch_keeps_nothing_and_has_all_sessions_begin_anew() {
    let mut s = holder(&[A]);
    assert_eq!(s.get(A, &Key::Attr(NEAR)), Ok(()));
    s.on(epoch(3, &[ONE, TWO], slots(&[0, 1])));
    assert!(!s.holder.has(A, &Key::Attr(NEAR)));
    assert_eq!(s.get(A, &Key::Attr(NEAR)), Err(Refusal::NotHere));
    let out = s.on(Event::Renew { session: A });
    assert!(matches!(out[..], [Command::Renewed { reassert: Some(_), anew: true, .. }]), "{out:?}");
    for other in [2, 4] {
        s.on(Event::Gained { epoch: MembershipEpoch(other), slots: slots(&[0]), sessions: vec![] });
        assert_eq!(s.get(A, &Key::Attr(NEAR)), Err(Refusal::NotHere), "of an epoch that is over, or has not been told");
    }
}

#[test]
fn slots_that_come_ask_for_what_is_in_them_alone() {
    let mut s = Server { holder: Holder::new(Limits::default(), 1000), now: ms(0), last: 0 };
    s.on(epoch(1, &[ONE, TWO], SlotSet::none()));
    s.on(Event::Gained { epoch: MembershipEpoch(1), slots: slots(&[0]), sessions: vec![] });
    for session in [A, B] {
        s.on(Event::Renew { session });
    }
    let ask = s.ask_id();
    s.on(Event::Take { ask, session: A, inode: NEAR, want: Want::Write });
    s.on(epoch(2, &[ONE], slots(&[0, 1])));
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: slots(&[1]), sessions: vec![A, B] });
    let rounds = [A, B].map(|session| match s.on(Event::Renew { session })[..] {
        [Command::Renewed { reassert: Some(round), anew: false, prolonged: true, .. }] => round,
        ref other => panic!("{other:?}"),
    });
    assert!(is_ready(&announce(&mut s, ONE, 100, &[Key::Dir(NEAR)])), "nobody can have what is not known here");
    assert!(!is_ready(&announce(&mut s, ONE, 101, &[Key::Dir(FAR)])));
    let file =
        Reasserted { inode: FAR, mode: Mode::Exclusive, handles: Handles::default(), grown: None, locks: vec![] };
    let out = s.on(Event::Reassert { session: A, round: rounds[0], files: vec![file] });
    assert_eq!(grants(&out), [(A, Mode::Exclusive)]);
    assert_eq!(s.holder.owner(NEAR), Some(A), "not said, and not given up");
    let out = s.on(Event::Reassert { session: B, round: rounds[1], files: vec![] });
    assert!(is_ready(&out), "all have said: {out:?}");
    assert_eq!(s.holder.owner(FAR), Some(A));
}

#[test]
fn slots_that_go_while_they_settle_end_no_session() {
    let mut s = holder(&[A]);
    s.on(Event::Gained { epoch: MembershipEpoch(1), slots: slots(&[2]), sessions: vec![A, B] });
    s.on(epoch(2, &[ONE, TWO], slots(&[0, 1])));
    assert_eq!(s.holder.unsaid(), 0);
    let out = s.pass(ms(20_000), &[A]);
    assert!(out.iter().all(|command| !matches!(command, Command::End { .. })), "{out:?}");
}

#[test]
fn a_session_that_is_being_ended_is_live_until_its_term_is_over() {
    let mut s = holder(&[A]);
    s.on(Event::Ending { session: A });
    let out = s.on(Event::Renew { session: A });
    assert!(matches!(out[..], [Command::Renewed { prolonged: false, .. }]), "{out:?}");
    assert!(s.holder.is_live(A, Moment(s.now)));
    s.pass(ms(10_000), &[]);
    assert!(!s.holder.is_live(A, Moment(s.now)));
}

#[test]
fn numbers_rise_from_holder_to_holder_and_above_the_bound_for_all() {
    let token = |out: &[Command]| match out.last() {
        Some(Command::Grant { token, .. }) => *token,
        other => panic!("{other:?}"),
    };
    let sync = |s: &mut Server| {
        for session in [A, B] {
            let ask = s.ask_id();
            let handles = Handles { seq: ask.0, open: true, cached_write: false, sync_write: true };
            s.on(Event::Opened { ask, session, inode: NEAR, handles });
        }
        s.now += ms(5);
        let mut out = Vec::new();
        for session in [A, B] {
            let ask = s.ask_id();
            out = s.on(Event::Take { ask, session, inode: NEAR, want: Want::Write });
            if let Some(recall @ Command::Recall { inode, .. }) = recalls(&out).first() {
                assert_eq!(*inode, NEAR);
                out = s.answer(recall, vec![]);
            }
        }
        out
    };
    // The other holder has given out more numbers than this one.
    let mut s = holder(&[A, B]);
    let floor = Generation(Generation::begin(MembershipEpoch(1)).0 + 1000);
    s.on(Event::EndSync);
    let early = token(&sync(&mut s));
    assert!(early < floor, "before it has heard of the bound");
    let ended = recalls(&s.on(Event::Above { floor }));
    assert_eq!(ended.len(), 2, "what is below it is given up and asked for again");
    for recall in &ended {
        s.answer(recall, vec![]);
    }
    let late = token(&sync(&mut s));
    assert!(late > floor && s.holder.last_number() >= late);
    assert!(recalls(&s.on(Event::Above { floor })).is_empty(), "what is above it stays");
    let mut next = Server { holder: Holder::new(Limits::default(), 1000), now: ms(0), last: 0 };
    next.on(epoch(2, &[TWO], SlotSet::none()));
    assert!(next.holder.last_number() > late, "whatever was given out under the epoch before");
}
