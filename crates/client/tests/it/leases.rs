//! Two mounts that cache names and attributes and agree (docs/design/0005-leases.md *Names*).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::lease::{Acknowledge, LeaseKey, Listen, Order, Term};
use braid_api::meta::{GetAttr, OpenSession, RenewSession, SessionReply, TreeChange};
use braid_api::{
    Code, Context, DirEntry, FileSystem, Namespace, NewNode, NodeKind, OpenFlags, RenameMode, SetAttr, Shown, Watcher,
};
use braid_client::Client;
use braid_meta_server::MetaConfig;
use braid_model::Model;
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;

/// Leases of a second, so that ends of terms are seen.
fn short() -> MetaConfig {
    MetaConfig {
        session_lease: Duration::from_secs(1),
        session_renew: Duration::from_millis(300),
        server_lease: Duration::from_secs(1),
        heartbeat: Duration::from_millis(300),
        acknowledge: Duration::from_millis(700),
        ..MetaConfig::default()
    }
}

async fn stat(client: &Client, text: &str) -> Option<Attr> {
    client.lookup(&cx(), ROOT, &name(text)).await.unwrap().attr
}

async fn mkdir(fs: &impl FileSystem, parent: InodeId, text: &str) -> InodeId {
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
    fs.make_node(&cx(), parent, &name(text), node).await.unwrap().attr.id
}

async fn chmod(fs: &impl FileSystem, id: InodeId, mode: u32) -> Attr {
    let change = SetAttr { mode: Some(Mode(mode)), ..SetAttr::default() };
    fs.set_attr(&cx(), id, None, change).await.unwrap().attr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completed_change_of_one_mount_is_seen_by_the_next_call_of_the_other() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for round in 0..20 {
        let text = format!("f{round}");
        // An absence that is cached.
        assert!(stat(&b, &text).await.is_none() && stat(&b, &text).await.is_none());
        let (id, handle) = create(&a, &text).await;
        assert_eq!(stat(&b, &text).await.map(|attr| attr.id), Some(id), "create");
        a.write(handle, 0, Bytes::from_static(b"some bytes")).await.unwrap();
        close(&a, handle).await.unwrap();
        assert_eq!(stat(&b, &text).await.unwrap().size, 10, "close");
        chmod(&*a, id, 0o600).await;
        assert_eq!(b.get_attr(&cx(), id, None).await.unwrap().attr.mode.0, 0o600, "chmod");
        let cut = SetAttr { size: Some(4), ..SetAttr::default() };
        a.set_attr(&cx(), id, None, cut).await.unwrap();
        assert_eq!(stat(&b, &text).await.unwrap().size, 4, "truncate");
        let mtime = b.get_attr(&cx(), ROOT, None).await.unwrap().attr.mtime;
        a.link(&cx(), id, ROOT, &name("link")).await.unwrap();
        assert_eq!(stat(&b, &text).await.unwrap().nlink, 2, "link");
        assert!(b.get_attr(&cx(), ROOT, None).await.unwrap().attr.mtime > mtime, "the directory has changed");
        a.unlink(&cx(), ROOT, &name("link")).await.unwrap();
        assert!(stat(&b, "link").await.is_none(), "unlink");
        // By the other name, which the change did not name.
        assert_eq!(b.get_attr(&cx(), id, None).await.unwrap().attr.nlink, 1, "unlink of a link");
        let moved = format!("{text}-moved");
        assert!(stat(&b, &moved).await.is_none());
        a.rename(&cx(), (ROOT, &name(&text)), (ROOT, &name(&moved)), RenameMode::Replace).await.unwrap();
        assert!(stat(&b, &text).await.is_none(), "the old name of a rename");
        assert_eq!(stat(&b, &moved).await.map(|attr| attr.id), Some(id), "the new name of a rename");
        a.set_xattr(&cx(), id, b"user.x", Bytes::from_static(b"1"), Default::default()).await.unwrap();
        let ctime = stat(&b, &moved).await.unwrap().ctime;
        assert_eq!(a.get_attr(&cx(), id, None).await.unwrap().attr.ctime, ctime, "setxattr");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_stats_send_no_message_while_a_second_mount_is_idle() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    assert_eq!(stat(&b, "f").await.unwrap().id, id);
    assert!(stat(&b, "absent").await.is_none());
    stat(&a, "f").await;
    world.take_messages();
    for _ in 0..10_000 {
        assert!(stat(&a, "f").await.is_some() && stat(&b, "f").await.is_some());
        assert!(stat(&b, "absent").await.is_none());
        a.get_attr(&cx(), id, None).await.unwrap();
    }
    assert_eq!(world.take_messages().0, BTreeMap::new());
    // A change elsewhere takes nothing of that away.
    let (_, handle) = create(&b, "another").await;
    close(&b, handle).await.unwrap();
    world.take_messages();
    stat(&a, "f").await;
    assert_eq!(world.take_messages().0, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_brings_the_leases_of_its_page() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let dir = mkdir(&*a, ROOT, "d").await;
    let mut ids = Vec::new();
    for i in 0..50 {
        ids.push(mkdir(&*a, dir, &format!("{i}")).await);
    }
    let handle = b.open_dir(&cx(), dir).await.unwrap().handle;
    let page = b.read_dir(&cx(), handle, 0, 100, true).await.unwrap();
    assert!(page.len() == 50 && page.iter().all(|entry| entry.attr.is_some_and(|(_, valid)| !valid.is_zero())));
    world.take_messages();
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(b.lookup(&cx(), dir, &name(&format!("{i}"))).await.unwrap().attr.unwrap().id, *id);
    }
    assert_eq!(world.take_messages().0, BTreeMap::new());
    chmod(&*a, ids[7], 0o700).await;
    let seen = b.lookup(&cx(), dir, &name("7")).await.unwrap().attr.unwrap();
    assert_eq!(seen.mode.0, 0o700);
    // Of a page that the handle still has in hand what was changed since is as it is now.
    let page = b.read_dir(&cx(), handle, page[4].offset, 100, true).await.unwrap();
    let (seven, _) = page.iter().find(|entry| entry.id == ids[7]).unwrap().attr.unwrap();
    assert_eq!(seven.mode.0, 0o700);
}

/// A session that takes leases and does what a test wants.
struct Raw {
    session: SessionReply,
}

impl Raw {
    async fn open(world: &World) -> Raw {
        let open = OpenSession {
            client: 99,
            former: None,
            since: SessionId(0),
            description: "raw".into(),
            host: "h".into(),
            caches: true,
        };
        Raw { session: world.meta.call(Context::default(), open).await.unwrap() }
    }

    fn cx(&self) -> Context {
        let token = Token { session: self.session.session, session_epoch: self.session.epoch, ..Token::default() };
        Context { token, ..Context::default() }
    }

    async fn holds_attr(&self, world: &World, id: InodeId) -> bool {
        world.meta.call(self.cx(), GetAttr { inode: id.into() }).await.unwrap().grant.attr
    }

    async fn renew(&self, world: &World) {
        let renew = RenewSession { low_water: RequestId(0), orphans_seen: 0, orphans_held: Vec::new() };
        world.meta.call(self.cx(), renew).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_mount_holds_a_change_up_for_its_term_and_no_longer() {
    let world = World::with(Storage::Memory, SMALL, short()).await;
    let a = world.client().await;
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    let dead = Raw::open(&world).await;
    assert!(dead.holds_attr(&world, id).await);
    let started = Instant::now();
    chmod(&*a, id, 0o600).await;
    let took = started.elapsed();
    assert!(took > Duration::from_millis(500), "{took:?}: it may still show what it was granted");
    assert!(took < Duration::from_millis(1500), "{took:?}: its term was a second");
    let started = Instant::now();
    chmod(&*a, id, 0o644).await;
    assert!(started.elapsed() < Duration::from_millis(300), "it holds nothing any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_that_renews_and_drops_nothing_holds_a_change_up_for_patience_and_term() {
    let world = World::with(Storage::Memory, SMALL, short()).await;
    let a = world.client().await;
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    let deaf = Raw::open(&world).await;
    assert!(deaf.holds_attr(&world, id).await);
    let over = AtomicBool::new(false);
    let renewing = async {
        while !over.load(SeqCst) {
            deaf.renew(&world).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let changing = async {
        let started = Instant::now();
        chmod(&*a, id, 0o600).await;
        over.store(true, SeqCst);
        started.elapsed()
    };
    let ((), took) = tokio::join!(renewing, changing);
    // 0.7 s of patience, then a term of 1 s that no renewal prolongs.
    assert!(took > Duration::from_millis(1200) && took < Duration::from_millis(2400), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_repeated_until_it_is_acknowledged() {
    let world = World::with(Storage::Memory, SMALL, MetaConfig::default()).await;
    let a = world.client().await;
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    let raw = Raw::open(&world).await;
    assert!(raw.holds_attr(&world, id).await);
    let Term { member, epoch, .. } = raw.session.term.unwrap();
    let listen = || async {
        let orders =
            world.meta.call(raw.cx(), Listen { member, epoch, wait_ms: 5000, revocations: Vec::new() }).await.unwrap();
        let [Order::Revoke { revocation, keys }] = &orders.orders[..] else { panic!("{orders:?}") };
        assert_eq!(*keys, [LeaseKey::Attr(id)]);
        *revocation
    };
    let done = AtomicBool::new(false);
    let change = async {
        chmod(&*a, id, 0o600).await;
        done.store(true, SeqCst);
    };
    let answer = async {
        let first = listen().await;
        assert!(!raw.holds_attr(&world, id).await, "a change of it is announced");
        // As if the answer had been lost.
        assert_eq!(listen().await, first);
        assert!(!done.load(SeqCst), "nothing is changed before it is acknowledged");
        // What is said of another number, or by another start of the server, changes nothing.
        let other = Acknowledge { member, revocations: vec![first + 1] };
        world.meta.call(raw.cx(), other).await.unwrap();
        let old = Acknowledge { member: MemberId(member.0 + 1), revocations: vec![first] };
        world.meta.call(raw.cx(), old).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!done.load(SeqCst));
        world.meta.call(raw.cx(), Acknowledge { member, revocations: vec![first] }).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(5), async { tokio::join!(change, answer) }).await.unwrap();
    assert!(raw.holds_attr(&world, id).await, "it may cache again");
}

/// The cache above: it forgets when it is let.
#[derive(Default)]
struct Kernel {
    forgotten: Mutex<Vec<Shown>>,
    stuck: AtomicBool,
}

struct Above(Arc<Kernel>);

impl Watcher for Above {
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let kernel = self.0.clone();
        Box::pin(async move {
            while kernel.stuck.load(SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            kernel.forgotten.lock().extend(shown);
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_changes_before_the_kernel_of_the_other_mount_has_forgotten_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let kernel = Arc::new(Kernel::default());
    b.watch(Arc::new(Above(kernel.clone())));
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    assert!(stat(&b, "f").await.is_some() && stat(&b, "absent").await.is_none());
    kernel.stuck.store(true, SeqCst);
    let changed = AtomicBool::new(false);
    let change = async {
        a.unlink(&cx(), ROOT, &name("f")).await.unwrap();
        changed.store(true, SeqCst);
    };
    let watch = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!changed.load(SeqCst), "the kernel still shows the name");
        // The daemon does not, and answers.
        assert!(stat(&b, "f").await.is_some(), "it is there until it is unlinked");
        kernel.stuck.store(false, SeqCst);
    };
    tokio::join!(change, watch);
    assert!(stat(&b, "f").await.is_none());
    let forgotten = std::mem::take(&mut *kernel.forgotten.lock());
    for wanted in [Shown::Entry(ROOT, name("f")), Shown::Entry(ROOT, name("absent")), Shown::Attr(id)] {
        assert!(forgotten.contains(&wanted), "{wanted:?} is not in {forgotten:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mounts_agree_when_the_metadata_server_has_started_again() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let kernel = Arc::new(Kernel::default());
    b.watch(Arc::new(Above(kernel.clone())));
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    a.sync_fs().await.unwrap();
    for round in 0..4 {
        assert!(stat(&b, "f").await.is_some());
        kernel.forgotten.lock().clear();
        world.restart_meta(0).await;
        let started = Instant::now();
        let mode = 0o600 + round;
        chmod(&*a, id, mode).await;
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}: everybody is there", started.elapsed());
        assert_eq!(stat(&b, "f").await.unwrap().mode.0, mode);
        assert!(kernel.forgotten.lock().contains(&Shown::Attr(id)), "it was granted by the server before");
    }
    // And they cache again.
    let mut cached = false;
    for _ in 0..100 {
        stat(&b, "f").await;
        world.take_messages();
        stat(&b, "f").await;
        cached |= world.take_messages().0.is_empty();
    }
    assert!(cached);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_that_was_dead_at_a_restart_holds_a_change_up_for_one_term() {
    let mut world = World::with(Storage::Memory, SMALL, short()).await;
    let a = world.client().await;
    let (id, handle) = create(&a, "f").await;
    close(&a, handle).await.unwrap();
    a.sync_fs().await.unwrap();
    let dead = Raw::open(&world).await;
    assert!(dead.holds_attr(&world, id).await);
    world.restart_meta(0).await;
    let started = Instant::now();
    chmod(&*a, id, 0o600).await;
    let took = started.elapsed();
    assert!(took > Duration::from_millis(700) && took < Duration::from_millis(2000), "{took:?}");
    // What it may have written is nobody's to wait for either: it has ended, and begins anew when it comes back.
    let renew = RenewSession { low_water: RequestId(0), orphans_seen: 0, orphans_held: Vec::new() };
    let ended = async {
        while world.meta.call(dead.cx(), renew.clone()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it ends");
}

// --- randomized histories against the model ---

const DIRS: usize = 2;
const NAMES: usize = 4;

/// What a program sees of an inode, times and numbers left out.
fn seen(attr: Option<Attr>) -> Option<(FileKind, u32, u32, u64, u32)> {
    // Directories' sizes are each file system's own affair.
    attr.map(|a| (a.kind, a.mode.0, if a.is_dir() { 0 } else { a.nlink }, if a.is_dir() { 0 } else { a.size }, a.uid))
}

async fn find<F: FileSystem>(fs: &F, dir: InodeId, text: &Name) -> Result<Attr, Code> {
    let found = fs.lookup(&cx(), dir, text).await.map_err(|error| error.code)?;
    found.attr.ok_or(Code::NotFound)
}

/// One call, or the few that make one of a program's; what it sees.
async fn act<F: FileSystem>(fs: &F, dirs: [InodeId; DIRS], op: usize, a: usize, b: usize, value: u64) -> String {
    let place = |at: usize| (dirs[at % DIRS], name(&format!("n{}", at / DIRS)));
    let ((dir, text), (to, other)) = (place(a), place(b));
    let code = |done: braid_api::Result<()>| format!("{:?}", done.map_err(|error| error.code));
    match op {
        0 => {
            let flags = braid_api::OpenFlags { exclusive: true, ..READ_WRITE };
            match fs.create(&cx(), dir, &text, Mode(0o644), flags).await {
                Ok((made, opened)) => {
                    let len = (value % 40) as usize;
                    fs.write(opened.handle, 0, pattern(value, len).into()).await.unwrap();
                    fs.flush(opened.handle).await.unwrap();
                    fs.release(opened.handle).await;
                    format!("made {:?}", seen(Some(Attr { size: len as u64, ..made.attr })))
                }
                Err(error) => format!("{:?}", error.code),
            }
        }
        1 => code(fs.unlink(&cx(), dir, &text).await),
        2 => code(fs.rename(&cx(), (dir, &text), (to, &other), RenameMode::Replace).await),
        3 => code(fs.rename(&cx(), (dir, &text), (to, &other), RenameMode::Exchange).await),
        4 => match find(fs, dir, &text).await {
            Ok(attr) => code(fs.link(&cx(), attr.id, to, &other).await.map(drop)),
            Err(code) => format!("{code:?}"),
        },
        5 => match find(fs, dir, &text).await {
            Ok(attr) => {
                let change = SetAttr { mode: Some(Mode((value % 0o1000) as u32)), ..SetAttr::default() };
                let changed = fs.set_attr(&cx(), attr.id, None, change).await;
                format!("{:?}", changed.map(|reply| seen(Some(reply.attr))).map_err(|error| error.code))
            }
            Err(code) => format!("{code:?}"),
        },
        6 => match find(fs, dir, &text).await {
            Ok(attr) => {
                let change = SetAttr { size: Some(value % 64), ..SetAttr::default() };
                let changed = fs.set_attr(&cx(), attr.id, None, change).await;
                format!("{:?}", changed.map(|reply| seen(Some(reply.attr))).map_err(|error| error.code))
            }
            Err(code) => format!("{code:?}"),
        },
        7 => match find(fs, dir, &text).await {
            Ok(attr) => {
                let handle = fs.open(&cx(), attr.id, READ).await.unwrap().handle;
                let bytes = fs.read(handle, 0, 1000).await.unwrap().concat();
                fs.release(handle).await;
                format!("{bytes:?}")
            }
            Err(code) => format!("{code:?}"),
        },
        8 => {
            let handle = fs.open_dir(&cx(), dir).await.unwrap().handle;
            let mut entries = Vec::new();
            // To its end, of which more is known from then on.
            loop {
                let offset = entries.last().map_or(0, |entry: &braid_api::DirEntry| entry.offset);
                let page = fs.read_dir(&cx(), handle, offset, 100, true).await.unwrap();
                if page.is_empty() {
                    break;
                }
                entries.extend(page);
            }
            fs.release(handle).await;
            entries.sort_by(|x, y| x.name.cmp(&y.name));
            let shown = |entry: &braid_api::DirEntry| (entry.name.to_string(), seen(entry.attr.map(|(attr, _)| attr)));
            format!("{:?}", entries.iter().map(shown).collect::<Vec<_>>())
        }
        _ => format!("{:?}", find(fs, dir, &text).await.map(|attr| seen(Some(attr)))),
    }
}

/// Each call is made by one of two mounts, and by the model: they must see the same, whoever did what before.
async fn agree(seed: u64, steps: usize, restarts: bool) -> (u64, u64) {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let (one, two, model) = (world.client().await, world.client().await, Model::default());
    let mut random = StdRng::seed_from_u64(seed);
    let (mut dirs, mut model_dirs) = ([ROOT; DIRS], [ROOT; DIRS]);
    for i in 1..DIRS {
        dirs[i] = mkdir(&*one, ROOT, "d").await;
        model_dirs[i] = mkdir(&model, ROOT, "d").await;
    }
    let mut history = Vec::new();
    for step in 0..steps {
        let op = random.random_range(0..16);
        let (a, b) = (random.random_range(0..DIRS * NAMES), random.random_range(0..DIRS * NAMES));
        let (value, who) = (random.random_range(0..1000), random.random_range(0..2));
        let client = if who == 0 { &one } else { &two };
        if restarts && random.random_range(0..40) == 0 {
            history.push("the metadata server starts again".to_owned());
            world.restart_meta(random.random_range(0..4)).await;
        }
        let expected = act(&model, model_dirs, op, a, b, value).await;
        let got = act(&**client, dirs, op, a, b, value).await;
        history.push(format!("{step}: mount {who}, op {op} on {a} and {b} with {value}: {got}"));
        if got != expected {
            let from = history.len().saturating_sub(30);
            panic!("seed {seed}: the model says {expected}\n{}", history[from..].join("\n"));
        }
    }
    let hits = one.stats().cache_hits + two.stats().cache_hits;
    (hits, one.stats().cache_misses + two.stats().cache_misses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mounts_in_turn_do_what_the_model_does() {
    let (mut hits, mut misses) = (0, 0);
    for seed in 0..8 {
        let (hit, missed) = agree(seed, 400, false).await;
        (hits, misses) = (hits + hit, misses + missed);
    }
    assert!(hits > misses / 4, "{hits} hits and {misses} misses: nothing was cached, so this has shown nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_mounts_in_turn_do_what_the_model_does_while_the_server_restarts() {
    for seed in 100..104 {
        agree(seed, 120, true).await;
    }
}

/// What a cache above may keep of a directory.
#[derive(Default)]
struct Kept(Mutex<Vec<Shown>>);

struct AboveListings(Arc<Kept>);

impl Watcher for AboveListings {
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.0.lock().extend(shown);
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_may_be_kept_until_somebody_changes_the_directory() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let kept = Arc::new(Kept::default());
    b.watch(Arc::new(AboveListings(kept.clone())));
    let dir = mkdir(&*a, ROOT, "d").await;
    for i in 0..1500 {
        mkdir(&*a, dir, &format!("{i:04}")).await;
    }
    // Whether it may be kept from before, and the last offset.
    let list = async |count: usize| {
        let opened = b.open_dir(&cx(), dir).await.unwrap();
        let (mut offset, mut seen) = (0, 0);
        loop {
            let page = b.read_dir(&cx(), opened.handle, offset, 1000, true).await.unwrap();
            let Some(last) = page.last() else { break };
            (offset, seen) = (last.offset, seen + page.len());
        }
        b.release(opened.handle).await;
        assert!(opened.may_cache && seen == count, "{seen}");
        (opened.keep_cache, offset)
    };
    let told = || kept.0.lock().drain(..).any(|shown| matches!(shown, Shown::Listing(_) | Shown::Pages(..)));
    let (first, second) = (list(1500).await, list(1500).await);
    assert_eq!((first.0, second.0), (false, true));
    assert!(first.1 == second.1, "one offset for all: what one handle brought another goes on from");
    assert!(!told(), "it was leased from the beginning to the end");
    // Another session's change, and one of its own. Both within a second, and nothing of it is granted.
    mkdir(&*a, dir, "x").await;
    assert!(told());
    assert!(!list(1501).await.0 && list(1501).await.0);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    mkdir(&*b, dir, "y").await;
    assert!(!list(1502).await.0 && list(1502).await.0);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    // A change while it is read: its end must not make what was kept before it look whole.
    let opened = b.open_dir(&cx(), dir).await.unwrap();
    let page = b.read_dir(&cx(), opened.handle, 0, 1000, true).await.unwrap();
    mkdir(&*a, dir, "z").await;
    assert!(told());
    let mut offset = page.last().unwrap().offset;
    while let Some(last) = b.read_dir(&cx(), opened.handle, offset, 1000, true).await.unwrap().last() {
        assert!(!told());
        offset = last.offset;
    }
    assert!(told());
    assert!(!list(1503).await.0 && list(1503).await.0);
    // A slot holder that starts anew knows of no lease.
    let mut world = world;
    world.restart_meta(usize::MAX).await;
    let end = Instant::now() + Duration::from_secs(10);
    while !told() {
        assert!(Instant::now() < end, "the slot holder knows of none of it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!list(1503).await.0);
}

/// chmod -R, and a tree that goes: what one mount shows from its cache is gone when the other's call has returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_whole_directories_are_seen_by_the_next_call_of_the_other() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let dir = mkdir(&*a, ROOT, "d").await;
    let sub = mkdir(&*a, dir, "sub").await;
    let node = || NewNode { kind: NodeKind::File, mode: Mode(0o644) };
    let file = a.make_node(&cx(), dir, &name("f"), node()).await.unwrap().attr.id;
    let below = a.make_node(&cx(), sub, &name("below"), node()).await.unwrap().attr.id;
    let mode = async |client: &Client, id| client.get_attr(&cx(), id, None).await.unwrap().attr.mode.0;
    for (round, wanted) in [(0, 0o600), (1, 0o640), (2, 0o604)] {
        for client in [&a, &b] {
            assert_ne!(mode(client, file).await, wanted, "cached in round {round}");
        }
        let change = TreeChange { mode: Some(ModeChange::Octal(wanted)), ..TreeChange::default() };
        // It is small enough to be changed altogether when it is answered.
        a.change_tree(dir, change.clone()).await.unwrap();
        for id in [dir, sub, file, below] {
            assert_eq!((mode(&b, id).await, mode(&a, id).await), (wanted, wanted));
        }
        let changed = a.get_attr(&cx(), file, None).await.unwrap().attr.ctime;
        a.change_tree(dir, change).await.unwrap();
        assert_eq!(
            a.get_attr(&cx(), file, None).await.unwrap().attr.ctime,
            changed,
            "nothing that is as it is to be changes"
        );
    }
    // With a handle open in it, and names that the other shows without asking.
    let handle = open(&b, below, OpenFlags { read: true, write: true, ..OpenFlags::default() }).await;
    b.write(handle, 0, Bytes::from_static(b"kept")).await.unwrap();
    assert!(b.lookup(&cx(), sub, &name("below")).await.unwrap().attr.is_some());
    a.remove_tree(&cx(), ROOT, &name("d")).await.unwrap();
    assert!(stat(&b, "d").await.is_none());
    let left = b.get_attr(&cx(), file, None).await;
    assert!(left.is_err() || left.unwrap().attr.nlink == 0, "until both have said that they do not have it open");
    let gone = b.lookup(&cx(), sub, &name("below")).await;
    assert!(gone.is_err() || gone.unwrap().attr.is_none(), "its directory has gone");
    assert_eq!(read(&b, handle, 0, 100).await, b"kept");
    assert_eq!(b.get_attr(&cx(), below, Some(handle)).await.unwrap().attr.nlink, 0);
    close(&b, handle).await.unwrap();
}

/// A directory that is listed again and again while others work in it: of names that are known nothing is asked but that they are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_asks_again_only_for_what_others_changed() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let mut there = BTreeMap::new();
    for n in 0..20 {
        let (id, handle) = create(&a, &format!("f{n:02}")).await;
        close(&a, handle).await.unwrap();
        there.insert(name(&format!("f{n:02}")), id);
    }
    let list = async || {
        let handle = b.open_dir(&cx(), ROOT).await.unwrap().handle;
        let mut all: Vec<DirEntry> = Vec::new();
        loop {
            let offset = all.last().map_or(0, |entry| entry.offset);
            let page = b.read_dir(&cx(), handle, offset, 1000, true).await.unwrap();
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        b.release(handle).await;
        all
    };
    let agree = |all: &[DirEntry], there: &BTreeMap<Name, InodeId>| {
        let listed: BTreeMap<Name, InodeId> = all.iter().map(|entry| (entry.name.clone(), entry.id)).collect();
        assert_eq!(&listed, there);
        for entry in all {
            assert_eq!(entry.attr.map(|(attr, _)| attr.id), Some(entry.id), "{}", entry.name);
        }
    };
    agree(&list().await, &there);
    for round in 0..30u32 {
        // One is made, one removed, one renamed over another, one of another mode and one longer.
        let at = |n: u32| name(&format!("f{:02}", (round + n) % 20));
        let old = there.remove(&at(0)).unwrap();
        a.unlink(&cx(), ROOT, &at(0)).await.unwrap();
        let (id, handle) = create(&a, std::str::from_utf8(at(0).as_bytes()).unwrap()).await;
        assert_ne!(id, old);
        there.insert(at(0), id);
        a.write(handle, 0, Bytes::from(vec![1; 10 + round as usize])).await.unwrap();
        close(&a, handle).await.unwrap();
        let mode = Mode(0o600 | (round & 0o77));
        a.set_attr(&cx(), there[&at(5)], None, SetAttr { mode: Some(mode), ..SetAttr::default() }).await.unwrap();
        let new = format!("new{round}");
        let (id, handle) = create(&a, &new).await;
        close(&a, handle).await.unwrap();
        a.rename(&cx(), (ROOT, &name(&new)), (ROOT, &at(9)), RenameMode::Replace).await.unwrap();
        there.insert(at(9), id);
        world.take_messages();
        let all = list().await;
        let mut messages = world.take_messages().0;
        messages.retain(|name, _| ["Lookup", "GetAttr", "ReadDir"].contains(name));
        agree(&all, &there);
        let attr = |name: &Name| all.iter().find(|entry| entry.name == *name).unwrap().attr.unwrap().0;
        assert_eq!((attr(&at(0)).size, attr(&at(5)).mode), (10 + u64::from(round), mode));
        assert_eq!(messages, BTreeMap::from([("ReadDir", 1)]), "round {round}");
    }
    // What is in a directory is leased when it has been at rest for a second, and then nothing is asked.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for id in there.values() {
        // Who made it has it to itself until then.
        b.get_attr(&cx(), *id, None).await.unwrap();
    }
    agree(&list().await, &there);
    world.take_messages();
    agree(&list().await, &there);
    let mut messages = world.take_messages().0;
    messages.retain(|name, _| ["Lookup", "GetAttr", "ReadDir"].contains(name));
    assert_eq!(messages, BTreeMap::new());
    // Most of it is another: all is asked for at once.
    for (_, id) in there.values().enumerate().filter(|(n, _)| n % 5 > 0) {
        a.set_attr(&cx(), *id, None, SetAttr { mode: Some(Mode(0o666)), ..SetAttr::default() }).await.unwrap();
    }
    let (id, handle) = create(&a, "last").await;
    close(&a, handle).await.unwrap();
    there.insert(name("last"), id);
    let all = list().await;
    agree(&all, &there);
    assert_eq!(all.iter().filter(|entry| entry.attr.unwrap().0.mode == Mode(0o666)).count(), 16);
}
