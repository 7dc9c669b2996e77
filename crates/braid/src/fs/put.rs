//! `braid fs put`: local files into the cluster.

use super::local::write_file;
use super::path::ClusterPath;
use super::progress::Copying;
use super::session::{Last, Paths, Session, brief};
use anyhow::{Context, Result, anyhow, bail};
use braid_api::{Code, NewNode, NodeKind};
use braid_types::{InodeId, Mode, Name};
use bytes::Bytes;
use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Examples:\n  braid fs put report.pdf /home/\n  braid fs put -r photos /archive\n  \
                        mysqldump db | braid fs put - /backup/db.sql")]
pub struct PutArgs {
    /// Local files; - is the standard input.
    #[arg(required = true)]
    from: Vec<PathBuf>,
    /// A directory, or the new name.
    #[arg(required = true)]
    to: ClusterPath,
    /// Directories too, with what is in them.
    #[arg(short)]
    recursive: bool,
}

impl PutArgs {
    pub async fn run<F: Paths>(self, s: &Session<F>) -> Result<ExitCode> {
        if self.from.len() > 1 {
            s.find_dir(&self.to).await?;
        }
        let work = Put { s, recursive: self.recursive, progress: Copying::start() };
        for from in &self.from {
            if let Err(e) = work.argument(from, &self.to).await {
                s.note(&e);
            }
        }
        Ok(s.exit_code())
    }
}

struct Put<'s, F> {
    s: &'s Session<F>,
    recursive: bool,
    progress: Copying,
}

/// Files and directories of a tree that are copied at once: of a small file nearly all time goes by with waiting.
pub(super) const AT_ONCE: usize = 8;

impl<F: Paths> Put<'_, F> {
    async fn argument(&self, from: &Path, to: &ClusterPath) -> Result<()> {
        if from.as_os_str() == "-" {
            let to = self.s.target(to, None).await?;
            let (dir, name) = self.s.place(&to).await?;
            self.progress.file(&to);
            let bytes = |n| self.progress.bytes(n);
            return write_file(self.s, &to, (dir, &name), Mode(0o666), (&mut std::io::stdin(), None), bytes).await;
        }
        let name = local_name(from)?;
        let to = self.s.target(to, Some(&name)).await?;
        let (dir, name) = self.s.place(&to).await?;
        self.tree(from, &to, dir, &name).await
    }

    /// A file, a link or a whole tree. What fails inside a tree is noted and passed over.
    async fn tree(&self, from: &Path, to: &ClusterPath, dir: InodeId, name: &Name) -> Result<()> {
        let Some(top) = self.one(from, to, dir, name).await? else { return Ok(()) };
        let (mut left, mut under_way) = (Vec::new(), FuturesUnordered::new());
        self.enter(from, to, top, &mut left);
        loop {
            while under_way.len() < AT_ONCE
                && let Some(next) = left.pop()
            {
                under_way.push(self.next(next));
            }
            let Some((from, to, made)) = under_way.next().await else { return Ok(()) };
            match made {
                Ok(Some(made)) => self.enter(&from, &to, made, &mut left),
                Ok(None) => {}
                Err(e) => self.s.note(&e),
            }
        }
    }

    async fn next(&self, (from, to, dir, name): Left) -> (PathBuf, ClusterPath, Result<Option<InodeId>>) {
        let made = self.one(&from, &to, dir, &name).await;
        (from, to, made)
    }

    fn enter(&self, from: &Path, to: &ClusterPath, made: InodeId, left: &mut Vec<Left>) {
        if let Err(e) = inside(from, to, made, left) {
            self.s.note(&e);
        }
    }

    /// Answers the directory if it is one.
    async fn one(&self, from: &Path, to: &ClusterPath, dir: InodeId, name: &Name) -> Result<Option<InodeId>> {
        // As cp: with -r links are copied, else what they lead to.
        let look = if self.recursive { std::fs::symlink_metadata(from) } else { std::fs::metadata(from) };
        let what = look.with_context(|| format!("cannot read {}", from.display()))?;
        let mode = Mode::new(what.permissions().mode());
        if what.is_dir() {
            if !self.recursive {
                bail!("{}: is a directory; -r copies it", from.display());
            }
            return self.directory(to, dir, name, mode).await.map(Some);
        }
        if what.is_symlink() {
            self.link(from, to, dir, name).await?;
        } else if what.is_file() {
            let mut file = std::fs::File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
            self.progress.file(to);
            let bytes = |n| self.progress.bytes(n);
            let mode = Mode(mode.0 & 0o777);
            write_file(self.s, to, (dir, name), mode, (&mut file, Some(what.len())), bytes)
                .await
                .with_context(|| format!("cannot copy {}", from.display()))?;
        } else {
            bail!("{}: is neither file, directory nor link; not copied", from.display());
        }
        Ok(None)
    }

    async fn directory(&self, to: &ClusterPath, dir: InodeId, name: &Name, mode: Mode) -> Result<InodeId> {
        let node = NewNode { kind: NodeKind::Directory, mode: Mode(mode.0 & 0o777) };
        match self.s.fs.make_node(&self.s.caller, dir, name, node).await {
            Ok(made) => Ok(made.attr.id),
            Err(e) if e.code == Code::Exists => Ok(self.s.find_dir(to).await?.id),
            Err(e) => Err(anyhow!("{to}: {}", brief(&e))),
        }
    }

    async fn link(&self, from: &Path, to: &ClusterPath, dir: InodeId, name: &Name) -> Result<()> {
        let target = std::fs::read_link(from).with_context(|| format!("cannot read {}", from.display()))?;
        let kind = NodeKind::Symlink(Bytes::copy_from_slice(target.as_os_str().as_bytes()));
        let make = || NewNode { kind: kind.clone(), mode: Mode(0o777) };
        let (fs, caller) = (&self.s.fs, &self.s.caller);
        let made = match fs.make_node(caller, dir, name, make()).await {
            Err(e) if e.code == Code::Exists && !self.s.find(to, Last::Keep).await?.is_dir() => {
                fs.unlink(caller, dir, name).await.map_err(|e| anyhow!("{to}: {}", brief(&e)))?;
                fs.make_node(caller, dir, name, make()).await
            }
            made => made,
        };
        made.map(drop).map_err(|e| anyhow!("{to}: {}", brief(&e)))
    }
}

type Left = (PathBuf, ClusterPath, InodeId, Name);

/// Adds what is in a local directory.
fn inside(from: &Path, to: &ClusterPath, made: InodeId, left: &mut Vec<Left>) -> Result<()> {
    let entries = std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let name = Name::new(entry.file_name().as_bytes()).map_err(|e| anyhow!("{}: {e}", entry.path().display()))?;
        left.push((entry.path(), to.join(&name), made, name));
    }
    Ok(())
}

/// The last name of a local path, also of `..` or `.`.
fn local_name(path: &Path) -> Result<Name> {
    let whole = match path.file_name() {
        Some(_) => path.to_owned(),
        None => path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?,
    };
    let name = whole.file_name().ok_or_else(|| anyhow!("{}: has no name to be copied under", path.display()))?;
    Name::new(name.as_bytes()).map_err(|e| anyhow!("{}: {e}", path.display()))
}
