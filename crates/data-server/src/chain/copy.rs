//! What is kept in memory of each copy here: its queues, and what need not be asked of the store.

use super::job::{Job, SyncJob};
use super::on_way::OnWay;
use super::parked::Parked;
use super::same::Same;
use braid_chain::BlockSet;
use braid_data_store::{ChunkHead, RecordMark};
use braid_types::ContainerId;
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub(super) struct Copy {
    pub container: ContainerId,
    /// It is in the store, as a copy. Otherwise what the store may have under its id is of no worth.
    pub exists: bool,
    /// Blocks that did not verify when the store was opened, and are not whole since.
    pub torn: BlockSet,
    /// At the owner: as it will be when all that is ordered has been applied.
    pub head: Option<ChunkHead>,
    /// How often that had to be forgotten.
    pub head_lost: u64,
    /// Work on content, in the order of commands.
    pub jobs: VecDeque<Job>,
    pub at_work: bool,
    pub on_way: OnWay,
    /// Content that waits for room beside the queue.
    pub parked: Parked,
    /// At the owner: what it was made from, and what of it still is as it is there.
    pub same: Option<Same>,
    /// Elsewhere: what it was made from is not here as it should be, and bytes are asked for.
    pub wants_bytes: bool,
    /// Syncs and records, in order, beside the work on content.
    pub syncs: VecDeque<SyncJob>,
    pub syncing: bool,
    /// What syncs have covered whose records are not kept yet.
    pub marks: BTreeMap<u64, RecordMark>,
}

impl Copy {
    pub fn forget_head(&mut self) {
        self.head = None;
        self.head_lost += 1;
    }
}
