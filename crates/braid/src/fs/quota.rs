//! `braid fs quota`: what a directory and all that is below it may have.

use super::attributes::print_json;
use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use crate::config::ByteSize;
use crate::output;
use crate::quota::{self, Asked};
use anyhow::{Result, anyhow, bail};
use braid_api::admin::{AdminAnswer, AdminQuery, PathEnd};
use braid_api::quota::{Account, Limits, Payer};
use braid_types::InodeId;
use clap::{ArgGroup, Subcommand};
use std::process::ExitCode;

#[derive(Subcommand)]
#[command(after_help = "Example:\n  braid fs quota set /projects --bytes 10GiB")]
pub enum QuotaCommand {
    /// Limit what a directory has, with all that is below it, or count it from now on.
    #[command(
        after_help = "Examples:\n  braid fs quota set /projects --inodes 100000 --bytes 10GiB\n  braid fs quota set /projects/one --unlimited"
    )]
    #[command(group = ArgGroup::new("limits").args(["inodes", "bytes", "unlimited"]).required(true).multiple(true))]
    Set {
        dir: ClusterPath,
        /// Files, directories and whatever else has an inode, the directory itself among them.
        #[arg(long)]
        inodes: Option<u64>,
        /// Sizes of files, such as 500MiB or 10GiB.
        #[arg(long)]
        bytes: Option<ByteSize>,
        /// Refuse nothing: what the directory has is only counted, so that `get` and `braid fs summary` know it at once, whatever its size.
        #[arg(long, conflicts_with_all = ["inodes", "bytes"])]
        unlimited: bool,
    },
    /// Show what a directory with a quota has, and may have.
    #[command(after_help = "Example:\n  braid fs quota get /projects")]
    Get {
        #[arg(required = true)]
        dirs: Vec<ClusterPath>,
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
    /// Take the quota from a directory.
    #[command(after_help = "Example:\n  braid fs quota clear /projects")]
    Clear { dir: ClusterPath },
    /// Show all directories with quotas.
    #[command(after_help = "Example:\n  braid fs quota list --json")]
    List {
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
}

/// The administrator's questions, asked by a session.
pub struct ByClient<'s, F>(pub &'s Session<F>);

impl<F: Paths> Asked for ByClient<'_, F> {
    async fn ask(&self, query: AdminQuery) -> Result<AdminAnswer> {
        self.0.fs.admin(query).await.map_err(|e| anyhow!("{}", brief(&e)))
    }
}

impl QuotaCommand {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let asked = ByClient(s);
        match self {
            QuotaCommand::Set { dir, inodes, bytes, unlimited: _ } => {
                // Neither: as much as there is.
                let limits = Limits { inodes, bytes: bytes.map(|size| size.0) };
                change(s, &dir, Some(limits)).await?;
            }
            QuotaCommand::Clear { dir } => change(s, &dir, None).await?,
            QuotaCommand::Get { dirs, json } => {
                let mut found = Vec::new();
                for dir in &dirs {
                    match get(s, dir).await {
                        Ok(account) => found.push((dir.to_string(), account)),
                        Err(e) => s.note(&e),
                    }
                }
                quota::print(&found, "directory", json)?;
                return Ok(s.exit_code());
            }
            QuotaCommand::List { json } => {
                let mut found = Vec::new();
                for account in quota::accounts(&asked).await? {
                    let (Payer::Dir(id), true) = (account.payer, account.limits.is_some()) else { continue };
                    found.push((path_of(&asked, id).await?, account));
                }
                quota::print(&found, "directory", json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn change<F: Paths>(s: &Session<F>, dir: &ClusterPath, limits: Option<Limits>) -> Result<()> {
    let payer = Payer::Dir(s.find_dir(dir).await?.id);
    let set = s.fs.admin(AdminQuery::SetQuota { payer, limits }).await;
    set.map(drop).map_err(|e| anyhow!("{dir}: {}", brief(&e)))
}

async fn get<F: Paths>(s: &Session<F>, dir: &ClusterPath) -> Result<Account> {
    let id = s.find_dir(dir).await?.id;
    let account = quota::account(&ByClient(s), Payer::Dir(id)).await.map_err(|e| anyhow!("{dir}: {e}"))?;
    if account.limits.is_none() && account.counting.is_none() && id != InodeId::ROOT {
        bail!("{dir}: it has no quota of its own");
    }
    Ok(account)
}

/// As people read it.
pub async fn path_of(asked: &impl Asked, id: InodeId) -> Result<String> {
    let AdminAnswer::PathOf(found) = asked.ask(AdminQuery::PathOf { id }).await? else { return quota::strange() };
    let names: Vec<String> = found.names.iter().map(|name| output::shown(name)).collect();
    Ok(match found.end {
        PathEnd::Root => format!("/{}", names.join("/")),
        _ => format!("(inode {id}, which is being removed)"),
    })
}

/// What a tree has, counted by the server; of a directory with a quota it is known.
pub async fn summary<F: Paths>(s: &Session<F>, path: &ClusterPath, json: bool) -> Result<()> {
    let top = s.find_dir(path).await?.id;
    let asked = ByClient(s);
    let account = quota::account(&asked, Payer::Dir(top)).await?;
    let known = account.counting.is_none() && (account.limits.is_some() || top == InodeId::ROOT);
    let shown = if known { quota::Sum::known(&account) } else { quota::sum_up(&asked, top).await? };
    if json {
        return print_json(&shown.of(path));
    }
    shown.print(path);
    Ok(())
}
