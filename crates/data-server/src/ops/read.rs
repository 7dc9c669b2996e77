//! ReadChunk: from the cache on the caller's thread, else on an I/O thread.

use crate::core::{Call, Core};
use crate::regions::Locked;
use crate::stats::count;
use braid_api::data::{Once, ReadAnswer, ReadChunk};
use braid_api::{Code, Error, Result};
use braid_chain::region::LockMode;
use braid_data_store::StoreError;
use braid_types::{ByteRange, ChunkId, Version};
use braid_wire::Buffer;
use bytes::Bytes;
use std::sync::Arc;

impl Core {
    pub async fn read(self: &Arc<Self>, call: &Call, m: ReadChunk) -> Result<(ReadAnswer, Bytes)> {
        if m.len > self.config.read_bytes_max {
            let cause = format_args!("{} bytes; a read has {} at most", m.len, self.config.read_bytes_max);
            return Err(Error::new(Code::TooBig, format_args!("data server {}, chunk {}", self.id, m.chunk), cause));
        }
        if m.offset.checked_add(u64::from(m.len)).is_none() {
            return Err(self.invalid(m.chunk, "the range ends beyond any chunk"));
        }
        self.gate.check(&call.token, m.container)?;
        let (chunk, ordered, hold) = (m.chunk, m.ordered, m.hold);
        let locked = match ordered {
            true => Some(self.lock_to_read(call, chunk, ByteRange::at(m.offset, m.len.into()), hold).await?),
            false => None,
        };
        let done = match self.read_cached(call, &m) {
            Some(done) => done,
            None => self.read_from_store(call, m).await?,
        };
        if ordered && self.store.stable_seq() < self.store.write_seq() {
            // What was read must not be gone when the next asks.
            self.synced(chunk, self.syncs.ask(chunk)).await?;
        }
        if let (Some(locked), true) = (locked, hold.is_some() && call.token.session.0 != 0) {
            locked.keep();
        }
        Ok(done)
    }

    /// For an ordered read: nobody writes there before it is answered, or before all that it belongs to is over.
    pub(in crate::ops) async fn lock_to_read(
        self: &Arc<Self>,
        call: &Call,
        chunk: ChunkId,
        range: ByteRange,
        hold: Option<Once>,
    ) -> Result<Locked> {
        self.gate.check_sync(&call.token)?;
        let locked = self.lock_region(call, (chunk, range), LockMode::ProtectedRead, hold).await?;
        // The lease may have ended while others were waited for.
        self.gate.check_sync(&call.token)?;
        Ok(locked)
    }

    async fn read_from_store(self: &Arc<Self>, call: &Call, m: ReadChunk) -> Result<(ReadAnswer, Bytes)> {
        let chunk = m.chunk;
        let working = self.working(call, chunk, "memory for requests");
        let held = self.budget.take(m.len as usize).await;
        working.stage("the disk");
        let reading = self.lanes.get(chunk).reading();
        let of_work = *call;
        let read = move |core: &Core| {
            let (_held, _reading) = (held, reading);
            core.read_now(&of_work, &m)
        };
        self.on_disk(call, read).await
    }

    /// If it is small, and certain that nothing is to be cut before, and all of it is in the cache.
    fn read_cached(&self, call: &Call, m: &ReadChunk) -> Option<(ReadAnswer, Bytes)> {
        if m.len as usize > self.config.inline_read_bytes {
            return None;
        }
        // The version before the bytes, which are then at least as new.
        let seen = self.lanes.get(m.chunk).seen().filter(|seen| call.has_nothing_to_cut(*seen))?;
        let mut buffer = self.pool.take(m.len as usize);
        // What goes wrong here is told by the read that does it all again.
        match self.store.read_cached(m.chunk, m.offset, room(&mut buffer, m.len)) {
            Ok(true) => {}
            Ok(false) | Err(_) => return None,
        }
        count(&self.stats.reads_inline, 1);
        Some(self.read_done(seen.version, buffer, m.len))
    }

    fn read_now(&self, call: &Call, m: &ReadChunk) -> Result<(ReadAnswer, Bytes)> {
        let version = self.cut_and_look(call, m)?;
        let mut buffer = self.pool.take(m.len as usize);
        let room = room(&mut buffer, m.len);
        let read = match m.kept_beside {
            true => self.store.read_kept_beside(m.chunk, m.offset, room),
            false => self.store.read(m.chunk, m.offset, room),
        };
        read.map_err(|error| self.error(m.chunk, &error))?;
        Ok(self.read_done(version, buffer, m.len))
    }

    fn cut_and_look(&self, call: &Call, m: &ReadChunk) -> Result<Version> {
        let lane = self.lanes.get(m.chunk);
        let known = lane.seen().filter(|seen| call.has_nothing_to_cut(*seen));
        if let Some(seen) = known {
            return Ok(seen.version);
        }
        self.cut(m.chunk, call, &m.cuts)?;
        let stat = self.store.stat(m.chunk).map_err(|error: StoreError| self.error(m.chunk, &error))?;
        lane.saw(stat.version, stat.trunc_gen);
        Ok(stat.version)
    }

    fn read_done(&self, version: Version, mut buffer: Buffer, len: u32) -> (ReadAnswer, Bytes) {
        buffer.set_len(len as usize);
        count(&self.stats.reads, 1);
        count(&self.stats.bytes_read, len as usize);
        (ReadAnswer { version }, buffer.freeze())
    }
}

fn room(buffer: &mut Buffer, len: u32) -> &mut [u8] {
    let room = buffer.room();
    let len = room.len().min(len as usize);
    &mut room[..len]
}
