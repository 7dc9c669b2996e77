//! Locks that two mounts want (docs/design/0012-locks.md).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{Code, FileSystem, HandleId, LockKind, LockRequest, LockSpace, OpenFlags, Result};
use braid_client::{Client, ClientConfig};
use braid_meta_server::MetaConfig;
use braid_model::linear::{Linear, Sequential};
use braid_types::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WHOLE: ByteRange = ByteRange { start: 0, end: u64::MAX };
const BOTH: OpenFlags = OpenFlags::READ_WRITE;

fn posix(owner: u64, kind: LockKind, range: ByteRange) -> LockRequest {
    LockRequest { space: LockSpace::Posix, owner, pid: owner as u32, kind, range }
}

fn flock(owner: u64, kind: LockKind) -> LockRequest {
    LockRequest { space: LockSpace::Flock, owner, pid: owner as u32, kind, range: WHOLE }
}

fn write_lock(owner: u64) -> LockRequest {
    posix(owner, LockKind::Write, WHOLE)
}

fn unlock(owner: u64) -> LockRequest {
    posix(owner, LockKind::Unlock, WHOLE)
}

async fn try_lock(client: &Client, handle: HandleId, lock: LockRequest) -> Result<()> {
    client.set_lock(handle, lock, false).await
}

fn is_held(result: Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) if error.code == Code::WouldBlock => true,
        Err(error) => panic!("{error}"),
    }
}

struct Two {
    world: World,
    a: Arc<Client>,
    b: Arc<Client>,
    /// The same file, open in each.
    on_a: HandleId,
    on_b: HandleId,
    id: InodeId,
}

impl Two {
    async fn new() -> Two {
        Two::with(MetaConfig::default()).await
    }

    async fn with(config: MetaConfig) -> Two {
        let world = World::with(Storage::Memory, SMALL, config).await;
        let (a, b) = (world.client().await, world.client().await);
        let (id, on_a) = create(&a, "f").await;
        let on_b = open(&b, id, BOTH).await;
        Two { world, a, b, on_a, on_b, id }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_one_mount_excludes_the_other_until_it_is_freed() {
    let t = Two::new().await;
    try_lock(&t.a, t.on_a, write_lock(1)).await.unwrap();
    assert!(is_held(try_lock(&t.b, t.on_b, write_lock(1)).await), "the same number at another mount is another owner");
    let found = t.b.get_lock(t.on_b, write_lock(1)).await.unwrap().unwrap();
    assert_eq!((found.kind, found.pid), (LockKind::Write, 0), "a process of another machine has no number here");
    // Other bytes, and the other kind of lock, are not in the way.
    try_lock(&t.a, t.on_a, posix(1, LockKind::Unlock, ByteRange::new(100, 200))).await.unwrap();
    try_lock(&t.b, t.on_b, posix(2, LockKind::Write, ByteRange::new(100, 200))).await.unwrap();
    try_lock(&t.b, t.on_b, flock(2, LockKind::Write)).await.unwrap();
    assert!(is_held(try_lock(&t.a, t.on_a, flock(1, LockKind::Read)).await));
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    try_lock(&t.b, t.on_b, write_lock(2)).await.unwrap();
    assert!(is_held(try_lock(&t.a, t.on_a, posix(1, LockKind::Read, WHOLE)).await));
    // Who closes what he locked through frees it.
    close(&t.b, t.on_b).await.unwrap();
    t.a.set_lock(t.on_a, flock(1, LockKind::Write), true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_two_mounts_share_and_a_writer_waits_for_all() {
    let t = Two::new().await;
    let read = |owner| posix(owner, LockKind::Read, WHOLE);
    try_lock(&t.a, t.on_a, read(1)).await.unwrap();
    try_lock(&t.b, t.on_b, read(2)).await.unwrap();
    let (b, on_b) = (t.b.clone(), t.on_b);
    let writer = tokio::spawn(async move { b.set_lock(on_b, write_lock(3), true).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    try_lock(&t.b, t.on_b, unlock(2)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!writer.is_finished());
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), writer).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_who_has_the_file_to_himself_cost_no_message() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    let (id, on_a) = create(&a, "f").await;
    world.take_messages();
    for round in 0..100 {
        try_lock(&a, on_a, write_lock(round % 2)).await.unwrap();
        try_lock(&a, on_a, flock(5, LockKind::Write)).await.unwrap();
        try_lock(&a, on_a, unlock(round % 2)).await.unwrap();
    }
    assert!(world.take_messages().0.is_empty());
    // The flock that is still held is known to the slot holder before another can ask for it.
    let on_b = open(&b, id, BOTH).await;
    assert!(is_held(try_lock(&b, on_b, flock(1, LockKind::Read)).await));
    try_lock(&b, on_b, write_lock(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_here_goes_on_waiting_when_another_mount_takes_the_locks_away() {
    let t = Two::new().await;
    // `a` has it to itself again.
    t.a.write(t.on_a, 0, bytes::Bytes::from_static(b"x")).await.unwrap();
    try_lock(&t.a, t.on_a, write_lock(1)).await.unwrap();
    let (a, on_a) = (t.a.clone(), t.on_a);
    let second = tokio::spawn(async move { a.set_lock(on_a, write_lock(2), true).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (b, on_b) = (t.b.clone(), t.on_b);
    let third = tokio::spawn(async move { b.set_lock(on_b, write_lock(3), true).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished() && !third.is_finished());
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), async {
        while !second.is_finished() && !third.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert!(second.is_finished() != third.is_finished(), "one after the other");
    for (client, handle, owner) in [(&t.a, t.on_a, 2), (&t.b, t.on_b, 3)] {
        try_lock(client, handle, unlock(owner)).await.unwrap();
    }
    for one in [second, third] {
        tokio::time::timeout(Duration::from_secs(2), one).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_waiting_holds_nothing() {
    let t = Two::new().await;
    try_lock(&t.a, t.on_a, write_lock(1)).await.unwrap();
    let waits = t.b.set_lock(t.on_b, write_lock(2), true);
    assert!(tokio::time::timeout(Duration::from_millis(100), waits).await.is_err());
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    // In the same moment it may have been granted; then it is freed.
    tokio::time::timeout(Duration::from_secs(2), t.a.set_lock(t.on_a, write_lock(1), true)).await.unwrap().unwrap();
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    try_lock(&t.a, t.on_a, write_lock(9)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_two_mounts_is_refused() {
    let t = Two::new().await;
    let (one, two) = (ByteRange::new(0, 10), ByteRange::new(10, 20));
    try_lock(&t.a, t.on_a, posix(1, LockKind::Write, one)).await.unwrap();
    try_lock(&t.b, t.on_b, posix(2, LockKind::Write, two)).await.unwrap();
    let (b, on_b) = (t.b.clone(), t.on_b);
    let waits = tokio::spawn(async move { b.set_lock(on_b, posix(2, LockKind::Write, one), true).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let refused = t.a.set_lock(t.on_a, posix(1, LockKind::Write, two), true).await;
    assert_eq!(refused.unwrap_err().code, Code::Deadlock);
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    waits.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_outlive_a_restart_of_the_metadata_server_wherever_they_were_granted() {
    let mut t = Two::new().await;
    let (one, two) = (ByteRange::new(0, 10), ByteRange::new(10, 20));
    // Of the slot holder, and of a mount by itself.
    try_lock(&t.a, t.on_a, posix(1, LockKind::Write, one)).await.unwrap();
    try_lock(&t.b, t.on_b, posix(2, LockKind::Write, two)).await.unwrap();
    let (own, on_own) = create(&t.a, "own").await;
    try_lock(&t.a, on_own, write_lock(1)).await.unwrap();
    let (b, on_b) = (t.b.clone(), t.on_b);
    let waits = tokio::spawn(async move { b.set_lock(on_b, posix(3, LockKind::Write, one), true).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    t.world.restart_meta(usize::MAX).await;
    assert!(is_held(try_lock(&t.b, t.on_b, posix(2, LockKind::Read, one)).await));
    assert!(is_held(try_lock(&t.a, t.on_a, posix(1, LockKind::Read, two)).await));
    let own_b = open(&t.b, own, BOTH).await;
    assert!(is_held(try_lock(&t.b, own_b, write_lock(2)).await));
    assert!(!waits.is_finished());
    try_lock(&t.a, t.on_a, unlock(1)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), waits).await.unwrap().unwrap().unwrap();
    try_lock(&t.a, on_own, unlock(1)).await.unwrap();
    try_lock(&t.b, own_b, write_lock(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_that_is_dead_loses_its_locks_within_its_lease() {
    let lease = Duration::from_secs(1);
    let config = MetaConfig {
        session_lease: lease,
        session_renew: Duration::from_millis(300),
        server_lease: lease,
        heartbeat: Duration::from_millis(300),
        acknowledge: Duration::from_millis(700),
        ..MetaConfig::default()
    };
    let t = Two::with(config).await;
    try_lock(&t.a, t.on_a, write_lock(1)).await.unwrap();
    assert!(is_held(try_lock(&t.b, t.on_b, write_lock(2)).await));
    // One that leaves is not dead.
    t.world.client().await.shutdown().await.unwrap();
    let Two { a, b, on_b, world, .. } = t;
    assert_eq!(world.leases_run_out().await, 0);
    // Its tasks end with it; nothing is said to anybody.
    drop(a);
    let began = Instant::now();
    let granted = b.set_lock(on_b, write_lock(2), true);
    tokio::time::timeout(Duration::from_secs(5), granted).await.unwrap().unwrap();
    assert!(began.elapsed() >= lease / 2, "it might have lived");
    assert_eq!(world.leases_run_out().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_relied_on_locks_that_are_lost_fails() {
    let t = Two::new().await;
    try_lock(&t.a, t.on_a, write_lock(1)).await.unwrap();
    let beside = open(&t.a, t.id, BOTH).await;
    let sessions = t.world.sessions().await;
    t.world.end_session(sessions[0]).await;
    // The next message tells it.
    let _ = t.a.lookup(&cx(), InodeId::ROOT, &name("other")).await;
    let wait = Instant::now();
    while t.a.read(t.on_a, 0, 10).await.is_ok() {
        assert!(wait.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(t.a.read(t.on_a, 0, 10).await.unwrap_err().code, Code::SessionFenced);
    t.a.read(beside, 0, 10).await.unwrap();
    try_lock(&t.b, t.on_b, write_lock(2)).await.unwrap();
    assert!(is_held(try_lock(&t.a, beside, write_lock(1)).await));
}

/// A counter that is read and written under a lock, by several owners of each mount, while the metadata server restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_under_a_lock_loses_no_step() {
    let mut t = Two::new().await;
    let steps = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (number, client) in [(1, &t.a), (2, &t.a), (3, &t.b), (4, &t.b)] {
        let (client, steps) = (client.clone(), steps.clone());
        let id = t.id;
        tasks.push(tokio::spawn(async move {
            let handle = open(&client, id, BOTH).await;
            let mut random = StdRng::seed_from_u64(number);
            for _ in 0..60 {
                let (lock, free) = match random.random_bool(0.5) {
                    true => (flock(number, LockKind::Write), flock(number, LockKind::Unlock)),
                    false => (write_lock(number), unlock(number)),
                };
                // Both kinds, so that they exclude each other too.
                client.set_lock(handle, flock(number, LockKind::Write), true).await.unwrap();
                client.set_lock(handle, lock, true).await.unwrap();
                let now = read(&client, handle, 0, 8).await;
                let now = now.try_into().map(u64::from_le_bytes).unwrap_or_default();
                client.write(handle, 0, (now + 1).to_le_bytes().to_vec().into()).await.unwrap();
                steps.fetch_add(1, SeqCst);
                client.set_lock(handle, free, false).await.unwrap();
                client.set_lock(handle, flock(number, LockKind::Unlock), false).await.unwrap();
            }
        }));
    }
    for at in [60, 140] {
        while steps.load(SeqCst) < at {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        t.world.restart_meta(usize::MAX).await;
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    let now = read(&t.a, t.on_a, 0, 8).await;
    assert_eq!(u64::from_le_bytes(now.try_into().unwrap()), 240);
}

/// Messages overtake one another and arrive long after they were repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_come_too_late_take_and_free_nothing_twice() {
    let world = World::new(Storage::Memory, SMALL).await;
    let config = ClientConfig { attempt: Duration::from_millis(30), ..ClientConfig::default() };
    let (a, b) = (world.client_with(config.clone()).await, world.client_with(config).await);
    let (id, on_a) = create(&a, "f").await;
    let on_b = open(&b, id, BOTH).await;
    b.read(on_b, 0, 1).await.unwrap();
    let late = world.late.clone();
    let delays = tokio::spawn(async move {
        let mut random = StdRng::seed_from_u64(7);
        loop {
            let delay = Duration::from_millis(random.random_range(0..60));
            late.lock().insert("SetLock", delay);
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    let holders = Arc::new(AtomicU64::new(0));
    let both = [(a.clone(), on_a), (b.clone(), on_b)].map(|(client, handle)| {
        let holders = holders.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                client.set_lock(handle, write_lock(1), true).await.unwrap();
                assert_eq!(holders.fetch_add(1, SeqCst), 0, "two hold it");
                tokio::time::sleep(Duration::from_millis(1)).await;
                holders.fetch_sub(1, SeqCst);
                client.set_lock(handle, unlock(1), false).await.unwrap();
            }
        })
    });
    for one in both {
        tokio::time::timeout(Duration::from_secs(60), one).await.unwrap().unwrap();
    }
    delays.abort();
    // The last of them have arrived.
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.late.lock().clear();
    assert!(a.get_lock(on_a, write_lock(1)).await.unwrap().is_none());
    assert!(b.get_lock(on_b, write_lock(1)).await.unwrap().is_none());
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Holders([BTreeMap<u64, bool>; 4]);

#[derive(Clone, Copy, Debug)]
enum LockOp {
    /// Of which bytes, or with the last number the flock; by whom, for writing.
    Take(usize, u64, bool),
    Free(usize, u64),
    /// An flock that is to be of this kind is given up before it is asked for: not in one moment, so this is the first half.
    Change(u64, bool),
}

impl Sequential for Holders {
    type Op = LockOp;
    type Answer = bool;

    fn apply(&mut self, op: &LockOp) -> bool {
        match *op {
            LockOp::Take(at, who, write) => {
                let is_free = self.0[at].iter().all(|(holder, writes)| *holder == who || !(write || *writes));
                // flock gives up what it has before it asks for another kind.
                if is_free || (at == 3 && self.0[at].get(&who).is_some_and(|had| *had != write)) {
                    self.0[at].remove(&who);
                }
                if is_free {
                    self.0[at].insert(who, write);
                }
                is_free
            }
            LockOp::Free(at, who) => {
                self.0[at].remove(&who);
                true
            }
            LockOp::Change(who, write) => {
                self.0[3].retain(|holder, had| *holder != who || *had == write);
                true
            }
        }
    }
}

/// Several processes of two mounts try to lock the same bytes, while one mount or the other has the file to itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_tried_by_two_mounts_at_once_have_one_order() {
    let t = Two::new().await;
    let history = Arc::new(parking_lot::Mutex::new((Linear::new(Holders::default()), VecDeque::<String>::new())));
    let mut tasks = Vec::new();
    for who in 0..4_u64 {
        let (client, handle) = if who % 2 == 0 { (t.a.clone(), t.on_a) } else { (t.b.clone(), t.on_b) };
        let history = history.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(who);
            for _ in 0..2500 {
                let at = random.random_range(0..4);
                let write = random.random_bool(0.5);
                let op = if random.random_bool(0.5) { LockOp::Take(at, who, write) } else { LockOp::Free(at, who) };
                let kind = match op {
                    LockOp::Take(_, _, true) => LockKind::Write,
                    LockOp::Take(_, _, false) => LockKind::Read,
                    LockOp::Free(..) | LockOp::Change(..) => LockKind::Unlock,
                };
                let lock = match at {
                    3 => flock(who, kind),
                    at => posix(who, kind, ByteRange::new(at as u64 * 10, at as u64 * 10 + 10)),
                };
                let (id, change) = {
                    let mut history = history.lock();
                    history.1.push_back(format!("{who}: {op:?} …"));
                    let change = matches!(op, LockOp::Take(3, ..)).then(|| history.0.begin(LockOp::Change(who, write)));
                    (history.0.begin(op), change)
                };
                let got = !is_held(try_lock(&client, handle, lock).await);
                {
                    let mut history = history.lock();
                    history.1.push_back(format!("{who}: … {op:?} -> {got}"));
                    if history.1.len() > 60 {
                        history.1.pop_front();
                        history.1.pop_front();
                    }
                    let is_explained = history.0.end(id, &got);
                    let log = history.1.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
                    assert!(is_explained, "{who}: {op:?} answered {got}, which no order explains:\n{log}");
                    assert!(change.is_none_or(|change| history.0.end(change, &true)));
                }
                if random.random_bool(0.1) {
                    // Now it has it to itself.
                    client.write(handle, 0, bytes::Bytes::from_static(b"x")).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}
