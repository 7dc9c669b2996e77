//! Clients of several metadata servers that serve at once, each for its part (docs/design/0027-several-that-serve.md).

#![allow(clippy::unwrap_used)]

use crate::common::ring::*;
use crate::common::*;
use braid_api::{Code, FileSystem, LockKind, LockRequest, LockSpace, NewNode, NodeKind, RenameMode, SetAttr};
use braid_client::{Client, ClientConfig, Routing};
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;

fn directory() -> NewNode {
    NewNode { kind: NodeKind::Directory, mode: Mode(0o755) }
}

/// A directory below the root whose slot this server holds.
async fn dir_of(ring: &Ring, client: &Client, id: MemberId, text: &str) -> InodeId {
    dir_in(ring, client, (ROOT, id), text).await.0
}

/// The same below another directory, with its name.
async fn dir_in(ring: &Ring, client: &Client, (parent, id): (InodeId, MemberId), text: &str) -> (InodeId, String) {
    for attempt in 0..200 {
        let text = format!("{text}{attempt}");
        let made = client.make_node(&cx(), parent, &name(&text), directory()).await.unwrap();
        if ring.holder(made.attr.id) == id {
            return (made.attr.id, text);
        }
        client.remove_dir(&cx(), parent, &name(&text)).await.unwrap();
    }
    panic!("of 200 directories none is of {id}")
}

async fn make(client: &Client, dir: InodeId, text: &str, data: &[u8]) -> InodeId {
    let (entry, opened) = client.create(&cx(), dir, &name(text), Mode(0o644), READ_WRITE).await.unwrap();
    client.write(opened.handle, 0, Bytes::copy_from_slice(data)).await.unwrap();
    close(client, opened.handle).await.unwrap();
    entry.attr.id
}

async fn find(client: &Client, dir: InodeId, text: &str) -> Option<InodeId> {
    client.lookup(&cx(), dir, &name(text)).await.unwrap().attr.map(|attr| attr.id)
}

async fn content(client: &Client, id: InodeId) -> Vec<u8> {
    let handle = open(client, id, READ).await;
    let data = read(client, handle, 0, 8 << 20).await;
    close(client, handle).await.unwrap();
    data
}

async fn content_at(client: &Client, path: &[Name]) -> Vec<u8> {
    let (_, opened) = client.open_at(&cx(), ROOT, path, READ).await.unwrap();
    let data = read(client, opened.handle, 0, 8 << 20).await;
    close(client, opened.handle).await.unwrap();
    data
}

async fn rename(client: &Client, from: (InodeId, &str), to: (InodeId, &str)) {
    let (from, to) = ((from.0, name(from.1)), (to.0, name(to.1)));
    client.rename(&cx(), (from.0, &from.1), (to.0, &to.1), RenameMode::Replace).await.unwrap();
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What one does the other sees at once, whatever it had cached, in directories of each of them.
async fn both_see(routing: Routing) {
    let ring = Ring::of(3, SMALL).await;
    let config = || ClientConfig { routing, ..ClientConfig::default() };
    let (one, two) = (ring.client(config()).await, ring.client(config()).await);
    for id in 1..=3 {
        let dir = dir_of(&ring, &one, MemberId(id), &format!("d{id}-")).await;
        assert_eq!(find(&two, dir, "small").await, None);
        let small = make(&one, dir, "small", b"first").await;
        let large = make(&one, dir, "large", &pattern(id, 3 << 20)).await;
        assert_eq!((find(&two, dir, "small").await, find(&two, dir, "large").await), (Some(small), Some(large)));
        assert_eq!(content(&two, small).await, b"first");
        assert_same(&content(&two, large).await, &pattern(id, 3 << 20), "large");
        let handle = open(&two, small, READ_WRITE).await;
        two.write(handle, 0, Bytes::from_static(b"second")).await.unwrap();
        assert_eq!(content(&one, small).await, b"second", "buffered at the other");
        close(&two, handle).await.unwrap();
        one.unlink(&cx(), dir, &name("small")).await.unwrap();
        assert_eq!(find(&two, dir, "small").await, None);
        let below = two.make_node(&cx(), dir, &name("below"), directory()).await.unwrap().attr.id;
        assert_eq!(find(&one, dir, "below").await, Some(below));
        one.remove_dir(&cx(), dir, &name("below")).await.unwrap();
        assert_eq!(find(&two, dir, "below").await, None);
    }
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_does_the_other_sees_at_once() {
    both_see(Routing::BySlot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_questions_are_asked_first_changes_nothing_of_what_is_seen() {
    for routing in [Routing::Sticky, Routing::InTurn, Routing::AtRandom] {
        both_see(routing).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_granted_costs_nothing_whoever_granted_it() {
    let ring = Ring::of(2, SMALL).await;
    let client = ring.client(ClientConfig::default()).await;
    for id in [LEADER, MemberId(2)] {
        let dir = dir_of(&ring, &client, id, &format!("d{id}-")).await;
        let first = make(&client, dir, "first", b"bytes").await;
        // A term there comes soon, if it was not there when the file was made.
        eventually("what is asked again and again is kept", async || {
            ring.take_messages();
            let found =
                find(&client, dir, "first").await == Some(first) && find(&client, dir, "absent").await.is_none();
            client.get_attr(&cx(), first, None).await.unwrap();
            assert!(found && content(&client, first).await == b"bytes");
            ring.take_messages().is_empty()
        })
        .await;
        let file = make(&client, dir, "second", b"more").await;
        assert_eq!(ring.take_messages(), BTreeMap::from([("CommitFile", 1), ("CreateFile", 1)]), "at {id}");
        assert!(find(&client, dir, "second").await == Some(file) && content(&client, file).await == b"more");
        assert_eq!(ring.take_messages(), BTreeMap::new(), "at {id}");
    }
    client.shutdown().await.unwrap();
}

/// The messages that find and open files.
fn opens(ring: &Ring) -> BTreeMap<&'static str, u64> {
    let mut sent = ring.take_messages();
    sent.retain(|name, _| ["Lookup", "LookToOpen", "OpenFile", "OpenAhead", "GetAttr", "GetMap"].contains(name));
    sent
}

fn numbered(n: usize) -> String {
    format!("f{n:02}")
}

/// Those of the files below that were made in another slot of the same server, and in one of the other's.
const MOVED: [usize; 2] = [20, 21];

/// A directory at this server with the files `f00` to `f39`, of which nobody holds one.
async fn with_forty_files(ring: &Arc<Ring>, id: MemberId) -> (InodeId, Vec<InodeId>) {
    let maker = ring.client(ClientConfig::default()).await;
    let other = if id == LEADER { MemberId(2) } else { LEADER };
    let dir = dir_of(ring, &maker, id, &format!("of-{id}-")).await;
    let beside = dir_of(ring, &maker, id, &format!("beside-{id}-")).await;
    let elsewhere = dir_of(ring, &maker, other, &format!("elsewhere-{id}-")).await;
    assert_ne!(dir.slot(), beside.slot());
    let mut files = Vec::new();
    for n in 0..40 {
        let (at, text) = match MOVED.iter().position(|moved| *moved == n) {
            None => (dir, numbered(n)),
            Some(0) => (beside, "moves".to_owned()),
            Some(_) => (elsewhere, "moves".to_owned()),
        };
        files.push(make(&maker, at, &text, numbered(n).as_bytes()).await);
        if at != dir {
            rename(&maker, (at, &text), (dir, &numbered(n))).await;
        }
    }
    maker.shutdown().await.unwrap();
    (dir, files)
}

/// Once it has a term there.
async fn knows(ring: &Arc<Ring>, dir: InodeId) -> Arc<Client> {
    let client = ring.client(ClientConfig::default()).await;
    eventually("the absence of a name is kept", async || {
        ring.take_messages();
        assert_eq!(find(&client, dir, "absent").await, None);
        ring.take_messages().is_empty()
    })
    .await;
    client
}

/// As a kernel that is asked for all of it: names and attributes. Gives how many.
async fn list(client: &Client, dir: InodeId) -> usize {
    let handle = client.open_dir(&cx(), dir).await.unwrap().handle;
    let (mut count, mut at) = (0, 0);
    loop {
        let page = client.read_dir(&cx(), handle, at, 1000, true).await.unwrap();
        let Some(last) = page.last() else { break };
        (at, count) = (last.offset, count + page.len());
    }
    client.release(handle).await;
    count
}

/// A client that comes now writes them, and while it has each open the others read what it wrote.
async fn changes_are_seen(ring: &Arc<Ring>, files: &[InodeId], by: &[&Client]) {
    let writer = ring.client(ClientConfig::default()).await;
    for (n, file) in files.iter().enumerate() {
        let handle = open(&writer, *file, READ_WRITE).await;
        writer.write(handle, 0, Bytes::from_static(b"new")).await.unwrap();
        for client in by {
            assert_eq!(content(client, *file).await, b"new", "{n}");
        }
        close(&writer, handle).await.unwrap();
    }
    writer.shutdown().await.unwrap();
}

/// As where one serves: what was made in a directory is of its slot, so the server that answers for the directory answers for its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_directory_are_opened_together_and_with_their_names_whoever_holds_it() {
    let ring = Ring::of(2, SMALL).await;
    for id in [LEADER, MemberId(2)] {
        let (dir, files) = with_forty_files(&ring, id).await;
        let (reader, looker) = (knows(&ring, dir).await, knows(&ring, dir).await);
        assert!(list(&reader, dir).await >= files.len());
        // As well known as the others, though the directory's holder does not grant what is known of the one.
        for moved in MOVED {
            reader.get_attr(&cx(), files[moved], None).await.unwrap();
        }
        ring.take_messages();
        for (n, file) in files.iter().enumerate() {
            assert_eq!(content(&reader, *file).await, numbered(n).as_bytes());
        }
        // Two by themselves; then one with eight, with 16, and with the rest. Those that were made in other slots by themselves.
        assert_eq!(opens(&ring), BTreeMap::from([("OpenFile", 4), ("OpenAhead", 3)]), "at {id}");
        for n in 0..40 {
            let found = find(&looker, dir, &numbered(n)).await.unwrap();
            assert_eq!(content(&looker, found).await, numbered(n).as_bytes());
        }
        let sent = opens(&ring);
        let told = sent.get("LookToOpen").copied().unwrap_or_default();
        // Until it is known that files are opened here a lookup and an open each, as are those of other slots.
        assert!(told >= 36 && (2..=6).contains(&sent["OpenFile"]), "at {id}: {sent:?}");
        // Of what both hold by now no change goes unseen.
        changes_are_seen(&ring, &files, &[&reader, &looker]).await;
        for client in [reader, looker] {
            client.shutdown().await.unwrap();
        }
    }
}

/// What was told of files before their slot moved is nobody's to say afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_opened_ahead_is_asked_for_again_when_its_server_has_gone() {
    let ring = Ring::of(2, SMALL).await;
    let (dir, files) = with_forty_files(&ring, MemberId(2)).await;
    let reader = knows(&ring, dir).await;
    assert!(list(&reader, dir).await >= files.len());
    for (n, file) in files.iter().enumerate().take(3) {
        assert_eq!(content(&reader, *file).await, numbered(n).as_bytes());
    }
    assert_eq!(opens(&ring).get("OpenAhead"), Some(&1));
    ring.kill(MemberId(2));
    ring.turn(vec![LEADER]).await;
    changes_are_seen(&ring, &files[..20], &[&reader]).await;
    reader.shutdown().await.unwrap();
}

/// The server has granted what nobody heard of, and goes. Another answers, and what is read is what is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_with_another_answer_is_of_no_value_when_its_server_went_before_it_came() {
    for message in ["OpenAhead", "LookToOpen"] {
        let ring = Ring::of(2, SMALL).await;
        let (dir, files) = with_forty_files(&ring, MemberId(2)).await;
        let reader = knows(&ring, dir).await;
        if message == "OpenAhead" {
            assert!(list(&reader, dir).await >= files.len());
        }
        let reads = async |n: usize| {
            let found = find(&reader, dir, &numbered(n)).await.unwrap();
            assert_eq!((found, content(&reader, found).await), (files[n], numbered(n).into_bytes()));
        };
        reads(0).await;
        reads(1).await;
        ring.silence(MemberId(2), message);
        tokio::join!(reads(2), async {
            eventually("it is carried out", async || ring.unsaid() > 0).await;
            ring.kill(MemberId(2));
            ring.turn(vec![LEADER]).await;
        });
        changes_are_seen(&ring, &files[..12], &[&reader]).await;
        reader.shutdown().await.unwrap();
    }
}

/// A lookup that leads to a slot of another tells what it finds without a lease; who looks again asks that one, and then nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_through_both_costs_nothing_in_the_end() {
    let ring = Ring::of(2, SMALL).await;
    let (one, two) = (ring.client(ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let root_is_at = ring.holder(ROOT);
    let other = if root_is_at == LEADER { MemberId(2) } else { LEADER };
    let dir = dir_of(&ring, &one, other, "d").await;
    let names = (0..200).map(|i| format!("d{i}"));
    let mut found = None;
    for text in names {
        if find(&one, ROOT, &text).await == Some(dir) {
            found = Some(text);
            break;
        }
    }
    let text = found.unwrap();
    for client in [&one, &two] {
        eventually("it is kept", async || {
            ring.take_messages();
            let reply = client.lookup(&cx(), ROOT, &name(&text)).await.unwrap();
            assert_eq!(reply.attr.map(|attr| attr.id), Some(dir));
            let messages = ring.take_messages();
            let may_be = ["Lookup", "GetAttr"].map(|name| BTreeMap::from([(name, 1)]));
            assert!(messages.is_empty() || may_be.contains(&messages), "{messages:?}");
            messages.is_empty() && !reply.valid.is_zero()
        })
        .await;
    }
    // What is kept of it is revoked by the one that granted it.
    let change = SetAttr { mode: Some(Mode(0o700)), ..SetAttr::default() };
    one.set_attr(&cx(), dir, None, change).await.unwrap();
    let reply = two.lookup(&cx(), ROOT, &name(&text)).await.unwrap();
    assert_eq!(reply.attr.map(|attr| attr.mode), Some(Mode(0o700)));
    one.remove_dir(&cx(), ROOT, &name(&text)).await.unwrap();
    assert_eq!(find(&two, ROOT, &text).await, None);
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_moves_between_directories_of_two() {
    let ring = Ring::of(2, SMALL).await;
    let (one, two) = (ring.client(ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let here = dir_of(&ring, &one, LEADER, "here").await;
    let there = dir_of(&ring, &one, MemberId(2), "there").await;
    let file = make(&one, here, "f", b"moves").await;
    let dir = one.make_node(&cx(), here, &name("d"), directory()).await.unwrap().attr.id;
    for (from, to) in [(here, there), (there, here), (here, there)] {
        for (text, id) in [("f", file), ("d", dir)] {
            assert_eq!((find(&two, from, text).await, find(&two, to, text).await), (Some(id), None));
            rename(&one, (from, text), (to, text)).await;
            assert_eq!((find(&two, from, text).await, find(&two, to, text).await), (None, Some(id)), "{text}");
            assert_eq!((find(&one, from, text).await, find(&one, to, text).await), (None, Some(id)), "{text}");
        }
        assert_eq!(two.parent(&cx(), dir).await.unwrap(), to);
        assert_eq!(content(&two, file).await, b"moves");
    }
    // A second name in the other's slot, and what takes the place of the first.
    let linked = two.link(&cx(), file, here, &name("g")).await.unwrap();
    assert_eq!((linked.attr.id, linked.attr.nlink), (file, 2));
    let other = make(&one, there, "other", b"replaces").await;
    rename(&one, (there, "other"), (here, "g")).await;
    assert_eq!(find(&two, here, "g").await, Some(other));
    assert_eq!(two.get_attr(&cx(), file, None).await.unwrap().attr.nlink, 1);
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

/// All that lies below it, by their numbers.
async fn all_below(client: &Client, top: InodeId) -> Vec<InodeId> {
    let (mut found, mut left) = (Vec::new(), vec![top]);
    while let Some(dir) = left.pop() {
        let handle = client.open_dir(&cx(), dir).await.unwrap().handle;
        let page = client.read_dir(&cx(), handle, 0, 1000, true).await.unwrap();
        client.release(handle).await;
        let below = page.iter().filter(|entry| !entry.name.as_bytes().starts_with(b"."));
        let below: Vec<InodeId> = below.map(|entry| entry.id).collect();
        found.extend(&below);
        left.extend(below);
    }
    found
}

/// Each of two servers carries out one of the renames that together would make a loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn directories_of_two_servers_that_are_moved_into_each_other_at_once_never_make_a_loop() {
    let ring = Ring::of(2, SMALL).await;
    let [one, two, third] = [LEADER, MemberId(2), LEADER].map(|at| ring.client_at(at, ClientConfig::default()));
    let (one, two, third) = tokio::join!(one, two, third);
    for round in 0..30 {
        let top = one.make_node(&cx(), ROOT, &name(&format!("round {round}")), directory()).await.unwrap().attr.id;
        let here = dir_in(&ring, &one, (top, LEADER), "here").await.0;
        let there = dir_in(&ring, &one, (top, MemberId(2)), "there").await.0;
        let (a, a_name) = dir_in(&ring, &one, (here, LEADER), "a").await;
        let (b, b_name) = dir_in(&ring, &one, (there, MemberId(2)), "b").await;
        let (in_a, _) = dir_in(&ring, &one, (a, MemberId(2)), "in").await;
        let (in_b, _) = dir_in(&ring, &one, (b, LEADER), "in").await;
        // Into each other, or into what is in the other.
        let (into_a, into_b) = if round % 2 == 0 { (a, b) } else { (in_a, in_b) };
        let move_of = async |client: &Client, (from, text): (InodeId, &str), to: InodeId| {
            client.rename(&cx(), (from, &name(text)), (to, &name("moved")), RenameMode::Replace).await
        };
        let (first, second) =
            tokio::join!(move_of(&one, (here, &a_name), into_b), move_of(&two, (there, &b_name), into_a));
        let refused: Vec<Code> = [first, second].into_iter().filter_map(|done| Some(done.err()?.code)).collect();
        assert_eq!(refused, [Code::Invalid], "round {round}: one succeeds, and the other is told why");
        for client in [&one, &two, &third] {
            let mut found = all_below(client, top).await;
            let mut made = vec![here, there, a, b, in_a, in_b];
            found.sort();
            made.sort();
            assert_eq!(found, made, "round {round}: every directory is found from the root, once");
        }
    }
    for client in [one, two, third] {
        client.shutdown().await.unwrap();
    }
}

fn write_lock(owner: u64) -> LockRequest {
    let range = ByteRange::new(0, 10);
    LockRequest { space: LockSpace::Posix, owner, pid: owner as u32, kind: LockKind::Write, range }
}

/// What was written and not saved, and what was locked, goes to whoever holds the slots then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_takes_nothing_with_it() {
    let ring = Ring::of(3, SMALL).await;
    let (one, two) = (ring.client(ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let dir = dir_of(&ring, &one, MemberId(3), "d").await;
    let stays = dir_of(&ring, &one, MemberId(2), "s").await;
    let (file, kept) = (make(&one, dir, "f", b"saved").await, make(&one, stays, "k", b"kept").await);
    let handle = open(&one, file, READ_WRITE).await;
    one.write(handle, 0, Bytes::from_static(b"unsaved")).await.unwrap();
    one.set_lock(handle, write_lock(1), false).await.unwrap();
    let before = ring.roster().epoch;
    ring.kill(MemberId(3));
    // Until it is counted out nobody answers for it.
    let making = tokio::spawn({
        let one = one.clone();
        async move { make(&one, dir, "late", b"late").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!making.is_finished());
    assert_eq!(content(&two, kept).await, b"kept", "the others go on");
    ring.turn(vec![LEADER, MemberId(2)]).await;
    assert!(ring.roster().epoch > before);
    let late = making.await.unwrap();
    assert_eq!(find(&two, dir, "late").await, Some(late));
    assert_eq!(content(&two, file).await, b"unsaved");
    let other = open(&two, file, READ_WRITE).await;
    assert_eq!(two.set_lock(other, write_lock(2), false).await.unwrap_err().code, Code::WouldBlock);
    one.write(handle, 0, Bytes::from_static(b"go on, ")).await.unwrap();
    assert_eq!(content(&two, file).await, b"go on, ");
    one.set_lock(handle, LockRequest { kind: LockKind::Unlock, ..write_lock(1) }, false).await.unwrap();
    two.set_lock(other, write_lock(2), false).await.unwrap();
    close(&two, other).await.unwrap();
    close(&one, handle).await.unwrap();
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_takes_its_part() {
    let ring = Ring::of(2, SMALL).await;
    let (one, two) = (ring.client(ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let mut files = Vec::new();
    for i in 0..40 {
        let dir = one.make_node(&cx(), ROOT, &name(&format!("d{i}")), directory()).await.unwrap().attr.id;
        let (entry, opened) = one.create(&cx(), dir, &name("f"), Mode(0o644), READ_WRITE).await.unwrap();
        one.write(opened.handle, 0, Bytes::from(format!("buffered {i}"))).await.unwrap();
        assert_eq!(find(&two, dir, "absent").await, None);
        files.push((dir, entry.attr.id, opened.handle));
    }
    ring.start(MemberId(3)).await;
    ring.turn([1, 2, 3].map(MemberId).to_vec()).await;
    let moved = files.iter().filter(|(dir, ..)| ring.holder(*dir) == MemberId(3)).count();
    assert!(moved > 0);
    for (i, (dir, file, handle)) in files.iter().enumerate() {
        assert_eq!(content(&two, *file).await, format!("buffered {i}").as_bytes());
        let made = make(&one, *dir, "absent", b"").await;
        assert_eq!(find(&two, *dir, "absent").await, Some(made), "in directory {i} of {}", ring.holder(*dir));
        close(&one, *handle).await.unwrap();
    }
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_server_went_before_its_answer_takes_effect_once() {
    let ring = Ring::of(2, SMALL).await;
    let client = ring.client(ClientConfig::default()).await;
    let dir = dir_of(&ring, &client, MemberId(2), "d").await;
    ring.silence(MemberId(2), "MakeNode");
    let making = tokio::spawn({
        let client = client.clone();
        async move { client.make_node(&cx(), dir, &name("x"), directory()).await }
    });
    eventually("it is carried out", async || ring.unsaid() > 0).await;
    ring.kill(MemberId(2));
    ring.turn(vec![LEADER]).await;
    let made = making.await.unwrap().unwrap().attr.id;
    assert_eq!(find(&client, dir, "x").await, Some(made));
    client.shutdown().await.unwrap();
}

/// The one that a client was told of need not lead, nor be there for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_of_them_leads_a_client_to_all() {
    let ring = Ring::of(3, SMALL).await;
    let (one, two) =
        (ring.client_at(MemberId(3), ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let dir = dir_of(&ring, &one, MemberId(3), "d").await;
    let file = make(&one, dir, "f", &pattern(1, 2 << 20)).await;
    assert_eq!(find(&two, dir, "f").await, Some(file));
    ring.kill(MemberId(3));
    ring.turn(vec![LEADER, MemberId(2)]).await;
    let other = make(&one, dir, "g", b"g").await;
    assert_eq!(find(&two, dir, "g").await, Some(other));
    assert_same(&content(&two, file).await, &pattern(1, 2 << 20), "of the one that has gone");
    for client in [one, two] {
        client.shutdown().await.unwrap();
    }
}

/// As it goes, and nothing that was acknowledged is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_work_while_servers_come_and_go() {
    let ring = Ring::of(3, SMALL).await;
    let clients: Vec<Arc<Client>> = {
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(ring.client(ClientConfig::default()).await);
        }
        clients
    };
    let dirs = [1, 2, 3].map(MemberId);
    let dirs = [
        dir_of(&ring, &clients[0], dirs[0], "a").await,
        dir_of(&ring, &clients[0], dirs[1], "b").await,
        dir_of(&ring, &clients[0], dirs[2], "c").await,
    ];
    let mut working = Vec::new();
    for (number, client) in clients.iter().cloned().enumerate() {
        working.push(tokio::spawn(async move {
            for i in 0..60 {
                let (text, at, to) = (format!("n{number}-{i}"), dirs[i % 3], dirs[(i + 1) % 3]);
                let file = make(&client, at, &text, text.as_bytes()).await;
                rename(&client, (at, &text), (to, &text)).await;
                assert_eq!((find(&client, at, &text).await, find(&client, to, &text).await), (None, Some(file)));
                assert_eq!(content(&client, file).await, text.as_bytes());
            }
        }));
    }
    let mut number = 3;
    while working.iter().any(|work| !work.is_finished()) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ring.kill(MemberId(number));
        ring.turn(vec![LEADER, MemberId(2)]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        // One that comes again is another.
        number += 1;
        ring.start(MemberId(number)).await;
        ring.turn(vec![LEADER, MemberId(2), MemberId(number)]).await;
    }
    for work in working {
        work.await.unwrap();
    }
    for number in 0..2 {
        for i in 0..60 {
            let (text, to) = (format!("n{number}-{i}"), dirs[(i + 1) % 3]);
            let file = find(&clients[1 - number], to, &text).await.unwrap_or_else(|| panic!("{text} is lost"));
            assert_eq!(content(&clients[1 - number], file).await, text.as_bytes());
        }
    }
    for client in clients {
        client.shutdown().await.unwrap();
    }
}

/// Of what is known nobody is asked, whoever holds it; of the rest each is asked that may grant it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_leads_through_what_different_servers_hold() {
    let ring = Ring::of(3, SMALL).await;
    let (a, b) = (ring.client(ClientConfig::default()).await, ring.client(ClientConfig::default()).await);
    let first = dir_of(&ring, &a, MemberId(1), "first").await;
    let second = dir_of(&ring, &a, MemberId(2), "second").await;
    let named = a.open_dir(&cx(), ROOT).await.unwrap().handle;
    let all = a.read_dir(&cx(), named, 0, 1000, false).await.unwrap();
    a.release(named).await;
    let name_of = |id| all.iter().find(|entry| entry.id == id).unwrap().name.clone();
    let mut path = vec![name_of(first), name_of(second)];
    // The second into the first, so that a path goes from one server's part into another's.
    a.rename(&cx(), (ROOT, &path[1]), (first, &path[1]), RenameMode::NoReplace).await.unwrap();
    make(&a, second, "file", b"bytes").await;
    path.push(name("file"));
    assert_eq!(content_at(&b, &path).await, b"bytes");
    // What a holder that has just been told of a change refuses to grant, it grants a moment later.
    eventually("a path is known", async || {
        let hits = b.stats().cache_hits;
        assert_eq!(b.walk(ROOT, &path[..2]).await.unwrap(), second);
        b.stats().cache_hits > hits
    })
    .await;
    assert_eq!(b.stat(ROOT, &path).await.unwrap().size, 5);
    make(&a, second, "new", b"others").await;
    rename(&a, (second, "new"), (second, "file")).await;
    assert_eq!(content_at(&b, &path).await, b"others");
    rename(&a, (second, "file"), (first, "file")).await;
    assert_eq!(b.walk(ROOT, &path).await.unwrap_err().code, Code::NotFound);
    assert_eq!(content_at(&b, &[path[0].clone(), name("file")]).await, b"others");
}
