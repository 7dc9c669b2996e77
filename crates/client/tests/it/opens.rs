//! Opens of files that are held: without a message, and never with what was before.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Caller, Code, FileSystem, HandleId, RenameMode, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_meta_server::MetaConfig;
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;

/// Small files and files in chunks.
const LENS: [usize; 2] = [900, 300_000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_open_here_is_opened_again_without_a_message() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for (n, len) in LENS.into_iter().enumerate() {
        let bytes = pattern(n as u64, len);
        let id = put(&a, &format!("f{n}"), &bytes).await;
        // Its maker, and one that reads it.
        for client in [&a, &b] {
            cat(client, id).await;
            let known = client.stats().opens_known;
            let messages = asked(&world, async {
                for _ in 0..10 {
                    assert_same(&cat(client, id).await, &bytes, "read again");
                }
            })
            .await;
            assert_eq!(messages, BTreeMap::new(), "{len} bytes");
            assert_eq!(client.stats().opens_known - known, 10);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_change_is_seen_by_the_next_open_of_what_was_kept() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for (n, len) in LENS.into_iter().enumerate() {
        let text = format!("f{n}");
        let id = put(&a, &text, &pattern(0, len)).await;
        for round in 1..20 {
            assert_same(&cat(&b, id).await, &pattern(round - 1, len), format_args!("round {round}, before"));
            let new = pattern(round, len);
            let handle = open(&a, id, READ_WRITE).await;
            a.write(handle, 0, Bytes::copy_from_slice(&new)).await.unwrap();
            // Also while it is open there, and not saved.
            if round % 2 == 0 {
                assert_same(&cat(&b, id).await, &new, format_args!("round {round}, open"));
            }
            close(&a, handle).await.unwrap();
            assert_same(&cat(&b, id).await, &new, format_args!("round {round}, closed"));
        }
        // Cut, by its name and without an open; and a mode.
        let cut = SetAttr { size: Some(100), ..SetAttr::default() };
        a.set_attr(&cx(), id, None, cut).await.unwrap();
        assert_same(&cat(&b, id).await, &pattern(19, len)[..100], "cut");
        a.set_attr(&cx(), id, None, SetAttr { mode: Some(Mode(0o600)), ..SetAttr::default() }).await.unwrap();
        let handle = open(&b, id, READ).await;
        assert_eq!(b.get_attr(&cx(), id, Some(handle)).await.unwrap().attr.mode.0, 0o600);
        close(&b, handle).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_lost_its_last_name_is_not_opened_from_what_was_kept() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for (n, len) in LENS.into_iter().enumerate() {
        let id = put(&a, &format!("f{n}"), &pattern(1, len)).await;
        let over = put(&a, &format!("over{n}"), &pattern(2, len)).await;
        for client in [&a, &b] {
            cat(client, id).await;
            cat(client, over).await;
        }
        a.unlink(&cx(), ROOT, &name(&format!("f{n}"))).await.unwrap();
        let new = put(&a, &format!("new{n}"), &pattern(3, len)).await;
        let (from, to) = (name(&format!("new{n}")), name(&format!("over{n}")));
        a.rename(&cx(), (ROOT, &from), (ROOT, &to), RenameMode::Replace).await.unwrap();
        for client in [&a, &b] {
            // The server may have them yet, for who had them open when their names went, and says so to who asks by number.
            let known = client.stats().opens_known;
            for gone in [id, over] {
                match client.open(&cx(), gone, READ).await {
                    Ok(opened) => client.release(opened.handle).await,
                    Err(error) => assert_eq!(error.code, Code::Stale),
                }
            }
            assert_eq!(client.stats().opens_known, known, "nothing of what was kept");
            assert_same(&cat(client, new).await, &pattern(3, len), "the new one");
        }
    }
}

/// What is opened without a word is open all the same: whoever removes its name leaves the file to who reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_opened_without_a_message_is_kept_when_its_name_goes() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for (n, len) in LENS.into_iter().enumerate() {
        let text = format!("f{n}");
        let bytes = pattern(n as u64, len);
        let id = put(&a, &text, &bytes).await;
        cat(&b, id).await;
        let known = b.stats().opens_known;
        let handle = open(&b, id, READ).await;
        assert_eq!(b.stats().opens_known, known + 1);
        a.unlink(&cx(), ROOT, &name(&text)).await.unwrap();
        // Long enough for what nobody has open to be freed.
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        assert_same(&read(&b, handle, 0, 1 << 20).await, &bytes, "after its name has gone");
        close(&b, handle).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_another_start_of_the_metadata_server_it_is_asked_again() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let bytes = pattern(1, 300_000);
    let id = put(&a, "f", &bytes).await;
    cat(&a, id).await;
    world.restart_meta(usize::MAX).await;
    let b = world.client().await;
    let new = pattern(2, 300_000);
    let handle = open(&b, id, READ_WRITE).await;
    b.write(handle, 0, Bytes::copy_from_slice(&new)).await.unwrap();
    close(&b, handle).await.unwrap();
    assert_same(&cat(&a, id).await, &new, "written since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_replaced_by_a_native_put_is_read_anew() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let id = put(&a, "f", b"before").await;
    cat(&a, id).await;
    let handle = open(&a, id, READ).await;
    let put = a.put_file(ROOT, &name("f"), file_spec(), Bytes::from_static(b"after that"), true).await.unwrap();
    assert_ne!(put.id, id, "another file has the name");
    a.fsync(handle, false).await.unwrap();
    assert_eq!(read(&a, handle, 0, 9).await, b"before", "it is open");
    close(&a, handle).await.unwrap();
    assert_eq!(a.open(&cx(), id, READ).await.unwrap_err().code, Code::Stale);
    assert_eq!(cat(&a, put.id).await, b"after that");
}

/// Between a lookup and the open another mount may remove the last name: nobody has to keep anything of the file then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_last_name_has_gone_is_opened_only_where_it_is_open() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, handle) = create(&a, "f").await;
    let found = b.lookup(&cx(), ROOT, &name("f")).await.unwrap().attr.unwrap().id;
    assert_eq!(found, id);
    a.unlink(&cx(), ROOT, &name("f")).await.unwrap();
    assert_eq!(b.open(&cx(), id, READ).await.unwrap_err().code, Code::Stale);
    // As through /proc/self/fd.
    let again = open(&a, id, READ_WRITE).await;
    a.write(again, 0, Bytes::from_static(b"kept")).await.unwrap();
    close(&a, handle).await.unwrap();
    assert_eq!(read(&a, again, 0, 4).await, b"kept");
    close(&a, again).await.unwrap();
}

/// As a kernel opens a path: the name is looked up, what it stands for is opened, and both once more if it was not there any more.
async fn open_path(client: &Client, name: &Name, between: impl AsyncFn()) -> braid_api::Result<(InodeId, HandleId)> {
    let (cx, mut tries) = (Caller::default(), 0);
    loop {
        let id = client.lookup(&cx, ROOT, name).await?.attr.expect("there is always one").id;
        between().await;
        match client.open(&cx, id, READ).await {
            Err(error) if error.code == Code::Stale && tries == 0 => tries += 1,
            opened => return Ok((id, opened?.handle)),
        }
    }
}

/// A file of that name is there at any moment: who opens it never hears that there is none, however often it is replaced, and by whom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_replaced_all_the_time_is_opened() {
    let world = World::new(Storage::Memory, SMALL).await;
    let kernel_above = ClientConfig { pages_above: true, ..ClientConfig::default() };
    let (a, b) = (world.client_with(kernel_above).await, world.client().await);
    let (cx, name, new): (_, Name, Name) = (Caller::default(), "name".parse().unwrap(), "new".parse().unwrap());
    let replace = async |by: &Client, number: u64| {
        put(by, "new", &pattern(number, 500)).await;
        by.rename(&cx, (ROOT, &new), (ROOT, &name), RenameMode::Replace).await.unwrap();
    };
    let number = std::sync::atomic::AtomicU64::new(0);
    let last = || number.load(std::sync::atomic::Ordering::SeqCst);
    let next = || number.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
    replace(&a, 0).await;
    for by in [&b, &a] {
        for round in 0..5 {
            // Replaced between each lookup and its open: what was found by the second lookup is opened.
            let (_, handle) = open_path(&a, &name, async || replace(by, next()).await).await.unwrap();
            assert_same(&read(&a, handle, 0, 1000).await, &pattern(last() - 1, 500), format_args!("round {round}"));
            close(&a, handle).await.unwrap();
        }
        // Nothing of them stays open.
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let messages = asked(&world, async {
            for _ in 0..2 {
                assert!(a.lookup(&cx, ROOT, &name).await.unwrap().attr.is_some());
            }
        })
        .await;
        assert_eq!(messages.get("OpenFile"), None, "{messages:?}");
    }
}

/// A create that finds a file opens it, which its client knows only with the answer. Until then the file outlives its last name all the same, whoever takes
/// that away, and under whatever name it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_a_create_finds_outlives_its_names() {
    // Longer than it takes until everybody has been asked who has it open.
    const LATE: Duration = Duration::from_millis(2500);
    let config = MetaConfig { session_renew: Duration::from_millis(400), ..MetaConfig::default() };
    let world = World::with(Storage::Memory, SMALL, config).await;
    let (a, b) = (world.client().await, world.client().await);
    for (n, renamed, by_itself) in [(0, false, true), (1, true, true), (2, false, false)] {
        let (found, other) = (format!("found {n}"), format!("other {n}"));
        let bytes = pattern(n, 300_000);
        put(&b, &found, &bytes).await;
        world.answered_late.lock().insert("CreateFile", LATE);
        let creating = tokio::spawn({
            let (a, found) = (a.clone(), name(&found));
            async move { a.create(&cx(), ROOT, &found, Mode(0o644), READ_WRITE).await.unwrap().1.handle }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let remover = if by_itself { &a } else { &b };
        if renamed {
            remover.rename(&cx(), (ROOT, &name(&found)), (ROOT, &name(&other)), RenameMode::NoReplace).await.unwrap();
        }
        remover.unlink(&cx(), ROOT, &name(if renamed { &other } else { &found })).await.unwrap();
        let handle = creating.await.unwrap();
        world.answered_late.lock().clear();
        tokio::time::sleep(LATE).await;
        assert_same(&read(&a, handle, 0, 1 << 20).await, &bytes, format_args!("{renamed} {by_itself}"));
        close(&a, handle).await.unwrap();
        // Nobody has it any more.
        let begun = Instant::now();
        while !world.chunks().await.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{renamed} {by_itself}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Of messages those that somebody sends who looks up, opens and reads; what others have written is committed and marked beside.
fn by_readers(mut messages: BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    let by_readers = ["Lookup", "LookToOpen", "OpenFile", "GetAttr", "GetMap", "Walk", "Resolve", "ReadDir"];
    messages.retain(|name, _| by_readers.contains(name));
    messages
}

/// What a kernel does with a name that it does not know.
async fn look_and_cat(client: &Client, text: &str) -> Vec<u8> {
    let attr = client.lookup(&cx(), ROOT, &name(text)).await.unwrap().attr.unwrap();
    cat(client, attr.id).await
}

/// A kernel looks a name up and then opens what it found. Once files of a directory have been opened so, that costs one message to the metadata server
/// for each file that was not known here, and none else for small files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_read_one_after_the_other_cost_a_message_each() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let contents: Vec<Vec<u8>> = (0..24).map(|n| pattern(n, LENS[n as usize % 2])).collect();
    for (n, bytes) in contents.iter().enumerate() {
        put(&a, &format!("f{n}"), bytes).await;
    }
    // Its maker has what it made for itself: nobody is asked for that because of a guess.
    for n in 0..12 {
        cat(&b, b.lookup(&cx(), ROOT, &name(&format!("f{n}"))).await.unwrap().attr.unwrap().id).await;
    }
    let c = world.client().await;
    for (n, bytes) in contents.iter().enumerate().take(2) {
        assert_same(&look_and_cat(&c, &format!("f{n}")).await, bytes, "the first ones");
    }
    let known = c.stats().opens_known;
    let messages = asked(&world, async {
        for (n, bytes) in contents.iter().enumerate().take(12).skip(2) {
            assert_same(&look_and_cat(&c, &format!("f{n}")).await, bytes, "read");
        }
    })
    .await;
    assert_eq!(by_readers(messages), BTreeMap::from([("LookToOpen", 10)]));
    assert_eq!(c.stats().opens_known - known, 10);
    // What another has for itself is looked up as ever, and taken from it by the open alone: its owner is told the same by a guess as by none.
    let (guesses, looks) = (c, world.client().await);
    let mut told = Vec::new();
    for (client, text, message) in [(&guesses, "f20", "LookToOpen"), (&looks, "f22", "Lookup")] {
        let messages = asked(&world, async { _ = client.lookup(&cx(), ROOT, &name(text)).await.unwrap() }).await;
        assert_eq!(messages.get(message), Some(&1), "{messages:?}");
        let others = by_readers(messages).into_iter().filter(|(name, _)| *name != message).collect::<Vec<_>>();
        let by_owner = asked(&world, async { _ = look_and_cat(&a, text).await }).await;
        told.push((others, by_readers(by_owner)));
    }
    assert_eq!(told[0], told[1]);
    // Who only looks is told no more than that, after a time.
    let d = world.client().await;
    let messages = asked(&world, async {
        for n in 0..20 {
            d.lookup(&cx(), ROOT, &name(&format!("f{n}"))).await.unwrap();
        }
    })
    .await;
    assert_eq!(by_readers(messages), BTreeMap::from([("Lookup", 20)]));
}

/// Between the two another writes the file, cuts it, puts another in its place, or removes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_with_a_lookup_holds_until_another_changes_the_file() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let warm = async |n: usize| {
        for file in 0..3 {
            put(&a, &format!("warm{n}.{file}"), b"warm").await;
            cat(&a, b.lookup(&cx(), ROOT, &name(&format!("warm{n}.{file}"))).await.unwrap().attr.unwrap().id).await;
            look_and_cat(&b, &format!("warm{n}.{file}")).await;
        }
    };
    for (n, len) in LENS.into_iter().enumerate() {
        warm(n).await;
        let before = pattern(7, len);
        for change in ["written", "cut", "replaced", "removed"] {
            let text = format!("{change}{n}");
            let id = put(&a, &text, &before).await;
            // Given up, so that it may be told to who looks.
            cat(&b, id).await;
            let c = world.client().await;
            for file in 0..3 {
                look_and_cat(&c, &format!("warm{n}.{file}")).await;
            }
            let messages = asked(&world, async {
                assert_eq!(c.lookup(&cx(), ROOT, &name(&text)).await.unwrap().attr.unwrap().size, len as u64);
            })
            .await;
            assert_eq!(by_readers(messages), BTreeMap::from([("LookToOpen", 1)]), "{text}");
            let expected = match change {
                "written" => {
                    let handle = open(&a, id, READ_WRITE).await;
                    a.write(handle, 100, Bytes::from_static(b"written since")).await.unwrap();
                    close(&a, handle).await.unwrap();
                    [&before[..100], b"written since", &before[113..]].concat()
                }
                "cut" => {
                    let cut = SetAttr { size: Some(50), ..SetAttr::default() };
                    a.set_attr(&cx(), id, None, cut).await.unwrap();
                    before[..50].to_vec()
                }
                "replaced" => {
                    put(&a, "other", b"another file").await;
                    let (from, to) = (name("other"), name(&text));
                    a.rename(&cx(), (ROOT, &from), (ROOT, &to), RenameMode::Replace).await.unwrap();
                    b"another file".to_vec()
                }
                _ => {
                    a.unlink(&cx(), ROOT, &name(&text)).await.unwrap();
                    assert!(c.lookup(&cx(), ROOT, &name(&text)).await.unwrap().attr.is_none(), "{text}");
                    let opened = c.open(&cx(), id, READ_WRITE).await;
                    assert_eq!(opened.unwrap_err().code, Code::Stale, "{text}");
                    continue;
                }
            };
            assert_same(&look_and_cat(&c, &text).await, &expected, &text);
        }
    }
}

/// A name is looked up while its file is changed here and loses that name elsewhere, where it stays open: what has no name is not what the name stands for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_never_leads_to_what_has_lost_its_last_name() {
    const LATE: Duration = Duration::from_millis(1500);
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let id = put(&b, "f", b"bytes").await;
    let kept = open(&b, id, READ).await;
    world.answered_late.lock().insert("Lookup", LATE);
    let looking = tokio::spawn({
        let a = a.clone();
        async move { a.lookup(&cx(), ROOT, &name("f")).await }
    });
    tokio::time::sleep(LATE / 3).await;
    world.answered_late.lock().clear();
    a.set_attr(&cx(), id, None, SetAttr { mode: Some(Mode(0o600)), ..SetAttr::default() }).await.unwrap();
    b.unlink(&cx(), ROOT, &name("f")).await.unwrap();
    assert_eq!(b.get_attr(&cx(), id, Some(kept)).await.unwrap().attr.nlink, 0);
    assert!(!looking.is_finished(), "its answer is on its way");
    assert_eq!(looking.await.unwrap().unwrap().attr, None);
    close(&b, kept).await.unwrap();
}
