//! Rows that all who change something write, where a row lock does not reach over all servers of the database.
//!
//! On such a database (Galera) two transactions on two servers notice each other only if they *write* the same row; what one
//! has merely locked the other may change. So a transaction that changes something also writes the fence rows of every
//! partition in which it has locked or changed rows: whoever locks where another one changes meets it there, and
//! the database lets one of them go on. 64 rows, and not one, so that partitions seldom share one.
//!
//! Each row carries the epoch. A transaction of an engine whose epoch is over fails in the same message, before its commit
//! ([`EngineError::Fenced`](braid_meta_engine::EngineError)); [`SqlEngine::raise_epoch`](crate::SqlEngine::raise_epoch)
//! changes all 64, so it waits for, or overtakes, everything that is under way.
//!
//! They are written last, in the order of their numbers: who has one waits for nothing but the next.

use crate::select::{number, push_slots};
use crate::session::Done;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

pub(crate) const SLOTS: u64 = 64;

/// The fence as one engine uses it.
#[derive(Debug)]
pub(crate) struct Fence {
    pub is_used: bool,
    epoch: AtomicU64,
    /// The last epoch that this engine has ended itself; 0: none.
    ended: AtomicU64,
    /// It is about to end one.
    ends_one: AtomicBool,
}

/// While it is there, what is refused for its epoch may be refused because of this engine itself.
pub(crate) struct Raising<'f>(&'f Fence);

impl Drop for Raising<'_> {
    fn drop(&mut self) {
        self.0.ends_one.store(false, SeqCst);
    }
}

impl Fence {
    pub fn new(is_used: bool, epoch: u64) -> Fence {
        Fence { is_used, epoch: AtomicU64::new(epoch), ended: AtomicU64::new(0), ends_one: AtomicBool::new(false) }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    pub fn raising(&self) -> Raising<'_> {
        self.ends_one.store(true, SeqCst);
        Raising(self)
    }

    /// This engine has ended `epoch`, and is in the next.
    pub fn raised(&self, epoch: u64) {
        self.set_epoch(epoch + 1);
        self.ended.fetch_max(epoch, SeqCst);
    }

    /// A transaction of `epoch` was refused: may it be made again, because nobody but this engine has ended that, or is about to?
    pub fn is_own_doing(&self, epoch: u64) -> bool {
        self.ends_one.load(SeqCst) || self.ended.load(SeqCst) >= epoch
    }

    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, SeqCst);
    }

    /// The statement for a transaction that touches these partitions, if one is needed.
    pub fn write(&self, epoch: u64, partitions: impl IntoIterator<Item = u64>) -> Option<String> {
        let slots: BTreeSet<u64> = partitions.into_iter().map(slot).collect();
        if !self.is_used || slots.is_empty() {
            return None;
        }
        let mut text = format!("UPDATE fences SET hits=hits+1,epoch=IF(epoch={epoch},{epoch},NULL) WHERE slot IN (");
        push_slots(&mut text, slots);
        text.push(')');
        Some(text)
    }
}

pub(crate) fn create() -> String {
    let rows: Vec<_> = (0..SLOTS).map(|slot| format!("({slot},1,0)")).collect();
    format!("INSERT IGNORE INTO fences (slot,epoch,hits) VALUES {}", rows.join(","))
}

pub(crate) const READ: &str = "SELECT MIN(epoch),MAX(epoch),COUNT(*) FROM fences";

/// The one epoch of all rows.
pub(crate) fn epoch_of(answer: Option<&Done>) -> Option<u64> {
    let mut cells = answer?.rows.first()?.clone();
    let (count, most, least) = (number(cells.pop()), number(cells.pop()), number(cells.pop()));
    least.filter(|_| count == Some(SLOTS) && least == most)
}

pub(crate) fn raise(from: u64) -> String {
    format!("UPDATE fences SET epoch=IF(epoch={from},{},NULL)", from + 1)
}

/// Numbers that follow each other, as inodes' do, are spread by a multiplication with the golden ratio.
fn slot(partition: u64) -> u64 {
    partition.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_share_sixty_four_rows() {
        let used: BTreeSet<u64> = (0..1000).map(slot).collect();
        assert_eq!(used, (0..SLOTS).collect());
        let fence = Fence::new(true, 7);
        let text = fence.write(7, [0, 0]).unwrap();
        assert_eq!(text, "UPDATE fences SET hits=hits+1,epoch=IF(epoch=7,7,NULL) WHERE slot IN (0)");
        assert_eq!(Fence::new(false, 7).write(7, [1]), None);
    }
}
