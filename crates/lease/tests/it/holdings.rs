//! What a session holds, as its client keeps account of it.
#![allow(clippy::unwrap_used)]

use crate::server::*;
use braid_lease::*;
use braid_types::{InodeId, MembershipEpoch};

/// A client with a term, that has just asked for a file; what it asked with.
fn asking() -> (Holdings, Ticket) {
    let mut held = Holdings::new(&Limits::default());
    let (term, epoch) = (Limits::default().session_lease, MembershipEpoch(1));
    held.on(Moment(ms(0)), Seen::Renewed { asked: Moment(ms(0)), term, prolonged: true, epoch, reassert: None });
    let todo = held.on(Moment(ms(1)), Seen::Need { inode: FILE, want: Want::Write });
    let [Todo::Take { ticket, .. }] = todo[..] else { panic!("{todo:?}") };
    (held, ticket)
}

fn grant(ticket: Option<Ticket>, number: u64) -> Seen {
    let (generation, token) = (Generation(number), Generation(number));
    Seen::Granted { ticket, inode: FILE, mode: Mode::Exclusive, generation, token, locks: false }
}

#[test]
fn a_grant_is_asked_for_again_when_a_recall_came_before_it_and_was_answered() {
    let (mut held, ticket) = asking();
    let recall =
        Seen::Recall { inode: FILE, generation: Generation(5), token: Generation(4), to: Mode::None, locks: false };
    let todo = held.on(Moment(ms(2)), recall);
    assert!(matches!(todo[..], [Todo::Flush { .. }]), "{todo:?}");
    let todo = held.on(Moment(ms(3)), Seen::Flushed { inode: FILE, generation: Generation(5), held: Vec::new() });
    assert!(matches!(todo[..], [Todo::Yield { mode: Mode::None, .. }]), "{todo:?}");
    let todo = held.on(Moment(ms(4)), grant(Some(ticket), 4));
    let [Todo::Take { ticket: again, .. }] = todo[..] else { panic!("nobody asks any more: {todo:?}") };
    assert!(held.may_use(Moment(ms(4)), FILE, Want::Write).is_none());
    held.on(Moment(ms(5)), grant(Some(again), 6));
    assert!(held.may_use(Moment(ms(5)), FILE, Want::Write).is_some());
}

#[test]
fn a_grant_that_was_asked_for_counts_although_the_answer_to_a_reassertion_was_lost() {
    let (mut held, ticket) = asking();
    held.on(Moment(ms(2)), grant(Some(ticket), 4));
    let (term, epoch) = (Limits::default().session_lease, MembershipEpoch(2));
    let renewed = Seen::Renewed { asked: Moment(ms(3)), term, prolonged: true, epoch, reassert: Some(1) };
    let todo = held.on(Moment(ms(3)), renewed);
    assert!(todo.contains(&Todo::Reassert { round: 1 }), "{todo:?}");
    let todo = held.on(Moment(ms(4)), Seen::Need { inode: FILE, want: Want::Write });
    let [Todo::Take { ticket, .. }] = todo[..] else { panic!("{todo:?}") };
    held.on(Moment(ms(5)), grant(Some(ticket), Generation::begin(epoch).0 + 1));
    assert!(held.may_use(Moment(ms(5)), FILE, Want::Write).is_some());
}

#[test]
fn a_recall_may_be_answered_with_less_than_it_asks_for() {
    let (mut held, ticket) = asking();
    held.on(Moment(ms(2)), grant(Some(ticket), 4));
    let recall = Seen::Recall {
        inode: FILE,
        generation: Generation(5),
        token: Generation(4),
        to: Mode::Exclusive,
        locks: false,
    };
    held.on(Moment(ms(3)), recall);
    held.keep_at_most(FILE, Generation(5), Mode::Shared);
    let todo = held.on(Moment(ms(4)), Seen::Flushed { inode: FILE, generation: Generation(5), held: Vec::new() });
    assert!(matches!(todo[..], [Todo::Yield { mode: Mode::Shared, .. }]), "{todo:?}");
    assert!(held.may_use(Moment(ms(4)), FILE, Want::Write).is_none());
    assert!(held.may_cache(Moment(ms(4)), FILE));
}

#[test]
fn what_was_written_is_sent_while_a_file_is_given_up_and_not_beyond_the_leases_end() {
    let (mut held, ticket) = asking();
    held.on(Moment(ms(2)), grant(Some(ticket), 4));
    let recall =
        Seen::Recall { inode: FILE, generation: Generation(5), token: Generation(4), to: Mode::None, locks: false };
    held.on(Moment(ms(500)), recall);
    let at = |held: &Holdings, at| (held.may_use(Moment(at), FILE, Want::Write), held.may_send(Moment(at), FILE));
    assert_eq!(at(&held, ms(501)), (None, Some(Generation(4))), "nothing new is written, and what was is sent");
    let end = ms(0) + held.left(Moment(ms(0)));
    assert!(held.may_send(Moment(end - ms(1)), FILE).is_some() && held.may_send(Moment(end), FILE).is_none());
    // Still the holder's at the server, which has been asked again in time.
    let (term, epoch) = (Limits::default().session_lease, MembershipEpoch(1));
    held.on(Moment(end), Seen::Tick);
    held.on(Moment(end + ms(1)), Seen::Renewed { asked: Moment(end), term, prolonged: true, epoch, reassert: None });
    assert_eq!(held.may_send(Moment(end + ms(1)), FILE), Some(Generation(4)));
    held.on(Moment(end + ms(2)), Seen::Flushed { inode: FILE, generation: Generation(5), held: Vec::new() });
    assert_eq!(held.may_send(Moment(end + ms(2)), FILE), None);
}

/// A session was out of touch, and is asked what it has. It says so, and has asked for a file in between.
#[test]
fn what_was_granted_while_a_session_says_what_it_has_is_not_forgotten_with_that() {
    let mut s = Server::new(&[A, B]);
    let take = |s: &mut Server| {
        let ask = s.ask_id();
        s.on(Event::Take { ask, session: A, inode: FILE, want: Want::Write })
    };
    take(&mut s);
    let term = Limits::default().session_lease;
    s.pass(term + ms(1), &[B]);
    let renewed = s.on(Event::Renew { session: A });
    let round = renewed.iter().find_map(|command| match command {
        Command::Renewed { session: A, reassert, .. } => *reassert,
        _ => None,
    });
    s.pass(ms(5), &[B]);
    // What it had it does not need any more, and says so; then it needs it, and this overtakes the other.
    let other = InodeId(FILE.0 * 2);
    let ask = s.ask_id();
    let granted = s.on(Event::Take { ask, session: A, inode: other, want: Want::Write });
    assert!(
        granted.iter().any(|command| matches!(command, Command::Grant { mode: Mode::Exclusive, .. })),
        "{granted:?}"
    );
    s.on(Event::Reassert { session: A, round: round.unwrap(), files: vec![] });
    assert_eq!((s.holder.owner(FILE), s.holder.owner(other)), (None, Some(A)));
}
