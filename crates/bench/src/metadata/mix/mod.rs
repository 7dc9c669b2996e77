//! The operations of a production cluster in their published shares, and each alone, by full path: `braid bench metadata --mix`.
//!
//! `plan` and `run` know nothing of BraidFS: the driver of HDFS includes them (`scripts/hdfs-mix`), so that both do the same.

mod cached;
mod cluster;
mod plain;
pub mod plan;
pub mod run;

use crate::report::Report;
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_engine_sql::{SqlEngine, SqlOptions};
use cached::{Cached, Mounts};
use cluster::{Cluster, text};
use plan::{Op, Plan, Tree, Zipf};
use run::{Course, Result, Target, Workload, take_turns};
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Each does one operation at a time.
    pub clients: usize,
    pub files: u64,
    pub files_a_dir: u64,
    /// Of the mix in one turn, all clients together; alone an operation is done a part of it ([`Workload::alone`]).
    pub operations: u64,
    pub turns: usize,
    pub seed: u64,
    /// Of the popularity of files.
    pub zipf_exponent: f64,
    pub mix: bool,
    /// Done alone, one after the other.
    pub alone: Vec<Op>,
    /// Also with the client that mounts use: one for each client, and one for all of them.
    pub cached: bool,
    /// The metadata server is reached by TCP.
    pub tcp: bool,
    /// Rows lie in this database, which is empty or does not exist; else in the embedded engine.
    pub database: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            clients: 8,
            files: 10_000,
            files_a_dir: Tree::FILES_A_DIR,
            operations: 100_000,
            turns: 5,
            seed: 1,
            zipf_exponent: Zipf::EXPONENT,
            mix: true,
            alone: Vec::new(),
            cached: false,
            tcp: false,
            database: None,
        }
    }
}

/// Fills a namespace below `dir` (or in the database) for every kind of client, and takes turns.
pub async fn compare(dir: &Path, settings: Settings) -> Result<Report> {
    let tree = Tree::new("mix", settings.files, settings.files_a_dir);
    let plan = Plan::new(tree, settings.zipf_exponent, settings.seed);
    let mut targets: Vec<Arc<dyn Target>> = Vec::new();
    let cluster = cluster(&dir.join("plain"), &settings).await?;
    let name = if settings.database.is_some() { "BraidFS, database" } else { "BraidFS" };
    let plain = plain::Plain::start(name, cluster, settings.clients).await?;
    plain.fill(&plan.tree).await?;
    targets.push(Arc::new(plain));
    // Clusters of their own: what others cache would have to be revoked before those change it that cache nothing.
    let mut cached = Vec::new();
    let mounts = [("cached", Mounts::OneEach), ("mount", Mounts::One)];
    for (name, mounts) in mounts.into_iter().filter(|_| settings.cached) {
        let cluster = self::cluster(&dir.join(name), &settings).await?;
        let plain = plain::Plain::start("", cluster.clone(), settings.clients).await?;
        plain.fill(&plan.tree).await?;
        let clients = Arc::new(Cached::start(cluster, plain.connections, mounts).await?);
        targets.push(clients.clone());
        cached.push(clients);
    }
    let mut workloads = Vec::new();
    if settings.mix {
        workloads.push(Workload::mix(settings.operations));
    }
    workloads.extend(settings.alone.iter().map(|op| Workload::alone(*op, settings.operations)));
    let course = Course { clients: settings.clients, turns: settings.turns };
    let cells = take_turns(&targets, &plan, &workloads, course).await?;
    for cached in cached {
        cached.stop().await?;
    }
    let engine = if settings.database.is_some() { "a database" } else { "the embedded engine" };
    Ok(Report {
        title: format!(
            "Metadata by path: {} clients, one operation each at a time, {} files in {} directories, rows in {engine}",
            settings.clients,
            plan.tree.files,
            plan.tree.dirs()
        ),
        machine: Report::machine(),
        cells,
        notes: notes(&settings),
    })
}

async fn cluster(dir: &Path, settings: &Settings) -> Result<Arc<Cluster>> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let started = match &settings.database {
        Some(_) if settings.cached => {
            return Err("these kinds of clients need a database each: leave one out".to_owned());
        }
        Some(url) => {
            let options = SqlOptions::from_url(url).map_err(text)?;
            let engine = SqlEngine::open(options).await.map_err(text)?;
            Cluster::start(Arc::new(engine), dir, settings.tcp).await
        }
        None => {
            let engine = EmbeddedEngine::open(&dir.join("rows"), EmbeddedOptions::default()).map_err(text)?;
            Cluster::start(Arc::new(engine), dir, settings.tcp).await
        }
    };
    Ok(Arc::new(started?))
}

fn notes(settings: &Settings) -> Vec<String> {
    let mut notes = vec![format!(
        "Files by Zipf's law with exponent {:.2}; seed {}; {} turns after a warm-up turn of a quarter; the medians of their rates. Servers \
         and clients are one process, with threads of their own. What a turn makes is removed after it.",
        settings.zipf_exponent, settings.seed, settings.turns
    )];
    notes.push(
        "read: the file is opened and its chunk's servers are told, no bytes. add-block: a chunk is allocated and put into the row of an \
         open file. create: nothing is written. set-replication: an extended attribute, as copies are a matter of directories here. \
         content-summary: summed up by the server; by caching clients, a walk by listings."
            .to_owned(),
    );
    notes
}
