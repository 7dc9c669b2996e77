//! `braid admin why`: what waits in the metadata server, the data servers, and the mounts of this machine, and what that waits for.

mod called;
mod follow;
mod gather;
mod lines;
mod process;

use super::Cluster;
use crate::cli::ClusterArgs;
use crate::roles::{absolute, is_braid_mount};
use anyhow::{Result, bail};
use clap::Args;
use follow::{Asked, Mount, follow};
use gather::{Gathered, find};
use process::Program;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Each line is followed by what it leads to, marked with ->: a read that waits for the metadata server, which waits for another mount to
give a file up. Mounts are asked on this machine; those of others are named by the servers that wait for them.

Examples:
  braid admin why                        everything that waits
  braid admin why /home/report.pdf       what has to do with this file
  braid admin why --process 4711         what this program waits for
  braid admin why --mount /mnt/braid     what waits in this mount, and who waits for it
  braid admin why --json | jq .holder_of";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// Only what has to do with this file of the cluster.
    #[arg(conflicts_with_all = ["process", "mount"])]
    path: Option<String>,
    /// Only what this process of this machine waits for: a program that uses a mount, or a mount's own.
    #[arg(long, value_name = "PID", conflicts_with = "mount")]
    process: Option<u32>,
    /// Only what waits in the mount at this directory, and who waits for it.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// One object a line, with all that is known.
    #[arg(long)]
    json: bool,
}

impl WhyArgs {
    pub async fn run(self, cluster: &Cluster, args: &ClusterArgs) -> Result<ExitCode> {
        let program = self.process.map(Program::find).transpose()?;
        let place = self.mount.as_deref().map(mount_at).transpose()?;
        let file = match &self.path {
            Some(path) => Some(find(cluster, path).await?),
            None => None,
        };
        let mut all = Gathered::of(cluster, args).await?;
        let nodes = std::mem::take(&mut all.nodes);
        let asked = match (file, program, place) {
            (Some(file), ..) => Asked::File(file),
            (_, Some(program), _) => {
                let waits = nodes.iter().any(|node| node.waiting.process == Some(program.pid));
                match waits {
                    true => Asked::Process(program.pid),
                    false => Asked::Mounts(mounts_of(&program, &all)?),
                }
            }
            (.., Some(place)) => Asked::Mounts(vec![all.mount(&place)]),
            _ => Asked::Everything,
        };
        let found = follow(nodes, &asked);
        all.learn_paths(cluster, &found).await;
        lines::print(found, &all, self.json)
    }
}

/// Asked of the mount table alone: the mount itself may hang.
fn mount_at(dir: &Path) -> Result<PathBuf> {
    let place = absolute(dir)?;
    if !is_braid_mount(&place)? {
        bail!("{} is not a BraidFS mount", place.display());
    }
    Ok(place)
}

/// Of a program of which no request waits: the mounts in which it may have to wait for others, or that it serves.
fn mounts_of(program: &Program, all: &Gathered) -> Result<Vec<Mount>> {
    let Program { pid, name, uses, is_closed } = program;
    let served = all.served_by(*pid);
    if !served.is_empty() {
        return Ok(served);
    }
    match (uses.is_empty(), is_closed) {
        (true, true) => {
            bail!("no request of process {pid} ({name}) waits, and what it has open only its user and root may see")
        }
        (true, false) => bail!("process {pid} ({name}) uses no BraidFS mount, and no request of it waits"),
        _ => {}
    }
    let places: Vec<String> = uses.iter().map(|place| place.display().to_string()).collect();
    eprintln!("braid: no request of process {pid} ({name}) waits; it uses {}, of which this is", places.join(", "));
    Ok(uses.iter().map(|place| all.mount(place)).collect())
}
