//! `braid fs seal` and `braid fs unseal`.

use super::attributes::{AttrJson, print_json};
use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use anyhow::{Result, anyhow, bail};
use braid_types::{Attr, FileKind};
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub struct Files {
    /// Files; directories with -r.
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// The files in directories.
    #[arg(short, long)]
    recursive: bool,
    /// One object a file, as `braid fs stat --json` gives it.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs seal /archive/2026.tar\n  braid fs seal -r /models\n\n\
    Nothing of a sealed file changes: it is not written, truncated, renamed, linked or removed, and its attributes\n\
    stay, until it is unsealed. A mount on a host with a copy of it reads a sealed file of one chunk as a local one.\n\
    A file that is open for writing is not sealed.")]
pub struct SealArgs {
    #[command(flatten)]
    files: Files,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs unseal /archive/2026.tar\n  braid fs unseal -r --wait 0 /models\n\n\
    A mount that reads the file past its daemon has it open until the last program there has closed it and dropped\n\
    its mappings: that is waited for.")]
pub struct UnsealArgs {
    #[command(flatten)]
    files: Files,
    /// Seconds to wait for a file that is open, at most 20.
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=20))]
    wait: u64,
}

impl SealArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        // Of the handles that are in the way none is waited for, but what was closed a moment ago counts as closed.
        self.files.run(s, true, Duration::from_secs(1)).await
    }
}

impl UnsealArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        self.files.run(s, false, Duration::from_secs(self.wait)).await
    }
}

impl Files {
    async fn run<F: Paths>(self, s: &Session<F>, sealed: bool, wait: Duration) -> Result<ExitCode> {
        for path in &self.paths {
            if let Err(e) = self.argument(s, path, sealed, wait).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }

    async fn argument<F: Paths>(&self, s: &Session<F>, path: &ClusterPath, sealed: bool, wait: Duration) -> Result<()> {
        let attr = s.find(path, Last::Follow).await?;
        match attr.kind {
            FileKind::File => self.one(s, path, &attr, sealed, wait).await,
            FileKind::Directory if self.recursive => {
                let mut walk = s.walk(path, attr.id).await?;
                while let Some(met) = walk.next().await {
                    if met.attr.is_file()
                        && let Err(e) = self.one(s, &met.path, &met.attr, sealed, wait).await
                    {
                        s.note(&e);
                    }
                }
                Ok(())
            }
            FileKind::Directory => bail!("{path}: is a directory; with -r the files in it are taken"),
            _ => bail!("{path}: only files can be sealed"),
        }
    }

    async fn one<F: Paths>(
        &self,
        s: &Session<F>,
        path: &ClusterPath,
        attr: &Attr,
        sealed: bool,
        wait: Duration,
    ) -> Result<()> {
        let changed = s.fs.set_sealed(&s.caller, attr.id, sealed, wait).await;
        let attr = changed.map_err(|e| anyhow!("{path}: {}", brief(&e)))?.attr;
        if self.json { print_json(&AttrJson::new(path, &attr)) } else { Ok(()) }
    }
}
