//! A load whose outcome can be judged, for clusters whose servers are killed meanwhile (`scripts/galera-three`):
//! `cargo run --release -p braid-meta-engine-sql --example sql_load -- SECONDS URL...`
//!
//! One engine for each URL, all on one database. Each counts rows of its own and one of all up, makes and removes
//! directories, and puts entries into them, which only locks the directory's row and does not write it: that is what row
//! locks that end at a server get wrong. In the end every count is what was answered, and no entry is without its directory.

use braid_meta_engine::{Engine, EngineError, Key, Lock, Operation, Row, Table, Tx};
use braid_meta_engine_sql::{SqlEngine, SqlOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const TASKS: u64 = 4;
const DIRECTORIES: u64 = 8;

struct Count(Key);

impl Operation for Count {
    type Output = u64;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, EngineError> {
        let rows = tx.get(std::slice::from_ref(&self.0), Lock::Exclusive).await?;
        let count = number(&rows[0]) + 1;
        tx.put(self.0.clone(), count.to_be_bytes().to_vec());
        Ok(count)
    }
}

fn number(row: &Option<Row>) -> u64 {
    row.as_ref().and_then(|row| row.as_slice().try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn counter(name: &str) -> Key {
    Key::new(Table::Globals, 1, name.as_bytes())
}

fn directory(d: u64) -> Key {
    Key::new(Table::Inodes, 1000 + d, b"directory")
}

fn entries(d: u64) -> Key {
    Key::new(Table::Inodes, 2000 + d, b"")
}

/// Puts an entry into a directory if it is there, or makes the directory.
struct Enter(u64, Vec<u8>);

impl Operation for Enter {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        let directory = directory(self.0);
        match tx.get(std::slice::from_ref(&directory), Lock::Shared).await?[0] {
            Some(_) => tx.put(Key::new(Table::Inodes, entries(self.0).partition(), &self.1), vec![1]),
            None => tx.insert(directory, vec![1]),
        }
        Ok(())
    }
}

/// Removes a directory if nothing is in it, or an entry.
struct Remove(u64);

impl Operation for Remove {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        let directory = directory(self.0);
        if tx.get(std::slice::from_ref(&directory), Lock::Exclusive).await?[0].is_some() {
            let page = tx.scan(&entries(self.0), None, 1, Lock::Exclusive).await?;
            tx.delete(page.rows.into_iter().next().map_or(directory, |(entry, _)| entry));
        }
        Ok(())
    }
}

/// Directories that are not there and have entries.
struct Orphans;

impl Operation for Orphans {
    type Output = u64;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, EngineError> {
        let mut orphans = 0;
        for d in 0..DIRECTORIES {
            let here = tx.get(&[directory(d)], Lock::None).await?[0].is_some();
            let some = !tx.scan(&entries(d), None, 1, Lock::None).await?.rows.is_empty();
            orphans += u64::from(some && !here);
        }
        Ok(orphans)
    }
}

#[derive(Default)]
struct Told {
    all: AtomicU64,
    unknown: AtomicU64,
    conflicts: AtomicU64,
    orphans: AtomicU64,
    done: AtomicU64,
    stall_ms: AtomicU64,
}

impl Told {
    /// Whether it committed, where that is known.
    fn note<T>(&self, begun: Instant, answer: Result<T, EngineError>) -> Option<T> {
        self.done.fetch_add(1, SeqCst);
        self.stall_ms.fetch_max(begun.elapsed().as_millis() as u64, SeqCst);
        match answer {
            Ok(answer) => return Some(answer),
            Err(EngineError::MaybeCommitted(_)) => self.unknown.fetch_add(1, SeqCst),
            // It was told no, which is an answer.
            Err(EngineError::Conflict { .. } | EngineError::Exists(_)) => self.conflicts.fetch_add(1, SeqCst),
            Err(error) => panic!("{error}"),
        };
        None
    }
}

/// One task of one engine: what it counted on its own row.
async fn load(engine: Arc<SqlEngine>, own: Key, task: u64, told: Arc<Told>, until: Instant) -> u64 {
    let (mut count, mut lost, mut n) = (0_u64, 0_u64, 0_u64);
    while Instant::now() < until {
        n += 1;
        let d = n.wrapping_mul(7).wrapping_add(task) % DIRECTORIES;
        let begun = Instant::now();
        let answer = engine.transact(1, Count(own.clone())).await;
        if let Some(now) = told.note(begun, answer) {
            count += 1;
            if now != count.wrapping_add(lost) {
                println!("{own:?}: {now} was answered for the {count}th");
                // Once for each that was lost, or done though it was not answered for.
                lost = now.wrapping_sub(count);
            }
        }
        let begun = Instant::now();
        let answer = engine.transact(1, Count(counter("all"))).await;
        told.all.fetch_add(u64::from(told.note(begun, answer).is_some()), SeqCst);
        let begun = Instant::now();
        let answer = match n % 3 {
            0 => engine.transact(1, Enter(d, own.rest().to_vec())).await,
            _ => engine.transact(1, Remove(d)).await,
        };
        told.note(begun, answer);
        if n.is_multiple_of(16) {
            told.orphans.fetch_max(engine.read(1, Orphans).await.unwrap_or(0), SeqCst);
        }
    }
    count
}

fn options(url: &str) -> SqlOptions {
    let options = SqlOptions::from_url(url).unwrap_or_else(|error| panic!("{error}"));
    #[cfg(feature = "planted")]
    let options = SqlOptions {
        planted: std::env::var_os("PLANT_NO_FENCES").map(|_| braid_meta_engine_sql::PlantedBug::NoFences),
        ..options
    };
    // A server that is killed is back, or replaced, within a minute.
    SqlOptions { give_up_after: Duration::from_secs(60), attempts_max: 200, ..options }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).expect("SECONDS URL...");
    let mut engines = Vec::new();
    for url in arguments {
        let engine = SqlEngine::open(options(&url)).await.unwrap_or_else(|error| panic!("{error}"));
        println!("{}", engine.capabilities());
        engines.push(Arc::new(engine));
    }
    let first = engines.first().expect("SECONDS URL...").clone();
    let (told, until) = (Arc::new(Told::default()), Instant::now() + Duration::from_secs(seconds));
    let run = std::process::id();
    let mut tasks = Vec::new();
    for (number, engine) in (0..).zip(&engines) {
        for task in 0..TASKS {
            let own = counter(&format!("{run} {number} {task}"));
            let task = number * TASKS + task;
            tasks.push((own.clone(), tokio::spawn(load(engine.clone(), own, task, told.clone(), until))));
        }
    }
    let all_before = number(&first.transact(1, Look(counter("all"))).await.expect("it reads"));
    let mut wrong = 0;
    let unknown = |told: &Told| told.unknown.load(SeqCst);
    for (own, task) in tasks {
        let count = task.await.expect("a task was told an error");
        let stored = number(&first.transact(1, Look(own.clone())).await.expect("it reads"));
        // What is unknown may count or not.
        if stored < count || stored > count + unknown(&told) {
            println!("{own:?}: {count} were answered, {stored} are stored");
            wrong += 1;
        }
    }
    let all = number(&first.transact(1, Look(counter("all"))).await.expect("it reads"));
    let answered = told.all.load(SeqCst);
    // Some may have been counted before the first look.
    if all < answered || all - all_before > answered + unknown(&told) {
        println!("all: {answered} were answered, {all} are stored of which {all_before} were there");
        wrong += 1;
    }
    let orphans = told.orphans.load(SeqCst).max(first.read(1, Orphans).await.expect("it reads"));
    let retries: u64 = engines.iter().map(|engine| engine.stats().retries.load(SeqCst)).sum();
    println!(
        "{} transactions, {retries} begun again, {} told of conflicts, {} unknown, longest {} ms, {wrong} wrong counts, {orphans} orphans",
        told.done.load(SeqCst),
        told.conflicts.load(SeqCst),
        unknown(&told),
        told.stall_ms.load(SeqCst),
    );
    std::process::exit(i32::from(wrong > 0 || orphans > 0));
}

struct Look(Key);

impl Operation for Look {
    type Output = Option<Row>;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Row>, EngineError> {
        Ok(tx.get(std::slice::from_ref(&self.0), Lock::Shared).await?.remove(0))
    }
}
