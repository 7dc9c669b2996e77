//! How fast the embedded engine is on this machine:
//! `cargo run --release -p braid-meta-engine-embedded --example engine_bench [DIR]`.
//!
//! Every insert is answered when it is synced to the disk that holds DIR; reads wait for no disk. Everything
//! fits the page cache.

use braid_meta_engine::{AnyEngine, Early, Engine, EngineError, Key, Lock, Operation, Table, Tx};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PARENTS: u64 = 1000;
const CHILDREN: u64 = 1000;
const TIME: Duration = Duration::from_secs(3);

fn child(parent: u64, n: u64) -> Key {
    Key::new(Table::Inodes, parent, format!("file-{n:08}").as_bytes())
}

/// What a create does: reads the parent, proves the name absent, writes inode, index and parent.
struct Create {
    parent: u64,
    n: u64,
}

impl Operation for Create {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        let parent = Key::new(Table::Inodes, 0, &self.parent.to_be_bytes());
        let child = child(self.parent, self.n);
        tx.get(&[parent.clone(), child.clone()], Lock::Exclusive).await?;
        tx.insert(child, vec![1; 150]);
        tx.insert(Key::new(Table::InodeIds, self.parent << 32 | self.n, b""), vec![1; 30]);
        tx.put(parent, vec![1; 150]);
        Ok(())
    }
}

struct Fill(u64);

impl Operation for Fill {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        (0..CHILDREN).for_each(|n| tx.put(child(self.0, n), vec![1; 150]));
        Ok(())
    }
}

struct Get(Key);

impl Operation for Get {
    type Output = bool;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, EngineError> {
        Ok(tx.get(std::slice::from_ref(&self.0), Lock::None).await?[0].is_some())
    }
}

struct List(u64);

impl Operation for List {
    type Output = usize;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<usize, EngineError> {
        Ok(tx.scan(&Key::new(Table::Inodes, self.0, b""), None, 1000, Lock::None).await?.rows.len())
    }
}

/// A walk over the numbers that looks random and is the same every time.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

async fn inserts(engine: &Arc<EmbeddedEngine>, writers: u64, one_directory: bool, first: u64) -> f64 {
    let begun = Instant::now();
    let writer = |writer: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while begun.elapsed() < TIME {
                let n = first + done * writers + writer;
                let parent = if one_directory { 1_000_000 } else { 1_000_001 + scatter(n) % PARENTS };
                engine.transact(parent, Create { parent, n }).await.expect("it commits");
                done += 1;
            }
            done
        })
    };
    let tasks: Vec<_> = (0..writers).map(writer).collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.expect("the writer ends");
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

/// Half of all answers of one owner within this, and 99 of 100 within that, while others wait for the disk.
async fn early(engine: &Arc<EmbeddedEngine>, durable: u64, first: u64) -> (Duration, Duration) {
    let of_others = {
        let engine = engine.clone();
        tokio::spawn(async move { inserts(&engine, durable, false, first).await })
    };
    let begun = Instant::now();
    let mut all = Vec::new();
    while begun.elapsed() < TIME {
        let (asked, n) = (Instant::now(), first / 2 + all.len() as u64);
        engine.transact_early(0, Early::of(1), Create { parent: 2_000_000, n }).await.expect("it commits");
        all.push(asked.elapsed());
        // As a program that does something else between two changes.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    of_others.await.expect("the writers end");
    all.sort();
    (all[all.len() / 2], all[all.len() * 99 / 100])
}

fn reads<E: Engine>(engine: &Arc<E>, threads: u64, one: fn(&E, u64)) -> f64 {
    let begun = Instant::now();
    let reader = |thread: u64| {
        let engine = engine.clone();
        std::thread::spawn(move || {
            let mut done = 0;
            while begun.elapsed() < TIME {
                for _ in 0..100 {
                    one(&engine, scatter(thread << 40 | done));
                    done += 1;
                }
            }
            done
        })
    };
    let threads: Vec<_> = (0..threads).map(reader).collect();
    let done: u64 = threads.into_iter().map(|thread| thread.join().expect("the reader ends")).sum();
    done as f64 / begun.elapsed().as_secs_f64()
}

/// A read is ready at its first poll.
fn get(engine: &impl Engine, n: u64) {
    let key = child(n % PARENTS, n / PARENTS % CHILDREN);
    let found = braid_meta_engine::run_ready(engine.read(0, Get(key)));
    assert!(found.expect("ready").expect("it reads"));
}

fn list(engine: &EmbeddedEngine, n: u64) {
    let rows = braid_meta_engine::run_ready(engine.read(0, List(n % PARENTS)));
    assert_eq!(rows.expect("ready").expect("it reads"), 1000);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let engine = EmbeddedEngine::open(dir.path(), EmbeddedOptions::default()).expect("it opens");
    let engine = Arc::new(engine);
    for parent in 0..PARENTS {
        engine.transact(parent, Fill(parent)).await.expect("it commits");
    }
    println!("{} rows, {} MiB on disk", PARENTS * CHILDREN, engine.disk_bytes().expect("it measures") >> 20);
    for threads in [1, 8] {
        println!("point reads, {threads} threads: {:.0}/s (no sync)", reads(&engine, threads, get));
    }
    // As a metadata server has it.
    let any = Arc::new(AnyEngine::new(engine.clone()));
    for threads in [1, 8] {
        println!("point reads by AnyEngine, {threads} threads: {:.0}/s (no sync)", reads(&any, threads, get));
    }
    for threads in [1, 8] {
        println!("lists of 1000 rows, {threads} threads: {:.0}/s (no sync)", reads(&engine, threads, list));
    }
    let cases = [(1, false), (8, false), (32, false), (32, true)];
    for (case, (writers, one_directory)) in (1..).zip(cases) {
        let before = engine.stats().snapshot();
        let rate = inserts(&engine, writers, one_directory, case << 24).await;
        let after = engine.stats().snapshot();
        let share = (after.transactions - before.transactions) as f64 / (after.syncs - before.syncs) as f64;
        let place = if one_directory { "one directory" } else { "1000 directories" };
        println!("durable inserts, {writers} writers, {place}: {rate:.0}/s (synced, {share:.1} a sync)");
    }
    for (case, durable) in (8..).zip([0, 1, 8, 32]) {
        let (half, most) = early(&engine, durable, case << 24).await;
        let (half, most) = (half.as_micros(), most.as_micros());
        println!("early inserts of one, beside {durable} durable writers: p50 {half} µs, p99 {most} µs (ordered)");
    }
}
