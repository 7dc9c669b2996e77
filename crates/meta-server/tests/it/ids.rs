//! What an inode's id says: the slot whose holder serves it (design.md §4).
#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::meta::*;
use braid_types::*;
use bytes::Bytes;
use std::collections::BTreeSet;

const ROOT: InodeId = InodeId::ROOT;

/// A directory whose slot is not the root's, so that a slot that was never set is told from one that was inherited.
async fn dir_elsewhere(w: &World) -> InodeId {
    for n in 0..8 {
        let dir = w.mkdir(ROOT, &format!("dir{n}")).await.id;
        if dir.slot() != ROOT.slot() {
            return dir;
        }
    }
    panic!("eight directories drew the root's slot")
}

#[tokio::test]
async fn what_is_no_directory_takes_the_slot_of_the_directory_it_is_made_in() {
    let w = World::new().await;
    let dir = dir_elsewhere(&w).await;
    for parent in [ROOT, dir] {
        let mut made = vec![w.create(parent, "created").await.attr.id];
        for (kind, text) in [(FileKind::Symlink, "link"), (FileKind::Fifo, "pipe"), (FileKind::File, "node")] {
            let node = MakeNode { parent: parent.into(), name: name(text), spec: spec(kind) };
            made.push(w.call(node).await.unwrap().attr.id);
        }
        let (data, file) = (Bytes::from_static(b"abc"), spec(FileKind::File));
        let put = PutFile {
            parent: parent.into(),
            name: name("put"),
            spec: file.clone(),
            data,
            replace: false,
            open_here: false,
        };
        made.push(w.call(put).await.unwrap().attr.id);
        made.push(w.call(CreateTemporary { parent: parent.into(), spec: file }).await.unwrap().attr.id);
        assert!(made.iter().all(|id| id.slot() == parent.slot()), "{made:?} in {parent}");
        let counters: BTreeSet<u64> = made.iter().map(|id| id.0 >> SLOT_BITS).collect();
        assert_eq!(counters.len(), made.len(), "the slot is shared, the counter is not");
    }
}

#[tokio::test]
async fn a_directory_draws_a_slot_of_its_own() {
    let w = World::new().await;
    let mut slots = BTreeSet::new();
    let mut parent = ROOT;
    for n in 0..64 {
        // Beside each other and below each other: neither may inherit.
        let dir = w.mkdir(parent, &format!("dir{n}")).await.id;
        slots.insert(dir.slot());
        parent = if n % 2 == 0 { dir } else { ROOT };
    }
    assert!(slots.iter().all(|slot| slot.0 < SLOT_COUNT));
    // 64 draws out of 4,096 slots: 32 equal ones do not happen.
    assert!(slots.len() > 32, "{slots:?}");
}

#[tokio::test]
async fn an_id_stays_what_it_is_wherever_its_file_goes() {
    let w = World::new().await;
    let (from, to) = (dir_elsewhere(&w).await, w.mkdir(ROOT, "to").await.id);
    let file = w.create(from, "file").await.attr.id;
    let dir = w.mkdir(from, "dir").await.id;
    w.call(Link { inode: file.into(), parent: to.into(), name: name("other") }).await.unwrap();
    for text in ["file", "dir"] {
        w.rename((from, text), (to, text), RenameKind::Replace).await.unwrap();
    }
    for (text, id) in [("file", file), ("other", file), ("dir", dir)] {
        assert_eq!(w.lookup(to, text).await.unwrap().id, id);
    }
    assert_eq!(file.slot(), from.slot(), "of the directory it was made in");
    let below = w.create(dir, "below").await.attr.id;
    assert_eq!(below.slot(), dir.slot(), "of a directory that has moved");
}
