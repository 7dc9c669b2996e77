//! `braid fs summary`.

use super::path::ClusterPath;
use super::quota::summary;
use super::session::{Paths, Session};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs summary /projects")]
pub struct SummaryArgs {
    #[arg(default_value = "/")]
    paths: Vec<ClusterPath>,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

impl SummaryArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = summary(s, path, self.json).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }
}
