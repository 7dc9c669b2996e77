//! read, write, copy_file_range.

use crate::buffer::RUN_BYTES;
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::files::Pass;
use crate::handles::FileHandle;
use crate::inode::Inode;
use crate::map::file_name;
use crate::wait::{timed_out, wait_until};
use braid_api::{Code, Error, HandleId, Result};
use braid_types::{ByteRange, Durability, FILE_BYTES_MAX};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where a write goes.
#[derive(Clone, Copy)]
enum Place {
    At(u64),
    End,
}

/// What became of an attempt.
enum Tried<'a> {
    Written(ByteRange),
    LeaseLost,
    /// Others write the file at the same time: it goes to the servers at once.
    Beside(Pass<'a>, ByteRange),
}

impl Core {
    pub async fn read(self: &Arc<Self>, handle: HandleId, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let file = self.handles.file(handle)?;
        if !file.flags.read {
            return Err(Error::new(Code::BadHandle, file_name(&file.inode), "it was not opened for reading"));
        }
        file.has_its_locks()?;
        let range = ByteRange::at(offset, len.into());
        // A direct handle reads what it asks for and nothing ahead.
        let ahead = (!file.flags.direct).then_some(&*file);
        let op = self.own_op();
        let bytes = self.read_leased(&file, range, ahead, op).await?;
        self.note_read(&file.inode);
        let total: usize = bytes.iter().map(Bytes::len).sum();
        self.counters.bytes_read.fetch_add(total as u64, Relaxed);
        Ok(bytes)
    }

    /// What was read under a lease that was lost meanwhile may be of before what others have written by now.
    async fn read_leased(
        self: &Arc<Self>,
        file: &FileHandle,
        range: ByteRange,
        ahead: Option<&FileHandle>,
        op: Op,
    ) -> Result<Vec<Bytes>> {
        loop {
            file.check()?;
            let pass = self.enter_read(file, range, op).await?;
            let bytes = match pass.shared {
                true => self.read_shared(&file.inode, range, op).await,
                false => self.read_bytes(&file.inode, range, ahead, op).await,
            };
            let is_refused = pass.shared && bytes.as_ref().is_err_and(|error| error.code == Code::StaleLease);
            if is_refused && !op.deadline.left(&self.env).is_zero() {
                // Of before a change of servers: it is asked for anew.
                continue;
            }
            if !pass.is_over(&file.inode.state.lock()) {
                file.check()?;
                return bytes;
            }
        }
    }

    pub async fn write(self: &Arc<Self>, handle: HandleId, offset: u64, data: Bytes) -> Result<u32> {
        let file = self.handles.file(handle)?;
        if !file.flags.write {
            return Err(Error::new(Code::BadHandle, file_name(&file.inode), "it was not opened for writing"));
        }
        file.has_its_locks()?;
        file.report()?;
        let op = self.own_op();
        let len = data.len() as u32;
        let place = if file.flags.append { Place::End } else { Place::At(offset) };
        let range = self.write_place(&file, place, data, op).await?;
        if file.flags.append {
            self.kernel_appends(&file.inode, offset, range).await;
        }
        let durability = file.inode.state.lock().policy.durability;
        if file.flags.sync || durability == Durability::Write {
            let saved = self.commit(&file.inode, Reach::Stable, op).await;
            if saved.is_err() {
                // This handle is being told now: its next close or fsync does not tell it again.
                let _ = file.report();
            }
            saved?;
            file.check()?;
        }
        Ok(len)
    }

    async fn write_place(self: &Arc<Self>, file: &FileHandle, place: Place, data: Bytes, op: Op) -> Result<ByteRange> {
        // In the order in which they came: what a kernel wrote back of a mapping holds what was stored after a write before it, and
        // must not be overtaken by that write while both wait here.
        let inode = &file.inode;
        let Ok(turn) = self.env.timeout(op.deadline.left(&self.env), inode.arriving.lock()).await else {
            return Err(timed_out(file_name(inode), "writes before this one"));
        };
        let (pass, range) = loop {
            match self.try_write_to(file, place, data.clone(), op).await? {
                Tried::Written(range) => return Ok(range),
                Tried::LeaseLost => {}
                Tried::Beside(pass, range) => break (pass, range),
            }
        };
        drop(turn);
        self.write_beside(file, pass, range, data, op).await?;
        Ok(range)
    }

    /// At an offset.
    pub async fn write_to(self: &Arc<Self>, file: &FileHandle, range: ByteRange, data: Bytes, op: Op) -> Result<()> {
        self.write_place(file, Place::At(range.start), data, op).await.map(drop)
    }

    async fn try_write_to<'a>(
        self: &'a Arc<Self>,
        file: &FileHandle,
        place: Place,
        data: Bytes,
        op: Op,
    ) -> Result<Tried<'a>> {
        let inode = &file.inode;
        self.write_room(inode, data.len() as u64, op).await?;
        let range = match place {
            Place::At(offset) => Some(ByteRange::at(offset, data.len() as u64)),
            Place::End => None,
        };
        let (pass, to_chunks) = self.enter_to_write(file, range, op).await?;
        if let (true, Some(range)) = (pass.shared, range) {
            file.check()?;
            if range.start.checked_add(range.len()).is_none_or(|end| end > FILE_BYTES_MAX) {
                return Err(Error::new(Code::FileTooBig, file_name(inode), "files have at most 2^63 - 1 bytes"));
            }
            self.pay(inode, range.end, op).await?;
            return Ok(Tried::Beside(pass, range));
        }
        file.check()?;
        self.fresh(inode, op).await?;
        let len = data.len() as u64;
        let grows_to = match place {
            Place::At(offset) => ByteRange::at(offset, len),
            Place::End => ByteRange::at(inode.state.lock().size, len),
        };
        self.thaw_range(inode, grows_to, op).await?;
        self.pay(inode, grows_to.end, op).await?;
        let chunks = self.find_room(inode, grows_to, op).await?;
        let (now, wall) = (self.now(), self.env.clock.wall());
        let written = self.update(inode, |state| {
            if pass.is_over(state) {
                return Ok(None);
            }
            let offset = match place {
                Place::At(offset) => offset,
                Place::End => state.size,
            };
            if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
                return Err(Error::new(Code::FileTooBig, file_name(inode), "files have at most 2^63 - 1 bytes"));
            }
            if to_chunks {
                state.convert();
            }
            let growth = state.growth(ByteRange::at(offset, len));
            if !data.is_empty() {
                state.write(offset, data, now, wall);
            }
            Ok(Some((offset, !state.full.is_empty(), state.use_room(&growth, chunks), state.policy)))
        })?;
        let Some((offset, send, unused, policy)) = written else { return Ok(Tried::LeaseLost) };
        unused.into_iter().for_each(|spare| self.spares.give_back(policy, spare));
        if send {
            self.send_full_runs(inode);
        }
        self.wake.notify_one();
        Ok(Tried::Written(ByteRange::at(offset, len)))
    }

    /// Waits until the write buffer takes so much more. From half of the file's share on what cannot be sent in long runs is sent as it
    /// is, so that it is on its way before the share is used up.
    async fn write_room(self: &Arc<Self>, inode: &Arc<Inode>, bytes: u64, op: Op) -> Result<()> {
        let fits = || {
            let own = inode.state.lock().charged;
            let file = own == 0 || own + bytes <= self.config.file_buffer_bytes;
            (file && self.memory.buffered.fits(bytes, self.config.write_buffer_bytes)).then_some(())
        };
        let fits_now = fits().is_some();
        if !fits_now || inode.state.lock().dirty.bytes() > self.config.file_buffer_bytes / 2 {
            self.send_next(inode);
        }
        if fits_now {
            return Ok(());
        }
        self.relieve();
        let full = "room in the write buffer";
        let _waiting = self.waits.enter(&self.env, format!("write of {}", file_name(inode)), full).of(inode.id);
        let room = wait_until(&self.env, &self.memory.buffered.room, op.deadline, fits).await;
        room.ok_or_else(|| timed_out(file_name(inode), full))
    }

    pub async fn copy_range(self: &Arc<Self>, from: (HandleId, u64), to: (HandleId, u64), len: u64) -> Result<u64> {
        let (source, target) = (self.handles.file(from.0)?, self.handles.file(to.0)?);
        if !target.flags.write || target.flags.append {
            return Err(Error::new(Code::BadHandle, file_name(&target.inode), "it cannot be written at an offset"));
        }
        if !source.flags.read {
            return Err(Error::new(Code::BadHandle, file_name(&source.inode), "it was not opened for reading"));
        }
        let op = self.own_op();
        {
            let _pass = self.enter_read(&source, ByteRange::default(), op).await?;
            self.fresh(&source.inode, op).await?;
        }
        // As in Linux, what lies beyond the end of the source is not copied and overlaps nothing.
        let len = len.min(source.inode.state.lock().size.saturating_sub(from.1));
        let (reading, writing) = (ByteRange::at(from.1, len), ByteRange::at(to.1, len));
        if source.inode.id == target.inode.id && reading.overlaps(writing) {
            return Err(Error::new(Code::Invalid, file_name(&source.inode), "the ranges overlap"));
        }
        target.report()?;
        let mut done = 0;
        while done < len {
            let step = (len - done).min(RUN_BYTES as u64);
            let range = ByteRange::at(from.1 + done, step);
            let pieces = { self.read_leased(&source, range, None, op).await? };
            let mut copied = 0;
            for piece in pieces {
                let size = piece.len() as u64;
                self.write_place(&target, Place::At(to.1 + done + copied), piece, op).await?;
                copied += size;
            }
            done += copied;
            if copied < step {
                break;
            }
        }
        self.note_read(&source.inode);
        if target.flags.sync {
            self.commit(&target.inode, Reach::Stable, op).await?;
            target.check()?;
        }
        Ok(done)
    }
}
