//! Reads and writes beside those of other sessions, of one copy and of several: each under a lock of its region, until the operation that
//! it is a part of is over (docs/design/0018-region-locks.md). Writes are carried out once, and answered when nobody can lose them or see
//! anything older.
//!
//! An error that was told before the write was begun keeps its code. After that it may have been carried out: then the code is one
//! that says so, unless the store refused it.

use crate::chain::Failure;
use crate::core::{Call, Core};
use crate::regions::{Locked, NotLocked, Wanted};
use braid_api::data::{CheckRegion, CopiesAnswer, Once, UnlockRegion, WriteAnswer, WriteChunk, WriteCopies};
use braid_api::{Code, Error, Result};
use braid_chain::region::{Holder, LockMode};
use braid_chain::{Refusal, Until};
use braid_types::{ByteRange, ChunkId, ContainerId, Durability, LeaseGen, Token, Version};
use bytes::Bytes;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Once begun it is carried out, whoever still waits for it: an end of it in between would leave open whether it happened.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(600);

impl Core {
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
        self.carry_out(call, (None, chunk, range), once, apply).await?;
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
        self.may_begin(call, container, chunk)?;
        // Answered by the owner alone; the rest is waited for below, each time it is asked for.
        let write = WriteChunk { sync: false, alone: true, once: None, ..m.write };
        let message = WriteCopies { write, durability: Durability::Fsync };
        let core = self.clone();
        let apply = async move |call: Call| core.write_copies(&call, message, payload).await.map(drop);
        self.carry_out(call, (Some(container), chunk, range), once, apply).await?;
        let both = Until { shared: true, stable: true };
        let waiting = self.chains.wait(container, chunk, both);
        self.copies_done(call, waiting, "the chunk's other copies").await.map_err(unsure)
    }

    /// Waits for the lock of a region. What is named in `once` keeps it until it is over, see [`Locked::keep`].
    pub async fn lock_region(
        self: &Arc<Self>,
        call: &Call,
        (chunk, range): (ChunkId, ByteRange),
        mode: LockMode,
        once: Option<Once>,
    ) -> Result<Locked> {
        let (session, epoch) = (call.token.session, call.token.chain_epoch);
        let name = once.map(|once| Holder { session, number: once.number }).filter(|_| session.0 != 0);
        let error =
            |code, cause: &dyn Display| Error::new(code, format_args!("data server {}, chunk {chunk}", self.id), cause);
        let over = || error(Code::Overtaken, &"its sender does not wait for it any more");
        let is_over = || self.once.is_over(session, name.map(|name| name.number));
        if is_over() {
            return Err(over());
        }
        if let Some(once) = once {
            self.once.done(session, once.done);
            self.regions.done(session, once.done);
        }
        let again = once.is_some_and(|once| once.again);
        let _working =
            self.working(call, chunk, "another operation to be over that has locked what it is to read or write");
        let wanted = Wanted { chunk, epoch, range, mode, name, again, until: call.until };
        match self.regions.lock(&self.env, &wanted).await {
            // It may have ended just before the lock was there, and would not be told again.
            Ok(locked) if !is_over() => Ok(locked),
            Ok(_) => Err(over()),
            Err(NotLocked::Over) if is_over() => Err(over()),
            Err(NotLocked::Over) => {
                self.gate.check(&call.token, ContainerId(0))?;
                Err(error(Code::StaleEpoch, &"its chain is another since it asked for a lock"))
            }
            Err(NotLocked::Late(ahead)) => {
                let ahead: Vec<String> = ahead.iter().map(|it| format!("session {}", it.session)).collect();
                Err(error(Code::Busy, &format!("locked by operations that are not over: {}", ahead.join(", "))))
            }
        }
    }

    pub fn unlock_region(&self, call: &Call, m: UnlockRegion) {
        let (session, number) = (call.token.session, m.number);
        self.once.end(session, number);
        self.regions.unlock(m.chunk, Holder { session, number });
    }

    /// Asked of the owner alone: as long as it is that, nobody else has locked anything there. It says so after it has looked.
    pub fn check_region(&self, call: &Call, m: CheckRegion) -> Result<bool> {
        let (session, number) = (call.token.session, m.number);
        let holds = self.regions.holds(m.chunk, Holder { session, number });
        if m.copies_of.0 == 0 {
            self.gate.check(&call.token, ContainerId(0))?;
        } else {
            self.check_chain(call, m.copies_of, m.chunk)?;
            let may = self.chains.may_order(m.copies_of, m.chunk);
            may.map_err(|failure| failure.error(self.id, m.chunk))?;
        }
        Ok(holds)
    }

    /// While ownership is on its way the chunk is locked, so that the request waits for that in its place.
    fn may_begin(&self, call: &Call, container: ContainerId, chunk: ChunkId) -> Result<()> {
        self.check_chain(call, container, chunk)?;
        match self.chains.may_order(container, chunk) {
            Err(Failure::Refused(Refusal::Moving)) => Ok(()),
            known => known.map_err(|failure| failure.error(self.id, chunk)),
        }
    }

    async fn carry_out<F>(
        self: &Arc<Self>,
        call: &Call,
        (copies_of, chunk, range): (Option<ContainerId>, ChunkId, ByteRange),
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
        let locked = self.lock_region(call, (chunk, range), LockMode::ProtectedWrite, Some(once)).await?;
        // The lease may have ended while others were waited for.
        if !once.repeated {
            self.gate.check_sync(&call.token)?;
        }
        if let Some(container) = copies_of {
            // Another may have come to own it meanwhile: said while it is certain that nothing was begun.
            let may = self.chains.may_order(container, chunk);
            may.map_err(|failure| failure.error(self.id, chunk))?;
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
                match done {
                    Ok(()) if session.0 != 0 => locked.keep(),
                    Ok(()) => drop(locked),
                    Err(_) => {
                        core.once.forget(session, once, epoch);
                        drop(locked);
                    }
                }
                tell.tell(done);
            });
        } else {
            // Whoever carries it out keeps it, or has.
            drop(locked);
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
