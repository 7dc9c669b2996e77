//! As the leader: the row says who serves.

use super::{LOOK, Leading, Membership, PAUSE};
use crate::lead::{Failure, Fenced, Lead};
use braid_api::{Code, Error};
use braid_members::{Leader, Roster, Step, Written};
use braid_meta_engine::{Engine, EngineError};
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::roster::{FirstRoster, ReadRoster, WriteRoster};
use braid_meta_namespace::rows::RosterRow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Membership {
    /// This process leads from now on, under an epoch of the engine that nobody else is in. Keeps the row until the election or this membership
    /// ends.
    pub fn leads(self: &Arc<Self>, lead: Arc<Lead>) {
        let now = self.now();
        let Some((elected, until)) = lead.term() else { return self.ends() };
        {
            let mut state = self.state.lock();
            state.member.leads(until, now);
            let leader = Leader::new(self.seat.clone(), elected, self.limits.clone(), until, now);
            let left = BTreeSet::new();
            state.leading = Some(Leading { leader, lead: lead.clone(), row: None, left });
        }
        let own = self.clone();
        self.env.spawn("who serves", async move { own.keep_row(&lead).await });
    }

    async fn keep_row(&self, lead: &Lead) {
        let mut heard = lead.heard();
        while !self.is_over() {
            let now = self.now();
            let Some(step) = self.next_step(lead) else { return self.ends() };
            match step {
                Step::Wait(until) => {
                    tokio::select! {
                        biased;
                        () = self.env.sleep(until.saturating_sub(now).min(LOOK)) => {}
                        _ = heard.changed() => {}
                        () = self.to_lead.notified() => {}
                    }
                }
                Step::Read => self.read().await,
                Step::Write { expects, roster } => self.write(expects, roster).await,
            }
        }
    }

    /// `None`: another leads.
    fn next_step(&self, lead: &Lead) -> Option<Step> {
        let mut state = self.state();
        let leading = state.leading.as_mut()?;
        leading.left.iter().for_each(|id| leading.leader.leaves(*id));
        let step = leading.leader.next(self.now());
        (lead.term().is_some() && !leading.leader.is_over()).then_some(step)
    }

    fn patience(&self) -> Duration {
        self.limits.lease / 3
    }

    /// Nobody has served beside others yet. It is read next.
    async fn begin_row(&self) {
        match self.env.timeout(self.patience(), self.engine.transact(0, FirstRoster)).await {
            Ok(Ok(_)) => {}
            Ok(Err(OpError(error))) => self.failed("begun", &error).await,
            Err(_) => self.failed("begun", &Error::bare(Code::DeadlineExceeded)).await,
        }
    }

    async fn read(&self) {
        match self.env.timeout(self.patience(), self.engine.read(0, ReadRoster)).await {
            Ok(Ok(None)) => self.begin_row().await,
            Ok(Ok(found)) => {
                let now = self.now();
                if let Some(leading) = &mut self.state().leading {
                    leading.leader.read(found.as_ref().map(|row| row.roster.clone()), now);
                    leading.row = found;
                }
            }
            Ok(Err(OpError(error))) => self.failed("read", &error).await,
            Err(_) => self.failed("read", &Error::bare(Code::DeadlineExceeded)).await,
        }
    }

    async fn write(&self, expects: Option<Roster>, roster: Roster) {
        if !self.begin_epoch().await {
            return;
        }
        let row = RosterRow { roster, fence: self.engine.epoch() };
        let write = Fenced(WriteRoster { expects, row: row.clone() });
        let answer = self.env.timeout(self.patience(), self.engine.transact(0, write)).await;
        let (became, there) = match &answer {
            Ok(Ok(Ok(()))) => (Written::Done, Some(Some(row))),
            Ok(Ok(Err(found))) => (Written::Not(found.as_ref().map(|row| row.roster.clone())), Some(found.clone())),
            // It is another's to write now.
            Ok(Err(Failure::Fenced)) => return self.ends(),
            Ok(Err(Failure::Other(_))) | Err(_) => (Written::Unknown, None),
        };
        {
            let now = self.now();
            let mut state = self.state();
            let Some(leading) = &mut state.leading else { return };
            if let (Written::Done, Some(Some(row))) = (&became, &there) {
                let (epoch, members) = (row.roster.epoch.0, row.roster.members.len());
                tracing::info!(epoch, members, fence = row.fence, "metadata servers that serve at once");
            }
            leading.leader.wrote(became, now);
            if let Some(there) = there {
                leading.row = there;
            }
            state.is_outdated(now);
        }
        self.to_ask.notify_one();
        match answer {
            Ok(Err(Failure::Other(error))) => self.failed("written", &error).await,
            Err(_) => self.failed("written", &Error::bare(Code::DeadlineExceeded)).await,
            _ => {}
        }
    }

    /// Members of the roster that is there change nothing from now on before they have heard of the next. Nothing is to be done where the election
    /// has seen to that, or an attempt before this one.
    async fn begin_epoch(&self) -> bool {
        let there = self.state.lock().leading.as_ref().and_then(|leading| leading.row.as_ref().map(|row| row.fence));
        let epoch = self.engine.epoch();
        if epoch == 0 || there != Some(epoch) {
            return true;
        }
        match self.engine.fence_others().await {
            Ok(()) => true,
            Err(EngineError::Fenced(_)) => {
                self.ends();
                false
            }
            // Also where it may have begun all the same: then the next attempt is refused, and whoever leads next knows more.
            Err(error) => {
                self.failed("written", &OpError::from(error).0).await;
                false
            }
        }
    }

    async fn failed(&self, what: &str, error: &Error) {
        tracing::warn!("which metadata servers serve could not be {what}: {error}");
        self.env.sleep(PAUSE).await;
    }
}
