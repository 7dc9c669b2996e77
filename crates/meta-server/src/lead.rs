//! The loop around `braid-election`: this process among those that could serve the metadata of one database
//! (docs/design/0020-several-metadata-servers.md).
//!
//! Promises: [`Lead::win`] returns when this process leads and whatever others still change fails; from then on it may answer for as long
//! as [`Lead::may_answer`] says so, which is over before anybody else may. Who has lost the lead never has it again: it starts anew.

use braid_api::{Code, Error, Result};
use braid_election::{Candidate, Limits, Record, Role, Step, Written};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, EngineError, Operation, Tx};
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::lead::{ReadLead, WriteLead};
use braid_meta_namespace::rows::LeadRow;
use braid_types::LeaderEpoch;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// After a failure of the database, before it is asked again.
const PAUSE: Duration = Duration::from_millis(250);
/// Between two looks at what is to be done, at the latest.
const LOOK: Duration = Duration::from_secs(2);
/// For the last word of one that stops.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How the rows' transactions fail.
pub(crate) enum Failure {
    /// Another process has fenced this one.
    Fenced,
    Other(Error),
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match error {
            EngineError::Fenced(_) => Failure::Fenced,
            other => Failure::Other(OpError::from(other).into()),
        }
    }
}

pub struct Lead {
    env: Env,
    candidate: Mutex<Candidate>,
    over: Notify,
    /// Counts what has been heard of the row.
    heard: watch::Sender<u64>,
}

fn row(record: Record) -> LeadRow {
    let Record { epoch, leader, beat, lease_ms, released } = record;
    LeadRow { epoch, leader, beat, lease_ms, released }
}

fn record(row: LeadRow) -> Record {
    let LeadRow { epoch, leader, beat, lease_ms, released } = row;
    Record { epoch, leader, beat, lease_ms, released }
}

impl Lead {
    /// Waits until this process leads. An error: it can never, the log says why; to be started anew.
    pub async fn win(env: Env, engine: AnyEngine, limits: Limits) -> Result<Arc<Lead>> {
        let me = env.random.u64();
        let (candidate, heard) = (Mutex::new(Candidate::new(me, limits)), watch::Sender::new(0));
        let lead = Arc::new(Lead { env, candidate, over: Notify::new(), heard });
        let mut is_told = false;
        while lead.role() == Role::Stands {
            lead.step(&engine).await;
            if !std::mem::replace(&mut is_told, true) && lead.role() == Role::Stands {
                tracing::info!("another metadata server leads, or did a moment ago: this one stands by");
            }
        }
        let Role::Leads(epoch) = lead.role() else { return Err(lost()) };
        // From now on, so that a store which takes longer than a lease to fence the others has a leader all the same.
        let (keeping, rows) = (lead.clone(), engine.clone());
        lead.env.spawn("leadership", async move {
            while matches!(keeping.role(), Role::Leads(_)) {
                keeping.step(&rows).await;
                keeping.heard.send_modify(|count| *count += 1);
            }
            keeping.over.notify_one();
        });
        if let Err(error) = engine.fence_others().await {
            lead.release(&engine).await;
            return Err(OpError::from(error).into());
        }
        if lead.role() != Role::Leads(epoch) {
            return Err(lost());
        }
        tracing::info!(epoch, "this metadata server leads");
        Ok(lead)
    }

    fn role(&self) -> Role {
        self.candidate.lock().role()
    }

    fn now(&self) -> Duration {
        self.env.clock.now().0
    }

    /// To be asked when all that an answer tells of has been read.
    pub fn may_answer(&self) -> Result<()> {
        let (candidate, now) = (self.candidate.lock(), self.now());
        match candidate.may_answer(now) {
            true => Ok(()),
            false if candidate.role() == Role::Over => Err(lost()),
            false => {
                let cause = "the database has not confirmed for too long that it leads";
                Err(Error::new(Code::NotServing, "the metadata server", cause))
            }
        }
    }

    /// Under which epoch it was elected, and until when it may answer if nothing more is heard; `None` when another leads, or may.
    pub(crate) fn term(&self) -> Option<(LeaderEpoch, Duration)> {
        let candidate = self.candidate.lock();
        match (candidate.role(), candidate.answers_until()) {
            (Role::Leads(epoch), Some(until)) => Some((LeaderEpoch(epoch), until)),
            _ => None,
        }
    }

    /// For how long from now no other leads, if nothing more is heard.
    pub(crate) fn leads_for(&self) -> Duration {
        self.term().map_or(Duration::ZERO, |(_, until)| until.saturating_sub(self.now()))
    }

    /// Changes when [`Lead::term`] may have changed.
    pub(crate) fn heard(&self) -> watch::Receiver<u64> {
        self.heard.subscribe()
    }

    /// Returns when another leads, or may.
    pub async fn ended(&self) {
        if self.role() != Role::Over {
            self.over.notified().await;
        }
    }

    /// The next to lead need not wait for the end of this one's lease.
    pub async fn release(&self, engine: &AnyEngine) {
        let step = self.candidate.lock().release();
        self.heard.send_modify(|count| *count += 1);
        let Some(Step::Write { mut expects, record: last }) = step else { return };
        // A sign of life that was on its way may come first.
        for _ in 0..2 {
            let write = WriteLead { expects: expects.map(row), row: row(last) };
            match self.env.timeout(LAST_WORD, engine.transact::<WriteLead>(0, write)).await {
                Ok(Ok(Err(Some(found)))) if found.leader == last.leader => expects = Some(record(found)),
                _ => return,
            }
        }
    }

    /// Does what is to be done next.
    async fn step(&self, engine: &AnyEngine) {
        let began = self.now();
        let (step, patience) = {
            let mut candidate = self.candidate.lock();
            (candidate.next(began), candidate.patience())
        };
        match step {
            Step::Wait(until) => self.env.sleep(until.saturating_sub(began).min(LOOK)).await,
            Step::Read => match self.env.timeout(patience, engine.read(0, ReadLead)).await {
                Ok(Ok(found)) => self.candidate.lock().read(found.map(record), self.now()),
                Ok(Err(OpError(error))) => self.failed("read", &error).await,
                Err(_) => self.failed("read", &Error::bare(Code::DeadlineExceeded)).await,
            },
            Step::Write { expects, record: written } => {
                // What whoever takes the lead writes is to count, whoever had fenced it.
                if self.role() == Role::Stands
                    && let Err(error) = engine.join().await
                {
                    let OpError(error) = error.into();
                    self.candidate.lock().wrote(written, Written::Unknown, began, self.now());
                    return self.failed("written", &error).await;
                }
                let write = Fenced(WriteLead { expects: expects.map(row), row: row(written) });
                let answer = self.env.timeout(patience, engine.transact(0, write)).await;
                let became = match &answer {
                    Ok(Ok(Ok(()))) => Written::Done,
                    Ok(Ok(Err(found))) => Written::Not(found.map(record)),
                    // It is another's to write now.
                    Ok(Err(Failure::Fenced)) => Written::Not(None),
                    Ok(Err(Failure::Other(_))) | Err(_) => Written::Unknown,
                };
                self.candidate.lock().wrote(written, became, began, self.now());
                if let Ok(Err(Failure::Other(error))) = &answer {
                    self.failed("written", error).await;
                }
            }
        }
    }

    async fn failed(&self, what: &str, error: &Error) {
        tracing::warn!("who leads the metadata servers could not be {what}: {error}");
        self.env.sleep(PAUSE).await;
    }
}

/// The same operation, of which it is told apart whether another process has fenced this one.
pub(crate) struct Fenced<O>(pub O);

impl<O: Operation<Error = OpError>> Operation for Fenced<O> {
    type Output = O::Output;
    type Error = Failure;

    fn may_use_reserve(&self) -> bool {
        self.0.may_use_reserve()
    }

    fn outlives_its_epoch(&self) -> bool {
        self.0.outlives_its_epoch()
    }

    async fn run(&self, tx: &mut dyn Tx) -> std::result::Result<Self::Output, Failure> {
        self.0.run(tx).await.map_err(|OpError(error)| Failure::Other(error))
    }
}

fn lost() -> Error {
    Error::new(Code::NotServing, "the metadata server", "another one has taken the lead over")
}
