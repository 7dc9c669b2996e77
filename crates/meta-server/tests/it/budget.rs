//! The budget of design.md §4: engine round trips an operation, counted exactly.

use crate::common::*;
use braid_api::meta::*;
use braid_types::*;

const ROOT: InodeId = InodeId::ROOT;

#[tokio::test]
async fn reads_are_one_round_trip() {
    let w = World::new().await;
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
    let open = OpenFile { inode: by_hint, write: false, truncate: false };
    let (trips, answer) = w.counted(open).await;
    assert_eq!(trips, 1, "open and read of an inline file");
    assert_eq!(answer.map.content, Content::Inline(bytes::Bytes::from_static(b"hello")));
    let page = ReadDir { inode: dir, after: None, limit: 100, plus: true };
    assert_eq!(w.counted(page).await.0, 1, "a page of a directory");
}

#[tokio::test]
async fn a_file_with_several_links_costs_one_more() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    w.call(Link { inode: file.id.into(), parent: ROOT.into(), name: name("other") }).await.unwrap();
    assert_eq!(w.counted(Lookup { parent: ROOT, name: name("other") }).await.0, 2);
    let both = StatNames { parent: ROOT, names: vec![name("other"), name("file")] };
    assert_eq!(w.counted(both).await.0, 2, "one more however many of them have several links");
    let open = OpenFile { inode: file.id.into(), write: false, truncate: false };
    assert!(w.counted(open).await.0 <= 2);
}

#[tokio::test]
async fn an_outdated_hint_is_mended_with_one_more() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    let old = InodeRef { id: file.id, hint: Some((ROOT, name("file"))) };
    w.rename((ROOT, "file"), (ROOT, "moved"), RenameKind::Replace).await.unwrap();
    let (trips, answer) = w.counted(GetAttr { inode: old }).await;
    assert_eq!(trips, 2);
    assert_eq!(answer.place, Some((ROOT, name("moved"))), "the answer says where it is now");
}

#[tokio::test]
async fn changes_are_at_most_three_with_commit() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    w.create(dir, "warm").await;
    assert!(w.counted(create(dir, "a")).await.0 <= 3, "create");
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

#[tokio::test]
async fn opening_a_file_of_a_few_chunks_is_one_round_trip() {
    let w = World::new().await;
    w.add_data_server().await;
    let spares = w.spares(3).await.spares;
    let file = w.create(ROOT, "file").await.attr;
    let chunks = (0..3).map(|i| ChunkRef {
        index: ChunkIndex(i),
        chunk: spares[i as usize].0,
        container: spares[i as usize].1,
        stable: false,
    });
    let size = 3 * CHUNK_BYTES_DEFAULT;
    w.commit(&file, size, CommitContent::Chunks(chunks.collect())).await.unwrap();
    let open = OpenFile { inode: file.id.into(), write: false, truncate: false };
    let (trips, answer) = w.counted(open).await;
    assert_eq!(trips, 1);
    let Content::Chunked(page) = answer.map.content else { panic!("inline") };
    assert_eq!((page.chunks.len(), page.more), (3, false));
    assert!(!page.containers.is_empty(), "chains come with the chunks");
}
