//! Snapshots of directories (docs/design/0028-snapshots.md): made, shown and let go of.
//!
//! Promises: what was written before a snapshot is asked for, by whoever wrote it, is in it; what is written after the answer is not; in
//! between nobody below the directory writes. Whether there is a snapshot root at all is known without looking, so that where there is none
//! nothing is looked for. What a start finds half let go of is gone on with.

mod making;
mod shown;
mod sweeping;

pub(crate) use making::{Held, Still};
pub(crate) use shown::{asks_of, expect_reading};

use crate::config::PlantedBug;
use crate::server::MetaServer;
use braid_api::admin::SnapshotStatus;
use braid_api::{Code, Error, Result};
use braid_meta_engine::{AnyEngine, Engine};
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::snapshot::{ListSnapshots, handle_of};
use braid_meta_namespace::rows::{SnapshotEntry, SnapshotsRow};
use braid_meta_namespace::snapshots::{Keeping, Moment};
use braid_types::{InodeId, Name, SnapshotHandle};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// As many rows of roots as an open reads beside its own: a few microseconds of the embedded engine, and of a database one statement in the
/// same round trip.
const FEW_ROOTS: usize = 8;

#[derive(Default)]
pub(crate) struct Snapshots {
    keeping: Arc<Keeping>,
    /// As in the rows.
    roots: RwLock<BTreeMap<InodeId, SnapshotsRow>>,
    /// Held by who makes one or lets go of one, until `roots` says so.
    changing: tokio::sync::Mutex<()>,
    /// Numbers of those that were made here, and that nobody has been shown anything of.
    unseen: Mutex<BTreeSet<u64>>,
    /// One is to be looked through, or all is over.
    bell: Notify,
}

impl Snapshots {
    pub fn new(planted: Option<PlantedBug>) -> Self {
        let keeping = match planted {
            Some(PlantedBug::NotKept) => Keeping::forgetful(),
            _ => Keeping::default(),
        };
        Snapshots { keeping: Arc::new(keeping), ..Snapshots::default() }
    }

    /// The engine whose changes are kept for snapshots.
    pub fn watch(&self, engine: AnyEngine) -> AnyEngine {
        engine.watched(self.keeping.clone())
    }

    pub fn stop(&self) {
        self.bell.notify_one();
    }

    fn is_root(&self, dir: InodeId) -> bool {
        self.roots.read().contains_key(&dir)
    }

    pub fn has_roots(&self) -> bool {
        !self.roots.read().is_empty()
    }

    /// Roots with snapshots, if they are so few that whoever opens a file may read all of their rows; else none. As they are known here.
    pub fn few_roots(&self) -> Vec<InodeId> {
        let roots = self.roots.read();
        match roots.len() {
            0..=FEW_ROOTS => roots.iter().filter(|(_, row)| row.newest() > 0).map(|(root, _)| *root).collect(),
            _ => Vec::new(),
        }
    }

    /// To be asked before anything is shown of it.
    fn moment(&self, handle: SnapshotHandle) -> Option<Moment> {
        let roots = self.roots.read();
        let all = roots.iter().flat_map(|(root, row)| row.kept.iter().map(|kept| (*root, kept.number)));
        let (root, number) = all.into_iter().find(|(_, number)| handle_of(*number) == handle)?;
        self.unseen.lock().remove(&number);
        Some(Moment { root, number })
    }

    /// From now on nothing is shown of it; whether anything may have been.
    fn hide(&self, root: InodeId, name: &Name) -> bool {
        let mut roots = self.roots.write();
        let Some(row) = roots.get_mut(&root) else { return true };
        let Some(at) = row.kept.iter().position(|snapshot| snapshot.name == name.as_bytes()) else { return true };
        let number = row.kept.remove(at).number;
        !self.unseen.lock().remove(&number)
    }

    fn kept(&self, root: InodeId) -> Vec<SnapshotEntry> {
        self.roots.read().get(&root).map(|row| row.kept.clone()).unwrap_or_default()
    }

    fn going(&self) -> Vec<(InodeId, u64)> {
        let roots = self.roots.read();
        roots.iter().flat_map(|(root, row)| row.going.iter().map(|number| (*root, *number))).collect()
    }
}

impl MetaServer {
    /// Others make snapshots and delete them, and do not tell: what is shown of them here is looked up before.
    async fn look_at_snapshots(&self) -> Result<()> {
        match self.leads() {
            true => Ok(()),
            false => self.read_snapshots().await,
        }
    }

    /// From the start of one that serves beside others: the leader may make a snapshot root at any time.
    pub(crate) async fn keep_for_snapshots(&self) -> Result<()> {
        self.snapshots.keeping.begin(&self.engine).await.map_err(OpError::from)?;
        self.read_snapshots().await
    }

    /// At a start, before anything is served, and after each change.
    pub(crate) async fn read_snapshots(&self) -> Result<()> {
        let rows = self.engine.read(0, ListSnapshots).await.map_err(Error::from)?;
        if !rows.is_empty() {
            self.snapshots.keeping.begin(&self.engine).await.map_err(OpError::from)?;
        }
        *self.snapshots.roots.write() = rows.into_iter().collect();
        if !self.snapshots.going().is_empty() {
            self.snapshots.bell.notify_one();
        }
        Ok(())
    }

    pub(crate) fn list_snapshots(&self, dir: Option<InodeId>) -> Vec<SnapshotStatus> {
        let roots = self.snapshots.roots.read();
        let of = |(root, row): (&InodeId, &SnapshotsRow)| {
            row.kept.iter().filter_map(|snapshot| status_of(*root, snapshot)).collect::<Vec<_>>()
        };
        roots.iter().filter(|(root, _)| dir.is_none_or(|dir| dir == **root)).flat_map(of).collect()
    }
}

fn status_of(dir: InodeId, snapshot: &SnapshotEntry) -> Option<SnapshotStatus> {
    let name = Name::new(&snapshot.name).ok()?;
    Some(SnapshotStatus { dir, name, number: snapshot.number, made: snapshot.made })
}

fn gone(dir: InodeId) -> Error {
    Error::new(Code::Stale, format_args!("inode {dir}"), "the snapshot it was in does not exist any more")
}
