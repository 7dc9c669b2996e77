//! Rows beside inodes that are not there.

use super::world::{ROOT, World};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::{GetXattr, SetXattr, XattrKind};
use braid_api::quota::{Limits, Payer};
use braid_meta_engine::{Counts, Key, Table};
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

#[tokio::test]
async fn an_account_that_says_something_else_than_there_is() {
    let w = World::new().await;
    let a = w.lookup(ROOT, "a").await;
    let limits = Some(Limits { inodes: Some(100), bytes: None });
    w.call(AdminQuery::SetQuota { payer: Payer::Dir(a), limits }).await.unwrap();
    let counted = async || match w.call(AdminQuery::Account { payer: Payer::Dir(a) }).await.unwrap() {
        AdminAnswer::Account(account) => account.counting.is_none(),
        other => panic!("{other:?}"),
    };
    while !counted().await {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    w.finds(&[]).await;
    w.put_row(keys::usage(Payer::User(1000), 0), Counts([2, 3]).to_row()).await;
    w.delete(keys::usage(Payer::Dir(a), 0)).await;
    let report = w.mends(&["F213", "F213"]).await;
    // Users come before directories.
    let said = |n: usize| &report.findings[n].what;
    assert!(said(0).contains("2 inodes and 3 bytes are charged to it"), "{}", report.text());
    assert!(said(1).contains("0 inodes and 0 bytes are charged to it"), "{}", report.text());
    // Quotas of users are beside no inode, and stay.
    w.call(AdminQuery::SetQuota { payer: Payer::User(1000), limits }).await.unwrap();
    w.finds(&[]).await;
}
