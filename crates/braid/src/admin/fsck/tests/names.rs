//! Faults of names, inodes and counts, put into the rows by hand.

use super::world::{ROOT, World, name};
use crate::admin::fsck::{ask::Ask, pending};
use braid_meta_namespace::rows::{Entry, IdRow, OrphanRow, ReclaimRow, flags, keys};
use braid_types::{FileKind, InodeId, SessionId, Timestamp};

const NOBODY: InodeId = InodeId(99 << 12);

#[tokio::test]
async fn a_sound_cluster_is_clean() {
    let report = World::new().await.finds(&[]).await;
    assert_eq!((report.seen.names, report.seen.chunk_rows, report.seen.chunks_held), (5, 3, Some(3)));
}

#[tokio::test]
async fn a_name_that_leads_nowhere() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    w.put(keys::entry(a, &name("ghost")), &Entry::Elsewhere { id: NOBODY, kind: FileKind::File }).await;
    w.damage(a, |inode| inode.size += 1).await;
    let report = w.mends(&["F101"]).await;
    assert_eq!(report.findings[0].place, "/a/ghost");
}

#[tokio::test]
async fn attributes_beside_two_names() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    w.put(keys::entry(a, &name("copy")), &w.entry(b, "data").await).await;
    w.damage(a, |inode| inode.size += 1).await;
    let report = w.mends(&["F102"]).await;
    assert_eq!(report.findings[0].place, "/a/copy", "the id row leads to the other");
    assert!(w.lookup(b, "data").await.0 > 0);
}

#[tokio::test]
async fn attributes_beside_a_name_and_by_id() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let two = w.lookup(a, "one").await;
    let Some(IdRow::Attributes(inode)) = w.get(&keys::inode_id(two)).await else { panic!("not by id") };
    w.put(keys::entry(a, &name("one")), &Entry::Here(inode)).await;
    w.mends(&["F102"]).await;
    assert_eq!(w.lookup(a, "one").await, two);
}

#[tokio::test]
async fn entries_of_a_directory_that_does_not_exist() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    let data = w.lookup(b, "data").await;
    let two = w.lookup(b, "two").await;
    w.delete(keys::entry(a, &name("b"))).await;
    w.delete(keys::inode_id(b)).await;
    w.damage(a, |inode| {
        inode.size -= 1;
        inode.nlink -= 1;
    })
    .await;
    w.mends(&["F103", "F103"]).await;
    assert_eq!(w.lookup(ROOT, &format!("#{data}")).await, data);
    assert_eq!(w.lookup(ROOT, &format!("#{two}")).await, two);
}

#[tokio::test]
async fn directories_in_a_circle() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let c = w.mkdir(ROOT, "c").await;
    let d = w.mkdir(c, "d").await;
    w.mkdir(d, "below").await;
    // c goes below d, and is forgotten at the root.
    w.put(keys::entry(d, &name("c")), &w.entry(ROOT, "c").await).await;
    w.put(keys::inode_id(c), &IdRow::At { parent: d, name: b"c".to_vec() }).await;
    w.delete(keys::entry(ROOT, &name("c"))).await;
    for (dir, by) in [(ROOT, -1i64), (d, 1)] {
        w.damage(dir, |inode| {
            inode.size = inode.size.saturating_add_signed(by);
            inode.nlink = inode.nlink.saturating_add_signed(by as i32);
        })
        .await;
    }
    w.mends(&["F104"]).await;
    let kept = [c, d].into_iter().min().unwrap();
    assert_eq!(w.lookup(ROOT, &format!("#{kept}")).await, kept);
    assert_eq!(w.lookup(ROOT, "a").await, a);
}

#[tokio::test]
async fn a_directory_below_itself_alone() {
    let w = World::new().await;
    let c = w.mkdir(ROOT, "c").await;
    w.put(keys::entry(c, &name("c")), &w.entry(ROOT, "c").await).await;
    w.put(keys::inode_id(c), &IdRow::At { parent: c, name: b"c".to_vec() }).await;
    w.delete(keys::entry(ROOT, &name("c"))).await;
    let report = w.check(false).await;
    assert!(report.findings.iter().any(|f| f.fault.code() == "F104"), "{}", report.text());
    let repaired = w.check(true).await;
    assert_eq!(repaired.verdict().exit_code(), 0, "{}", repaired.text());
}

#[tokio::test]
async fn an_inode_without_a_name() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    let two = w.lookup(a, "one").await;
    w.delete(keys::entry(a, &name("one"))).await;
    w.delete(keys::entry(b, &name("two"))).await;
    w.damage(a, |inode| inode.size -= 1).await;
    w.damage(b, |inode| inode.size -= 1).await;
    w.mends(&["F105"]).await;
    assert_eq!(w.lookup(ROOT, &format!("#{two}")).await, two);
    assert_eq!(w.attr(two).await.unwrap().nlink, 1);
}

#[tokio::test]
async fn an_unlinked_inode_that_nothing_frees() {
    let w = World::new().await;
    let [orphan] = unlinked(&w).await[..] else { panic!("one orphan") };
    w.delete(keys::orphan(orphan)).await;
    w.mends(&["F106"]).await;
    assert_eq!(unlinked(&w).await, [orphan]);
}

#[tokio::test]
async fn orphans_that_are_none() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let row = OrphanRow { session: SessionId(1), since: Timestamp(0) };
    w.put(keys::orphan(NOBODY), &row).await;
    w.put(keys::orphan(w.lookup(a, "one").await), &row).await;
    w.put(keys::orphan(a), &row).await;
    w.mends(&["F107", "F107", "F107"]).await;
    assert_eq!(unlinked(&w).await.len(), 1);
}

async fn unlinked(w: &World) -> Vec<InodeId> {
    let found = pending::read(&Ask::new(&*w.server), &|_| {}).await.unwrap();
    found.orphans
}

#[tokio::test]
async fn no_root() {
    let w = World::new().await;
    w.delete(keys::root_entry()).await;
    let report = w.finds(&["F108"]).await;
    assert_eq!(report.verdict().exit_code(), 1);
}

#[tokio::test]
async fn a_missing_id_row() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    w.delete(keys::inode_id(w.lookup(b, "data").await)).await;
    let report = w.mends(&["F201"]).await;
    assert_eq!(report.findings[0].place, "/a/b/data");
}

#[tokio::test]
async fn a_directory_without_id_row_keeps_its_entries() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    w.delete(keys::inode_id(a)).await;
    w.mends(&["F201"]).await;
    assert!(w.lookup(a, "b").await.0 > 0);
}

#[tokio::test]
async fn a_wrong_id_row() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    let data = w.lookup(b, "data").await;
    w.put(keys::inode_id(data), &IdRow::At { parent: a, name: b"elsewhere".to_vec() }).await;
    w.mends(&["F202"]).await;
    assert!(w.attr(data).await.is_ok());
}

#[tokio::test]
async fn an_id_row_that_leads_nowhere() {
    let w = World::new().await;
    w.put(keys::inode_id(NOBODY), &IdRow::At { parent: ROOT, name: b"nothing".to_vec() }).await;
    w.mends(&["F203"]).await;
    assert!(w.get::<IdRow>(&keys::inode_id(NOBODY)).await.is_none());
}

#[tokio::test]
async fn wrong_link_counts_of_files() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    let (data, two) = (w.lookup(b, "data").await, w.lookup(a, "one").await);
    w.damage(data, |inode| inode.nlink = 2).await;
    w.damage(two, |inode| inode.nlink = 7).await;
    let report = w.mends(&["F211", "F211"]).await;
    assert!(report.text().contains("has 2 names, its link count is 7"), "{}", report.text());
    assert_eq!((w.attr(data).await.unwrap().nlink, w.attr(two).await.unwrap().nlink), (1, 2));
}

#[tokio::test]
async fn wrong_counts_of_directories() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    w.damage(a, |inode| inode.size = 77).await;
    w.damage(ROOT, |inode| inode.nlink = 2).await;
    let report = w.mends(&["F212", "F212"]).await;
    assert_eq!(report.findings.iter().map(|f| f.place.as_str()).collect::<Vec<_>>(), ["/", "/a"]);
    assert_eq!(w.attr(ROOT).await.unwrap().nlink, 3);
}

#[tokio::test]
async fn many_faults_at_once_are_mended() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let b = w.lookup(a, "b").await;
    w.delete(keys::entry(ROOT, &name("a"))).await;
    w.delete(keys::inode_id(b)).await;
    w.damage(w.lookup(b, "two").await, |inode| inode.nlink = 9).await;
    let repaired = w.check(true).await;
    assert_eq!(repaired.verdict().exit_code(), 0, "{}", repaired.text());
    w.finds(&[]).await;
}

/// A removal leaves a directory without a name, in which all else has one, and lists it.
#[tokio::test]
async fn a_removed_tree_that_is_not_empty_yet_is_listed_to_be_emptied() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let Some(Entry::Here(mut dir)) = w.get(&keys::entry(ROOT, &name("a"))).await else { panic!("no directory") };
    w.delete(keys::entry(ROOT, &name("a"))).await;
    w.damage(ROOT, |root| {
        root.size -= 1;
        root.nlink -= 1;
    })
    .await;
    dir.nlink = 0;
    dir.set(flags::DEAD, true);
    w.put(keys::inode_id(a), &IdRow::Attributes(dir)).await;
    w.mends(&["F106"]).await;
    assert!(w.get::<ReclaimRow>(&keys::reclaim_tree(a)).await.is_some(), "a directory is emptied before it is freed");
}
