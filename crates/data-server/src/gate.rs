//! Fencing: which tokens are too old (design.md §5 *Fencing*).
//!
//! A change passes twice: when it arrives, so that it is refused early, and again when it is applied, with a [`Pass`]
//! that it keeps meanwhile. A fence is acknowledged when no pass of the fenced is left; so after the acknowledgement
//! nothing of it is applied, although its requests may still be queued.
//!
//! A start knows nothing of fences before it. So from [`Gate::await_sessions`] on nothing of a session passes until the metadata
//! server has said which sessions live ([`Gate::learn`]), and then none that began before that and is not among them. It is the same when
//! the metadata server has heard nothing from here for so long that sessions may end without this server: from then on no change
//! passes, until sessions were heard of again ([`Gate::heard`]). A server that was stopped and goes on finds what it was sent long ago
//! beside what others have sent since.
//!
//! A change that its sender has given up, because it was not answered in time, may still be on its way. Each later request of
//! the sender says up to where that is so, and what is before is refused: else it could come after what was written instead.
//!
//! Zero session, session epoch, chain epoch or number is "not used" and passes. The truncate generation is the store's to
//! judge, and 0 is a generation like any other: that of a file that was never cut.

use crate::core::Call;
use braid_api::data::FenceSession;
use braid_api::meta::{ContainerInfo, LiveSessions};
use braid_api::{Code, Error, Result};
use braid_env::{Clock, Monotonic};
use braid_types::{ChainEpoch, ContainerId, LeaseGen, MembershipEpoch, ServerId, SessionEpoch, SessionId, Token};
use parking_lot::Mutex;
use std::cmp::Ordering::{Greater, Less};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Notify;

pub(crate) struct Gate {
    server: ServerId,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// A pass has ended.
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// Sessions heard of; ended ones stay for as long as the process lives, 16 bytes each.
    sessions: BTreeMap<SessionId, Session>,
    chains: BTreeMap<ContainerId, ChainEpoch>,
    passes: BTreeMap<u64, Passing>,
    next: u64,
    closed: bool,
    /// Nothing has been heard of sessions since the start, or something of those that have ended is still being applied.
    awaits: bool,
    /// How often sessions were heard of.
    learnt: u64,
    /// Until then no session ends without a word to this server; `None`: nobody tells it, as in tests.
    heard_until: Option<Monotonic>,
    /// As heard last.
    heard: LiveSessions,
    /// The newest metadata server heard of.
    newest: Option<MembershipEpoch>,
    /// No other leads before then: a later word of it may be of one that stood still since. `None`: no other ever does, or none was
    /// heard of.
    leads_until: Option<Monotonic>,
    /// Leases `sync` up to this one are for repetitions only.
    sync_floor: LeaseGen,
    /// Up to where each session waits for no change any more; of copies for each container.
    settled: BTreeMap<(ContainerId, SessionId), u64>,
}

#[derive(Clone, Copy, Default)]
struct Session {
    epoch: SessionEpoch,
    fenced: bool,
}

#[derive(Clone, Copy)]
struct Passing {
    session: SessionId,
    session_epoch: SessionEpoch,
    container: ContainerId,
    chain_epoch: ChainEpoch,
}

/// A change that is being applied, until dropped.
pub(crate) struct Pass {
    gate: Arc<Gate>,
    id: u64,
}

impl Gate {
    pub fn new(server: ServerId, clock: Arc<dyn Clock>) -> Arc<Gate> {
        Arc::new(Gate { server, clock, state: Mutex::default(), ended: Notify::new() })
    }

    /// Nothing of a session passes until it is heard which ones live.
    pub fn await_sessions(&self) {
        let mut state = self.state.lock();
        (state.awaits, state.heard_until) = (true, Some(Monotonic::default()));
        state.leads_until = Some(Monotonic::default());
    }

    /// Sessions that had begun before and are not among these have ended. Nothing of any session begins until nothing of theirs is being
    /// applied any more; the answer ends then.
    pub fn learn(self: &Arc<Self>, sessions: LiveSessions) -> impl Future<Output = ()> + Send + 'static {
        let (heard, learnt) = {
            let mut state = self.state.lock();
            // An answer that comes late says less.
            if sessions.before >= state.heard.before {
                state.heard = LiveSessions { live: sorted(sessions.live), ..sessions };
            }
            let State { settled, heard, .. } = &mut *state;
            settled.retain(|(_, session), _| heard.may_live(*session));
            let heard = heard.clone();
            state.awaits = true;
            state.learnt += 1;
            (heard, state.learnt)
        };
        let gate = self.clone();
        async move {
            gate.none(|passing| passing.session.0 != 0 && !heard.may_live(passing.session)).await;
            let mut state = gate.state.lock();
            // One that was learnt later ends by itself.
            if state.learnt == learnt {
                state.awaits = false;
            }
        }
    }

    /// Signs of life have arrived: no session ends before then without a word to this server.
    pub fn heard(&self, until: Monotonic) {
        let mut state = self.state.lock();
        state.heard_until = state.heard_until.max(Some(until));
    }

    /// As far as was heard last.
    pub fn may_live(&self, session: SessionId) -> bool {
        self.state.lock().heard.may_live(session)
    }

    /// Something may be lost, and what is under way beside others is decided first.
    pub fn raise_sync_floor(&self, floor: LeaseGen) {
        let mut state = self.state.lock();
        state.sync_floor = state.sync_floor.max(floor);
    }

    /// May something begin under this lease beside others?
    pub fn check_sync(&self, token: &Token) -> Result<()> {
        let floor = self.state.lock().sync_floor;
        if token.lease_gen.0 == 0 || token.lease_gen > floor {
            return Ok(());
        }
        let cause =
            format_args!("leases up to {} are of before a change of servers, this is {}", floor.0, token.lease_gen.0);
        Err(Error::new(Code::StaleLease, format_args!("data server {}", self.server), cause))
    }

    /// Takes in up to where the caller waits for no change any more, and refuses one that is before. `copies_of` is 0 of chunks with
    /// one copy, whose changes are counted together.
    pub fn settle(&self, call: &Call, copies_of: ContainerId) -> Result<()> {
        let mut state = self.state.lock();
        let session = call.token.session;
        if call.place == 0 || session.0 == 0 {
            return Ok(());
        }
        let settled = state.settled.entry((copies_of, session)).or_default();
        *settled = call.settled.max(*settled);
        if call.place >= *settled {
            return Ok(());
        }
        let cause =
            format_args!("change {} of session {session}, which waits for {settled} and later ones", call.place);
        Err(Error::new(Code::Overtaken, format_args!("data server {}", self.server), cause))
    }

    /// Up to where sessions wait for no change of the container's copies any more.
    pub fn settled(&self, copies_of: ContainerId) -> Vec<(SessionId, u64)> {
        let state = self.state.lock();
        let all = (copies_of, SessionId(0))..=(copies_of, SessionId(u64::MAX));
        state.settled.range(all).map(|((_, session), place)| (*session, *place)).collect()
    }

    /// Another server has heard that. Of a session that has ended nothing is kept.
    pub fn learn_settled(&self, copies_of: ContainerId, settled: impl Iterator<Item = (SessionId, u64)>) {
        let mut state = self.state.lock();
        for (session, place) in settled {
            let is_fenced = state.sessions.get(&session).is_some_and(|known| known.fenced);
            if !is_fenced && state.heard.may_live(session) {
                let known = state.settled.entry((copies_of, session)).or_default();
                *known = place.max(*known);
            }
        }
    }

    /// As [`Gate::enter`], of a change that may have been given up since it arrived.
    pub fn enter_change(self: &Arc<Self>, call: &Call, container: ContainerId, copies_of: ContainerId) -> Result<Pass> {
        self.settle(call, copies_of)?;
        self.enter(&call.token, container)
    }

    /// Would this token pass now? `container` is 0 where the request names none.
    pub fn check(&self, token: &Token, container: ContainerId) -> Result<()> {
        self.check_locked(&mut self.state.lock(), token, container)
    }

    pub fn enter(self: &Arc<Self>, token: &Token, container: ContainerId) -> Result<Pass> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        self.check_locked(&mut state, token, container)?;
        if token.session.0 != 0 && state.heard_until.is_some_and(|until| now >= until) {
            let cause = "the metadata server has not heard from it for so long that sessions may have ended without it";
            return Err(Error::new(Code::NotServing, format_args!("data server {}", self.server), cause));
        }
        state.next += 1;
        let id = state.next;
        let Token { session, session_epoch, chain_epoch, .. } = *token;
        state.passes.insert(id, Passing { session, session_epoch, container, chain_epoch });
        Ok(Pass { gate: self.clone(), id })
    }

    /// A metadata server of this epoch has answered: what those before it say does not count any more, and what it says itself counts
    /// until then. `None`: for ever.
    pub fn hears_of(&self, epoch: MembershipEpoch, leads_until: Option<Monotonic>) {
        let mut state = self.state.lock();
        if state.newest.is_none_or(|newest| newest <= epoch) {
            (state.newest, state.leads_until) = (Some(epoch), leads_until);
        }
    }

    /// Refuses the session from now on; returns when nothing of it is being applied any more. False if the session
    /// has registered anew since, which a fence that comes late does not touch.
    ///
    /// # Errors
    /// [`Code::NotServing`] of a metadata server that another has succeeded, or may have: nothing is refused then.
    pub async fn fence(&self, fence: &FenceSession) -> Result<bool> {
        let has_ended = {
            let now = self.clock.now();
            let mut state = self.state.lock();
            let cause = match state.newest.map(|newest| fence.by.cmp(&newest)) {
                Some(Less) => Some("the metadata server that ends it has been succeeded"),
                // How long that one leads is not known here.
                Some(Greater) => Some("nothing has been heard of the metadata server that ends it"),
                _ if state.leads_until.is_some_and(|until| now >= until) => {
                    Some("the metadata server that ends it may have been succeeded")
                }
                _ => None,
            };
            if let Some(cause) = cause {
                let here = format_args!("session {} at data server {}", fence.session, self.server);
                return Err(Error::new(Code::NotServing, here, cause));
            }
            state.settled.retain(|(_, session), _| *session != fence.session);
            let known = state.sessions.entry(fence.session).or_default();
            if fence.epoch >= known.epoch {
                *known = Session { epoch: fence.epoch, fenced: true };
            }
            known.fenced
        };
        self.none(|passing| passing.session == fence.session && passing.session_epoch <= fence.epoch).await;
        Ok(has_ended)
    }

    /// Learns chains; returns when nothing under an older epoch of them is being applied.
    pub async fn set_chains(&self, containers: &[ContainerInfo]) {
        let newest: BTreeMap<ContainerId, ChainEpoch> = {
            let mut state = self.state.lock();
            let learnt = containers.iter().map(|info| {
                let known = state.chains.entry(info.id).or_default();
                *known = info.epoch.max(*known);
                (info.id, *known)
            });
            learnt.collect()
        };
        let is_old = |p: &Passing| p.chain_epoch.0 != 0 && newest.get(&p.container).is_some_and(|e| p.chain_epoch < *e);
        self.none(is_old).await;
    }

    /// Nothing passes any more; returns when nothing is being applied.
    pub async fn close(&self) {
        self.state.lock().closed = true;
        self.none(|_| true).await;
    }

    fn check_locked(&self, state: &mut State, token: &Token, container: ContainerId) -> Result<()> {
        let here = format_args!("data server {}", self.server);
        if state.closed {
            return Err(Error::new(Code::NotServing, here, "it is stopping"));
        }
        if token.session.0 != 0 {
            if state.awaits {
                let cause = "it does not know yet which sessions have ended while it was away, or carries out what these had sent";
                return Err(Error::new(Code::NotServing, here, cause));
            }
            if !state.heard.may_live(token.session) {
                let cause = format_args!("session {} has ended", token.session);
                return Err(Error::new(Code::SessionFenced, here, cause));
            }
            let known = state.sessions.entry(token.session).or_default();
            let (epoch, id) = (token.session_epoch, token.session);
            if epoch > known.epoch {
                *known = Session { epoch, fenced: false };
            } else if known.fenced {
                let cause = format_args!("session {id} has ended with epoch {}", known.epoch);
                return Err(Error::new(Code::SessionFenced, here, cause));
            } else if epoch.0 != 0 && epoch < known.epoch {
                let cause = format_args!("session {id} is at epoch {}, the request carries {epoch}", known.epoch);
                return Err(Error::new(Code::SessionFenced, here, cause));
            }
        }
        let chain_epoch = token.chain_epoch;
        if chain_epoch.0 != 0
            && let Some(known) = state.chains.get(&container)
            && chain_epoch < *known
        {
            let cause = format_args!("container {container} is at epoch {known}, the request carries {chain_epoch}");
            return Err(Error::new(Code::StaleEpoch, here, cause));
        }
        Ok(())
    }

    async fn none(&self, held: impl Fn(&Passing) -> bool) {
        loop {
            let ended = self.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Registered before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            if !self.state.lock().passes.values().any(&held) {
                return;
            }
            ended.await;
        }
    }
}

fn sorted(mut sessions: Vec<SessionId>) -> Vec<SessionId> {
    sessions.sort_unstable();
    sessions
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.state.lock().passes.remove(&self.id);
        self.gate.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn token(session: u64, epoch: u32, chain: u32) -> Token {
        let (session, session_epoch) = (SessionId(session), SessionEpoch(epoch));
        Token { session, session_epoch, chain_epoch: ChainEpoch(chain), ..Token::default() }
    }

    fn fence(session: u64, epoch: u32) -> FenceSession {
        FenceSession { session: SessionId(session), epoch: SessionEpoch(epoch), by: MembershipEpoch(0) }
    }

    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        ready(future).is_some()
    }

    const NONE: ContainerId = ContainerId(0);

    #[test]
    fn a_metadata_server_that_was_succeeded_ends_no_session() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        gate.hears_of(MembershipEpoch(4), None);
        gate.hears_of(MembershipEpoch(3), None);
        let by = |epoch| FenceSession { by: MembershipEpoch(epoch), ..fence(5, 1) };
        assert_eq!(ready(gate.fence(&by(3))).unwrap().unwrap_err().code, Code::NotServing);
        assert!(gate.check(&token(5, 1, 0), NONE).is_ok());
        assert_eq!(ready(gate.fence(&by(4))).unwrap(), Ok(true));
        assert_eq!(gate.check(&token(5, 1, 0), NONE).unwrap_err().code, Code::SessionFenced);
    }

    #[test]
    fn a_metadata_server_that_may_have_been_succeeded_ends_no_session() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        let ends = |session| ready(gate.fence(&fence(session, 1))).unwrap().is_ok();
        let now = gate.clock.now();
        let later = |secs| Some(Monotonic(now.0 + std::time::Duration::from_secs(secs)));
        gate.await_sessions();
        assert!(!ends(5), "none was heard of");
        gate.hears_of(MembershipEpoch(0), Some(now));
        assert!(!ends(5), "its time is over");
        gate.hears_of(MembershipEpoch(0), later(3000));
        assert!(ends(5));
        gate.hears_of(MembershipEpoch(1), later(3000));
        assert!(!ends(6), "of another that has been succeeded");
        gate.hears_of(MembershipEpoch(0), None);
        assert!(!ends(6), "an answer that comes late says nothing");
        let by_later = FenceSession { by: MembershipEpoch(2), ..fence(6, 1) };
        assert!(ready(gate.fence(&by_later)).unwrap().is_err(), "for how long that one leads was not heard");
        gate.hears_of(MembershipEpoch(2), None);
        assert_eq!(ready(gate.fence(&by_later)).unwrap(), Ok(true));
    }

    #[test]
    fn older_epochs_of_a_session_are_refused() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        assert!(gate.check(&token(5, 2, 0), NONE).is_ok());
        assert_eq!(gate.check(&token(5, 1, 0), NONE).unwrap_err().code, Code::SessionFenced);
        assert!(gate.check(&token(5, 0, 0), NONE).is_ok(), "not used");
        assert_eq!(ready(gate.fence(&fence(5, 2))), Some(Ok(true)));
        for epoch in [0, 1, 2] {
            assert_eq!(gate.check(&token(5, epoch, 0), NONE).unwrap_err().code, Code::SessionFenced);
        }
        assert!(gate.check(&token(6, 1, 0), NONE).is_ok() && gate.check(&Token::default(), NONE).is_ok());
        assert!(gate.check(&token(5, 3, 0), NONE).is_ok(), "registered anew");
        assert_eq!(ready(gate.fence(&fence(5, 2))), Some(Ok(false)), "late");
        assert!(gate.check(&token(5, 3, 0), NONE).is_ok());
    }

    #[test]
    fn after_a_start_nothing_of_a_session_passes_before_it_is_heard_which_ones_live() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        gate.await_sessions();
        assert_eq!(gate.check(&token(5, 1, 0), NONE).unwrap_err().code, Code::NotServing);
        assert!(gate.check(&Token::default(), NONE).is_ok(), "the metadata server's own");
        let live = |before, live: &[u64]| LiveSessions {
            before: SessionId(before),
            live: live.iter().map(|id| SessionId(*id)).collect(),
        };
        let learn = |sessions| assert!(is_ready(gate.learn(sessions)));
        learn(live(8, &[7, 5]));
        assert!(gate.check(&token(5, 1, 0), NONE).is_ok() && gate.check(&token(7, 1, 0), NONE).is_ok());
        assert_eq!(gate.check(&token(6, 2, 0), NONE).unwrap_err().code, Code::SessionFenced, "whatever its epoch");
        assert!(gate.check(&token(8, 1, 0), NONE).is_ok(), "began later");
        // Heard again, as after a time out of touch.
        learn(live(9, &[7]));
        assert_eq!(gate.check(&token(5, 1, 0), NONE).unwrap_err().code, Code::SessionFenced);
        learn(live(8, &[7, 5]));
        assert_eq!(gate.check(&token(5, 1, 0), NONE).unwrap_err().code, Code::SessionFenced, "late");
    }

    #[test]
    fn nothing_begins_while_something_of_an_ended_session_is_being_applied() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        let (ends, lives) = (gate.enter(&token(5, 1, 0), NONE).unwrap(), gate.enter(&token(6, 1, 0), NONE).unwrap());
        let heard = LiveSessions { before: SessionId(9), live: vec![SessionId(6)] };
        let mut learnt = std::pin::pin!(gate.learn(heard));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(learnt.as_mut().poll(&mut cx).is_pending());
        assert_eq!(gate.enter(&token(6, 1, 0), NONE).map(drop).unwrap_err().code, Code::NotServing);
        assert!(gate.enter(&Token::default(), NONE).is_ok(), "the metadata server's own");
        drop(ends);
        assert!(learnt.poll(&mut cx).is_ready());
        assert!(gate.enter(&token(6, 1, 0), NONE).is_ok());
        drop(lives);
    }

    #[test]
    fn a_change_that_its_sender_has_given_up_is_refused() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        let until = Default::default();
        let change = |session, place, settled| Call {
            token: token(session, 1, 0),
            place,
            settled,
            what: "",
            trace: Default::default(),
            until,
        };
        let enter = |call: Call| gate.enter_change(&call, NONE, NONE).map(drop).map_err(|error| error.code);
        // In any order, while all are waited for.
        assert_eq!([(2, 1), (1, 1), (3, 1)].map(|(n, s)| enter(change(5, n, s))), [Ok(()); 3]);
        // A sync says so as well.
        assert!(gate.settle(&change(5, 4, 4), NONE).is_ok());
        assert_eq!([1, 3, 4].map(|n| enter(change(5, n, 1))), [Err(Code::Overtaken), Err(Code::Overtaken), Ok(())]);
        assert_eq!((enter(change(6, 1, 1)), enter(change(5, 0, 0))), (Ok(()), Ok(())), "another session, and not used");
        assert!(gate.settle(&change(5, 1, 1), ContainerId(9)).is_ok(), "copies are counted by themselves");
        // What another server has heard of copies.
        let of_copies = |place| gate.settle(&change(5, place, 1), ContainerId(9)).map_err(|error| error.code);
        gate.learn_settled(ContainerId(9), [(SessionId(5), 3), (SessionId(7), 2)].into_iter());
        gate.learn_settled(ContainerId(9), [(SessionId(5), 2)].into_iter());
        assert_eq!([of_copies(2), of_copies(3)], [Err(Code::Overtaken), Ok(())]);
        assert_eq!(gate.settled(ContainerId(9)), [(SessionId(5), 3), (SessionId(7), 2)]);
        assert_eq!(ready(gate.fence(&fence(7, 1))), Some(Ok(true)));
        gate.learn_settled(ContainerId(9), [(SessionId(7), 9)].into_iter());
        assert_eq!(gate.settled(ContainerId(9)), [(SessionId(5), 3)], "7 has ended");
    }

    #[test]
    fn a_fence_waits_for_what_is_being_applied() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        let other = gate.enter(&token(6, 1, 0), NONE).unwrap();
        let pass = gate.enter(&token(5, 1, 0), NONE).unwrap();
        let fence = fence(5, 1);
        let mut fencing = std::pin::pin!(gate.fence(&fence));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(fencing.as_mut().poll(&mut cx).is_pending());
        assert!(gate.enter(&token(5, 1, 0), NONE).is_err());
        drop(pass);
        assert!(fencing.poll(&mut cx).is_ready());
        assert!(!is_ready(gate.close()));
        drop(other);
        assert!(is_ready(gate.close()));
        assert_eq!(gate.check(&Token::default(), NONE).unwrap_err().code, Code::NotServing);
    }

    #[test]
    fn older_chain_epochs_are_refused_and_waited_for() {
        let gate = Gate::new(ServerId(1), braid_env::Env::os().clock);
        let container = ContainerId(9);
        let chain = |epoch| [ContainerInfo { id: container, epoch: ChainEpoch(epoch), chain: Vec::new() }];
        let pass = gate.enter(&token(5, 1, 2), container).unwrap();
        assert!(is_ready(gate.set_chains(&chain(2))));
        assert!(!is_ready(gate.set_chains(&chain(3))));
        drop(pass);
        assert!(is_ready(gate.set_chains(&chain(3))));
        assert!(is_ready(gate.set_chains(&chain(1))), "late");
        assert_eq!(gate.check(&token(5, 1, 2), container).unwrap_err().code, Code::StaleEpoch);
        assert!(gate.check(&token(5, 1, 2), ContainerId(8)).is_ok());
        assert!(gate.check(&token(5, 1, 0), container).is_ok(), "not used");
        assert!(gate.check(&token(5, 1, 4), container).is_ok());
    }
}
