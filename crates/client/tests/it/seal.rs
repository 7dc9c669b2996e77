//! Sealed files: nothing of them changes, what was written is in them, and who is in the way is named
//! (docs/design/0015-sealed-files.md).

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::lease::{Listen, Order, Reassert, Term};
use braid_api::meta::{HoldSealed, LeaveSealed, Namespace, OpenSession, RenewSession, SealFile, SessionReply};
use braid_api::{Code, Context, FallocateMode, FileSystem, OpenFlags, RenameMode, Result, SetAttr, TimeOrNow};
use braid_client::Client;
use braid_meta_server::MetaConfig;
use braid_types::*;
use bytes::Bytes;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROOT: InodeId = InodeId::ROOT;
const NOW: Duration = Duration::ZERO;

/// Inline, and in chunks.
const LENGTHS: [usize; 2] = [900, 3 << 20];

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code
}

async fn seal(client: &Client, id: InodeId, sealed: bool) -> Attr {
    client.set_sealed(&cx(), id, sealed, NOW).await.unwrap().attr
}

async fn written(client: &Client, text: &str, bytes: &[u8]) -> InodeId {
    let (id, handle) = create(client, text).await;
    client.write(handle, 0, Bytes::copy_from_slice(bytes)).await.unwrap();
    close(client, handle).await.unwrap();
    id
}

/// Every call that changes a file, by the mount that sealed it and by another; none has an effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_sealed_file_changes_whoever_asks() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for len in LENGTHS {
        let (f, bytes) = (format!("f{len}"), pattern(1, len));
        let id = written(&a, &f, &bytes).await;
        let other = written(&a, "other", b"other").await;
        a.set_xattr(&cx(), id, b"user.x", Bytes::from_static(b"1"), Default::default()).await.unwrap();
        let before = seal(&a, id, true).await;
        assert!(before.sealed && seal(&b, id, true).await == before, "sealing it again changes nothing");
        let f = name(&f);
        for client in [&a, &b] {
            let set = async |change: SetAttr| code(client.set_attr(&cx(), id, None, change).await);
            let none = SetAttr::default();
            assert_eq!(set(SetAttr { mode: Some(Mode(0o600)), ..none }).await, Code::Sealed);
            assert_eq!(set(SetAttr { uid: Some(1), gid: Some(1), ..none }).await, Code::Sealed);
            assert_eq!(set(SetAttr { size: Some(0), ..none }).await, Code::Sealed);
            assert_eq!(set(SetAttr { size: Some(len as u64 + 1), ..none }).await, Code::Sealed);
            let time = Some(TimeOrNow::Now);
            assert_eq!(set(SetAttr { atime: time, mtime: time, ..none }).await, Code::Sealed);
            let flags = [READ_WRITE, OpenFlags { read: false, ..READ_WRITE }, OpenFlags { direct: true, ..READ_WRITE }];
            for flags in flags.into_iter().chain([OpenFlags { truncate: true, ..READ_WRITE }]) {
                assert_eq!(code(client.open(&cx(), id, flags).await), Code::Sealed, "{flags:?}");
                assert_eq!(code(client.create(&cx(), ROOT, &f, Mode(0o644), flags).await), Code::Sealed, "{flags:?}");
            }
            assert_eq!(code(client.unlink(&cx(), ROOT, &f).await), Code::Sealed);
            assert_eq!(code(client.link(&cx(), id, ROOT, &name("link")).await), Code::Sealed);
            for mode in [RenameMode::Replace, RenameMode::NoReplace] {
                let renamed = client.rename(&cx(), (ROOT, &f), (ROOT, &name("new")), mode).await;
                assert_eq!(code(renamed), Code::Sealed);
            }
            for mode in [RenameMode::Replace, RenameMode::Exchange] {
                for (from, to) in [(name("other"), f.clone()), (f.clone(), name("other"))] {
                    assert_eq!(code(client.rename(&cx(), (ROOT, &from), (ROOT, &to), mode).await), Code::Sealed);
                }
            }
            let set = client.set_xattr(&cx(), id, b"user.y", Bytes::new(), Default::default()).await;
            assert_eq!(code(set), Code::Sealed);
            assert_eq!(code(client.remove_xattr(&cx(), id, b"user.x").await), Code::Sealed);
            let put = client.put_file(ROOT, &f, file_spec(), Bytes::from_static(b"new"), true).await;
            assert_eq!(code(put), Code::Sealed);
            assert_eq!(client.lookup(&cx(), ROOT, &f).await.unwrap().attr, Some(before));
            let handle = open(client, id, READ).await;
            assert_same(&read(client, handle, 0, len as u32).await, &bytes, "the bytes");
            close(client, handle).await.unwrap();
        }
        // What was refused is not left behind half done.
        assert_eq!(a.lookup(&cx(), ROOT, &name("other")).await.unwrap().attr.map(|attr| attr.id), Some(other));
        let after = seal(&b, id, false).await;
        assert!(!after.sealed && after.ctime > before.ctime);
        a.unlink(&cx(), ROOT, &f).await.unwrap();
    }
}

/// What another mount has in its buffer is in the file that is sealed; a handle of its that writes is named, and writes on
/// when nothing was sealed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_sealed_with_what_others_wrote_and_not_under_their_hands() {
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for len in LENGTHS {
        let text = format!("f{len}");
        let (id, writing) = create(&b, &text).await;
        b.write(writing, 0, Bytes::from(pattern(2, len))).await.unwrap();
        let refused = a.set_sealed(&cx(), id, true, NOW).await.unwrap_err();
        assert_eq!(refused.code, Code::TextBusy);
        assert!(refused.to_string().contains(&format!("session {}", b.session())), "{refused}");
        let bytes = pattern(3, len);
        b.write(writing, 0, Bytes::from(bytes.clone())).await.unwrap();
        b.fallocate(writing, FallocateMode::AllocateKeepSize, ByteRange::new(0, 10)).await.unwrap();
        // Not flushed: what closes the file is its release alone.
        b.release(writing).await;
        let sealed = a.set_sealed(&cx(), id, true, Duration::from_secs(1)).await.unwrap().attr;
        assert_eq!((sealed.sealed, sealed.size), (true, len as u64));
        for client in [&a, &b] {
            let handle = open(client, id, READ).await;
            assert_same(&read(client, handle, 0, len as u32).await, &bytes, &text);
            close(client, handle).await.unwrap();
        }
        // In one mount the same.
        seal(&b, id, false).await;
        let writing = open(&a, id, READ_WRITE).await;
        assert_eq!(code(a.set_sealed(&cx(), id, true, NOW).await), Code::TextBusy);
        a.write(writing, 0, Bytes::from_static(b"last")).await.unwrap();
        a.release(writing).await;
        assert!(seal(&a, id, true).await.sealed);
        let handle = open(&b, id, READ).await;
        assert_same(&read(&b, handle, 0, 4).await, b"last", "what was written last");
        close(&b, handle).await.unwrap();
    }
}

/// Writers that open, write and close all the time, and somebody who seals and unseals: what a close has answered for is in the
/// file whenever it is sealed, and nothing comes into it then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_comes_into_a_sealed_file_and_none_that_was_closed_is_missing() {
    const TIMES: u32 = 8;
    let world = World::new(Storage::Memory, SMALL).await;
    let (a, b, c) = (world.client().await, world.client().await, world.client().await);
    let id = written(&a, "f", &[0; 8]).await;
    let end = Instant::now() + Duration::from_secs(60);
    let counts = [0, 1, 2].map(|_| AtomicU32::new(0));
    let [one, two, sealed] = &counts;
    let goes_on = || Instant::now() < end && counts.iter().any(|count| count.load(SeqCst) < TIMES);
    let pause = || tokio::time::sleep(Duration::from_millis(30));
    let writing = async |client: &Client, at: u64, count: &AtomicU32| {
        while goes_on() {
            // So that the file is closed now and then.
            pause().await;
            let handle = match client.open(&cx(), id, READ_WRITE).await {
                Ok(opened) => opened.handle,
                Err(error) => {
                    assert!(matches!(error.code, Code::Sealed | Code::TextBusy), "{error}");
                    continue;
                }
            };
            let next = count.load(SeqCst) + 1;
            let put = client.write(handle, at, Bytes::copy_from_slice(&next.to_le_bytes())).await;
            let closed = close(client, handle).await;
            match put.map(drop).and(closed) {
                Ok(()) => count.store(next, SeqCst),
                // Sealed between open and write: the write says so.
                Err(error) => assert_eq!(error.code, Code::Sealed, "{error}"),
            }
        }
    };
    let sealing = async {
        while goes_on() {
            if let Err(error) = c.set_sealed(&cx(), id, true, NOW).await {
                assert_eq!(error.code, Code::TextBusy, "{error}");
                continue;
            }
            let handle = open(&c, id, READ).await;
            let first = read(&c, handle, 0, 8).await;
            pause().await;
            let other = open(&a, id, READ).await;
            assert_eq!(read(&a, other, 0, 8).await, first, "it changed while it was sealed");
            close(&a, other).await.unwrap();
            close(&c, handle).await.unwrap();
            seal(&c, id, false).await;
            sealed.fetch_add(1, SeqCst);
            pause().await;
        }
    };
    tokio::join!(writing(&a, 0, one), writing(&b, 4, two), sealing);
    let counts = counts.each_ref().map(|count| count.load(SeqCst));
    assert!(counts.iter().all(|count| *count >= TIMES), "writes of two mounts, and seals: {counts:?}");
    let handle = open(&c, id, READ).await;
    assert_eq!(read(&c, handle, 0, 8).await, [counts[0].to_le_bytes(), counts[1].to_le_bytes()].concat());
}

/// A mutation under its id takes effect once, and the seal is durable when it is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seal_outlives_a_restart_of_the_metadata_server() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let id = written(&a, "f", b"bytes").await;
    assert!(seal(&a, id, true).await.sealed);
    world.restart_meta(0).await;
    assert_eq!(code(a.unlink(&cx(), ROOT, &name("f")).await), Code::Sealed);
    assert!(!seal(&a, id, false).await.sealed);
    world.restart_meta(0).await;
    a.unlink(&cx(), ROOT, &name("f")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_are_sealed() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    assert_eq!(code(a.set_sealed(&cx(), ROOT, true, NOW).await), Code::IsDirectory);
    assert_eq!(code(a.set_sealed(&cx(), ROOT, false, NOW).await), Code::IsDirectory);
    let node = braid_api::NewNode { kind: braid_api::NodeKind::Symlink(Bytes::from_static(b"x")), mode: Mode(0o777) };
    let link = a.make_node(&cx(), ROOT, &name("l"), node).await.unwrap().attr.id;
    assert_eq!(code(a.set_sealed(&cx(), link, true, NOW).await), Code::Invalid);
}

/// A session that holds a sealed file and does what a test wants.
struct Holder(SessionReply);

impl Holder {
    async fn open(world: &World, client: u64) -> Holder {
        let open = OpenSession {
            client,
            former: None,
            since: SessionId(0),
            description: "a holder".into(),
            host: "h".into(),
            caches: true,
        };
        Holder(world.meta.call(Context::default(), open).await.unwrap())
    }

    fn cx(&self) -> Context {
        let token = Token { session: self.0.session, session_epoch: self.0.epoch, ..Token::default() };
        Context { token, ..Context::default() }
    }

    async fn hold(&self, world: &World, id: InodeId, number: u64) -> Option<Attr> {
        world.meta.call(self.cx(), HoldSealed { inode: id.into(), number }).await.unwrap()
    }

    async fn leave(&self, world: &World, id: InodeId, number: u64) {
        world.meta.call(self.cx(), LeaveSealed { holds: vec![(id, number)] }).await.unwrap();
    }

    /// The number of its renewal's reassertion, after a start of the server.
    async fn renew(&self, world: &World) -> Term {
        let renew = RenewSession { low_water: RequestId(0), orphans_seen: 0, orphans_held: Vec::new() };
        world.meta.call(self.cx(), renew).await.unwrap().term.unwrap()
    }

    async fn reassert(&self, world: &World, sealed: Vec<(InodeId, u64)>) {
        let Term { member, reassert, .. } = self.renew(world).await;
        let (files, locks) = (Vec::new(), Vec::new());
        let said = Reassert { member, round: reassert.unwrap(), files, locks, locks_done: 0, sealed };
        world.meta.call(self.cx(), said).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsealing_waits_until_who_holds_the_file_has_left_it() {
    let world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let id = written(&a, "f", b"bytes").await;
    let holder = Holder::open(&world, 99).await;
    assert_eq!(holder.hold(&world, id, 1).await, None, "it is not sealed");
    let sealed = seal(&a, id, true).await;
    assert_eq!(holder.hold(&world, id, 2).await, Some(sealed));
    let refused = a.set_sealed(&cx(), id, false, NOW).await.unwrap_err();
    assert_eq!(refused.code, Code::TextBusy);
    assert!(refused.to_string().contains("a holder, host h"), "{refused}");
    // It is asked to leave; what it says of an earlier hold ends none.
    let Term { member, epoch, .. } = holder.0.term.unwrap();
    let orders = world
        .meta
        .call(holder.cx(), Listen { member, epoch, wait_ms: 5_000, revocations: Vec::new() })
        .await
        .unwrap()
        .orders;
    assert!(orders.contains(&Order::Leave { inode: id }), "{orders:?}");
    holder.leave(&world, id, 1).await;
    assert_eq!(code(a.set_sealed(&cx(), id, false, NOW).await), Code::TextBusy);
    let unsealing = async {
        let started = Instant::now();
        let unsealed = a.set_sealed(&cx(), id, false, Duration::from_secs(10)).await.unwrap().attr;
        assert!(!unsealed.sealed && unsealed.ctime > sealed.ctime);
        started.elapsed()
    };
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(holder.hold(&world, id, 3).await, None, "while it is being unsealed nobody begins to hold it");
        holder.leave(&world, id, 2).await;
    };
    let (took, ()) = tokio::join!(unsealing, leaving);
    assert!(took > Duration::from_millis(250) && took < Duration::from_secs(3), "{took:?}");
    assert_eq!(holder.hold(&world, id, 4).await, None);
    // Another seal is another: what was seen under the first is not what is there.
    assert!(seal(&a, id, true).await.ctime > sealed.ctime);
    assert!(holder.hold(&world, id, 5).await.unwrap().ctime > sealed.ctime);
    // Its session ends, and with it what it held.
    world.end_session(holder.0.session).await;
    assert!(!seal(&a, id, false).await.sealed);
}

/// What is held is in memory only: after a start nothing is unsealed before everybody has said what he holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_nothing_is_unsealed_before_all_have_said_what_they_hold() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let id = written(&a, "f", b"bytes").await;
    seal(&a, id, true).await;
    let holder = Holder::open(&world, 99).await;
    assert!(holder.hold(&world, id, 7).await.is_some());
    world.restart_meta(0).await;
    let unsealing = async { a.set_sealed(&cx(), id, false, NOW).await };
    let saying = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        holder.reassert(&world, vec![(id, 7)]).await;
    };
    let (unsealed, ()) = tokio::join!(unsealing, saying);
    assert_eq!(code(unsealed), Code::TextBusy);
    holder.leave(&world, id, 7).await;
    assert!(!seal(&a, id, false).await.sealed);
}

/// The mount that unseals may hold the file itself, for another program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_who_unseals_has_said_what_it_holds_too() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let a = world.client().await;
    let id = written(&a, "f", b"bytes").await;
    seal(&a, id, true).await;
    let holder = Holder::open(&world, 99).await;
    assert!(holder.hold(&world, id, 7).await.is_some());
    world.restart_meta(0).await;
    let unseal = SealFile { inode: id.into(), sealed: false, wait_ms: 0 };
    let unsealing = async {
        loop {
            let cx = Context { request: RequestId(1), ..holder.cx() };
            match world.meta.call(cx, unseal.clone()).await {
                // It has begun to collect what clients keep.
                Err(error) if error.code == Code::Recovering => tokio::time::sleep(Duration::from_millis(20)).await,
                answer => break answer,
            }
        }
    };
    let saying = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        holder.reassert(&world, vec![(id, 7)]).await;
    };
    let (unsealed, ()) = tokio::join!(unsealing, saying);
    assert_eq!(code(unsealed), Code::TextBusy);
}

/// After a restart of the metadata server nobody knows that a file is open for writing. Who has it so is told when it writes next;
/// programs that read are told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_file_is_opened_and_read_beside_a_handle_that_may_not_write_any_more() {
    let mut world = World::new(Storage::Memory, SMALL).await;
    let (a, b) = (world.client().await, world.client().await);
    for direct in [false, true] {
        let text = format!("f{direct}");
        let id = written(&a, &text, b"bytes").await;
        let writing = open(&a, id, READ_WRITE).await;
        a.write(writing, 0, Bytes::from_static(b"BYTES")).await.unwrap();
        // So that the file is not asked for where it is open.
        let reading = open(&b, id, READ).await;
        assert_eq!(read(&b, reading, 0, 5).await, b"BYTES");
        world.restart_meta(0).await;
        assert!(seal(&b, id, true).await.sealed);
        let beside = open(&a, id, OpenFlags { direct, ..READ }).await;
        assert_eq!(read(&a, beside, 0, 5).await, b"BYTES", "direct: {direct}");
        assert_eq!(read(&a, writing, 0, 5).await, b"BYTES", "direct: {direct}");
        assert_eq!(code(a.write(writing, 0, Bytes::from_static(b"never")).await), Code::Sealed);
        for (client, handle) in [(&a, beside), (&a, writing), (&b, reading)] {
            close(client, handle).await.unwrap();
        }
    }
}

/// Its process has gone, and the kernel with it has closed everything: nobody says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_silent_ends_and_holds_nothing() {
    let config = MetaConfig {
        session_lease: Duration::from_secs(1),
        session_renew: Duration::from_millis(300),
        server_lease: Duration::from_secs(1),
        heartbeat: Duration::from_millis(300),
        acknowledge: Duration::from_millis(700),
        ..MetaConfig::default()
    };
    let world = World::with(Storage::Memory, SMALL, config).await;
    let a = world.client().await;
    let id = written(&a, "f", b"bytes").await;
    seal(&a, id, true).await;
    let holder = Holder::open(&world, 99).await;
    assert!(holder.hold(&world, id, 1).await.is_some());
    let started = Instant::now();
    assert!(!a.set_sealed(&cx(), id, false, Duration::from_secs(15)).await.unwrap().attr.sealed);
    let took = started.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(8), "{took:?}: its term was a second");
    assert!(!world.sessions().await.contains(&holder.0.session));
}
