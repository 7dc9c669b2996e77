//! `braid admin containers`.

use super::{Cluster, strange};
use crate::output::{Table, bytes};
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery, ContainerStatus};
use braid_types::{ContainerId, ServerId};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid admin containers --server 2")]
pub struct ContainersArgs {
    /// Only those whose chain has this data server.
    #[arg(long, value_name = "ID")]
    server: Option<u64>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

/// Containers in one message.
const PAGE: u32 = 1024;

impl ContainersArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        let mut table = Table::new(&["container", "epoch", "layout", "chunk size", "given", "freed", "chain"]);
        let mut after = ContainerId(0);
        loop {
            let query = AdminQuery::Containers { after, limit: PAGE };
            let AdminAnswer::Containers(page) = cluster.ask(query).await? else { return strange() };
            let Some(last) = page.last() else { break };
            after = last.id;
            for container in page {
                if self.server.is_some_and(|id| !container.chain.contains(&ServerId(id))) {
                    continue;
                }
                if self.json {
                    println!("{}", serde_json::to_string(&container)?);
                } else {
                    add(&mut table, &container);
                }
            }
        }
        if !self.json {
            table.print();
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn add(table: &mut Table, container: &ContainerStatus) {
    let chain: Vec<String> = container.chain.iter().map(ToString::to_string).collect();
    table.row([
        container.id.to_string(),
        container.epoch.to_string(),
        container.layout.to_string(),
        bytes(container.chunk_bytes),
        container.chunks_given.to_string(),
        container.chunks_freed.to_string(),
        chain.join(" "),
    ]);
}
