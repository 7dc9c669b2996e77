#![allow(clippy::unwrap_used)]

use super::*;
use braid_api::meta::DirAfter;
use braid_lease::{Renewal, Seen};
use braid_types::{DeviceId, FileKind, MembershipEpoch, Mode};
use std::sync::Arc;

pub fn attr(id: u64) -> Attr {
    let t = Timestamp(0);
    let id = InodeId(id);
    Attr {
        id,
        kind: FileKind::File,
        mode: Mode(0),
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: DeviceId(0),
        size: 0,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
        trunc_gen: TruncGen(0),
        xattrs: false,
        sealed: false,
    }
}

pub fn at(ms: u64) -> Monotonic {
    Monotonic(Duration::from_millis(ms))
}

fn leased() -> Cache {
    let cache = Cache::new(10);
    let (term, epoch) = (Duration::from_secs(10), MembershipEpoch(1));
    let asked = Moment::default();
    alone(&cache, SERVER, 1, 0);
    let renewal = Renewal { asked, term, prolonged: true, epoch, reassert: None, anew: false };
    assert!(cache.renewed(at(0), SERVER, renewal).is_empty());
    cache
}

const SERVER: MemberId = MemberId(1);

/// A server holds everything from then on. Gives what the kernel has to forget.
fn alone(cache: &Cache, server: MemberId, epoch: u64, ms: u64) -> Vec<Shown> {
    let tasks = cache.roster_is(at(ms), Roster::alone(MembershipEpoch(epoch), server));
    let [Task::Forget(shown), Task::DroppedSlots(number), Task::Renew(at)] = &tasks[..] else { panic!("{tasks:?}") };
    assert!(cache.dropped(*number).is_empty() && *at == server);
    shown.clone()
}

fn learn_attr(cache: &Cache, asking: Asking<'_>, granted: bool) -> Duration {
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Attr(&attr(5), granted)])
}

#[test]
fn nothing_is_shown_without_its_lease() {
    let cache = leased();
    let (id, root, name) = (InodeId(5), InodeId(1), "a".parse().unwrap());
    assert_eq!(learn_attr(&cache, cache.ask(InodeId(5)), false), Duration::ZERO);
    assert!(cache.attr(id, at(1000)).is_none());
    // 98 % of 10 s less 0.2 s, of which one is over.
    assert_eq!(learn_attr(&cache, cache.ask(InodeId(5)), true), Duration::from_millis(8_600));
    let asking = cache.ask(InodeId(5));
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Name(root, &name, None, true)]);
    assert_eq!(cache.attr(id, at(9_599)).unwrap().1, Duration::from_millis(1));
    assert_eq!(cache.name(root, &name, at(2_000)), Some((None, Duration::from_millis(7_600))));
    assert!(cache.attr(id, at(9_600)).is_none() && cache.name(root, &name, at(9_600)).is_none());
}

#[test]
fn what_is_revoked_is_not_shown_and_the_kernel_is_to_forget_it() {
    let cache = leased();
    let (root, name): (_, Name) = (InodeId(1), "a".parse().unwrap());
    learn_attr(&cache, cache.ask(InodeId(5)), true);
    let asking = cache.ask(InodeId(5));
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Name(root, &name, None, true)]);
    let late = cache.ask(InodeId(5));
    let keys = vec![Key::Dir(root), Key::Attr(InodeId(5))];
    let tasks = cache.on(at(1500), Some(SERVER), Seen::Revoke { revocation: RevocationId(3), keys, open: false });
    let [Task::Forget(shown), Task::Dropped(SERVER, RevocationId(3))] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!(*shown, [Shown::Entry(root, name.clone()), Shown::Attr(InodeId(5))]);
    assert!(cache.attr(InodeId(5), at(1500)).is_none() && cache.name(root, &name, at(1500)).is_none());
    assert_eq!(learn_attr(&cache, late, true), Duration::ZERO, "it was on its way");
    assert!(cache.attr(InodeId(5), at(1500)).is_none());
    let dropped = || cache.on(at(1500), Some(SERVER), Seen::Dropped { revocation: RevocationId(3) });
    assert!(matches!(dropped()[..], [Task::Acknowledge]) && dropped().is_empty());
}

#[test]
fn another_start_of_the_server_ends_everything_that_is_shown() {
    let cache = leased();
    learn_attr(&cache, cache.ask(InodeId(5)), true);
    let anew = MemberId(2);
    assert_eq!(alone(&cache, anew, 2, 2000), [Shown::Attr(InodeId(5))]);
    let (asked, term, epoch) = (Moment(Duration::from_secs(2)), Duration::from_secs(10), MembershipEpoch(2));
    let renewal = Renewal { asked, term, prolonged: true, epoch, reassert: Some(4), anew: true };
    let tasks = cache.renewed(at(2000), anew, renewal);
    let [Task::Forget(shown), Task::DroppedSlots(number)] = &tasks[..] else { panic!("{tasks:?}") };
    assert!(shown.is_empty(), "it was told");
    let tasks = cache.dropped(*number);
    assert!(matches!(tasks[..], [Task::Reassert(at, 4)] if at == anew), "{tasks:?}");
    assert!(cache.attr(InodeId(5), at(2000)).is_none());
}

#[test]
fn what_is_being_changed_is_asked_for() {
    let cache = leased();
    learn_attr(&cache, cache.ask(InodeId(5)), true);
    let (change, read) = (cache.change(InodeId(5), vec![Key::Attr(InodeId(5))]), cache.ask(InodeId(5)));
    assert!(cache.attr(InodeId(5), at(1000)).is_none(), "another mount may see the change already");
    assert_eq!(learn_attr(&cache, read, true), Duration::ZERO, "it may be of before");
    let chmod = Attr { mode: Mode(0o700), ..attr(5) };
    let ticket = change.ticket;
    cache.learn(change, ticket, at(1000), &[Learnt::Attr(&chmod, true)]);
    assert_eq!(cache.attr(InodeId(5), at(1000)).unwrap().0, chmod);
    drop(cache.change(InodeId(5), vec![Key::Attr(InodeId(5))]));
    assert!(cache.attr(InodeId(5), at(1000)).is_none(), "one that was given up may have been made");
}

fn pages() -> Arc<parking_lot::Mutex<crate::dirpages::Pages>> {
    Arc::default()
}

/// The first page of a directory was read.
fn list_first(
    cache: &Cache,
    dir: InodeId,
    pages: &Arc<parking_lot::Mutex<crate::dirpages::Pages>>,
) -> Option<ListingId> {
    cache.reads_listing(dir, at(1000));
    let (asking, id) = (cache.ask(InodeId(5)), AtomicU64::new(0));
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Listing(dir, true, pages, &id)]);
    ListingId::from_learnt(id.into_inner())
}

fn revoke(cache: &Cache, number: u64, key: Key) -> Vec<Shown> {
    let seen = Seen::Revoke { revocation: RevocationId(number), keys: vec![key], open: false };
    match &cache.on(at(1000), Some(SERVER), seen)[..] {
        [Task::Forget(shown), _] => shown.clone(),
        tasks => panic!("{tasks:?}"),
    }
}

#[test]
fn a_listing_that_ends_in_another_lease_than_it_began_says_nothing_of_absences() {
    let cache = leased();
    let (dir, pages, new) = (InodeId(1), pages(), "new".parse().unwrap());
    let first = list_first(&cache, dir, &pages).unwrap();
    assert_eq!(revoke(&cache, 1, Key::Dir(dir)), [Shown::Listing(dir)], "a cache above may have some of it");
    // Another handle begins, and nothing changes here in between.
    let second = list_first(&cache, dir, &pages).unwrap();
    assert!(!cache.end_listing(dir, first, at(1000), || Some(vec![])), "it was made in the lease before");
    assert_eq!(cache.name(dir, &new, at(1000)), None);
    assert!(cache.end_listing(dir, second, at(1000), || Some(vec!["old".parse().unwrap()])));
    assert!(matches!(cache.name(dir, &new, at(1000)), Some((None, _))));
    assert_eq!(cache.name(dir, &"old".parse().unwrap(), at(1000)), None, "it is there, and who it is is asked");
    let told = revoke(&cache, 2, Key::Dir(dir));
    assert_eq!(told, [Shown::Entry(dir, new.clone()), Shown::Listing(dir)]);
    assert_eq!(cache.name(dir, &new, at(1000)), None);
    assert!(revoke(&cache, 3, Key::Dir(dir)).is_empty(), "nobody has begun to read it since");
}

#[test]
fn what_a_change_may_have_made_is_no_absence() {
    let cache = leased();
    let (dir, a, b): (_, Name, Name) = (InodeId(1), "a".parse().unwrap(), "b".parse().unwrap());
    let asking = cache.ask(InodeId(5));
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Empty(dir, true)]);
    let absent = |name: &Name| matches!(cache.name(dir, name, at(1000)), Some((None, _)));
    assert!(absent(&a) && absent(&b));
    // Nobody knows what became of it.
    drop(cache.change(dir, entry_keys(dir, &a)));
    assert!(!absent(&a) && absent(&b));
    // It is removed, and nothing else changed meanwhile.
    let gone = |asking: Asking<'_>, name: &Name| {
        let (ticket, after) = (asking.ticket, DirAfter::from(attr(1)));
        cache.learn(asking, ticket, at(1000), &[Learnt::Gone(dir, name), Learnt::Dir(dir, &after)]);
    };
    gone(cache.change(dir, entry_keys(dir, &a)), &a);
    assert!(absent(&a));
    // Two changes of it at once, whose answers come in either order: which was last is not known.
    let (remove, make) = (cache.change(dir, entry_keys(dir, &a)), cache.change(dir, entry_keys(dir, &a)));
    gone(remove, &a);
    assert!(!absent(&a));
    drop(make);
    let (make, remove) = (cache.change(dir, entry_keys(dir, &b)), cache.change(dir, entry_keys(dir, &b)));
    let (ticket, (child, after)) = (make.ticket, (attr(9), DirAfter::from(attr(1))));
    let made = [Learnt::Name(dir, &b, Some(child.id), true), Learnt::Attr(&child, true), Learnt::Dir(dir, &after)];
    cache.learn(make, ticket, at(1000), &made);
    gone(remove, &b);
    assert!(!absent(&b) && !absent(&a));
}

#[test]
fn a_directory_is_shown_as_the_last_change_of_it_left_it() {
    let cache = leased();
    let (dir, name): (_, Name) = (InodeId(1), "a".parse().unwrap());
    let change = |asking: Asking<'_>, size: u64| {
        let (ticket, attr) = (asking.ticket, Attr { size, ..attr(1) });
        let after = DirAfter { attr: Some(attr), granted: true };
        cache.learn(asking, ticket, at(1000), &[Learnt::Gone(dir, &name), Learnt::Dir(dir, &after)]);
    };
    let size = || cache.attr(dir, at(1000)).map(|(attr, _)| attr.size);
    change(cache.change(dir, entry_keys(dir, &name)), 7);
    assert_eq!(size(), Some(7));
    // Of two at once neither answer is known to be the later.
    let (one, other) = (cache.change(dir, entry_keys(dir, &name)), cache.change(dir, entry_keys(dir, &name)));
    change(one, 8);
    assert_eq!(size(), None);
    change(other, 6);
    assert_eq!(size(), None);
}

#[test]
fn more_absences_than_fit_are_known_to_be_elsewhere() {
    let cache = leased();
    for i in 0..11 {
        let (name, asking) = (format!("n{i}").parse().unwrap(), cache.ask(InodeId(5)));
        let ticket = asking.ticket;
        cache.learn(asking, ticket, at(1000), &[Learnt::Name(InodeId(1), &name, None, true)]);
    }
    let keys = vec![Key::Dir(InodeId(1))];
    let tasks = cache.on(at(1500), Some(SERVER), Seen::Revoke { revocation: RevocationId(1), keys, open: false });
    assert!(matches!(&tasks[0], Task::Forget(shown) if shown.contains(&Shown::Entries)), "{tasks:?}");
}

#[test]
fn an_own_change_of_mode_is_no_change_of_bytes() {
    let cache = Cache::new(10);
    cache.saw(&attr(5));
    let chmod = Attr { ctime: Timestamp(9), ..attr(5) };
    cache.own_change(&chmod);
    assert_eq!(cache.seen(InodeId(5)), Some(Stamp::from(&chmod)));
    cache.own_change(&Attr { size: 1, ..chmod });
    assert_eq!(cache.seen(InodeId(5)), Some(Stamp::from(&chmod)));
}

#[test]
fn an_answer_overtaken_by_a_newer_one_is_not_kept() {
    let cache = leased();
    let (older, newer) = (cache.ask(InodeId(5)), cache.ask(InodeId(5)));
    let (ticket, chmod) = (newer.ticket, Attr { ctime: Timestamp(9), ..attr(5) });
    cache.learn(newer, ticket, at(1000), &[Learnt::Attr(&chmod, true)]);
    assert_eq!(learn_attr(&cache, older, true), Duration::ZERO);
    assert_eq!(cache.attr(InodeId(5), at(1000)).unwrap().0, chmod);
    let (asking, chown) = (cache.ask(InodeId(5)), Attr { ctime: Timestamp(10), ..chmod });
    let ticket = asking.ticket;
    cache.learn(asking, ticket, at(1000), &[Learnt::Attr(&chown, false)]);
    assert!(cache.attr(InodeId(5), at(1000)).is_none(), "what was shown before a newer answer is not shown after it");
}

#[test]
fn an_answer_overtaken_by_a_change_is_not_kept() {
    let cache = leased();
    let asking = cache.ask(InodeId(5));
    cache.changed(InodeId(5));
    assert_eq!(learn_attr(&cache, asking, true), Duration::ZERO);
    assert!(cache.attr(InodeId(5), at(1)).is_none());
}

#[test]
fn a_page_is_known_if_every_name_of_it_is() {
    let (cache, dir) = (leased(), InodeId(1));
    let name = |n: u64| -> Name { format!("n{n}").parse().unwrap() };
    let learn = |items: &[Learnt<'_>]| {
        let asking = cache.ask(InodeId(5));
        let ticket = asking.ticket;
        cache.learn(asking, ticket, at(1000), items);
    };
    let make = |n: u64| {
        let asking = cache.change(dir, entry_keys(dir, &name(n)));
        let ticket = asking.ticket;
        let after = DirAfter { attr: Some(attr(1)), granted: true };
        let (name, attr) = (name(n), attr(n));
        let made = [Learnt::Name(dir, &name, Some(attr.id), true), Learnt::Attr(&attr, true), Learnt::Dir(dir, &after)];
        cache.learn(asking, ticket, at(1000), &made);
    };
    let page = |after: Option<u64>, limit: usize| {
        let after = after.map(name);
        let known = cache.known_page(dir, after.as_ref(), limit, at(1000), None)?;
        let ids: Vec<u64> = known.entries.entries.iter().map(|(_, id, ..)| id.0).collect();
        Some((ids, known.entries.more))
    };
    assert_eq!(page(None, 9), None, "nothing is known of it");
    learn(&[Learnt::Empty(dir, true)]);
    assert_eq!(page(None, 9), Some((vec![], false)));
    [4, 2, 3].into_iter().for_each(make);
    assert_eq!(page(None, 9), Some((vec![2, 3, 4], false)));
    assert_eq!((page(None, 2), page(Some(2), 1)), (Some((vec![2, 3], true)), Some((vec![3], true))));
    assert_eq!((page(Some(4), 5), page(Some(3), 1)), (Some((vec![], false)), Some((vec![4], false))));
    // While a name of it is being changed.
    let changing = cache.change(dir, entry_keys(dir, &name(2)));
    assert_eq!(page(None, 9), None);
    let (ticket, gone) = (changing.ticket, name(2));
    let after = DirAfter { attr: Some(attr(1)), granted: true };
    cache.learn(changing, ticket, at(1000), &[Learnt::Gone(dir, &gone), Learnt::Dir(dir, &after)]);
    assert_eq!(page(None, 9), Some((vec![3, 4], false)));
    let attr_changing = cache.change(InodeId(4), vec![Key::Attr(InodeId(4))]);
    assert_eq!((page(None, 9), page(None, 1)), (None, Some((vec![3], true))));
    drop(attr_changing);
    assert_eq!(page(None, 9), None, "whether it happened is not known");
    learn(&[Learnt::Attr(&attr(4), true)]);
    assert_eq!(page(None, 9), Some((vec![3, 4], false)));
    let revoke = |n: u64, key: Key| {
        cache.on(at(1000), Some(SERVER), Seen::Revoke { revocation: RevocationId(n), keys: vec![key], open: false });
    };
    revoke(1, Key::Attr(InodeId(3)));
    assert_eq!((page(None, 9), page(Some(3), 9)), (None, Some((vec![4], false))));
    revoke(2, Key::Dir(dir));
    assert_eq!(page(Some(3), 9), None, "others may have made more");
}

#[test]
fn a_parent_is_kept_with_the_listing_it_was_asked_for() {
    let (cache, dir, pages) = (leased(), InodeId(1), Arc::default());
    let begin = || {
        let asking = cache.ask(InodeId(5));
        let ticket = asking.ticket;
        cache.learn(asking, ticket, at(1000), &[Learnt::Empty(dir, true)]);
        cache.known_page(dir, None, 9, at(1000), Some(&pages)).unwrap().listing.unwrap()
    };
    assert_eq!(cache.listed(dir, at(1000)), None);
    let first = begin();
    cache.keep_parent(dir, first, InodeId(7));
    assert_eq!(cache.listed(dir, at(1000)), Some((first, Some(InodeId(7)))));
    assert_eq!(cache.listed(dir, at(9_700)), None, "its lease is over");
    cache.moved(dir);
    assert_eq!(cache.listed(dir, at(1000)), None);
    let second = begin();
    cache.keep_parent(dir, first, InodeId(7));
    assert_eq!(cache.listed(dir, at(1000)), Some((second, None)), "it was on its way");
}
