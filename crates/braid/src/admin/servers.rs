//! `braid admin servers`.

use super::Cluster;
use super::status::{look, server_json, table};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid admin servers --json")]
pub struct ServersArgs {
    /// One object a line.
    #[arg(long)]
    json: bool,
}

impl ServersArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let servers = look(cluster).await?;
        if self.json {
            for seen in &servers {
                println!("{}", serde_json::to_string(&server_json(seen))?);
            }
        } else if servers.is_empty() {
            println!("no data servers");
        } else {
            table(&servers).print();
        }
        Ok(ExitCode::SUCCESS)
    }
}
