//! Empties removed directories, behind the requests that removed them (`meta_namespace::ops::remove_tree`).
//!
//! Promises: what a start finds listed is emptied too; what mounts cache of it is recalled before it goes, as for any change; memory
//! is bounded by the depth of a tree and a page a level, because what was found last is emptied first, and by a number of files that
//! sessions have not disclaimed yet; a directory that cannot be emptied keeps no other from it.

use crate::call::Call;
use crate::freeing::Goes;
use crate::server::MetaServer;
use braid_api::admin::Waiting;
use braid_api::meta::RemoveDir;
use braid_api::{Code, Error, Result};
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::ReadOnly;
use braid_meta_namespace::ops::check::CheckPath;
use braid_meta_namespace::ops::remove_tree::{
    DeadEntries, EmptyTree, FindSealed, Rescue, SealedBelow, Seals, WhereSealed,
};
use braid_meta_namespace::ops::session::MissingRequests;
use braid_meta_namespace::ops::stand_for::StandFor;
use braid_types::{FileKind, InodeId, Name, RequestId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Notify;

/// Entries taken out in one transaction: about 10 µs each, so that a change which waits for it waits for 3 ms.
const ENTRIES_AT_ONCE: usize = 256;

/// A tree of some thousand inodes has gone when its removal is answered; a larger one is emptied behind it.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Pages of a tree that are looked through for sealed files before it is gone up from all directories that have some, of which there may be
/// more than the tree has: as long as going up from a thousand of them takes.
const PAGES_FIRST: usize = 8;

/// After an error; a store that is down is asked once a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Files that may wait until every session has said that it does not have them open; sessions read 65,536 of them with a renewal. In memory
/// 16 MB.
const ORPHANS_MAX: usize = 1 << 18;
const PAUSE_FULL: Duration = Duration::from_millis(100);

/// Directories to be emptied, each with the top of its tree.
#[derive(Default)]
pub(crate) struct Trees {
    state: Mutex<State>,
    /// There is one, or all is over.
    bell: Notify,
    /// A tree has been emptied, or all is over.
    done: Notify,
}

#[derive(Default)]
struct State {
    /// The last is the next.
    waiting: Vec<(InodeId, InodeId)>,
    known: HashSet<InodeId>,
    /// Directories left, by the top of their tree.
    left: BTreeMap<InodeId, u64>,
}

impl Trees {
    fn add(&self, dirs: impl IntoIterator<Item = InodeId>, top: Option<InodeId>) {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        for dir in dirs {
            if state.known.insert(dir) {
                let top = top.unwrap_or(dir);
                state.waiting.push((dir, top));
                *state.left.entry(top).or_default() += 1;
            }
        }
        // Housekeeping asks with each of its looks, most of which find nothing.
        if state.waiting.len() > before {
            self.bell.notify_one();
        }
    }

    fn next(&self) -> Option<(InodeId, InodeId)> {
        self.state.lock().waiting.last().copied()
    }

    /// Others first: it cannot be emptied now. Gives how many wait.
    fn later(&self, dir: InodeId, top: InodeId) -> u32 {
        let mut state = self.state.lock();
        state.waiting.retain(|(waiting, _)| *waiting != dir);
        state.waiting.insert(0, (dir, top));
        state.waiting.len() as u32
    }

    /// True if all of its tree has.
    fn gone(&self, dir: InodeId, top: InodeId) -> bool {
        let mut state = self.state.lock();
        state.waiting.retain(|(waiting, _)| *waiting != dir);
        state.known.remove(&dir);
        if let Some(left) = state.left.get_mut(&top) {
            *left -= 1;
            if *left == 0 {
                state.left.remove(&top);
                self.done.notify_waiters();
                return true;
            }
        }
        false
    }

    fn is_done(&self, top: InodeId) -> bool {
        !self.state.lock().left.contains_key(&top)
    }

    pub(crate) fn stop(&self) {
        self.bell.notify_one();
        self.done.notify_waiters();
    }
}

impl MetaServer {
    pub(crate) fn empty_trees(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("emptying of removed trees", async move {
            while !self.stopping.load(Relaxed) {
                let Some((dir, top)) = self.trees.next().filter(|_| self.recovery.is_open()) else {
                    let _ = self.env.timeout(PAUSE, self.trees.bell.notified()).await;
                    continue;
                };
                if self.orphans.len() > ORPHANS_MAX {
                    self.env.sleep(PAUSE_FULL).await;
                    continue;
                }
                match self.empty_tree(dir, top).await {
                    Ok(Goes::On) => {}
                    Ok(Goes::Later) => {
                        if self.trees.gone(dir, top) {
                            self.quotas.may_have_ended();
                        }
                    }
                    Err(e) => {
                        tracing::warn!("removed directory {dir} is emptied later: {e}");
                        self.freeing_waits(Waiting::new(format!("emptying of removed directory {dir}"), e.to_string()));
                        let others = self.trees.later(dir, top);
                        self.env.sleep(PAUSE / others.clamp(1, 10)).await;
                    }
                }
            }
        });
    }

    /// What the rows list: of trees that are being emptied it is known, but for what a start finds.
    pub(crate) fn trees_found(&self, dirs: Vec<InodeId>) {
        self.trees.add(dirs, None);
    }

    /// A tree was taken out of sight.
    pub(crate) fn tree_listed(&self, top: InodeId) {
        self.trees.add([top], None);
    }

    /// The same; returns when it has been emptied, or a moment later.
    pub(crate) async fn tree_removed(&self, top: InodeId) {
        self.tree_listed(top);
        let emptied = async {
            loop {
                let done = self.trees.done.notified();
                if self.trees.is_done(top) || self.stopping.load(Relaxed) {
                    return;
                }
                done.await;
            }
        };
        let _ = self.env.timeout(WAIT_MAX, emptied).await;
    }

    /// Takes a page out of a directory.
    async fn empty_tree(&self, dir: InodeId, top: InodeId) -> Result<Goes> {
        let look = ReadOnly(DeadEntries { dir, limit: ENTRIES_AT_ONCE });
        let found = self.engine.read(dir.0, look).await.map_err(Error::from)?;
        let mut keys = vec![Key::Dir(dir), Key::Attr(dir)];
        for (name, id, kind) in &found.entries {
            keys.extend([Key::Name(dir, name.clone()), Key::Attr(*id)]);
            keys.extend((*kind == FileKind::Directory).then_some(Key::Dir(*id)));
        }
        keys.sort();
        keys.dedup();
        let step = EmptyTree {
            dir,
            entries: found.entries.iter().map(|(name, id, _)| (name.clone(), *id)).collect(),
            all: !found.more,
            others: self.sessions.others(SessionId(0)),
            now: self.env.clock.wall(),
        };
        let change = async { self.engine.transact(dir.0, step).await.map_err(Error::from) };
        let done = match self.announced_keys(SessionId(0), keys, change).await {
            Err(e) if e.code == Code::MaybeCommitted => {
                // If it was, nobody says what was in it. What is no orphan, or no dead directory, is passed over.
                let (dirs, files): (Vec<_>, Vec<_>) =
                    found.entries.iter().partition(|(_, _, kind)| *kind == FileKind::Directory);
                files.into_iter().for_each(|(_, id, _)| self.orphans.add(*id));
                self.trees.add(dirs.into_iter().map(|(_, id, _)| *id), Some(top));
                return Err(e);
            }
            done => done?,
        };
        found.entries.iter().for_each(|(_, id, _)| self.hints.forget(*id));
        done.orphans.into_iter().for_each(|inode| self.orphans.add(inode));
        self.trees.add(done.dirs, Some(top));
        for (name, id) in done.sealed {
            self.rescue(dir, name, id).await?;
        }
        Ok(if done.gone { Goes::Later } else { Goes::On })
    }

    /// What was sealed, or came here, when the tree had been looked through.
    async fn rescue(&self, dir: InodeId, name: Name, id: InodeId) -> Result<()> {
        let root = InodeId::ROOT;
        let keys = [
            Key::Dir(dir),
            Key::Attr(dir),
            Key::Name(dir, name.clone()),
            Key::Attr(id),
            Key::Dir(root),
            Key::Attr(root),
        ];
        let rescue = Rescue { dir, name, now: self.env.clock.wall() };
        let change = async { self.engine.transact(dir.0, rescue).await.map_err(Error::from) };
        if let Some(name) = self.announced_keys(SessionId(0), keys.to_vec(), change).await? {
            self.hints.forget(id);
            let name = name.as_bytes().escape_ascii();
            tracing::warn!(inode = id.0, "was sealed in a tree that was removed: it is /{name} now");
        }
        Ok(())
    }

    /// Nothing sealed is removed: looked at first, and only where anything is sealed at all. Gives the directory that was looked through.
    pub(crate) async fn expect_no_seals(
        &self,
        call: &mut Call,
        request: Option<(SessionId, RequestId)>,
        remove: &RemoveDir,
    ) -> Result<Option<InodeId>> {
        let seals = self.ask(call, InodeId(0), WhereSealed).await?;
        if seals == Seals::Nowhere {
            return Ok(None);
        }
        if let Some((session, request)) = request {
            // What the name stands for by now is none of a repetition's business.
            let known = MissingRequests { session, requests: vec![request] };
            if self.engine.read(session.0, known).await.map_err(Error::from)?.is_empty() {
                return Ok(None);
            }
        }
        let names = vec![(remove.parent.id, remove.name.clone())];
        let top = self.ask(call, remove.parent.id, StandFor { names }).await?.into_iter().flatten().next();
        let Some(dir) = top else { return Ok(None) };
        let pages = if seals == Seals::Counted { PAGES_FIRST } else { usize::MAX };
        if !self.expect_none_below(call, dir, pages).await? {
            self.expect_none_counted(call, dir).await?;
        }
        Ok(top)
    }

    /// Looks at those directories alone in which there are sealed files.
    async fn expect_none_counted(&self, call: &mut Call, top: InodeId) -> Result<()> {
        let mut after = None;
        loop {
            let below = self.ask(call, InodeId(0), SealedBelow { top, after }).await?;
            for dir in below.dirs {
                self.expect_none_in(call, dir, &mut { usize::MAX }).await?;
            }
            after = below.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Looks through the tree; false if it has more than so many pages.
    async fn expect_none_below(&self, call: &mut Call, top: InodeId, mut pages: usize) -> Result<bool> {
        let mut waiting = vec![top];
        while let Some(dir) = waiting.pop() {
            match self.expect_none_in(call, dir, &mut pages).await? {
                Some(dirs) => waiting.extend(dirs),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The directories in this one, unless there is a sealed file; `None` if it has more pages than are left.
    async fn expect_none_in(&self, call: &mut Call, dir: InodeId, pages: &mut usize) -> Result<Option<Vec<InodeId>>> {
        let (mut dirs, mut after) = (Vec::new(), None);
        loop {
            let Some(left) = pages.checked_sub(1) else { return Ok(None) };
            *pages = left;
            let looked = self.ask(call, dir, FindSealed { dir, after }).await?;
            if let Some(sealed) = looked.sealed {
                let mut path = self.ask(call, dir, CheckPath(dir)).await?.names;
                path.push(sealed.as_bytes().to_vec());
                let path: Vec<String> = path.iter().map(|name| name.escape_ascii().to_string()).collect();
                let cause = "it is sealed, and nothing of it changes until it is unsealed";
                return Err(Error::new(Code::Sealed, format_args!("/{}", path.join("/")), cause));
            }
            dirs.extend(looked.dirs);
            after = looked.next;
            if after.is_none() {
                return Ok(Some(dirs));
            }
        }
    }
}
