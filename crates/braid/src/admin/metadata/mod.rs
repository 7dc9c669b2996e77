//! `braid admin metadata`: the rows as a whole. Recovered from their copies, saved in a file and fetched back, brought to another store.

mod backup;
mod migrate;
mod recover;
mod restore;
mod rows;
mod target;

use super::{Cluster, strange};
use crate::config::Config;
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_wire::Endpoint;
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
pub struct MetadataArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch the metadata from its copies into metadata.dir, and leave the old metadata server behind.
    Recover(recover::RecoverArgs),
    /// Save all metadata of one moment in a file, while the cluster is used.
    Backup(backup::BackupArgs),
    /// Fill an empty metadata.dir or metadata.database from a backup.
    Restore(restore::RestoreArgs),
    /// Say that what was restored is right: what it does not know may be deleted from now on.
    #[command(after_help = "Example:\n  braid admin metadata confirm --cluster ./var")]
    Confirm,
    /// Bring the metadata to another store, while the cluster is used: from this machine into a database, or back.
    Migrate(migrate::MigrateArgs),
}

impl MetadataArgs {
    pub async fn run(self, cluster: &Cluster, endpoint: &Endpoint, config: &Config) -> Result<ExitCode> {
        match self.command {
            Command::Recover(args) => args.run(endpoint, config).await,
            Command::Backup(args) => args.run(cluster).await,
            Command::Restore(args) => args.run(cluster, config).await,
            Command::Confirm => confirm(cluster).await,
            Command::Migrate(args) => args.run(cluster, config).await,
        }
    }
}

async fn confirm(cluster: &Cluster) -> Result<ExitCode> {
    match cluster.ask(AdminQuery::ConfirmRestored).await? {
        AdminAnswer::ConfirmRestored(true) => println!("confirmed: what the metadata does not know may be deleted"),
        AdminAnswer::ConfirmRestored(false) => {
            println!("there was nothing to confirm: the metadata come from no backup")
        }
        _ => return strange(),
    }
    Ok(ExitCode::SUCCESS)
}
