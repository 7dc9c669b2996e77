//! The budget of design.md §4: engine round trips an operation, counted exactly.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Namespace;
use braid_api::admin::AdminQuery;
use braid_api::meta::*;
use braid_meta_engine::Engine;
use braid_types::*;

const ROOT: InodeId = InodeId::ROOT;

async fn quiet(rows: &Rows) -> World {
    rows.world(without_housekeeping()).await
}

// What is counted is the same on each: they read and write in the same steps.
crate::on_every_engine! {
    reads_are_one_round_trip
    a_file_with_several_links_costs_one_more
    an_outdated_hint_is_mended_with_one_more
    changes_are_at_most_three_with_commit
    a_file_is_made_under_the_policy_that_holds_now
    opening_a_file_of_a_few_chunks_is_one_round_trip
    files_that_are_opened_together_are_one_round_trip_for_sixteen
    a_directory_of_several_pages_is_one_round_trip_a_page
    a_rename_to_another_parent_is_no_more_than_one_within_it
    a_path_of_any_depth_is_one_round_trip
    a_directory_that_goes_to_another_parent_is_three_round_trips
    unlink_is_at_most_three_whatever_the_file_has
    an_open_with_o_creat_is_three_round_trips_whether_or_not_the_file_exists
    what_snapshots_have_costs_a_change_one_more
}

async fn reads_are_one_round_trip(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let file = w.create(dir, "file").await.attr;
    w.commit(&file, 5, CommitContent::Inline(bytes::Bytes::from_static(b"hello"))).await.unwrap();
    let hint = Some((dir, name("file")));

    assert_eq!(w.counted(Lookup { parent: dir, name: name("file") }).await.0, 1, "lookup");
    let several = StatNames { parent: dir, names: vec![name("file"), name("none"), name("file")] };
    let (trips, found) = w.counted(several).await;
    assert_eq!(trips, 1, "several names of a directory");
    assert_eq!(found.iter().map(|attr| attr.map(|a| a.id)).collect::<Vec<_>>(), [Some(file.id), None, Some(file.id)]);
    let too_many = StatNames { parent: dir, names: vec![name("file"); StatNames::MAX + 1] };
    assert_eq!(w.call(too_many).await.unwrap_err().code, braid_api::Code::TooBig);
    let by_hint = InodeRef { id: file.id, hint };
    assert_eq!(w.counted(GetAttr { inode: by_hint.clone() }).await.0, 1, "stat with the client's hint");
    assert_eq!(w.counted(GetAttr { inode: file.id.into() }).await.0, 1, "stat with the server's hint");
    let open = OpenFile { inode: by_hint, ..OpenFile::default() };
    let (trips, answer) = w.counted(open).await;
    assert_eq!(trips, 1, "open and read of an inline file");
    assert_eq!(answer.map.content, Content::Inline(bytes::Bytes::from_static(b"hello")));
    let page = ReadDir { inode: dir, after: None, limit: 100, plus: true, knows: Vec::new() };
    assert_eq!(w.counted(page).await.0, 1, "a page of a directory");
}

async fn a_file_with_several_links_costs_one_more(rows: Rows) {
    let w = quiet(&rows).await;
    let file = w.create(ROOT, "file").await.attr;
    w.call(Link { inode: file.id.into(), parent: ROOT.into(), name: name("other") }).await.unwrap();
    assert_eq!(w.counted(Lookup { parent: ROOT, name: name("other") }).await.0, 2);
    let both = StatNames { parent: ROOT, names: vec![name("other"), name("file")] };
    assert_eq!(w.counted(both).await.0, 2, "one more however many of them have several links");
    let open = OpenFile { inode: file.id.into(), ..OpenFile::default() };
    assert!(w.counted(open).await.0 <= 2);
}

async fn an_outdated_hint_is_mended_with_one_more(rows: Rows) {
    let w = quiet(&rows).await;
    let file = w.create(ROOT, "file").await.attr;
    let old = InodeRef { id: file.id, hint: Some((ROOT, name("file"))) };
    w.rename((ROOT, "file"), (ROOT, "moved"), RenameKind::Replace).await.unwrap();
    let (trips, answer) = w.counted(GetAttr { inode: old }).await;
    assert_eq!(trips, 2);
    assert_eq!(answer.place, Some((ROOT, name("moved"))), "the answer says where it is now");
}

async fn changes_are_at_most_three_with_commit(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    w.create(dir, "warm").await;
    assert_eq!(w.counted(create(dir, "a")).await.0, 2, "create, where something was made before");
    let node = MakeNode { parent: dir.into(), name: name("d"), spec: spec(FileKind::Directory) };
    assert!(w.counted(node).await.0 <= 3, "mkdir");
    let rename = |from: &str, to: &str| Rename {
        from: dir.into(),
        from_name: name(from),
        to: dir.into(),
        to_name: name(to),
        mode: RenameKind::Replace,
        open_here: false,
    };
    assert!(w.counted(rename("a", "b")).await.0 <= 3, "rename");
    assert!(w.counted(rename("b", "warm")).await.0 <= 3, "rename over a file");
    let file = w.lookup(dir, "warm").await.unwrap();
    let bytes = CommitContent::Inline(bytes::Bytes::from_static(b"x"));
    assert!(w.counted(commit(&file, 1, bytes)).await.0 <= 3, "close");
    let unlink = Unlink { parent: dir.into(), name: name("warm"), open_here: false };
    assert!(w.counted(unlink).await.0 <= 3, "unlink");
}

/// Whose policy holds in a directory is known from the last time; what is known may be old, and is looked at.
async fn a_file_is_made_under_the_policy_that_holds_now(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let (trips, first) = w.counted(create(dir, "first")).await;
    assert_eq!((trips, first.map.policy), (3, Policy::PLAIN), "nothing is known yet");
    for (n, chunk_bytes) in [1 << 20, 2 << 20].into_iter().enumerate() {
        let policy = Policy { chunk_bytes, ..Policy::PLAIN };
        w.call(SetPolicy { inode: dir.into(), policy: Some(policy) }).await.unwrap();
        w.until_nothing_is_asked().await;
        let (trips, made) = w.counted(create(dir, &format!("under {n}"))).await;
        // The first of its own: another directory's held before.
        assert_eq!((trips, made.map.policy), (if n == 0 { 3 } else { 2 }, policy));
    }
    w.call(SetPolicy { inode: dir.into(), policy: None }).await.unwrap();
    w.until_nothing_is_asked().await;
    let (trips, made) = w.counted(create(dir, "as before")).await;
    assert_eq!((trips, made.map.policy), (3, Policy::PLAIN));
}

async fn opening_a_file_of_a_few_chunks_is_one_round_trip(rows: Rows) {
    let w = quiet(&rows).await;
    w.add_data_server().await;
    let spares = w.spares(3).await.spares;
    let file = w.create(ROOT, "file").await.attr;
    let chunks = (0..3).map(|i| ChunkRef {
        index: ChunkIndex(i),
        chunk: spares[i as usize].0,
        container: spares[i as usize].1,
        stable: false,
        frozen: false,
    });
    let size = 3 * CHUNK_BYTES_DEFAULT;
    w.commit(&file, size, CommitContent::Chunks(chunks.collect())).await.unwrap();
    let open = OpenFile { inode: file.id.into(), ..OpenFile::default() };
    let (trips, answer) = w.counted(open).await;
    assert_eq!(trips, 1);
    let Content::Chunked(page) = answer.map.content else { panic!("inline") };
    assert_eq!((page.chunks.len(), page.more), (3, false));
    assert!(!page.containers.is_empty(), "chains come with the chunks");
}

/// What is no file, or none any more, is passed over, and the others are told all the same.
async fn files_that_are_opened_together_are_one_round_trip_for_sixteen(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let bytes = |n: usize| bytes::Bytes::from(vec![n as u8 + 1; 700]);
    let mut files = Vec::new();
    for n in 0..40 {
        let file = w.create(dir, &n.to_string()).await.attr;
        w.commit(&file, 700, CommitContent::Inline(bytes(n))).await.unwrap();
        files.push(file.id);
    }
    let (client, host) = (2, "h".to_owned());
    let open =
        OpenSession { client, former: None, since: SessionId(0), description: "mount".into(), host, caches: true };
    let mount = w.server.call(braid_api::Context::default(), open).await.unwrap();
    let ahead = async |inodes: Vec<InodeId>| {
        let before = w.engine.stats().snapshot().round_trips;
        let told = w.server.call(w.cx_of(&mount), OpenAhead { inodes }).await.unwrap();
        (w.engine.stats().snapshot().round_trips - before, told)
    };
    let (trips, told) = ahead(files[..36].to_vec()).await;
    assert_eq!(trips, 3, "of 36");
    for (n, answer) in told.iter().enumerate() {
        let answer = answer.as_ref().unwrap();
        assert_eq!((answer.attr.id, &answer.map.content), (files[n], &Content::Inline(bytes(n))));
        assert!(answer.grant.attr && answer.lease.state != LeaseState::None);
    }
    w.call(Unlink { parent: dir.into(), name: name("37"), open_here: false }).await.unwrap();
    let (_, told) = ahead(vec![dir, files[36], files[37], files[38]]).await;
    let told: Vec<_> = told.into_iter().map(|answer| answer.map(|answer| answer.attr.id)).collect();
    assert_eq!(told, [None, Some(files[36]), None, Some(files[38])]);
}

async fn a_directory_of_several_pages_is_one_round_trip_a_page(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    for n in 0..25 {
        w.create(dir, &format!("f{n:02}")).await;
    }
    let (mut after, mut found, mut pages) = (None, 0, 0);
    loop {
        let page = ReadDir { inode: dir, after, limit: 10, plus: true, knows: Vec::new() };
        let (trips, page) = w.counted(page).await;
        assert_eq!(trips, 1, "page {pages}");
        (found, pages) = (found + page.entries.len(), pages + 1);
        after = page.entries.last().map(|(name, ..)| name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!((found, pages), (25, 3));
    // However many of a page have their attributes elsewhere.
    for n in [3, 4, 11] {
        let file = w.lookup(dir, &format!("f{n:02}")).await.unwrap();
        w.call(Link { inode: file.id.into(), parent: ROOT.into(), name: name(&format!("link{n}")) }).await.unwrap();
    }
    for (after, expected) in [(None, 2), (Some(name("f09")), 2), (Some(name("f19")), 1)] {
        let page = |plus| ReadDir { inode: dir, after: after.clone(), limit: 10, plus, knows: Vec::new() };
        assert_eq!(w.counted(page(true)).await.0, expected, "with attributes after {after:?}");
        assert_eq!(w.counted(page(false)).await.0, 1, "names only");
    }
}

async fn a_rename_to_another_parent_is_no_more_than_one_within_it(rows: Rows) {
    let w = quiet(&rows).await;
    let (from, to) = (w.mkdir(ROOT, "from").await.id, w.mkdir(ROOT, "to").await.id);
    for text in ["a", "b"] {
        w.create(from, text).await;
    }
    let replace = RenameKind::Replace;
    assert_eq!(w.counted(rename((from, "a"), (from, "c"), replace)).await.0, 2, "within");
    assert_eq!(w.counted(rename((from, "c"), (to, "a"), replace)).await.0, 2, "to another parent");
    assert_eq!(w.counted(rename((from, "b"), (to, "a"), replace)).await.0, 2, "over a file there");
    w.create(from, "d").await;
    assert_eq!(w.counted(rename((from, "d"), (to, "a"), RenameKind::Exchange)).await.0, 2, "exchanged");
}

/// A whole path is one round trip where it leads as it did the last time, and what has changed costs what it takes to find it.
async fn a_path_of_any_depth_is_one_round_trip(rows: Rows) {
    let w = quiet(&rows).await;
    let path: Vec<Name> = (0..20).map(|n| name(&format!("d{n}"))).collect();
    let mut dirs = vec![ROOT];
    for text in &path {
        dirs.push(w.mkdir(dirs[dirs.len() - 1], &text.to_string()).await.id);
    }
    let file = w.create(dirs[20], "file").await.attr;
    let resolve = || Resolve { from: ROOT, path: [&path[..], &[name("file")]].concat() };
    let ids = |found: &Resolved| found.attrs.iter().map(|attr| attr.id).collect::<Vec<_>>();
    let expected = [&dirs[1..], &[file.id]].concat();
    let (trips, found) = w.counted(resolve()).await;
    assert_eq!((trips, ids(&found), found.rest), (1, expected.clone(), 0), "who made it knows it");

    // Another server knows nothing; each name is looked for below the one before, and is known from then on.
    let w = World::over(w.engine.clone(), w.store.clone(), w.peers.clone(), without_housekeeping(), 1).await;
    let (trips, found) = w.counted(resolve()).await;
    assert_eq!((trips, ids(&found)), (21, expected.clone()));
    let (trips, found) = w.counted(resolve()).await;
    assert_eq!((trips, ids(&found)), (1, expected.clone()));

    // A directory in the middle is another one now, which has the same names in it for two levels.
    w.rename((dirs[10], "d10"), (ROOT, "aside"), RenameKind::Replace).await.unwrap();
    let (trips, found) = w.counted(resolve()).await;
    assert_eq!((trips, ids(&found), found.rest), (1, expected[..10].to_vec(), 11), "it is not there");
    let other = w.mkdir(dirs[10], "d10").await.id;
    let below = w.mkdir(other, "d11").await.id;
    let (_, found) = w.counted(resolve()).await;
    assert_eq!((ids(&found), found.rest), ([&expected[..10], &[other, below]].concat(), 9), "what the rows say");
    assert_eq!(w.counted(resolve()).await.0, 1);
    let aside = Resolve { from: ROOT, path: [&[name("aside")], &path[11..], &[name("file")]].concat() };
    let (trips, found) = w.counted(aside).await;
    assert_eq!((trips, ids(&found)), (1, expected[10..].to_vec()));
}

/// One more for `rename_lock` and the way up from the destination's parent.
async fn a_directory_that_goes_to_another_parent_is_three_round_trips(rows: Rows) {
    let w = quiet(&rows).await;
    let (from, to) = (w.mkdir(ROOT, "from").await.id, w.mkdir(ROOT, "to").await.id);
    w.mkdir(from, "dir").await;
    let replace = RenameKind::Replace;
    assert_eq!(w.counted(rename((from, "dir"), (from, "same"), replace)).await.0, 2, "within");
    assert_eq!(w.counted(rename((from, "same"), (to, "dir"), replace)).await.0, 3, "to a directory of the root");
    assert_eq!(w.counted(rename((to, "dir"), (ROOT, "dir"), replace)).await.0, 3, "to the root");
    // What it holds is not looked at: one row moves.
    let dir = w.lookup(ROOT, "dir").await.unwrap().id;
    for n in 0..50 {
        w.create(dir, &n.to_string()).await;
    }
    assert_eq!(w.counted(rename((ROOT, "dir"), (to, "dir"), replace)).await.0, 3, "with fifty files");
    // However deep it goes; and a wrong idea of the way costs a round trip for each that is not as it was believed to be.
    let (mut deep, mut way) = (from, vec![from]);
    for n in 0..20 {
        deep = w.mkdir(deep, &n.to_string()).await.id;
        way.push(deep);
    }
    assert_eq!(w.counted(rename((to, "dir"), (deep, "dir"), replace)).await.0, 3, "twenty levels down");
    let below = w.call(rename((ROOT, "from"), (deep, "from"), replace)).await.unwrap_err();
    assert_eq!(below.code, braid_api::Code::Invalid, "it would be its own descendant");
}

async fn unlink_is_at_most_three_whatever_the_file_has(rows: Rows) {
    let w = quiet(&rows).await;
    w.add_data_server().await;
    let spares = w.spares(3).await.spares;
    let file = w.create(ROOT, "chunked").await.attr;
    let chunks = spares.iter().zip(0..).map(|((chunk, container), i)| ChunkRef {
        index: ChunkIndex(i),
        chunk: *chunk,
        container: *container,
        stable: false,
        frozen: false,
    });
    w.commit(&file, 3 * CHUNK_BYTES_DEFAULT, CommitContent::Chunks(chunks.collect())).await.unwrap();
    w.create(ROOT, "plain").await;
    let linked = w.create(ROOT, "linked").await.attr;
    for text in ["second", "third"] {
        w.call(Link { inode: linked.id.into(), parent: ROOT.into(), name: name(text) }).await.unwrap();
    }
    let unlink = |text| Unlink { parent: ROOT.into(), name: name(text), open_here: false };
    assert_eq!(w.counted(unlink("plain")).await.0, 2);
    // Its chunk rows go later, by reclaim.
    assert_eq!(w.counted(unlink("chunked")).await.0, 2);
    // Attributes of a file with several links lie elsewhere.
    assert_eq!(w.counted(unlink("second")).await.0, 3, "one of several links");
    assert_eq!(w.counted(unlink("linked")).await.0, 3, "the name it was made under");
    assert_eq!(w.counted(unlink("third")).await.0, 3, "the last link");
}

async fn an_open_with_o_creat_is_three_round_trips_whether_or_not_the_file_exists(rows: Rows) {
    let w = quiet(&rows).await;
    w.create(ROOT, "warm").await;
    let open = |truncate| CreateFile { exclusive: false, truncate, ..create(ROOT, "file") };
    let (trips, answer) = w.counted(open(false)).await;
    assert_eq!((trips, answer.created), (2, true));
    for truncate in [false, true] {
        let file = w.lookup(ROOT, "file").await.unwrap();
        w.commit(&file, 5, CommitContent::Inline(bytes::Bytes::from_static(b"hello"))).await.unwrap();
        let (trips, answer) = w.counted(open(truncate)).await;
        assert_eq!((trips, answer.created), (3, false), "truncate: {truncate}");
        let left = if truncate { &b""[..] } else { b"hello" };
        assert_eq!(answer.map.content, Content::Inline(bytes::Bytes::from_static(left)), "its bytes come with it");
    }
}

/// Below a snapshot root (0028).
async fn what_snapshots_have_costs_a_change_one_more(rows: Rows) {
    let w = quiet(&rows).await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let sub = w.mkdir(dir, "sub").await.id;
    for text in ["a", "b", "c", "d", "e"] {
        let file = w.create(sub, text).await.attr;
        w.commit(&file, 5, CommitContent::Inline(bytes::Bytes::from_static(b"hello"))).await.unwrap();
    }
    let make = AdminQuery::CreateSnapshot { dir, name: name("one"), wait_ms: 20_000 };
    w.server.call(w.cx(), make).await.unwrap();
    w.until_nothing_is_asked().await;
    let file = w.lookup(sub, "a").await.unwrap();
    let bytes = || CommitContent::Inline(bytes::Bytes::from_static(b"later"));
    let first = w.counted(commit(&file, 5, bytes())).await.0;
    assert_eq!(first, 4, "which snapshot it is has to be found first");
    w.create(sub, "warm").await;
    let (b, d) = (w.lookup(sub, "b").await.unwrap(), w.lookup(sub, "d").await.unwrap());
    let a = w.lookup(sub, "a").await.unwrap();
    let replace = RenameKind::Replace;
    let trips = [
        ("lookup", w.counted(Lookup { parent: sub, name: name("a") }).await.0),
        ("stat", w.counted(GetAttr { inode: b.id.into() }).await.0),
        ("open", w.counted(OpenFile { inode: b.id.into(), ..OpenFile::default() }).await.0),
        ("create", w.counted(create(sub, "new")).await.0),
        ("close, the first since", w.counted(commit(&d, 5, bytes())).await.0),
        ("close, again", w.counted(commit(&a, 5, bytes())).await.0),
        ("chmod", w.counted(chmod(b.id, 0o600)).await.0),
        ("rename", w.counted(rename((sub, "b"), (sub, "b2"), replace)).await.0),
        ("rename over", w.counted(rename((sub, "c"), (sub, "d"), replace)).await.0),
        ("unlink", w.counted(Unlink { parent: sub.into(), name: name("e"), open_here: false }).await.0),
    ];
    let below = [
        ("lookup", 1),
        ("stat", 1),
        ("open", 1),
        ("create", 3),
        ("close, the first since", 3),
        ("close, again", 3),
        ("chmod", 3),
        ("rename", 3),
        ("rename over", 3),
        ("unlink", 3),
    ];
    assert_eq!(trips, below);
    // What is read of the snapshot: rows as they are, and whether they were kept.
    let mut trips = Vec::new();
    let mut at = dir;
    for text in [".braid", "snapshots", "one", "sub"] {
        let (n, found) = w.counted(Lookup { parent: at, name: name(text) }).await;
        trips.push((text, n));
        at = found.attr.unwrap().id;
    }
    let (n, found) = w.counted(Lookup { parent: at, name: name("a") }).await;
    trips.push(("what has changed", n));
    let a = found.attr.unwrap();
    trips.push(("stat", w.counted(GetAttr { inode: a.id.into() }).await.0));
    let (n, answer) = w.counted(OpenFile { inode: a.id.into(), ..OpenFile::default() }).await;
    trips.push(("open", n));
    assert_eq!(answer.map.content, Content::Inline(bytes::Bytes::from_static(b"hello")));
    let (n, page) = w.counted(ReadDir { inode: at, after: None, limit: 100, plus: true, knows: Vec::new() }).await;
    trips.push(("list", n));
    assert_eq!(page.entries.len(), 5);
    let within = [
        (".braid", 3),
        ("snapshots", 2),
        ("one", 3),
        ("sub", 2),
        ("what has changed", 2),
        ("stat", 3),
        ("open", 3),
        ("list", 3),
    ];
    assert_eq!(trips, within);
}
