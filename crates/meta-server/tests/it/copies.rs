//! Metadata servers whose rows real data servers keep: what it costs, and what happens when one is cut off and replaced.
#![allow(clippy::unwrap_used)]

use crate::common::{create, eventually, fast_config, name, spec};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{AnyPeers, Code, Context, DataNode, DataPeers, Error, Namespace, Result};
use braid_data_server::{DataServer, DataServerConfig};
use braid_data_store::{MemoryStore, StoreIdentity};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Copied, MemEngine, MemStore};
use braid_meta_server::{Backing, CopyConfig, CopyError, CopyLimits, CopySet, MetaServer, Registrations, recover};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

type Keeper = Arc<DataServer>;

/// Data servers, as one metadata server reaches them.
#[derive(Clone)]
struct Net {
    servers: Arc<BTreeMap<ServerId, Keeper>>,
    cut: Arc<Mutex<BTreeSet<ServerId>>>,
}

struct Node {
    net: Net,
    id: ServerId,
}

impl DataNode for Node {
    async fn execute(&self, cx: Context, request: DataRequest, payload: Bytes) -> Result<(DataAnswer, Bytes)> {
        let is_cut = || self.net.cut.lock().contains(&self.id);
        let gone = || Error::new(Code::Unreachable, format_args!("data server {}", self.id), "cut off");
        let server = self.net.servers.get(&self.id).filter(|_| !is_cut()).ok_or_else(gone)?;
        let answer = server.execute(cx, request, payload).await;
        if is_cut() { Err(gone()) } else { answer }
    }
}

impl DataPeers for Net {
    type Node = Node;
    fn node(&self, server: &ServerInfo) -> Arc<Node> {
        Arc::new(Node { net: self.clone(), id: server.id })
    }
}

/// Shorter than real ones, with the same inequalities.
fn limits() -> CopyLimits {
    let ms = Duration::from_millis;
    let limits = CopyLimits { lease: ms(1500), renew: ms(150), silent: ms(600) };
    limits.check().unwrap();
    limits
}

struct Place {
    dir: tempfile::TempDir,
    servers: Arc<BTreeMap<ServerId, Keeper>>,
}

impl Place {
    fn new(count: u64) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let start = |id| {
            let identity = StoreIdentity { cluster: ClusterId([7; 16]), server: ServerId(id) };
            let store = Arc::new(MemoryStore::new(1 << 30));
            let server = DataServer::start(Env::os(), store, identity, DataServerConfig::default());
            server.keep_metadata(&dir.path().join(id.to_string())).unwrap();
            (ServerId(id), server)
        };
        let servers = Arc::new((1..=count).map(start).collect());
        Place { dir, servers }
    }

    fn net(&self) -> Net {
        Net { servers: self.servers.clone(), cut: Arc::default() }
    }

    /// One bit of these bytes is another in the copy of this server.
    fn rot(&self, server: ServerId, bytes: &[u8]) {
        let dir = std::fs::read_dir(self.dir.path().join(server.to_string())).unwrap();
        let copy =
            dir.map(|entry| entry.unwrap().path()).find(|path| path.to_string_lossy().contains("/copy.")).unwrap();
        let mut all = std::fs::read(&copy).unwrap();
        let at = all.windows(bytes.len()).position(|window| window == bytes).unwrap();
        all[at] ^= 1;
        // In place: the server has it open.
        std::fs::OpenOptions::new().write(true).open(copy).unwrap().write_all_at(&all[at..=at], at as u64).unwrap();
    }

    fn voters(&self) -> Vec<Voter> {
        let voter = |id: &ServerId| Voter { id: *id, host: format!("h{id}"), addresses: vec!["a:1".into()] };
        self.servers.keys().map(voter).collect()
    }
}

struct Leads {
    net: Net,
    copies: Arc<CopySet>,
    server: Arc<MetaServer>,
    session: SessionReply,
    next: AtomicU64,
}

impl Leads {
    async fn start(store: &MemStore, net: Net) -> std::result::Result<Leads, CopyError> {
        Leads::wanting(2, store, net).await
    }

    async fn wanting(wanted: usize, store: &MemStore, net: Net) -> std::result::Result<Leads, CopyError> {
        let engine = Arc::new(MemEngine::new(store.clone()));
        let config = CopyConfig { wanted, host: "m".into(), limits: limits() };
        let registrations = Registrations::default();
        let way = || AnyPeers::new(net.clone());
        let copies = CopySet::start(Env::os(), engine.clone(), way(), way(), config, &registrations).await?;
        let (engine, peers, cluster) = (AnyEngine::new(engine), way(), ClusterId([7; 16]));
        let some = Some(copies.clone());
        let backing = Backing { copies: some, ..Backing::default() };
        let start = MetaServer::start_with(Env::os(), engine, peers, fast_config(), cluster, Policy::PLAIN, backing);
        let server = start.await.unwrap();
        let open = OpenSession {
            client: 1,
            former: None,
            since: SessionId(0),
            description: "c".into(),
            host: "h".into(),
            caches: false,
        };
        let session = server.call(Context::default(), open).await.unwrap();
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let next = AtomicU64::new(NEXT.fetch_add(1 << 32, Relaxed));
        Ok(Leads { net, copies, server, session, next })
    }

    fn cx(&self) -> Context {
        let token = Token { session: self.session.session, session_epoch: self.session.epoch, ..Token::default() };
        Context { token, request: RequestId(self.next.fetch_add(1, Relaxed)), ..Context::default() }
    }

    async fn mkdir(&self, text: &str) -> Result<()> {
        let make = MakeNode { parent: InodeId::ROOT.into(), name: name(text), spec: spec(FileKind::Directory) };
        self.server.call(self.cx(), make).await.map(drop)
    }

    async fn has(&self, text: &str) -> Result<bool> {
        let look = Lookup { parent: InodeId::ROOT, name: name(text) };
        Ok(self.server.call(self.cx(), look).await?.attr.is_some())
    }

    async fn register_all(&self, place: &Place) {
        for voter in place.voters() {
            let (addresses, host) = (voter.addresses, voter.host);
            // The very first ones are given their ids in order.
            let known = self.server.call(Context::default(), GetServers {}).await.unwrap().servers;
            let id = if known.iter().any(|server| server.id == voter.id) { voter.id } else { ServerId(0) };
            let register =
                RegisterServer { id, incarnation: 1, addresses, host, clean_stop: false, rack: String::new() };
            assert_eq!(self.server.call(Context::default(), register).await.unwrap().id, voter.id);
        }
    }

    fn members(&self) -> Vec<ServerId> {
        let (_, health) = self.copies.health();
        health.into_iter().filter(|copy| copy.is_member).map(|copy| copy.server).collect()
    }

    async fn has_members(&self, count: usize) {
        eventually("the copies are there", async || self.members().len() == count).await;
    }

    fn cut_off(&self) {
        self.net.cut.lock().extend(self.net.servers.keys());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_that_waits_costs_one_message_and_one_sync_a_copy() {
    let place = Place::new(3);
    let leads = Leads::start(&MemStore::new(), place.net()).await.unwrap();
    leads.register_all(&place).await;
    leads.has_members(2).await;
    let counted = || {
        let list: BTreeMap<_, _> = leads.copies.counters.list().into_iter().collect();
        ["groups", "group_messages", "sync_messages", "base_messages"].map(|name| list[name])
    };
    let before = counted();
    for number in 0..50 {
        leads.mkdir(&format!("d{number}")).await.unwrap();
    }
    let after = counted();
    let [groups, messages, syncs, bases] = [0, 1, 2, 3].map(|n| after[n] - before[n]);
    println!("50 changes: {groups} groups, {messages} messages with groups, {syncs} with syncs");
    assert!(groups >= 50, "{groups}");
    assert!(messages <= 2 * groups && syncs <= 2 * groups, "{messages} and {syncs} for {groups} groups at two copies");
    assert_eq!(bases, 0);
    drop(place.dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_was_cut_off_and_replaced_answers_nobody() {
    let place = Place::new(3);
    let old_store = MemStore::new();
    let old = Leads::start(&old_store, place.net()).await.unwrap();
    old.register_all(&place).await;
    old.has_members(2).await;
    for number in 0..30 {
        old.mkdir(&format!("d{number}")).await.unwrap();
    }
    old.cut_off();
    // What it is asked now is not acknowledged, by nobody's word.
    let late = {
        let (server, cx) = (old.server.clone(), old.cx());
        let make = MakeNode { parent: InodeId::ROOT.into(), name: name("late"), spec: spec(FileKind::Directory) };
        tokio::spawn(async move { server.call(cx, make).await.is_ok() })
    };
    let store = MemStore::new();
    let made = store.clone();
    let make = || Ok(Arc::new(MemEngine::new(made)) as Arc<dyn Copied>);
    let patience = Duration::from_secs(5);
    let known = place.voters().into_iter().take(1).collect();
    let done = recover(&Env::os(), make, &AnyPeers::new(place.net()), known, false, patience, limits()).await.unwrap();
    assert!(done.is_complete, "{done:?}");
    let new = Leads::start(&store, place.net()).await.unwrap();
    for number in 0..30 {
        assert!(new.has(&format!("d{number}")).await.unwrap(), "d{number} was acknowledged");
    }
    assert!(!new.has("late").await.unwrap());
    new.mkdir("new").await.unwrap();
    // The old one still runs, and is heard again: its data servers obey another.
    let refused = old.has("d0").await.unwrap_err();
    assert_eq!(refused.code, Code::NotServing, "{refused}");
    old.net.cut.lock().clear();
    eventually("the old one knows", async || old.has("d0").await.is_err_and(|e| e.cause().contains("taken over")))
        .await;
    assert!(!late.await.unwrap());
    // And when it starts again, its disk is of the past.
    old_store.crash(|| true);
    match Leads::start(&old_store, place.net()).await {
        Err(CopyError::Fenced { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it leads again"),
    }
    new.mkdir("newer").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_metadata_is_recovered_from_the_copy_that_has_not_rotted() {
    for rotten in 0..2 {
        let place = Place::new(3);
        let store = MemStore::new();
        let leads = Leads::start(&store, place.net()).await.unwrap();
        leads.register_all(&place).await;
        leads.has_members(2).await;
        leads.mkdir("a-name-in-every-copy").await.unwrap();
        let victim = leads.members()[rotten];
        leads.cut_off();
        place.rot(victim, b"a-name-in-every-copy");
        let found = MemStore::new();
        let made = found.clone();
        let make = || Ok(Arc::new(MemEngine::new(made)) as Arc<dyn Copied>);
        let patience = Duration::from_secs(5);
        let done = recover(&Env::os(), make, &AnyPeers::new(place.net()), place.voters(), false, patience, limits())
            .await
            .unwrap();
        assert!(done.from != victim && done.is_complete, "{done:?}, data server {victim} has a damaged copy");
        let new = Leads::start(&found, place.net()).await.unwrap();
        assert!(new.has("a-name-in-every-copy").await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_silent_member_is_replaced_and_what_it_missed_is_kept_elsewhere() {
    let place = Place::new(3);
    let store = MemStore::new();
    let leads = Leads::start(&store, place.net()).await.unwrap();
    leads.register_all(&place).await;
    leads.has_members(2).await;
    let gone = leads.members()[0];
    leads.net.cut.lock().insert(gone);
    leads.mkdir("while-it-is-away").await.unwrap();
    eventually("another takes its place", async || leads.members().len() == 2 && !leads.members().contains(&gone))
        .await;
    leads.mkdir("afterwards").await.unwrap();
    // The metadata's disk is lost, and that member is back: it is not what the recovery goes by.
    leads.cut_off();
    let found = MemStore::new();
    let made = found.clone();
    let make = || Ok(Arc::new(MemEngine::new(made)) as Arc<dyn Copied>);
    let known = place.voters().into_iter().filter(|voter| voter.id == gone).collect();
    let patience = Duration::from_secs(5);
    let done = recover(&Env::os(), make, &AnyPeers::new(place.net()), known, false, patience, limits()).await.unwrap();
    assert!(done.from != gone && done.is_complete, "{done:?}");
    let new = Leads::start(&found, place.net()).await.unwrap();
    assert!(new.has("while-it-is-away").await.unwrap() && new.has("afterwards").await.unwrap());
}

/// Bytes beside a row are on as many disks as the row. Where that is fewer than the policy promises, clients are told to keep
/// nothing there, and who was told otherwise before is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn small_files_are_kept_inline_while_rows_are_on_as_many_disks_as_their_policy_asks_for() {
    let place = Place::new(3);
    let store = MemStore::new();
    let inline =
        async |leads: &Leads, text: &str| leads.server.call(leads.cx(), create(InodeId::ROOT, text)).await.unwrap();
    let commit = async |leads: &Leads, attr: &Attr, bytes: &'static [u8]| {
        let content = CommitContent::Inline(Bytes::from_static(bytes));
        leads.server.call(leads.cx(), crate::common::commit(attr, bytes.len() as u64, content)).await
    };
    let usual = Policy::PLAIN.inline_bytes;

    let leads = Leads::start(&store, place.net()).await.unwrap();
    let policy = |text: &str| SetPolicy { inode: InodeId::ROOT.into(), policy: Some(text.parse().unwrap()) };
    leads.server.call(leads.cx(), policy("replica:3")).await.unwrap();
    // Nobody keeps a copy yet.
    let early = inline(&leads, "early").await;
    assert_eq!((early.map.policy.inline_bytes, early.map.policy.min_copies()), (0, 2));
    let refused = commit(&leads, &early.attr, b"one disk").await.unwrap_err();
    assert_eq!(refused.code, Code::FewRowCopies, "{refused}");
    leads.register_all(&place).await;
    leads.has_members(2).await;
    let kept = inline(&leads, "kept").await;
    assert_eq!(kept.map.policy.inline_bytes, usual);
    commit(&leads, &kept.attr, b"three disks").await.unwrap();
    commit(&leads, &early.attr, b"three disks").await.unwrap();
    // The policy is what was asked for, whatever holds now.
    let get = GetPolicy { inode: InodeId::ROOT.into() };
    assert_eq!(leads.server.call(leads.cx(), get).await.unwrap().policy.to_string(), "replica:3");
    // Two of three are enough for two; four are asked for here.
    leads.server.call(leads.cx(), policy("replica:4,min_copies=4")).await.unwrap();
    let four = inline(&leads, "four").await;
    assert_eq!(four.map.policy.inline_bytes, 0);
    assert_eq!(commit(&leads, &four.attr, b"three disks").await.unwrap_err().code, Code::FewRowCopies);
    leads.server.call(leads.cx(), policy("replica:3")).await.unwrap();

    // The number is reduced: what lies in rows is read, and nothing joins it.
    leads.copies.stop();
    drop(leads);
    let alone = Leads::wanting(0, &store, place.net()).await.unwrap();
    alone.register_all(&place).await;
    alone.has_members(0).await;
    let found = OpenFile { inode: kept.attr.id.into(), want: FileWant::Alone, ..OpenFile::default() };
    let found = alone.server.call(alone.cx(), found).await.unwrap();
    assert_eq!(found.map.policy.inline_bytes, 0);
    assert_eq!(found.map.content, Content::Inline(Bytes::from_static(b"three disks")));
    assert_eq!(commit(&alone, &kept.attr, b"one disk").await.unwrap_err().code, Code::FewRowCopies);
    alone.server.call(alone.cx(), policy("plain")).await.unwrap();
    let plain = inline(&alone, "plain").await;
    assert_eq!(plain.map.policy.inline_bytes, usual);
    commit(&alone, &plain.attr, b"one disk").await.unwrap();
}
