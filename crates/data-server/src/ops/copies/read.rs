//! ReadCopy: from a copy that is known to be right where it is read, and as new as the reader knows.

use crate::chain::{Failure, of_bytes, with_head};
use crate::core::{Call, Core};
use crate::stats::count;
use braid_api::data::{ReadAnswer, ReadCopy};
use braid_api::{Code, Error, Result};
use braid_chain::{BlockSet, Refusal, Until};
use braid_data_store::{ChunkStat, StoreError};
use braid_types::{ByteRange, ChunkId, ContainerId, TruncGen, Version};
use bytes::Bytes;
use std::sync::Arc;

/// What a read of a copy finds before it reads.
pub(in crate::ops) enum Look {
    /// `None`: nothing was ever written to it.
    Right(Option<ChunkStat>),
    /// A truncation that the call knows of was not carried out.
    ToBeCut,
}

impl Core {
    pub async fn read_copy(self: &Arc<Self>, call: &Call, m: ReadCopy) -> Result<(ReadAnswer, Bytes)> {
        let (chunk, container) = (m.chunk, m.container);
        if m.len > self.config.read_bytes_max {
            let cause = format_args!("{} bytes; a read has {} at most", m.len, self.config.read_bytes_max);
            return Err(Error::new(Code::TooBig, format_args!("data server {}, chunk {chunk}", self.id), cause));
        }
        if m.offset.checked_add(u64::from(m.len)).is_none() {
            return Err(self.invalid(chunk, "the range ends beyond any chunk"));
        }
        let blocks = with_head(of_bytes(ByteRange::at(m.offset, u64::from(m.len))));
        let locked = match m.ordered {
            true => Some(self.lock_to_read(call, chunk, ByteRange::at(m.offset, m.len.into()), m.hold).await?),
            false => None,
        };
        let known = self.look_before(call, container, chunk, &m.cuts, Some(&blocks), m.at_least).await?;
        let memory = self.budget.take(m.len as usize).await;
        let (offset, len, kept_beside) = (m.offset, m.len, m.kept_beside);
        let read = move |core: &Core| {
            let _memory = memory;
            let mut buffer = core.pool.take(len as usize);
            let room = &mut buffer.room()[..len as usize];
            let read = match kept_beside {
                true => core.store.read_kept_beside(chunk, offset, room),
                false => core.store.read(chunk, offset, room),
            };
            match read {
                Ok(()) => {}
                // A copy that the disk has forgotten is not one that nobody has written to.
                Err(StoreError::NoSuchChunk(_)) if core.chains.should_be_here(chunk) => {
                    return Err(Failure::Refused(Refusal::Invalid).error(core.id, chunk));
                }
                Err(StoreError::NoSuchChunk(_)) => room.fill(0),
                Err(error) => {
                    if let StoreError::BadBlock { block, .. } = &error {
                        core.chains.flawed(chunk, [*block]);
                    }
                    return Err(core.error(chunk, &error));
                }
            }
            buffer.set_len(len as usize);
            Ok(buffer.freeze())
        };
        let bytes = self.on_disk(call, read).await?;
        let version = self.still_right(container, chunk, Some(&blocks), m.at_least)?;
        if m.ordered && known.is_some() {
            // What was read is in every copy, or known to be old there, before anybody acts on it; and only the owner can say so.
            let shared = Until { shared: true, stable: false };
            let waiting = self.chains.wait(container, chunk, shared);
            self.copies_done(call, waiting, "the chunk's other copies").await?;
        }
        if let (Some(locked), true) = (locked, m.hold.is_some() && call.token.session.0 != 0) {
            locked.keep();
        }
        count(&self.stats.reads, 1);
        count(&self.stats.bytes_read, bytes.len());
        Ok((ReadAnswer { version }, bytes))
    }

    /// The copy may be read there, and has seen the call's truncations.
    pub(in crate::ops) async fn look_before(
        self: &Arc<Self>,
        call: &Call,
        container: ContainerId,
        chunk: ChunkId,
        cuts: &[(TruncGen, u64)],
        blocks: Option<&BlockSet>,
        at_least: Version,
    ) -> Result<Option<ChunkStat>> {
        self.check_chain(call, container, chunk)?;
        let _working = self.working(call, chunk, "the disk");
        for _ in 0..2 {
            self.still_right(container, chunk, blocks, at_least)?;
            let of_work = *call;
            match self.on_disk(call, move |core: &Core| core.look(&of_work, chunk)).await? {
                Look::Right(stat) => return Ok(stat),
                // Only the owner may, and says so otherwise.
                Look::ToBeCut => self.cut_now(call, container, chunk, cuts, false).await?,
            }
        }
        Err(Error::new(Code::NotServing, format_args!("data server {}, chunk {chunk}", self.id), "it is being cut"))
    }

    pub(in crate::ops) fn look(&self, call: &Call, chunk: ChunkId) -> Result<Look> {
        let stat = match self.store.stat(chunk) {
            Ok(stat) => stat,
            Err(StoreError::NoSuchChunk(_)) => return Ok(Look::Right(None)),
            Err(error) => return Err(self.error(chunk, &error)),
        };
        let (seen, got) = (stat.trunc_gen, call.token.trunc_gen);
        if call.any_trunc_gen() || seen == got || call.is_before(seen) {
            return Ok(Look::Right(Some(stat)));
        }
        if got < seen {
            return Err(self.error(chunk, &StoreError::StaleTruncGen { chunk, seen, got }));
        }
        Ok(Look::ToBeCut)
    }

    /// Also asked after the bytes were read: the lease may have ended, or the chain changed. The version is what this
    /// copy knows of; the bytes may be newer.
    pub(in crate::ops) fn still_right(
        &self,
        container: ContainerId,
        chunk: ChunkId,
        blocks: Option<&BlockSet>,
        at_least: Version,
    ) -> Result<Version> {
        let may = self.chains.may_serve(container, chunk, blocks, at_least);
        may.map_err(|failure| failure.error(self.id, chunk))?;
        Ok(self.chains.copy(container, chunk).map(|copy| copy.told).unwrap_or_default())
    }
}
