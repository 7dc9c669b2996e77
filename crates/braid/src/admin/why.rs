//! `braid admin why`: what waits in the metadata server, the data servers, and the mounts of this machine.

use super::status::look;
use super::{Cluster, strange};
use crate::cli::ClusterArgs;
use crate::output::{Table, millis};
use crate::roles::why::reports;
use anyhow::{Result, anyhow, bail};
use braid_api::admin::{AdminAnswer, AdminQuery, Waiting};
use braid_api::meta::Resolve;
use braid_api::{Context, Namespace};
use braid_types::{InodeId, Name};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid admin why\n  braid admin why /home/report.pdf")]
pub struct WhyArgs {
    /// Only what has to do with this file of the cluster.
    path: Option<String>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    at: String,
    #[serde(flatten)]
    waiting: Waiting,
}

impl WhyArgs {
    pub async fn run(self, cluster: &Cluster, args: &ClusterArgs) -> Result<ExitCode> {
        let wanted = match &self.path {
            Some(path) => Some(find(cluster, path).await?),
            None => None,
        };
        let mut lines = Vec::new();
        let mut add = |at: &str, list: Vec<Waiting>| {
            let fits = |w: &Waiting| wanted.is_none_or(|id| names(w, id));
            lines.extend(list.into_iter().filter(fits).map(|waiting| Line { at: at.to_owned(), waiting }));
        };
        // The mounts first: asking a server that stands still takes a while, and what waits now may be over by then.
        for (name, report) in run_dir(args).map(|run| reports(&run)).unwrap_or_default() {
            add(&format!("{name} (process {})", report.process), report.waiting);
        }
        // What hangs may be a server: the others are asked all the same.
        match cluster.ask(AdminQuery::Why).await {
            Ok(AdminAnswer::Why(list)) => add("metadata server", list),
            Ok(_) => return strange(),
            Err(e) => eprintln!("braid: {e:#}"),
        }
        match look(cluster).await {
            Ok(servers) => {
                for seen in servers {
                    let at = format!("data server {}", seen.info.id);
                    match seen.status {
                        Some(Ok(status)) => add(&at, status.waiting),
                        Some(Err(why)) => eprintln!("braid: {at}: {why}"),
                        None => eprintln!("braid: {at} is down"),
                    }
                }
            }
            Err(e) => eprintln!("braid: {e:#}"),
        }
        self.print(lines)
    }

    fn print(&self, mut lines: Vec<Line>) -> Result<ExitCode> {
        lines.sort_by_key(|line| std::cmp::Reverse(line.waiting.since_ms));
        if self.json {
            for line in &lines {
                println!("{}", serde_json::to_string(line)?);
            }
        } else if lines.is_empty() {
            println!("nothing waits");
        } else {
            let mut table = Table::new(&["since", "at", "what", "waits for"]);
            for Line { at, waiting } in lines {
                table.row([millis(waiting.since_ms), at, waiting.who, waiting.for_what]);
            }
            table.print();
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the mounts of a cluster made by `braid up` say what they wait for.
fn run_dir(args: &ClusterArgs) -> Option<PathBuf> {
    let dir = match (&args.cluster, &args.config) {
        (Some(dir), _) => dir.clone(),
        (None, Some(config)) => config.parent()?.to_owned(),
        (None, None) => PathBuf::from(std::env::var_os("BRAID_CONFIG")?).parent()?.to_owned(),
    };
    Some(dir.join("run"))
}

async fn find(cluster: &Cluster, path: &str) -> Result<InodeId> {
    if !path.starts_with('/') {
        bail!("{path}: paths of the cluster begin with /");
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let names: Vec<Name> = parts.map(str::parse).collect::<Result<_, _>>().map_err(|e| anyhow!("{path}: {e}"))?;
    let found = cluster.namespace.call(Context::default(), Resolve { from: InodeId::ROOT, path: names }).await?;
    match found.attrs.last() {
        _ if found.rest > 0 => bail!("{path}: no such file or directory"),
        None => Ok(InodeId::ROOT),
        Some(attr) => Ok(attr.id),
    }
}

/// The text speaks of the inode, and not of one whose number only begins like it.
fn names(waiting: &Waiting, id: InodeId) -> bool {
    let wanted = format!("inode {id}");
    [&waiting.who, &waiting.for_what].into_iter().any(|text| {
        text.match_indices(&wanted)
            .any(|(at, _)| !text[at + wanted.len()..].starts_with(|ch: char| ch.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_belongs_to_the_inode_it_names() {
        let waiting = |who: &str| Waiting { who: who.into(), for_what: "data server 1".into(), since_ms: 0 };
        assert!(names(&waiting("write of inode 409"), InodeId(409)));
        assert!(!names(&waiting("write of inode 4096"), InodeId(409)));
        assert!(!names(&waiting("Rename of session 3"), InodeId(3)));
    }
}
