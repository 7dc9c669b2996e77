//! `braid admin sessions`.

use super::{Cluster, strange};
use crate::output::{Table, millis};
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid admin sessions")]
pub struct SessionsArgs {
    /// One object a line.
    #[arg(long)]
    json: bool,
}

impl SessionsArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let AdminAnswer::Sessions(sessions) = cluster.ask(AdminQuery::Sessions).await? else { return strange() };
        let mut table = Table::new(&["session", "epoch", "silent", "host", "description"]);
        for s in sessions {
            if self.json {
                println!("{}", serde_json::to_string(&s)?);
                continue;
            }
            table.row([
                s.session.to_string(),
                s.epoch.to_string(),
                millis(s.silent_ms),
                s.host.clone(),
                s.description.clone(),
            ]);
        }
        if !self.json {
            table.print();
        }
        Ok(ExitCode::SUCCESS)
    }
}
