//! Where copies are kept elsewhere: groups that are on this disk wait here until they are kept there, while the write thread
//! goes on with the next.

use crate::job::Job;
use crate::queue::Queue;
use crate::store::Store;
use braid_meta_engine::{EngineError, Order, Outlet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Groups on their way. More would only be held in memory: the write thread waits instead.
const GROUPS_MAX: usize = 8;

/// A group that is committed here.
pub struct Waiting {
    /// Whom to answer.
    pub jobs: Vec<Box<dyn Job>>,
    /// Of the last group they may have seen.
    pub group: u64,
    pub synced: bool,
    /// Of the last change in it, for those who were answered early.
    pub number: u64,
}

/// The end at which the write thread puts groups in. When it is dropped, what is in is settled and the thread ends.
pub struct Settler {
    pub outlet: Arc<Outlet>,
    waiting: SyncSender<Waiting>,
}

impl Settler {
    pub fn start(store: Arc<Store>, queue: Arc<Queue>, outlet: Arc<Outlet>) -> Result<Settler, EngineError> {
        let (waiting, groups) = sync_channel(GROUPS_MAX);
        let there = outlet.clone();
        let work = move || settle(&store, &queue, &there, &groups);
        let thread = std::thread::Builder::new().name("meta-settler".into()).spawn(work);
        thread.map_err(|error| EngineError::Storage(format!("starting the thread that settles: {error}")))?;
        Ok(Settler { outlet, waiting })
    }

    /// Waits while there are too many.
    pub fn put(&self, waiting: Waiting) {
        // The thread ends before this only by a panic; then the callers' answers are dropped, which tells them.
        let _ = self.waiting.send(waiting);
    }
}

fn settle(store: &Store, queue: &Queue, outlet: &Outlet, groups: &Receiver<Waiting>) {
    while let Ok(mut waiting) = groups.recv() {
        let kept = outlet.wait(waiting.group, waiting.synced);
        match &kept {
            Ok(()) => store.ordered.settled(waiting.number),
            Err(error) => {
                // What was answered early may be lost to this server, and what is here may be unknown to its successor.
                tracing::error!(%error, "changes are not kept by the copies of the metadata");
                store.ordered.fail();
                queue.close();
            }
        }
        for job in waiting.jobs.iter_mut().filter(|job| !job.is_answered()) {
            if let Err(error) = &kept {
                job.refuse(error.clone());
            }
            job.answer(Order::Durable);
        }
    }
}
