//! `braid admin quota`: what users and groups may have.

use super::Cluster;
use crate::config::ByteSize;
use crate::fs::chown::{group_number, user_number};
use crate::quota::{self, Asked};
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::quota::{Limits, Payer};
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Subcommand)]
#[command(after_help = "Example:\n  braid admin quota set --user alice --bytes 10GiB")]
pub enum QuotaCommand {
    /// Limit what a user or a group has.
    #[command(after_help = "Example:\n  braid admin quota set --group staff --inodes 1000000 --bytes 2TiB")]
    Set {
        #[command(flatten)]
        whose: Whose,
        #[arg(long, required_unless_present = "bytes")]
        inodes: Option<u64>,
        /// Sizes of files, such as 500MiB or 10GiB.
        #[arg(long)]
        bytes: Option<ByteSize>,
    },
    /// Take the quota from a user or a group.
    #[command(after_help = "Example:\n  braid admin quota clear --user 1000")]
    Clear {
        #[command(flatten)]
        whose: Whose,
    },
    /// Show what users and groups have, and may have.
    #[command(after_help = "Example:\n  braid admin quota list --json")]
    List {
        /// One object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Whose {
    /// Name on this machine, or number.
    #[arg(long, value_parser = user_number)]
    user: Option<u32>,
    /// Name on this machine, or number.
    #[arg(long, value_parser = group_number)]
    group: Option<u32>,
}

impl Whose {
    fn payer(&self) -> Payer {
        match (self.user, self.group) {
            (Some(user), _) => Payer::User(user),
            (None, group) => Payer::Group(group.unwrap_or_default()),
        }
    }
}

impl Asked for Cluster {
    async fn ask(&self, query: AdminQuery) -> Result<AdminAnswer> {
        Cluster::ask(self, query).await
    }
}

impl QuotaCommand {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let (whose, limits) = match self {
            QuotaCommand::Set { whose, inodes, bytes } => {
                (whose, Some(Limits { inodes, bytes: bytes.map(|size| size.0) }))
            }
            QuotaCommand::Clear { whose } => (whose, None),
            QuotaCommand::List { json } => {
                let all = quota::accounts(cluster).await?.into_iter();
                let all = all.filter(|account| !matches!(account.payer, Payer::Dir(_)));
                let named: Vec<_> = all.map(|account| (account.payer.to_string(), account)).collect();
                quota::print(&named, "who", json)?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        cluster.ask(AdminQuery::SetQuota { payer: whose.payer(), limits }).await?;
        Ok(ExitCode::SUCCESS)
    }
}
