//! What all changes of a copy have in common: the token, and truncations that come first.
//!
//! A truncation inside a chunk is two changes. The first makes zeros of what is cut and is waited for until `min_copies`
//! have it on stable storage; the second is the head with the new generation and length. So wherever the new
//! generation is found, whoever takes over has the zeros too, and where it is not, cutting again harms nothing: nothing was
//! written under the new generation yet.

use crate::chain::{Change, ChangeBytes, CopyCall, of_bytes};
use crate::core::{Call, Core};
use crate::gate::Pass;
use braid_api::data::{CopiesAnswer, Held as HeldAs, Make};
use braid_api::{Code, Error, Result};
use braid_chain::{FileLease, Until};
use braid_data_store::{ChunkHead, StoreError};
use braid_types::{ByteRange, ChunkId, ContainerId, TruncGen};
use std::sync::Arc;

/// The head as it is before the change, and whether the change has to bring it.
pub(super) struct Prepared {
    pub head: ChunkHead,
    pub is_new: bool,
}

/// Which copy, and what the call knows of it.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub container: ContainerId,
    pub chunk: ChunkId,
    /// 0 if the chunk must be there.
    pub chunk_bytes: u64,
    pub cuts: &'a [(TruncGen, u64)],
    pub make: Make,
}

pub(super) fn lease(held: HeldAs) -> FileLease {
    match held {
        HeldAs::Exclusive => FileLease::Exclusive,
        HeldAs::Sync => FileLease::Sync,
    }
}

impl Core {
    /// Is the call of the epoch this server acts in? Zero is not used.
    pub(in crate::ops) fn check_chain(&self, call: &Call, container: ContainerId, chunk: ChunkId) -> Result<()> {
        self.gate.check(&call.token, container)?;
        let got = call.token.chain_epoch;
        match self.chains.epoch(container) {
            Some(epoch) if got.0 != 0 && got != epoch => {
                let code = if got < epoch { Code::StaleEpoch } else { Code::NotServing };
                let cause = format_args!("container {container} is at epoch {epoch}, the request carries {got}");
                Err(Error::new(code, format_args!("data server {}, chunk {chunk}", self.id), cause))
            }
            _ => Ok(()),
        }
    }

    /// The caller has the chunk's turn. Cuts as the token says, if the chunk has not seen it.
    pub(super) async fn prepare(self: &Arc<Self>, call: &Call, subject: &Subject<'_>) -> Result<Prepared> {
        let Subject { container, chunk, chunk_bytes, cuts, make } = *subject;
        let refuse = |error: StoreError| Err(self.error(chunk, &error));
        let may = self.chains.may_order_soon(container, chunk, call.until).await;
        may.map_err(|failure| failure.error(self.id, chunk))?;
        let found = self.chains.ordered_head(chunk).await.map_err(|error| self.error(chunk, &error))?;
        let trunc_gen = call.token.trunc_gen;
        let Some(mut head) = found else {
            if chunk_bytes == 0 || !self.may_make(make) {
                return refuse(StoreError::NoSuchChunk(chunk));
            }
            return Ok(Prepared { head: ChunkHead { chunk_bytes, trunc_gen, ..ChunkHead::default() }, is_new: true });
        };
        let mut is_new = false;
        // A copy that was made before its first content came does not know how large it may become.
        if chunk_bytes > 0 && head.chunk_bytes != chunk_bytes && head.length <= chunk_bytes {
            (head.chunk_bytes, is_new) = (chunk_bytes, true);
        }
        if call.any_trunc_gen() || trunc_gen == head.trunc_gen {
            return Ok(Prepared { head, is_new });
        }
        if trunc_gen < head.trunc_gen {
            return refuse(StoreError::StaleTruncGen { chunk, seen: head.trunc_gen, got: trunc_gen });
        }
        let newer = cuts.iter().filter(|(of, _)| *of > head.trunc_gen);
        if let Some(len) = newer.map(|(_, len)| *len).min().filter(|len| *len < head.length) {
            let range = ByteRange::new(len, head.length);
            let pass = self.gate.enter(&call.token, container)?;
            let zero = Change {
                head: None,
                bytes: Some(ChangeBytes::Zero(range)),
                head_after: head,
                chunk_bytes: head.chunk_bytes,
                trunc_gen: head.trunc_gen,
                file: Default::default(),
                _keep: (pass, None),
            };
            let stable = Until { shared: false, stable: true };
            let cut = self.chains.change(container, chunk, zero, of_bytes(range), stable);
            self.copies_done(call, cut, "a truncation to be on stable storage").await?;
            head.length = len;
        }
        head.trunc_gen = trunc_gen;
        Ok(Prepared { head, is_new: true })
    }

    /// The right to make the change, by the holder of the chunk's turn.
    pub(super) fn pass(&self, call: &Call, container: ContainerId, chunk: ChunkId) -> Result<Pass> {
        let pass = self.gate.enter_change(call, container, container)?;
        self.newest.check(self.id, chunk, &call.token, self.env.clock.now())?;
        Ok(pass)
    }

    pub(in crate::ops) async fn copies_done(
        &self,
        call: &Call,
        waiting: CopyCall,
        stage: &'static str,
    ) -> Result<CopiesAnswer> {
        let chunk = waiting.chunk();
        let working = self.working(call, chunk, stage);
        working.copy(waiting.place());
        let answer = waiting.done(call.until.since(self.env.clock.now())).await?;
        Ok(CopiesAnswer { chunk, version: answer.version, kept: answer.kept })
    }
}
