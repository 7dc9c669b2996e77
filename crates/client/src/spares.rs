//! Chunks taken in advance, so that a new file's data needs no message of its own to the metadata server.

use crate::core::{Core, Op};
use braid_api::meta::TakeSpares;
use braid_api::{Code, Error, Result};
use braid_types::{ChunkId, ContainerId, Policy, SessionId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct Spare {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub session: SessionId,
    /// Bytes that its server has set aside for it.
    pub room: u64,
}

#[derive(Default)]
struct Pool {
    ready: VecDeque<Spare>,
    refilling: bool,
}

#[derive(Default)]
pub struct Spares {
    pools: Mutex<HashMap<Policy, Pool>>,
    /// Async: one request at a time for those who wait; nothing else is locked under it.
    asking: tokio::sync::Mutex<()>,
    /// To be given back: never used again, whatever becomes of that.
    going_back: Mutex<Vec<Spare>>,
    /// Async: one gives them back.
    pub giving_back: tokio::sync::Mutex<()>,
}

impl Spares {
    pub fn clear(&self) {
        self.pools.lock().clear();
        self.going_back.lock().clear();
    }

    /// Was taken and not used.
    pub fn give_back(&self, policy: Policy, spare: Spare) {
        self.pools.lock().entry(policy).or_default().ready.push_front(spare);
    }

    /// Those for which this is so are not given any more. All that are to go back.
    pub fn let_go(&self, goes: impl Fn(&Spare) -> bool) -> Vec<Spare> {
        let mut going_back = self.going_back.lock();
        for pool in self.pools.lock().values_mut() {
            let (gone, rest) = std::mem::take(&mut pool.ready).into_iter().partition(|spare| goes(spare));
            pool.ready = rest;
            going_back.extend(VecDeque::into_iter(gone));
        }
        going_back.clone()
    }

    pub fn are_back(&self, chunks: &[ChunkId]) {
        self.going_back.lock().retain(|spare| !chunks.contains(&spare.chunk));
    }

    fn add(&self, policy: Policy, spares: impl IntoIterator<Item = Spare>) {
        self.pools.lock().entry(policy).or_default().ready.extend(spares);
    }

    /// Those of a session that has ended are nobody's.
    fn pop(&self, policy: &Policy, session: SessionId) -> Option<(Spare, usize)> {
        let mut pools = self.pools.lock();
        let ready = &mut pools.entry(*policy).or_default().ready;
        ready.retain(|spare| spare.session == session);
        let spare = ready.pop_front()?;
        Some((spare, ready.len()))
    }

    /// True for the one who shall refill.
    fn begin_refill(&self, policy: &Policy) -> bool {
        !std::mem::replace(&mut self.pools.lock().entry(*policy).or_default().refilling, true)
    }

    fn end_refill(&self, policy: &Policy) {
        self.pools.lock().entry(*policy).or_default().refilling = false;
    }
}

impl Core {
    /// A spare chunk; waits only if there is none.
    pub async fn take_spare(self: &Arc<Self>, policy: Policy, op: Op) -> Result<Spare> {
        if let Some(spare) = self.ready_spare(&policy) {
            return Ok(spare);
        }
        let _one = self.spares.asking.lock().await;
        if let Some(spare) = self.ready_spare(&policy) {
            return Ok(spare);
        }
        // Whoever asked keeps the first: in the pool others might take all of them, and this write would be told
        // that there is no space.
        let mut taken = self.fetch_spares(policy, op).await?.into_iter();
        let none = || Error::new(Code::NoSpace, "spare chunks", "the metadata server gave none");
        let spare = taken.next().ok_or_else(none)?;
        self.spares.add(policy, taken);
        Ok(spare)
    }

    fn ready_spare(self: &Arc<Self>, policy: &Policy) -> Option<Spare> {
        let (spare, left) = self.spares.pop(policy, self.session.id())?;
        if left < self.config.spares_ahead as usize / 2 {
            self.refill_spares(*policy);
        }
        Some(spare)
    }

    fn refill_spares(self: &Arc<Self>, policy: Policy) {
        if !self.spares.begin_refill(&policy) {
            return;
        }
        let core = self.clone();
        self.env.spawn("spares", async move {
            let op = core.own_op();
            match core.fetch_spares(policy, op).await {
                Ok(taken) => core.spares.add(policy, taken),
                Err(error) => tracing::warn!(%error, "no spare chunks were taken ahead"),
            }
            core.spares.end_refill(&policy);
        });
    }

    async fn fetch_spares(self: &Arc<Self>, policy: Policy, op: Op) -> Result<Vec<Spare>> {
        let session = self.session.id();
        let beside = self.servers.beside(&self.config.host);
        let message = TakeSpares { policy, count: self.config.spares_ahead.max(1), beside, for_moves: false };
        let answer = self.call(message, op).await?;
        self.servers.learn(&answer.containers);
        let spare = |(chunk, container)| Spare { chunk, container, session, room: 0 };
        let mut spares: Vec<Spare> = answer.spares.into_iter().map(spare).collect();
        self.room_for_spares(policy, &mut spares, op).await;
        Ok(spares)
    }
}
