//! The rules of locks at the slot holder (docs/design/0012-locks.md).
#![allow(clippy::unwrap_used)]

use crate::server::*;
use braid_lease::*;
use braid_types::{ByteRange, SessionId};

#[test]
fn locks_a_client_granted_itself_come_back_with_the_recall() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    let out = s.take(A, Want::Write);
    assert!(matches!(out.last(), Some(Command::Grant { locks: true, .. })));
    let out = s.lock(B, 1, (0, 10), Some(1_000));
    let recall = recalls(&out).pop().unwrap();
    assert!(matches!(recall, Command::Recall { to: Mode::Exclusive, locks: false, .. }), "only the locks are wanted");
    let own = vec![HeldLock { space: Space::Posix, lock: lock(A, 9, (5, 6)) }];
    assert_eq!(answers(&s.answer(&recall, own)), [], "B waits for A's lock");
    assert_eq!(s.holder.mode(A, FILE).0, Mode::Exclusive);
    let owner = LockOwner { session: A, owner: 9 };
    let out = s.on(Event::Unlock { inode: FILE, space: Space::Posix, owner, range: ByteRange::new(0, 10) });
    assert_eq!(answers(&out), [LockAnswer::Granted]);
    let out = s.take(A, Want::Write);
    assert!(
        matches!(out.last(), Some(Command::Grant { locks: false, .. })),
        "B has a lock: A asks for each of its own"
    );
}

/// One of its owners took in place of another what the holder remembers of that one (simulator `locks-lost`, seed 23): the second was refused
/// for the first, and another session was granted what a program held.
#[test]
fn what_one_owner_of_a_session_took_in_place_of_another_is_adopted_and_excludes_others() {
    let mut s = Server::new(&[A, B]);
    s.open(A, true, false);
    assert_eq!(answers(&s.lock(A, 1, (0, 10), None)), [LockAnswer::Granted]);
    let ask = AskId(s.last);
    s.on(Event::Abandon { ask });
    let out = s.take(A, Want::Write);
    assert!(matches!(out.last(), Some(Command::Grant { locks: true, .. })), "{out:?}");
    // Owner 1 has freed its lock since and owner 2 has taken it, without a message.
    let recall = recalls(&s.lock(B, 3, (0, 10), Some(1_000))).remove(0);
    let own = vec![HeldLock { space: Space::Posix, lock: lock(A, 2, (0, 10)) }];
    let out = s.answer(&recall, own);
    assert_eq!(answers(&out), [], "B waits for owner 2");
    assert!(!out.iter().any(|command| matches!(command, Command::LocksLost { .. })), "{out:?}");
    let owner = LockOwner { session: A, owner: 2 };
    let out = s.on(Event::Unlock { inode: FILE, space: Space::Posix, owner, range: ByteRange::new(0, 10) });
    assert_eq!(answers(&out), [LockAnswer::Granted]);
}

#[test]
fn a_wait_for_a_lock_ends_with_the_lock_a_deadlock_or_its_deadline() {
    let mut s = Server::new(&[A, B]);
    assert_eq!(answers(&s.lock(A, 1, (0, 10), None)), [LockAnswer::Granted]);
    assert_eq!(answers(&s.lock(B, 2, (10, 20), None)), [LockAnswer::Granted]);
    assert_eq!(answers(&s.lock(B, 2, (0, 10), None)), [LockAnswer::WouldBlock]);
    assert_eq!(answers(&s.lock(B, 2, (0, 10), Some(500))), []);
    assert_eq!(answers(&s.lock(A, 1, (10, 20), Some(500))), [LockAnswer::Deadlock]);
    assert_eq!(answers(&s.pass(ms(499), &[])), []);
    assert_eq!(answers(&s.pass(ms(1), &[])), [LockAnswer::TimedOut]);
}

#[test]
fn who_tries_again_and_again_is_let_in_between_two_locks_of_another_session() {
    let mut s = Server::new(&[A, B]);
    let free = |s: &mut Server, session, owner| {
        let (owner, range) = (LockOwner { session, owner }, ByteRange::new(0, 10));
        answers(&s.on(Event::Unlock { inode: FILE, space: Space::Posix, owner, range }))
    };
    let (granted, refused): (&[_], &[_]) = (&[LockAnswer::Granted], &[LockAnswer::WouldBlock]);
    let next = |session| HeldLock { space: Space::Posix, lock: lock(session, 8, (90, 91)) };
    let lets_in = |s: &Server, session| s.holder.lets_in(FILE, &next(session), Moment(s.now));
    for round in 0..2 {
        assert_eq!(answers(&s.lock(A, 1, (0, 10), None)), granted);
        for at in 0..5 {
            assert_eq!(answers(&s.lock(B, 2, (0, 10), None)), refused, "round {round}, after {at} tenths of a second");
            assert_eq!(answers(&s.lock(A, 3, (5, 6), None)), refused);
            s.pass(ms(100), &[A, B]);
        }
        s.lock(B, 2, (0, 10), None);
        assert!(!lets_in(&s, A), "somebody may wait for what it has");
        assert_eq!(free(&mut s, A, 1), []);
        assert!(lets_in(&s, A) && !lets_in(&s, B), "round {round}");
        s.pass(ms(299), &[A, B]);
        assert!(lets_in(&s, A));
        s.pass(ms(1), &[A, B]);
        assert!(!lets_in(&s, A), "B does not try any more");
        // A lock for reading, as SQLite takes it before the one that it is about.
        let reads = LockSpec { exclusive: false, ..lock(B, 2, (20, 30)) };
        let ask = s.ask_id();
        s.on(Event::Lock { ask, inode: FILE, space: Space::Posix, lock: reads, until: None });
        s.lock(A, 1, (5, 6), None);
        s.lock(B, 2, (0, 10), None);
        free(&mut s, A, 1);
        assert!(lets_in(&s, A));
        assert_eq!(answers(&s.lock(B, 2, (0, 10), None)), granted);
        assert!(!lets_in(&s, A), "it was let in");
        assert_eq!(free(&mut s, B, 2), []);
    }
    // Of two that were refused the one that has been for longer is let in, and only that.
    let (c, range) = (SessionId(3), (0, 10));
    let mut s = Server::new(&[A, B, c]);
    s.lock(c, 9, range, None);
    for session in [A, B] {
        s.lock(session, 1, range, None);
        s.pass(ms(10), &[A, B, c]);
    }
    for _ in 0..6 {
        s.pass(ms(100), &[A, B, c]);
        s.lock(A, 1, range, None);
        s.lock(B, 1, range, None);
    }
    assert!(!lets_in(&s, A) && lets_in(&s, B));
}

/// As SQLite with a write-ahead log does.
#[test]
fn who_tries_is_let_in_also_by_a_session_that_keeps_a_lock_which_is_not_in_the_way() {
    let mut s = Server::new(&[A, B]);
    let reads = |session, range| HeldLock {
        space: Space::Posix,
        lock: LockSpec { exclusive: false, ..lock(session, session.0, range) },
    };
    let (kept, writes) = ((128, 129), (120, 121));
    for session in [A, B] {
        let ask = s.ask_id();
        let HeldLock { space, lock } = reads(session, kept);
        s.on(Event::Lock { ask, inode: FILE, space, lock, until: None });
    }
    assert_eq!(answers(&s.lock(A, 1, writes, None)), [LockAnswer::Granted]);
    for _ in 0..6 {
        assert_eq!(answers(&s.lock(B, 2, writes, None)), [LockAnswer::WouldBlock]);
        s.pass(ms(100), &[A, B]);
    }
    let next = |range| HeldLock { space: Space::Posix, lock: lock(A, 1, range) };
    let lets_in = |s: &Server, asks: HeldLock| s.holder.lets_in(FILE, &asks, Moment(s.now));
    assert!(!lets_in(&s, next(writes)), "it has what B tries to get");
    let owner = LockOwner { session: A, owner: 1 };
    s.on(Event::Unlock { inode: FILE, space: Space::Posix, owner, range: ByteRange::new(writes.0, writes.1) });
    assert!(lets_in(&s, next(writes)));
    assert!(lets_in(&s, reads(A, writes)), "also for reading: B writes");
    assert!(
        !lets_in(&s, next((122, 123))) && !lets_in(&s, reads(A, kept)),
        "nobody waits for the sake of others with what they do not want"
    );
    assert_eq!(answers(&s.lock(B, 2, writes, None)), [LockAnswer::Granted]);
    assert!(!lets_in(&s, next(writes)), "it was let in");
}

#[test]
fn a_session_grants_itself_no_locks_while_another_tries() {
    let mut s = Server::new(&[A, B]);
    s.lock(A, 1, (0, 10), None);
    s.lock(B, 2, (0, 10), None);
    s.on(Event::Unlock {
        inode: FILE,
        space: Space::Posix,
        owner: LockOwner { session: A, owner: 1 },
        range: ByteRange::new(0, 10),
    });
    let may = |s: &mut Server| {
        s.open(A, true, false);
        let out = s.take(A, Want::Write);
        let Some(Command::Grant { locks, .. }) = out.last() else { panic!("{out:?}") };
        *locks
    };
    // What it was granted it has heard of.
    s.on(Event::Abandon { ask: AskId(1) });
    assert!(!may(&mut s));
    s.pass(ms(2_000), &[A, B]);
    assert!(may(&mut s));
}

#[test]
fn a_dead_session_s_locks_are_freed_when_its_end_is_known() {
    let mut s = Server::new(&[A, B]);
    s.lock(A, 1, (0, 10), None);
    assert_eq!(answers(&s.lock(B, 2, (0, 10), Some(60_000))), []);
    let out = s.pass(ms(10_000), &[B]);
    assert!(out.contains(&Command::End { session: A, why: EndReason::Lapsed }), "{out:?}");
    assert_eq!(answers(&out), []);
    assert_eq!(answers(&s.on(Event::Ended { session: A })), [LockAnswer::Granted]);
}
