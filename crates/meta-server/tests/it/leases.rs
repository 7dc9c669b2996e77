//! What leases of others cost a change, and what the server owes them.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::admin::AdminQuery;
use braid_api::lease::{Acknowledge, LeaseKey, Listen, Order, Reassert, YieldFiles};
use braid_api::meta::*;
use braid_api::{Context, Namespace};
use braid_types::*;
use std::collections::BTreeSet;
use std::time::Duration;

const ROOT: InodeId = InodeId::ROOT;

/// A second session, which caches.
struct Mount(SessionReply);

impl Mount {
    async fn open(w: &World, client: u64) -> Mount {
        let open = OpenSession {
            client,
            former: None,
            since: SessionId(0),
            description: "mount".into(),
            host: "h".into(),
            caches: true,
        };
        Mount(w.server.call(Context::default(), open).await.unwrap())
    }

    async fn grant_of(&self, w: &World, parent: InodeId, text: &str) -> Grant {
        let lookup = Lookup { parent, name: name(text) };
        w.server.call(w.cx_of(&self.0), lookup).await.unwrap().grant
    }

    /// The orders of one message.
    async fn listen(&self, w: &World, wait_ms: u32) -> Vec<Order> {
        let Term { member, epoch, .. } = self.0.term.unwrap();
        let listen = Listen { member, epoch, wait_ms, revocations: Vec::new() };
        w.server.call(w.cx_of(&self.0), listen).await.unwrap().orders
    }

    /// Gives up whatever is recalled in one message, all at once; gives the files.
    async fn stores(&self, w: &World) -> BTreeSet<InodeId> {
        let Term { member, .. } = self.0.term.unwrap();
        let recalled = |order| match order {
            Order::Recall { inode, generation, to, .. } => (inode, generation, to),
            other => panic!("{other:?}"),
        };
        let files: Vec<_> = self.listen(w, 5000).await.into_iter().map(recalled).collect();
        let all = files.iter().map(|(inode, ..)| *inode).collect();
        w.server
            .call(w.cx_of(&self.0), YieldFiles { member, files, locks: Vec::new(), locks_done: 0, handles: Vec::new() })
            .await
            .unwrap();
        all
    }

    /// Acknowledges whatever is revoked; gives the keys.
    async fn obey(&self, w: &World) -> Vec<LeaseKey> {
        let Term { member, .. } = self.0.term.unwrap();
        let mut all = Vec::new();
        for order in self.listen(w, 5000).await {
            let Order::Revoke { revocation, keys } = order else { continue };
            all.extend(keys);
            let done = Acknowledge { member, revocations: vec![revocation] };
            w.server.call(w.cx_of(&self.0), done).await.unwrap();
        }
        all
    }
}

#[tokio::test]
async fn changes_are_at_most_three_round_trips_while_others_cache() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    w.create(dir, "warm").await;
    w.create(ROOT, "cached").await;
    let mount = Mount::open(&w, 2).await;
    let granted = mount.grant_of(&w, ROOT, "cached").await;
    assert!(granted.entry && granted.attr);
    assert!(w.counted(create(dir, "a")).await.0 <= 3, "create");
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
    assert_eq!(w.server.leases(), 2, "none of these concerned what is cached");
}

#[tokio::test]
async fn an_unlink_revokes_what_the_name_stood_for() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    w.call(Link { inode: file.id.into(), parent: ROOT.into(), name: name("other") }).await.unwrap();
    let mount = Mount::open(&w, 2).await;
    assert!(mount.grant_of(&w, ROOT, "other").await.attr);
    assert!(mount.grant_of(&w, ROOT, "absent").await.entry);
    let unlink = Unlink { parent: ROOT.into(), name: name("file"), open_here: false };
    let (done, keys) = tokio::join!(w.call(unlink), mount.obey(&w));
    done.unwrap();
    // The link count that it shows under the other name is old, and whatever it has of absences in the directory.
    assert!(keys.contains(&LeaseKey::Attr(file.id)) && keys.contains(&LeaseKey::Dir(ROOT)), "{keys:?}");
    assert!(!keys.contains(&LeaseKey::Name(ROOT, name("other"))), "{keys:?}");
}

/// Whatever a session writes below, it is told of all of it in one message; who writes elsewhere is told nothing.
#[tokio::test]
async fn a_snapshot_takes_a_message_to_each_session_that_writes_below() {
    let w = World::new().await;
    let (dir, elsewhere) = (w.mkdir(ROOT, "dir").await.id, w.mkdir(ROOT, "elsewhere").await.id);
    let (one, two, other) = (Mount::open(&w, 2).await, Mount::open(&w, 3).await, Mount::open(&w, 4).await);
    let mut written = Vec::new();
    for (mount, below) in [(&one, dir), (&two, dir), (&other, elsewhere)] {
        let sub = w.mkdir(below, &format!("sub{}", mount.0.session)).await.id;
        for n in 0..40 {
            let file = w.create(sub, &format!("f{n}")).await.attr.id;
            let open = OpenFile { inode: file.into(), want: FileWant::Alone, truncate: false };
            let opened = w.server.call(w.cx_of(&mount.0), open).await.unwrap();
            assert_eq!(opened.lease.state, LeaseState::Exclusive);
            written.push(file);
        }
    }
    let make = AdminQuery::CreateSnapshot { dir, name: name("one"), wait_ms: 5000 };
    let both = async { tokio::join!(one.stores(&w), two.stores(&w)) };
    let (made, told) = tokio::join!(w.call(make), both);
    made.unwrap();
    let of = |files: &[InodeId]| files.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!((told.0, told.1), (of(&written[..40]), of(&written[40..80])));
    for mount in [&one, &two, &other] {
        assert_eq!(mount.listen(&w, 50).await, [], "nothing more");
    }
}

#[tokio::test]
async fn a_session_that_does_not_cache_is_granted_nothing_and_holds_nobody_up() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    let other = open_session(&w.server, 2).await;
    assert!(other.term.is_none());
    let answer = w.server.call(w.cx_of(&other), GetAttr { inode: file.id.into() }).await.unwrap();
    assert_eq!((answer.grant, w.server.leases()), (Grant::default(), 0));
}

#[tokio::test]
async fn leases_are_bounded_and_the_oldest_go() {
    let config = braid_meta_server::MetaConfig { leases_max: 64, ..fast_config() };
    let w = World::with(Default::default(), Peers::default(), config, 1).await;
    for i in 0..200 {
        w.create(ROOT, &format!("{i}")).await;
    }
    let mount = Mount::open(&w, 2).await;
    for i in 0..200 {
        mount.grant_of(&w, ROOT, &format!("{i}")).await;
        assert!(w.server.leases() <= 128, "the bound and one batch");
        if w.server.leases() > 64 {
            let keys = tokio::time::timeout(Duration::from_secs(5), mount.obey(&w)).await.unwrap();
            assert!(!keys.is_empty());
        }
    }
}

#[tokio::test]
async fn a_session_that_ends_holds_nobody_up() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    let mount = Mount::open(&w, 2).await;
    assert!(mount.grant_of(&w, ROOT, "file").await.attr);
    let end = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        w.server.call(w.cx_of(&mount.0), CloseSession {}).await.unwrap();
    };
    let commit = w.call(commit(&file, 1, CommitContent::Inline(bytes::Bytes::from_static(b"x"))));
    let (done, ()) = tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(commit, end) }).await.unwrap();
    done.unwrap();
}

/// Power came back on one machine: nobody has to wait for leases of mounts that are known to be gone, neither whoever
/// works on the new mount, nor the end of the old ones, which puts what they wrote into their files.
#[tokio::test]
async fn after_a_restart_nothing_waits_for_mounts_that_are_known_to_be_gone() {
    let w = World::new().await;
    let server = w.add_data_server().await;
    let mut files = Vec::new();
    let mut mounts = Vec::new();
    for client in [2, 3] {
        let mount = Mount::open(&w, client).await;
        let file = w.create(ROOT, &format!("of {client}")).await.attr;
        let take = TakeSpares { policy: Policy::PLAIN, count: 1, beside: None, for_moves: false };
        let (chunk, container) = w.server.call(w.cx_of(&mount.0), take).await.unwrap().spares[0];
        w.peers.0.written.lock().push(braid_api::data::ChunkStatus {
            chunk,
            container,
            len: 1234,
            inode: file.id,
            index: ChunkIndex(0),
            ..Default::default()
        });
        files.push(file.id);
        mounts.push(mount);
    }
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    w.data_server(server).await;
    let begun = std::time::Instant::now();
    let end = |mount: &Mount| w.server.call(w.cx_of(&mount.0), EndSession {});
    let (one, other) = tokio::join!(end(&mounts[0]), end(&mounts[1]));
    one.unwrap();
    other.unwrap();
    for file in files {
        eventually("what it wrote is in its file", async || w.attr(file).await.unwrap().size == 1234).await;
    }
    w.create(ROOT, "new").await;
    // The term that has not to be waited for is 10 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_was_answered_before_is_granted_to_nobody() {
    let w = World::new().await;
    let mount = Mount::open(&w, 2).await;
    let make = |text: &str| MakeNode { parent: ROOT.into(), name: name(text), spec: spec(FileKind::Directory) };
    let cx = w.cx_of(&mount.0);
    let first = w.server.call(cx, make("dir")).await.unwrap();
    assert!(first.empty && first.grant.entry && first.grant.attr && first.dir.granted);
    // It is lost on its way. Another session fills the directory and changes it, while the mount holds nothing of it any more.
    let change = async {
        w.create(first.attr.id, "x").await;
        w.call(chmod(first.attr.id, 0o700)).await.unwrap();
    };
    let obey = async { while !mount.obey(&w).await.is_empty() {} };
    tokio::select! { () = change => {}, () = obey => {} }
    let again = w.server.call(cx, make("dir")).await.unwrap();
    assert_eq!(again.attr, first.attr, "the same answer, which is old");
    assert!(!again.empty && again.grant == Grant::default() && again.dir.attr.is_none() && !again.dir.granted);
    assert!(mount.grant_of(&w, ROOT, "dir").await.attr, "who asks anew is granted what is so now");
}

/// A mount may have size and times of a file to itself, and says so only some time after the server began: until then the row may be
/// old. Directories belong to nobody.
#[tokio::test]
async fn a_look_at_a_file_waits_until_all_have_said_what_they_hold() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    let (owner, other) = (Mount::open(&w, 2).await, Mount::open(&w, 3).await);
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    let look = |inode: InodeId| w.server.call(w.cx_of(&other.0), GetAttr { inode: inode.into() });
    look(ROOT).await.unwrap();
    let lookup = Lookup { parent: ROOT, name: name("file") };
    let (cx, by_name) = (w.cx_of(&other.0), Resolve { from: ROOT, path: vec![name("file")] });
    let looks = async {
        let looked = tokio::join!(look(file.id), w.server.call(cx, lookup), w.server.call(cx, by_name));
        assert_eq!(looked.0.unwrap().attr.id, file.id);
        assert!(looked.1.unwrap().attr.is_some() && looked.2.unwrap().attrs.len() == 1);
    };
    let mut looks = std::pin::pin!(looks);
    let early = tokio::time::timeout(Duration::from_millis(300), looks.as_mut()).await;
    assert!(early.is_err(), "who owns it is not known yet");
    w.server.call(w.cx_of(&owner.0), CloseSession {}).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), looks).await.unwrap();
}

/// Else it would take the file from nobody, and what its writer has not sent would come over the change.
#[tokio::test]
async fn who_has_no_term_changes_no_size_of_what_another_writes() {
    let w = World::new().await;
    let file = w.create(ROOT, "file").await.attr;
    let (writer, other) = (Mount::open(&w, 2).await, Mount::open(&w, 3).await);
    let open = OpenFile { inode: file.id.into(), want: FileWant::Alone, truncate: false };
    let lease = w.server.call(w.cx_of(&writer.0), open).await.unwrap().lease;
    assert_eq!(lease.state, LeaseState::Exclusive);
    // A start of the server: nobody has a term until it is renewed.
    let w = World::on(w.store.clone(), w.peers.clone()).await;
    let cut = w.server.call(w.cx_of(&other.0), truncate(file.id, 0)).await;
    assert_eq!(cut.unwrap_err().code, braid_api::Code::Busy);
    w.server.call(w.cx_of(&writer.0), CloseSession {}).await.unwrap();
    let renew = RenewSession { low_water: RequestId(0), orphans_seen: 0, orphans_held: Vec::new() };
    let term = w.server.call(w.cx_of(&other.0), renew).await.unwrap().term.unwrap();
    let (member, round) = (term.member, term.reassert.unwrap());
    let holds_nothing =
        Reassert { member, round, files: Vec::new(), locks: Vec::new(), locks_done: 0, sealed: Vec::new() };
    w.server.call(w.cx_of(&other.0), holds_nothing).await.unwrap();
    let cut = w.server.call(w.cx_of(&other.0), truncate(file.id, 0));
    tokio::time::timeout(Duration::from_secs(5), cut).await.unwrap().unwrap();
}

/// It says that it lives, and not what it holds, until its end is asked for. What it was granted last it may show until its term is over.
#[tokio::test]
async fn who_is_ended_while_its_term_runs_is_waited_for() {
    let lease = Duration::from_secs(4);
    let config = || braid_meta_server::MetaConfig {
        session_lease: lease,
        session_renew: Duration::from_secs(1),
        ..fast_config()
    };
    let w = World::with(braid_meta_engine::MemStore::new(), Peers::default(), config(), 1).await;
    w.call(MakeNode { parent: ROOT.into(), name: name("dir"), spec: spec(FileKind::Directory) }).await.unwrap();
    let mute = Mount::open(&w, 2).await;
    let w = World::with(w.store.clone(), w.peers.clone(), config(), 1).await;
    let renew = || RenewSession { low_water: RequestId(0), orphans_seen: 0, orphans_held: Vec::new() };
    let mut last = None;
    loop {
        let asked = std::time::Instant::now();
        let Ok(renewed) = w.server.call(w.cx_of(&mute.0), renew()).await else { break };
        if renewed.term.is_some_and(|term| term.prolonged) {
            last = Some((asked, mute.grant_of(&w, ROOT, "dir").await.entry));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let (asked, granted) = last.unwrap();
    assert!(granted, "else there is nothing to wait for");
    w.call(RemoveDir { parent: ROOT.into(), name: name("dir"), tree: false }).await.unwrap();
    // It counts 98 % of its term, from when it asked.
    assert!(asked.elapsed() >= lease.mul_f64(0.98), "{:?} after it was renewed", asked.elapsed());
}

#[tokio::test]
async fn a_listing_grants_nothing_of_what_is_known_to_who_asks() {
    let w = World::new().await;
    let dir = w.mkdir(ROOT, "dir").await.id;
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(w.mkdir(dir, &format!("{n}")).await.id);
    }
    let mount = Mount::open(&w, 2).await;
    let mut knows = ids[3..8].to_vec();
    knows.sort_unstable();
    let list = ReadDir { inode: dir, after: None, limit: 100, plus: true, knows };
    let page = w.server.call(w.cx_of(&mount.0), list).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.1).collect::<Vec<_>>(), ids);
    for (n, ((.., attr), grant)) in page.entries.iter().zip(&page.grants).enumerate() {
        let is_known = (3..8).contains(&n);
        assert_eq!((attr.is_none(), grant.entry, grant.attr), (is_known, !is_known, !is_known), "{n}");
    }
    assert_eq!(page.grants.len(), 10);
    assert_eq!(w.server.leases(), 10 + usize::from(page.listing), "two for each of five");
}
