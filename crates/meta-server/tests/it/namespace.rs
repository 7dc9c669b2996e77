//! What the namespace promises, message by message.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_api::{Code, Context, Namespace};
use braid_meta_engine::{Engine, Table};
use braid_meta_server::MetaConfig;
use braid_types::*;
use bytes::Bytes;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

#[tokio::test]
async fn a_repeated_request_takes_effect_once() {
    let w = World::new().await;
    let cx = w.cx();
    let first = w.server.call(cx, create(ROOT, "a")).await.unwrap();
    let again = w.server.call(cx, create(ROOT, "a")).await.unwrap();
    assert_eq!(first.attr, again.attr, "exclusive create repeated: the same answer, not Exists");
    let cx = w.cx();
    let unlink = Unlink { parent: ROOT.into(), name: name("a"), open_here: false };
    w.server.call(cx, unlink.clone()).await.unwrap();
    w.create(ROOT, "a").await;
    w.server.call(cx, unlink).await.unwrap();
    assert!(w.lookup(ROOT, "a").await.is_some(), "the repetition must not remove the new file");
    assert_eq!(code(w.server.call(cx, create(ROOT, "b")).await), Code::RequestReused);
}

#[tokio::test]
async fn a_request_survives_a_restart_of_the_server() {
    let w = World::new().await;
    let cx = w.cx();
    let made = w.server.call(cx, create(ROOT, "a")).await.unwrap();
    w.store.crash(|| false);
    let w2 = World::on(w.store.clone(), w.peers.clone()).await;
    assert_eq!(w2.session.session, w.session.session, "the same client gets its session again");
    let again = w2.server.call(cx, create(ROOT, "a")).await.unwrap();
    assert_eq!(made.attr.id, again.attr.id);
    let fresh = w2.create(ROOT, "b").await.attr;
    assert!(fresh.id.0 >> SLOT_BITS > made.attr.id.0 >> SLOT_BITS, "ids are never given twice");
}

#[tokio::test]
async fn requests_without_a_session_or_of_an_old_one_are_refused() {
    let w = World::new().await;
    let mut cx = w.cx();
    cx.token.session_epoch = SessionEpoch(9);
    assert_eq!(code(w.server.call(cx, create(ROOT, "a")).await), Code::SessionFenced);
    cx.token.session = SessionId(99);
    assert_eq!(code(w.server.call(cx, create(ROOT, "a")).await), Code::SessionUnknown);
    assert_eq!(code(w.server.call(Default::default(), create(ROOT, "a")).await), Code::BadMessage);
    assert!(w.lookup(ROOT, "a").await.is_none());
}

#[tokio::test]
async fn directories_count_and_prove_themselves_empty() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "d").await;
    assert_eq!(dir.nlink, 2);
    assert_eq!(w.attr(ROOT).await.unwrap().nlink, 3);
    w.create(dir.id, "f").await;
    let remove = RemoveDir { parent: ROOT.into(), name: name("d"), tree: false };
    assert_eq!(code(w.call(remove.clone()).await), Code::NotEmpty);
    w.unlink(dir.id, "f", false).await.unwrap();
    w.call(remove).await.unwrap();
    assert_eq!(w.attr(ROOT).await.unwrap().nlink, 2);
    assert_eq!(code(w.call(create(dir.id, "late")).await), Code::NotFound, "nothing is added to a dead directory");
    assert_eq!(code(w.attr(dir.id).await), Code::Stale);
}

#[tokio::test]
async fn rename_refuses_loops_and_keeps_links_right() {
    let w = World::new().await;
    let a = w.mkdir(ROOT, "a").await.id;
    let b = w.mkdir(a, "b").await.id;
    let c = w.mkdir(b, "c").await.id;
    assert_eq!(code(w.rename((ROOT, "a"), (c, "x"), RenameKind::Replace).await), Code::Invalid);
    assert_eq!(code(w.rename((ROOT, "a"), (a, "x"), RenameKind::Replace).await), Code::Invalid);
    assert_eq!(code(w.rename((ROOT, "a"), (c, "x"), RenameKind::NoReplace).await), Code::Invalid);
    w.rename((b, "c"), (ROOT, "c"), RenameKind::Replace).await.unwrap();
    assert_eq!((w.attr(b).await.unwrap().nlink, w.attr(ROOT).await.unwrap().nlink), (2, 4));
    // a is exchanged with a file: the directory's link moves.
    w.create(c, "file").await;
    w.rename((ROOT, "a"), (c, "file"), RenameKind::Exchange).await.unwrap();
    assert_eq!((w.attr(c).await.unwrap().nlink, w.attr(ROOT).await.unwrap().nlink), (3, 3));
    assert_eq!(code(w.rename((ROOT, "c"), (b, "x"), RenameKind::Replace).await), Code::Invalid, "b is below c now");
    assert!(w.lookup(ROOT, "a").await.unwrap().is_file());
    assert_eq!(code(w.rename((ROOT, "a"), (ROOT, "c"), RenameKind::NoReplace).await), Code::Exists);
    assert_eq!(code(w.rename((ROOT, "a"), (ROOT, "c"), RenameKind::Replace).await), Code::IsDirectory);
    assert_eq!(code(w.rename((ROOT, "c"), (ROOT, "a"), RenameKind::Replace).await), Code::NotDirectory);
    let place = w.call(GetPlace { id: b }).await.unwrap();
    assert_eq!((place.parent, place.name), (a, Some(name("b"))), "a directory's subtree moves with one row");
}

#[tokio::test]
async fn hard_links_share_attributes_and_the_last_one_frees() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "d").await.id;
    let file = w.create(ROOT, "a").await.attr;
    w.call(Link { inode: file.id.into(), parent: dir.into(), name: name("b") }).await.unwrap();
    w.call(chmod(file.id, 0o600)).await.unwrap();
    let (a, b) = (w.lookup(ROOT, "a").await.unwrap(), w.lookup(dir, "b").await.unwrap());
    assert_eq!(a, b);
    assert_eq!((a.nlink, a.mode), (2, Mode(0o600)));
    let same = w.rename((ROOT, "a"), (dir, "b"), RenameKind::Replace).await.unwrap();
    assert_eq!((same.moved.nlink, same.other), (2, None), "rename onto another name of the file does nothing");
    assert!(w.lookup(ROOT, "a").await.is_some());
    assert_eq!(w.unlink(ROOT, "a", false).await.unwrap().nlink, 1);
    assert_eq!(w.unlink(dir, "b", false).await.unwrap().nlink, 0);
    assert_eq!(code(w.attr(file.id).await), Code::Stale);
    let list = w.call(Link { inode: dir.into(), parent: ROOT.into(), name: name("x") }).await;
    assert_eq!(code(list), Code::NotPermitted);
}

#[tokio::test]
async fn an_open_file_outlives_its_name_until_it_is_disclaimed() {
    let w = World::new().await;
    let file = w.create(ROOT, "a").await.attr;
    w.commit(&file, 3, CommitContent::Inline(Bytes::from_static(b"abc"))).await.unwrap();
    w.unlink(ROOT, "a", true).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(w.attr(file.id).await.unwrap().nlink, 0, "held by this session");
    let open = w.call(OpenFile { inode: file.id.into(), ..OpenFile::default() }).await.unwrap();
    assert_eq!(open.map.content, Content::Inline(Bytes::from_static(b"abc")));
    let renew =
        |seen, held: Vec<InodeId>| RenewSession { low_water: RequestId(0), orphans_seen: seen, orphans_held: held };
    let told = w.call(renew(0, vec![file.id])).await.unwrap();
    assert_eq!(told.orphans, [file.id]);
    w.call(renew(told.orphans_seen, vec![file.id])).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(w.attr(file.id).await.is_ok());
    w.call(renew(told.orphans_seen, vec![])).await.unwrap();
    eventually("freeing", async || w.attr(file.id).await.is_err()).await;
}

#[tokio::test]
async fn another_session_may_have_open_what_this_one_unlinks() {
    let w = World::new().await;
    let other = open_session(&w.server, 2).await;
    let file = w.create(ROOT, "a").await.attr;
    w.unlink(ROOT, "a", false).await.unwrap();
    let renew =
        |seen, held: Vec<InodeId>| RenewSession { low_water: RequestId(0), orphans_seen: seen, orphans_held: held };
    // Told of it first, and asked the next time.
    let told = w.call(renew(0, vec![])).await.unwrap();
    assert_eq!(told.orphans, [file.id]);
    w.call(renew(told.orphans_seen, vec![])).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(w.attr(file.id).await.is_ok(), "the other session has not disclaimed it");
    w.server.call(w.cx_of(&other), renew(told.orphans_seen, vec![])).await.unwrap();
    eventually("freeing", async || w.attr(file.id).await.is_err()).await;
}

#[tokio::test]
async fn a_temporary_file_can_be_given_a_name() {
    let w = World::new().await;
    let made = w.call(CreateTemporary { parent: ROOT.into(), spec: spec(FileKind::File) }).await.unwrap();
    assert_eq!(made.attr.nlink, 0);
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    w.call(Link { inode: made.attr.id.into(), parent: ROOT.into(), name: name("t") }).await.unwrap();
    let found = w.lookup(ROOT, "t").await.unwrap();
    assert_eq!((found.id, found.nlink), (made.attr.id, 1));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(w.attr(found.id).await.is_ok(), "reclaim must not free what has a name again");
}

#[tokio::test]
async fn truncation_raises_the_generation_and_drops_whole_chunks() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(3).await.spares;
    let file = w.create(ROOT, "f").await.attr;
    let chunk = |i: usize| ChunkRef {
        index: ChunkIndex(i as u64),
        chunk: spares[i].0,
        container: spares[i].1,
        stable: false,
        frozen: false,
    };
    let cb = CHUNK_BYTES_DEFAULT;
    let all = CommitContent::Chunks(vec![chunk(0), chunk(1), chunk(2)]);
    w.commit(&file, 3 * cb, all).await.unwrap();
    let cut = w.call(truncate(file.id, cb + 10)).await.unwrap();
    assert_eq!((cut.attr.size, cut.attr.trunc_gen), (cb + 10, TruncGen(1)));
    assert_eq!(cut.cuts, [(TruncGen(1), cb + 10)]);
    let map = w.call(GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap().map;
    let Content::Chunked(page) = map.content else { panic!("inline") };
    assert_eq!(page.chunks.len(), 2);
    eventually("deleting the third chunk", async || w.peers.0.deleted.lock().contains(&spares[2].0)).await;
    assert!(!w.peers.0.deleted.lock().contains(&spares[1].0));
    assert_eq!(code(w.commit(&file, 9 * cb, CommitContent::Unchanged).await), Code::StaleTruncGen);
    // Grown and cut again: the smaller cut stays until an owner is known to have made it.
    w.call(truncate(file.id, 2 * cb)).await.unwrap();
    let again = w.call(truncate(file.id, cb + 20)).await.unwrap();
    assert_eq!(again.cuts, [(TruncGen(1), cb + 10), (TruncGen(3), cb + 20)]);
    let applied = ChangeAttr { cuts_applied: TruncGen(3), ..no_change(file.id) };
    assert!(w.call(applied).await.unwrap().cuts.is_empty());
    let zero = w.call(truncate(file.id, 0)).await.unwrap();
    assert_eq!(zero.attr.trunc_gen, TruncGen(4));
    let map = w.call(GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap().map;
    assert_eq!(map.content, Content::Inline(Bytes::new()), "an emptied file begins anew");
}

/// A client may have sent bytes beyond the size on record and died before it told: what is beyond a truncate goes, also
/// where that makes the file longer or leaves it as long as it is.
#[tokio::test]
async fn a_truncate_that_lengthens_a_file_is_a_cut_too() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(2).await.spares;
    let file = w.create(ROOT, "f").await.attr;
    let chunk = |i: usize| ChunkRef {
        index: ChunkIndex(i as u64),
        chunk: spares[i].0,
        container: spares[i].1,
        stable: false,
        frozen: false,
    };
    // The second was put into the file ahead of its size, as reserved space is.
    w.commit(&file, 100, CommitContent::Chunks(vec![chunk(0), chunk(1)])).await.unwrap();
    let longer = w.call(truncate(file.id, 500)).await.unwrap();
    assert_eq!((longer.attr.size, longer.attr.trunc_gen), (500, TruncGen(1)));
    assert_eq!(longer.cuts, [(TruncGen(1), 500)]);
    eventually("deleting the second chunk", async || w.peers.0.deleted.lock().contains(&spares[1].0)).await;
    assert!(!w.peers.0.deleted.lock().contains(&spares[0].0));
    assert_eq!(w.call(truncate(file.id, 500)).await.unwrap().cuts, [(TruncGen(2), 500)], "as long as it is");
    assert_eq!(code(w.commit(&file, 900, CommitContent::Unchanged).await), Code::StaleTruncGen);
    // Inline as far as its row says; nothing can be beyond 0 in what never had a byte.
    let small = w.create(ROOT, "small").await.attr;
    assert_eq!(w.call(truncate(small.id, 0)).await.unwrap().attr.trunc_gen, TruncGen(0));
    assert_eq!(w.call(truncate(small.id, 300)).await.unwrap().cuts, [(TruncGen(1), 300)]);
}

#[tokio::test]
async fn inline_bytes_grow_out_and_shrink_back() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(1).await.spares;
    let file = w.create(ROOT, "f").await.attr;
    for len in [10usize, 1024, 1025, 65536, 3] {
        let bytes = Bytes::from(vec![len as u8; len]);
        w.commit(&file, len as u64, CommitContent::Inline(bytes.clone())).await.unwrap();
        let open = w.call(OpenFile { inode: file.id.into(), ..OpenFile::default() }).await.unwrap();
        assert_eq!(open.map.content, Content::Inline(bytes));
    }
    let too_long = CommitContent::Inline(Bytes::from(vec![0; 65537]));
    assert_eq!(code(w.commit(&file, 65537, too_long).await), Code::Invalid);
    let chunk =
        ChunkRef { index: ChunkIndex(0), chunk: spares[0].0, container: spares[0].1, stable: false, frozen: false };
    w.commit(&file, 100_000, CommitContent::Chunks(vec![chunk])).await.unwrap();
    let attr = w.attr(file.id).await.unwrap();
    let cut = w.call(truncate(file.id, 5)).await.unwrap().attr;
    assert_eq!((attr.size, cut.size), (100_000, 5));
    w.commit(&cut, 5, CommitContent::Inline(Bytes::from_static(b"hello"))).await.unwrap();
    let open = w.call(OpenFile { inode: file.id.into(), ..OpenFile::default() }).await.unwrap();
    assert_eq!(open.map.content, Content::Inline(Bytes::from_static(b"hello")));
    eventually("freeing the chunk", async || w.peers.0.deleted.lock().contains(&spares[0].0)).await;
    // Cutting inline bytes cuts the row.
    let cut = w.call(truncate(file.id, 2)).await.unwrap().attr;
    w.call(truncate(file.id, 4)).await.unwrap();
    let open = w.call(OpenFile { inode: file.id.into(), ..OpenFile::default() }).await.unwrap();
    assert_eq!((cut.size, open.attr.size), (2, 4));
    assert_eq!(open.map.content, Content::Inline(Bytes::from_static(b"he")), "beyond the bytes it reads as zero");
}

#[tokio::test]
async fn two_writers_of_one_place_end_with_one_chunk() {
    let w = World::new().await;
    w.add_data_server().await;
    let other = open_session(&w.server, 2).await;
    let mine = w.spares(1).await.spares[0];
    let take = TakeSpares { policy: Policy::PLAIN, count: 1, beside: None, for_moves: false };
    let theirs = w.server.call(w.cx_of(&other), take).await.unwrap().spares[0];
    let file = w.create(ROOT, "f").await.attr;
    let at = |(chunk, container)| {
        CommitContent::Chunks(vec![ChunkRef { index: ChunkIndex(0), chunk, container, stable: false, frozen: false }])
    };
    w.commit(&file, 10, at(mine)).await.unwrap();
    let answer = w.server.call(w.cx_of(&other), commit(&file, 20, at(theirs))).await.unwrap();
    assert_eq!(answer.instead.chunks[0].chunk, mine.0);
    assert_eq!(answer.attr.size, 20);
    eventually("freeing the loser", async || w.peers.0.deleted.lock().contains(&theirs.0)).await;
    assert_eq!(code(w.commit(&file, 20, at(theirs)).await), Code::StaleLease, "not a spare of this session");
}

#[tokio::test]
async fn a_lost_client_leaves_what_it_wrote_and_nothing_else() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(3).await.spares;
    let file = w.create(ROOT, "f").await.attr;
    let truncated = w.create(ROOT, "truncated").await.attr;
    for ((chunk, container), inode) in spares.iter().zip([file.id, truncated.id]) {
        w.peers.0.written.lock().push(braid_api::data::ChunkStatus {
            chunk: *chunk,
            container: *container,
            len: 1234,
            inode,
            index: ChunkIndex(0),
            ..Default::default()
        });
    }
    w.call(truncate(truncated.id, 500)).await.unwrap();
    w.call(CloseSession {}).await.unwrap();
    assert!(w.peers.0.fenced.lock().contains(&w.session.session), "data servers refuse it from now on");
    let w2 = open_session(&w.server, 5).await;
    let attr = w.server.call(w.cx_of(&w2), GetAttr { inode: file.id.into() }).await.unwrap().attr;
    assert_eq!(attr.size, 1234, "a write that reached its owner survives the loss of its client");
    assert_eq!(size_seen_by(&w, &w2, truncated.id).await, 500, "it was written before the truncate");
    for unused in &spares[1..] {
        eventually("freeing the unused spare", async || w.peers.0.deleted.lock().contains(&unused.0)).await;
    }
    assert!(!w.peers.0.deleted.lock().contains(&spares[0].0));
    assert_eq!(code(w.call(create(ROOT, "late")).await), Code::SessionUnknown);
}

/// A file grew out of its row, and then client and data server were lost. Without a crash of the server its chunk has all that was in the
/// row; else the row has.
#[tokio::test]
async fn what_a_crash_may_have_taken_does_not_replace_the_bytes_in_a_row() {
    for unsure in [false, true] {
        let w = World::new().await;
        w.add_data_server().await;
        let (chunk, container) = w.spares(1).await.spares[0];
        let file = w.create(ROOT, "f").await.attr;
        w.commit(&file, 5, CommitContent::Inline(Bytes::from_static(b"bytes"))).await.unwrap();
        let written =
            braid_api::data::ChunkStatus { chunk, container, len: 1234, inode: file.id, ..Default::default() };
        w.peers.0.written.lock().push(braid_api::data::ChunkStatus { unsure, ..written });
        w.call(CloseSession {}).await.unwrap();
        let w2 = open_session(&w.server, 5).await;
        let map = w.server.call(w.cx_of(&w2), GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap();
        match unsure {
            true => assert_eq!(map.map.content, Content::Inline(Bytes::from_static(b"bytes"))),
            false => assert!(matches!(map.map.content, Content::Chunked(page) if page.chunks[0].chunk == chunk)),
        }
        assert_eq!(map.attr.size, if unsure { 5 } else { 1234 });
    }
}

/// A file grew out of its row, was cut to a few bytes before that was committed, and is inline again: what its chunk has is old.
#[tokio::test]
async fn a_chunk_that_a_file_has_left_for_its_row_is_not_taken_for_its_bytes() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(2).await.spares;
    let file = w.create(ROOT, "f").await.attr;
    let status = |(chunk, container): (ChunkId, ContainerId)| braid_api::data::ChunkStatus {
        chunk,
        container,
        len: 1234,
        inode: file.id,
        ..Default::default()
    };
    w.peers.0.written.lock().push(status(spares[0]));
    let inline = CommitContent::Inline(Bytes::from_static(b"bytes"));
    // A number that is no spare changes nothing.
    let unused = vec![spares[0].0, ChunkId(4711)];
    w.call(CommitFile { unused, ..commit(&file, 5, inline) }).await.unwrap();
    eventually("freeing the chunk", async || w.peers.0.deleted.lock().contains(&spares[0].0)).await;
    assert!(!w.peers.0.deleted.lock().contains(&spares[1].0), "a spare");
    w.call(CloseSession {}).await.unwrap();
    let w2 = open_session(&w.server, 5).await;
    let map = w.server.call(w.cx_of(&w2), GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap();
    assert_eq!(map.map.content, Content::Inline(Bytes::from_static(b"bytes")));
    assert_eq!(map.attr.size, 5);
}

/// A file of one committed chunk of 100 bytes, of which the data server has `len` bytes of generation `trunc_gen`.
async fn longer_than_its_size(w: &World, text: &str, len: u64, trunc_gen: u32) -> InodeId {
    let (chunk, container) = w.spares(1).await.spares[0];
    let file = w.create(ROOT, text).await.attr;
    let row = ChunkRef { index: ChunkIndex(0), chunk, container, stable: false, frozen: false };
    w.commit(&file, 100, CommitContent::Chunks(vec![row])).await.unwrap();
    w.peers.0.written.lock().push(braid_api::data::ChunkStatus {
        chunk,
        container,
        len,
        inode: file.id,
        index: ChunkIndex(0),
        trunc_gen: TruncGen(trunc_gen),
        ..Default::default()
    });
    file.id
}

async fn size_seen_by(w: &World, session: &SessionReply, id: InodeId) -> u64 {
    w.server.call(w.cx_of(session), GetAttr { inode: id.into() }).await.unwrap().attr.size
}

/// Design.md §8: a write that reached its owner survives the loss of its client. Here the chunk was in the file before.
#[tokio::test]
async fn a_lost_client_leaves_the_size_of_what_it_appended() {
    let ms = Duration::from_millis;
    let times = MetaConfig {
        session_renew: ms(60),
        session_lease: ms(200),
        session_expiry: ms(400),
        heartbeat: ms(40),
        server_lease: ms(200),
        ..fast_config()
    };
    let w = World::with(Default::default(), Default::default(), times, 1).await;
    let server = w.add_data_server().await;
    // The servers of this world do not fall silent: it beats for them.
    let beat = Heartbeat {
        id: server,
        incarnation: 1,
        disk: 0,
        filesystem: 0,
        bytes_total: 1 << 40,
        bytes_free: 1 << 40,
        chunks: 0,
        bad_blocks: 0,
        sealed_blocks: 0,
    };
    let appended = longer_than_its_size(&w, "appended", 1234, 0).await;
    let cut = longer_than_its_size(&w, "cut", 1234, 0).await;
    w.call(truncate(cut, 50)).await.unwrap();
    let grown_by_it = longer_than_its_size(&w, "grown by a truncate", 1234, 0).await;
    w.call(truncate(grown_by_it, 500)).await.unwrap();
    let shorter = longer_than_its_size(&w, "shorter", 60, 0).await;
    let other = open_session(&w.server, 5).await;
    // Looked through when the server was first heard of, before there was anything: only the fence tells.
    let grown = w.peers.0.written.lock().iter().map(|c| c.chunk).collect();
    *w.peers.0.grown.lock() = grown;
    eventually("the end of the silent session", async || {
        w.server.call(w.cx_of(&other), GetAttr { inode: appended.into() }).await.unwrap();
        w.server.call(Context::default(), beat.clone()).await.unwrap();
        w.peers.0.fenced.lock().contains(&w.session.session)
    })
    .await;
    eventually("the size", async || size_seen_by(&w, &other, appended).await == 1234).await;
    assert_eq!(size_seen_by(&w, &other, cut).await, 50, "what was cut off stays cut off");
    assert_eq!(size_seen_by(&w, &other, grown_by_it).await, 500, "also where the truncate made the file longer");
    assert_eq!(size_seen_by(&w, &other, shorter).await, 100, "a size is never lowered");
}

#[tokio::test]
async fn a_data_server_that_comes_back_is_looked_through_for_sizes() {
    let w = World::new().await;
    let id = w.add_data_server().await;
    // It was looked through when it was first heard of, and had nothing then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut files = Vec::new();
    for n in 0..3 {
        files.push(longer_than_its_size(&w, &format!("f{n}"), 1000 + n, 0).await);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(w.attr(files[0]).await.unwrap().size, 100, "nobody has asked");
    let again = RegisterServer {
        id,
        incarnation: 2,
        addresses: vec!["tcp:nowhere:1".into()],
        host: "h".into(),
        clean_stop: false,
        rack: String::new(),
    };
    w.call(again).await.unwrap();
    for (n, file) in (0..).zip(&files) {
        eventually("the size", async || w.attr(*file).await.unwrap().size == 1000 + n).await;
    }
}

/// A CloseSession that is given up in the middle, as in-process callers can, leaves a session that can be ended; one
/// that is repeated while the first is at work is not told that all is well before it is.
#[tokio::test]
async fn the_end_of_a_session_that_was_given_up_can_be_repeated() {
    let w = World::new().await;
    let rows = || w.store.durable_rows(braid_meta_engine::Table::Sessions).len();
    w.store.set_commit_delay(|| Box::pin(tokio::time::sleep(Duration::from_millis(300))));
    let given_up = tokio::time::timeout(Duration::from_millis(50), w.call(CloseSession {})).await;
    assert!(given_up.is_err() && rows() == 1, "it was in the middle");
    let (first, second) = tokio::join!(w.call(CloseSession {}), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let answer = w.call(CloseSession {}).await;
        (answer, rows())
    });
    first.unwrap();
    assert_eq!((second.0.unwrap(), second.1), ((), 0), "answered when the session had ended");
    assert_eq!(code(w.call(create(ROOT, "late")).await), Code::SessionUnknown);
}

#[tokio::test]
async fn listings_page_in_order_and_carry_attributes() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "d").await.id;
    for i in 0..25 {
        w.create(dir, &format!("f{i:02}")).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = w.call(ReadDir { inode: dir, after, limit: 10, plus: true, knows: Vec::new() }).await.unwrap();
        assert!(page.entries.len() <= 10);
        seen.extend(page.entries.iter().map(|(n, _, _, a)| (n.to_string(), a.is_some())));
        after = page.entries.last().map(|(n, ..)| n.clone());
        if !page.more {
            break;
        }
    }
    let expected: Vec<_> = (0..25).map(|i| (format!("f{i:02}"), true)).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn xattrs_and_access_lists_follow_posix() {
    let w = World::new().await;
    let file = w.create(ROOT, "f").await.attr;
    let set = |n: &'static [u8], v: &'static [u8], mode| SetXattr {
        inode: file.id.into(),
        name: Bytes::from_static(n),
        value: Bytes::from_static(v),
        mode,
        clear_setgid: false,
    };
    let get = async |n: &'static [u8]| w.call(GetXattr { inode: file.id.into(), name: Bytes::from_static(n) }).await;
    assert_eq!(code(get(b"user.a").await), Code::NoXattr);
    assert_eq!(code(w.call(set(b"user.a", b"1", XattrKind::Replace)).await), Code::NoXattr);
    w.call(set(b"user.a", b"1", XattrKind::Create)).await.unwrap();
    assert_eq!(code(w.call(set(b"user.a", b"2", XattrKind::Create)).await), Code::Exists);
    w.call(set(b"user.a", b"", XattrKind::Any)).await.unwrap();
    assert_eq!(get(b"user.a").await.unwrap(), Bytes::new(), "an empty value is a value");
    assert_eq!(w.call(ListXattr { inode: file.id.into() }).await.unwrap(), [Bytes::from_static(b"user.a")]);
    let bad = set(b"system.posix_acl_access", b"nonsense", XattrKind::Any);
    assert_eq!(code(w.call(bad).await), Code::Invalid);
    // user::rw- user:5:rwx group::r-- mask::rwx other::---: the group bits of the mode show the mask.
    const ACL: &[u8] = &[
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 5, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 7,
        0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    w.call(set(b"system.posix_acl_access", ACL, XattrKind::Any)).await.unwrap();
    assert_eq!(w.attr(file.id).await.unwrap().mode, Mode(0o670));
    w.call(chmod(file.id, 0o640)).await.unwrap();
    let now = get(b"system.posix_acl_access").await.unwrap();
    assert_eq!(now[30], 4, "chmod changed the mask");
    w.call(RemoveXattr { inode: file.id.into(), name: Bytes::from_static(b"user.a") }).await.unwrap();
    assert_eq!(code(get(b"user.a").await), Code::NoXattr);
}

#[tokio::test]
async fn a_whole_small_file_goes_in_one_message() {
    let w = World::new().await;
    let put = |data: &'static [u8], replace| PutFile {
        parent: ROOT.into(),
        name: name("p"),
        spec: spec(FileKind::File),
        data: Bytes::from_static(data),
        replace,
        open_here: false,
    };
    w.mkdir(ROOT, "takes the first block of ids").await;
    let (trips, first) = w.counted(put(b"one", false)).await;
    assert!(trips <= 3);
    assert_eq!(code(w.call(put(b"two", false)).await), Code::Exists);
    let second = w.call(put(b"second", true)).await.unwrap();
    assert_ne!(first.attr.id, second.attr.id);
    let open = w.call(OpenFile { inode: second.attr.id.into(), ..OpenFile::default() }).await.unwrap();
    assert_eq!((open.attr.size, open.map.content), (6, Content::Inline(Bytes::from_static(b"second"))));
    let page = w.call(ReadDir { inode: ROOT, after: None, limit: 9, plus: false, knows: Vec::new() }).await.unwrap();
    assert_eq!(page.entries.len(), 2, "one file and the directory");
    assert_eq!(code(w.attr(first.attr.id).await), Code::Stale);
    assert_eq!(second.replaced.map(|gone| (gone.id, gone.nlink)), Some((first.attr.id, 0)));
    let third = w.call(PutFile { open_here: true, ..put(b"third", true) }).await.unwrap();
    assert_eq!(third.replaced.map(|gone| gone.id), Some(second.attr.id));
    assert_eq!(w.attr(second.attr.id).await.unwrap().nlink, 0, "who replaced it has it open");
}

/// Which of the tables of small files has it, by what its directory's policy says.
#[tokio::test]
async fn small_files_lie_where_their_policy_says_and_move_as_they_grow_and_shrink() {
    let w = World::new().await;
    for (text, small, large) in [
        ("plain", Some(1024), Some(16 << 10)),
        ("plain,inline_small=300", Some(300), Some(16 << 10)),
        ("plain,inline_small=0,inline=64KiB", None, Some(64 << 10)),
        ("plain,inline=512", Some(512), None),
    ] {
        let dir = w.mkdir(ROOT, text).await.id;
        w.call(SetPolicy { inode: dir.into(), policy: Some(text.parse().unwrap()) }).await.unwrap();
        let file = w.create(dir, "f").await.attr;
        let rows = |table| w.engine.rows(table).unwrap();
        let sizes = [small, small.map(|n| n + 1).filter(|n| Some(*n) <= large), large, Some(1), large, small];
        for size in sizes.into_iter().flatten() {
            let bytes = Bytes::from(vec![7; size]);
            let kept = w.commit(&file, size as u64, CommitContent::Inline(bytes.clone())).await;
            kept.unwrap_or_else(|e| panic!("{text}, {size}: {e}"));
            let is_small = small.is_some_and(|small| size <= small);
            let expected = (u64::from(is_small), u64::from(!is_small));
            assert_eq!((rows(Table::InlineSmall), rows(Table::InlineLarge)), expected, "{text}, {size}");
            let map = w.call(GetMap { inode: file.id.into(), first: ChunkIndex(0) }).await.unwrap().map;
            assert_eq!(map.content, Content::Inline(bytes), "{text}, {size}");
        }
        w.unlink(dir, "f", false).await.unwrap();
        eventually("freeing", async || rows(Table::InlineSmall) + rows(Table::InlineLarge) == 0).await;
    }
}

#[tokio::test]
async fn setgid_directories_give_their_group() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "d").await.id;
    let own = ChangeAttr { gid: Some(77), mode: Some(Mode(0o2775)), ..no_change(dir) };
    w.call(own).await.unwrap();
    let sub = w.mkdir(dir, "sub").await;
    let file = w.create(dir, "f").await.attr;
    assert_eq!((sub.gid, file.gid), (77, 77));
    assert!(sub.mode.has(Mode::SETGID) && !file.mode.has(Mode::SETGID));
}

/// Whoever has it open goes on reading it; a link that comes after its removal was answered would show it again.
#[tokio::test]
async fn a_file_whose_last_name_has_gone_gets_none_any_more() {
    let w = World::new().await;
    let link = |id: InodeId, text: &str| Link { inode: id.into(), parent: ROOT.into(), name: name(text) };
    let file = w.create(ROOT, "file").await.attr.id;
    w.call(link(file, "second")).await.unwrap();
    w.unlink(ROOT, "file", true).await.unwrap();
    w.call(link(file, "third")).await.unwrap();
    w.unlink(ROOT, "second", true).await.unwrap();
    w.unlink(ROOT, "third", true).await.unwrap();
    assert_eq!(code(w.call(link(file, "again")).await), Code::NotFound);
    assert!(w.lookup(ROOT, "again").await.is_none());
    // One of O_TMPFILE gets its first name.
    let temporary = CreateTemporary { parent: ROOT.into(), spec: spec(FileKind::File) };
    let made = w.call(temporary).await.unwrap().attr.id;
    assert_eq!(w.call(link(made, "named")).await.unwrap().attr.nlink, 1);
    w.unlink(ROOT, "named", true).await.unwrap();
    assert_eq!(code(w.call(link(made, "again")).await), Code::NotFound);
}
