//! Directories that are removed with all that is in them.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Code;
use braid_api::admin::Pending;
use braid_api::meta::*;
use braid_meta_engine::{Engine, Key, Lock, Operation, Table, Tx};
use braid_meta_namespace::OpError;
use braid_meta_namespace::rows::keys;
use braid_types::*;
use bytes::Bytes;

const ROOT: InodeId = InodeId::ROOT;

async fn remove(w: &World, text: &str) -> braid_api::Result<Attr> {
    Ok(w.call(RemoveDir { parent: ROOT.into(), name: name(text), tree: true }).await?.attr)
}

async fn put(w: &World, dir: InodeId, text: &str) -> Attr {
    let file = w.create(dir, text).await.attr;
    w.commit(&file, 3, CommitContent::Inline(Bytes::from_static(b"abc"))).await.unwrap();
    file
}

async fn nothing_waits(w: &World) -> bool {
    !w.pending(1000).await.iter().any(|p| !matches!(p, Pending::Spare(..)))
}

#[tokio::test]
async fn a_tree_is_out_of_sight_at_once_and_all_of_it_is_freed() {
    let w = World::new().await;
    w.add_data_server().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let sub = w.mkdir(top, "sub").await.id;
    let below = w.mkdir(sub, "below").await.id;
    w.mkdir(below, "empty").await;
    for i in 0..700 {
        put(&w, [top, sub, below][i % 3], &format!("f{i}")).await;
    }
    w.call(MakeNode { parent: sub.into(), name: name("link"), spec: spec(FileKind::Symlink) }).await.unwrap();
    w.call(SetXattr {
        inode: below.into(),
        name: Bytes::from_static(b"user.a"),
        value: Bytes::from_static(b"b"),
        mode: XattrKind::Any,
        clear_setgid: false,
    })
    .await
    .unwrap();
    let policy = Policy { chunk_bytes: 1 << 20, ..Policy::PLAIN };
    w.call(SetPolicy { inode: sub.into(), policy: Some(policy) }).await.unwrap();
    let shared = put(&w, below, "shared").await;
    w.call(Link { inode: shared.id.into(), parent: ROOT.into(), name: name("outside") }).await.unwrap();
    let chunked = w.create(below, "chunked").await.attr;
    let spare = w.spares(1).await.spares[0];
    let chunk = ChunkRef { index: ChunkIndex(0), chunk: spare.0, container: spare.1, stable: false, frozen: false };
    w.commit(&chunked, 100, CommitContent::Chunks(vec![chunk])).await.unwrap();

    assert_eq!(code(w.call(RemoveDir { parent: ROOT.into(), name: name("d"), tree: false }).await), Code::NotEmpty);
    assert_eq!(remove(&w, "d").await.unwrap().nlink, 0);
    assert!(w.lookup(ROOT, "d").await.is_none());
    assert_eq!(w.attr(ROOT).await.unwrap().nlink, 2);
    assert_eq!(code(w.call(create(top, "late")).await), Code::NotFound, "nothing is added to it");
    assert_eq!(code(w.rename((ROOT, "outside"), (below, "in"), RenameKind::Replace).await), Code::NotFound);
    // As in a file system where they are removed one by one, by the time it is answered.
    assert_eq!(w.attr(shared.id).await.unwrap().nlink, 1);
    disclaim(&w, &[]).await;
    eventually("freeing", async || nothing_waits(&w).await).await;
    assert!(w.peers.0.deleted.lock().contains(&chunk.chunk));
    let left = |table| w.engine.rows(table).unwrap();
    assert_eq!(left(Table::Inodes), 2, "the root directory, and the name outside");
    assert_eq!((left(Table::InodeIds), left(Table::Xattrs), left(Table::Policies)), (1, 0, 1));
    assert_eq!((left(Table::InlineSmall), left(Table::InlineLarge)), (1, 0));
    assert_eq!((left(Table::Chunks), left(Table::Orphans), left(Table::Reclaim)), (0, 0, 0));
}

#[tokio::test]
async fn what_is_open_in_a_removed_tree_stays_until_it_is_disclaimed() {
    let w = World::new().await;
    let sub = w.mkdir(w.mkdir(ROOT, "d").await.id, "sub").await.id;
    let file = put(&w, sub, "open").await;
    remove(&w, "d").await.unwrap();
    disclaim(&w, &[file.id]).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let open = w.call(OpenFile { inode: file.id.into(), ..OpenFile::default() }).await.unwrap();
    assert_eq!((open.map.content, open.attr.nlink), (Content::Inline(Bytes::from_static(b"abc")), 0));
    disclaim(&w, &[]).await;
    eventually("freeing", async || nothing_waits(&w).await).await;
    assert_eq!(code(w.attr(file.id).await), Code::Stale);
}

/// The first one does nothing behind its answers any more.
#[tokio::test]
async fn another_start_empties_what_one_has_removed() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    for i in 0..300 {
        let sub = if i % 100 == 0 { first.mkdir(top, &format!("sub{i}")).await.id } else { top };
        put(&first, sub, &format!("f{i}")).await;
    }
    first.server.stop();
    remove(&first, "d").await.unwrap();
    assert_eq!(first.pending(10).await, [Pending::Tree(top)]);
    let second = World::on(first.store.clone(), first.peers.clone()).await;
    eventually("emptying", async || {
        disclaim(&second, &[]).await;
        nothing_waits(&second).await
    })
    .await;
    assert_eq!((second.engine.rows(Table::Inodes), second.engine.rows(Table::InodeIds)), (Some(1), Some(0)));
}

#[tokio::test]
async fn a_tree_with_a_sealed_file_stays_whole() {
    let w = World::new().await;
    let sub = w.mkdir(w.mkdir(ROOT, "d").await.id, "sub").await.id;
    let file = put(&w, sub, "kept").await;
    let seal = |sealed| SealFile { inode: file.id.into(), sealed, wait_ms: 1000 };
    w.call(seal(true)).await.unwrap();
    let refused = remove(&w, "d").await.unwrap_err();
    assert_eq!((refused.code, refused.subject()), (Code::Sealed, "/d/sub/kept"));
    assert_eq!(w.attr(file.id).await.unwrap().nlink, 1);
    assert_eq!(w.pending(10).await, []);
    w.call(seal(false)).await.unwrap();
    remove(&w, "d").await.unwrap();
}

/// A tree is not looked through where nothing is sealed: what a removal costs does not depend on what is removed.
#[tokio::test]
async fn a_removal_costs_the_same_for_every_tree() {
    let w = World::new().await;
    let mut costs = Vec::new();
    for (dir, files) in [("small", 1), ("large", 600)] {
        let top = w.mkdir(ROOT, dir).await.id;
        for i in 0..files {
            put(&w, top, &format!("f{i}")).await;
        }
    }
    w.server.stop();
    for dir in ["small", "large"] {
        costs.push(w.counted(RemoveDir { parent: ROOT.into(), name: name(dir), tree: true }).await.0);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0] <= 4, "{costs:?} round trips: one for the seals, three as any removal");
}

/// Nor all of it where all that is sealed has one name each: directories with sealed files are counted, and it is gone up from them.
#[tokio::test]
async fn where_files_are_sealed_elsewhere_no_large_tree_is_looked_through() {
    let w = World::new().await;
    let archive = w.mkdir(w.mkdir(ROOT, "archive").await.id, "deep").await.id;
    for i in 0..3 {
        seal(&w, put(&w, archive, &format!("kept{i}")).await.id).await;
    }
    seal(&w, put(&w, ROOT, "kept").await.id).await;
    for (dir, dirs) in [("small", 1), ("large", 100), ("larger", 200)] {
        let top = w.mkdir(ROOT, dir).await.id;
        for i in 0..dirs {
            put(&w, w.mkdir(top, &format!("d{i}")).await.id, "f").await;
        }
    }
    w.server.stop();
    let mut costs = Vec::new();
    for dir in ["small", "large", "larger"] {
        costs.push(w.counted(RemoveDir { parent: ROOT.into(), name: name(dir), tree: true }).await.0);
    }
    assert!(costs[0] <= 8, "{costs:?} round trips: the tree is smaller than the archive");
    assert!(costs[1] == costs[2] && costs[1] <= 8 + 10, "{costs:?} round trips");
}

#[tokio::test]
async fn what_is_sealed_is_found_wherever_its_directory_was_moved() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let kept = w.mkdir(w.mkdir(ROOT, "outside").await.id, "kept").await.id;
    let two = [put(&w, kept, "a").await.id, put(&w, kept, "b").await.id];
    for file in two {
        seal(&w, file).await;
    }
    remove(&w, "d").await.unwrap();
    let top_again = w.mkdir(ROOT, "d").await.id;
    assert_ne!(top, top_again);
    // More than are looked through before it is gone up: what is last in it is not met.
    for n in 0..70 {
        w.mkdir(top_again, &format!("z{n}")).await;
    }
    let sub = w.mkdir(top_again, "sub").await.id;
    w.rename((ROOT, "outside"), (sub, "inside"), RenameKind::Replace).await.unwrap();
    let refused = remove(&w, "d").await.unwrap_err();
    assert_eq!((refused.code, refused.subject()), (Code::Sealed, "/d/sub/inside/kept/a"));
    unseal(&w, two[0]).await;
    let refused = remove(&w, "d").await.unwrap_err();
    assert_eq!((refused.code, refused.subject()), (Code::Sealed, "/d/sub/inside/kept/b"));
    unseal(&w, two[1]).await;
    assert!(!w.engine.read(0, Has(keys::sealed_in(kept))).await.unwrap(), "a directory is counted while it has any");
    remove(&w, "d").await.unwrap();
}

/// What has several names is in no directory's count, and what was sealed before they were counted is in none either.
#[tokio::test]
async fn what_is_in_no_directorys_count_is_looked_for_in_the_tree() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    // More than are looked through before it is gone up.
    for n in 0..70 {
        w.mkdir(top, &format!("z{n}")).await;
    }
    let sub = w.mkdir(top, "a").await.id;
    let two = put(&w, sub, "two").await.id;
    w.call(Link { inode: two.into(), parent: ROOT.into(), name: name("outside") }).await.unwrap();
    seal(&w, two).await;
    let is_refused = async |path: &str| {
        let refused = remove(&w, "d").await.unwrap_err();
        assert_eq!((refused.code, refused.subject()), (Code::Sealed, path));
    };
    is_refused("/d/a/two").await;
    unseal(&w, two).await;
    let before = w.engine.rows(Table::Globals).unwrap();
    let old = put(&w, sub, "old").await.id;
    seal(&w, old).await;
    is_refused("/d/a/old").await;
    for key in [keys::sealed_placed(), keys::sealed_in(sub)] {
        w.engine.transact(0, Forget(key)).await.unwrap();
    }
    is_refused("/d/a/old").await;
    // Others are counted beside it, in its directory too.
    let later = [put(&w, ROOT, "later").await.id, put(&w, sub, "later").await.id];
    for file in later {
        seal(&w, file).await;
    }
    unseal(&w, later[1]).await;
    is_refused("/d/a/old").await;
    unseal(&w, old).await;
    unseal(&w, later[0]).await;
    assert_eq!(w.engine.rows(Table::Globals), Some(before), "of nothing there is no count");
    remove(&w, "d").await.unwrap();
}

struct Has(Key);

impl Operation for Has {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        Ok(tx.get(std::slice::from_ref(&self.0), Lock::None).await?.iter().any(Option::is_some))
    }
}

/// As rows of a version that does not know of this one.
struct Forget(Key);

impl Operation for Forget {
    type Output = ();
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), OpError> {
        tx.delete(self.0.clone());
        Ok(())
    }
}

#[tokio::test]
async fn a_directory_that_was_moved_away_from_its_policy_gets_that_of_where_it_is() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let policy = Policy { chunk_bytes: 1 << 20, ..Policy::PLAIN };
    w.call(SetPolicy { inode: top.into(), policy: Some(policy) }).await.unwrap();
    let moved = w.mkdir(w.mkdir(top, "sub").await.id, "moved").await.id;
    w.rename((w.lookup(top, "sub").await.unwrap().id, "moved"), (ROOT, "moved"), RenameKind::Replace).await.unwrap();
    assert_eq!(w.call(GetPolicy { inode: moved.into() }).await.unwrap().policy, policy);
    remove(&w, "d").await.unwrap();
    let below = w.mkdir(moved, "below").await.id;
    w.create(below, "f").await;
    let now = w.call(GetPolicy { inode: below.into() }).await.unwrap();
    assert_eq!((now.policy, now.root), (Policy::PLAIN, ROOT));
}

async fn seal(w: &World, inode: InodeId) {
    w.call(SealFile { inode: inode.into(), sealed: true, wait_ms: 1000 }).await.unwrap();
}

async fn unseal(w: &World, inode: InodeId) {
    w.call(SealFile { inode: inode.into(), sealed: false, wait_ms: 1000 }).await.unwrap();
}

#[tokio::test]
async fn a_repeated_removal_is_answered_whatever_has_the_name_by_then() {
    let w = World::new().await;
    w.mkdir(ROOT, "d").await;
    let (cx, message) = (w.cx(), RemoveDir { parent: ROOT.into(), name: name("d"), tree: true });
    let first = w.server.call(cx, message.clone()).await.unwrap();
    let again = w.mkdir(ROOT, "d").await.id;
    seal(&w, put(&w, again, "kept").await.id).await;
    assert_eq!(w.server.call(cx, message.clone()).await.unwrap().attr.id, first.attr.id);
    assert_eq!(code(w.call(message).await), Code::Sealed);
    assert_eq!(w.lookup(ROOT, "d").await.unwrap().id, again);
}

/// As its design says of a tree that is not empty yet, by the ids that programs in it have.
#[tokio::test]
async fn what_leaves_a_removed_tree_in_time_is_saved_and_what_is_sealed_in_it_is_kept() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    let sub = first.mkdir(top, "sub").await.id;
    let below = first.mkdir(sub, "below").await.id;
    put(&first, below, "saved").await;
    let sealed = put(&first, sub, "sealed").await.id;
    let two = put(&first, sub, "two").await.id;
    first.call(Link { inode: two.into(), parent: ROOT.into(), name: name("outside") }).await.unwrap();
    first.server.stop();
    remove(&first, "d").await.unwrap();
    assert_eq!(code(first.rename((top, "sub"), (ROOT, "sub"), RenameKind::Replace).await), Code::NotFound);
    let made = put(&first, sub, "made").await.id;
    first.rename((sub, "below"), (ROOT, "below"), RenameKind::Replace).await.unwrap();
    seal(&first, sealed).await;
    seal(&first, two).await;
    let second = World::on(first.store.clone(), first.peers.clone()).await;
    eventually("emptying", async || {
        disclaim(&second, &[]).await;
        nothing_waits(&second).await
    })
    .await;
    assert!(second.lookup(below, "saved").await.is_some());
    assert_eq!(code(second.attr(made).await), Code::Stale);
    assert_eq!(second.lookup(ROOT, &format!("#{sealed}")).await.unwrap().id, sealed);
    assert_eq!(second.lookup(ROOT, &format!("#{two}")).await.unwrap().nlink, 2, "none of its names goes");
    let open = second.call(OpenFile { inode: sealed.into(), ..OpenFile::default() }).await.unwrap();
    assert!(open.attr.sealed && open.map.content == Content::Inline(Bytes::from_static(b"abc")));
    assert_eq!(second.attr(ROOT).await.unwrap().nlink, 3, "below");
    // Unsealed they can go, and then nothing is looked through any more.
    for inode in [sealed, two] {
        unseal(&second, inode).await;
    }
    let key = keys::sealed_in(sub);
    let left = second.engine.read(0, Has(key)).await.unwrap();
    assert!(!left, "nothing is sealed in a directory that is gone");
    let costs = second.counted(RemoveDir { parent: ROOT.into(), name: name("below"), tree: true }).await.0;
    assert!(costs <= 6, "{costs} round trips");
}

#[tokio::test]
async fn in_a_tree_that_is_being_emptied_nothing_is_said_to_be_damaged() {
    let w = World::new().await;
    let top = w.mkdir(ROOT, "d").await.id;
    let policy = Policy { chunk_bytes: 1 << 20, ..Policy::PLAIN };
    w.call(SetPolicy { inode: top.into(), policy: Some(policy) }).await.unwrap();
    let sub = w.mkdir(w.mkdir(top, "p").await.id, "s").await.id;
    remove(&w, "d").await.unwrap();
    assert_eq!(code(w.call(create(sub, "late")).await), Code::NotFound);
    assert_eq!(code(w.call(GetPlace { id: top }).await), Code::Stale);
}
