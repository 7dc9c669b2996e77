//! `braid fs ln`.

use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::{NewNode, NodeKind};
use braid_types::{Mode, Name};
use bytes::Bytes;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs ln /data/set-7 /data/latest\n  braid fs ln -s set-7 /data/latest")]
pub struct LnArgs {
    /// What exists; with -s any text.
    target: OsString,
    /// The new name, or a directory for it.
    link: ClusterPath,
    /// A symbolic link.
    #[arg(short)]
    symbolic: bool,
}

impl LnArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        let target = self.target.as_bytes();
        let last = target.split(|&b| b == b'/').rfind(|part| !part.is_empty()).unwrap_or_default();
        let link = match Name::new(last) {
            Ok(name) => s.target(&self.link, Some(&name)).await?,
            Err(_) => self.link.clone(),
        };
        let (dir, name) = s.place(&link).await?;
        let made = if self.symbolic {
            let node = NewNode { kind: NodeKind::Symlink(Bytes::copy_from_slice(target)), mode: Mode(0o777) };
            s.fs.make_node(&s.caller, dir, &name, node).await
        } else {
            let existing = ClusterPath::new(target).map_err(|e| anyhow!("{}: {e}", self.target.to_string_lossy()))?;
            let attr = s.find(&existing, Last::Keep).await?;
            s.fs.link(&s.caller, attr.id, dir, &name).await
        };
        made.map_err(|e| anyhow!("{link}: {}", brief(&e)))?;
        Ok(ExitCode::SUCCESS)
    }
}
