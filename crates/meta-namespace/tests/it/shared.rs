//! Rows that every change reads: it locks them so that others may read them at the same time.

use crate::tree::{Tree, name};
use braid_api::meta::{MakeNode, MetaAnswer};
use braid_meta_engine::{Lock, MemEngine, MemStore, Table};
use braid_meta_namespace::ops::session::{BeginSession, EndSession};
use braid_meta_namespace::{OpContext, Recorded};
use braid_types::*;

#[tokio::test]
async fn changes_of_a_session_and_files_of_a_policy_do_not_wait_for_each_other() {
    // Where accounts are spread, as in a database: elsewhere one transaction follows the other.
    let tree = Tree::new(MemEngine::new(MemStore::new()), 16).await;
    let open = BeginSession {
        client: 1,
        former: None,
        since: SessionId(0),
        description: String::new(),
        host: String::new(),
        caches: false,
        now: Timestamp(1),
    };
    let (session, session_epoch) = tree.run(open).await.unwrap();
    let cx = OpContext {
        session,
        session_epoch,
        request: RequestId(1),
        now: Timestamp(2),
        fresh: InodeId::new(1 << 30, Slot(0)),
        ..OpContext::default()
    };
    let mutation =
        MakeNode { parent: InodeId::ROOT.into(), name: name("file"), spec: Tree::<MemEngine>::spec(FileKind::File, 1) };
    tree.run(Recorded { cx, mutation, message: 0, answer: MetaAnswer::MakeNode }).await.unwrap();
    assert_eq!(tree.locks_on(Table::Sessions), [Lock::Shared]);
    assert_eq!(tree.locks_on(Table::Policies), [Lock::Shared]);
    assert!(tree.locks_on(Table::Inodes).contains(&Lock::Exclusive), "a directory is changed by one at a time");

    tree.run(EndSession { session, remember: true }).await.unwrap();
    assert_eq!(tree.locks_on(Table::Sessions), [Lock::Exclusive], "none of its changes is under way at its end");
}
