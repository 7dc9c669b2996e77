use crate::error::store_error;
use braid_meta_engine::EngineError;
use heed::{Env, RoTxn, WithoutTls};
use parking_lot::Mutex;

pub type Snapshot = RoTxn<'static, WithoutTls>;

/// Read transactions that are kept for the next read, as long as nothing newer is committed.
///
/// Beginning one costs a lock, an allocation and a look-up of each table it touches; on a machine that mostly
/// reads, taking the last reader's is several times cheaper. A parked one is used only if it is of the newest
/// commit, so no read sees less than an earlier one saw, and all are dropped after each commit, so they keep no
/// page from being used again.
pub struct Readers {
    env: Env<WithoutTls>,
    parked: Mutex<Vec<Snapshot>>,
}

/// More threads than this read at once on no machine we know; the others begin their own.
const PARKED_MAX: usize = 64;

impl Readers {
    pub fn new(env: Env<WithoutTls>) -> Self {
        Readers { env, parked: Mutex::new(Vec::new()) }
    }

    /// A snapshot at least as new as any that was ever given out.
    pub fn take(&self) -> Result<Snapshot, EngineError> {
        // In a statement of its own: dropping a stale one must not happen under the lock.
        let parked = self.parked.lock().pop();
        match parked.filter(|snapshot| self.is_newest(snapshot)) {
            Some(snapshot) => Ok(snapshot),
            None => self.env.clone().static_read_txn().map_err(|error| store_error("beginning a read", error)),
        }
    }

    pub fn park(&self, snapshot: Snapshot) {
        let mut parked = self.parked.lock();
        if parked.len() < PARKED_MAX && self.is_newest(&snapshot) {
            parked.push(snapshot);
            return;
        }
        drop(parked);
        drop(snapshot);
    }

    /// To be called after each commit.
    pub fn drop_parked(&self) {
        let parked = std::mem::take(&mut *self.parked.lock());
        drop(parked);
    }

    /// LMDB shows a commit here before it gives it to readers, so what passes is never behind another reader.
    fn is_newest(&self, snapshot: &Snapshot) -> bool {
        snapshot.id() == self.env.info().last_txn_id
    }
}
