//! The cache where two servers hold slots.
#![allow(clippy::unwrap_used)]

use super::tests::{at, attr};
use super::*;
use braid_lease::{Renewal, Seen};
use std::sync::Arc;

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);

/// In a slot of the first, and one of the second that is the first's under the next roster.
const NEAR: InodeId = InodeId((7 << 12) | 1);
const FAR: InodeId = InodeId((7 << 12) | 2);

fn roster(epoch: u64, moved: bool) -> Roster {
    let members = [ONE, TWO].into_iter().collect();
    Roster::new(MembershipEpoch(epoch), members, |slot| if slot == FAR.slot() && !moved { TWO } else { ONE })
}

fn renewal(asked: u64, epoch: u64, reassert: Option<(u64, bool)>) -> Renewal {
    let (term, epoch) = (Duration::from_secs(10), MembershipEpoch(epoch));
    let (reassert, anew) = reassert.unzip();
    let asked = Moment(Duration::from_millis(asked));
    Renewal { asked, term, prolonged: true, epoch, reassert, anew: anew.unwrap_or_default() }
}

/// With a term at both, and of each the attributes of a file, and that it is alone to write it.
fn both() -> Cache {
    let cache = Cache::new(100);
    finish(&cache, cache.roster_is(at(0), roster(1, false)));
    for (server, inode) in [(ONE, NEAR), (TWO, FAR)] {
        assert!(cache.renewed(at(0), server, renewal(0, 1, None)).is_empty());
        assert!(!learn(&cache, inode, inode).is_zero());
        let tasks = cache.on(at(1), None, Seen::Need { inode, want: Want::Write });
        let [Task::Take { ticket, .. }] = tasks[..] else { panic!("{tasks:?}") };
        cache.on(at(1), None, granted(Some(ticket), inode, 1));
    }
    assert_eq!(shows(&cache, 2), [true, true]);
    cache
}

fn granted(ticket: Option<braid_lease::Ticket>, inode: InodeId, epoch: u64) -> Seen {
    let number = Generation(Generation::begin(MembershipEpoch(epoch)).0 + 1);
    Seen::Granted { ticket, inode, mode: Mode::Exclusive, generation: number, token: number, locks: false }
}

/// Who asked about the one learns the attributes of the other, as far as they are granted.
fn learn(cache: &Cache, about: InodeId, inode: InodeId) -> Duration {
    let asking = cache.ask(about);
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1), &[Learnt::Attr(&attr(inode.0), true)])
}

/// Caches above have forgotten what they were to. Gives the rest.
fn finish(cache: &Cache, tasks: Vec<Task>) -> Vec<Task> {
    let mut rest = Vec::new();
    for task in tasks {
        match task {
            Task::Forget(_) => {}
            Task::DroppedSlots(number) => rest.extend(cache.dropped(number)),
            other => rest.push(other),
        }
    }
    rest
}

/// Whether the attributes of each, and the right to write it, are good at the time.
fn shows(cache: &Cache, ms: u64) -> [bool; 2] {
    [NEAR, FAR].map(|inode| {
        let shown = cache.attr(inode, at(ms)).is_some();
        assert_eq!(shown, cache.may_use(inode, Want::Write, at(ms)), "inode {inode}");
        shown
    })
}

#[test]
fn what_moves_is_forgotten_and_the_rest_goes_on() {
    let cache = both();
    let (near, far): (Name, Name) = ("near".parse().unwrap(), "far".parse().unwrap());
    let (listed, id) = (Arc::default(), AtomicU64::new(0));
    for (dir, name) in [(NEAR, &near), (FAR, &far)] {
        let asking = cache.ask(dir);
        let ticket = asking.ticket;
        cache.reads_listing(dir, at(1));
        let learnt = [Learnt::Name(dir, name, None, true), Learnt::Listing(dir, true, &listed, &id)];
        cache.learn(asking, ticket, at(1), &learnt);
    }
    assert!(cache.name(NEAR, &near, at(2)).is_some() && cache.name(FAR, &far, at(2)).is_some());
    let late = cache.ask(FAR);
    let tasks = cache.roster_is(at(2), roster(2, true));
    let [Task::Forget(shown), Task::ForgetPages(pages), Task::DroppedSlots(number), Task::Renew(ONE)] = &tasks[..]
    else {
        panic!("{tasks:?}")
    };
    let (shown, gone): (BTreeSet<_>, _) = (shown.iter().cloned().collect(), Shown::Entry(FAR, far.clone()));
    assert_eq!(shown, BTreeSet::from([Shown::Attr(FAR), gone, Shown::Listing(FAR)]));
    assert_eq!(*pages, [FAR]);
    assert_eq!(shows(&cache, 3), [true, false]);
    assert!(cache.name(NEAR, &near, at(3)).is_some() && cache.name(FAR, &far, at(3)).is_none());
    let ticket = late.ticket;
    assert!(cache.learn(late, ticket, at(3), &[Learnt::Attr(&attr(FAR.0), true)]).is_zero(), "of the former holder");
    // It is said what is held there when caches above have let go of the names, and only what came there.
    let tasks = cache.renewed(at(4), ONE, renewal(4, 2, Some((5, false))));
    assert!(tasks.is_empty(), "{tasks:?}");
    let tasks = cache.dropped(*number);
    assert!(matches!(tasks[..], [Task::Reassert(ONE, 5)]), "{tasks:?}");
    assert_eq!(cache.reassertion(ONE, |_| true), [(FAR, Mode::Exclusive)]);
    assert!(cache.reassertion(TWO, |_| true).is_empty());
    assert!(cache.on(at(5), Some(ONE), granted(None, FAR, 2)).is_empty());
    learn(&cache, FAR, FAR);
    assert_eq!(shows(&cache, 6), [true, true]);
}

#[test]
fn a_newer_epoch_is_asked_for_before_its_term_counts() {
    let cache = both();
    let tasks = cache.renewed(at(9_000), ONE, renewal(9_000, 2, None));
    assert!(matches!(tasks[..], [Task::Learn(MembershipEpoch(2))]), "{tasks:?}");
    cache.on(at(9_700), None, Seen::Tick);
    assert_eq!(shows(&cache, 9_700), [false, false]);
}

#[test]
fn a_holders_term_ends_for_what_is_its_own() {
    let cache = both();
    assert!(cache.renewed(at(5_000), ONE, renewal(5_000, 1, None)).is_empty());
    let tasks = cache.on(at(9_700), None, Seen::Tick);
    // It ended by its time, and so did what was given to the kernel of names.
    let told = |task: &Task| matches!(task, Task::Forget(shown) if !shown.is_empty());
    assert!(!tasks.iter().any(told), "{tasks:?}");
    assert!(tasks.iter().any(|task| matches!(task, Task::ForgetPages(pages) if *pages == [FAR])), "{tasks:?}");
    assert_eq!(shows(&cache, 9_700), [true, false]);
    assert_eq!(cache.attr(NEAR, at(9_700)).unwrap().1, Duration::from_millis(4_900));
}

#[test]
fn a_revocation_of_one_takes_nothing_of_the_other() {
    let cache = both();
    let keys = vec![Key::Attr(FAR)];
    let tasks = cache.on(at(2), Some(TWO), Seen::Revoke { revocation: RevocationId(1), keys, open: false });
    let [Task::Forget(shown), Task::Dropped(TWO, RevocationId(1))] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!(*shown, [Shown::Attr(FAR)]);
    assert!(cache.attr(FAR, at(2)).is_none() && cache.attr(NEAR, at(2)).is_some());
    // Its number says nothing to the other.
    assert!(cache.on(at(2), Some(ONE), Seen::Dropped { revocation: RevocationId(1) }).is_empty());
    let tasks = cache.on(at(2), Some(TWO), Seen::Dropped { revocation: RevocationId(1) });
    assert!(matches!(tasks[..], [Task::Acknowledge]), "{tasks:?}");
    // The right to write is another matter, and a recall by who does not hold the file is not obeyed.
    let (generation, token) = (Generation(9 << 40), Generation(9 << 40));
    let recall = Seen::Recall { inode: FAR, generation, token, to: Mode::None, locks: false };
    assert!(cache.on(at(2), Some(ONE), recall).is_empty());
    assert!(cache.may_use(FAR, Want::Write, at(2)));
}

#[test]
fn what_another_holder_than_the_asked_one_granted_is_not_kept() {
    let cache = both();
    cache.changed(FAR);
    assert!(learn(&cache, NEAR, FAR).is_zero());
    assert!(cache.attr(FAR, at(2)).is_none());
    assert!(!learn(&cache, FAR, FAR).is_zero());
    assert!(cache.attr(FAR, at(2)).is_some());
}
