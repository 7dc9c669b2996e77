//! `braid fs df`.

use super::attributes::print_json;
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use crate::output::{Table, bytes};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs df\n  braid fs df /projects")]
pub struct DfArgs {
    /// Below a directory with a quota: no more than that leaves.
    #[arg(default_value = "/")]
    path: ClusterPath,
    /// An object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Space {
    bytes_total: u64,
    bytes_used: u64,
    bytes_free: u64,
    files: u64,
    files_free: u64,
}

impl DfArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let id = s.find(&self.path, Last::Follow).await?.id;
        let found = s.fs.statfs(&s.caller, id).await?;
        let used = found.bytes_total.saturating_sub(found.bytes_free);
        if self.json {
            let (files, files_free) = (found.files, found.files_free);
            let (bytes_total, bytes_free) = (found.bytes_total, found.bytes_free);
            print_json(&Space { bytes_total, bytes_used: used, bytes_free, files, files_free })?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["size", "used", "free", "used%", "files"]);
        let percent = (used * 100).div_ceil(found.bytes_total.max(1));
        table.row([
            bytes(found.bytes_total),
            bytes(used),
            bytes(found.bytes_free),
            format!("{percent}%"),
            found.files.to_string(),
        ]);
        table.print();
        Ok(ExitCode::SUCCESS)
    }
}
