//! `braid admin decommission`: drains a data server to the end, and forgets it.

use super::drain::{self, DrainArgs};
use super::{Cluster, strange};
use crate::config::ByteSize;
use crate::local::Layout;
use crate::local::servers::{self, Own};
use anyhow::{Result, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::Duty;
use braid_types::ServerId;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
The server is drained first, if it is not yet. Then its id is never used again, and its directory is refused; the process can
be stopped and the disk taken out. Refused as long as anything counts the server, so the last copy of something is never lost.
While it is drained it may be paused and gone on with by `braid admin drain`.
Examples:
  braid admin decommission 2 --plan
  braid admin decommission 2 --rate 20MiB")]
pub struct DecommissionArgs {
    /// The data server's number, of `braid admin servers`.
    #[arg(value_name = "SERVER")]
    server: u64,
    /// Say what the drain would do, and do nothing.
    #[arg(long, conflicts_with = "rate")]
    plan: bool,
    /// Bytes a second for all moves of the cluster together, from now on: 500KiB, 20MiB, 1GiB.
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
    /// An object.
    #[arg(long)]
    json: bool,
}

impl DecommissionArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let server = ServerId(self.server);
        drain::check_rate(self.rate)?;
        let seen = drain::look(cluster, server).await?;
        if self.plan {
            return drain::show_plan(&seen, self.json);
        }
        if seen.duty == Duty::Paused {
            bail!("the drain of data server {server} is paused: braid admin drain {server} --resume");
        }
        if seen.duty != Duty::Drained {
            let left = DrainArgs::to_the_end(cluster, server, self.rate).await?;
            if left.duty != Duty::Drained {
                left.reasons.iter().for_each(|reason| eprintln!("cannot move: {reason}"));
                bail!("data server {server} is {}, with {} containers left: it stays", left.duty, left.left.containers);
            }
        }
        // Its vote about the metadata is taken back within a second or so: until then it is busy, and asked again.
        let move_rate = self.rate.map(|rate| rate.0);
        let set = AdminQuery::SetDuty { server, duty: Duty::Decommissioned, move_rate };
        let AdminAnswer::SetDuty(_) = cluster.ask(set).await? else { return strange() };
        forget_here(cluster, server);
        match self.json {
            true => println!("{}", serde_json::json!({ "server": server.0, "duty": "decommissioned" })),
            false => {
                println!("data server {server} is decommissioned: its process may be stopped, its directory removed")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// In a cluster of this machine: the next `braid up` does not start it.
fn forget_here(cluster: &Cluster, server: ServerId) {
    let Some(layout) = cluster.dir.as_deref().and_then(|dir| Layout::at(dir, false).ok()) else { return };
    let Some(name) = servers::with_id(&layout, server) else { return };
    let own = Own::read(&layout, &name).map(|own| Own { decommissioned: true, ..own });
    if let Err(error) = own.and_then(|own| own.write(&layout, &name)) {
        eprintln!("note: the next braid up tries to start {name}: {error:#}");
    }
}
