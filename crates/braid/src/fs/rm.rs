//! `braid fs rm`.

use super::path::ClusterPath;
use super::session::{Last, Paths, Session, brief};
use super::walk::Met;
use anyhow::{Result, anyhow, bail};
use braid_api::Code;
use braid_types::{InodeId, Name};
use clap::Args;
use futures_util::future::join_all;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "Example:\n  braid fs rm -r /tmp/old")]
pub struct RmArgs {
    #[arg(required = true)]
    paths: Vec<ClusterPath>,
    /// Directories too, with all that is in them.
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
        empty(s, path, attr.id).await?;
        remove_dir(s, path, dir, &name).await
    }
}

/// Files removed at once: of as many as share a sync and a turn of the server's threads, each costs a part of it.
const AT_ONCE: usize = 64;

/// Directories that wait to be empty: their level, path, parent and name.
type Waiting = (usize, ClusterPath, InodeId, Name);

/// Removes everything below a directory. A directory goes when the walk has left it.
async fn empty<F: Paths>(s: &Session<F>, path: &ClusterPath, id: InodeId) -> Result<()> {
    let mut walk = s.walk(path, id).await?;
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut dirs = vec![id];
    let mut files = Vec::with_capacity(AT_ONCE);
    while let Some(Met { path, name, attr, depth }) = walk.next().await {
        if files.len() == AT_ONCE || waiting.last().is_some_and(|(level, ..)| *level >= depth) {
            unlink_all(s, &mut files).await;
        }
        leave(s, &mut waiting, depth).await;
        dirs.truncate(depth + 1);
        let parent = dirs.last().copied().unwrap_or(id);
        if attr.is_dir() {
            waiting.push((depth, path, parent, name));
            dirs.push(attr.id);
        } else {
            files.push((path, parent, name));
        }
    }
    unlink_all(s, &mut files).await;
    leave(s, &mut waiting, 0).await;
    Ok(())
}

async fn unlink_all<F: Paths>(s: &Session<F>, files: &mut Vec<(ClusterPath, InodeId, Name)>) {
    let unlinked = join_all(files.iter().map(|(path, parent, name)| unlink(s, path, *parent, name))).await;
    unlinked.into_iter().filter_map(Result::err).for_each(|e| s.note(&e));
    files.clear();
}

async fn leave<F: Paths>(s: &Session<F>, waiting: &mut Vec<Waiting>, depth: usize) {
    while let Some((_, path, parent, name)) = waiting.pop_if(|(level, ..)| *level >= depth) {
        if let Err(e) = remove_dir(s, &path, parent, &name).await {
            s.note(&e);
        }
    }
}

async fn unlink<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, name: &Name) -> Result<()> {
    gone(path, s.fs.unlink(&s.caller, dir, name).await)
}

async fn remove_dir<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, name: &Name) -> Result<()> {
    gone(path, s.fs.remove_dir(&s.caller, dir, name).await)
}

/// What somebody else removed meanwhile is gone too.
fn gone(path: &ClusterPath, result: braid_api::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.code == Code::NotFound => Ok(()),
        other => other.map_err(|e| anyhow!("{path}: {}", brief(&e))),
    }
}
