//! `braid admin drain`: empties a data server, and says how far that is.

use super::{Cluster, strange};
use crate::config::ByteSize;
use crate::fs::progress::Stage;
use crate::output::{Table, bytes};
use anyhow::{Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery, Drain, Load};
use braid_api::meta::Duty;
use braid_types::ServerId;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "\
What is on the server goes to others, a few containers at a time, while everything can be read and written. A copy is deleted
only when the new one was read back and matches its checksums. It goes on without this command, and over restarts.
Exit code: 0 done (or as asked), 1 something cannot go anywhere.
Examples:
  braid admin drain 2 --plan
  braid admin drain 2 --rate 20MiB
  braid admin drain 2 --pause")]
pub struct DrainArgs {
    /// The data server's number, of `braid admin servers`.
    #[arg(value_name = "SERVER")]
    server: u64,
    /// Say what would be done, and do nothing.
    #[arg(long, conflicts_with_all = ["pause", "resume", "cancel", "rate", "no_wait"])]
    plan: bool,
    /// What is there stays for now; still nothing new goes there.
    #[arg(long, conflicts_with_all = ["resume", "cancel"])]
    pause: bool,
    /// Go on after --pause.
    #[arg(long, conflicts_with = "cancel")]
    resume: bool,
    /// Give it up: the server serves as before, also after it was drained. What was moved stays where it is.
    #[arg(long)]
    cancel: bool,
    /// Bytes a second for all moves of the cluster together, from now on: 500KiB, 20MiB, 1GiB.
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
    /// Begin, and do not wait for the end.
    #[arg(long)]
    no_wait: bool,
    /// An object, of how it stands in the end.
    #[arg(long)]
    json: bool,
}

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// So often in a row nothing more can move before that is told: a server may be on its way back.
const STUCK_LOOKS: u32 = 10;
/// Below it nothing would get on.
const RATE_MIN: u64 = 64 << 10;

impl DrainArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let server = ServerId(self.server);
        check_rate(self.rate)?;
        if self.plan {
            let drain = look(cluster, server).await?;
            return show_plan(&drain, self.json);
        }
        let duty = match (self.pause, self.cancel) {
            (true, _) => Duty::Paused,
            (_, true) => Duty::Serves,
            _ => Duty::Drains,
        };
        if self.resume && look(cluster, server).await?.duty == Duty::Serves {
            bail!("data server {server} is not being drained: there is nothing to resume");
        }
        let set = AdminQuery::SetDuty { server, duty, move_rate: self.rate.map(|rate| rate.0) };
        let AdminAnswer::SetDuty(drain) = cluster.ask(set).await? else { return strange() };
        let mut drain = *drain;
        if duty == Duty::Drains && !self.no_wait {
            drain = wait(cluster, drain).await?;
        }
        show(&drain, self.json)?;
        let is_stuck = duty == Duty::Drains && !self.no_wait && drain.duty != Duty::Drained;
        Ok(u8::from(is_stuck).into())
    }

    /// Drains it, for as long as that gets on.
    pub async fn to_the_end(cluster: &Cluster, server: ServerId, rate: Option<ByteSize>) -> Result<Drain> {
        let set = AdminQuery::SetDuty { server, duty: Duty::Drains, move_rate: rate.map(|rate| rate.0) };
        let AdminAnswer::SetDuty(drain) = cluster.ask(set).await? else { return strange() };
        wait(cluster, *drain).await
    }
}

fn show(drain: &Drain, as_json: bool) -> Result<()> {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(&json(drain))?),
        false => print(drain),
    }
    Ok(())
}

/// What would be done; 1 if something cannot go anywhere.
pub fn show_plan(drain: &Drain, as_json: bool) -> Result<ExitCode> {
    show(drain, as_json)?;
    Ok(u8::from(drain.stuck.containers > 0).into())
}

/// Of all moves.
pub fn check_rate(rate: Option<ByteSize>) -> Result<()> {
    match rate.filter(|rate| rate.0 < RATE_MIN) {
        Some(rate) => bail!("--rate {rate}: at least 64KiB a second; to stop for a while: --pause"),
        None => Ok(()),
    }
}

pub async fn look(cluster: &Cluster, server: ServerId) -> Result<Drain> {
    let AdminAnswer::Drain(drain) = cluster.ask(AdminQuery::Drain { server }).await? else { return strange() };
    Ok(*drain)
}

/// Until it is done, somebody pauses or cancels it, or nothing more can move.
async fn wait(cluster: &Cluster, mut drain: Drain) -> Result<Drain> {
    let stage = Stage::start();
    let all = drain.left;
    let (mut stuck, mut least) = (0, drain.left);
    while drain.duty == Duty::Drains && stuck < STUCK_LOOKS {
        stage.says(&progress(all, &drain));
        tokio::time::sleep(EVERY).await;
        drain = look(cluster, drain.server).await?;
        let is_stuck = drain.left.containers > 0 && drain.stuck.containers == drain.left.containers;
        stuck = if is_stuck && drain.left.containers >= least.containers { stuck + 1 } else { 0 };
        least = drain.left;
    }
    Ok(drain)
}

fn progress(all: Load, drain: &Drain) -> String {
    let Drain { server, left, moving, stuck, .. } = drain;
    let mut text = format!(
        "data server {server}: {} of {} containers left, {} chunks, {}; {} are moving",
        left.containers,
        all.containers.max(left.containers),
        left.chunks,
        bytes(left.bytes),
        moving.containers
    );
    if stuck.containers > 0 {
        text.push_str(&format!(", {} cannot", stuck.containers));
    }
    if left.containers == 0 {
        let what = match (drain.strays, drain.keeps_metadata) {
            (_, true) => "its copy of the metadata moves",
            (true, _) => "old copies are being deleted",
            _ => "nearly done",
        };
        text = format!("data server {server}: {what}");
    }
    text
}

fn print(drain: &Drain) {
    let Drain { server, duty, left, stuck, moving, .. } = drain;
    println!("data server {server}: {duty}");
    if !drain.is_known && left.containers > 0 {
        println!("it does not say what it holds: chunks and bytes are not known");
    }
    let mut table = Table::new(&["what", "containers", "chunks", "bytes"]);
    let mut row = |what: String, load: &Load| {
        table.row([what, load.containers.to_string(), load.chunks.to_string(), bytes(load.bytes)]);
    };
    row("still there".to_owned(), left);
    row("moving now".to_owned(), moving);
    drain.takers.iter().for_each(|taker| row(format!("to data server {}", taker.server), &taker.load));
    row("cannot move".to_owned(), stuck);
    table.print();
    drain.reasons.iter().for_each(|reason| println!("cannot move: {reason}"));
    if stuck.containers > drain.reasons.len() as u64 {
        println!("cannot move: and {} more", stuck.containers - drain.reasons.len() as u64);
    }
    if drain.keeps_metadata {
        println!("it keeps a copy of the metadata");
    }
    if drain.strays {
        println!("it may have copies that nobody needs any more: they are deleted when the others are whole");
    }
    println!("moves: {} a second in all", bytes(drain.move_rate));
}

fn json(drain: &Drain) -> serde_json::Value {
    let load =
        |load: &Load| serde_json::json!({ "containers": load.containers, "chunks": load.chunks, "bytes": load.bytes });
    let taker =
        |taker: &braid_api::admin::Taker| serde_json::json!({ "server": taker.server.0, "load": load(&taker.load) });
    serde_json::json!({
        "server": drain.server.0,
        "duty": duty_word(drain.duty),
        "done": drain.is_done(),
        "known": drain.is_known,
        "left": load(&drain.left),
        "moving": load(&drain.moving),
        "stuck": load(&drain.stuck),
        "reasons": drain.reasons,
        "takers": drain.takers.iter().map(taker).collect::<Vec<_>>(),
        "strays": drain.strays,
        "keeps_metadata": drain.keeps_metadata,
        "move_bytes_per_s": drain.move_rate,
    })
}

/// For scripts.
pub fn duty_word(duty: Duty) -> &'static str {
    match duty {
        Duty::Serves => "serves",
        Duty::Drains => "draining",
        Duty::Paused => "paused",
        Duty::Drained => "drained",
        Duty::Decommissioned => "decommissioned",
    }
}
