//! chmod -R, chown -R and setfacl -R: of all that is below, once, whoever serves.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Code;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::*;
use braid_meta_engine::{Engine, Table};
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::change_tree::{ChangeEntries, NextEntries};
use braid_meta_namespace::ops::subtree_ops::{ENTRIES_A_PAGE, ListSubtreeOps, Listed};
use braid_types::*;
use bytes::Bytes;

const ROOT: InodeId = InodeId::ROOT;

/// So many seconds from now.
fn now(secs: i64) -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_parts(now.as_secs() as i64 + secs, 0)
}

async fn status(w: &World, op: TreeOp, after: Option<Vec<u8>>) -> TreeOpStatus {
    match w.call(AdminQuery::TreeOp { op, after }).await.unwrap() {
        AdminAnswer::TreeOp(status) => status,
        other => panic!("{other:?}"),
    }
}

/// Until it is done; what was left as it is: path, sealed, refused.
async fn left(w: &World, op: TreeOp) -> Vec<LeftInDir> {
    eventually("the change of a tree", async || status(w, op, None).await.waiting == 0).await;
    let (mut left, mut after) = (Vec::new(), None);
    loop {
        let page = status(w, op, after).await;
        left.extend(page.left);
        after = page.next;
        if after.is_none() {
            return left;
        }
    }
}

/// The next page of a directory, as a server would announce it.
async fn page_of(w: &World, dir: InodeId, op: TreeOp, now: Timestamp) -> ChangeEntries {
    let next = ReadOnly(NextEntries { dir, op, limit: ENTRIES_A_PAGE });
    let announced = w.engine.read(1, next).await.unwrap().unwrap();
    ChangeEntries { dir, op, limit: ENTRIES_A_PAGE, announced, now }
}

async fn change(w: &World, dir: InodeId, change: TreeChange) -> Vec<LeftInDir> {
    let op = w.call(ChangeTree { dir: dir.into(), change }).await.unwrap();
    left(w, op).await
}

async fn rights(w: &World, id: InodeId) -> (u32, u32) {
    w.attr(id).await.map(|attr| (attr.mode.0, attr.uid)).unwrap()
}

#[tokio::test]
async fn a_tree_is_changed_and_what_is_sealed_stays() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let mut files = Vec::new();
    for i in 0..1500 {
        files.push(w.create(top, &format!("f{i:04}")).await.attr.id);
    }
    let sub = w.mkdir(top, "g").await.id;
    let below = w.create(w.mkdir(sub, "deep").await.id, "below").await.attr.id;
    w.call(MakeNode { parent: top.into(), name: name("link"), spec: spec(FileKind::Symlink) }).await.unwrap();
    let shared = w.create(top, "shared").await.attr.id;
    w.call(Link { inode: shared.into(), parent: top.into(), name: name("too") }).await.unwrap();
    w.call(SealFile { inode: files[7].into(), sealed: true, wait_ms: 1000 }).await.unwrap();
    w.call(chmod(files[9], 0o4755)).await.unwrap();
    let outside = w.mkdir(ROOT, "outside").await.id;

    let wanted = TreeChange { mode: Some("g+w,o=".parse().unwrap()), uid: Some(7), ..TreeChange::default() };
    let (cx, message) = (w.cx(), ChangeTree { dir: top.into(), change: wanted });
    let op = w.server.call(cx, message.clone()).await.unwrap();
    let sealed = LeftInDir { dir: vec![b"d".to_vec()], sealed: vec![b"f0007".to_vec()], refused: Vec::new() };
    assert_eq!(left(&w, op).await, [sealed]);
    let of = async |id| rights(&w, id).await;
    for id in files.iter().filter(|id| ![files[7], files[9]].contains(id)).chain([&shared, &below]) {
        assert_eq!(of(*id).await, (0o660, 7), "{id}");
    }
    assert_eq!(of(files[7]).await, (0o644, 1000));
    assert_eq!(of(files[9]).await, (0o770, 7), "setuid does not pass to another owner");
    assert_eq!((of(sub).await, of(top).await), ((0o770, 7), (0o770, 7)));
    assert_eq!(of(outside).await, (0o755, 1000));
    assert_eq!(of(w.lookup(top, "link").await.unwrap().id).await, (0o777, 7), "a link has no mode of its own");
    // A repetition, as after an answer that was lost, changes nothing and says the same.
    w.call(chmod(files[0], 0o600)).await.unwrap();
    assert_eq!(w.server.call(cx, message).await.unwrap(), op);
    assert_eq!((left(&w, op).await.len(), of(files[0]).await), (1, (0o600, 7)));
    assert_eq!(
        code(w.call(ChangeTree { dir: files[0].into(), change: TreeChange::default() }).await),
        Code::NotDirectory
    );
}

/// Something is made in the page between its announcement and its change: what was announced is changed, and the rest is the next page's.
#[tokio::test]
async fn a_page_is_changed_as_far_as_it_was_announced() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let mut files = Vec::new();
    for text in ["b", "d", "f"] {
        files.push(w.create(top, text).await.attr.id);
    }
    w.server.stop();
    let wanted = TreeChange { mode: Some(ModeChange::Octal(0o640)), ..TreeChange::default() };
    let op = w.call(ChangeTree { dir: top.into(), change: wanted }).await.unwrap();
    let page = page_of(&w, top, op, now(0)).await;
    let made = w.create(top, "c").await.attr.id;
    w.call(Unlink { parent: top.into(), name: name("b"), open_here: false }).await.unwrap();
    assert_eq!(w.engine.transact(1, page).await.map_err(|e| e.0.code), Err(Code::StaleLease), "it begins with another");
    let page = page_of(&w, top, op, now(0)).await;
    let last = w.create(top, "e").await.attr.id;
    w.call(Unlink { parent: top.into(), name: name("c"), open_here: false }).await.unwrap();
    assert!(w.engine.transact(1, page).await.unwrap(), "there is more");
    let modes = async |id: InodeId| rights(&w, id).await.0;
    assert_eq!((modes(files[1]).await, modes(last).await, modes(files[2]).await), (0o640, 0o644, 0o644));
    assert!(w.attr(made).await.is_err() || modes(made).await == 0o644);
    let page = page_of(&w, top, op, now(0)).await;
    assert!(!w.engine.transact(1, page).await.unwrap());
    assert_eq!((modes(last).await, modes(files[2]).await), (0o640, 0o640));
}

/// Names of sealed files may be long, and many: they are told all the same.
#[tokio::test]
async fn what_is_left_as_it_is_is_told_whatever_room_its_names_take() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let mut names = Vec::new();
    for i in 0..200 {
        let text = format!("{i:03}{}", "n".repeat(252));
        let file = w.create(top, &text).await.attr.id;
        w.call(SealFile { inode: file.into(), sealed: true, wait_ms: 1000 }).await.unwrap();
        names.push(text.into_bytes());
    }
    let wanted = TreeChange { mode: Some(ModeChange::Octal(0o640)), ..TreeChange::default() };
    let told: Vec<Vec<u8>> = change(&w, top, wanted).await.into_iter().flat_map(|left| left.sealed).collect();
    assert_eq!(told, names);
    assert_eq!(w.engine.rows(Table::SubtreeOps), Some(4), "each of less than 29,000 bytes");
}

/// What begins with the request is gone on with by whoever serves next, from where the last has come to: what was changed is not changed a
/// second time, and what it had left as it is is told.
#[tokio::test]
async fn another_start_goes_on_with_the_change_of_a_tree() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    let mut files = Vec::new();
    for i in 0..ENTRIES_A_PAGE + 40 {
        files.push(first.create(top, &format!("f{i:04}")).await.attr.id);
    }
    let deep = first.mkdir(first.mkdir(top, "sub").await.id, "deep").await.id;
    let below = first.create(deep, "below").await.attr.id;
    first.call(SealFile { inode: files[3].into(), sealed: true, wait_ms: 1000 }).await.unwrap();
    first.call(SealFile { inode: below.into(), sealed: true, wait_ms: 1000 }).await.unwrap();
    first.server.stop();
    let wanted = TreeChange { mode: Some(ModeChange::Octal(0o640)), ..TreeChange::default() };
    let op = first.call(ChangeTree { dir: top.into(), change: wanted }).await.unwrap();
    assert_eq!(rights(&first, top).await.0, 0o640, "the directory itself is changed when it is answered");
    assert_eq!(rights(&first, files[0]).await.0, 0o644);
    let page = async || page_of(&first, top, op, now(0)).await;
    let unsaid = ChangeEntries { announced: vec![top], ..page().await };
    assert_eq!(first.engine.transact(1, unsaid).await.map_err(|e| e.0.code), Err(Code::StaleLease), "not as announced");
    assert_eq!(rights(&first, files[0]).await.0, 0o644);
    assert!(first.engine.transact(1, page().await).await.unwrap(), "there is a second page");
    first.call(chmod(files[0], 0o600)).await.unwrap();
    assert_eq!(rights(&first, files[ENTRIES_A_PAGE]).await.0, 0o644, "it has gone away in between");

    let second = World::on(first.store.clone(), first.peers.clone()).await;
    let told = left(&second, op).await;
    let at = |dir: &[&[u8]], name: &[u8]| LeftInDir {
        dir: dir.iter().map(|name| name.to_vec()).collect(),
        sealed: vec![name.to_vec()],
        refused: Vec::new(),
    };
    assert_eq!(told.len(), 2);
    assert!(
        told.contains(&at(&[b"d"], b"f0003")) && told.contains(&at(&[b"d", b"sub", b"deep"], b"below")),
        "{told:?}"
    );
    assert_eq!((rights(&second, files[0]).await.0, rights(&second, files[1]).await.0), (0o600, 0o640));
    assert_eq!((rights(&second, files[ENTRIES_A_PAGE]).await.0, rights(&second, deep).await.0), (0o640, 0o640));
    assert_eq!((rights(&second, files[3]).await.0, rights(&second, below).await.0), (0o644, 0o644));
}

/// A directory that has gone, or was moved away, keeps nobody waiting; one that came after its page was looked through is not changed, as
/// chmod(1) would not.
#[tokio::test]
async fn a_tree_may_be_changed_while_others_work_in_it() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    let [gone, moved] = [first.mkdir(top, "gone").await.id, first.mkdir(top, "moved").await.id];
    let file = first.create(moved, "f").await.attr.id;
    first.server.stop();
    let wanted = TreeChange { mode: Some(ModeChange::Octal(0o700)), ..TreeChange::default() };
    let op = first.call(ChangeTree { dir: top.into(), change: wanted.clone() }).await.unwrap();
    let page = page_of(&first, top, op, now(0)).await;
    assert!(!first.engine.transact(1, page).await.unwrap());
    let waiting = first.engine.read(1, ListSubtreeOps { after: None, limit: 100 }).await.unwrap();
    assert_eq!(waiting.len(), 2, "the directories in it: {waiting:?}");
    first.call(RemoveDir { parent: top.into(), name: name("gone"), tree: false }).await.unwrap();
    first.rename((top, "moved"), (ROOT, "moved"), RenameKind::Replace).await.unwrap();
    let late = first.create(top, "late").await.attr.id;
    let next = ReadOnly(NextEntries { dir: top, op, limit: ENTRIES_A_PAGE });
    assert_eq!(first.engine.read(1, next).await.unwrap(), None, "looked through");
    let second = World::on(first.store.clone(), first.peers.clone()).await;
    assert_eq!(left(&second, op).await, []);
    assert_eq!(second.engine.rows(Table::SubtreeOps), Some(0));
    assert_eq!((rights(&second, file).await.0, rights(&second, late).await.0), (0o700, 0o644));
    assert!(second.attr(gone).await.is_err());
    // What was left is told for an hour.
    second.call(SealFile { inode: file.into(), sealed: true, wait_ms: 1000 }).await.unwrap();
    let told = change(&second, moved, wanted.clone()).await;
    assert_eq!((told.len(), second.engine.rows(Table::SubtreeOps)), (1, Some(1)));
    let listed = second.engine.read(1, ListSubtreeOps { after: None, limit: 100 }).await.unwrap();
    assert!(matches!(listed[..], [(_, Listed::Left(_))]));
}

#[tokio::test]
async fn what_a_change_left_as_it_is_is_forgotten_after_an_hour() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    let file = first.create(top, "f").await.attr.id;
    first.call(SealFile { inode: file.into(), sealed: true, wait_ms: 1000 }).await.unwrap();
    first.server.stop();
    let wanted = TreeChange { mode: Some(ModeChange::Octal(0o700)), ..TreeChange::default() };
    let old = first.call(ChangeTree { dir: top.into(), change: wanted.clone() }).await.unwrap();
    let page = page_of(&first, top, old, now(-3700)).await;
    assert!(!first.engine.transact(1, page).await.unwrap());
    let new = first.call(ChangeTree { dir: top.into(), change: wanted }).await.unwrap();
    let page = page_of(&first, top, new, now(-3500)).await;
    assert!(!first.engine.transact(1, page).await.unwrap());
    assert_eq!((left(&first, old).await.len(), left(&first, new).await.len()), (1, 1));
    let second = World::on(first.store.clone(), first.peers.clone()).await;
    eventually("forgetting", async || second.engine.rows(Table::SubtreeOps) == Some(1)).await;
    assert_eq!((left(&second, old).await.len(), left(&second, new).await.len()), (0, 1));
}

/// setfacl -R: lists and modes of a whole page in one step, in as many round trips whatever has lists.
#[tokio::test]
async fn access_lists_of_a_directorys_entries_change_at_once() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "top").await.id;
    let files: Vec<InodeId> = {
        let mut files = Vec::new();
        for n in 0..20 {
            files.push(w.create(top, &format!("f{n:02}")).await.attr.id);
        }
        files
    };
    let sub = w.mkdir(top, "sub").await.id;
    w.call(MakeNode { parent: top.into(), name: name("link"), spec: spec(FileKind::Symlink) }).await.unwrap();
    let edits = |text: &str, removes| AclChange::parse(text, removes, |_, _| None).unwrap();
    let acl = |edits: Vec<AclEdit>| {
        let acl = Some(AclChange { edits, ..AclChange::default() });
        TreeChange { acl, ..TreeChange::default() }
    };
    let list = async |id: InodeId, of: &'static [u8]| -> Result<Vec<u8>, Code> {
        let get = GetXattr { inode: id.into(), name: Bytes::from_static(of) };
        w.call(get).await.map(|bytes| bytes.to_vec()).map_err(|e| e.code)
    };
    let (access, default): (&'static [u8], &'static [u8]) = (b"system.posix_acl_access", b"system.posix_acl_default");
    let mode = async |id: InodeId| w.attr(id).await.unwrap().mode.0;

    let set = acl(edits("u:7:rwX,d:u:7:rwX", false));
    assert_eq!(change(&w, top, set.clone()).await, []);
    for dir in [top, sub] {
        assert_eq!((mode(dir).await, list(dir, default).await.unwrap().len()), (0o775, 4 + 5 * 8));
    }
    assert_eq!(mode(files[3]).await, 0o664, "the mask is shown as the group's bits");
    assert_eq!(list(files[3], access).await.unwrap().len(), 4 + 5 * 8);
    assert_eq!(list(files[3], default).await, Err(Code::NoXattr), "of directories alone");
    let before = w.attr(files[3]).await.unwrap().ctime;
    change(&w, top, set).await;
    assert_eq!(w.attr(files[3]).await.unwrap().ctime, before, "a second time there is nothing to change");
    let made = w.create(sub, "made").await.attr.id;
    assert_eq!(list(made, access).await.unwrap().len(), 4 + 5 * 8, "inherited");

    w.server.stop();
    let op = w.call(ChangeTree { dir: top.into(), change: acl(edits("g:9:r", false)) }).await.unwrap();
    let page = page_of(&w, top, op, now(0)).await;
    let before = w.engine.stats().snapshot().round_trips;
    assert!(!w.engine.transact(1, page).await.unwrap());
    let trips = w.engine.stats().snapshot().round_trips - before;
    assert_eq!(list(files[19], access).await.unwrap().len(), 4 + 6 * 8);
    assert!(trips <= 5, "{trips} round trips for 21 lists");
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    let list = async |id: InodeId, of: &'static [u8]| -> Result<Vec<u8>, Code> {
        let get = GetXattr { inode: id.into(), name: Bytes::from_static(of) };
        w.call(get).await.map(|bytes| bytes.to_vec()).map_err(|e| e.code)
    };
    left(&w, op).await;
    let gone = acl([edits("u:7,g:9,m,d:u:7,d:m", true), edits("g::r", false)].concat());
    change(&w, top, gone).await;
    assert_eq!((list(files[3], access).await, rights(&w, files[3]).await.0), (Err(Code::NoXattr), 0o644));
    change(&w, top, acl(edits("u:7:r", false))).await;
    // Names without a mask: first of the directory itself, which is refused at once, and changes nothing.
    let refused = ChangeTree { dir: top.into(), change: acl(edits("m", true)) };
    assert_eq!(code(w.call(refused).await), Code::Invalid);
    change(&w, top, acl(edits("u:7,m", true))).await;
    let file = w.create(sub, "with").await.attr.id;
    change(&w, sub, acl(edits("u:7:r", false))).await;
    w.call(RemoveXattr { inode: sub.into(), name: Bytes::from_static(access) }).await.unwrap();
    let told = change(&w, sub, acl(edits("m", true))).await;
    assert_eq!(told.iter().map(|left| left.refused.len()).sum::<usize>(), 2, "with and made: {told:?}");
    assert_eq!(list(file, access).await.unwrap().len(), 4 + 5 * 8, "and nothing changed");
}
