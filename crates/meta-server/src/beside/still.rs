//! A snapshot is made where several servers hold slots: each keeps still what is written at it, until the leader lets go.
//!
//! Promises: when [`Elsewhere::ask`] returns, all others have done the step under the epoch of this attempt, and it stays so until the attempt is
//! let go of, or there is another epoch, under which nothing is committed that was begun in this one. A word that comes late, or twice, changes
//! nothing.

use super::asked::NOT_YET;
use super::{WORD, elsewhere};
use crate::server::MetaServer;
use crate::snapshots::{Held, Still};
use braid_api::meta::{StillAt, StillStep};
use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_types::{InodeId, MemberId, MembershipEpoch};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Before a member that has gone, or could not do it in time, is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// What one attempt has stand still here.
#[derive(Default)]
pub(super) struct Stand {
    /// Of the last question.
    turn: u64,
    is_over: bool,
    still: BTreeMap<InodeId, Still>,
    held: Option<Held>,
}

/// By the attempt's number. One that is over stays until the next epoch, so that nothing late begins it anew.
pub(super) type Stands = BTreeMap<u64, Arc<tokio::sync::Mutex<Stand>>>;

/// What all others keep still for one attempt, until dropped.
pub(crate) struct Elsewhere(Arc<Attempt>);

struct Attempt {
    server: Weak<MetaServer>,
    others: Vec<MemberId>,
    epoch: MembershipEpoch,
    number: u64,
    /// Of the last question.
    turn: AtomicU64,
    root: InodeId,
}

impl MetaServer {
    /// Nothing stands still yet.
    pub(crate) fn elsewhere(&self, root: InodeId, epoch: MembershipEpoch) -> Result<Elsewhere> {
        let (others, number) = match &self.beside {
            Some(beside) => {
                let busy = || Error::new(Code::Busy, "a snapshot", "it is not known yet which metadata servers serve");
                (beside.all_others().ok_or_else(busy)?, beside.attempts.fetch_add(1, SeqCst) + 1)
            }
            None => (Vec::new(), 0),
        };
        let (server, turn) = (self.this.clone(), AtomicU64::new(0));
        Ok(Elsewhere(Arc::new(Attempt { server, others, epoch, number, turn, root })))
    }

    /// Returns when all that this server is to hold came here, and everybody who may hold something of it has said so: before, a file may be
    /// written of which it knows nothing.
    pub(crate) async fn until_all_is_known(&self, end: Monotonic) -> Result<()> {
        while !self.has_all_slots() {
            if end <= self.env.clock.now() {
                let cause = "slots that it is to hold have not come to it yet";
                return Err(Error::new(Code::Busy, "this metadata server", cause));
            }
            self.env.sleep(AGAIN).await;
        }
        self.leases.until_all_said(end).await
    }

    fn has_all_slots(&self) -> bool {
        let Some(beside) = &self.beside else { return true };
        let roster = beside.others.roster();
        roster.is_some_and(|roster| self.leases.has_all(roster.epoch, &roster.slots_of(beside.others.me())))
    }

    /// Whether it is done; if not, it is gone on with when it is asked for again.
    pub(super) async fn still_here(&self, m: StillAt) -> Result<bool> {
        let Some(beside) = &self.beside else {
            return Err(elsewhere("StillAt", "one metadata server serves alone here"));
        };
        let stale = || elsewhere("StillAt", "who serves has changed meanwhile, or a later word has come");
        let stand = {
            let mut stands = beside.stands.lock();
            if self.leases.epoch() != m.epoch {
                return Err(stale());
            }
            stands.entry(m.number).or_default().clone()
        };
        let mut stand = stand.lock().await;
        if stand.turn > m.turn || (stand.is_over && m.step != StillStep::LetGo) {
            return Err(stale());
        }
        stand.turn = m.turn;
        let end = self.env.clock.now() + NOT_YET;
        let done = match m.step {
            StillStep::LetGo => {
                *stand = Stand { turn: m.turn, is_over: true, ..Stand::default() };
                Ok(())
            }
            StillStep::Files => {
                stand.held = None;
                match self.until_all_is_known(end).await {
                    Ok(()) => self.keep_still(m.root, &mut stand.still, end).await,
                    Err(error) => Err(error),
                }
            }
            StillStep::Writes => {
                if stand.held.is_none() {
                    stand.held = Some(self.leases.hold_writes());
                }
                self.keep_still(m.root, &mut stand.still, end).await
            }
        };
        // What was kept still under another epoch is not any more.
        if self.leases.epoch() != m.epoch {
            return Err(stale());
        }
        match done {
            Ok(()) => Ok(true),
            Err(error) if error.code == Code::Busy => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Elsewhere {
    /// Returns when all others have done it.
    pub(crate) async fn ask(&self, step: StillStep, end: Monotonic) -> Result<()> {
        let Some(server) = self.0.server.upgrade() else { return Err(Code::NotServing.into()) };
        if server.leases.asks_nobody {
            return Ok(());
        }
        for to in &self.0.others {
            while !self.0.ask(&server, *to, step).await? {
                if end <= server.env.clock.now() {
                    let cause = "files below it are written there, and are not stored yet";
                    return Err(Error::new(Code::Busy, format_args!("metadata server {to}"), cause));
                }
                server.env.sleep(AGAIN).await;
            }
        }
        Ok(())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(server) = self.0.server.upgrade().filter(|_| !self.0.others.is_empty()) {
            let attempt = self.0.clone();
            server.env.clone().spawn("the end of a snapshot elsewhere", async move { attempt.let_go(&server).await });
        }
    }
}

impl Attempt {
    /// Whether it has done it. An error is that there is another epoch.
    async fn ask(&self, server: &MetaServer, to: MemberId, step: StillStep) -> Result<bool> {
        if server.leases.epoch() != self.epoch {
            return Err(elsewhere("a snapshot", "who serves has changed meanwhile"));
        }
        let turn = self.turn.fetch_add(1, SeqCst) + 1;
        let question = StillAt { to, epoch: self.epoch, number: self.number, turn, root: self.root, step };
        match server.say_to(to, question, WORD).await {
            Ok(done) => Ok(done),
            Err(error) => {
                tracing::debug!(%error, %to, "what is written there does not stand still yet");
                // It may know more of who serves, and then this server hears of that too.
                if let Some(beside) = &server.beside {
                    beside.others.is_outdated();
                }
                Ok(false)
            }
        }
    }

    /// Until all have heard it, or there is another epoch.
    async fn let_go(&self, server: &MetaServer) {
        for to in &self.others {
            while self.ask(server, *to, StillStep::LetGo).await.is_ok_and(|done| !done) {
                if server.stopping.load(SeqCst) {
                    return;
                }
                server.env.sleep(AGAIN).await;
            }
        }
    }
}
