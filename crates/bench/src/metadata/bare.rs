//! The bare engine: the rows of a stat and of a create, without messages, sessions or file-system meaning.

use super::{Kind, SAMPLE_EVERY, Settings, choose};
use crate::report::Counters;
use crate::turns::{Outcome, Workload, anyhow_free::Result};
use braid_meta_engine::{Engine, EngineError, Key, Lock, Operation, Table, Tx};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// About what an inode's row takes.
const ROW_BYTES: usize = 90;

pub struct Bare {
    engine: Arc<EmbeddedEngine>,
    settings: Settings,
    next: Arc<AtomicU64>,
}

struct ReadRow(u64);

impl Operation for ReadRow {
    type Output = bool;
    type Error = EngineError;
    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<bool, EngineError> {
        let rows = tx.get(&[entry(0, self.0)], Lock::None).await?;
        Ok(rows.iter().all(Option::is_some))
    }
}

/// Reads parent and child, writes child, id and parent: what `create` must write at the least.
struct AddRows {
    parent: u64,
    from: u64,
    count: u64,
}

impl Operation for AddRows {
    type Output = ();
    type Error = EngineError;
    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<(), EngineError> {
        let parent = Key::new(Table::Inodes, u64::MAX, &self.parent.to_be_bytes());
        for n in self.from..self.from + self.count {
            let child = entry(self.parent, n);
            tx.get(&[parent.clone(), child.clone()], Lock::Exclusive).await?;
            tx.put(child, vec![7; ROW_BYTES]);
            tx.put(Key::new(Table::InodeIds, n, b""), vec![7; 16]);
        }
        tx.put(parent, vec![7; ROW_BYTES]);
        Ok(())
    }
}

fn entry(parent: u64, n: u64) -> Key {
    Key::new(Table::Inodes, parent, format!("file{n}").as_bytes())
}

impl Bare {
    pub async fn open(dir: &Path, settings: Settings) -> Result<Bare> {
        let engine = EmbeddedEngine::open(dir, EmbeddedOptions::default()).map_err(|e| e.to_string())?;
        let batch = 1000;
        for from in (0..settings.files).step_by(batch as usize) {
            let add = AddRows { parent: 0, from, count: batch };
            engine.transact(0, add).await.map_err(|e| e.to_string())?;
        }
        let next = Arc::new(AtomicU64::new(settings.files + batch));
        Ok(Bare { engine: Arc::new(engine), settings, next })
    }

    pub fn workload(&self, kind: Kind) -> BareWorkload {
        BareWorkload { engine: self.engine.clone(), settings: self.settings, next: self.next.clone(), kind }
    }
}

pub struct BareWorkload {
    engine: Arc<EmbeddedEngine>,
    settings: Settings,
    next: Arc<AtomicU64>,
    kind: Kind,
}

impl Workload for BareWorkload {
    fn target(&self) -> String {
        "bare engine".to_owned()
    }

    fn conditions(&self) -> String {
        match self.kind {
            Kind::Stat | Kind::Stats => "rows in the page cache".to_owned(),
            Kind::Create => "durable when it returned".to_owned(),
        }
    }

    async fn turn(&mut self, span: Duration) -> Result<Outcome> {
        let before = self.engine.stats().snapshot();
        let begun = Instant::now();
        let mut tasks = Vec::new();
        let width = match self.kind {
            Kind::Stat | Kind::Stats => self.settings.connections,
            Kind::Create => self.settings.connections * self.settings.in_flight,
        };
        for seed in 0..width as u64 {
            let (engine, next, files, kind) = (self.engine.clone(), self.next.clone(), self.settings.files, self.kind);
            tasks.push(tokio::spawn(async move {
                let (mut state, mut done, mut latencies) = (seed, 0u64, Vec::new());
                while begun.elapsed() < span {
                    let at = Instant::now();
                    match kind {
                        // One by one here too: it is the bare engine's fastest way, without any waiting between.
                        Kind::Stat | Kind::Stats => {
                            engine.read(0, ReadRow(choose(&mut state, files))).await.map_err(|e| e.to_string())?;
                        }
                        Kind::Create => {
                            let from = next.fetch_add(1, Ordering::Relaxed);
                            let add = AddRows { parent: 1 + seed % 8, from, count: 1 };
                            engine.transact(0, add).await.map_err(|e| e.to_string())?;
                        }
                    }
                    done += 1;
                    if done.is_multiple_of(SAMPLE_EVERY) {
                        latencies.push(at.elapsed());
                        // Reads are ready at once; others want the thread too.
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, String>((done, latencies))
            }));
        }
        let mut outcome = Outcome::default();
        for task in tasks {
            let (done, latencies) = task.await.map_err(|e| e.to_string())??;
            outcome.operations += done;
            outcome.latencies.extend(latencies);
        }
        outcome.took = begun.elapsed();
        let after = self.engine.stats().snapshot();
        outcome.counters = Counters {
            engine_round_trips: (after.round_trips - before.round_trips) as f64,
            syncs: (after.syncs - before.syncs) as f64,
            ..Counters::default()
        };
        Ok(outcome)
    }
}
