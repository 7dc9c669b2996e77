//! Names removed before that is answered (docs/design/0029-removals-behind.md): nobody can tell, but by the clock.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::admin::{AdminAnswer, AdminQuery, Waiting};
use braid_api::quota::{Limits, Payer};
use braid_api::{Code, Context, FileSystem, Namespace, NewNode, NodeKind};
use braid_client::{Client, ClientConfig};
use braid_types::{Attr, InodeId, Mode};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;
/// What an answer takes where one is to be late, and much less than that.
const LATE: Duration = Duration::from_millis(600);
const SOON: Duration = Duration::from_millis(250);
const FILES: usize = 40;

async fn mkdir(client: &Client, text: &str) -> InodeId {
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    client.make_node(&cx(), ROOT, &name(text), node).await.unwrap().attr.id
}

fn file(n: usize) -> String {
    format!("f{n:03}")
}

async fn make(client: &Client, dir: InodeId, text: &str) -> InodeId {
    let (entry, opened) = client.create(&cx(), dir, &name(text), Mode(0o644), READ_WRITE).await.unwrap();
    close(client, opened.handle).await.unwrap();
    entry.attr.id
}

async fn remove(client: &Client, dir: InodeId, text: &str) -> Duration {
    let begun = Instant::now();
    client.unlink(&cx(), dir, &name(text)).await.unwrap();
    begun.elapsed()
}

async fn attr(client: &Client, dir: InodeId, text: &str) -> Option<Attr> {
    client.lookup(&cx(), dir, &name(text)).await.unwrap().attr
}

async fn names(client: &Client, dir: InodeId) -> BTreeSet<String> {
    let handle = client.open_dir(&cx(), dir).await.unwrap().handle;
    let mut found = BTreeSet::new();
    let mut at = 0;
    loop {
        let page = client.read_dir(&cx(), handle, at, 1000, false).await.unwrap();
        let Some(last) = page.last() else { break };
        at = last.offset;
        found.extend(page.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()));
    }
    client.release(handle).await;
    found.into_iter().filter(|text| !text.starts_with('.')).collect()
}

/// Removes files until one goes behind. Gives what is next.
async fn until_behind(world: &World, client: &Client, dir: InodeId) -> usize {
    // As on a wire, no answer is there at once.
    late(world, Duration::from_millis(2));
    for n in 0..FILES / 2 {
        remove(client, dir, &file(n)).await;
        if client.stats().removed_behind > 0 {
            world.late.lock().clear();
            client.sync_fs().await.unwrap();
            return n + 1;
        }
    }
    panic!("the slot was not given");
}

/// A directory with files, of which so many have been removed that the next goes behind. Gives what is next.
async fn row(world: &World, client: &Client, dir: InodeId) -> usize {
    for n in 0..FILES {
        make(client, dir, &file(n)).await;
    }
    until_behind(world, client, dir).await
}

fn late(world: &World, time: Duration) {
    world.late.lock().insert("Unlink", time);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_what_a_program_was_told_and_wait_for_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let dir = mkdir(&a, "dir").await;
    for n in 0..FILES {
        make(&a, dir, &file(n)).await;
    }
    // It has all of it in its cache before.
    assert_eq!(names(&b, dir).await.len(), FILES);
    let inode = attr(&b, dir, &file(FILES - 1)).await.unwrap().id;
    let next = until_behind(&world, &a, dir).await;
    late(&world, LATE);
    let gone = [next, next + 1, FILES - 1];
    for n in gone {
        assert!(remove(&a, dir, &file(n)).await < SOON, "it waits for the answer");
    }
    let removed = file(next);
    let by_number = async { b.get_attr(&cx(), inode, None).await };
    let asked_why = async {
        tokio::time::sleep(SOON / 2).await;
        match world.meta.call(Context::default(), AdminQuery::Why).await.unwrap() {
            AdminAnswer::Why(why) => why,
            other => panic!("{other:?}"),
        }
    };
    let (by_name, listed, by_number, why) = tokio::join!(attr(&b, dir, &removed), names(&b, dir), by_number, asked_why);
    let waits = |waiting: &&Waiting| (waiting.session, waiting.holder) == (Some(b.session()), Some(a.session()));
    assert_eq!(why.iter().filter(waits).count(), 3, "{why:?}");
    assert_eq!(by_name, None);
    assert_eq!(listed, (next + 2..FILES - 1).map(file).collect());
    assert_eq!(by_number.unwrap().attr.nlink, 0, "its inode stays for who may have it open");
    // Two that work in it do not take it from each other.
    let before = a.stats().removed_behind;
    assert!(remove(&a, dir, &file(next + 2)).await >= LATE, "nobody has the slot now");
    assert_eq!(a.stats().removed_behind, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mount_itself_sees_its_removals_at_once_and_times_that_never_go_back() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    let next = row(&world, &a, dir).await;
    late(&world, LATE);
    let mut last = a.get_attr(&cx(), dir, None).await.unwrap().attr;
    let begun = Instant::now();
    for n in next..next + 5 {
        remove(&a, dir, &file(n)).await;
        let reply = a.get_attr(&cx(), dir, None).await.unwrap();
        assert!(reply.attr.ctime > last.ctime && reply.attr.mtime > last.mtime);
        assert_eq!(reply.valid, Duration::ZERO, "a kernel asks again: it is not the last word");
        last = reply.attr;
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // One is answered before the others: not the last word either.
    late(&world, Duration::from_millis(2));
    remove(&a, dir, &file(next + 5)).await;
    tokio::time::sleep(SOON / 5).await;
    assert!(a.stats().removals_unanswered >= 5);
    let told = a.get_attr(&cx(), dir, None).await.unwrap();
    assert!(told.attr.ctime > last.ctime && told.valid.is_zero(), "{:?}", told.valid);
    last = told.attr;
    late(&world, LATE);
    assert_eq!(attr(&a, dir, &file(next)).await, None);
    assert!(begun.elapsed() >= LATE, "nothing is said of the name before it is known");
    assert_eq!(names(&a, dir).await, (next + 6..FILES).map(file).collect());
    let after = a.get_attr(&cx(), dir, None).await.unwrap();
    assert!(after.attr.ctime > last.ctime && !after.valid.is_zero());
    // Made anew under a name that is on its way out.
    remove(&a, dir, &file(next + 6)).await;
    let again = make(&a, dir, &file(next + 6)).await;
    assert_eq!(attr(&a, dir, &file(next + 6)).await.map(|attr| attr.id), Some(again));
    for n in next + 6..FILES {
        remove(&a, dir, &file(n)).await;
    }
    a.remove_dir(&cx(), ROOT, &name("dir")).await.unwrap();
}

/// The server goes before it has heard of a removal that its program was told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_of_the_metadata_server_nobody_sees_what_was_removed() {
    for kept in [0, 2] {
        let mut world = World::new(Storage::Memory, SMALL).await;
        let (a, b) = (world.client().await, world.client().await);
        let dir = mkdir(&a, "dir").await;
        let next = row(&world, &a, dir).await;
        late(&world, LATE);
        for n in next..next + 3 {
            assert!(remove(&a, dir, &file(n)).await < SOON);
        }
        world.restart_meta(kept).await;
        assert_eq!(names(&b, dir).await, (next + 3..FILES).map(file).collect(), "of the predecessor {kept} are left");
        world.late.lock().clear();
        a.sync_fs().await.unwrap();
        let stats = a.stats();
        assert_eq!((stats.changes_lost, world.meta.repeated().1), (0, 0));
        assert!(stats.changes_replayed >= 3, "{stats:?}");
        // Nothing goes behind by what was agreed with the server before.
        late(&world, LATE);
        assert!(remove(&a, dir, &file(next + 3)).await >= LATE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_fail_or_is_in_use_is_asked_for() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    let next = row(&world, &a, dir).await;
    let linked = make(&a, dir, "linked").await;
    a.link(&cx(), linked, dir, &name("second")).await.unwrap();
    let sealed = make(&a, dir, "sealed").await;
    a.set_sealed(&cx(), sealed, true, Duration::ZERO).await.unwrap();
    let (entry, held) = a.create(&cx(), dir, &name("open"), Mode(0o644), READ_WRITE).await.unwrap();
    // From another directory, so of another slot.
    let elsewhere = mkdir(&a, "elsewhere").await;
    make(&a, elsewhere, "moved").await;
    a.rename(&cx(), (elsewhere, &name("moved")), (dir, &name("moved")), Default::default()).await.unwrap();
    let before = a.stats().removed_behind;
    assert!(before > 0);
    for text in ["linked", "second", "open", "moved"] {
        remove(&a, dir, text).await;
    }
    assert_eq!(a.unlink(&cx(), dir, &name("sealed")).await.unwrap_err().code, Code::Sealed);
    assert_eq!(a.unlink(&cx(), dir, &name("none")).await.unwrap_err().code, Code::NotFound);
    assert_eq!(a.stats().removed_behind, before);
    a.write(held.handle, 0, bytes::Bytes::from_static(b"still there")).await.unwrap();
    assert_eq!(a.get_attr(&cx(), entry.attr.id, Some(held.handle)).await.unwrap().attr.nlink, 0);
    close(&a, held.handle).await.unwrap();
    // Of 2 ms the machine may take all for the sending, and what is answered by then did not go behind.
    late(&world, LATE);
    remove(&a, dir, &file(next)).await;
    assert_eq!(a.stats().removed_behind, before + 1, "the others still go behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fsync_and_the_end_of_the_session_wait_for_removals() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    let next = row(&world, &a, dir).await;
    let handle = a.open_dir(&cx(), dir).await.unwrap().handle;
    late(&world, LATE);
    remove(&a, dir, &file(next)).await;
    let begun = Instant::now();
    a.sync_dir(handle).await.unwrap();
    assert!(begun.elapsed() >= SOON, "{:?}", begun.elapsed());
    assert_eq!((a.stats().changes_kept, a.stats().removals_unanswered), (0, 0));
    a.release(handle).await;
    remove(&a, dir, &file(next + 1)).await;
    a.shutdown().await.unwrap();
    world.restart_meta(0).await;
    let b = world.client().await;
    assert_eq!(names(&b, dir).await, (next + 2..FILES).map(file).collect());
}

/// A session that ends takes with it what had not arrived. That is told, and not made good under another session: somebody
/// else may have given the name away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_did_not_arrive_before_the_session_ended_is_told_by_the_next_fsync() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let dir = mkdir(&a, "dir").await;
    let next = row(&world, &a, dir).await;
    late(&world, LATE);
    remove(&a, dir, &file(next)).await;
    world.end_session(a.session()).await;
    let still = attr(&b, dir, &file(next)).await;
    assert!(still.is_some());
    world.late.lock().clear();
    let told = a.sync_fs().await;
    assert_eq!(told.unwrap_err().code, Code::SessionUnknown);
    assert_eq!((a.stats().changes_lost, a.stats().removals_unanswered), (1, 0));
    assert_eq!(attr(&b, dir, &file(next)).await.map(|attr| attr.id), still.map(|attr| attr.id));
    assert_eq!(attr(&a, dir, &file(next)).await.map(|attr| attr.id), still.map(|attr| attr.id));
    a.sync_fs().await.unwrap();
    // The slot was the other session's.
    late(&world, LATE);
    assert!(attr(&a, dir, &file(next + 1)).await.is_some());
    assert!(remove(&a, dir, &file(next + 1)).await >= LATE, "told under a session that has no slot");
}

/// A file that is just being opened is open, whoever is answered first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_being_opened_outlives_its_name() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    let next = row(&world, &a, dir).await;
    let b = world.client().await;
    let id = attr(&b, dir, &file(next)).await.unwrap().id;
    b.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    late(&world, Duration::from_millis(20));
    for n in next + 1..next + 12 {
        remove(&a, dir, &file(n)).await;
    }
    assert!(a.stats().removed_behind > 3);
    assert_eq!(attr(&a, dir, &file(next)).await.map(|attr| attr.id), Some(id));
    world.answered_late.lock().insert("OpenFile", LATE);
    let opening = tokio::spawn({
        let a = a.clone();
        async move { open(&a, id, READ_WRITE).await }
    });
    tokio::time::sleep(SOON).await;
    remove(&a, dir, &file(next)).await;
    let handle = opening.await.unwrap();
    a.write(handle, 0, bytes::Bytes::from_static(b"still")).await.unwrap();
    a.fsync(handle, false).await.unwrap();
    assert_eq!(read(&a, handle, 0, 5).await, b"still");
    assert_eq!(a.get_attr(&cx(), id, Some(handle)).await.unwrap().attr.nlink, 0);
    close(&a, handle).await.unwrap();
}

/// Who waits for what was told before it came does not wait for what is told after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_starves_behind_a_program_that_removes_and_removes() {
    const MANY: usize = 1500;
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    for n in 0..MANY {
        make(&a, dir, &format!("g{n}")).await;
    }
    // No more than 64 are on their way, so the row takes more than two seconds, whatever the machine.
    late(&world, Duration::from_millis(100));
    let removing = tokio::spawn({
        let a = a.clone();
        async move {
            for n in 0..MANY {
                remove(&a, dir, &format!("g{n}")).await;
            }
        }
    });
    while a.stats().removed_behind < 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    a.sync_fs().await.unwrap();
    mkdir(&a, "beside").await;
    a.rename(&cx(), (ROOT, &name("beside")), (ROOT, &name("moved")), Default::default()).await.unwrap();
    assert!(!removing.is_finished(), "it waited for the whole row");
    removing.await.unwrap();
    assert!(names(&a, dir).await.is_empty());
}

/// Nobody is told that there is no room for what was removed before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_removed_takes_no_room_of_a_quota() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    let beside = a.make_node(&cx(), dir, &name("beside"), node).await.unwrap().attr.id;
    let next = row(&world, &a, dir).await;
    let left = (FILES - next) as u64 + 2;
    let payer = Payer::Dir(dir);
    let set = AdminQuery::SetQuota { payer, limits: Some(Limits { inodes: Some(left), bytes: None }) };
    a.admin(set).await.unwrap();
    loop {
        match a.admin(AdminQuery::Account { payer }).await.unwrap() {
            AdminAnswer::Account(account) if account.counting.is_none() => break,
            AdminAnswer::Account(_) => tokio::time::sleep(SOON / 10).await,
            other => panic!("{other:?}"),
        }
    }
    let full = a.create(&cx(), beside, &name("one too many"), Mode(0o644), READ_WRITE).await;
    assert_eq!(full.map(drop).unwrap_err().code, Code::QuotaExceeded);
    late(&world, Duration::from_millis(2));
    let before = a.stats().removed_behind;
    for n in next..next + 8 {
        remove(&a, dir, &file(n)).await;
        make(&a, dir, &format!("again {n}")).await;
    }
    for n in next + 8..next + 16 {
        late(&world, LATE);
        let is_told = remove(&a, dir, &file(n)).await < SOON;
        let begun = Instant::now();
        make(&a, beside, &format!("{n}")).await;
        if is_told {
            assert!(a.stats().removed_behind > before && begun.elapsed() >= SOON, "{:?}", begun.elapsed());
            return;
        }
    }
    panic!("none went behind");
}

/// Many on their way, of which no more than is good for who waits for them; and a slot in which nothing happens is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_row_keeps_its_bound_and_an_idle_slot_is_left() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let dir = mkdir(&a, "dir").await;
    for n in 0..400 {
        make(&a, dir, &file(n)).await;
    }
    let mut most = 0;
    late(&world, Duration::from_millis(1));
    for n in 0..400 {
        remove(&a, dir, &file(n)).await;
        most = most.max(a.stats().removals_unanswered);
        if n == 100 {
            late(&world, Duration::from_millis(20));
        }
    }
    assert!((2..=64).contains(&most), "{most}");
    assert!(a.stats().removed_behind > 300, "{}", a.stats().removed_behind);
    a.remove_dir(&cx(), ROOT, &name("dir")).await.unwrap();
    let mut sent = world.take_messages().0;
    let begun = Instant::now();
    while !sent.contains_key("LeaveSlots") {
        assert!(begun.elapsed() < Duration::from_secs(5), "{sent:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        sent = world.take_messages().0;
    }
}

/// Who keeps nothing is told nothing before it is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_for_what_is_kept_nothing_goes_behind() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a: Arc<Client> = world.client_with(ClientConfig { kept_bytes: 0, ..ClientConfig::default() }).await;
    let dir = mkdir(&a, "dir").await;
    for n in 0..FILES {
        make(&a, dir, &file(n)).await;
    }
    for n in 0..FILES {
        remove(&a, dir, &file(n)).await;
    }
    assert_eq!((a.stats().removed_behind, a.stats().sent("TakeSlot")), (0, 0));
}

/// `rm -rf` of many small directories: after one that was worth it, the others' slots are asked for with the first name, and are given back
/// together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_small_directories_after_another_most_names_go_behind() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let first = mkdir(&a, "first").await;
    let next = row(&world, &a, first).await;
    let mut dirs = Vec::new();
    for d in 0..8 {
        let dir = mkdir(&a, &format!("d{d}")).await;
        for n in 0..6 {
            make(&a, dir, &file(n)).await;
        }
        dirs.push(dir);
    }
    late(&world, Duration::from_millis(1));
    for n in next..FILES {
        remove(&a, first, &file(n)).await;
    }
    let before = a.stats();
    for (d, dir) in dirs.iter().enumerate() {
        for n in 0..6 {
            remove(&a, *dir, &file(n)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        a.remove_dir(&cx(), ROOT, &name(&format!("d{d}"))).await.unwrap();
    }
    let after = a.stats();
    assert!(
        after.removed_behind - before.removed_behind >= 8 * 3,
        "{} of 48",
        after.removed_behind - before.removed_behind
    );
    // Of directories that share a slot, which chance decides, the second has it.
    let slots: BTreeSet<_> = dirs.iter().filter(|dir| dir.slot() != first.slot()).map(|dir| dir.slot()).collect();
    assert_eq!(after.sent("TakeSlot") - before.sent("TakeSlot"), slots.len() as u64);
    let begun = Instant::now();
    while a.stats().sent("LeaveSlots") == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(a.stats().sent("LeaveSlots") <= 4, "{}", a.stats().sent("LeaveSlots"));
    // It is over: a name here and a name there are no row.
    let before = a.stats().sent("TakeSlot");
    for dir in ["x", "y", "z"] {
        let dir = mkdir(&a, dir).await;
        make(&a, dir, "one").await;
        remove(&a, dir, "one").await;
    }
    assert_eq!(a.stats().sent("TakeSlot"), before);
}
