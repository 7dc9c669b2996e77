//! Accounting of free space: a promise made by `reserve` is kept by the disk.

use crate::{Result, StoreError};
use braid_env::Disk;
use braid_types::ChunkId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Kept back for tables of checksums (a thousandth of the data), the activity log and the disk's own maps: a 64th of
/// the disk, at most 256 MiB.
const SPARE_SHARE: u64 = 64;
const SPARE_BYTES_MAX: u64 = 256 << 20;
/// The disk is asked again after this many changes, or at once when little is left: others may use it as well.
const ASK_EVERY: u32 = 1024;
const ASK_BELOW_BYTES: u64 = 64 << 20;

pub(crate) struct Space {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: Mutex<State>,
}

/// Bytes that were taken and are being written.
pub(crate) struct Taken<'a> {
    space: &'a Space,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.space.state.lock().under_way -= self.bytes;
        }
    }
}

#[derive(Default)]
struct State {
    /// What the disk said, less what was taken since.
    free: u64,
    total: u64,
    disk: u64,
    read_only: bool,
    /// A change was refused although the disk does not call itself read-only: some file systems do so after an error, until
    /// they are checked and mounted anew.
    refused: bool,
    changes: u32,
    /// Of what was taken: is being written, so the disk may not count it yet.
    under_way: u64,
    reserved: HashMap<ChunkId, u64>,
    reserved_total: u64,
}

/// What a server leaves to others of a disk of so many bytes.
pub fn spare_bytes(total: u64) -> u64 {
    (total / SPARE_SHARE).min(SPARE_BYTES_MAX)
}

impl State {
    fn spare(&self) -> u64 {
        spare_bytes(self.total)
    }

    fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved_total).saturating_sub(self.spare())
    }
}

impl Space {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Result<Space> {
        let space = Space { disk, dir, state: Mutex::default() };
        space.ask(&mut space.state.lock())?;
        Ok(space)
    }

    fn ask(&self, state: &mut State) -> Result<()> {
        let space = self.disk.space(&self.dir).map_err(|e| StoreError::io("ask the free space of", &self.dir, e))?;
        (state.total, state.disk, state.changes) = (space.total, space.disk, 0);
        state.free = space.free.saturating_sub(state.under_way);
        self.set_read_only(state, space.read_only || state.refused);
        Ok(())
    }

    fn set_read_only(&self, state: &mut State, now: bool) {
        let dir = self.dir.display();
        match (state.read_only, now) {
            (false, true) => tracing::error!(
                "the disk of {dir} has become read-only: what is there can be read; to write again, remount it and restart this server"
            ),
            (true, false) => tracing::info!("the disk of {dir} takes writes again"),
            _ => {}
        }
        state.read_only = now;
    }

    /// A change has failed. If because the disk is read-only, it counts as such until the store is opened again.
    pub fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::ReadOnly(_)) {
            let mut state = self.state.lock();
            state.refused = true;
            self.set_read_only(&mut state, true);
        }
    }

    fn fit(&self, state: &mut State, chunk: ChunkId, bytes: u64) -> Result<()> {
        state.changes += 1;
        if state.changes >= ASK_EVERY || state.read_only || state.available() < bytes.saturating_add(ASK_BELOW_BYTES) {
            self.ask(state)?;
        }
        if state.read_only {
            return Err(StoreError::ReadOnly(self.dir.clone()));
        }
        let free = state.available();
        if free < bytes {
            return Err(StoreError::NoSpace { subject: format!("chunk {chunk}"), needed: bytes, free });
        }
        Ok(())
    }

    pub fn reserve(&self, chunk: ChunkId, bytes: u64) -> Result<()> {
        self.reserve_locked(&mut self.state.lock(), chunk, bytes)
    }

    pub fn reserve_at_least(&self, chunk: ChunkId, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        let held = state.reserved.get(&chunk).copied().unwrap_or(0);
        if bytes > held { self.reserve_locked(&mut state, chunk, bytes - held) } else { Ok(()) }
    }

    fn reserve_locked(&self, state: &mut State, chunk: ChunkId, bytes: u64) -> Result<()> {
        self.fit(state, chunk, bytes)?;
        state.reserved_total += bytes;
        *state.reserved.entry(chunk).or_default() += bytes;
        Ok(())
    }

    /// Gives back up to `bytes` and returns how much that was.
    pub fn unreserve(&self, chunk: ChunkId, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        let Some(held) = state.reserved.get_mut(&chunk) else { return 0 };
        let given = bytes.min(*held);
        *held -= given;
        if *held == 0 {
            state.reserved.remove(&chunk);
        }
        state.reserved_total -= given;
        given
    }

    /// A chunk is about to occupy `bytes` more: first its reservation, then what nobody has reserved. To be kept until they are
    /// written.
    pub fn take(&self, chunk: ChunkId, bytes: u64) -> Result<Taken<'_>> {
        if bytes == 0 {
            return Ok(Taken { space: self, bytes });
        }
        let mut state = self.state.lock();
        let held = state.reserved.get(&chunk).copied().unwrap_or(0);
        if bytes > held {
            self.fit(&mut state, chunk, bytes - held)?;
        }
        let used = bytes.min(held);
        if used > 0 {
            state.reserved_total -= used;
            match held - used {
                0 => state.reserved.remove(&chunk),
                left => state.reserved.insert(chunk, left),
            };
        }
        state.free = state.free.saturating_sub(bytes);
        state.under_way += bytes;
        Ok(Taken { space: self, bytes })
    }

    /// (total, available, reserved, which disk) now. What is kept back is in none of them: the rest of the total is used or
    /// promised. On a read-only disk nothing is available, so that no file is given a chunk there.
    pub fn usage(&self) -> Result<(u64, u64, u64, u64)> {
        let mut state = self.state.lock();
        self.ask(&mut state)?;
        let available = if state.read_only { 0 } else { state.available() };
        Ok((state.total - state.spare(), available, state.reserved_total, state.disk))
    }
}
