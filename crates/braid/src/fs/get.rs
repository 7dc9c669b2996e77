//! `braid fs get`: files of the cluster to this machine.

use super::local::{read_pieces, write_all};
use super::path::{ClusterPath, os_name};
use super::progress::Copying;
use super::put::AT_ONCE;
use super::session::{Last, Paths, Session, brief};
use super::walk::Met;
use anyhow::{Context, Result, anyhow, bail};
use braid_types::{Attr, FileKind};
use bytes::Bytes;
use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs get /home/report.pdf .\n  braid fs get -r /archive/photos /tmp")]
pub struct GetArgs {
    #[arg(required = true)]
    from: Vec<ClusterPath>,
    /// A local directory, or the new name.
    #[arg(required = true)]
    to: PathBuf,
    /// Directories too, with what is in them.
    #[arg(short)]
    recursive: bool,
}

impl GetArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        if self.from.len() > 1 && !self.to.is_dir() {
            bail!("{}: is no directory, and there are several files to copy", self.to.display());
        }
        let work = Get { s, progress: Copying::start() };
        for from in &self.from {
            if let Err(e) = work.argument(from, &self.to, self.recursive).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }
}

struct Get<'s, F> {
    s: &'s Session<F>,
    progress: Copying,
}

impl<F: Paths> Get<'_, F> {
    async fn argument(&self, from: &ClusterPath, to: &Path, recursive: bool) -> Result<()> {
        let last = if recursive { Last::Keep } else { Last::Follow };
        let attr = self.s.find(from, last).await?;
        let to = match from.split() {
            Some((_, name)) if to.is_dir() => to.join(os_name(&name)),
            _ => to.to_owned(),
        };
        if !attr.is_dir() {
            return self.one(from, &attr, &to).await;
        }
        if !recursive {
            bail!("{from}: is a directory; -r copies it");
        }
        self.one(from, &attr, &to).await?;
        // The local directory of each level, and modes that are set when the directory is full.
        let (mut at, mut modes) = (vec![to.clone()], vec![(to, attr)]);
        let mut walk = self.s.walk(from, attr.id).await?;
        let mut under_way = FuturesUnordered::new();
        while let Some(Met { path, name, attr, depth }) = walk.next().await {
            at.truncate(depth + 1);
            let Some(to) = at.last().map(|dir| dir.join(os_name(&name))) else { continue };
            if attr.is_dir() {
                at.push(to.clone());
                modes.push((to.clone(), attr));
            }
            if attr.kind != FileKind::File {
                self.noted(path, attr, to).await;
                continue;
            }
            if under_way.len() == AT_ONCE {
                under_way.next().await;
            }
            under_way.push(self.noted(path, attr, to));
        }
        while under_way.next().await.is_some() {}
        for (dir, attr) in modes.iter().rev() {
            let mode = fs::Permissions::from_mode(attr.mode.0 & 0o777);
            fs::set_permissions(dir, mode).with_context(|| format!("cannot set the mode of {}", dir.display()))?;
        }
        Ok(())
    }

    async fn noted(&self, from: ClusterPath, attr: Attr, to: PathBuf) {
        if let Err(e) = self.one(&from, &attr, &to).await {
            self.s.note(&e);
        }
    }

    async fn one(&self, from: &ClusterPath, attr: &Attr, to: &Path) -> Result<()> {
        match attr.kind {
            FileKind::File => self.file(from, attr, to).await,
            FileKind::Directory => match fs::create_dir(to) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && to.is_dir() => Ok(()),
                made => made.with_context(|| format!("cannot make {}", to.display())),
            },
            FileKind::Symlink => {
                let target = self.s.fs.read_link(&self.s.caller, attr.id).await;
                let target = target.map_err(|e| anyhow!("{from}: {}", brief(&e)))?;
                let make = || std::os::unix::fs::symlink(OsStr::from_bytes(&target), to);
                match make() {
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && !to.is_dir() => {
                        fs::remove_file(to).and_then(|()| make())
                    }
                    made => made,
                }
                .with_context(|| format!("cannot make the link {}", to.display()))
            }
            _ => bail!("{from}: is neither file, directory nor link; not copied"),
        }
    }

    async fn file(&self, from: &ClusterPath, attr: &Attr, to: &Path) -> Result<()> {
        self.progress.file(from);
        let new = !to.exists();
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(attr.mode.0 & 0o777);
        let mut file = options.open(to).with_context(|| format!("cannot write {}", to.display()))?;
        let progress = &self.progress;
        let copied = read_pieces(self.s, from, attr.id, |pieces| {
            progress.bytes(pieces.iter().map(Bytes::len).sum::<usize>() as u64);
            write_all(&mut file, pieces)
        });
        let copied = copied.await;
        if copied.is_err() && new {
            // Half a file looks like a whole one. That it cannot be removed changes nothing about the first error.
            let _ = fs::remove_file(to);
        }
        copied.with_context(|| format!("cannot copy to {}", to.display()))
    }
}
