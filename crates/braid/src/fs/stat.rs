//! `braid fs stat`.

use super::attributes::{AttrJson, print_json};
use super::path::ClusterPath;
use super::session::{Last, Paths, Session};
use crate::output::{self, shown};
use anyhow::Result;
use braid_types::FileKind;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs stat --json /home/report.pdf")]
pub struct StatArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// Follow a symbolic link at the end of a path.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// One object a line.
    #[arg(long)]
    json: bool,
}

impl StatArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.one(s, path).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn one<F: Paths>(&self, s: &Session<F>, path: &ClusterPath) -> Result<()> {
        let attr = s.find(path, if self.dereference { Last::Follow } else { Last::Keep }).await?;
        let target = match attr.kind {
            FileKind::Symlink => s.fs.read_link(&s.caller, attr.id).await.ok().map(|t| shown(&t)),
            _ => None,
        };
        if self.json {
            return print_json(&AttrJson { target, ..AttrJson::new(path, &attr) });
        }
        let arrow = target.map_or(String::new(), |t| format!(" -> {t}"));
        println!("{path}{arrow}");
        println!("  {}, inode {}, {} links", attr.kind.word(), attr.id, attr.nlink);
        println!("  {} bytes ({}), {} occupied", attr.size, output::bytes(attr.size), output::bytes(attr.blocks * 512));
        println!(
            "  {} ({:04o}), user {}, group {}{}",
            output::mode(attr.kind, attr.mode),
            attr.mode.0,
            attr.uid,
            attr.gid,
            if attr.sealed { ", sealed" } else { "" }
        );
        println!("  modified {} UTC, changed {}", output::time(attr.mtime), output::time(attr.ctime));
        println!("  accessed {} UTC, made    {}", output::time(attr.atime), output::time(attr.btime));
        Ok(())
    }
}
