//! One file, random operations, against a vector of bytes: across the inline limits and chunk borders, under a name that changes.

#![allow(clippy::unwrap_used)]

use crate::common::*;
use braid_api::{FallocateMode, FileSystem, HandleId, OpenFlags, SeekWhence, SetAttr};
use braid_client::{Client, ClientConfig};
use braid_meta_engine::AnyEngine;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_engine_sql::SqlEngine;
use braid_types::{ByteRange, InodeId, Policy};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[path = "../../../meta-engine-sql/tests/it/server.rs"]
#[allow(dead_code)]
mod mariadb;

/// Three chunks and a bit.
const SIZE_MAX: u64 = 3 * CHUNK + 50_000;

struct Stream {
    rng: StdRng,
    client: Arc<Client>,
    id: InodeId,
    handle: HandleId,
    policy: Policy,
    /// It is cut when it has grown out of its row.
    stays_small: bool,
    /// Of its name, which is the last that it got.
    names: u32,
    truth: Vec<u8>,
    log: Vec<String>,
}

impl Stream {
    /// Borders are where mistakes are.
    fn offset(&mut self) -> u64 {
        let (inline, small) = (u64::from(self.policy.inline_bytes), u64::from(self.policy.inline_small_bytes));
        let size = self.truth.len() as u64;
        let near = [0, size, small, inline, inline / 2, 2 * inline, CHUNK, 2 * CHUNK, 3 * CHUNK];
        let near = if self.stays_small { &near[..5] } else { &near[..] };
        match self.rng.random_range(0..4) {
            0 if !self.stays_small => self.rng.random_range(0..SIZE_MAX),
            0 | 1 => self.rng.random_range(0..=inline.max(1000)),
            _ => {
                let base = near[self.rng.random_range(0..near.len())];
                let shift = *[0, 1, 100, 4096].get(self.rng.random_range(0..4usize)).unwrap_or(&0);
                if self.rng.random() { base + shift } else { base.saturating_sub(shift) }
            }
        }
        .min(SIZE_MAX)
    }

    fn len(&mut self) -> u64 {
        if self.stays_small {
            return match self.rng.random_range(0..10) {
                0 => self.rng.random_range(1..100_000),
                1..7 => self.rng.random_range(1..500),
                _ => [1, 100, 300, 1024][self.rng.random_range(0..4)],
            };
        }
        match self.rng.random_range(0..10) {
            0 => self.rng.random_range(1..CHUNK + 100_000),
            1..4 => self.rng.random_range(1..200_000),
            4..7 => self.rng.random_range(1..10_000),
            _ => [1, 100, 4096, 4095][self.rng.random_range(0..4)],
        }
    }

    /// Where its bytes lie when all is saved, as far as its size says it: nowhere, in the one table, in the other, in chunks.
    fn place(&self) -> usize {
        match self.truth.len() {
            0 => 0,
            n if n > self.policy.inline_bytes as usize => 3,
            n if n <= usize::from(self.policy.inline_small_bytes) => 1,
            _ => 2,
        }
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        pattern(self.rng.random_range(0..200), len as usize)
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.truth.len() < end {
            self.truth.resize(end, 0);
        }
        self.truth[offset as usize..end].copy_from_slice(bytes);
    }

    fn note(&mut self, text: String) {
        self.log.push(text);
    }

    async fn check(&mut self, range: ByteRange) {
        let got = read(&self.client, self.handle, range.start, range.len() as u32).await;
        let len = self.truth.len() as u64;
        let expected = &self.truth[range.start.min(len) as usize..range.end.min(len) as usize];
        let last = self.log.len().saturating_sub(12);
        assert_same(&got, expected, format_args!("{}: read of {range:?} after {:#?}", self.log[0], &self.log[last..]));
    }

    async fn reopen(&mut self, flags: OpenFlags) {
        close(&self.client, self.handle).await.unwrap();
        self.handle = open(&self.client, self.id, flags).await;
    }

    async fn step(&mut self) {
        let (mut offset, len) = (self.offset(), self.len());
        let mut kind = self.rng.random_range(0..100);
        if self.stays_small && self.place() == 3 && self.rng.random() {
            // To a size at which it goes back there.
            (kind, offset) = (60, self.rng.random_range(0..=u64::from(self.policy.inline_bytes) / 2));
        }
        match kind {
            0..35 => {
                let bytes = self.bytes(len);
                self.note(format!("write {offset} +{len}"));
                self.client.write(self.handle, offset, Bytes::from(bytes.clone())).await.unwrap();
                self.put(offset, &bytes);
            }
            35..55 => self.check(ByteRange::at(offset, len)).await,
            55..60 if self.truth.len() as u64 <= SIZE_MAX => {
                let bytes = self.bytes(len);
                self.note(format!("append {len}"));
                let flags = OpenFlags { append: true, ..READ_WRITE };
                let handle = open(&self.client, self.id, flags).await;
                self.client.write(handle, 0, Bytes::from(bytes.clone())).await.unwrap();
                close(&self.client, handle).await.unwrap();
                self.put(self.truth.len() as u64, &bytes);
            }
            60..68 => {
                let cut = !self.stays_small && self.rng.random_range(0..4) == 0;
                let size = if cut { offset % 5000 } else { offset };
                self.note(format!("truncate {size}"));
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                let reply = self.client.set_attr(&cx(), self.id, Some(self.handle), change).await.unwrap();
                assert_eq!(reply.attr.size, size);
                self.truth.resize(size as usize, 0);
            }
            68..73 => {
                self.note(format!("punch {offset} +{len}"));
                let range = ByteRange::at(offset, len);
                self.client.fallocate(self.handle, FallocateMode::PunchHole, range).await.unwrap();
                let size = self.truth.len();
                self.truth[(offset as usize).min(size)..((offset + len) as usize).min(size)].fill(0);
            }
            73..76 => {
                let keep_size = self.rng.random();
                self.note(format!("zero {offset} +{len} keep {keep_size}"));
                let range = ByteRange::at(offset, len);
                self.client.fallocate(self.handle, FallocateMode::ZeroRange { keep_size }, range).await.unwrap();
                let size = self.truth.len();
                self.truth[(offset as usize).min(size)..((offset + len) as usize).min(size)].fill(0);
                if !keep_size {
                    self.truth.resize(size.max((offset + len) as usize), 0);
                }
            }
            76..79 => {
                self.note(format!("allocate {offset} +{len}"));
                let range = ByteRange::at(offset, len);
                self.client.fallocate(self.handle, FallocateMode::Allocate, range).await.unwrap();
                self.truth.resize(self.truth.len().max((offset + len) as usize), 0);
            }
            79..84 => self.seek(offset).await,
            84..89 => {
                let (from, size) = (self.offset(), self.truth.len() as u64);
                let there = size.saturating_sub(from).min(len);
                if ByteRange::at(from, len).overlaps(ByteRange::at(offset, len)) {
                    return;
                }
                self.note(format!("copy {from} +{len} to {offset}"));
                let copied = self.client.copy_range(self.handle, from, self.handle, offset, len).await.unwrap();
                // The source may grow while it is copied, if the target lies before its end.
                assert_eq!(copied, there, "{:#?}", self.log.last());
                if there > 0 {
                    let bytes = self.truth[from as usize..(from + there) as usize].to_vec();
                    self.put(offset, &bytes);
                }
            }
            89..94 => {
                self.note("fsync".into());
                self.client.fsync(self.handle, false).await.unwrap();
            }
            94..97 => {
                self.note("reopen".into());
                self.reopen(READ_WRITE).await;
            }
            97..99 => {
                let (old, new) = (self.names, self.names + 1);
                let keep_open: bool = self.rng.random();
                self.note(format!("link {new}, unlink {old}, keep open {keep_open}"));
                let linked = self.client.link(&cx(), self.id, InodeId::ROOT, &name(&new.to_string())).await.unwrap();
                assert_eq!(linked.attr.nlink, 2);
                self.client.unlink(&cx(), InodeId::ROOT, &name(&old.to_string())).await.unwrap();
                self.names = new;
                if !keep_open {
                    self.reopen(READ_WRITE).await;
                }
            }
            _ => {
                self.note("open with truncate".into());
                self.reopen(OpenFlags { truncate: true, ..READ_WRITE }).await;
                self.truth.clear();
            }
        }
    }

    /// Data is never said to be a hole, and what is found is where it was looked for.
    async fn seek(&mut self, offset: u64) {
        let size = self.truth.len() as u64;
        let data = self.client.seek(self.handle, offset, SeekWhence::Data).await;
        let next = self.truth.iter().skip(offset as usize).position(|b| *b != 0).map(|at| at as u64 + offset);
        let last = self.log.len().saturating_sub(12);
        let log = &self.log[last..];
        match (&data, next) {
            (Ok(at), Some(next)) => assert!(*at >= offset && *at <= next, "data at {next}, not {at}: {log:#?}"),
            (Ok(at), None) => assert!(*at >= offset && *at < size, "{at} of {size}: {log:#?}"),
            (Err(error), Some(next)) => panic!("there is data at {next}, but: {error}: {log:#?}"),
            (Err(_), None) => {}
        }
        if offset < size {
            let hole = self.client.seek(self.handle, offset, SeekWhence::Hole).await.unwrap();
            assert!(hole >= offset && hole <= size, "hole at {hole} of {size}: {log:#?}");
            let here = self.truth.get(hole as usize);
            assert!(here.is_none_or(|byte| *byte == 0), "hole at {hole} has data: {log:#?}");
        }
    }
}

/// The engine below the metadata server.
#[derive(Clone, Copy)]
enum Rows {
    Memory,
    Directory,
    Database,
}

impl Rows {
    /// A cluster over it.
    async fn world(self, dir: Option<&TempDir>, storage: Storage, policy: Policy) -> World {
        let engine = match (self, dir) {
            (Rows::Directory, Some(dir)) => {
                AnyEngine::new(Arc::new(EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).unwrap()))
            }
            (Rows::Database, _) => {
                let options = mariadb::shared().options(&mariadb::database());
                AnyEngine::new(Arc::new(SqlEngine::open(options).await.unwrap()))
            }
            _ => return World::new(storage, policy).await,
        };
        World::over((Default::default(), engine), storage, policy, Default::default()).await
    }
}

/// As many seeds as there is time for, and at least so many, however slow the machine is. Of the policies each seed has one. Answers after
/// how many steps the file was how large ([`Stream::place`]).
async fn streams(
    rows: Rows,
    storage: Storage,
    (policies, stays_small): (&[Policy], bool),
    seeds: std::ops::Range<u64>,
    at_least: u64,
    config: &ClientConfig,
) -> [u64; 4] {
    let started = Instant::now();
    let (mut done, mut places) = (0, [0; 4]);
    for seed in seeds {
        let policy = policies[seed as usize % policies.len()];
        let dir = matches!(rows, Rows::Directory).then(|| tempfile::tempdir().unwrap());
        let world = rows.world(dir.as_ref(), storage, policy).await;
        let client = world.client_with(config.clone()).await;
        let (id, handle) = create(&client, "0").await;
        let rng = StdRng::seed_from_u64(seed);
        let log = vec![format!("seed {seed}")];
        let (of, truth) = (client.clone(), Vec::new());
        let mut stream = Stream { rng, client: of, id, handle, policy, stays_small, names: 0, truth, log };
        for _ in 0..60 {
            let step = tokio::time::timeout(Duration::from_secs(20), stream.step()).await;
            let last = stream.log.len().saturating_sub(12);
            let waiting = client.waiting();
            assert!(step.is_ok(), "it hangs, waiting for {waiting:?}: {:#?}", &stream.log[last..]);
            places[stream.place()] += 1;
        }
        stream.check(ByteRange::at(0, 8 * CHUNK)).await;
        close(&client, stream.handle).await.unwrap();
        client.shutdown().await.unwrap();
        // Another client sees the same: nothing was true only here.
        let other = world.client().await;
        let named = other.lookup(&cx(), InodeId::ROOT, &name(&stream.names.to_string())).await.unwrap().attr.unwrap();
        let expected = (id, 1, stream.truth.len() as u64);
        assert_eq!((named.id, named.nlink, named.size), expected, "seed {seed}");
        let handle = open(&other, id, READ).await;
        let got = read(&other, handle, 0, 8 << 20).await;
        let last = stream.log.len().saturating_sub(12);
        assert_same(&got, &stream.truth, format_args!("another client, seed {seed}: {:#?}", &stream.log[last..]));
        // Else its housekeeping goes on beside the next seeds'.
        world.meta.stop();
        done += 1;
        if started.elapsed() > Duration::from_secs(8) && done >= at_least {
            break;
        }
    }
    println!("{done} seeds in {:?}, steps by place {places:?}", started.elapsed());
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_a_vector_of_bytes() {
    streams(Rows::Memory, Storage::Memory, (&[SMALL], false), 0..400, 20, &ClientConfig::default()).await;
}

/// Around what lies in the one table of small files, in the other, and in chunks.
async fn small_streams(rows: Rows, seeds: std::ops::Range<u64>, at_least: u64) {
    let policy = |inline_bytes, inline_small_bytes| Policy { inline_bytes, inline_small_bytes, ..SMALL };
    let policies = [policy(64 << 10, 1024), policy(2048, 300), policy(3000, 1024), policy(700, 1024), policy(2000, 0)];
    let places = streams(rows, Storage::Memory, (&policies, true), seeds, at_least, &ClientConfig::default()).await;
    let share = places.map(|steps| steps * 100 / places.iter().sum::<u64>());
    assert!(share[1] >= 10 && share[2] >= 20 && share[3] >= 10, "percent of the steps: {share:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_is_a_vector_of_bytes() {
    small_streams(Rows::Memory, 2000..2800, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_is_a_vector_of_bytes_over_the_embedded_engine() {
    small_streams(Rows::Directory, 3000..3800, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_is_a_vector_of_bytes_over_a_database() {
    small_streams(Rows::Database, 4000..4800, 10).await;
}

/// Saving runs beside everything else, and memory is always short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_a_vector_of_bytes_under_pressure() {
    let config = ClientConfig {
        write_buffer_bytes: 2 << 20,
        file_buffer_bytes: 2 << 20,
        retained_bytes: 2 << 20,
        prefetch_bytes: 1 << 20,
        write_back_after: Duration::from_millis(4),
        stabilise_after: Duration::from_millis(5),
        file_writes_max: 3,
        spares_ahead: 1,
        ..ClientConfig::default()
    };
    streams(Rows::Memory, Storage::Disk, (&[SMALL], false), 1000..1400, 10, &config).await;
}
