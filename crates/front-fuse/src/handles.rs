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
    /// Owners that took fcntl locks, so that not every close has to ask for their end.
    lockers: Mutex<HashSet<(InodeId, u64)>>,
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

    pub fn took_lock(&self, id: InodeId, owner: u64) {
        self.lockers.lock().insert((id, owner));
    }

    /// True once after `took_lock`.
    pub fn forget_locks(&self, id: InodeId, owner: u64) -> bool {
        self.lockers.lock().remove(&(id, owner))
    }
}
