//! `braid fs snapshot`: directories as they were.

mod restore;

use super::attributes::print_json;
use super::path::ClusterPath;
use super::quota::{ByClient, path_of};
use super::session::{Paths, Session, brief};
use crate::config::Span;
use crate::output::{self, Table};
use crate::quota::strange;
use anyhow::{Result, anyhow, bail};
use braid_api::Code;
use braid_api::admin::{AdminAnswer, AdminQuery, SnapshotStatus};
use braid_types::{InodeId, Name};
use clap::Subcommand;
use restore::Restore;
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Of one question: a tree that takes longer to be prepared is asked for again.
const WAIT: Duration = Duration::from_secs(20);

#[derive(Subcommand)]
#[command(after_help = "Examples:\n  braid fs snapshot create /projects monday\n  \
                        ls /mnt/braid/projects/.braid/snapshots/monday")]
pub enum SnapshotCommand {
    /// Keep a directory, with all that is below it, as it is at one moment: it can be read below .braid/snapshots/NAME in it.
    #[command(after_help = "Example:\n  braid fs snapshot create /projects monday")]
    Create {
        dir: ClusterPath,
        name: Name,
        /// So long at the most, for mounts to store what they have written, and, the first time, for all below the directory to be prepared.
        #[arg(long, value_name = "TIME", default_value = "10min")]
        wait: Span,
    },
    /// Show the snapshots of a directory, or all.
    #[command(after_help = "Example:\n  braid fs snapshot list /projects --json")]
    List {
        dir: Option<ClusterPath>,
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
    /// Make a directory again what it was in a snapshot. What has come since is removed; the snapshots stay.
    ///
    /// Done by ordinary changes while others may use the directory, so it is not of one moment; of changed files only the bytes that differ
    /// are written.
    #[command(after_help = "Examples:\n  braid fs snapshot restore /projects monday --dry-run\n  \
                            braid fs snapshot restore /projects monday")]
    Restore {
        dir: ClusterPath,
        name: Name,
        /// Change nothing: print what would be made, changed and removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Let go of snapshots: what only they had is freed.
    #[command(after_help = "Example:\n  braid fs snapshot delete /projects monday tuesday")]
    Delete {
        dir: ClusterPath,
        #[arg(required = true)]
        names: Vec<Name>,
    },
}

#[derive(Serialize)]
struct SnapshotJson<'a> {
    dir: &'a str,
    name: String,
    number: u64,
    made_ns: i64,
}

impl SnapshotCommand {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        match self {
            SnapshotCommand::Create { dir, name, wait } => create(s, &dir, name, wait.0).await?,
            SnapshotCommand::List { dir, json } => list(s, dir, json).await?,
            SnapshotCommand::Restore { dir, name, dry_run } => {
                let now = s.find_dir(&dir).await?.id;
                let then = restore::find(s, &dir, now, &name).await?;
                let done = Restore::new(s, dry_run).run(&dir, then, now).await?;
                let restore::Done { made, changed, removed } = done;
                let would = if dry_run { "to be " } else { "" };
                println!("{would}made: {made}, changed: {changed}, removed: {removed}");
                return Ok(s.exit_code());
            }
            SnapshotCommand::Delete { dir, names } => {
                let id = s.find_dir(&dir).await?.id;
                for name in names {
                    let shown = output::shown(name.as_bytes());
                    if let Err(e) = s.fs.admin(AdminQuery::DropSnapshot { dir: id, name }).await {
                        s.note(&anyhow!("{dir}: snapshot {shown}: {}", brief(&e)));
                    }
                }
                return Ok(s.exit_code());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn create<F: Paths>(s: &Session<F>, dir: &ClusterPath, name: Name, wait: Duration) -> Result<()> {
    let id = s.find_dir(dir).await?.id;
    let shown = output::shown(name.as_bytes());
    if snapshots(s, Some(id)).await?.iter().any(|snapshot| snapshot.name == name) {
        bail!("{dir}: snapshot {shown}: {}", Code::Exists.text());
    }
    let end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let wait_ms = left.min(WAIT).as_millis() as u64;
        match s.fs.admin(AdminQuery::CreateSnapshot { dir: id, name: name.clone(), wait_ms }).await {
            Ok(AdminAnswer::CreateSnapshot(_)) => return Ok(()),
            Ok(_) => return strange(),
            // There was none before: it is this one, whose answer was lost.
            Err(e) if e.code == Code::Exists => return Ok(()),
            Err(e) if e.code == Code::Busy && !left.is_zero() => {}
            Err(e) => bail!("{dir}: snapshot {shown}: {}", brief(&e)),
        }
    }
}

async fn snapshots<F: Paths>(s: &Session<F>, dir: Option<InodeId>) -> Result<Vec<SnapshotStatus>> {
    match s.fs.admin(AdminQuery::Snapshots { dir }).await.map_err(|e| anyhow!("{}", brief(&e)))? {
        AdminAnswer::Snapshots(all) => Ok(all),
        _ => strange(),
    }
}

async fn list<F: Paths>(s: &Session<F>, dir: Option<ClusterPath>, json: bool) -> Result<()> {
    let of = match &dir {
        Some(dir) => Some(s.find_dir(dir).await?.id),
        None => None,
    };
    let mut table = Table::new(&["directory", "name", "made"]);
    let mut paths: Vec<(InodeId, String)> = Vec::new();
    for SnapshotStatus { dir, name, number, made } in snapshots(s, of).await? {
        if paths.last().is_none_or(|(last, _)| *last != dir) {
            paths.push((dir, path_of(&ByClient(s), dir).await?));
        }
        let path = paths.last().map_or("", |(_, path)| path.as_str());
        let shown = output::shown(name.as_bytes());
        if json {
            print_json(&SnapshotJson { dir: path, name: shown, number, made_ns: made.0 })?;
        } else {
            table.row([path.to_owned(), shown, output::time(made)]);
        }
    }
    if !json {
        table.print();
    }
    Ok(())
}
