//! fallocate and lseek's SEEK_DATA and SEEK_HOLE.

use crate::body::Body;
use crate::core::{Core, Op};
use crate::files::Pass;
use crate::inode::Inode;
use crate::map::file_name;
use crate::wait::Attempts;
use braid_api::data::ReserveChunk;
use braid_api::{Code, Error, FallocateMode, HandleId, Result, SeekWhence};
use braid_types::{ByteRange, ChunkIndex, FILE_BYTES_MAX};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Core {
    pub async fn fallocate(self: &Arc<Self>, handle: HandleId, mode: FallocateMode, range: ByteRange) -> Result<()> {
        let file = self.handles.file(handle)?;
        if !file.flags.write {
            return Err(Error::new(Code::BadHandle, file_name(&file.inode), "it was not opened for writing"));
        }
        if range.is_empty() {
            return Err(Error::new(Code::Invalid, file_name(&file.inode), "an empty range"));
        }
        if range.end > FILE_BYTES_MAX {
            return Err(Error::new(Code::FileTooBig, file_name(&file.inode), "files have at most 2^63 - 1 bytes"));
        }
        file.check()?;
        let (inode, op) = (&file.inode, self.own_op());
        let pass = self.enter_write(inode, range, op).await?;
        self.expect_unsealed(inode, op).await?;
        let grow = matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange { keep_size: false });
        if grow {
            self.pay(inode, range.end, op).await?;
        }
        match mode {
            FallocateMode::PunchHole => return self.punch(inode, range, &pass, op).await,
            FallocateMode::ZeroRange { .. } => self.punch(inode, range, &pass, op).await?,
            FallocateMode::Allocate | FallocateMode::AllocateKeepSize => self.reserve(inode, range, &pass, op).await?,
        }
        let (now, wall) = (self.now(), self.env.clock.wall());
        self.update(inode, |state| {
            pass.check(state)?;
            if grow && range.end > state.size {
                state.size = range.end;
            }
            state.touched(now, wall);
            Ok::<_, Error>(())
        })?;
        self.wake.notify_one();
        Ok(())
    }

    /// Space for the range at the servers. A small inline file needs none: its row is all there is.
    async fn reserve(self: &Arc<Self>, inode: &Arc<Inode>, range: ByteRange, pass: &Pass<'_>, op: Op) -> Result<()> {
        let (chunk_bytes, small) = {
            let state = inode.state.lock();
            let small = matches!(state.body, Body::Inline(_)) && range.end <= u64::from(state.policy.inline_bytes);
            (state.policy.chunk_bytes, small)
        };
        if small {
            return Ok(());
        }
        self.update(inode, |state| {
            pass.check(state)?;
            state.convert();
            Ok::<_, Error>(())
        })?;
        // A chunk that goes elsewhere meanwhile would leave behind what is reserved for it.
        let (_order, op) = self.in_order(inode, op).await?;
        for (index, part) in range.split_by(chunk_bytes) {
            self.reserve_chunk(inode, ChunkIndex(index), (part.end, chunk_bytes), pass, op).await?;
        }
        Ok(())
    }

    async fn reserve_chunk(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        index: ChunkIndex,
        (bytes, chunk_bytes): (u64, u64),
        pass: &Pass<'_>,
        op: Op,
    ) -> Result<()> {
        let mut attempts = Attempts::until(op.deadline);
        let mut again = None;
        loop {
            let (key, policy) = self.slot_for(inode, index, op).await?;
            let route = self.route(&policy, key.container, op).await?;
            let token = {
                let state = inode.state.lock();
                pass.check(&state)?;
                self.data_token(&state, &route)
            };
            let make = again.take().unwrap_or_else(|| self.make_of(&key));
            let message = ReserveChunk { chunk: key.chunk, container: key.container, chunk_bytes, bytes, make };
            match self.ask(&route.lane, token, message, Bytes::new(), op).await {
                Ok(_) => {
                    if let Some(slot) = inode.state.lock().body.slot_mut(index)
                        && slot.chunk == key.chunk
                    {
                        slot.reserved = true;
                    }
                    return Ok(());
                }
                Err(error) if error.code == Code::StaleTruncGen => {
                    self.refresh_map(inode, op).await?;
                    attempts.again(&self.env, error).await?;
                }
                Err(error) => {
                    if error.code == Code::ChunkUnknown {
                        again = self.make_again(&route.lane, &key, op).await?;
                        if again.is_none() {
                            self.refresh_map(inode, op).await?;
                        }
                    }
                    self.recover(&mut attempts, error, key.container, op).await?;
                }
            }
        }
    }

    pub async fn seek(self: &Arc<Self>, handle: HandleId, offset: u64, whence: SeekWhence) -> Result<u64> {
        let file = self.handles.file(handle)?;
        file.check()?;
        let (inode, op) = (&file.inode, self.own_op());
        let pass = self.enter_read(&file, ByteRange::default(), op).await?;
        // Others may have written on.
        inode.state.lock().stale |= pass.shared;
        self.fresh(inode, op).await?;
        let (size, chunk_bytes, inline) = {
            let state = inode.state.lock();
            (state.size, state.policy.chunk_bytes, matches!(state.body, Body::Inline(_)))
        };
        if offset >= size {
            return Err(Code::NoData.into());
        }
        if inline {
            return Ok(if whence == SeekWhence::Data { offset } else { size });
        }
        self.know_chunk(inode, ChunkIndex((size - 1) / chunk_bytes), op).await?;
        let chunks = chunks_with_data(inode, offset / chunk_bytes, chunk_bytes);
        match whence {
            SeekWhence::Data => {
                for index in chunks {
                    let data = self.data_ranges(inode, ChunkIndex(index), op).await?;
                    let from = offset.max(index.saturating_mul(chunk_bytes));
                    if let Some(at) = data.next(from, true).filter(|at| *at < size) {
                        return Ok(at);
                    }
                }
                Err(Code::NoData.into())
            }
            SeekWhence::Hole => {
                let mut at = offset;
                while at < size {
                    let index = at / chunk_bytes;
                    if !chunks.contains(&index) {
                        return Ok(at);
                    }
                    let end = (index + 1).saturating_mul(chunk_bytes);
                    let data = self.data_ranges(inode, ChunkIndex(index), op).await?;
                    let hole = data.next(at, false).unwrap_or(end);
                    if hole < end {
                        return Ok(hole.min(size));
                    }
                    at = end;
                }
                Ok(size)
            }
        }
    }
}

/// Indices from `first` on where there is a chunk, or bytes not sent yet.
fn chunks_with_data(inode: &Inode, first: u64, chunk_bytes: u64) -> BTreeSet<u64> {
    let state = inode.state.lock();
    let mut indices = BTreeSet::new();
    if let Body::Chunked(table) = &state.body {
        indices.extend(table.slots.keys().map(|index| index.0));
    }
    let pending = state.dirty.ranges().into_iter().chain(state.inflight.values().map(|write| write.range));
    for range in pending {
        indices.extend(range.split_by(chunk_bytes).map(|(index, _)| index));
    }
    indices.split_off(&first)
}
