//! `braid admin add`: a further data server for a cluster that `braid up` made; for others, what to run where.

use super::add_plan::{self, Planned};
use super::{Cluster, rebalance};
use crate::config::{NAME_MAX, is_name};
use crate::local::servers::{self, Own};
use crate::local::{Layout, metadata, process};
use crate::output::{Table, bytes};
use crate::roles::place;
use anyhow::{Context, Result, bail};
use braid_api::meta::{ServerInfo, ServerState};
use braid_types::ServerId;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(after_help = "\
The new server gets new chunks at once; what is there moves to it with --rebalance, or later by braid admin rebalance. It comes up again
with the next braid up. If it cannot be started, nothing has changed.
Examples:
  braid admin add --cluster ./var --plan
  braid admin add --cluster ./var --dir /mnt/disk2/braid --rack r2 --rebalance
  braid admin add --cluster ./var --elsewhere")]
pub struct AddArgs {
    /// Where its chunks go, an empty or a new directory; default: in the cluster's directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// So many servers.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "dir")]
    count: u32,
    /// What may fail together with it: copies are kept in different racks.
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
    /// Which disk of its host it is on, where several file systems are on one: servers that say the same are not trusted with two copies.
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,
    /// Say where they would be and what would move to them, and do nothing.
    #[arg(long, conflicts_with_all = ["rebalance", "elsewhere"])]
    plan: bool,
    /// Then even out all servers, and wait for it.
    #[arg(long)]
    rebalance: bool,
    /// Do nothing, and say what to run on another machine.
    #[arg(long, conflicts_with_all = ["count", "rebalance"])]
    elsewhere: bool,
    /// One object a server.
    #[arg(long)]
    json: bool,
}

/// It registers with its first heartbeat, and tells its room with the second.
const LIST_LIMIT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// One that is to be.
struct New {
    name: String,
    own: Own,
    dir: PathBuf,
    /// The directory was there before.
    is_old: bool,
}

impl AddArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        for (option, name) in [("--rack", &self.rack), ("--disk", &self.disk)] {
            if let Some(name) = name.as_deref().filter(|name| !is_name(name)) {
                bail!("{option} {name:?}: no name; at most {NAME_MAX} characters, and no blanks");
            }
        }
        // Whoever is to take it in must be there, whatever comes next.
        let before = cluster.servers().await?;
        if self.elsewhere {
            return self.say_elsewhere(cluster);
        }
        let Some(layout) = local(cluster) else {
            bail!(
                "this cluster was not made by braid up on this machine: braid admin add --elsewhere says what to run where the \
                 new data server is to be"
            );
        };
        let known = servers::known(&layout);
        if self.count == 0 || known + self.count > servers::MOST {
            bail!("--count {}: there are {known} data servers, {} are the most", self.count, servers::MOST);
        }
        servers::check_pages(&cluster.config, known + self.count)?;
        let new: Vec<New> =
            (known + 1..=known + self.count).map(|number| self.plan(&layout, number)).collect::<Result<_>>()?;
        if self.plan {
            let planned: Vec<Planned<'_>> =
                new.iter().map(|New { name, own, dir, .. }| Planned { name, own, dir }).collect();
            add_plan::show(cluster, &layout, &planned, self.json).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut added = Vec::new();
        for new in &new {
            let info = match self.start(cluster, &layout, new).await {
                Ok(info) => info,
                Err(error) => {
                    undo(&layout, new);
                    return Err(error);
                }
            };
            added.push((new, info));
        }
        self.print(&added)?;
        if self.rebalance {
            rebalance::RebalanceArgs::to_the_end(cluster).await?;
        } else if !self.json && !before.is_empty() {
            let seen = rebalance::look(cluster, None).await?;
            if seen.left.copies > 0 {
                println!("\n{} would move to even out: braid admin rebalance", bytes(seen.left.bytes));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Looks at everything that can be looked at before anything is made.
    fn plan(&self, layout: &Layout, number: u32) -> Result<New> {
        let name = servers::name(number);
        let dir = self.dir.as_deref().map(std::path::absolute).transpose().context("--dir is no path")?;
        let own = Own { dir, rack: self.rack.clone(), disk: self.disk.clone(), decommissioned: false };
        let dir = servers::dir(layout, &name, &own);
        place::for_data(&dir)?;
        if let Some(known) = servers::identity(&dir)? {
            bail!(
                "{} has the chunks of data server {} of cluster {}: choose an empty or a new directory",
                dir.display(),
                known.server,
                known.cluster
            );
        }
        let is_in = |above: &&Path| above.join("store.toml").exists() || above.join("data.mdb").exists();
        if let Some(above) = dir.ancestors().skip(1).find(is_in) {
            bail!("{} is inside the directory of another server ({}): choose another", dir.display(), above.display());
        }
        let is_old = dir.exists();
        Ok(New { name, own, dir, is_old })
    }

    /// Until it is in the list and says what room it has.
    async fn start(&self, cluster: &Cluster, layout: &Layout, new: &New) -> Result<ServerInfo> {
        servers::start(layout, &cluster.config, &new.name, &new.own)?;
        let id = servers::identity(&new.dir)?.map(|identity| identity.server);
        let id = id.with_context(|| format!("{} has started without an id", new.name))?;
        // From here on it has an id, and comes up again with the others.
        new.own.write(layout, &new.name)?;
        listed(cluster, id).await.with_context(|| format!("its log is {}", layout.log(&new.name).display()))
    }

    fn print(&self, added: &[(&New, ServerInfo)]) -> Result<()> {
        if self.json {
            for (new, info) in added {
                let it = serde_json::json!({
                    "server": info.id.0,
                    "name": new.name,
                    "dir": new.dir.display().to_string(),
                    "host": info.host,
                    "rack": info.rack,
                    "addresses": info.addresses,
                    "bytes_total": info.bytes_total,
                    "bytes_free": info.bytes_free,
                });
                println!("{it}");
            }
            return Ok(());
        }
        let mut table = Table::new(&["server", "name", "rack", "space", "free", "directory"]);
        for (new, info) in added {
            let rack = if info.rack.is_empty() { "-".to_owned() } else { info.rack.clone() };
            let dir = new.dir.display().to_string();
            table.row([
                info.id.to_string(),
                new.name.clone(),
                rack,
                bytes(info.bytes_total),
                bytes(info.bytes_free),
                dir,
            ]);
        }
        table.print();
        Ok(())
    }

    /// The command, with what it needs to find this cluster.
    fn say_elsewhere(&self, cluster: &Cluster) -> Result<ExitCode> {
        let mut addresses: Vec<String> = cluster.config.cluster.metadata.clone();
        // Where it really listens: a port may have been chosen by the system.
        if let Some(layout) = local(cluster)
            && let Some(line) = metadata::served_at(&layout, &cluster.config)
        {
            addresses = line.split_whitespace().map(str::to_owned).collect();
        }
        addresses.retain(|address| address.starts_with("tcp:"));
        let is_here = |address: &String| address.starts_with("tcp:127.") || address.starts_with("tcp:[::1]");
        if addresses.iter().all(is_here) {
            bail!(
                "the metadata server can be reached from this machine only: give it an address that others reach, \
                 metadata.listen = [\"tcp:HOST:7400\"], and start it again"
            );
        }
        addresses.retain(|address| !is_here(address));
        let list = addresses.iter().map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(", ");
        let dir = self.dir.as_deref().unwrap_or(Path::new("/var/lib/braid/data")).display().to_string();
        let said = |setting: &str, name: &Option<String>| {
            // TOML between quotes of the shell.
            let toml = |name: &String| toml::Value::String(name.clone()).to_string().replace('\'', r"'\''");
            let quoted = |name: &String| format!(" --set 'data.{setting}={}'", toml(name));
            name.as_ref().map(quoted).unwrap_or_default()
        };
        let names = said("rack", &self.rack) + &said("disk", &self.disk);
        println!("Run this where the data server is to be, with an address of that machine for HOST:\n");
        println!(
            "  braid serve data --set 'cluster.metadata=[{list}]' --set data.dir={dir} --set 'data.listen=[\"tcp:HOST:7401\"]'{names}"
        );
        println!("\nThen: braid admin servers, and braid admin rebalance.");
        Ok(ExitCode::SUCCESS)
    }
}

/// The directory of a cluster that runs here, made by `braid up`.
fn local(cluster: &Cluster) -> Option<Layout> {
    let layout = Layout::at(cluster.dir.as_deref()?, false).ok()?;
    metadata::any_runs(&layout, &cluster.config).then_some(layout)
}

async fn listed(cluster: &Cluster, id: ServerId) -> Result<ServerInfo> {
    let begun = Instant::now();
    while begun.elapsed() < LIST_LIMIT {
        let found = cluster.servers().await?.into_iter().find(|info| info.id == id);
        if let Some(info) = found.filter(|info| info.state == ServerState::Up && info.bytes_total > 0) {
            return Ok(info);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    bail!("data server {id} has started, and the metadata server does not hear of it within {} s", LIST_LIMIT.as_secs())
}

/// What was begun is as it was before, unless it has an id already: then it is a data server, and stays.
fn undo(layout: &Layout, new: &New) {
    if matches!(servers::identity(&new.dir), Ok(Some(_))) {
        let _ = new.own.write(layout, &new.name);
        return;
    }
    let _ = process::stop(layout, &new.name, STOP_LIMIT);
    Own::forget(layout, &new.name);
    for file in [layout.pid(&new.name), layout.ready(&new.name)] {
        let _ = std::fs::remove_file(file);
    }
    if !new.is_old {
        let _ = std::fs::remove_dir_all(&new.dir);
    }
}
