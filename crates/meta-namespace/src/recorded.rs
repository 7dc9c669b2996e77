use crate::charges::Charges;
use crate::rows::{RequestRow, SessionRow, keys};
use crate::{OpContext, OpError, Unit};
use braid_api::meta::{DirAfter, MetaAnswer};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{InodeId, SessionId};
use bytes::Bytes;
use std::future::Future;

/// A change of the namespace. May be applied several times until one commits, so it keeps no state.
pub trait Mutation: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// What it reads first; read together with the rows of session and request, in one round trip.
    fn first_keys(&self) -> Vec<Key>;

    fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> impl Future<Output = Result<Self::Answer, OpError>> + Send;
}

/// A [`Mutation`] under its request id: the answer is kept in `requests` in the same transaction, and a
/// repetition gets that answer and changes nothing.
pub struct Recorded<M: Mutation> {
    pub cx: OpContext,
    pub mutation: M,
    /// Place of the message in the protocol, to notice an id that is used for another message.
    pub message: u8,
    /// How the answer goes over the wire.
    pub answer: fn(M::Answer) -> MetaAnswer,
}

/// What a [`Recorded`] gives.
pub struct Outcome {
    pub answer: MetaAnswer,
    /// The session is on record as one that keeps what it asks, and the request ran now: a repetition does not know
    /// what it was answered under before.
    pub may_be_early: bool,
    /// The answer is the first one's: it may be old by now, and nothing of it may be kept.
    pub repeated: bool,
    /// A directory was listed whose entries are to be charged to others.
    pub restamps: bool,
    /// A directory with a quota has gone, and something is charged to it still.
    pub outlived: bool,
    /// A directory in which something was made, and the one whose policy holds there ([`OpContext::policy_root`]).
    pub policy_of: Option<(InodeId, InodeId)>,
}

impl Outcome {
    fn durable(answer: MetaAnswer) -> Self {
        Outcome { answer, may_be_early: false, repeated: false, restamps: false, outlived: false, policy_of: None }
    }
}

impl<M: Mutation> Operation for Recorded<M> {
    type Output = Outcome;
    type Error = OpError;

    fn may_be_early(&self, outcome: &Outcome) -> bool {
        outcome.may_be_early
    }

    async fn run(&self, tx: &mut dyn Tx) -> Result<Outcome, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let cx = &self.cx;
        if cx.session == SessionId(0) {
            // The server's own housekeeping: no session, nothing to repeat.
            unit.load(&self.mutation.first_keys()).await?;
            let answer = (self.answer)(self.mutation.apply(&mut unit, cx).await?);
            unit.charge(cx).await?;
            let Charges { restamps, outlived, .. } = unit.charges;
            return Ok(Outcome { restamps, outlived, ..Outcome::durable(answer) });
        }
        let (session_key, request_key) = (keys::session(cx.session), keys::request(cx.session, cx.request));
        let mut first = self.mutation.first_keys();
        first.extend([session_key.clone(), request_key.clone()]);
        // The session is to stay until the commit, and its other changes need not wait for this one; nor those of a policy.
        let shares: fn(&Key) -> bool = match cx.policy_root {
            Some(_) => |key| matches!(key.table(), Table::Sessions | Table::Policies),
            None => |key| key.table() == Table::Sessions,
        };
        first.extend(cx.policy_root.map(keys::policy));
        unit.load_sharing(&first, shares).await?;
        let live = unit.get::<SessionRow>(&session_key).await?.filter(|row| !row.has_ended());
        let session = match live {
            Some(row) if row.epoch == cx.session_epoch => row,
            Some(_) => return Err(Error::new(Code::SessionFenced, format_args!("session {}", cx.session), "").into()),
            None => return Err(Error::new(Code::SessionUnknown, format_args!("session {}", cx.session), "").into()),
        };
        if let Some(row) = unit.get::<RequestRow>(&request_key).await? {
            if row.message != self.message {
                return Err(Error::new(Code::RequestReused, format_args!("request {}", cx.request), "").into());
            }
            let answer = postcard::from_bytes(&row.answer)
                .map_err(|e| Error::new(Code::Internal, format_args!("request {}", cx.request), e))?;
            return Ok(Outcome { repeated: true, ..Outcome::durable(answer) });
        }
        let mut answer = (self.answer)(self.mutation.apply(&mut unit, cx).await?);
        unit.charge(cx).await?;
        // Nobody needs them of a repetition.
        let dirs: Vec<DirAfter> = answer.dirs_mut().map(std::mem::take).collect();
        let bytes = postcard::to_stdvec(&answer).map_err(|e| Error::new(Code::Internal, "an answer", e))?;
        answer.dirs_mut().zip(dirs).for_each(|(dir, told)| *dir = told);
        // Of two that run at the same time one finds at its commit that there is one by now, runs again and gets that answer.
        unit.put(request_key, &RequestRow { message: self.message, answer: Bytes::from(bytes) });
        let may_be_early = cx.early && session.keeps;
        if cx.early && !session.keeps {
            // It must be known durably for whom a restart waits, before anything is answered that it may lose.
            unit.put(session_key, &SessionRow { keeps: true, ..session });
        }
        let policy_of = unit.policy_of;
        let Charges { restamps, outlived, .. } = unit.charges;
        Ok(Outcome { answer, may_be_early, repeated: false, restamps, outlived, policy_of })
    }
}

/// A question to a committed snapshot.
pub trait Query: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// What it reads first, for who reads something beside it in the same round trip; may be less than all.
    fn ahead(&self) -> Vec<Key> {
        Vec::new()
    }

    fn ask(&self, unit: &mut Unit<'_>) -> impl Future<Output = Result<Self::Answer, OpError>> + Send;
}

/// A [`Query`] as an operation of the engine.
pub struct ReadOnly<Q>(pub Q);

impl<Q: Query> Operation for ReadOnly<Q> {
    type Output = Q::Answer;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Q::Answer, OpError> {
        self.0.ask(&mut Unit::new(tx, Lock::None)).await
    }
}
