//! WriteCopies: ordered in the order of arrival, answered when the chain says so.

use super::change::{Prepared, Subject};
use crate::chain::{Change, ChangeBytes, of_bytes, with_head};
use crate::core::{Call, Core};
use crate::stats::count;
use braid_api::Result;
use braid_api::data::{CopiesAnswer, WriteCopies};
use braid_chain::{Call as Kind, FileLease, until};
use braid_data_store::{ChunkHead, StoreError};
use braid_types::ByteRange;
use bytes::Bytes;
use std::sync::Arc;

/// A chunk's blocks, its head included, are counted up to 1 TiB.
const CHUNK_BYTES_MAX: u64 = 1 << 40;

impl Core {
    pub async fn write_copies(self: &Arc<Self>, call: &Call, m: WriteCopies, payload: Bytes) -> Result<CopiesAnswer> {
        let WriteCopies { write: w, durability } = m;
        let (chunk, container, chunk_bytes) = (w.chunk, w.container, w.chunk_bytes);
        if chunk.0 == 0 || chunk_bytes == 0 || chunk_bytes > CHUNK_BYTES_MAX {
            return Err(self.invalid(chunk, format_args!("no chunk has this id and {chunk_bytes} bytes")));
        }
        let end = w.offset.saturating_add(payload.len() as u64);
        if end > chunk_bytes {
            return Err(self.error(chunk, &StoreError::BeyondChunk { chunk, end, chunk_bytes }));
        }
        let range = ByteRange::new(w.offset, end);
        self.check_chain(call, container, chunk)?;
        self.gate.settle(call, container)?;
        let turn = self.turn(call, &self.lanes.get(chunk)).await;
        let working = self.working(call, chunk, "memory for requests");
        let memory = self.budget.take(payload.len()).await;
        drop(working);
        let subject = Subject { container, chunk, chunk_bytes, cuts: &w.cuts, make: w.make };
        let Prepared { head, is_new } = self.prepare(call, &subject).await?;
        let file = (w.inode, w.index);
        let names_file = w.inode.0 != 0 && file != (head.inode, head.index);
        let head_after = ChunkHead {
            length: head.length.max(range.end),
            inode: if names_file { w.inode } else { head.inode },
            index: if names_file { w.index } else { head.index },
            ..head
        };
        let blocks = of_bytes(range);
        let blocks = if is_new || head_after != head || range.is_empty() { with_head(blocks) } else { blocks };
        let len = payload.len();
        let change = Change {
            head: is_new.then_some(head),
            bytes: Some(ChangeBytes::Write { offset: w.offset, payload }),
            head_after,
            chunk_bytes,
            trunc_gen: head.trunc_gen,
            file,
            _keep: (self.pass(call, container, chunk)?, Some(memory)),
        };
        if range.end > head.length {
            // Before it is ordered: it may happen although nobody hears of it.
            self.grown.add(call.token.session, chunk, self.env.clock.now());
        }
        let lease = if w.alone { FileLease::Exclusive } else { FileLease::Sync };
        let until = until(Kind::Write { sync: w.sync }, lease, durability);
        let written = self.chains.change(container, chunk, change, blocks, until);
        // The next change is ordered behind this one.
        drop(turn);
        let answer = self.copies_done(call, written, "the chunk's other copies").await?;
        count(&self.stats.writes, 1);
        count(&self.stats.bytes_written, len);
        Ok(answer)
    }
}
