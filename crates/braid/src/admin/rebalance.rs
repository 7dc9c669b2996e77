//! `braid admin rebalance`: evens out how full data servers are.

use super::{Cluster, strange};
use crate::config::ByteSize;
use crate::fs::progress::Stage;
use crate::output::{Table, bytes};
use anyhow::{Result, bail};
use braid_api::admin::{
    AdminAnswer, AdminQuery, CopyMove, Rebalance, RebalanceChange, RebalanceState, ServerFill, ShiftLeft,
};
use clap::Args;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "\
Each server is to have its share: of all bytes of chunks as large a part as its disk is of all disks. Copies of containers move from those
that have more to those that have less, never nearer to other copies than they were (rack, host, disk), and farther apart where racks or
hosts came later; then chunks with one copy, each by itself. A copy is deleted only when the new one was read back and matches its checksums.
It goes on without this command, and over restarts, and ends by itself. While a server is drained it waits.
Exit code: 0 done (or as asked), 1 some server is not within its share and nothing more can be done.
Examples:
  braid admin rebalance --plan
  braid admin rebalance --within 10 --rate 20MiB
  braid admin rebalance --pause")]
pub struct RebalanceArgs {
    /// Say what would be done, and do nothing.
    #[arg(long, conflicts_with_all = ["pause", "resume", "cancel", "rate", "no_wait"])]
    plan: bool,
    /// Nothing moves for now.
    #[arg(long, conflicts_with_all = ["resume", "cancel", "within"])]
    pause: bool,
    /// Go on after --pause.
    #[arg(long, conflicts_with = "cancel")]
    resume: bool,
    /// Give it up. What was moved stays where it is.
    #[arg(long, conflicts_with = "within")]
    cancel: bool,
    /// How far from its share a server may be, in percent of it [default: 5, or what the one under way has].
    #[arg(long, value_name = "PERCENT")]
    within: Option<f64>,
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
/// The rate that is shown is that of the last so many looks.
const RATE_LOOKS: usize = 10;

impl RebalanceArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        super::drain::check_rate(self.rate)?;
        let within_permille = self.within.map(permille).transpose()?;
        if self.plan {
            let seen = look(cluster, within_permille).await?;
            self.print(&seen, true)?;
            return Ok(ExitCode::SUCCESS);
        }
        let change = match (self.pause, self.resume, self.cancel) {
            (true, _, _) => RebalanceChange::Pause,
            (_, true, _) => RebalanceChange::Resume,
            (_, _, true) => RebalanceChange::Cancel,
            _ => RebalanceChange::Run,
        };
        let seen = set(cluster, change, within_permille, self.rate).await?;
        let waits = seen.state == RebalanceState::Runs && !self.no_wait;
        let seen = if waits { wait(cluster, seen).await? } else { seen };
        self.print(&seen, false)?;
        let fell_short = waits && seen.state == RebalanceState::Done && seen.fills.iter().any(|fill| !fill.is_even);
        Ok(u8::from(fell_short).into())
    }

    /// Evens out, to the end.
    pub async fn to_the_end(cluster: &Cluster) -> Result<()> {
        let seen = set(cluster, RebalanceChange::Run, None, None).await?;
        print(&wait(cluster, seen).await?, false);
        Ok(())
    }

    fn print(&self, seen: &Rebalance, is_plan: bool) -> Result<()> {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&json(seen))?),
            false => print(seen, is_plan),
        }
        Ok(())
    }
}

fn permille(percent: f64) -> Result<u32> {
    if !(0.1..=100.0).contains(&percent) {
        bail!("--within {percent}: 0.1 to 100 percent");
    }
    Ok((percent * 10.0).round() as u32)
}

async fn set(
    cluster: &Cluster,
    change: RebalanceChange,
    within_permille: Option<u32>,
    rate: Option<ByteSize>,
) -> Result<Rebalance> {
    let set = AdminQuery::SetRebalance { change, within_permille, move_rate: rate.map(|rate| rate.0) };
    let AdminAnswer::SetRebalance(seen) = cluster.ask(set).await? else { return strange() };
    Ok(*seen)
}

pub async fn look(cluster: &Cluster, within_permille: Option<u32>) -> Result<Rebalance> {
    let query = AdminQuery::Rebalance { within_permille };
    let AdminAnswer::Rebalance(seen) = cluster.ask(query).await? else { return strange() };
    Ok(*seen)
}

/// Until it is done, or somebody pauses or cancels it.
async fn wait(cluster: &Cluster, mut seen: Rebalance) -> Result<Rebalance> {
    let stage = Stage::start();
    let mut looks: VecDeque<(Instant, u64)> = VecDeque::new();
    while seen.state == RebalanceState::Runs {
        looks.push_back((Instant::now(), done_bytes(&seen)));
        if looks.len() > RATE_LOOKS {
            looks.pop_front();
        }
        stage.says(&progress(&seen, rate(&looks)));
        tokio::time::sleep(EVERY).await;
        seen = look(cluster, None).await?;
    }
    Ok(seen)
}

fn there(seen: &Rebalance) -> u64 {
    seen.moving.iter().map(|it| it.bytes_there).sum()
}

fn done_bytes(seen: &Rebalance) -> u64 {
    seen.moved.bytes + there(seen)
}

/// Of chunks with one copy that are still to go.
fn shift_bytes(seen: &Rebalance) -> u64 {
    seen.shifts.iter().map(|it| it.bytes).sum()
}

/// Bytes a second between the first and the last look.
fn rate(looks: &VecDeque<(Instant, u64)>) -> u64 {
    let (Some((from, first)), Some((to, last))) = (looks.front(), looks.back()) else { return 0 };
    let seconds = to.duration_since(*from).as_secs_f64();
    if seconds > 0.0 { (last.saturating_sub(*first) as f64 / seconds) as u64 } else { 0 }
}

fn progress(seen: &Rebalance, rate: u64) -> String {
    if !seen.waits_for.is_empty() && seen.moving.is_empty() {
        return format!("rebalance: waits for {}", seen.waits_for);
    }
    let moving: u64 = seen.moving.iter().map(|it| it.bytes).sum();
    let all = seen.moved.bytes + moving + seen.left.bytes + shift_bytes(seen);
    format!(
        "rebalance: {} of {} moved, {} copies left, {} are moving, {}/s",
        bytes(done_bytes(seen)),
        bytes(all),
        seen.left.copies,
        seen.moving.len(),
        bytes(rate)
    )
}

/// Of its capacity, in percent.
fn full(fill: &ServerFill, held: u64) -> String {
    format!("{:.1}", held as f64 * 100.0 / fill.capacity.max(1) as f64)
}

fn print(seen: &Rebalance, is_plan: bool) {
    println!("rebalance: {}", seen.state);
    if !seen.waits_for.is_empty() {
        println!("waits for {}", seen.waits_for);
    }
    let mut table = Table::new(&["server", "capacity", "now", "% full", "then", "% full", "share"]);
    for fill in &seen.fills {
        table.row([
            fill.server.to_string(),
            bytes(fill.capacity),
            bytes(fill.bytes_now),
            full(fill, fill.bytes_now),
            bytes(fill.bytes_then),
            full(fill, fill.bytes_then),
            bytes(fill.bytes_fair),
        ]);
    }
    table.print();
    let named = seen.moving.iter().map(|it| (it, "moving")).chain(seen.planned.iter().map(|it| (it, "planned")));
    let named: Vec<(&CopyMove, &str)> = named.collect();
    if !named.is_empty() && (is_plan || seen.state != RebalanceState::Done) {
        println!();
        let mut table = Table::new(&["container", "from", "to", "bytes", "there", "what"]);
        for (it, what) in &named {
            let what = if it.spreads { format!("{what}, farther apart") } else { (*what).to_owned() };
            let bytes = [bytes(it.bytes), bytes(it.bytes_there)];
            let [all, there] = bytes;
            table.row([it.container.to_string(), it.from.to_string(), it.to.to_string(), all, there, what]);
        }
        table.print();
        let more = seen.left.copies.saturating_sub(seen.planned.len() as u64);
        if more > 0 {
            println!("and {more} more");
        }
    }
    if !seen.shifts.is_empty() {
        println!();
        let mut table = Table::new(&["chunks with one copy", "to", "bytes"]);
        for it in &seen.shifts {
            table.row([format!("from {}", it.from), it.to.to_string(), bytes(it.bytes)]);
        }
        table.print();
    }
    println!();
    if seen.state != RebalanceState::Off {
        println!("moved: {} copies of containers and chunks, {}", seen.moved.copies, bytes(seen.moved.bytes));
    }
    println!(
        "to move: {} copies of containers, {}, and {} of chunks with one copy",
        seen.left.copies,
        bytes(seen.left.bytes),
        bytes(shift_bytes(seen))
    );
    let percent = f64::from(seen.within_permille) / 10.0;
    let uneven: Vec<String> =
        seen.fills.iter().filter(|fill| !fill.is_even).map(|fill| fill.server.to_string()).collect();
    match uneven.is_empty() {
        true => println!("then each server is within {percent} % of its share"),
        false => println!(
            "then not within {percent} % of their share: {}; each copy that could go is too large, or would come nearer to another",
            uneven.join(", ")
        ),
    }
    println!("moves: {} a second in all", bytes(seen.move_rate));
}

fn json(seen: &Rebalance) -> serde_json::Value {
    let copy = |it: &CopyMove| {
        serde_json::json!({
            "container": it.container.0,
            "from": it.from.0,
            "to": it.to.0,
            "bytes": it.bytes,
            "bytes_there": it.bytes_there,
            "spreads": it.spreads,
        })
    };
    let fill = |fill: &ServerFill| {
        serde_json::json!({
            "server": fill.server.0,
            "capacity": fill.capacity,
            "bytes_now": fill.bytes_now,
            "bytes_then": fill.bytes_then,
            "bytes_fair": fill.bytes_fair,
            "even": fill.is_even,
        })
    };
    let shift = |it: &ShiftLeft| serde_json::json!({ "from": it.from.0, "to": it.to.0, "bytes": it.bytes });
    let moves = |it: &braid_api::admin::Moves| serde_json::json!({ "copies": it.copies, "bytes": it.bytes });
    serde_json::json!({
        "state": state_word(seen.state),
        "waits_for": seen.waits_for,
        "within_percent": f64::from(seen.within_permille) / 10.0,
        "servers": seen.fills.iter().map(fill).collect::<Vec<_>>(),
        "planned": seen.planned.iter().map(copy).collect::<Vec<_>>(),
        "moving": seen.moving.iter().map(copy).collect::<Vec<_>>(),
        "left": moves(&seen.left),
        "chunks": seen.shifts.iter().map(shift).collect::<Vec<_>>(),
        "moved": moves(&seen.moved),
        "move_bytes_per_s": seen.move_rate,
    })
}

/// For scripts.
fn state_word(state: RebalanceState) -> &'static str {
    match state {
        RebalanceState::Off => "off",
        RebalanceState::Runs => "running",
        RebalanceState::Paused => "paused",
        RebalanceState::Done => "done",
    }
}
