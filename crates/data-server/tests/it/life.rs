//! Start, restart, stop, registration, what happens by itself.
#![allow(clippy::unwrap_used)]

use crate::support::*;
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Code, Context, DataNode, Result};
use braid_data_server::{Announcement, DataServerConfig, enrol};
use braid_types::*;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn what_is_dirty_becomes_stable_without_being_asked() {
    let world = World::new(1);
    let server = world.serve(world.open(), DataServerConfig { scrub_bytes_per_s: 0, ..Default::default() });
    let first = write(&*server, 1, 0, b"x").await.unwrap();
    assert!(first.stable < first.sequence);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let second = write(&*server, 1, 0, b"y").await.unwrap();
    assert!(second.stable >= first.sequence && second.stable < second.sequence);
    let syncs = server.counters().syncs;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.counters().syncs, syncs + 1, "nothing dirty, nothing synced");
}

#[tokio::test(start_paused = true)]
async fn scrub_finds_what_nobody_reads() {
    let world = World::new(2);
    let config = DataServerConfig { scrub_bytes_per_s: 1 << 20, ..quiet() };
    let server = world.serve(world.open(), config);
    write(&*server, 1, 0, &[1; 64 << 10]).await.unwrap();
    write(&*server, 2, 0, &[1; 64 << 10]).await.unwrap();
    ask(&*server, SyncChunks::of(vec![ChunkId(1), ChunkId(2)])).await.unwrap();
    world.disk.corrupt(&Path::new(DIR).join("chunks/02/0000000000000002.data"), 9 * 4096, 4).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counted = server.counters();
    assert_eq!((counted.scrubbed_bad, counted.scrubbed_bytes), (1, 128 << 10));
}

/// A disk that takes longer than the server runs is read to its end all the same.
#[tokio::test(start_paused = true)]
async fn scrub_goes_on_after_a_restart_where_it_was() {
    let world = World::new(3);
    // A step of a megabyte each 64 seconds.
    let config = DataServerConfig { scrub_bytes_per_s: 16 << 10, ..quiet() };
    let mut found = 0;
    for start in 0..5 {
        let server = world.serve(world.open(), config.clone());
        if start == 0 {
            for chunk in 1..=8 {
                write(&*server, chunk, 0, &[1; 1 << 20]).await.unwrap();
            }
            ask(&*server, SyncChunks::of((1..=8).map(ChunkId).collect())).await.unwrap();
            world.disk.corrupt(&Path::new(DIR).join("chunks/08/0000000000000008.data"), 60 * 4096, 4).unwrap();
            world.disk.drop_caches();
        }
        tokio::time::sleep(Duration::from_secs(130)).await;
        found += server.counters().scrubbed_bad;
        drop(server);
        world.disk.kill_process();
    }
    assert!(found > 0, "the last chunk was never reached");
}

/// After a power cut what was answered as stable is there, what was not may be; the incarnation tells.
#[tokio::test(start_paused = true)]
async fn a_restart_changes_the_incarnation_and_loses_nothing_stable() {
    let mut lost = 0;
    for seed in 0..30 {
        let world = World::new(seed);
        let server = world.serve(world.open(), quiet());
        let mut stable = 0;
        let mut written = Vec::new();
        for n in 0..20u64 {
            let message = WriteChunk { index: ChunkIndex(2), ..write_of(n, 0) };
            let answer =
                server.call(cx(), message, Bytes::from(vec![n as u8 + 1; 5000])).await.map(|(answer, _)| answer);
            if n == 0 {
                assert_eq!(code(answer), Code::Invalid);
                continue;
            }
            written.push((n, answer.unwrap().sequence));
            if n == 10 {
                let chunks = (1..=10).map(ChunkId).collect();
                stable = ask(&*server, SyncChunks::of(chunks)).await.unwrap().stable;
            }
        }
        let old = server.incarnation();
        drop(server);
        settle().await;
        world.disk.crash(seed);
        let server = world.serve(world.open(), quiet());
        assert_ne!(server.incarnation(), old);
        for (chunk, sequence) in written {
            let found = read(&*server, chunk, 0, 5000).await;
            let whole = found.as_ref().is_ok_and(|bytes| bytes.iter().all(|b| *b == chunk as u8 + 1));
            assert!(whole || sequence > stable, "seed {seed}: chunk {chunk} was stable: {found:?}");
            lost += u64::from(!whole);
            if sequence <= stable {
                let list = ask(&*server, ListChunks { after: ChunkId(chunk - 1), limit: 1 }).await.unwrap();
                assert_eq!((list.chunks[0].inode, list.chunks[0].index), (InodeId(chunk << 12), ChunkIndex(2)));
            }
        }
    }
    assert!(lost > 0, "the power cuts lost nothing, so this has shown nothing");
}

#[tokio::test(start_paused = true)]
async fn a_stop_makes_everything_stable_and_refuses_what_comes() {
    let world = World::new(4);
    let server = world.serve(world.open(), quiet());
    let written = write(&*server, 1, 0, b"kept").await.unwrap();
    server.stop().await.unwrap();
    assert!(server.store().stable_seq() >= written.sequence);
    assert_eq!(code(write(&*server, 1, 0, b"late").await), Code::NotServing);
    assert_eq!(code(read(&*server, 1, 0, 4).await), Code::NotServing);
    drop(server);
    world.disk.crash(4);
    let server = world.serve(world.open(), quiet());
    assert_eq!(read(&*server, 1, 0, 4).await.unwrap(), b"kept"[..]);
}

/// A metadata server that can be away and can forget.
#[derive(Default)]
struct Registry {
    away: Mutex<bool>,
    known: Mutex<Option<u64>>,
    sessions: Mutex<LiveSessions>,
    registered: Mutex<Vec<RegisterServer>>,
    beats: Mutex<Vec<Heartbeat>>,
    leads_for_ms: Mutex<Option<u32>>,
}

impl Namespace for Registry {
    async fn execute(&self, _: Context, request: MetaRequest) -> Result<MetaAnswer> {
        if *self.away.lock() {
            return Err(Code::Unreachable.into());
        }
        match request {
            MetaRequest::RegisterServer(m) => {
                let id = if m.id.0 == 0 { identity().server } else { m.id };
                *self.known.lock() = Some(m.incarnation);
                self.registered.lock().push(m);
                let answer = RegisterAnswer {
                    id,
                    cluster: identity().cluster,
                    heartbeat_ms: 1000,
                    sessions: self.sessions.lock().clone(),
                    sync_floor: Default::default(),
                    lease_ms: 4000,
                    epoch: MembershipEpoch(0),
                    leads_for_ms: self.leads_for_ms.lock().unwrap_or(u32::MAX),
                };
                Ok(MetaAnswer::RegisterServer(answer))
            }
            MetaRequest::Heartbeat(m) => {
                let register_again = *self.known.lock() != Some(m.incarnation);
                self.beats.lock().push(m);
                Ok(MetaAnswer::Heartbeat(HeartbeatAnswer {
                    register_again,
                    move_bytes_per_s: u64::MAX,
                    epoch: MembershipEpoch(0),
                    leads_for_ms: self.leads_for_ms.lock().unwrap_or(u32::MAX),
                }))
            }
            _ => Err(Code::NotSupported.into()),
        }
    }
}

fn announcement() -> Announcement {
    Announcement { addresses: vec!["tcp:h:1".into()], host: "h".into(), ..Announcement::default() }
}

#[tokio::test(start_paused = true)]
async fn a_new_server_gets_its_identity_from_the_metadata_server() {
    let (world, registry) = (World::new(5), Arc::new(Registry::default()));
    *registry.away.lock() = true;
    let back = registry.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(30)).await;
        *back.away.lock() = false;
    });
    let found = enrol(&world.env, &*registry, None, &announcement()).await.unwrap();
    assert_eq!(found, identity());
    let asked = registry.registered.lock().clone();
    assert_eq!((asked.len(), asked[0].id, asked[0].addresses.len()), (1, ServerId(0), 1));
    assert_eq!(enrol(&world.env, &*registry, Some(identity()), &announcement()).await.unwrap(), identity());
    assert_eq!(registry.registered.lock().len(), 1, "who has an identity asks for none");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_outlive_the_metadata_server() {
    let (world, registry) = (World::new(6), Arc::new(Registry::default()));
    let server = world.serve(world.open(), quiet());
    write(&*server, 1, 0, b"x").await.unwrap();
    *registry.away.lock() = true;
    server.report_to(registry.clone(), announcement());
    let wait = async |secs| tokio::time::sleep(Duration::from_secs(secs)).await;
    wait(10).await;
    assert!(!server.is_registered());
    *registry.away.lock() = false;
    wait(10).await;
    assert!(server.is_registered());
    let beats = registry.beats.lock().len();
    wait(10).await;
    assert_eq!(registry.beats.lock().len(), beats + 10);
    let beat = registry.beats.lock().last().cloned().unwrap();
    assert_eq!((beat.id, beat.incarnation, beat.chunks), (ServerId(3), server.incarnation(), 1));
    *registry.known.lock() = None;
    wait(3).await;
    assert_eq!(registry.registered.lock().len(), 2, "it registered again");
    assert!(server.is_registered());
    drop(server);
    wait(3).await;
    let beats = registry.beats.lock().len();
    wait(10).await;
    assert_eq!(registry.beats.lock().len(), beats, "a server that is gone shows no life");
}

#[tokio::test(start_paused = true)]
async fn reads_are_answered_while_the_metadata_server_is_away() {
    let (world, registry) = (World::new(7), Arc::new(Registry::default()));
    let server = world.serve(world.open(), quiet());
    server.report_to(registry.clone(), announcement());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let sync = WriteChunk { sync: true, ..write_of(1, 0) };
    server.call(cx(), sync.clone(), Bytes::from_static(b"x")).await.unwrap();
    *registry.away.lock() = true;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(code(server.call(cx(), sync, Bytes::from_static(b"y")).await), Code::NotServing);
    assert_eq!(read(&*server, 1, 0, 1).await.unwrap(), b"x"[..]);
}

/// A session that ended while the server was away sends what it had on its way: no chunk is made that nobody frees.
#[tokio::test(start_paused = true)]
async fn a_server_that_starts_serves_sessions_when_it_has_heard_which_ones_live() {
    let (world, registry) = (World::new(8), Arc::new(Registry::default()));
    *registry.sessions.lock() = LiveSessions { before: SessionId(6), live: vec![SessionId(2), SessionId(5)] };
    *registry.away.lock() = true;
    let server = world.serve(world.open(), quiet());
    server.report_to(registry.clone(), announcement());
    let of = |session| Context { token: Token { session: SessionId(session), ..Token::default() }, ..cx() };
    let make =
        async |session, chunk| code(server.call(of(session), write_of(chunk, 0), Bytes::from_static(b"x")).await);
    assert_eq!(make(5, 1).await, Code::NotServing, "its end may have been missed");
    let list = ListChunks { after: ChunkId(0), limit: 10 };
    assert_eq!(ask(&*server, list.clone()).await.unwrap().chunks, [], "and what the metadata server asks is answered");
    *registry.away.lock() = false;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(make(3, 2).await, Code::SessionFenced);
    for session in [2, 5, 6] {
        server.call(of(session), write_of(session, 0), Bytes::from_static(b"x")).await.unwrap();
    }
    let once = Some(Once { number: 1, done: 1, repeated: false, again: false });
    let locks = WriteChunk { once, ..write_of(6, 0) };
    server.call(of(6), locks.clone(), Bytes::from_static(b"x")).await.unwrap();
    let locked = Context { deadline: Duration::from_secs(1), ..of(5) };
    assert!(server.call(locked, locks.clone(), Bytes::from_static(b"y")).await.is_err(), "locked by the other");
    // Out of touch, and taken for down: what ended meanwhile is heard of when it registers again.
    *registry.sessions.lock() = LiveSessions { before: SessionId(9), live: vec![SessionId(5)] };
    *registry.known.lock() = None;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((make(2, 3).await, make(6, 4).await), (Code::SessionFenced, Code::SessionFenced));
    server.call(locked, locks, Bytes::from_static(b"y")).await.unwrap();
    let made: Vec<_> = ask(&*server, list).await.unwrap().chunks.iter().map(|status| status.chunk.0).collect();
    assert_eq!(made, [2, 5, 6]);
}

/// A server that was out of touch for longer than the metadata server takes it to live may not know which sessions have ended meanwhile; what they sent
/// before may be with it still, and others have written since.
#[tokio::test(start_paused = true)]
async fn a_server_out_of_touch_changes_nothing_until_it_has_heard_which_sessions_live() {
    let (world, registry) = (World::new(9), Arc::new(Registry::default()));
    let server = world.serve(world.open(), quiet());
    server.report_to(registry.clone(), announcement());
    let of = |session| Context { token: Token { session: SessionId(session), ..Token::default() }, ..cx() };
    let make = async |session, chunk| server.call(of(session), write_of(chunk, 0), Bytes::from_static(b"x")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    make(5, 1).await.unwrap();
    *registry.away.lock() = true;
    // The last sign of life was at most a second ago.
    tokio::time::sleep(Duration::from_millis(2900)).await;
    make(5, 2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(code(make(5, 3).await), Code::NotServing);
    assert_eq!(read(&*server, 1, 0, 1).await.unwrap(), b"x"[..], "what is read is not in question");
    // It was taken for down, one session has ended, and what that sent arrives first.
    *registry.sessions.lock() = LiveSessions { before: SessionId(9), live: vec![SessionId(6)] };
    *registry.known.lock() = None;
    *registry.away.lock() = false;
    assert_eq!(code(make(5, 3).await), Code::NotServing);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(code(make(5, 3).await), Code::SessionFenced);
    make(6, 3).await.unwrap();
    // A metadata server that was away for a moment and has ended nothing: the next sign of life is enough.
    *registry.away.lock() = true;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(code(make(6, 4).await), Code::NotServing);
    *registry.away.lock() = false;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(registry.registered.lock().len(), 2);
    make(6, 4).await.unwrap();
}

/// A metadata server that stood still between its last look at whether it leads and its word that a session has ended says what may be
/// untrue by now: another may have succeeded it, of which the data server has not heard yet.
#[tokio::test(start_paused = true)]
async fn no_session_is_ended_by_a_metadata_server_that_may_have_been_succeeded() {
    let (world, registry) = (World::new(10), Arc::new(Registry::default()));
    *registry.leads_for_ms.lock() = Some(3000);
    let server = world.serve(world.open(), quiet());
    let end = async |session, by| {
        let (session, by) = (SessionId(session), MembershipEpoch(by));
        ask(&*server, FenceSession { session, epoch: SessionEpoch(1), by }).await
    };
    let of = |session| {
        let token = Token { session: SessionId(session), session_epoch: SessionEpoch(1), ..Token::default() };
        Context { token, ..cx() }
    };
    let make = async |session, chunk| server.call(of(session), write_of(chunk, 0), Bytes::from_static(b"x")).await;
    server.report_to(registry.clone(), announcement());
    tokio::time::sleep(Duration::from_secs(10)).await;
    end(4, 0).await.unwrap();
    assert_eq!(code(make(4, 1).await), Code::SessionFenced);
    *registry.away.lock() = true;
    // A second for the last sign of life to have been asked for, and three: within four the data server still lives for its sessions.
    let silent = tokio::time::Instant::now();
    let refused = loop {
        match end(3, 0).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => break error,
        }
    };
    let within = Duration::from_millis(1990)..Duration::from_millis(3020);
    assert!(within.contains(&silent.elapsed()), "{:?}", silent.elapsed());
    assert_eq!(refused.code, Code::NotServing);
    assert_eq!(code(end(5, 7).await), Code::NotServing);
    make(5, 2).await.unwrap();
    *registry.away.lock() = false;
    tokio::time::sleep(Duration::from_secs(6)).await;
    make(5, 3).await.unwrap();
    end(5, 0).await.unwrap();
    assert_eq!(code(make(5, 4).await), Code::SessionFenced);
}
