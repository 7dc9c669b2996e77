//! Rows beside inodes that are not there.

use super::world::{ROOT, World};
use braid_api::meta::{GetXattr, SetXattr, XattrKind};
use braid_meta_engine::{Key, Table};
use braid_meta_namespace::rows::{Entry, keys};
use braid_types::{FileKind, InodeId};
use bytes::Bytes;

const NOBODY: InodeId = InodeId(99 << 12);

/// A row of any kind: these are not read, only counted.
fn any() -> Entry {
    Entry::Elsewhere { id: NOBODY, kind: FileKind::File }
}

#[tokio::test]
async fn inline_bytes_without_a_file() {
    let w = World::new().await;
    w.put(keys::inline_small(NOBODY), &any()).await;
    w.put(keys::inline_large(NOBODY), &any()).await;
    let report = w.mends(&["F221", "F221"]).await;
    assert_eq!(report.findings[0].place, format!("inode {NOBODY}"));
    assert!(w.get::<Entry>(&keys::inline_small(NOBODY)).await.is_none());
}

#[tokio::test]
async fn attributes_quotas_and_policies_without_an_inode() {
    let w = World::new().await;
    for key in [
        keys::xattr(NOBODY, b"user.a"),
        keys::xattr(NOBODY, &[b'x'; 255]),
        keys::xattr(InodeId(NOBODY.0 + 1), b"user.a"),
        Key::new(Table::Quotas, NOBODY.0, b""),
        keys::policy(NOBODY),
    ] {
        w.put(key, &any()).await;
    }
    let report = w.mends(&["F222", "F222", "F223", "F224"]).await;
    assert!(report.findings[0].what.contains("2 rows of extended attributes"), "{}", report.text());
}

/// More inodes than a page holds, with several rows each: none is asked about twice or passed over, and what belongs to
/// an inode that lives stays.
#[tokio::test]
async fn what_belongs_to_inodes_stays() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let mut files = Vec::new();
    for n in 0..20 {
        let id = w.create(a, &format!("f{n}")).await.id;
        for text in ["user.one", "user.two"] {
            let (name, value) = (Bytes::from(text), Bytes::from("value"));
            let set = SetXattr { inode: id.into(), name, value, mode: XattrKind::Any, clear_setgid: false };
            w.call(set).await.unwrap();
        }
        files.push(id);
    }
    w.finds(&[]).await;
    let nobodies: Vec<InodeId> = (0..20).map(|n| InodeId(NOBODY.0 + n)).collect();
    for id in &nobodies {
        w.put(keys::xattr(*id, b"user.one"), &any()).await;
        w.put(keys::xattr(*id, b"user.two"), &any()).await;
    }
    w.mends(&["F222"; 20]).await;
    for id in files {
        let value = w.call(GetXattr { inode: id.into(), name: "user.two".into() }).await.unwrap();
        assert_eq!(value, Bytes::from("value"));
    }
}
