//! The rules one by one, as a slot holder's server would see them.
#![allow(clippy::unwrap_used)]

use crate::server::*;
use braid_lease::*;
use braid_types::{InodeId, MembershipEpoch, Name, SlotSet, Timestamp};

// --- the namespace ---

#[test]
fn a_directory_two_sessions_change_grants_no_listing_until_it_is_quiet() {
    let mut s = Server::new(&[A, B]);
    let (dir, name) = (Key::Dir(DIR), Key::Name(DIR, "x".parse::<Name>().unwrap()));
    for _ in 0..3 {
        s.change(A, std::slice::from_ref(&dir));
    }
    assert_eq!(s.get(B, &dir), Ok(()), "one session alone may change as often as it likes");
    s.now += ms(900);
    s.change(B, std::slice::from_ref(&dir));
    assert_eq!(s.get(A, &dir), Err(Refusal::Busy));
    assert_eq!(s.get(A, &name), Ok(()), "single names are granted all the same");
    s.now += ms(999);
    assert_eq!(s.get(A, &dir), Err(Refusal::Busy));
    s.now += ms(1);
    assert_eq!(s.get(A, &dir), Ok(()));
}

#[test]
fn an_unlink_asks_who_has_it_open() {
    let mut s = Server::new(&[A, B, C]);
    s.open(B, false, false);
    s.open(C, false, false);
    let (announcement, out) = s.announce(A, &[Key::Dir(DIR)], Some(FILE));
    assert!(!is_ready(&out));
    let asked: Vec<_> = out
        .iter()
        .map(|c| match c {
            Command::Revoke { session, revocation, unlinked: Some(FILE), .. } => (*session, *revocation),
            other => panic!("{other:?}"),
        })
        .collect();
    s.on(Event::Acknowledge { session: asked[0].0, revocation: asked[0].1, open: false });
    let out = s.on(Event::Acknowledge { session: asked[1].0, revocation: asked[1].1, open: true });
    let ready = Command::Ready { announcement, epoch: MembershipEpoch(1), open: vec![C], unsure: false };
    assert_eq!(out, [ready]);
    // Who comes while it is transacted has to look again afterwards.
    let late = s.open(A, false, false);
    assert!(matches!(late[..], [Command::Refuse { why: Refusal::Changing, .. }]), "{late:?}");
    s.on(Event::Release { announcement, keep: vec![] });
    assert!(matches!(s.open(A, false, false)[..], [Command::Registered { .. }]));
}

#[test]
fn a_session_that_cannot_be_asked_makes_an_unlink_unsure() {
    let mut s = Server::new(&[A, B]);
    s.open(B, false, false);
    let (_, out) = s.announce(A, &[Key::Dir(DIR)], Some(FILE));
    assert!(!is_ready(&out));
    let out = s.pass(ms(10_000), &[A]);
    assert!(out.iter().any(|c| matches!(c, Command::Ready { unsure: true, .. })), "{out:?}");
}

#[test]
fn memory_is_bounded_by_revoking_the_oldest() {
    let mut s = Server::with(&[A, B], 100);
    for n in 0..100 {
        assert_eq!(s.get(A, &Key::Attr(InodeId(n << 12))), Ok(()));
    }
    let ask = s.ask_id();
    s.on(Event::Ask { ask, session: B });
    let out = s.on(Event::Claim { ask, keys: vec![Key::Dir(DIR)] });
    let Command::Revoke { session: A, revocation, keys, .. } = &out[1] else { panic!("{out:?}") };
    assert_eq!((keys.len(), &keys[0]), (64, &Key::Attr(InodeId(0))));
    // A session that does not answer cannot make the holder grow.
    let refused = (1000..1100).filter(|n| s.get(B, &Key::Attr(InodeId(n << 12))) == Err(Refusal::Full)).count();
    assert_eq!((refused, s.holder.leases().0), (37, 164));
    s.on(Event::Acknowledge { session: A, revocation: *revocation, open: false });
    assert_eq!(s.holder.leases().0, 100);
}

#[test]
fn what_is_granted_again_is_not_among_the_oldest() {
    let mut s = Server::with(&[A, B], 100);
    let key = |n: u64| Key::Attr(InodeId(n << 12));
    for n in (0..100).chain([0, 99, 99]) {
        assert_eq!(s.get(A, &key(n)), Ok(()));
    }
    assert_eq!(s.holder.leases().0, 100);
    let ask = s.ask_id();
    s.on(Event::Ask { ask, session: B });
    let out = s.on(Event::Claim { ask, keys: vec![Key::Dir(DIR)] });
    let Command::Revoke { session: A, keys, .. } = &out[1] else { panic!("{out:?}") };
    assert_eq!((keys.len(), &keys[0], &keys[63]), (64, &key(1), &key(64)));
}

#[test]
fn a_listing_with_attributes_finds_room_when_memory_is_full() {
    let mut s = Server::with(&[A, B], 32 << 10);
    let claim = |s: &mut Server, session, from: u64| {
        let ask = s.ask_id();
        s.holder.on(Moment(s.now), Event::Ask { ask, session });
        let keys = (from..from + 2048).map(|n| Key::Attr(InodeId(n << 12))).collect();
        let out = s.holder.on(Moment(s.now), Event::Claim { ask, keys });
        let Command::Claimed { refused, .. } = &out[0] else { panic!("{out:?}") };
        (refused.len(), out[1..].to_vec())
    };
    for page in 0..16 {
        assert_eq!(claim(&mut s, A, page * 2048), (0, vec![]));
    }
    // The holder of the old ones answers before the next page is asked for: nothing is ever refused.
    for page in 16..40 {
        let (refused, revokes) = claim(&mut s, B, page * 2048);
        assert_eq!((refused, revokes.len()), (0, 4), "page {page}");
        for revoke in revokes {
            let Command::Revoke { session, revocation, keys, .. } = revoke else { panic!("{revoke:?}") };
            assert_eq!(keys.len(), 512, "so that it fits into a message whatever the names are");
            s.holder.on(Moment(s.now), Event::Acknowledge { session, revocation, open: false });
        }
        assert_eq!(s.holder.leases().0, 32 << 10);
    }
}

#[test]
fn a_live_session_that_does_not_answer_is_waited_for_no_longer_than_its_patience_and_term() {
    let mut s = Server::new(&[A, B]);
    s.get(B, &Key::Dir(DIR)).unwrap();
    let (_, out) = s.announce(A, &[Key::Dir(DIR)], None);
    assert!(!is_ready(&out));
    // It renews all the time. 15 s of patience, 10 s of term.
    let early = s.pass(ms(24_000), &[A, B]);
    assert!(!is_ready(&early) && early.iter().any(|c| matches!(c, Command::Revoke { .. })), "it is asked again");
    assert!(!early.contains(&Command::Lapsed { session: B }), "{early:?}");
    let late = s.pass(ms(2_000), &[A, B]);
    assert!(is_ready(&late) && late.contains(&Command::Lapsed { session: B }), "{late:?}");
    assert!(!late.contains(&Command::Lapsed { session: A }), "{late:?}");
    assert_eq!(s.get(B, &Key::Dir(InodeId(5 << 12))), Ok(()), "afterwards it begins anew");
}

#[test]
fn a_new_holder_lets_the_old_term_run_out() {
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A, B] });
    s.on(Event::Renew { session: A });
    let (_, out) = s.announce(A, &[Key::Dir(DIR)], None);
    assert!(!is_ready(&out), "B may hold what the former holder granted");
    assert!(!is_ready(&s.pass(ms(9_900), &[A])));
    assert!(is_ready(&s.pass(ms(200), &[A])));
}

#[test]
fn a_change_does_not_wait_for_what_its_own_session_may_hold() {
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A] });
    assert!(
        is_ready(&s.announce(A, &[Key::Dir(DIR)], None).1),
        "it has not said yet what it holds, and nobody else holds anything"
    );
    assert!(!is_ready(&s.announce(B, &[Key::Dir(InodeId(7 << 12))], None).1));
}

#[test]
fn a_slot_is_given_when_nobody_else_changes_it_and_then_nobody_else_is_granted_anything_there() {
    let mut s = Server::new(&[A, B]);
    let slot = DIR.slot();
    let (name, file) = (Key::Name(DIR, "x".parse::<Name>().unwrap()), Key::Attr(FILE));
    let elsewhere = Key::Attr(InodeId(DIR.0 + 1));
    assert!(FILE.slot() == slot && elsewhere.slot() != slot);
    for key in [&name, &file, &elsewhere] {
        assert_eq!(s.get(B, key), Ok(()));
    }
    let take = |s: &mut Server, session, number| {
        s.holder.take_slot(Moment(s.now), session, slot, number).map(|(_, shown)| shown)
    };
    let (announcement, _) = s.announce(B, &[Key::Dir(DIR)], None);
    assert_eq!(take(&mut s, A, 1), None, "a change of B's is under way");
    s.on(Event::Release { announcement, keep: vec![] });
    assert_eq!(take(&mut s, A, 2), Some(vec![name.clone(), file.clone()]), "what B shows is to be revoked");
    assert_eq!(take(&mut s, B, 1), None);
    assert_eq!((s.get(B, &Key::Attr(DIR)), s.get(A, &Key::Attr(DIR))), (Err(Refusal::Alone), Ok(())));
    // Nor by a change elsewhere, whose answer tells of it.
    let (announcement, _) = s.announce(B, &[Key::Attr(InodeId(DIR.0 + 2))], None);
    let kept = s.on(Event::Release { announcement, keep: vec![Key::Attr(DIR)] });
    assert!(!kept.iter().any(|c| matches!(c, Command::Kept { granted, .. } if !granted.is_empty())), "{kept:?}");
    // Its term is over, and what it has told its programs may still come.
    s.pass(ms(11_000), &[B]);
    assert_eq!(s.get(B, &Key::Attr(DIR)), Err(Refusal::Alone));
    s.on(Event::Ended { session: A });
    assert_eq!(s.get(B, &Key::Attr(DIR)), Ok(()));
}

/// Each has something of the other's to put right before it can end.
#[test]
fn of_two_that_are_being_ended_neither_waits_for_the_other() {
    let mut s = Server::new(&[A, B]);
    let other = InodeId(DIR.0 + 1).slot();
    for (session, slot) in [(A, DIR.slot()), (B, other)] {
        assert!(s.holder.take_slot(Moment(s.now), session, slot, 1).is_some());
        s.on(Event::Ending { session });
    }
    let waits =
        |s: &Server| (s.holder.alone_in(A, other, Moment(s.now)), s.holder.alone_in(B, DIR.slot(), Moment(s.now)));
    assert_eq!(waits(&s), (Some(B), Some(A)), "they may still show something");
    s.pass(ms(11_000), &[]);
    assert_eq!(waits(&s), (None, None));
    assert_eq!(s.holder.alone_in(C, other, Moment(s.now)), Some(B), "everybody else waits");
}

#[test]
fn no_slot_is_given_before_everybody_has_said_what_it_holds() {
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A, B] });
    s.on(Event::Renew { session: A });
    let take = |s: &mut Server| s.holder.take_slot(Moment(s.now), A, DIR.slot(), 1).map(|(_, shown)| shown);
    assert_eq!(take(&mut s), None, "B may show something of before");
    s.on(Event::Ended { session: B });
    let commands = s.on(Event::Renew { session: A });
    let round = commands.iter().find_map(|c| if let Command::Renewed { reassert, .. } = c { *reassert } else { None });
    s.on(Event::Reassert { session: A, round: round.unwrap(), files: vec![] });
    assert_eq!(take(&mut s), Some(vec![]));
    s.pass(ms(11_000), &[]);
    assert_eq!(take(&mut s), None, "its term is over");
}

#[test]
fn a_process_that_has_gone_holds_up_no_names_before_its_end_is_known() {
    let mut s = Server::new(&[A, B]);
    let key = Key::Dir(DIR);
    assert_eq!(s.get(B, &key), Ok(()));
    let (_, out) = s.announce(A, std::slice::from_ref(&key), None);
    assert!(!is_ready(&out), "B caches it");
    let out = s.on(Event::Gone { session: B });
    assert!(
        is_ready(&out) && !out.contains(&Command::Lapsed { session: B }),
        "its leases ended, and did not run out: {out:?}"
    );
    assert_eq!(s.get(B, &Key::Dir(InodeId(7 << 12))), Err(Refusal::NoTerm), "and is granted nothing any more");
    s.on(Event::Renew { session: B });
    assert_eq!(s.get(B, &Key::Dir(InodeId(7 << 12))), Err(Refusal::NoTerm));

    // The same with what a holder before may have granted: to all of those that may have something.
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A, B] });
    let (_, out) = s.announce(C, std::slice::from_ref(&key), None);
    assert!(!is_ready(&out));
    assert!(!is_ready(&s.on(Event::Gone { session: A })), "B may hold it as well");
    assert!(is_ready(&s.on(Event::Gone { session: B })));
}

#[test]
fn a_writer_that_has_gone_is_fenced_before_another_writes() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    s.open(B, true, false);
    s.take(A, Want::Write);
    s.pass(ms(10), &[A, B]);
    let mut out = s.on(Event::Gone { session: A });
    out.extend(s.take(B, Want::Write));
    out.extend(s.pass(ms(30_000), &[B]));
    assert!(out.iter().all(|c| !matches!(c, Command::End { .. } | Command::Grant { .. })), "{out:?}");
    assert_eq!(grants(&s.on(Event::Ended { session: A })), [(B, Mode::Exclusive)]);
}

// --- files ---

#[test]
fn exclusive_travels_in_order_of_arrival_and_is_kept_five_milliseconds() {
    let mut s = Server::new(&[A, B, C]);
    for session in [A, B, C] {
        s.open(session, true, false);
    }
    assert_eq!(grants(&s.take(A, Want::Write)), [(A, Mode::Exclusive)]);
    assert!(s.take(B, Want::Write).is_empty(), "not before its hold is over");
    assert!(s.take(C, Want::Write).is_empty());
    assert!(s.pass(ms(4), &[]).is_empty());
    let out = s.pass(ms(1), &[]);
    assert!(matches!(out[..], [Command::Recall { session: A, to: Mode::None, .. }]), "{out:?}");
    assert_eq!(grants(&s.answer(&out[0], vec![])), [(B, Mode::Exclusive)]);
    assert!(s.take(A, Want::Write).is_empty());
    let out = s.pass(ms(5), &[]);
    assert_eq!(grants(&s.answer(&out[0], vec![])), [(C, Mode::Exclusive)], "A came back later");
}

#[test]
fn sync_is_entered_only_when_every_writer_asked_for_it() {
    let mut s = Server::new(&[A, B, C]);
    s.open(A, false, true);
    s.open(B, false, true);
    assert_eq!(grants(&s.take(A, Want::Write)), [(A, Mode::Sync)]);
    let out = s.take(B, Want::Write);
    assert_eq!(grants(&out), [(B, Mode::Sync)]);
    assert_eq!(grants(&s.take(C, Want::Direct)), [(C, Mode::Sync)], "a reader that caches nothing joins them");
    let out = s.take(C, Want::Read);
    let after: Vec<_> = recalls(&out).iter().flat_map(|recall| s.answer(recall, vec![])).collect();
    // What it wrote itself may be on its way: nobody else may cache meanwhile.
    assert_eq!(grants(&after), [(C, Mode::Exclusive)], "one that caches does not");
    s.now += ms(5);
    for session in [A, B] {
        let out = s.take(session, Want::Write);
        for recall in recalls(&out) {
            s.answer(&recall, vec![]);
        }
    }
    s.take(C, Want::Direct);
    assert!([A, B, C].into_iter().all(|session| s.holder.mode(session, FILE).0 == Mode::Sync));
    // One cached write handle, and the file is `sync` no more: exclusive travels, also to those with O_DIRECT.
    s.open(C, true, false);
    let out = s.take(C, Want::Write);
    assert_eq!(recalls(&out).len(), 2);
    let after: Vec<_> = recalls(&out).iter().flat_map(|recall| s.answer(recall, vec![])).collect();
    assert_eq!(grants(&after), [(C, Mode::Exclusive)]);
    s.now += ms(5);
    let out = s.take(A, Want::Write);
    assert_eq!(grants(&s.answer(&recalls(&out)[0], vec![])), [(A, Mode::Exclusive)]);
}

#[test]
fn those_in_sync_share_a_token_and_the_next_writer_has_a_higher_one() {
    let token = |out: &[Command]| match out.last() {
        Some(Command::Grant { token, .. }) => *token,
        other => panic!("{other:?}"),
    };
    let mut s = Server::new(&[A, B]);
    s.open(A, false, true);
    s.open(B, false, true);
    let (a, b) = (s.take(A, Want::Write), s.take(B, Want::Write));
    assert_eq!(token(&a), token(&b));
    let out = s.take(A, Want::Once);
    let out = s.answer(&recalls(&out)[0], vec![]);
    assert_eq!(grants(&out), [(A, Mode::Exclusive)], "an append takes exclusive");
    let append = token(&out);
    assert!(append > token(&b));
    s.now += ms(5);
    let out = s.take(B, Want::Write);
    let Command::Recall { to: Mode::Sync, token: stays, .. } = recalls(&out)[0] else { panic!("{out:?}") };
    let out = s.answer(&recalls(&out)[0], vec![]);
    assert_eq!((grants(&out), token(&out)), (vec![(B, Mode::Sync)], stays));
    assert!(stays > append);
}

#[test]
fn what_grew_under_sync_is_in_the_row_before_somebody_owns_the_size() {
    let mut s = Server::new(&[A, B]);
    s.open(A, false, true);
    s.open(B, false, true);
    let out = s.take(A, Want::Write);
    let Some(Command::Grant { generation, .. }) = out.last().cloned() else { panic!("{out:?}") };
    s.take(B, Want::Write);
    let (size, mtime) = (9000, Timestamp(5));
    let ask = s.ask_id();
    let out = s.on(Event::Extend { ask, session: A, inode: FILE, generation, size, mtime });
    assert_eq!(out, [Command::Extended { ask, accepted: true }]);
    let ask = s.ask_id();
    let fresh = s.on(Event::Refresh { ask, session: B, inode: FILE });
    assert_eq!(fresh, [Command::Fresh { ask, grown: Some(Grown { size, mtime }) }]);
    let out = s.take(B, Want::Once);
    let out = s.answer(&recalls(&out)[0], vec![]);
    assert_eq!(out, [Command::Store { inode: FILE, size, mtime }], "not granted yet");
    let out = s.on(Event::Stored { inode: FILE, size, mtime });
    assert_eq!(grants(&out), [(B, Mode::Exclusive)]);
    let late = s.on(Event::Extend { ask, session: A, inode: FILE, generation, size: 9999, mtime });
    assert_eq!(late, [Command::Extended { ask, accepted: false }]);
}

#[test]
fn a_stat_recalls_the_size_and_takes_no_older_answer_for_it() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    s.take(A, Want::Write);
    assert_eq!(s.get(B, &Key::Attr(FILE)), Err(Refusal::Elsewhere));
    assert_eq!(s.get(A, &Key::Attr(FILE)), Ok(()));
    let first = s.ask_id();
    let out = s.on(Event::Refresh { ask: first, session: B, inode: FILE });
    let recall = recalls(&out)[0].clone();
    assert!(matches!(recall, Command::Recall { session: A, to: Mode::Exclusive, locks: true, .. }));
    // The first stat is given up; the answer to it may be older than the second.
    s.on(Event::Abandon { ask: first });
    let second = s.ask_id();
    assert!(s.on(Event::Refresh { ask: second, session: B, inode: FILE }).is_empty());
    let out = s.answer(&recall, vec![]);
    assert_eq!((out.len(), recalls(&out).len()), (1, 1), "asked again: {out:?}");
    assert_eq!(s.answer(&out[0], vec![]), [Command::Fresh { ask: second, grown: None }]);
    assert_eq!(s.holder.mode(A, FILE).0, Mode::Exclusive, "a stat takes nothing away");
}

#[test]
fn a_dead_writer_is_fenced_before_another_writes_and_only_if_one_waits() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    s.open(B, true, false);
    s.take(A, Want::Write);
    let out = s.pass(ms(30_000), &[B]);
    assert_eq!(out, [Command::Lapsed { session: A }], "nobody waits: it may come back with what it has");
    let out = s.take(B, Want::Write);
    assert_eq!(out, [Command::End { session: A, why: EndReason::Lapsed }]);
    assert!(s.take(B, Want::Write).iter().all(|c| !matches!(c, Command::End { .. } | Command::Grant { .. })));
    assert!(s.on(Event::Renew { session: A }).iter().any(|c| matches!(c, Command::Renewed { prolonged: false, .. })));
    assert_eq!(grants(&s.on(Event::Ended { session: A })), [(B, Mode::Exclusive)]);
}

#[test]
fn a_writer_that_was_silent_goes_on_if_nobody_waited() {
    let mut s = Server::new(&[A]);
    s.open(A, true, false);
    s.take(A, Want::Write);
    s.pass(ms(30_000), &[]);
    let out = s.on(Event::Renew { session: A });
    let [Command::Renewed { reassert: Some(round), .. }] = out[..] else { panic!("{out:?}") };
    let handles = Handles { seq: 99, open: true, cached_write: true, sync_write: false };
    let file = |mode| Reasserted { inode: FILE, mode, handles, grown: None, locks: vec![] };
    let out = s.on(Event::Reassert { session: A, round, files: vec![file(Mode::Exclusive)] });
    assert_eq!(grants(&out), [(A, Mode::Exclusive)]);
    let out = s.on(Event::Reassert { session: A, round: round + 1, files: vec![] });
    assert!(out.is_empty() && s.holder.mode(A, FILE).0 == Mode::Exclusive, "nobody asked for this");
}

// --- a change of holder ---

#[test]
fn file_leases_and_locks_are_reasserted_within_the_grace() {
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A, B, C] });
    let mut rounds = Vec::new();
    for session in [A, B] {
        let out = s.on(Event::Renew { session });
        let [Command::Renewed { reassert: Some(round), .. }] = out[..] else { panic!("{out:?}") };
        rounds.push(round);
    }
    assert!(s.take(B, Want::Write).is_empty(), "somebody may have it");
    assert!(s.lock(B, 1, (0, 10), Some(60_000)).is_empty());
    assert_eq!(s.get(B, &Key::Attr(FILE)), Err(Refusal::Settling));
    let handles = Handles { seq: 5, open: true, cached_write: true, sync_write: false };
    let locks = vec![HeldLock { space: Space::Posix, lock: lock(A, 9, (0, 100)) }];
    let file = Reasserted { inode: FILE, mode: Mode::Exclusive, handles, grown: None, locks };
    let out = s.on(Event::Reassert { session: A, round: rounds[0], files: vec![file.clone()] });
    let Some(Command::Grant { ask: None, session: A, generation, .. }) = out.last() else { panic!("{out:?}") };
    assert!(*generation > Generation(2 << 40), "above everything of the former epoch");
    // B claims the same: it lost it long ago.
    let out = s.on(Event::Reassert { session: B, round: rounds[1], files: vec![file] });
    assert!(out.contains(&Command::Lost { session: B, inode: FILE }), "{out:?}");
    // C says nothing: it is ended, and then the waiting are served in order.
    let out = s.pass(ms(10_000), &[A, B]);
    assert!(out.contains(&Command::End { session: C, why: EndReason::Unsettled }), "{out:?}");
    let out = s.on(Event::Ended { session: C });
    let recall = recalls(&out).pop().unwrap();
    let kept = vec![HeldLock { space: Space::Posix, lock: lock(A, 9, (0, 100)) }];
    assert_eq!(grants(&s.answer(&recall, kept)), [(B, Mode::Exclusive)]);
    assert!(
        s.lock(B, 2, (50, 60), None)
            .iter()
            .any(|c| matches!(c, Command::Locked { answer: LockAnswer::WouldBlock, .. }))
            || !recalls(&s.lock(B, 2, (50, 60), None)).is_empty()
    );
}

/// It was out of touch when the holder changed, and comes back later with a lock on a file that is another's.
#[test]
fn who_says_first_that_a_file_is_its_own_grants_no_locks_before_all_have_said_theirs() {
    for others_first in [false, true] {
        let mut s = Server::new(&[]);
        s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A, B] });
        let rounds = [A, B].map(|session| {
            let out = s.on(Event::Renew { session });
            let [Command::Renewed { reassert: Some(round), .. }] = out[..] else { panic!("{out:?}") };
            round
        });
        let say = |s: &mut Server, session, mode, locks| {
            let file = Reasserted { inode: FILE, mode, handles: Handles::default(), grown: None, locks };
            let round = if session == A { rounds[0] } else { rounds[1] };
            s.on(Event::Reassert { session, round, files: vec![file] })
        };
        let theirs = vec![HeldLock { space: Space::Flock, lock: lock(B, 7, (0, 100)) }];
        if others_first {
            say(&mut s, B, Mode::None, theirs.clone());
        }
        let out = say(&mut s, A, Mode::Exclusive, Vec::new());
        let grant = out.iter().find(|command| matches!(command, Command::Grant { session: A, .. }));
        assert!(matches!(grant, Some(Command::Grant { locks: false, .. })), "{out:?}");
        if !others_first {
            let out = say(&mut s, B, Mode::None, theirs);
            assert!(!out.contains(&Command::LocksLost { session: B, inode: FILE }), "{out:?}");
        }
    }
    // Who is alone goes on as before.
    let mut s = Server::new(&[]);
    s.on(Event::Gained { epoch: MembershipEpoch(2), slots: SlotSet::all(), sessions: vec![A] });
    let out = s.on(Event::Renew { session: A });
    let [Command::Renewed { reassert: Some(round), .. }] = out[..] else { panic!("{out:?}") };
    let handles = Handles::default();
    let file = Reasserted { inode: FILE, mode: Mode::Exclusive, handles, grown: None, locks: Vec::new() };
    let out = s.on(Event::Reassert { session: A, round, files: vec![file] });
    assert!(out.iter().any(|command| matches!(command, Command::Grant { locks: true, .. })), "{out:?}");
}

#[test]
fn why_names_who_is_waited_for() {
    let mut s = Server::new(&[A, B]);
    s.get(B, &Key::Dir(DIR)).unwrap();
    let (announcement, _) = s.announce(A, &[Key::Dir(DIR)], None);
    let since = Moment(s.now);
    let (session, keys) = (Some(B), vec![Key::Dir(DIR)]);
    assert_eq!(s.holder.waits(), [Waits::Change { announcement, by: A, since, session, keys }]);
}

// --- nobody writes ---

fn still(s: &mut Server) -> (AskId, Vec<Command>) {
    let ask = s.ask_id();
    let out = s.on(Event::Still { ask, inode: FILE });
    (ask, out)
}

fn is_fresh(commands: &[Command], of: AskId) -> bool {
    commands.iter().any(|command| matches!(command, Command::Fresh { ask, .. } if *ask == of))
}

#[test]
fn a_file_is_kept_still_until_that_is_abandoned() {
    let mut s = Server::new(&[A, B, C]);
    s.open(A, true, false);
    s.open(B, true, false);
    s.take(A, Want::Write);
    s.pass(ms(10), &[A, B, C]);
    let (ask, out) = still(&mut s);
    assert!(!is_fresh(&out, ask), "A has what is not in the row");
    let [recall] = &recalls(&out)[..] else { panic!("{out:?}") };
    assert!(is_fresh(&s.answer(recall, vec![]), ask));
    assert!(s.holder.written().is_empty());
    // Whoever wants to write waits: it is not for long.
    let out = [s.take(B, Want::Write), s.take(A, Want::Write), s.pass(ms(2000), &[A, B, C])].concat();
    assert!(grants(&out).is_empty() && !is_fresh(&out, ask), "said once: {out:?}");
    assert_eq!(grants(&s.on(Event::Abandon { ask })), [(B, Mode::Exclusive)]);
}

#[test]
fn who_only_reads_keeps_its_pages_while_a_file_is_kept_still() {
    let mut s = Server::new(&[A, B]);
    s.take(A, Want::Read);
    s.take(B, Want::Read);
    let (ask, out) = still(&mut s);
    assert!(is_fresh(&out, ask) && recalls(&out).is_empty());
}

#[test]
fn who_reads_and_who_locks_does_not_wait_while_a_file_is_kept_still() {
    let mut s = Server::new(&[A, B, C]);
    s.open(A, true, false);
    s.open(B, true, false);
    s.take(A, Want::Write);
    s.pass(ms(10), &[A, B, C]);
    let (ask, out) = still(&mut s);
    let [recall] = &recalls(&out)[..] else { panic!("{out:?}") };
    s.answer(recall, vec![]);
    // Also not behind who waits.
    assert!(grants(&s.take(B, Want::Write)).is_empty());
    assert_eq!(grants(&s.take(C, Want::Read)), [(C, Mode::Shared)]);
    let fresh = s.ask_id();
    let out = s.on(Event::Refresh { ask: fresh, session: A, inode: FILE });
    assert!(is_fresh(&out, fresh), "{out:?}");
    assert_eq!(answers(&s.lock(C, 1, (0, 10), None)), [LockAnswer::Granted]);
    // Two who want it still are told at once, and who writes waits for both.
    let (second, out) = still(&mut s);
    assert!(is_fresh(&out, second));
    assert!(recalls(&s.on(Event::Abandon { ask })).is_empty());
    let out = s.on(Event::Abandon { ask: second });
    let [recall] = &recalls(&out)[..] else { panic!("{out:?}") };
    assert_eq!(grants(&s.answer(recall, vec![])), [(B, Mode::Exclusive)]);
}

#[test]
fn while_writes_are_held_who_reads_does_not_wait_behind_who_writes() {
    let mut s = Server::new(&[A, B, C]);
    s.take(A, Want::Read);
    s.on(Event::HoldWrites { on: true });
    let out = s.take(B, Want::Write);
    assert!(grants(&out).is_empty() && recalls(&out).is_empty(), "{out:?}");
    assert_eq!(grants(&s.take(C, Want::Read)), [(C, Mode::Shared)]);
    assert_eq!(recalls(&s.on(Event::HoldWrites { on: false })).len(), 2);
}

#[test]
fn a_writer_that_is_silent_is_ended_before_its_file_is_still() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    s.take(A, Want::Write);
    s.pass(ms(10), &[A, B]);
    let (ask, out) = still(&mut s);
    let out = [out, s.pass(ms(60_000), &[B])].concat();
    assert!(out.iter().any(|command| matches!(command, Command::End { session: A, .. })), "{out:?}");
    assert!(!is_fresh(&out, ask), "data servers may take what it sends");
    assert!(is_fresh(&s.on(Event::Ended { session: A }), ask));
}

#[test]
fn while_writes_are_held_nobody_begins_to_write_and_who_writes_goes_on() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    s.take(A, Want::Write);
    s.pass(ms(10), &[A, B]);
    s.on(Event::HoldWrites { on: true });
    s.on(Event::HoldWrites { on: true });
    assert_eq!(grants(&s.take(A, Want::Write)), [(A, Mode::Exclusive)], "what it has is said again");
    let other = InodeId(FILE.0 + 4096);
    let ask = s.ask_id();
    let out = s.on(Event::Take { ask, session: B, inode: other, want: Want::Write });
    assert!(grants(&out).is_empty(), "{out:?}");
    assert!(grants(&s.on(Event::HoldWrites { on: false })).is_empty(), "two have asked for it");
    assert_eq!(grants(&s.on(Event::HoldWrites { on: false })), [(B, Mode::Exclusive)]);
    assert_eq!(s.holder.written(), [FILE, other]);
}
