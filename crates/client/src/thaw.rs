//! A chunk that a snapshot has is not written: another one takes its place in the file first, which begins as it is
//! (docs/design/0028-snapshots.md).
//!
//! Promises: what is in the file is the same before and after, to everybody; the chunk of the snapshot is never changed; one that is lost is
//! written anew if nobody had made it stable, and else is an error, as without a snapshot; a disk that has no
//! room for what is going to differ says so here, to who writes, and not later. The other chunk is made by the servers of the first, so that no
//! byte comes here for it.

use crate::body::{Body, ChunkSlot};
use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use crate::map::file_name;
use crate::wait::{Attempts, timed_out};
use braid_api::data::CloneChunk;
use braid_api::meta::{MarkStable, MoveChunk, MoveKind, ReturnSpares, TakeBeside};
use braid_api::{Code, Error, Result};
use braid_types::{ByteRange, ChunkId, ChunkIndex};
use bytes::Bytes;
use std::sync::Arc;

/// A chunk of the file that is frozen.
struct Frozen {
    slot: ChunkSlot,
    layout_gen: u32,
}

impl Core {
    /// Chunks that are about to be written in this range are this file's alone. The caller may write it, and nobody else may.
    pub async fn thaw_range(self: &Arc<Self>, inode: &Inode, range: ByteRange, op: Op) -> Result<()> {
        let chunk_bytes = {
            let state = inode.state.lock();
            // Most files are in no snapshot, and most of their map is known.
            if range.is_empty() || !state.body.may_be_frozen() {
                return Ok(());
            }
            state.policy.chunk_bytes
        };
        for (index, _) in range.split_by(chunk_bytes) {
            self.thaw(inode, ChunkIndex(index), op).await?;
        }
        Ok(())
    }

    /// The same of one chunk.
    pub async fn thaw(self: &Arc<Self>, inode: &Inode, index: ChunkIndex, op: Op) -> Result<()> {
        let mut attempts = Attempts::until(op.deadline);
        loop {
            if self.frozen(inode, index, op).await?.is_none() {
                return Ok(());
            }
            // Who writes there meanwhile waits for it.
            let left = op.deadline.left(&self.env);
            let one = self.env.timeout(left, inode.thawing.lock()).await;
            let _one = one.map_err(|_| timed_out(file_name(inode), "a chunk of it that a snapshot has"))?;
            let Some(frozen) = self.frozen(inode, index, op).await? else { return Ok(()) };
            let container = frozen.slot.container;
            match self.try_thaw(inode, index, frozen, op).await {
                Ok(()) => {}
                Err(error) => {
                    if matches!(error.code, Code::StaleTruncGen | Code::ChunkUnknown | Code::Frozen) {
                        self.refresh_map(inode, op).await?;
                    }
                    self.recover(&mut attempts, error, container, op).await?;
                }
            }
        }
    }

    async fn frozen(&self, inode: &Inode, index: ChunkIndex, op: Op) -> Result<Option<Frozen>> {
        self.with_chunk(inode, index, op, |state| {
            let slot = state.body.slot(index).filter(|slot| slot.frozen)?;
            Some(Frozen { slot: slot.clone(), layout_gen: state.layout_gen.0 })
        })
        .await
    }

    async fn try_thaw(&self, inode: &Inode, index: ChunkIndex, frozen: Frozen, op: Op) -> Result<()> {
        let answer = self.call(TakeBeside { container: frozen.slot.container }, op).await?;
        self.servers.learn(&answer.containers);
        let none = || Error::new(Code::NoSpace, file_name(inode), "the metadata server gave no chunk");
        let (spare, _) = answer.spares.first().copied().ok_or_else(none)?;
        let thawed = self.thaw_with(inode, index, &frozen, spare, op).await;
        if !matches!(thawed, Ok(true)) {
            // It may still be carried out, and whichever of the two comes first is the one that holds.
            self.call(ReturnSpares { chunks: vec![spare] }, op).await?;
            inode.state.lock().stale = true;
        }
        thawed.map(drop)
    }

    /// False if the file has another chunk there by now, or was cut.
    async fn thaw_with(
        &self,
        inode: &Inode,
        index: ChunkIndex,
        frozen: &Frozen,
        spare: ChunkId,
        op: Op,
    ) -> Result<bool> {
        let from = &frozen.slot;
        let policy = inode.state.lock().policy;
        let route = self.route(&policy, from.container, op).await?;
        let (token, trunc_gen, clone) = {
            let state = inode.state.lock();
            let clone = CloneChunk {
                chunk: spare,
                from: from.chunk,
                container: from.container,
                chunk_bytes: policy.chunk_bytes,
                inode: inode.id,
                index,
                cuts: state.chunk_cuts(index),
            };
            (self.change_token(&state, &route)?, state.attr.trunc_gen, clone)
        };
        let why = match self.ask(&route.lane, token, clone, Bytes::new(), op).await {
            // What the snapshot has is said to be stable while that is known: its row is not looked at again.
            Ok(_) if !from.stable => {
                self.call(MarkStable { chunks: vec![(inode.id, index, from.chunk)] }, op).await?;
                MoveKind::Thawed
            }
            Ok(_) => MoveKind::Thawed,
            // Whoever wrote it was made to store it before there was a snapshot, or had gone by then: nobody repeats it.
            Err(error) if error.code == Code::ChunkUnknown => MoveKind::Lost,
            Err(error) => return Err(error),
        };
        let inode_ref = self.cache.inode(inode.id);
        let message = MoveChunk { inode: inode_ref, index, from: from.chunk, to: spare, trunc_gen, why };
        if !self.call(message, op).await? {
            return Ok(false);
        }
        self.update(inode, |state: &mut FileState| match state.body.slot_mut(index) {
            Some(slot) if slot.chunk == from.chunk => {
                (slot.chunk, slot.frozen, slot.stable) = (spare, false, why == MoveKind::Thawed);
                // What was fetched meanwhile knows of it already.
                if state.layout_gen.0 == frozen.layout_gen {
                    state.layout_gen.0 = state.layout_gen.0.wrapping_add(1);
                }
            }
            _ => state.stale = true,
        });
        self.servers.forget_chunk(from.chunk);
        Ok(true)
    }
}

impl Body {
    /// Some chunk belongs to a snapshot, or it is not known of all whether it does.
    fn may_be_frozen(&self) -> bool {
        match self {
            Body::Inline(_) => false,
            Body::Chunked(table) => table.known_below.is_some() || table.slots.values().any(|slot| slot.frozen),
        }
    }
}
