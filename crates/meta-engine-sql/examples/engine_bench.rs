//! How fast the SQL engine is with a database: `cargo run --release -p braid-meta-engine-sql --example engine_bench -- URL`.
//!
//! The same questions as the embedded engine's bench asks, of a tenth of its rows. Every insert is answered when the database has
//! synced it; what that takes is the database's business, and its settings belong beside each figure.

use braid_meta_engine::{Engine, EngineError, Key, Lock, Operation, Table, Tx};
use braid_meta_engine_sql::{SqlEngine, SqlOptions};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const PARENTS: u64 = 100;
const CHILDREN: u64 = 1000;
const TIME: Duration = Duration::from_secs(4);

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

/// So many keys by one call.
struct Get(Vec<Key>);

impl Operation for Get {
    type Output = usize;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<usize, EngineError> {
        Ok(tx.get(&self.0, Lock::None).await?.iter().flatten().count())
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

/// How often a second so many tasks do it: `one(engine, task, n)`.
async fn rate<F, Fut>(engine: &Arc<SqlEngine>, tasks: u64, one: F) -> f64
where
    F: Fn(Arc<SqlEngine>, u64) -> Fut + Copy + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let begun = Instant::now();
    let task = |task: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while begun.elapsed() < TIME {
                one(engine.clone(), done * tasks + task).await;
                done += 1;
            }
            done
        })
    };
    let running: Vec<_> = (0..tasks).map(task).collect();
    let mut done = 0;
    for task in running {
        done += task.await.expect("the task ends");
    }
    done as f64 / begun.elapsed().as_secs_f64()
}

async fn get(engine: Arc<SqlEngine>, n: u64, keys: u64) {
    let key = |n: u64| child(n % PARENTS, n / PARENTS % CHILDREN);
    let found = engine.read(0, Get((0..keys).map(|k| key(scatter(n * keys + k))).collect())).await;
    assert!(found.expect("it reads") >= 1);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let url = std::env::args().nth(1).expect("the URL of a database");
    let options = SqlOptions::from_url(&url).unwrap_or_else(|error| panic!("{error}"));
    let engine = Arc::new(SqlEngine::open(options).await.unwrap_or_else(|error| panic!("{error}")));
    println!("{}", engine.capabilities());
    for parent in 0..PARENTS {
        engine.transact(parent, Fill(parent)).await.expect("it commits");
    }
    println!("{} rows", PARENTS * CHILDREN);
    for tasks in [1, 8] {
        println!("point reads, {tasks} tasks: {:.0}/s", rate(&engine, tasks, |engine, n| get(engine, n, 1)).await);
    }
    println!("five keys, 8 tasks: {:.0}/s", rate(&engine, 8, |engine, n| get(engine, n, 5)).await);
    for tasks in [1, 8] {
        let list = |engine: Arc<SqlEngine>, n: u64| async move {
            let rows = engine.read(0, List(scatter(n) % PARENTS)).await;
            assert_eq!(rows.expect("it reads"), 1000);
        };
        println!("lists of 1000 rows, {tasks} tasks: {:.0}/s", rate(&engine, tasks, list).await);
    }
    let run = u64::from(std::process::id());
    for writers in [1, 8, 32] {
        let before = engine.stats().retries.load(Relaxed);
        let create = move |engine: Arc<SqlEngine>, n: u64| async move {
            let n = run << 32 | writers << 24 | n;
            let parent = 1_000_000 + scatter(n) % 1000;
            engine.transact(parent, Create { parent, n: n & 0xffff_ffff }).await.expect("it commits");
        };
        let rate = rate(&engine, writers, create).await;
        let retries = engine.stats().retries.load(Relaxed) - before;
        println!("durable inserts, {writers} writers: {rate:.0}/s ({retries} begun again)");
    }
    let create = move |engine: Arc<SqlEngine>, n: u64| async move {
        let parent = 2_000_000 + run % 1_000_000;
        engine.transact(parent, Create { parent, n }).await.expect("it commits");
    };
    println!("durable inserts, 32 writers, one directory: {:.0}/s", rate(&engine, 32, create).await);
    println!("{:?}", engine.stats().snapshot());
}
