//! `braid admin scrub`: the command line of [`super::scrub`].

use super::Cluster;
use super::scrub::scrub;
use crate::fs::progress::Counting;
use crate::output::bytes;
use anyhow::Result;
use braid_types::{BLOCK_BYTES, ServerId};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Exit code: 0 sound, 1 damage was found, 2 not everything could be checked.
Example:
  braid admin scrub --server 2")]
pub struct ScrubArgs {
    /// Only this data server.
    #[arg(long, value_name = "ID")]
    server: Option<u64>,
    /// An object.
    #[arg(long)]
    json: bool,
}

impl ScrubArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        cluster.reach().await?;
        let counting = Counting::start();
        counting.of("chunks verified");
        let only = self.server.map(ServerId);
        let done = scrub(&cluster.namespace, &cluster.peers, only, &|| counting.more(1)).await;
        drop(counting);
        let done = done?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&done)?);
            return Ok(done.exit_code().into());
        }
        done.damaged.iter().for_each(|damaged| println!("{}", damaged.line()));
        done.unchecked.iter().for_each(|what| println!("not checked: {what}"));
        let verdict = match done.exit_code() {
            0 => "sound".to_owned(),
            1 => format!("{} damaged chunks", done.damaged.len()),
            _ => "no damage in what could be checked".to_owned(),
        };
        println!("{verdict}: {} chunks, {} verified", done.chunks, bytes(done.blocks * BLOCK_BYTES));
        Ok(done.exit_code().into())
    }
}
