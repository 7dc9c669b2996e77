//! `braid admin why`: what waits in the metadata server, the data servers, and the mounts of this machine.

use super::status::look;
use super::{Cluster, PATIENCE, strange};
use crate::cli::ClusterArgs;
use crate::connect::unanswered;
use crate::local::Layout;
use crate::output::{Table, brief, millis};
use crate::roles::ready;
use crate::roles::why::reports;
use anyhow::{Result, anyhow, bail};
use braid_api::admin::{AdminAnswer, AdminQuery, Waiting};
use braid_api::meta::Resolve;
use braid_api::{Code, Context, Manner, Namespace};
use braid_types::{InodeId, Name};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
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
        // One that does not run is not waited for: that is what was asked.
        let known = match cluster.call(AdminQuery::Why, Manner::Once).await {
            Ok(AdminAnswer::Why(list)) => {
                add("metadata server", list);
                look(cluster).await
            }
            Ok(_) => return strange(),
            Err(e) => Err(e),
        };
        let servers = match known {
            Ok(servers) => servers,
            Err(e) => {
                eprintln!("braid: {e:#}");
                Vec::new()
            }
        };
        let mut called = Called::default();
        for seen in servers {
            let at = format!("data server {} on {}", seen.info.id, seen.info.host);
            called.add(&format!("data server {}", seen.info.id), &at, &seen.info.addresses);
            match seen.status {
                Some(Ok(status)) => add(&at, status.waiting),
                Some(Err(why)) => eprintln!("braid: {at}: {why}"),
                None => eprintln!("braid: {at} is down"),
            }
        }
        if let (true, Some(run)) = (called.0.is_empty(), run_dir(args)) {
            called.add_local(&run);
        }
        for line in &mut lines {
            line.waiting.who = called.told(&line.waiting.who);
            line.waiting.for_what = called.told(&line.waiting.for_what);
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

/// What people call data servers that a message names by an address.
#[derive(Default)]
struct Called(Vec<Alias>);

struct Alias {
    address: String,
    /// `data server 2`, as messages have it before the address.
    short: String,
    name: String,
}

impl Called {
    fn add(&mut self, short: &str, name: &str, addresses: &[String]) {
        let alias = |address: &String| Alias { address: address.clone(), short: short.into(), name: name.into() };
        self.0.extend(addresses.iter().map(alias));
    }

    /// Those of this machine, by what `braid up` calls them, where the metadata server cannot be asked.
    fn add_local(&mut self, run: &Path) {
        let Some(layout) = run.parent().and_then(|dir| Layout::at(dir, false).ok()) else { return };
        for name in layout.names().unwrap_or_default().iter().filter(|name| name.starts_with("data-")) {
            let line = ready::read(&layout.ready(name)).unwrap_or_default();
            let addresses: Vec<String> = line.split(' ').map(str::to_owned).collect();
            self.add("data server", name, &addresses);
        }
    }

    /// The text with names for addresses.
    fn told(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, Alias { address, short, name }| {
            let text = replaced(&text, &format!(" or {address}"), "");
            let text = replaced(&text, &format!("{short} at {address}"), name);
            let text = replaced(&text, &format!("data server at {address}"), name);
            let text = replaced(&text, &format!(" at {address}"), &format!(" ({name})"));
            replaced(&text, address, name)
        })
    }
}

/// As `str::replace`, but not where `from` is only the beginning of a longer address.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(from).filter(|_| !from.is_empty()) {
        told.push_str(before);
        told.push_str(if behind.starts_with(|ch: char| ch.is_ascii_alphanumeric()) { from } else { to });
        rest = behind;
    }
    told + rest
}

async fn find(cluster: &Cluster, path: &str) -> Result<InodeId> {
    if !path.starts_with('/') {
        bail!("{path}: paths of the cluster begin with /");
    }
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let names: Vec<Name> = parts.map(str::parse).collect::<Result<_, _>>().map_err(|e| anyhow!("{path}: {e}"))?;
    let cx = Context { deadline: PATIENCE, manner: Manner::Once, ..Context::default() };
    let found = cluster.namespace.call(cx, Resolve { from: InodeId::ROOT, path: names }).await;
    let found = found.map_err(|error| match error.code {
        Code::Unreachable => unanswered(&cluster.config, &error, cluster.dir.as_deref()),
        _ => anyhow!("{path}: {}", brief(&error)),
    })?;
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
    fn data_servers_are_called_by_their_names() {
        let mut called = Called::default();
        called.add("data server 1", "data server 1 on h", &["unix:/c/data-1.sock".into(), "tcp:127.0.0.1:3544".into()]);
        called.add("data server 2", "data server 2 on h", &["tcp:127.0.0.1:35449".into()]);
        for (text, told) in [
            ("tcp:127.0.0.1:35449", "data server 2 on h"),
            ("tcp:127.0.0.1:3544: refused", "data server 1 on h: refused"),
            ("data server 1 at unix:/c/data-1.sock or tcp:127.0.0.1:3544: gone", "data server 1 on h: gone"),
            ("data server at tcp:127.0.0.1:35449", "data server 2 on h"),
            ("tcp:127.0.0.1:354490", "tcp:127.0.0.1:354490"),
            ("data server 3 at tcp:127.0.0.1:35449", "data server 3 (data server 2 on h)"),
        ] {
            assert_eq!(called.told(text), told);
        }
    }

    #[test]
    fn a_wait_belongs_to_the_inode_it_names() {
        let waiting = |who: &str| Waiting { who: who.into(), for_what: "data server 1".into(), since_ms: 0 };
        assert!(names(&waiting("write of inode 409"), InodeId(409)));
        assert!(!names(&waiting("write of inode 4096"), InodeId(409)));
        assert!(!names(&waiting("Rename of session 3"), InodeId(3)));
    }
}
