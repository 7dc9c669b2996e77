//! `braid fs`: work on files without a mount.

use crate::cli::ClusterArgs;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub struct FsArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl FsArgs {
    pub fn run(self) -> Result<ExitCode> {
        bail!("not yet")
    }
}
