//! Several metadata servers that serve at once, each for its part (docs/design/0027-several-that-serve.md).

#![allow(clippy::unwrap_used)]

mod limits;
mod snapshots;

use crate::common::ring::*;
use crate::common::*;
use braid_api::lease::{LeaseKey, Order};
use braid_api::meta::*;
use braid_api::{Code, Context, Namespace};
use braid_types::*;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;
const SHORT: Duration = Duration::from_millis(100);

/// A directory below the root whose slot this server holds.
async fn dir_of(mount: &Mount, id: MemberId, text: &str) -> Attr {
    for attempt in 0..200 {
        let made =
            MakeNode { parent: ROOT.into(), name: name(&format!("{text}{attempt}")), spec: spec(FileKind::Directory) };
        let attr = mount.of(ROOT, made).await.unwrap().attr;
        if mount.ring.roster().holder_of(attr.id.slot()) == Some(id) {
            return attr;
        }
    }
    panic!("of 200 directories none is of {id}")
}

/// The name of a directory below the root.
async fn name_of(mount: &Mount, dir: InodeId) -> String {
    let place = mount.of(dir, GetPlace { id: dir }).await.unwrap();
    String::from_utf8(place.name.unwrap().as_bytes().to_vec()).unwrap()
}

fn open(id: InodeId, want: FileWant) -> OpenFile {
    OpenFile { inode: id.into(), truncate: false, want }
}

/// A name whose attributes nobody has to himself.
fn link_at(parent: InodeId, text: &str) -> MakeNode {
    MakeNode { parent: parent.into(), name: name(text), spec: spec(FileKind::Symlink) }
}

fn revoked(orders: &[Order]) -> Vec<LeaseKey> {
    let keys = orders.iter().filter_map(|order| match order {
        Order::Revoke { keys, .. } => Some(keys.clone()),
        _ => None,
    });
    keys.flatten().collect()
}

#[tokio::test]
async fn who_is_not_the_holder_says_so_and_changes_nothing() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await;
    let (own, other) = (ring.server(MemberId(2)), ring.leader());
    assert_eq!(code(mount.at(&other, create(dir.id, "f")).await), Code::HeldElsewhere);
    assert_eq!(mount.at(&other, Lookup { parent: dir.id, name: name("f") }).await.unwrap().attr, None);
    let made = mount.at(&own, create(dir.id, "f")).await.unwrap();
    assert_eq!(made.lease.state, LeaseState::Exclusive);
    assert_eq!(code(mount.at(&other, open(made.attr.id, FileWant::Read)).await), Code::HeldElsewhere);
    assert_eq!(code(mount.at(&own, GetServers {}).await), Code::HeldElsewhere, "that is for who leads");
    let found = mount.at(&other, Lookup { parent: dir.id, name: name("f") }).await.unwrap();
    assert_eq!(
        (found.attr.unwrap().id, found.grant),
        (made.attr.id, Grant::default()),
        "it may be told, and not be kept"
    );
    let found = mount.at(&own, Lookup { parent: dir.id, name: name("f") }).await.unwrap();
    assert!(found.grant.entry);
}

#[tokio::test]
async fn a_change_of_slots_of_two_waits_for_who_caches_at_the_other() {
    let ring = Ring::of(2).await;
    let (mover, cacher) = (Mount::open(&ring, 1).await, Mount::open(&ring, 2).await);
    let from = dir_of(&mover, LEADER, "from").await;
    let to = dir_of(&mover, MemberId(2), "to").await;
    mover.of(from.id, link_at(from.id, "f")).await.unwrap();
    let absent = cacher.of(to.id, Lookup { parent: to.id, name: name("g") }).await.unwrap();
    assert!(absent.attr.is_none() && absent.grant.entry, "it may show that there is none");
    let (moves, at) = (rename((from.id, "f"), (to.id, "g"), RenameKind::Replace), ring.holder(from.id));
    let cx = mover.cx();
    let moving = tokio::spawn(async move { at.call(cx, moves).await });
    tokio::time::sleep(SHORT).await;
    assert!(!moving.is_finished(), "the other still shows that there is no such name");
    let before = cacher.of(to.id, Lookup { parent: to.id, name: name("g") }).await.unwrap();
    assert!(before.attr.is_none() && !before.grant.entry);
    let keys = revoked(&cacher.listens(MemberId(2), Duration::from_secs(5)).await);
    assert!(keys.contains(&LeaseKey::Dir(to.id)), "{keys:?}");
    let moved = moving.await.unwrap().unwrap();
    let look = || cacher.of(to.id, Lookup { parent: to.id, name: name("g") });
    assert_eq!(look().await.unwrap().attr.map(|attr| attr.id), Some(moved.moved.id));
    eventually("the change is released there", async || look().await.unwrap().grant.entry).await;
}

#[tokio::test]
async fn who_makes_a_change_is_not_asked_by_anybody() {
    let ring = Ring::of(3).await;
    let mount = Mount::open(&ring, 1).await;
    let from = dir_of(&mount, MemberId(2), "from").await;
    let to = dir_of(&mount, MemberId(3), "to").await;
    mount.of(from.id, create(from.id, "f")).await.unwrap();
    assert!(mount.of(to.id, Lookup { parent: to.id, name: name("g") }).await.unwrap().grant.entry);
    mount.of(from.id, rename((from.id, "f"), (to.id, "g"), RenameKind::Replace)).await.unwrap();
    for id in 1..=3 {
        assert_eq!(mount.listens(MemberId(id), Duration::from_millis(1)).await, [], "server {id}");
    }
}

/// Whoever sent it may have heard of the newer roster since, seen that the start of the server which it had asked is none of it, asked
/// another one and been told that it fails: it must not be made behind that. The process may be the same, and a member as another.
#[tokio::test]
async fn a_change_that_was_sent_under_an_older_roster_is_not_made() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await;
    let before = ring.roster().epoch;
    ring.turn([1, 2].map(MemberId).to_vec()).await;
    let now = ring.roster().epoch;
    mount.renew().await;
    let server = ring.server(MemberId(2));
    let late = server.call(mount.cx().under(before), create(dir.id, "f")).await;
    assert_eq!(code(late), Code::HeldElsewhere);
    let found = server.call(mount.cx().under(before), Lookup { parent: dir.id, name: name("f") }).await.unwrap();
    assert!(found.attr.is_none(), "and a question is answered");
    for (text, under) in [("of now", now), ("of a newer one", now.next())] {
        server.call(mount.cx().under(under), create(dir.id, text)).await.unwrap();
    }
}

#[tokio::test]
async fn what_stays_where_it_is_is_kept_and_what_moves_waits_for_everybody() {
    let ring = Ring::of(2).await;
    let (mount, silent) = (Mount::open(&ring, 1).await, Mount::open(&ring, 2).await);
    ring.start(MemberId(3)).await;
    let next = {
        let mut next = ring.roster();
        next.members.push(braid_members::Seat { id: MemberId(3), addresses: Vec::new() });
        next
    };
    let of = |id: u64| {
        let (before, next) = (ring.roster(), next.clone());
        move |inode: InodeId| {
            before.holder_of(inode.slot()) == next.holder_of(inode.slot())
                && before.holder_of(inode.slot()) == Some(MemberId(id))
        }
    };
    let (mut stays, mut goes) = (None, None);
    for i in 0..100 {
        let dir = dir_of(&mount, MemberId(2), &format!("d{i}-")).await;
        match of(2)(dir.id) {
            true => stays = Some(dir.id),
            false => goes = Some(dir.id),
        }
        if stays.is_some() && goes.is_some() {
            break;
        }
    }
    let (stays, goes) = (stays.unwrap(), goes.unwrap());
    let [kept, moved] = [stays, goes].map(|dir| create(dir, "f"));
    let (kept, moved) = (mount.of(stays, kept).await.unwrap(), mount.of(goes, moved).await.unwrap());
    ring.turn([1, 2, 3].map(MemberId).to_vec()).await;
    // The one that stays is the session's as before: nobody has to be asked, and its term goes on.
    let term = mount.at(&ring.server(MemberId(2)), RenewTerm {}).await.unwrap().term.unwrap();
    assert_eq!((term.epoch, term.reassert, term.prolonged), (ring.roster().epoch, None, true));
    let again = mount.of(stays, open(kept.attr.id, FileWant::WriteDirect)).await.unwrap();
    assert_eq!(again.lease.state, LeaseState::Exclusive);
    assert_eq!(
        code(mount.at(&ring.server(MemberId(2)), open(moved.attr.id, FileWant::Read)).await),
        Code::HeldElsewhere
    );
    // The other is the new holder's, which waits until both have said what they have.
    let third = ring.server(MemberId(3));
    let term = mount.at(&third, RenewTerm {}).await.unwrap().term.unwrap();
    let files = vec![(moved.attr.id, LeaseState::Exclusive)];
    mount.reassert(&third, term, term.reassert.unwrap(), files).await;
    let (cx, at, id) = (mount.cx(), third.clone(), moved.attr.id);
    let opening = tokio::spawn(async move { at.call(cx, open(id, FileWant::WriteDirect)).await });
    tokio::time::sleep(SHORT).await;
    assert!(!opening.is_finished(), "the other session may have it");
    silent.renew().await;
    assert_eq!(opening.await.unwrap().unwrap().lease.state, LeaseState::Exclusive);
}

#[tokio::test]
async fn a_server_that_dies_takes_nothing_with_it() {
    let ring = Ring::of(3).await;
    let (mount, cacher) = (Mount::open(&ring, 1).await, Mount::open(&ring, 2).await);
    let dir = dir_of(&mount, MemberId(3), "d").await;
    let target = dir_of(&mount, MemberId(2), "t").await;
    let made = mount.of(dir.id, link_at(dir.id, "f")).await.unwrap();
    assert!(cacher.of(target.id, Lookup { parent: target.id, name: name("g") }).await.unwrap().grant.entry);
    // It has announced a change at the second, which waits there for the one that caches.
    let (moves, at) = (rename((dir.id, "f"), (target.id, "g"), RenameKind::Replace), ring.holder(dir.id));
    let cx = mount.cx();
    let moving = tokio::spawn({
        let moves = moves.clone();
        async move { at.call(cx, moves).await }
    });
    tokio::time::sleep(SHORT).await;
    ring.kill(MemberId(3));
    moving.abort();
    ring.turn([1, 2].map(MemberId).to_vec()).await;
    mount.renew().await;
    cacher.renew().await;
    assert_eq!(cacher.listens(MemberId(2), Duration::from_secs(1)).await.len(), 1, "it was asked before that");
    // What the dead one had announced is nobody's any more: names there may be kept again.
    let absent = cacher.of(target.id, Lookup { parent: target.id, name: name("g") }).await.unwrap();
    assert!(absent.attr.is_none() && absent.grant.entry);
    let found = mount.of(dir.id, Lookup { parent: dir.id, name: name("f") }).await.unwrap();
    assert_eq!(found.attr.map(|attr| attr.id), Some(made.attr.id));
    // The request goes on at another, under its number.
    let at = ring.holder(dir.id);
    let moving = tokio::spawn(async move { at.call(cx, moves).await });
    cacher.listens(MemberId(2), Duration::from_secs(5)).await;
    assert_eq!(moving.await.unwrap().unwrap().moved.id, made.attr.id);
}

#[tokio::test]
async fn a_request_repeated_at_another_takes_effect_once() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await;
    let make = MakeNode { parent: dir.id.into(), name: name("x"), spec: spec(FileKind::Directory) };
    let cx = mount.cx();
    let first = ring.holder(dir.id).call(cx, make.clone()).await.unwrap();
    ring.kill(MemberId(2));
    ring.turn(vec![LEADER]).await;
    let again = ring.holder(dir.id).call(cx, make).await.unwrap();
    assert_eq!((again.attr, again.grant), (first.attr, Grant::default()));
}

#[tokio::test]
async fn a_session_ends_at_every_server() {
    let ring = Ring::of(2).await;
    let (gone, mount) = (Mount::open(&ring, 1).await, Mount::open(&ring, 2).await);
    let dir = dir_of(&gone, MemberId(2), "d").await;
    let made = gone.of(dir.id, create(dir.id, "f")).await.unwrap();
    assert_eq!(made.lease.state, LeaseState::Exclusive);
    gone.at(&ring.leader(), EndSession {}).await.unwrap();
    let opened = mount.of(dir.id, open(made.attr.id, FileWant::WriteDirect)).await.unwrap();
    assert_eq!(opened.lease.state, LeaseState::Exclusive, "nobody has to be waited for");
    let renewed = gone.at(&ring.server(MemberId(2)), RenewTerm {}).await;
    assert_eq!(code(renewed), Code::SessionUnknown);
}

#[tokio::test]
async fn a_file_that_is_open_somewhere_outlives_its_last_name() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await;
    let made = mount.of(dir.id, create(dir.id, "f")).await.unwrap();
    let unlink = Unlink { parent: dir.id.into(), name: name("f"), open_here: true };
    mount.of(dir.id, unlink).await.unwrap();
    // Whoever leads hears of it, and asks the session with its renewals.
    let renew =
        |seen, held: Vec<InodeId>| RenewSession { low_water: RequestId(0), orphans_seen: seen, orphans_held: held };
    let mut seen = 0;
    let leader = ring.leader();
    eventually("the leader hears of it", async || {
        let reply = mount.at(&leader, renew(seen, Vec::new())).await.unwrap();
        seen = reply.orphans_seen;
        reply.orphans.contains(&made.attr.id)
    })
    .await;
    mount.at(&leader, renew(seen, vec![made.attr.id])).await.unwrap();
    tokio::time::sleep(SHORT).await;
    assert!(mount.of(dir.id, GetAttr { inode: made.attr.id.into() }).await.is_ok(), "it is held");
    mount.at(&leader, renew(seen, Vec::new())).await.unwrap();
    eventually("it is freed", async || mount.of(dir.id, GetAttr { inode: made.attr.id.into() }).await.is_err()).await;
}

#[tokio::test]
async fn what_needs_one_server_alone_is_refused() {
    use braid_api::admin::AdminQuery;
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let hold = || AdminQuery::Hold { hold: 1, ms: 1000 };
    let refused = mount.at(&ring.leader(), hold()).await.unwrap_err();
    assert_eq!(refused.code, Code::Busy);
    assert!(refused.cause().contains("1 metadata servers serve beside"), "{refused}");
    ring.kill(MemberId(2));
    ring.turn(vec![LEADER]).await;
    mount.renew().await;
    let refused = mount.at(&ring.leader(), hold()).await.unwrap_err();
    assert_eq!(refused.code, Code::NotSupported, "only this ring has no place for it: {refused}");
}

/// Clients of all kinds of changes, while servers come and go: nothing that was acknowledged is lost, and nothing happens twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_go_on_while_servers_come_and_go() {
    let ring = Ring::of(3).await;
    let mounts: Vec<Arc<Mount>> = {
        let mut mounts = Vec::new();
        for client in 1..=3 {
            mounts.push(Arc::new(Mount::open(&ring, client).await));
        }
        mounts
    };
    let mut dirs = Vec::new();
    for i in 1..=3 {
        dirs.push(dir_of(&mounts[0], MemberId(i), &format!("d{i}-")).await.id);
    }
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = |over: &std::sync::atomic::AtomicBool| over.load(std::sync::atomic::Ordering::SeqCst);
    // What a kernel would do: every word is obeyed, at each server.
    let mut listening = Vec::new();
    for mount in &mounts {
        let (mount, over) = (mount.clone(), over.clone());
        listening.push(tokio::spawn(async move {
            let mut each = tokio::task::JoinSet::new();
            let mut at = std::collections::BTreeSet::new();
            while !is_over(&over) {
                for seat in mount.ring.roster().members {
                    if at.insert(seat.id) {
                        let (mount, over) = (mount.clone(), over.clone());
                        each.spawn(async move {
                            while !is_over(&over) {
                                mount.obeys(seat.id, Duration::from_millis(50)).await;
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                        });
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            each.join_all().await;
        }));
    }
    let mut working = Vec::new();
    for (number, mount) in mounts.iter().enumerate() {
        let (mount, dirs) = (mount.clone(), dirs.clone());
        working.push(tokio::spawn(async move {
            let mut there: Vec<(usize, String)> = Vec::new();
            for i in 0..300 {
                let text = format!("n{number}-{i}");
                let at = i % 3;
                let node = MakeNode { parent: dirs[at].into(), name: name(&text), spec: spec(FileKind::Symlink) };
                mount.sends(dirs[at], node).await.unwrap();
                let to = (i + 1) % 3;
                let moves = rename((dirs[at], &text), (dirs[to], &text), RenameKind::NoReplace);
                mount.sends(dirs[at], moves).await.unwrap();
                // Somebody looks, so that somebody caches.
                let seen = mount.sends(dirs[to], Lookup { parent: dirs[to], name: name(&text) }).await.unwrap();
                assert!(seen.attr.is_some(), "{text} is not there after it was moved");
                match i % 4 {
                    0 => {
                        let unlink = Unlink { parent: dirs[to].into(), name: name(&text), open_here: false };
                        mount.sends(dirs[to], unlink).await.unwrap();
                    }
                    _ => there.push((to, text)),
                }
            }
            there
        }));
    }
    let turning = tokio::spawn({
        let (ring, over) = (ring.clone(), over.clone());
        async move {
            // One that comes again is another.
            let (mut number, mut third) = (3, Some(MemberId(3)));
            while !is_over(&over) {
                tokio::time::sleep(Duration::from_millis(60)).await;
                match third.take() {
                    Some(id) => ring.kill(id),
                    None => {
                        number += 1;
                        ring.start(MemberId(number)).await;
                        third = Some(MemberId(number));
                    }
                }
                ring.turn([LEADER, MemberId(2)].into_iter().chain(third).collect()).await;
            }
        }
    });
    let mut expected: Vec<Vec<String>> = vec![Vec::new(); 3];
    for work in working {
        for (at, text) in work.await.unwrap() {
            expected[at].push(text);
        }
    }
    over.store(true, std::sync::atomic::Ordering::SeqCst);
    turning.await.unwrap();
    for listener in listening {
        listener.await.unwrap();
    }
    for (dir, mut expected) in dirs.iter().zip(expected) {
        expected.sort();
        let page = mounts[0]
            .sends(*dir, ReadDir { inode: *dir, after: None, limit: 1000, plus: false, knows: Vec::new() })
            .await
            .unwrap();
        let mut found: Vec<String> = page.entries.iter().map(|(name, ..)| name.to_string()).collect();
        found.sort();
        assert_eq!(found, expected);
    }
}

/// What was under way beside others before a data server began anew is decided before anything new is, whichever server gave it out.
#[tokio::test]
async fn a_data_server_that_begins_anew_hears_of_the_numbers_of_all() {
    let ring = Ring::of(2).await;
    let mount = Mount::open(&ring, 1).await;
    let dir = dir_of(&mount, MemberId(2), "d").await;
    let mut last = LeaseGen(0);
    for i in 0..5 {
        last = mount.of(dir.id, create(dir.id, &format!("f{i}"))).await.unwrap().lease.generation;
    }
    let register = |id, incarnation| RegisterServer {
        id,
        incarnation,
        addresses: vec!["tcp:nowhere:1".into()],
        host: "h".into(),
        clean_stop: false,
        rack: String::new(),
    };
    let id = mount.at(&ring.leader(), register(ServerId(0), 1)).await.unwrap().id;
    let again = mount.at(&ring.leader(), register(id, 2)).await.unwrap();
    assert!(again.sync_floor >= last, "{:?} is below {last:?}", again.sync_floor);
    let next = mount.of(dir.id, create(dir.id, "next")).await.unwrap().lease.generation;
    assert!(next > again.sync_floor);
    // With one that does not answer nothing is said until it is no member any more.
    ring.kill(MemberId(2));
    let early = mount.at(&ring.leader(), register(id, 3)).await;
    assert!(early.is_err(), "{early:?}");
    ring.turn(vec![LEADER]).await;
    assert!(mount.at(&ring.leader(), register(id, 3)).await.is_ok());
}

/// A session that was to end when the leader went is ended by the next.
#[tokio::test]
async fn an_end_that_was_begun_is_gone_on_with_by_the_next_leader() {
    let ms = Duration::from_millis;
    let config = braid_meta_server::MetaConfig {
        session_lease: ms(1000),
        session_renew: ms(300),
        server_lease: ms(900),
        heartbeat: ms(250),
        ..fast_config()
    };
    let ring = Ring::with(2, config).await;
    let mount = Mount::open(&ring, 1).await;
    for ends in [Ends::Gone, Ends::Begins] {
        let (to, from) = (MemberId(2), LEADER);
        let ends = EndsAt { to, from, session: mount.session.session, ends };
        mount.at(&ring.server(MemberId(2)), ends).await.unwrap();
    }
    assert_eq!(code(mount.at(&ring.server(MemberId(2)), RenewTerm {}).await), Code::SessionUnknown);
    // The former leader says no more, and another leads.
    ring.lead_anew(MemberId(9)).await;
    let other = Mount::open(&ring, 2).await;
    // Of what went with the former leader it is not known whether it was granted there: a session's lease passes first.
    eventually("the session has ended", async || {
        use braid_api::admin::{AdminAnswer, AdminQuery};
        let sessions = other.at(&ring.leader(), AdminQuery::Sessions).await.unwrap();
        matches!(sessions, AdminAnswer::Sessions(all) if all.iter().all(|s| s.session != mount.session.session))
    })
    .await;
}
