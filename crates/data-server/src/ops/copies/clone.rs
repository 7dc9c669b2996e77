//! CloneCopies: a chunk with copies that begins as another of its chain is. For the chain it is a write of all its blocks; the bytes are
//! in every member's own copy of the other chunk (`chain/same.rs`).

use super::change::{Prepared, Subject};
use crate::chain::{Change, ChangeBytes, Failure, of_bytes, with_head};
use crate::core::{Call, Core};
use crate::stats::count;
use braid_api::data::{CloneCopies, CopiesAnswer, Make};
use braid_api::{Code, Error, Result};
use braid_chain::{Refusal, Until};
use braid_data_store::{ChunkHead, ChunkStat, StoreError};
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ContainerId, Version};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at whether the other chunk has come.
const PAUSE: Duration = Duration::from_millis(20);

/// Answered when no copy shows anything else, and `min_copies` have it on stable storage: nobody keeps it in memory.
const BOTH: Until = Until { shared: true, stable: true };

impl Core {
    pub async fn clone_copies(self: &Arc<Self>, call: &Call, m: CloneCopies) -> Result<CopiesAnswer> {
        let m = m.clone;
        let (chunk, from, container) = (m.chunk, m.from, m.container);
        self.check_clone(&m)?;
        self.check_chain(call, container, chunk)?;
        self.gate.settle(call, container)?;
        let turn = self.turn(call, &self.lanes.get(chunk)).await;
        let subject = Subject { container, chunk, chunk_bytes: m.chunk_bytes, cuts: &m.cuts, make: Make::Yes };
        let Prepared { head, .. } = self.prepare(call, &subject).await?;
        if self.chains.is_made_from(chunk, from) {
            // It may have been written since.
            let waiting = self.chains.wait(container, chunk, BOTH);
            drop(turn);
            return self.copies_done(call, waiting, "the chunk's other copies").await;
        }
        let at = self.until_whole(call, container, from).await?;
        let of_work = *call;
        let look = move |core: &Core| core.look_at_base(&of_work, chunk, from);
        let stat = self.on_disk(call, look).await?;
        let (seen, got) = (stat.trunc_gen, call.token.trunc_gen);
        if got < seen && !call.any_trunc_gen() {
            return Err(self.error(chunk, &StoreError::StaleTruncGen { chunk, seen, got }));
        }
        let newer = m.cuts.iter().filter(|(trunc_gen, _)| *trunc_gen > seen).map(|(_, len)| *len).min();
        let length = stat.length.min(newer.unwrap_or(u64::MAX));
        if length > m.chunk_bytes {
            let (end, chunk_bytes) = (length, m.chunk_bytes);
            return Err(self.error(chunk, &StoreError::BeyondChunk { chunk, end, chunk_bytes }));
        }
        let head_after = ChunkHead {
            chunk_bytes: m.chunk_bytes,
            length,
            trunc_gen: head.trunc_gen.max(seen),
            inode: m.inode,
            index: m.index,
        };
        // Of a block that is cut only a part is the other's.
        let whole = if length < stat.length { length / BLOCK_BYTES } else { length.div_ceil(BLOCK_BYTES) };
        let bytes = ChangeBytes::Clone { from, at, length, whole };
        let pass = self.pass(call, container, chunk)?;
        let change = Change {
            head: Some(head),
            bytes: (length > 0).then_some(bytes),
            head_after,
            chunk_bytes: m.chunk_bytes,
            trunc_gen: head.trunc_gen,
            file: (m.inode, m.index),
            _keep: (pass, None),
        };
        let change = match length {
            0 => Change { head: Some(head_after), ..change },
            _ => change,
        };
        let blocks = with_head(of_bytes(ByteRange::new(0, length.max(head.length))));
        let made = self.chains.change(container, chunk, change, blocks, BOTH);
        drop(turn);
        let answer = self.copies_done(call, made, "the chunk's other copies").await;
        if answer.is_err() {
            self.release(call, &[chunk]);
        }
        count(&self.stats.writes, 1);
        answer
    }

    /// The other chunk as it is here, and room for as much.
    fn look_at_base(&self, call: &Call, chunk: ChunkId, from: ChunkId) -> Result<ChunkStat> {
        match self.store.stat(from) {
            Ok(stat) => self.reserve_for_clone(call, chunk, from).map(|()| stat),
            Err(StoreError::NoSuchChunk(_)) if self.chains.should_be_here(from) => {
                Err(Failure::Refused(Refusal::Invalid).error(self.id, from))
            }
            // Nothing was ever written to it.
            Err(StoreError::NoSuchChunk(_)) => Ok(ChunkStat::default()),
            Err(error) => Err(self.error(from, &error)),
        }
    }

    /// When all of the chunk is here and may be read: up to which version that is.
    async fn until_whole(&self, call: &Call, container: ContainerId, chunk: ChunkId) -> Result<Version> {
        let _working = self.working(call, chunk, "all of the chunk to be here");
        loop {
            let refused = match self.chains.all_of(container, chunk) {
                Ok(at) => return Ok(at),
                Err(refused) => refused,
            };
            if !matches!(refused, Failure::Refused(Refusal::Invalid | Refusal::NotReady)) {
                return Err(refused.error(self.id, chunk));
            }
            if self.env.clock.now() + PAUSE >= call.until {
                // Not the code for another owner: it is this server that lacks something.
                let subject = format_args!("data server {}, chunk {chunk}", self.id);
                return Err(Error::new(Code::NotServing, subject, "not all of it is here yet"));
            }
            self.env.sleep(PAUSE).await;
        }
    }
}
