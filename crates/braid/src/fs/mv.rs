//! `braid fs mv`.

use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use anyhow::{Result, anyhow, bail};
use braid_api::{Code, RenameMode};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs mv /a/draft /a/final\n  braid fs mv /a/x /a/y /archive")]
pub struct MvArgs {
    #[arg(required = true)]
    from: Vec<ClusterPath>,
    /// A directory, or the new name.
    #[arg(required = true)]
    to: ClusterPath,
    /// Fail rather than replace.
    #[arg(short = 'n', conflicts_with = "exchange")]
    no_replace: bool,
    /// Let two names change places, atomically.
    #[arg(long)]
    exchange: bool,
}

impl MvArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        if self.from.len() > 1 {
            s.find_dir(&self.to).await?;
        }
        for from in &self.from {
            if let Err(e) = self.one(s, from).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, from: &ClusterPath) -> Result<()> {
        let Some((from_dir, from_name)) = from.split() else { bail!("{from}: the root directory stays") };
        let to = if self.exchange { self.to.clone() } else { target(s, &self.to, &from_name).await? };
        let from_dir = s.find_dir(&from_dir).await?.id;
        let (to_dir, to_name) = s.place(&to).await?;
        let mode = match (self.no_replace, self.exchange) {
            (true, _) => RenameMode::NoReplace,
            (_, true) => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let (from_at, to_at) = ((from_dir, &from_name), (to_dir, &to_name));
        s.fs.rename(&s.caller, from_at, to_at, mode).await.map_err(|e| match e.code {
            Code::Invalid => anyhow!("{from} to {to}: a directory cannot be moved into itself"),
            _ => anyhow!("{from} to {to}: {}", brief(&e)),
        })
    }
}

/// As [`Session::target`]; a name that does not exist yet may end with a slash, since a directory may move there.
async fn target<F: Paths>(s: &Session<F>, to: &ClusterPath, name: &braid_types::Name) -> Result<ClusterPath> {
    match s.find_dir(to).await {
        Ok(_) => Ok(to.join(name)),
        Err(_) => Ok(to.clone()),
    }
}
