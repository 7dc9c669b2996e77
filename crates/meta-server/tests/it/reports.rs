//! Block reports: what data servers have against what rows name, with real data servers on simulated disks.
#![allow(clippy::unwrap_used)]

use crate::chains::{Node, World, write_of};
use braid_api::admin::{AdminAnswer, AdminQuery, ReportsStatus};
use braid_api::data::*;
use braid_api::meta::*;
use braid_api::{Context, DataNode};
use braid_env::Disk;
use braid_meta_engine::{Engine, MemEngine};
use braid_meta_namespace::ops::restored::LeapIds;
use braid_types::*;
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::time::Duration;

/// Rounds come every five minutes, and ten seconds after one that saw something.
const A_ROUND: Duration = Duration::from_secs(340);
const TWO_MORE: Duration = Duration::from_secs(30);

fn files(chunk: ChunkId) -> Vec<PathBuf> {
    let name = |suffix| format!("/s/chunks/{:02x}/{:016x}.{suffix}", chunk.0 % 256, chunk.0).into();
    ["meta", "data", "chain"].map(name).to_vec()
}

fn make(name: &str) -> MakeNode {
    let spec = NodeSpec {
        kind: FileKind::File,
        mode: Mode(0o644),
        umask: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceId(0),
        target: Bytes::new(),
    };
    MakeNode { parent: InodeId::ROOT.into(), name: Name::new(name.as_bytes()).unwrap(), spec }
}

impl World {
    async fn reports(&self) -> ReportsStatus {
        let AdminAnswer::Status(status) = self.ask(AdminQuery::Status).await.unwrap() else { panic!() };
        *status.reports
    }

    async fn put_into(&self, attr: &Attr, chunk: ChunkId, container: ContainerId) {
        let chunks = vec![ChunkRef { index: ChunkIndex(0), chunk, container, stable: true, frozen: false }];
        let commit = crate::common::commit(attr, 100_000, CommitContent::Chunks(chunks));
        self.ask(commit).await.unwrap();
    }

    /// A file of one chunk with three copies.
    async fn file(&self, name: &str, value: u8) -> (ChunkId, ContainerInfo) {
        let attr = self.ask(make(name)).await.unwrap().attr;
        let (chunk, info) = self.spare().await;
        self.write(&info, chunk, value).await;
        self.put_into(&attr, chunk, info.id).await;
        (chunk, info)
    }

    async fn plain_spare(&self) -> (ChunkId, ContainerInfo) {
        let take = TakeSpares { policy: Policy::PLAIN, count: 1, beside: Some(ServerId(1)), for_moves: false };
        let given = self.ask(take).await.unwrap();
        (given.spares[0].0, given.containers[0].clone())
    }

    async fn write_plain(&self, info: &ContainerInfo, chunk: ChunkId) {
        let write = WriteChunk { alone: false, ..write_of(info, chunk, true).write };
        let node = Node(self.net.clone(), info.chain[0]);
        let token = Token { session: SessionId(1), session_epoch: SessionEpoch(1), ..Token::default() };
        let cx = Context { token, ..Context::default() };
        node.call(cx, write, Bytes::from(vec![5; 100_000])).await.unwrap();
    }

    async fn plain_file(&self, name: &str) -> (ChunkId, ContainerInfo) {
        let attr = self.ask(make(name)).await.unwrap().attr;
        let (chunk, info) = self.plain_spare().await;
        self.write_plain(&info, chunk).await;
        self.put_into(&attr, chunk, info.id).await;
        (chunk, info)
    }

    /// By hand, beneath the running server.
    fn remove_files(&self, server: ServerId, chunk: ChunkId) {
        for file in files(chunk) {
            let _ = self.disks[&server].remove(&file);
        }
        assert!(!self.has_files(server, chunk));
    }

    fn has_files(&self, server: ServerId, chunk: ChunkId) -> bool {
        self.disks[&server].open(&files(chunk)[0], braid_env::OpenMode::ReadOnly).is_ok()
    }

    /// What the server itself reads of its copy, once it may.
    async fn copy_is(&self, server: ServerId, info: &ContainerInfo, chunk: ChunkId, value: u8) -> bool {
        for _ in 0..300 {
            let row = self.settled(info.id).await;
            let info = ContainerInfo { id: info.id, epoch: row.epoch, chain: row.chain };
            let read = crate::chains::read_of(&info, chunk, 100_000);
            let node = Node(self.net.clone(), server);
            if let Ok((_, bytes)) = node.call(Context::default(), read, Bytes::new()).await {
                return bytes.len() == 100_000 && bytes.iter().all(|byte| *byte == value);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }
}

#[tokio::test(start_paused = true)]
async fn equal_states_are_equal_and_nothing_is_done() {
    let world = World::new(3).await;
    let (_, info) = world.file("copies", 7).await;
    world.plain_file("plain").await;
    tokio::time::sleep(A_ROUND + A_ROUND).await;
    let reports = world.reports().await;
    assert!(reports.compared >= 6, "{reports:?}");
    let expected = ReportsStatus { compared: reports.compared, ..ReportsStatus::default() };
    assert_eq!(reports, expected, "nothing is on its way by then");
    assert_eq!(world.row(info.id).await.epoch, info.epoch, "no chain was touched");
}

#[tokio::test(start_paused = true)]
async fn a_lost_copy_is_taken_from_the_others_at_the_owner_as_at_a_member() {
    for place in [0, 2] {
        let world = World::new(3).await;
        let (chunk, info) = world.file("f", 7).await;
        let (other, beside) = world.file("g", 8).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let server = info.chain[place];
        world.remove_files(server, chunk);
        tokio::time::sleep(A_ROUND + TWO_MORE).await;
        let reports = world.reports().await;
        assert_eq!((reports.lost, reports.restored, reports.missing), (1, 1, 0), "{reports:?}");
        assert_eq!((reports.extra, reports.restoring), (0, 0), "{reports:?}");
        assert!(world.has_files(server, chunk));
        // Not from anything that was still open.
        world.power_cut(server.0, 3);
        world.start(server.0, false).await;
        for (chunk, info, value) in [(chunk, &info, 7), (other, &beside, 8)] {
            assert!(world.copy_is(server, info, chunk, value).await, "chunk {chunk} at {server}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn copies_lost_at_two_of_three_come_back_and_lost_at_all_three_are_named() {
    let world = World::new(3).await;
    let (two, info) = world.file("two", 7).await;
    let (all, _) = world.file("all", 8).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    info.chain[..2].iter().for_each(|server| world.remove_files(*server, two));
    info.chain.iter().for_each(|server| world.remove_files(*server, all));
    tokio::time::sleep(A_ROUND + TWO_MORE + TWO_MORE).await;
    let reports = world.reports().await;
    assert_eq!((reports.lost, reports.restored, reports.missing, reports.restoring), (5, 2, 3, 0), "{reports:?}");
    assert!(reports.some_missing.iter().all(|missing| missing.chunk == all), "{reports:?}");
    for server in &info.chain {
        assert!(world.has_files(*server, two), "{server}");
        assert!(!world.has_files(*server, all), "nothing is invented");
    }
    for server in &info.chain {
        assert!(world.copy_is(*server, &info, two, 7).await, "{server}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_with_one_copy_is_counted_and_named_and_never_invented() {
    let world = World::new(2).await;
    let (chunk, info) = world.plain_file("f").await;
    let inode = world.ask(Lookup { parent: InodeId::ROOT, name: Name::new(b"f").unwrap() }).await.unwrap().attr;
    world.remove_files(info.chain[0], chunk);
    tokio::time::sleep(A_ROUND + TWO_MORE).await;
    let reports = world.reports().await;
    assert_eq!((reports.lost, reports.restored, reports.missing, reports.extra), (1, 0, 1, 0), "{reports:?}");
    let named = &reports.some_missing[0];
    assert_eq!((named.server, named.chunk, named.inode), (info.chain[0], chunk, inode.unwrap().id));
    // It does not count again with each round.
    tokio::time::sleep(A_ROUND + A_ROUND).await;
    let later = world.reports().await;
    assert_eq!((later.lost, later.missing), (1, 1), "{later:?}");
    assert!(!world.has_files(info.chain[0], chunk));
    world.go_on_as_another().await;
    let name = Name::new(b"f").unwrap();
    world.ask(Unlink { parent: InodeId::ROOT.into(), name, open_here: false }).await.unwrap();
    tokio::time::sleep(A_ROUND).await;
    assert_eq!(world.reports().await.missing, 0, "nobody misses it any more");
}

#[tokio::test(start_paused = true)]
async fn chunks_that_no_row_names_are_removed_wherever_they_are() {
    let world = World::new(3).await;
    let (kept, plain) = world.plain_file("plain").await;
    let (copied, info) = world.file("copies", 7).await;
    let strange = [ChunkId(1 << 40), ChunkId((1 << 40) + 1), ChunkId((1 << 40) + 2)];
    world.write_plain(&plain, strange[0]).await;
    // Of a container that nobody knows.
    world.write_plain(&ContainerInfo { id: ContainerId(1 << 40), ..plain.clone() }, strange[1]).await;
    world.write(&info, strange[2], 9).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(info.chain.iter().all(|server| world.has_files(*server, strange[2])));
    tokio::time::sleep(A_ROUND + TWO_MORE).await;
    let reports = world.reports().await;
    assert_eq!((reports.extra, reports.removed, reports.lost), (3, 3, 0), "{reports:?}");
    for server in (1..=3).map(ServerId) {
        assert!(strange.iter().all(|chunk| !world.has_files(server, *chunk)), "{server}");
        assert!(world.has_files(server, copied));
    }
    assert!(world.has_files(plain.chain[0], kept));
}

/// What a row names is the truth, also when another container's server has it under a wrong one.
#[tokio::test(start_paused = true)]
async fn a_chunk_that_a_row_names_under_another_container_is_not_removed() {
    let world = World::new(1).await;
    let attr = world.ask(make("f")).await.unwrap().attr;
    let (chunk, info) = world.plain_spare().await;
    world.write_plain(&ContainerInfo { id: ContainerId(1 << 40), ..info.clone() }, chunk).await;
    world.put_into(&attr, chunk, info.id).await;
    tokio::time::sleep(A_ROUND + A_ROUND).await;
    let reports = world.reports().await;
    assert!(reports.differing >= 2, "{reports:?}");
    assert_eq!((reports.extra, reports.removed, reports.missing), (0, 0, 0), "{reports:?}");
    assert!(world.has_files(info.chain[0], chunk));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_compared_with_rows_of_a_backup_before_they_are_confirmed() {
    let world = World::new(3).await;
    let (chunk, info) = world.file("f", 7).await;
    let (lost, plain) = world.plain_file("plain").await;
    let strange = ChunkId(1 << 40);
    world.write_plain(&plain, strange).await;
    let engine = MemEngine::new(world.store.clone());
    engine.transact(0, LeapIds { taken: Timestamp(1), now: Timestamp(1_700_000_000_000_000_000) }).await.unwrap();
    world.start_meta().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.remove_files(plain.chain[0], lost);
    world.remove_files(info.chain[1], chunk);
    tokio::time::sleep(A_ROUND + A_ROUND).await;
    assert_eq!(world.reports().await, ReportsStatus::default());
    assert!(world.has_files(plain.chain[0], strange));
    world.ask(AdminQuery::ConfirmRestored).await.unwrap();
    tokio::time::sleep(A_ROUND + TWO_MORE).await;
    let reports = world.reports().await;
    assert!(!world.has_files(plain.chain[0], strange), "{reports:?}");
    assert_eq!((reports.lost, reports.removed), (2, 1), "{reports:?}");
}

/// Rounds come all the time, in the middle of everything.
#[tokio::test(start_paused = true)]
async fn what_is_being_made_moved_and_freed_is_never_taken_for_lost_or_too_many() {
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new(4).await;
        world.moves.report_every = Duration::from_millis(50);
        world.start_meta().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut files: Vec<(String, ChunkId, ContainerInfo)> = Vec::new();
        let mut spares: Vec<(ChunkId, ContainerInfo)> = Vec::new();
        let begun = tokio::time::Instant::now();
        for step in 0.. {
            if begun.elapsed() > Duration::from_secs(45) {
                break;
            }
            match random.random_range(0..10) {
                0..2 => spares.push(world.spare().await),
                2..4 => spares.push(world.plain_spare().await),
                4..8 if !spares.is_empty() => {
                    let (chunk, info) = spares.swap_remove(random.random_range(0..spares.len()));
                    let name = format!("f{step}");
                    let attr = world.ask(make(&name)).await.unwrap().attr;
                    match info.chain.len() {
                        1 => world.write_plain(&info, chunk).await,
                        _ => drop(world.write(&info, chunk, 3).await),
                    }
                    world.put_into(&attr, chunk, info.id).await;
                    files.push((name, chunk, info));
                }
                8 if !files.is_empty() => {
                    let (name, ..) = files.swap_remove(random.random_range(0..files.len()));
                    let name = Name::new(name.as_bytes()).unwrap();
                    let unlink = Unlink { parent: InodeId::ROOT.into(), name, open_here: false };
                    world.ask(unlink).await.unwrap();
                }
                9 if random.random_range(0..20) == 0 => {
                    let server = random.random_range(2..=4);
                    world.power_cut(server, step);
                    tokio::time::sleep(Duration::from_millis(random.random_range(0..9_000))).await;
                    world.start(server, false).await;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
        }
        let reports = world.reports().await;
        assert!(reports.compared > 300 && files.len() > 20, "{} files, {reports:?}", files.len());
        assert_eq!((reports.lost, reports.extra, reports.removed), (0, 0, 0), "seed {seed}: {reports:?}");
        for (_, chunk, info) in &files {
            if info.chain.len() > 1 {
                let read = world.read(info, *chunk).await;
                assert!(read.iter().all(|byte| *byte == 3), "seed {seed}, chunk {chunk}");
            } else {
                assert!(world.has_files(info.chain[0], *chunk), "seed {seed}, chunk {chunk}");
            }
        }
    }
}
