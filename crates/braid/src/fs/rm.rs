//! `braid fs rm`.

use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief_of_tree};
use anyhow::{Result, anyhow, bail};
use braid_api::Code;
use braid_types::{InodeId, Name};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs rm -r /tmp/old")]
pub struct RmArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// Directories too, with all that is in them: out of sight at once, whatever their size, and freed behind it.
    #[arg(short)]
    recursive: bool,
    /// What does not exist is no error.
    #[arg(short)]
    force: bool,
}

impl RmArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.one(s, path).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath) -> Result<()> {
        let Some((dir, name)) = path.split() else { bail!("{path}: the root directory stays") };
        let attr = match s.find_if_there(path, Last::Keep).await? {
            Some(attr) => attr,
            None if self.force => return Ok(()),
            None => bail!("{path}: {}", Code::NotFound.text()),
        };
        let dir = s.find_dir(&dir).await?.id;
        if !attr.is_dir() {
            return unlink(s, path, dir, &name).await;
        }
        if !self.recursive {
            bail!("{path}: is a directory; -r removes it with all that is in it");
        }
        gone(path, s.fs.remove_tree(&s.caller, dir, &name).await)
    }
}

async fn unlink<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, name: &Name) -> Result<()> {
    gone(path, s.fs.unlink(&s.caller, dir, name).await)
}

/// What somebody else removed meanwhile is gone too.
fn gone(path: &ClusterPath, result: braid_api::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.code == Code::NotFound => Ok(()),
        other => other.map_err(|e| anyhow!("{path}: {}", brief_of_tree(&e))),
    }
}
