//! `braid fs mkdir`.

use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::{Code, NewNode, NodeKind};
use braid_types::Mode;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs mkdir -p /projects/2026/data")]
pub struct MkdirArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// Directories above too; one that exists is fine.
    #[arg(short)]
    parents: bool,
}

impl MkdirArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            let done = if self.parents { make_all(s, path).await } else { make(s, path, false).await };
            if let Err(e) = done {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }
}

async fn make_all<F: Paths>(s: &Session<F>, path: &ClusterPath) -> Result<()> {
    // From the end up to what exists, then down again: one message if all but the last exist.
    let mut missing = Vec::new();
    let mut at = path.clone();
    while s.find_dir(&at).await.is_err() {
        let Some((above, _)) = at.split() else { break };
        missing.push(std::mem::replace(&mut at, above));
    }
    for path in missing.iter().rev() {
        make(s, path, true).await?;
    }
    Ok(())
}

async fn make<F: Paths>(s: &Session<F>, path: &ClusterPath, may_exist: bool) -> Result<()> {
    let (dir, name) = s.place(path).await?;
    let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o777) };
    match s.fs.make_node(&s.caller, dir, &name, node).await {
        Ok(_) => Ok(()),
        // Somebody else made it first; a file in its place is an error.
        Err(e) if e.code == Code::Exists && may_exist => s.find_dir(path).await.map(drop),
        Err(e) => Err(anyhow!("{path}: {}", brief(&e))),
    }
}
