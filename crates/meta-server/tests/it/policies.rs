//! Policies: inherited, told to directories that exist, also by the next server.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::Code;
use braid_api::meta::*;
use braid_meta_engine::{Engine, Table};
use braid_types::*;

const ROOT: InodeId = InodeId::ROOT;

#[tokio::test]
async fn policies_are_inherited_also_by_directories_that_exist() {
    let w = World::new().await;
    let a = w.mkdir(ROOT, "a").await.id;
    let b = w.mkdir(a, "b").await.id;
    let own = w.mkdir(a, "own").await.id;
    let before = w.create(b, "before").await.attr;
    let set =
        |dir: InodeId, text: Option<&str>| SetPolicy { inode: dir.into(), policy: text.map(|t| t.parse().unwrap()) };
    let get = async |id: InodeId| w.call(GetPolicy { inode: id.into() }).await.unwrap();
    w.call(set(own, Some("plain,inline=0"))).await.unwrap();
    w.call(set(a, Some("plain,inline=1KiB"))).await.unwrap();
    assert_eq!(get(b).await.policy.inline_bytes, 1024);
    assert_eq!(get(b).await.root, a);
    assert_eq!(get(own).await.policy.inline_bytes, 0);
    let after = w.create(b, "after").await;
    assert_eq!(after.map.policy.inline_bytes, 1024);
    assert_eq!(get(before.id).await.policy, Policy::PLAIN, "a file keeps the policy it was made under");
    w.call(set(a, None)).await.unwrap();
    assert_eq!((get(b).await.root, get(b).await.policy), (ROOT, Policy::PLAIN));
    assert_eq!(code(w.call(set(ROOT, None)).await), Code::Invalid);
    assert_eq!(code(w.call(set(a, Some("rain:4+2"))).await), Code::NotSupported, "nobody could write there");
    assert_eq!(code(w.call(set(a, Some("replica:2,min_copies=1"))).await), Code::NotSupported);
    w.call(set(a, Some("replica:3,inline=1KiB"))).await.unwrap();
    assert_eq!(get(b).await.policy.inline_bytes, 1024);
    let several = w.create(b, "several").await;
    assert_eq!(several.map.policy.inline_bytes, 0, "a row has one copy, which is less than was promised");
    assert_eq!(code(w.call(set(before.id, Some("plain"))).await), Code::NotDirectory);
}

/// The directory's own policy was set by a server that told none of those below it.
#[tokio::test]
async fn another_start_tells_directories_below_of_a_policy() {
    let first = World::new().await;
    let top = first.mkdir(ROOT, "d").await.id;
    let mut deep = vec![top];
    for level in 0..4 {
        deep.push(first.mkdir(deep[level], "sub").await.id);
    }
    // More than a page, and the last of it has something below.
    let mut last = top;
    for i in 0..300 {
        last = first.mkdir(top, &format!("wide{i:03}")).await.id;
    }
    let below_last = first.mkdir(last, "sub").await.id;
    let own = first.mkdir(last, "own").await.id;
    let set = |dir: InodeId, text: &str| SetPolicy { inode: dir.into(), policy: Some(text.parse().unwrap()) };
    first.call(set(own, "plain,inline=0")).await.unwrap();
    let below_own = first.mkdir(own, "sub").await.id;
    first.server.stop();
    first.call(set(top, "plain,inline=1KiB")).await.unwrap();
    let root_of = async |w: &World, dir: InodeId| w.call(GetPolicy { inode: dir.into() }).await.unwrap().root;
    assert_eq!((root_of(&first, top).await, root_of(&first, deep[1]).await), (top, ROOT), "nobody was told");
    let second = World::on(first.store.clone(), first.peers.clone()).await;
    eventually("telling", async || second.engine.rows(Table::SubtreeOps) == Some(0)).await;
    for dir in deep.into_iter().chain([last, below_last]) {
        assert_eq!(root_of(&second, dir).await, top, "{dir}");
    }
    assert_eq!((root_of(&second, own).await, root_of(&second, below_own).await), (own, own));
}
