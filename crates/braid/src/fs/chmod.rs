//! `braid fs chmod`.

use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use super::trees::change_tree;
use anyhow::{Result, anyhow};
use braid_api::SetAttr;
use braid_api::meta::TreeChange;
use braid_types::{Attr, InodeId, ModeChange};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs chmod 640 /etc/secret\n  braid fs chmod -R g+rX /projects")]
pub struct ChmodArgs {
    /// Octal, or as in g+w,o-rwx,a=rX.
    mode: ModeChange,
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// What is in directories too. It is done by the metadata servers, and goes on if the command is interrupted.
    #[arg(short = 'R')]
    recursive: bool,
}

impl ChmodArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.argument(s, path).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn argument<F: Paths>(&self, s: &Session<F>, path: &ClusterPath) -> Result<()> {
        let attr = s.find(path, Last::Follow).await?;
        if self.recursive && attr.is_dir() {
            let change = TreeChange { mode: Some(self.mode.clone()), ..TreeChange::default() };
            return change_tree(s, path, attr.id, change).await;
        }
        self.one(s, path, &attr).await
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, attr: &Attr) -> Result<()> {
        let mode = Some(self.mode.apply(attr.mode, attr.is_dir()));
        set(s, path, attr.id, SetAttr { mode, ..SetAttr::default() }).await
    }
}

pub async fn set<F: Paths>(s: &Session<F>, path: &ClusterPath, id: InodeId, change: SetAttr) -> Result<()> {
    s.fs.set_attr(&s.caller, id, None, change).await.map(drop).map_err(|e| anyhow!("{path}: {}", brief(&e)))
}
