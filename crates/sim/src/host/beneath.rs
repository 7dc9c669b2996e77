//! What a kernel has open beneath a mount: files of a data server on its host that it reads without asking (FUSE passthrough).
//!
//! Promises: the mount hears that a file is left when no handle reads it so any more and it was asked for, and not before. An inode that nobody
//! asks for stays, as in a kernel with memory to spare, and who opens it next reads by what is there.

use crate::cluster::Process;
use crate::host::Mount;
use braid_api::{FileSystem, HandleId, Shown, Watcher};
use braid_types::{InodeId, Name};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

#[derive(Default)]
struct State {
    files: BTreeMap<InodeId, Passed>,
    asked: BTreeSet<InodeId>,
}

#[derive(Default)]
struct Passed {
    /// Handles, and opens under way.
    users: u32,
    file: Option<Arc<OwnedFd>>,
}

pub struct Beneath {
    state: Mutex<State>,
    process: Process,
}

impl Beneath {
    pub fn above(process: &Process, fs: &Mount) -> Arc<Beneath> {
        let above = Arc::new(Beneath { state: Mutex::default(), process: process.clone() });
        fs.watch(above.clone());
        above
    }

    /// What the handle may read without asking, until [`Self::closed`].
    pub async fn opened(&self, fs: &Mount, id: InodeId, handle: HandleId) -> Option<Arc<OwnedFd>> {
        let known = {
            let mut state = self.state.lock();
            let passed = state.files.entry(id).or_default();
            passed.users += 1;
            passed.file.clone()
        };
        if known.is_some() {
            return known;
        }
        let given = fs.beneath(handle).await;
        let mut state = self.state.lock();
        let passed = state.files.entry(id).or_default();
        match &given {
            Some(file) => passed.file = Some(file.clone()),
            None => passed.users -= 1,
        }
        if passed.users == 0 && passed.file.is_none() {
            state.files.remove(&id);
        }
        given
    }

    pub fn closed(&self, id: InodeId) {
        if let Some(passed) = self.state.lock().files.get_mut(&id) {
            passed.users -= 1;
        }
    }

    /// A kernel does it by itself, in a moment.
    pub fn leave_what_is_asked_for(&self, fs: &Mount) {
        let left: Vec<InodeId> = {
            let mut state = self.state.lock();
            let asked = std::mem::take(&mut state.asked);
            // Who uses one is asked again.
            let is_idle = |id: &InodeId| state.files.get(id).is_none_or(|passed| passed.users == 0);
            let idle: Vec<InodeId> = asked.into_iter().filter(is_idle).collect();
            idle.iter().for_each(|id| _ = state.files.remove(id));
            idle
        };
        for id in left {
            self.process.cluster.coverage.count("sealed file left for who unseals it");
            fs.left_beneath(id);
        }
    }
}

impl Watcher for Beneath {
    /// It keeps nothing else.
    fn forget(&self, _: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }

    fn leave(&self, id: InodeId, _: Option<(InodeId, Name)>) {
        self.state.lock().asked.insert(id);
    }
}
