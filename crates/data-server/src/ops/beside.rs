//! Writes beside those of other sessions, to one copy and to several: carried out once, answered when nobody can lose them or see
//! anything older.
//!
//! An error that was told before the write was begun keeps its code. After that it may have been carried out: then the code is one
//! that says so, unless the store refused it.

use crate::core::{Call, Core};
use braid_api::data::{CopiesAnswer, EndWrite, Once, WriteAnswer, WriteChunk, WriteCopies};
use braid_api::{Code, Error, Result};
use braid_chain::Until;
use braid_data_store::ChunkStore;
use braid_types::{ByteRange, ChunkId, ContainerId, Durability, LeaseGen, Token, Version};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Once begun it is carried out, whoever still waits for it: an end of it in between would leave open whether it happened.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(600);

impl<S: ChunkStore + 'static> Core<S> {
    pub async fn write_beside(
        self: &Arc<Self>,
        call: &Call,
        m: WriteChunk,
        once: Once,
        payload: Bytes,
    ) -> Result<WriteAnswer> {
        let (chunk, offset, len) = (m.chunk, m.offset, payload.len() as u64);
        let write = WriteChunk { sync: false, once: None, ..m };
        let core = self.clone();
        let apply = async move |call: Call| core.write(&call, write, payload).await.map(drop);
        let range = ByteRange::at(offset, len);
        self.carry_out(call, (chunk, range), once, apply).await?;
        self.sync_one(call, chunk).await.map_err(unsure)?;
        let (sequence, stable) = (self.store.write_seq(), self.store.stable_seq());
        Ok(WriteAnswer { version: Version::default(), incarnation: self.incarnation, sequence, stable })
    }

    pub async fn write_copies_beside(
        self: &Arc<Self>,
        call: &Call,
        m: WriteCopies,
        once: Once,
        payload: Bytes,
    ) -> Result<CopiesAnswer> {
        let (chunk, container) = (m.write.chunk, m.write.container);
        let range = ByteRange::at(m.write.offset, payload.len() as u64);
        self.may_begin(call, container, chunk).await?;
        // Answered by the owner alone; the rest is waited for below, each time it is asked for.
        let write = WriteChunk { sync: false, alone: true, once: None, ..m.write };
        let message = WriteCopies { write, durability: Durability::Fsync };
        let core = self.clone();
        let apply = async move |call: Call| core.write_copies(&call, message, payload).await.map(drop);
        self.carry_out(call, (chunk, range), once, apply).await?;
        let both = Until { shared: true, stable: true };
        let waiting = self.chains.wait(container, chunk, both);
        self.copies_done(call, waiting, "the chunk's other copies").await.map_err(unsure)
    }

    /// Returns when no other session may repeat what it writes there.
    pub async fn until_free(&self, call: &Call, chunk: ChunkId, range: ByteRange, number: Option<u64>) -> Result<()> {
        let _working = self.working(call, chunk, "another session's write there");
        let left = call.until.since(self.env.clock.now());
        let free = self.once.enter(chunk, range, (call.token.session, call.token.chain_epoch), number);
        let busy = "another session has not heard yet whether what it wrote there is kept";
        let waited = self.env.timeout(left, free).await;
        let subject = format_args!("data server {}, chunk {chunk}", self.id);
        match waited {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(Code::Overtaken, subject, "its sender does not wait for it any more")),
            Err(_) => Err(Error::new(Code::Busy, subject, busy)),
        }
    }

    pub fn end_write(&self, call: &Call, m: EndWrite) {
        self.once.end_write(m.chunk, call.token.session, m.number);
    }

    async fn may_begin(&self, call: &Call, container: ContainerId, chunk: ChunkId) -> Result<()> {
        self.check_chain(call, container, chunk)?;
        let may = self.chains.may_order_soon(container, chunk, call.until).await;
        may.map_err(|failure| failure.error(self.id, chunk))
    }

    async fn carry_out<F>(
        self: &Arc<Self>,
        call: &Call,
        (chunk, range): (ChunkId, ByteRange),
        once: Once,
        apply: impl FnOnce(Call) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.gate.check(&call.token, ContainerId(0))?;
        if !once.repeated {
            self.gate.check_sync(&call.token)?;
        }
        let (session, epoch) = (call.token.session, call.token.chain_epoch);
        self.until_free(call, chunk, range, Some(once.number)).await?;
        // The lease may have ended while others were waited for.
        if !once.repeated
            && let Err(error) = self.gate.check_sync(&call.token)
        {
            self.once.leave(chunk, session, once.number);
            return Err(error);
        }
        self.once.begins(chunk, self.env.clock.now());
        let (first, outcome) = self.once.join(session, once, epoch);
        if let Some(tell) = first {
            let (core, until) = (self.clone(), self.env.clock.now() + CARRIED_OUT_WITHIN);
            // Its session still has the lease, whatever tokens there are by now: nothing new begins before it is through with this.
            let lease_gen = if once.repeated { LeaseGen(0) } else { call.token.lease_gen };
            let done = apply(Call { until, token: Token { lease_gen, ..call.token }, ..*call });
            self.env.spawn("a write beside others", async move {
                let done = done.await;
                if done.is_err() {
                    core.once.forget(session, once, epoch);
                    core.once.leave(chunk, session, once.number);
                }
                tell.tell(done);
            });
        }
        let left = call.until.since(self.env.clock.now());
        match self.env.timeout(left, outcome.done()).await {
            Ok(Some(done)) => done.map_err(unsure),
            _ => Err(self.too_late(call)),
        }
    }
}

fn unsure(error: Error) -> Error {
    match error.code {
        // The store, or the file, will not have it.
        Code::StaleTruncGen | Code::ChunkUnknown | Code::SessionFenced | Code::DiskFull | Code::BadBlock => error,
        Code::StaleLease | Code::Invalid => error,
        _ => {
            let cause = format!("it may have been carried out: {}", error.cause());
            Error::new(Code::DeadlineExceeded, error.subject(), cause)
        }
    }
}
