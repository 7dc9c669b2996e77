use braid_api::{Caller, FileSystem, HandleId, OpenFlags, Result};
use braid_types::InodeId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

/// File handles as the kernel knows them: the file system's number, and whether that handle appends.
///
/// Whether a write appends is a property of each write to the kernel (F_SETFL changes it, and what is written back
/// from a shared mapping never appends, though it comes under any handle of the file), but of the handle to the file
/// system. So a handle that is used in the other way gets a twin, opened when it is first needed.
#[derive(Default)]
pub struct Handles {
    twins: Mutex<HashMap<u64, HandleId>>,
    locks: Mutex<Lockers>,
}

/// Who took fcntl locks through which handle, so that not every close has to ask for their end.
///
/// A process loses its locks on a file with any close of it (FLUSH). The locks of an open file description (F_OFD_SETLK)
/// have another owner, of which the kernel tells nothing at the end but the RELEASE of the handle they came through.
#[derive(Default)]
struct Lockers {
    handles_of: HashMap<(InodeId, u64), HashSet<u64>>,
    owners_by: HashMap<u64, HashSet<(InodeId, u64)>>,
}

const APPENDS: u64 = 1;

/// The kernel's number of a handle.
pub fn number(handle: HandleId, append: bool) -> u64 {
    handle.0 << 1 | u64::from(append)
}

pub fn handle(fh: u64) -> HandleId {
    HandleId(fh >> 1)
}

impl Handles {
    /// The handle to write with.
    pub async fn writer<F: FileSystem>(
        &self,
        fs: &F,
        cx: &Caller,
        id: InodeId,
        fh: u64,
        append: bool,
    ) -> Result<HandleId> {
        if (fh & APPENDS != 0) == append {
            return Ok(handle(fh));
        }
        if let Some(&twin) = self.twins.lock().get(&fh) {
            return Ok(twin);
        }
        let flags = OpenFlags { write: true, append, ..OpenFlags::default() };
        let opened = fs.open(cx, id, flags).await?.handle;
        let twin = *self.twins.lock().entry(fh).or_insert(opened);
        if twin != opened {
            fs.release(opened).await;
        }
        Ok(twin)
    }

    pub fn twin(&self, fh: u64) -> Option<HandleId> {
        self.twins.lock().get(&fh).copied()
    }

    pub fn forget_twin(&self, fh: u64) -> Option<HandleId> {
        self.twins.lock().remove(&fh)
    }

    pub fn took_lock(&self, fh: u64, id: InodeId, owner: u64) {
        let mut locks = self.locks.lock();
        locks.handles_of.entry((id, owner)).or_default().insert(fh);
        locks.owners_by.entry(fh).or_default().insert((id, owner));
    }

    /// The owner closed the file: true if it had locks, through whatever handle.
    pub fn forget_owner(&self, id: InodeId, owner: u64) -> bool {
        let mut locks = self.locks.lock();
        let Some(handles) = locks.handles_of.remove(&(id, owner)) else { return false };
        for fh in handles {
            if let Some(owners) = locks.owners_by.get_mut(&fh) {
                owners.remove(&(id, owner));
                if owners.is_empty() {
                    locks.owners_by.remove(&fh);
                }
            }
        }
        true
    }

    /// The handle is over: owners that had locks through it alone.
    pub fn forget_handle(&self, fh: u64) -> Vec<u64> {
        let mut locks = self.locks.lock();
        let mut over = Vec::new();
        for key in locks.owners_by.remove(&fh).unwrap_or_default() {
            if let Some(handles) = locks.handles_of.get_mut(&key) {
                handles.remove(&fh);
                if handles.is_empty() {
                    locks.handles_of.remove(&key);
                    over.push(key.1);
                }
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_end_with_their_owner_s_close_or_their_handle() {
        let (handles, id) = (Handles::default(), InodeId(5));
        handles.took_lock(2, id, 100);
        handles.took_lock(4, id, 100);
        handles.took_lock(2, id, 200);
        assert!(handles.forget_owner(id, 100) && !handles.forget_owner(id, 100));
        // The owner locks again through its other handle: the release of the first must not take that away.
        handles.took_lock(4, id, 100);
        assert_eq!(handles.forget_handle(2), [200]);
        assert_eq!(handles.forget_handle(4), [100]);
        assert!(handles.locks.lock().handles_of.is_empty() && handles.locks.lock().owners_by.is_empty());
    }
}
