//! A snapshot is made: whoever may write below its root has stored what it wrote, and nobody writes until it is there.
//!
//! In two rounds. While all else goes on, each file that is written below is recalled and kept still; that takes as long as its writer
//! takes to store what it has. Then nobody who does not write yet is granted it, anywhere, and those few that have come meanwhile are
//! recalled. So writers elsewhere wait for a few messages at the most, and the length of the pause does not depend on how much is unwritten.

use super::{gone, status_of};
use crate::beside::{Elsewhere, elsewhere};
use crate::config::PlantedBug;
use crate::files::FileAnswer;
use crate::leases::Leases;
use crate::server::MetaServer;
use crate::settling::{UntilSettled, is_open};
use braid_api::admin::{AdminAnswer, SnapshotStatus};
use braid_api::meta::StillStep;
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_lease::{AskId, Event, Key};
use braid_meta_engine::Engine;
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::snapshot::{CreateSnapshot, DropSnapshot, FindBelow, MakeRoot};
use braid_meta_namespace::rows::SnapshotEntry;
use braid_types::{InodeId, MembershipEpoch, Name, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Before it is looked again whether a tree has been prepared.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// So long nobody anywhere begins to write, for one snapshot at once.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// Nobody waits for longer.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Nobody writes the file, until dropped.
pub(crate) struct Still {
    leases: Arc<Leases>,
    ask: u64,
}

impl Drop for Still {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        state.asking.remove(&self.ask);
        self.leases.on(&mut state, Event::Abandon { ask: AskId(self.ask) });
    }
}

/// Nothing below the directory is written anywhere, until dropped.
type AllStill = (Held, BTreeMap<InodeId, Still>, Elsewhere);

/// Nobody is granted the right to write, until dropped.
pub(crate) struct Held(Arc<Leases>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.on(&mut self.0.state.lock(), Event::HoldWrites { on: false });
    }
}

impl Leases {
    fn written(&self) -> Vec<InodeId> {
        self.state.lock().holder.written()
    }

    pub(crate) fn hold_writes(self: &Arc<Self>) -> Held {
        self.on(&mut self.state.lock(), Event::HoldWrites { on: true });
        Held(self.clone())
    }

    /// Asks that nobody write the file; it is so when the answer comes.
    fn still(self: &Arc<Self>, inode: InodeId) -> (Still, oneshot::Receiver<FileAnswer>) {
        let mut state = self.state.lock();
        state.last += 1;
        let ask = state.last;
        let (tell, told) = oneshot::channel();
        state.asking.insert(ask, tell);
        self.on(&mut state, Event::Still { ask: AskId(ask), inode });
        (Still { leases: self.clone(), ask }, told)
    }
}

impl MetaServer {
    pub(crate) async fn create_snapshot(&self, dir: InodeId, name: Name, wait_ms: u64) -> Result<SnapshotStatus> {
        let end = self.env.clock.now() + Duration::from_millis(wait_ms).min(WAIT_MAX);
        self.recovery_is_over()?;
        let _alone = self.snapshots.changing.lock().await;
        // Of one whose outcome was not known it is known now.
        self.read_snapshots().await?;
        if self.snapshots.kept(dir).iter().any(|snapshot| snapshot.name == name.as_bytes()) {
            let of = format_args!("snapshot {name} of directory {dir}");
            return Err(Error::new(Code::Exists, of, "there is one with this name"));
        }
        self.prepare_root(dir, end).await?;
        // What was told to a program is in it.
        let _together = self.leases.together().await?;
        let create = CreateSnapshot { root: dir, name: name.clone(), now: Default::default() };
        let made = loop {
            match self.make_still(create.clone(), end).await {
                // Who holds what is another: of what came to a server since, nothing stands still.
                Err(error) if error.code == Code::HeldElsewhere && self.env.clock.now() < end => {
                    self.env.sleep(LOOK_AGAIN).await;
                }
                Err(error) if error.code == Code::HeldElsewhere => {
                    return Err(Error::new(Code::Busy, format_args!("directory {dir}"), error.cause()));
                }
                made => break made?,
            }
        };
        if self.beside.is_none() {
            // Others show it without telling.
            self.snapshots.unseen.lock().insert(made.number);
        }
        self.read_snapshots().await?;
        status_of(dir, &made).ok_or_else(|| gone(dir))
    }

    /// Under one epoch: all that is written below stands still at every server, and then the snapshot is there.
    async fn make_still(&self, create: CreateSnapshot, end: Monotonic) -> Result<SnapshotEntry> {
        let (dir, epoch) = (create.root, self.leases.epoch());
        let stands = self.all_still(dir, epoch, end).await?;
        let stands = UntilSettled::new(self, "a snapshot that was given up", stands);
        let create = CreateSnapshot { now: self.env.clock.wall(), ..create };
        // Who has found that there is none, or has the directory listed, looks again.
        let keys = vec![Key::Dir(dir), Key::Attr(dir)];
        let made = self.announced_keys(SessionId(0), keys, async {
            // While this is on its way nothing of another epoch begins here.
            match self.leases.epoch() == epoch {
                true => self.engine.transact(dir.0, create).await.map_err(Error::from),
                false => Err(elsewhere("a snapshot", "who serves has changed meanwhile")),
            }
        });
        let made = made.await;
        if !made.as_ref().is_err_and(is_open) {
            drop(stands.end());
        }
        made
    }

    async fn all_still(&self, dir: InodeId, epoch: MembershipEpoch, end: Monotonic) -> Result<AllStill> {
        // Who held something before this start, or before slots came here, has said so.
        self.until_all_is_known(end).await?;
        let elsewhere = self.elsewhere(dir, epoch)?;
        let mut still = BTreeMap::new();
        loop {
            self.keep_still(dir, &mut still, end).await?;
            elsewhere.ask(StillStep::Files, end).await?;
            let held = self.leases.hold_writes();
            let brief = end.min(self.env.clock.now() + HOLD_MAX);
            let all = async {
                self.keep_still(dir, &mut still, brief).await?;
                elsewhere.ask(StillStep::Writes, brief).await
            };
            match all.await {
                Ok(()) => return Ok((held, still, elsewhere)),
                // Others do not wait for who is slow: it is waited for while they go on.
                Err(error) if error.code == Code::Busy && self.env.clock.now() < end => drop(held),
                Err(error) => return Err(error),
            }
        }
    }

    /// The directory becomes a snapshot root, and everything below it says so.
    async fn prepare_root(&self, dir: InodeId, end: Monotonic) -> Result<()> {
        if !self.snapshots.is_root(dir) {
            // What changes something may have been on its way since before anything was kept: it is waited for.
            let begun = self.env.timeout(end.since(self.env.clock.now()), self.snapshots.keeping.begin(&self.engine));
            let begun = begun.await.map_err(|_| {
                let cause = "changes are under way that were begun before there were snapshots: ask again";
                Error::new(Code::Busy, format_args!("directory {dir}"), cause)
            })?;
            begun.map_err(OpError::from)?;
            self.engine.transact(dir.0, MakeRoot { dir }).await.map_err(Error::from)?;
            self.read_snapshots().await?;
        }
        self.subtree_ops.look();
        while self.is_being_charged(dir).await? {
            if end <= self.env.clock.now() {
                let cause = "what is below it is still being prepared, which goes on: ask again";
                return Err(Error::new(Code::Busy, format_args!("directory {dir}"), cause));
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Files below the root that somebody may write, all that there are by now.
    pub(crate) async fn keep_still(
        &self,
        root: InodeId,
        still: &mut BTreeMap<InodeId, Still>,
        end: Monotonic,
    ) -> Result<()> {
        if self.config.planted == Some(PlantedBug::NotStill) {
            return Ok(());
        }
        loop {
            let written: Vec<InodeId> =
                self.leases.written().into_iter().filter(|inode| !still.contains_key(inode)).collect();
            let below = match written.is_empty() {
                true => written,
                false => {
                    let find = FindBelow { root, inodes: written };
                    self.engine.read(root.0, find).await.map_err(Error::from)?
                }
            };
            if below.is_empty() {
                return Ok(());
            }
            // All at once: their writers store at the same time.
            let asked: Vec<_> = below.into_iter().map(|inode| (inode, self.leases.still(inode))).collect();
            for (inode, (guard, told)) in asked {
                let left = end.since(self.env.clock.now());
                match self.env.timeout(left, told).await {
                    Ok(Ok(FileAnswer::Fresh)) => _ = still.insert(inode, guard),
                    Ok(_) => {
                        let cause = "this server is about to stop, or holds its slot no more";
                        return Err(Error::new(Code::HeldElsewhere, format_args!("inode {inode}"), cause));
                    }
                    Err(_) => {
                        let cause = "who writes it has not stored what it wrote";
                        return Err(Error::new(Code::Busy, format_args!("inode {inode}"), cause));
                    }
                }
            }
        }
    }

    pub(crate) async fn drop_snapshot(&self, dir: InodeId, name: Name) -> Result<AdminAnswer> {
        let _alone = self.snapshots.changing.lock().await;
        // Of one that is not dropped it is not known any more that nobody has seen it.
        let seen = self.snapshots.hide(dir, &name);
        let dropped = self.engine.transact(dir.0, DropSnapshot { root: dir, name, seen }).await.map_err(Error::from);
        self.read_snapshots().await?;
        dropped?;
        Ok(AdminAnswer::DropSnapshot(()))
    }
}
