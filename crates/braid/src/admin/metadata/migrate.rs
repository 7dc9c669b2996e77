//! `braid admin metadata migrate`: the rows go to another store while the cluster is used, and at the end its server ends.
//!
//! Passes over all rows bring what has changed since the one before; in the last one changes are held back, so that nothing is missed, and
//! then each row is compared. At no moment may both stores be served, or one that is not whole (`meta-namespace/ops/handover.rs`).

use super::rows::ServedRows;
use super::target::{self, Arrival, Filled, Place, refused};
use crate::admin::{Cluster, members, strange};
use crate::config::Config;
use crate::fs::progress::Counting;
use crate::output::bytes;
use anyhow::{Context, Result, anyhow, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::{Code, Manner};
use braid_env::Env;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::handover::ReadHandover;
use braid_meta_namespace::rows::HandoverRow;
use braid_meta_transfer::{Counts, StoredRows, bring, compare};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "\
Run it on the machine where a directory is to be the new place. The cluster is used meanwhile; changes wait for as long as it takes to
compare all rows at the end; of several metadata servers that serve at once one serves alone from shortly before. Then the metadata
server ends: set the new place in its configuration and start it again.
Example:
  braid admin metadata migrate --to-database mysql://braid:secret@db/braid
  braid admin metadata migrate --to-dir /srv/braid/metadata")]
pub struct MigrateArgs {
    /// An empty database: mysql://USER:PASSWORD@HOST/NAME, or @FILE for a file with that address.
    #[arg(long, value_name = "URL", conflicts_with = "to_dir", required_unless_present = "to_dir")]
    to_database: Option<String>,
    /// An empty or new directory on this machine.
    #[arg(long, value_name = "DIR")]
    to_dir: Option<PathBuf>,
    /// The command was interrupted after the old server had ended: look at both stores, and let the new one be served.
    #[arg(long)]
    finish: bool,
    /// An object.
    #[arg(long)]
    json: bool,
}

/// Is said again five times before it is over.
const HOLD: Duration = Duration::from_secs(30);
const HOLD_AGAIN: Duration = Duration::from_secs(6);
/// For those that serve beside the one that leads to stop: a member's lease is 9 s, and a twentieth longer to who leads.
const ALONE_MAX: Duration = Duration::from_secs(25);
const ALONE_AGAIN: Duration = Duration::from_millis(500);
/// Passes while the cluster is used, as long as each still brings so many rows.
const PASSES_MAX: usize = 4;
const FEW_ROWS: u64 = 10_000;
/// For the old server to end.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

struct Done {
    counts: Counts,
    copied: Duration,
    held: Duration,
    /// In the last pass.
    late: u64,
}

impl MigrateArgs {
    pub async fn run(self, cluster: &Cluster, config: &Config) -> Result<ExitCode> {
        let to = match (&self.to_database, &self.to_dir) {
            (Some(url), _) => target::database(url)?,
            (None, Some(dir)) => Place::Dir(std::path::absolute(dir).context("--to-dir")?),
            (None, None) => bail!("say where to: --to-database or --to-dir"),
        };
        if !self.finish {
            // Before anything is made anywhere.
            cluster.reach().await?;
        }
        let done = match &to {
            Place::Database(url) => self.go(cluster, config, &target::open_database(url).await?, &to).await?,
            Place::Dir(dir) => self.go(cluster, config, &target::make_dir(dir, config)?, &to).await?,
        };
        self.say(&to, config, done.as_ref());
        Ok(ExitCode::SUCCESS)
    }

    async fn go<E: Filled>(&self, cluster: &Cluster, config: &Config, target: &E, to: &Place) -> Result<Option<Done>> {
        match self.finish {
            true => finish(cluster, config, target, to).await.map(|()| None),
            false => migrate(cluster, target, to).await.map(Some),
        }
    }

    fn say(&self, to: &Place, was: &Config, done: Option<&Done>) {
        let setting = to.setting(was);
        if self.json {
            let text = serde_json::json!({
                "to": to.to_string(),
                "rows": done.map(|done| done.counts.rows),
                "bytes": done.map(|done| done.counts.bytes),
                "seconds_in_use": done.map(|done| done.copied.as_secs_f64()),
                "seconds_held": done.map(|done| done.held.as_secs_f64()),
                "rows_in_last_pass": done.map(|done| done.late),
            });
            return println!("{text:#}");
        }
        if let Some(Done { counts, copied, held, late }) = done {
            println!(
                "{} rows ({}) copied in {:.1} s while the cluster was used; changes waited for {:.1} s, in which {late} rows were \
                 brought and all were compared",
                counts.rows,
                bytes(counts.bytes),
                copied.as_secs_f64(),
                held.as_secs_f64()
            );
        }
        println!(
            "The metadata is in {to}. The old metadata server has ended and starts no more over the old place.\nSet {setting}\nin its \
             configuration, and start it: braid serve metadata, or braid up DIR."
        );
    }
}

async fn migrate<E: Filled>(cluster: &Cluster, target: &E, to: &Place) -> Result<Done> {
    let AdminAnswer::Status(status) = cluster.ask(AdminQuery::Status).await? else { return strange() };
    let from = format!("the metadata server of cluster {} (braid admin metadata migrate)", status.cluster);
    let arrival = Arrival::begin(target, &cluster.env, from, true).await.with_context(|| to.to_string())?;
    let begun = Instant::now();
    for _ in 0..PASSES_MAX {
        let counts = pass(cluster, target, "copied").await?;
        if counts.put + counts.deleted < FEW_ROWS {
            break;
        }
    }
    let hold = begin_hold(cluster).await?;
    let copied = begun.elapsed();
    let begun = Instant::now();
    #[cfg(feature = "planted")]
    crate::planted::may_die_at("migrate-held");
    let last = async {
        let late = pass(cluster, target, "brought while changes wait").await?;
        Ok((late.put + late.deleted, compared(cluster, target).await?))
    };
    let done: Result<(u64, Counts)> = tokio::select! {
        done = last => done,
        error = keep(cluster, hold) => Err(error),
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted: the cluster goes on as it was")),
    };
    let (late, counts) = match done {
        Ok(done) => done,
        Err(error) => {
            let _ = cluster.ask(AdminQuery::Hold { hold, ms: 0 }).await;
            return Err(error);
        }
    };
    // Once: a second attempt would meet a server that has ended.
    let leave = cluster.call(AdminQuery::MoveAway { hold, to: to.to_string() }, Manner::Once).await;
    leave.map_err(|error| {
        anyhow!(
            "it is not known whether the old metadata server has ended: {error:#}. If it has and does not start again, run this command \
             with --finish where its configuration is; if it serves, run the command again"
        )
    })?;
    let held = begun.elapsed();
    #[cfg(feature = "planted")]
    crate::planted::may_die_at("migrate-left");
    // Who starts the new one by what is said at the end must not meet the old one.
    let ends = Instant::now();
    while cluster.answers().await && ends.elapsed() < END_MAX {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    arrival.end().await?;
    Ok(Done { counts, copied, held, late })
}

/// Changes are held back from now on, when those that serve beside the one that leads have stopped for it.
async fn begin_hold(cluster: &Cluster) -> Result<u64> {
    let alone_max = if members::seats(cluster).await?.len() > 1 { ALONE_MAX } else { Duration::ZERO };
    let (begun, counting) = (Instant::now(), Counting::start());
    loop {
        let hold = AdminQuery::Hold { hold: 0, ms: HOLD.as_millis() as u64 };
        match cluster.call(hold, Manner::Once).await {
            Ok(AdminAnswer::Hold(hold)) => return Ok(hold),
            Ok(_) => return strange(),
            Err(error) if begun.elapsed() < alone_max && is_busy(&error) => {
                counting.of("seconds until one metadata server serves alone");
                counting.at(begun.elapsed().as_secs());
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(ALONE_AGAIN).await;
    }
}

fn is_busy(error: &anyhow::Error) -> bool {
    error.downcast_ref::<braid_api::Error>().is_some_and(|error| error.code == Code::Busy)
}

async fn pass<E: Engine>(cluster: &Cluster, target: &E, what: &str) -> Result<Counts> {
    let counting = Counting::start();
    counting.of(&format!("rows are {what}"));
    let mut rows = ServedRows::begin(cluster).await?;
    let brought = bring(&mut rows, target, |counts| counting.at(counts.rows)).await;
    rows.end().await;
    Ok(brought?)
}

async fn compared<E: Engine>(cluster: &Cluster, target: &E) -> Result<Counts> {
    let counting = Counting::start();
    counting.of("rows are compared while changes wait");
    let mut rows = ServedRows::begin(cluster).await?;
    let compared = compare(&mut rows, target, |counts| counting.at(counts.rows)).await;
    rows.end().await;
    Ok(compared?)
}

/// Says again and again that changes are to be held back; returns when that is refused.
async fn keep(cluster: &Cluster, hold: u64) -> anyhow::Error {
    loop {
        tokio::time::sleep(HOLD_AGAIN).await;
        let again = AdminQuery::Hold { hold, ms: HOLD.as_millis() as u64 };
        if let Err(error) = cluster.ask(again).await {
            return error;
        }
    }
}

async fn finish<E: Filled>(cluster: &Cluster, config: &Config, target: &E, to: &Place) -> Result<()> {
    let from = Place::of(config);
    match &from {
        Place::Dir(dir) => finish_from(&cluster.env, &target::open_dir(dir, config)?, &from, target, to).await,
        Place::Database(url) => finish_from(&cluster.env, &target::open_database(url).await?, &from, target, to).await,
    }
}

async fn finish_from<S: Engine, E: Filled>(env: &Env, source: &S, from: &Place, target: &E, to: &Place) -> Result<()> {
    match source.read(0, ReadHandover).await.map_err(refused)? {
        Some(HandoverRow::Left { to: gone, .. }) if gone == to.to_string() => {}
        Some(HandoverRow::Left { to: gone, .. }) => bail!("the metadata of {from} has gone to {gone}, and not to {to}"),
        _ => bail!("the metadata is still in {from}: start its server, and run this command without --finish"),
    }
    match target.read(0, ReadHandover).await.map_err(refused)? {
        Some(HandoverRow::Arriving { .. }) => {}
        _ => bail!("{to} does not wait for anything: it may be served already"),
    }
    let counting = Counting::start();
    counting.of("rows are compared");
    // Nobody changes what was left, so what is missing can be brought.
    let arrival = Arrival::begin(target, env, from.to_string(), false).await?;
    bring(&mut StoredRows::of(source), target, |counts| counting.at(counts.rows)).await?;
    compare(&mut StoredRows::of(source), target, |counts| counting.at(counts.rows)).await?;
    arrival.end().await
}
