//! `braid admin fsck`: the command line of [`super::fsck`].

use super::Cluster;
use super::fsck::{Fsck, Options};
use crate::fs::progress::Counting;
use crate::output;
use anyhow::Result;
use braid_api::admin::{AdminAnswer, AdminQuery};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Exit code: 0 clean, 1 faults are left, 2 not everything could be checked.
Examples:
  braid admin fsck                    compare all rows with all chunks of a running cluster
  braid admin fsck --repair           mend what can be mended
  braid admin fsck --metadata-only    leave out the data servers; never says \"clean\"
It reads no data: braid admin scrub does, and what it found damaged fsck reports.")]
pub struct FsckArgs {
    /// Mend what can be mended. Nothing that holds bytes of a file is dropped.
    #[arg(long)]
    repair: bool,
    /// Compare rows with rows alone, and not with the chunks at the data servers.
    #[arg(long)]
    metadata_only: bool,
    /// What is done anyhow, unless `--metadata-only` is given; for scripts of before.
    #[arg(long, hide = true, conflicts_with = "metadata_only")]
    data: bool,
    /// An object.
    #[arg(long)]
    json: bool,
}

impl FsckArgs {
    pub async fn run(self, cluster: &Cluster) -> Result<ExitCode> {
        if self.repair
            && let Ok(AdminAnswer::Status(status)) = cluster.ask(AdminQuery::Status).await
            && let Some(taken) = status.restored
        {
            // It would delete what a better backup knows.
            eprintln!(
                "braid: the metadata comes from a backup of {}: look at your files, say braid admin metadata confirm, then repair",
                output::time(taken)
            );
            return Ok(2.into());
        }
        let counting = Counting::start();
        let progress = |what: &'static str, more: u64| {
            counting.of(what);
            counting.more(more);
        };
        let check = Fsck {
            env: &cluster.env,
            namespace: &cluster.namespace,
            peers: &cluster.peers,
            options: Options { repair: self.repair, data: !self.metadata_only, ..Options::default() },
            progress: &progress,
        };
        let checked = match cluster.reach().await {
            Ok(()) => check.run().await.map_err(anyhow::Error::new),
            Err(e) => Err(e),
        };
        drop(counting);
        let report = match checked {
            Ok(report) => report,
            Err(e) => {
                eprintln!("braid: the check could not be finished: {e:#}");
                return Ok(2.into());
            }
        };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report.json())?);
        } else {
            println!("{}", report.text());
        }
        Ok(report.verdict().exit_code().into())
    }
}
