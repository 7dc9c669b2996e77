//! What every command works with: the client, who asks, and how paths are found.

use super::path::{ClusterPath, Step, parse};
pub use crate::output::brief;
use anyhow::{Result, anyhow, bail};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::{Resolved, TreeChange, TreeOp};
use braid_api::{Caller, Code, FileSystem};
use braid_client::Client;
use braid_types::{Attr, FileKind, InodeId, Name};
use std::collections::VecDeque;
use std::sync::Arc;

/// Symbolic links followed in one path, as Linux does.
const LINKS_MAX: usize = 40;

/// A file system that resolves several names in one message.
pub trait Paths: FileSystem {
    fn resolve_names(&self, from: InodeId, path: &[Name]) -> impl Future<Output = braid_api::Result<Resolved>> + Send;

    /// What administrators ask.
    fn admin(&self, query: AdminQuery) -> impl Future<Output = braid_api::Result<AdminAnswer>> + Send;

    /// The same change for a directory and everything below it, begun.
    fn change_tree(&self, dir: InodeId, change: TreeChange) -> impl Future<Output = braid_api::Result<TreeOp>> + Send;
}

impl Paths for Client {
    async fn resolve_names(&self, from: InodeId, path: &[Name]) -> braid_api::Result<Resolved> {
        self.resolve(from, path).await
    }

    async fn admin(&self, query: AdminQuery) -> braid_api::Result<AdminAnswer> {
        Client::admin(self, query).await
    }

    async fn change_tree(&self, dir: InodeId, change: TreeChange) -> braid_api::Result<TreeOp> {
        Client::change_tree(self, dir, change).await
    }
}

pub struct Session<F> {
    pub fs: Arc<F>,
    pub caller: Caller,
    /// Arguments that failed.
    failed: std::sync::atomic::AtomicU32,
}

/// What is at the end of a path.
#[derive(Clone, Copy, Debug)]
pub enum Last {
    /// Follow a symbolic link there.
    Follow,
    /// Take the link itself.
    Keep,
}

impl<F: Paths> Session<F> {
    pub fn new(fs: Arc<F>) -> Self {
        let caller = Caller {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            umask: umask(),
            pid: std::process::id(),
            ..Caller::default()
        };
        Session { fs, caller, failed: Default::default() }
    }

    /// One argument failed; the others are still worked on.
    pub fn note(&self, error: &anyhow::Error) {
        self.failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        eprintln!("braid: {error:#}");
    }

    pub fn exit_code(&self) -> std::process::ExitCode {
        u8::from(self.failed.load(std::sync::atomic::Ordering::Relaxed) > 0).into()
    }

    /// What `path` leads to; an error names the path.
    pub async fn find(&self, path: &ClusterPath, last: Last) -> Result<Attr> {
        self.find_if_there(path, last).await?.ok_or_else(|| anyhow!("{path}: {}", Code::NotFound.text()))
    }

    pub async fn find_dir(&self, path: &ClusterPath) -> Result<Attr> {
        let attr = self.find(path, Last::Follow).await?;
        if !attr.is_dir() {
            bail!("{path}: {}", Code::NotDirectory.text());
        }
        Ok(attr)
    }

    /// `None` if the last name does not exist; if one before does not, an error.
    pub async fn find_if_there(&self, path: &ClusterPath, last: Last) -> Result<Option<Attr>> {
        let at = |e: braid_api::Error| anyhow!("{path}: {}", brief(&e));
        let follow = matches!(last, Last::Follow) || path.dir_only;
        let mut way: VecDeque<Step> = path.steps.clone().into();
        // The directories walked through, from the root; the last is where the next name is looked for.
        let mut stack = vec![self.fs.get_attr(&self.caller, InodeId::ROOT, None).await.map_err(at)?.attr];
        let mut links = 0;
        while let Some(step) = way.pop_front() {
            if stack.last().is_some_and(|here| !here.is_dir()) {
                bail!("{path}: {}", Code::NotDirectory.text());
            }
            let Step::Down(first) = step else {
                // Above the root is the root.
                stack.truncate(stack.len().saturating_sub(1).max(1));
                continue;
            };
            let mut names = vec![first];
            while let Some(Step::Down(_)) = way.front() {
                if let Some(Step::Down(name)) = way.pop_front() {
                    names.push(name);
                }
            }
            let from = stack.last().map_or(InodeId::ROOT, |here| here.id);
            let found = self.fs.resolve_names(from, &names).await.map_err(at)?;
            let rest = names.split_off(found.attrs.len().min(names.len()));
            let end = found.attrs.last().copied();
            stack.extend(found.attrs);
            let missing = !rest.is_empty();
            for name in rest.into_iter().rev() {
                way.push_front(Step::Down(name));
            }
            match end {
                Some(end) if end.kind == FileKind::Symlink && (!way.is_empty() || follow) => {
                    links += 1;
                    if links > LINKS_MAX {
                        bail!("{path}: too many symbolic links");
                    }
                    let target = self.fs.read_link(&self.caller, end.id).await.map_err(at)?;
                    stack.truncate(if target.starts_with(b"/") { 1 } else { stack.len() - 1 });
                    let (steps, _) = parse(&target).map_err(|e| anyhow!("{path}: a link in it is bad: {e}"))?;
                    steps.into_iter().rev().for_each(|step| way.push_front(step));
                }
                Some(end) if !end.is_dir() && !way.is_empty() => bail!("{path}: {}", Code::NotDirectory.text()),
                _ if missing && way.len() == 1 => return Ok(None),
                _ if missing => bail!("{path}: {}", Code::NotFound.text()),
                _ => {}
            }
        }
        match stack.last() {
            Some(end) if path.dir_only && !end.is_dir() => bail!("{path}: {}", Code::NotDirectory.text()),
            end => Ok(end.copied()),
        }
    }

    /// The directory of the last name of `path`, and that name.
    pub async fn place(&self, path: &ClusterPath) -> Result<(InodeId, Name)> {
        let Some((dir, name)) = path.split() else { bail!("{path}: is a directory that cannot be made or removed") };
        Ok((self.find_dir(&dir).await?.id, name))
    }

    /// Where something called `name` goes: into `path` if that is a directory, else it becomes `path`.
    pub async fn target(&self, path: &ClusterPath, name: Option<&Name>) -> Result<ClusterPath> {
        match (self.find_if_there(path, Last::Follow).await?, name) {
            (Some(there), Some(name)) if there.is_dir() => Ok(path.join(name)),
            (Some(there), None) if there.is_dir() => bail!("{path}: {}", Code::IsDirectory.text()),
            (None, _) if path.dir_only => bail!("{path}: {}", Code::NotFound.text()),
            _ => Ok(path.clone()),
        }
    }
}

/// Of a tree: if something in it is sealed, which.
pub fn brief_of_tree(error: &braid_api::Error) -> String {
    match error.code {
        Code::Sealed if error.subject().starts_with('/') => format!("{}: {}", error.subject(), brief(error)),
        _ => brief(error),
    }
}

/// The mask of this process, which Linux tells only here without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}
