//! Calls of clients: begun under the lock, in the order in which they came, and answered by the machine.

use super::{Chains, Change, Op, State};
use braid_api::{Code, Error};
use braid_chain::{Answer, BlockSet, Event, Refusal, Until, Waits};
use braid_types::{ChunkId, ContainerId, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Why a call was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    /// The store's own error, which names chunk and cause.
    Store(Error),
    /// This server takes no part in chains any more.
    Halted(String),
}

impl Failure {
    pub fn error(self, server: ServerId, chunk: ChunkId) -> Error {
        let subject = format_args!("data server {server}, chunk {chunk}");
        match self {
            Failure::Store(error) => error,
            Failure::Halted(cause) => Error::new(Code::NotServing, subject, cause),
            Failure::Refused(refusal) => {
                let code = match refusal {
                    Refusal::NoLease | Refusal::NotInChain => Code::StaleEpoch,
                    Refusal::NotOwner { .. } | Refusal::Invalid => Code::NotOwner,
                    Refusal::NotReady | Refusal::Moving => Code::NotServing,
                    Refusal::UnknownChunk => Code::ChunkUnknown,
                };
                let error = Error::new(code, subject, refusal);
                match refusal {
                    Refusal::NotOwner { owner } => error.with_owner(owner),
                    _ => error,
                }
            }
        }
    }
}

/// A call that was begun. Dropped, it is not waited for any more; what it changes is changed all the same.
pub(crate) struct Call {
    chains: Arc<Chains>,
    container: ContainerId,
    chunk: ChunkId,
    op: u64,
    answer: oneshot::Receiver<Result<Answer, Failure>>,
}

impl Chains {
    pub fn change(
        self: &Arc<Self>,
        container: ContainerId,
        chunk: ChunkId,
        change: Change,
        blocks: BlockSet,
        until: Until,
    ) -> Call {
        self.begin((container, chunk), Some(change), |op| Event::Write { op, container, chunk, blocks, until })
    }

    /// Waits for all that was ordered before.
    pub fn wait(self: &Arc<Self>, container: ContainerId, chunk: ChunkId, until: Until) -> Call {
        self.begin((container, chunk), None, |op| Event::Wait { op, container, chunk, until })
    }

    /// A writer is on this host.
    pub fn want(self: &Arc<Self>, container: ContainerId, chunk: ChunkId) {
        self.on(Event::Want { container, chunk }, None);
    }

    fn begin(
        self: &Arc<Self>,
        (container, chunk): (ContainerId, ChunkId),
        change: Option<Change>,
        event: impl FnOnce(u64) -> Event,
    ) -> Call {
        let (send, answer) = oneshot::channel();
        let mut sends = Vec::new();
        let op = {
            let mut state = self.state.lock();
            let State { next_op, ops, halted, .. } = &mut *state;
            *next_op += 1;
            let op = *next_op;
            match halted {
                Some(cause) => drop(send.send(Err(Failure::Halted(cause.clone())))),
                None => drop(ops.insert(op, Op { answer: send, change: None, refused: None })),
            }
            let head = change.as_ref().map(|change| change.head_after);
            if let Some(waiting) = state.ops.get_mut(&op) {
                waiting.change = change;
            }
            self.handle(&mut state, event(op), None, &mut sends);
            // Ordered, if it was taken and has no answer yet.
            let is_ordered = state.ops.get(&op).is_some_and(|op| op.change.is_none());
            if let (Some(head), true) = (head, is_ordered)
                && let Some(copy) = state.copies.get_mut(&chunk)
            {
                copy.head = Some(head);
            }
            op
        };
        self.send(sends);
        Call { chains: self.clone(), container, chunk, op, answer }
    }

    /// What calls wait for, by their numbers.
    pub fn waits(&self) -> BTreeMap<u64, Waits> {
        let now = self.now();
        self.state.lock().machine.waits(now).into_iter().map(|waits| (waits.op, waits)).collect()
    }

    /// Chunks this server owns with changes that some copy does not know of.
    pub fn unannounced(&self) -> Vec<(ContainerId, ChunkId)> {
        let state = self.state.lock();
        let has_news = |(container, chunk): &(ContainerId, ChunkId)| {
            let status = state.machine.copy(*container, *chunk);
            status.is_some_and(|status| status.is_owner && (status.unannounced > 0 || status.groups > 0))
        };
        state.machine.chunks().filter(has_news).collect()
    }
}

impl Call {
    pub fn chunk(&self) -> ChunkId {
        self.chunk
    }

    /// Its container, and its number in [`Chains::waits`].
    pub fn place(&self) -> (ContainerId, u64) {
        (self.container, self.op)
    }

    /// The answer, or, when the time is over, an error that names whom it waited for.
    pub async fn done(mut self, within: Duration) -> Result<Answer, Error> {
        let chains = self.chains.clone();
        match chains.env.timeout(within, &mut self.answer).await {
            Ok(Ok(result)) => result.map_err(|failure| failure.error(chains.id, self.chunk)),
            Ok(Err(_)) => {
                Err(Error::new(Code::NotServing, format_args!("data server {}", chains.id), "it is stopping"))
            }
            Err(_) => {
                let cause = chains.waits().get(&self.op).map_or_else(
                    || "it was not applied in time".to_owned(),
                    |waits| format!("it still waits for {}", words(waits)),
                );
                let subject = format_args!("data server {}, chunk {}", chains.id, self.chunk);
                Err(Error::new(Code::DeadlineExceeded, subject, cause))
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.chains.state.lock().ops.remove(&self.op);
    }
}

/// The members it waits for.
pub(crate) fn members(waits: &Waits) -> Vec<ServerId> {
    let lacking = [&waits.bytes, &waits.stable].into_iter().filter(|(_, missing)| *missing > 0);
    let late = lacking.flat_map(|(late, _)| late).chain(&waits.invalidation);
    late.copied().collect::<BTreeSet<_>>().into_iter().collect()
}

pub(crate) fn words(waits: &Waits) -> String {
    let servers = |servers: &[ServerId]| servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if waits.epoch {
        parts.push("the leader: the chain's epoch is not open, or this server has no lease".to_owned());
    }
    if !waits.invalidation.is_empty() {
        parts.push(format!("data servers {} to know what changed", servers(&waits.invalidation)));
    }
    for ((late, missing), what) in
        [(&waits.bytes, "to have the bytes"), (&waits.stable, "to have them on stable storage")]
    {
        if *missing > 0 {
            parts.push(format!("{missing} of data servers {} {what}", servers(late)));
        }
    }
    match parts.is_empty() {
        true => "this data server".to_owned(),
        false => parts.join("; "),
    }
}
