//! `braid admin`: look at a cluster, check and repair it.

use crate::cli::ClusterArgs;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub struct AdminArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl AdminArgs {
    pub fn run(self) -> Result<ExitCode> {
        bail!("not yet")
    }
}
