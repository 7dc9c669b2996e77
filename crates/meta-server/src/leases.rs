//! The loop around the slot holder's reasoning (`braid-lease`): what mounts may cache of the namespace, and that they drop it
//! before somebody else's change takes place. Where others serve as well (`beside/`) it is of the slots that are held here. File leases are in
//! `files.rs`.
//!
//! Readers ask before they read and claim what they found; a change announces what it is going to make old, waits until
//! nobody else shows it, is transacted, and is released. Orders to a session wait in its mailbox until the session's
//! standing `Listen` takes them; they are sent again until they are acknowledged or the session's term is over.

use crate::alone::Outside;
use crate::announcing::Announcing;
use crate::beside::Others;
use crate::files::{FileAnswer, held_of, order_of, regranted};
use crate::locks::{LockOps, held_by};
use crate::mailbox::{Mailbox, RENEW_AGAIN};
use crate::seals::Seals;
use braid_api::lease::{self, Listen, Orders, Reassert, Term};
use braid_api::{Code, Error, Result};
use braid_env::Env;
use braid_lease::{
    AskId, Command, Event, Handles, Happened, Holder, Key, Limits, Mode, Moment, Reasserted, RevocationId, Step,
};
use braid_types::{InodeId, LeaseGen, MemberId, MembershipEpoch, SessionId, SlotSet, TraceId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// No `Listen` waits for longer: what its connection's end does not tell is noticed by then.
const LISTEN_MAX: Duration = Duration::from_secs(10);

pub struct Leases {
    pub(crate) env: Env,
    /// Of this start, where nobody serves beside it.
    begun: MembershipEpoch,
    /// Who serves beside this server, if anybody can.
    pub(crate) others: Option<Arc<dyn Others>>,
    /// This start, among those that serve at once.
    pub(crate) member: MemberId,
    pub(crate) limits: Limits,
    pub(crate) state: Mutex<State>,
    /// The holder's next moment has come nearer, or all is over.
    woken: Notify,
    /// There are sessions to be ended, or all is over.
    pub(crate) to_end: Notify,
    /// A session of before this start has said what it holds, or has ended, or all is over.
    pub(crate) said: Notify,
    /// A file is not being sealed any more, or somebody does not hold one any more.
    pub(crate) seals: Notify,
    /// A session has left a slot that it had to itself, or all is over.
    pub(crate) left: Notify,
    /// There is something to be told to other holders, or all is over.
    pub(crate) outgoing: Notify,
    /// [`crate::PlantedBug::OthersNotAsked`].
    pub(crate) asks_nobody: bool,
}

pub(crate) struct State {
    pub holder: Holder,
    /// The last ask or announcement.
    pub last: u64,
    pub announcing: Announcing,
    /// The operations for which announcements and requests that wait are made.
    pub traces: BTreeMap<u64, TraceId>,
    pub locks: LockOps,
    pub seals: Seals,
    /// Requests that wait for who works alone: whose, for whom, and since when.
    pub outside: BTreeMap<u64, Outside>,
    /// Requests for files that wait for other sessions.
    pub asking: BTreeMap<u64, oneshot::Sender<FileAnswer>>,
    /// Sessions that cache.
    pub caching: BTreeMap<SessionId, Mailbox>,
    /// Announcements made while nobody else cached anything, so that not all they change was named.
    pub unnamed: BTreeMap<u64, SessionId>,
    /// Sessions that are silent and may write what others wait for.
    pub to_end: BTreeSet<SessionId>,
    end_some: bool,
    /// How often all leases of a session have run out.
    run_out: u64,
    /// The last number when `sync` was ended for all.
    pub sync_floor: LeaseGen,
    /// Sessions that end while others serve beside this server, and when they had: they are not let in again.
    pub ending: BTreeMap<SessionId, Option<Moment>>,
    pub stopped: bool,
}

/// Something is about to be read for a session that may keep it.
pub struct Ask<'a> {
    leases: &'a Leases,
    id: Option<AskId>,
}

impl State {
    fn drive(&mut self, now: Moment, event: Event) -> Vec<Command> {
        let todo = self.holder.on(now, event);
        self.carry_out(now, todo, Vec::new())
    }

    /// What the holder wants done, and the announcer. Given is what is left to the caller.
    pub(crate) fn carry_out(&mut self, now: Moment, mut todo: Vec<Command>, mut steps: Vec<Step>) -> Vec<Command> {
        let mut rest = Vec::new();
        while !(todo.is_empty() && steps.is_empty()) {
            let mut more = Vec::new();
            for step in steps.drain(..) {
                more.extend(self.announcing.take(now, &mut self.holder, step));
            }
            for command in todo {
                let Some(command) = self.locks.heard(command) else { continue };
                match command {
                    Command::Revoke { session, revocation, keys, .. } => {
                        if let Some(mailbox) = self.caching.get_mut(&session) {
                            mailbox.orders.insert(revocation.0, keys);
                            mailbox.bell.notify_waiters();
                        }
                    }
                    Command::Ready { .. } | Command::Void { .. } => {
                        self.announcing.heard(now, &self.holder, command, &mut steps);
                    }
                    Command::Lapsed { session } => {
                        self.run_out += 1;
                        tracing::debug!(%session, "its leases have run out");
                    }
                    // Its data servers are told first; `Ended` is said when that is done.
                    Command::End { session, .. } => {
                        self.to_end.insert(session);
                        self.end_some = true;
                    }
                    Command::Recall { session, inode, .. } => {
                        if let (Some(mailbox), Some(order)) = (self.caching.get_mut(&session), order_of(&command)) {
                            mailbox.files.insert(inode, order);
                            mailbox.bell.notify_waiters();
                        }
                    }
                    Command::Grant { ask: Some(ask), .. }
                    | Command::Refuse { ask, .. }
                    | Command::Locked { ask, .. }
                    | Command::Fresh { ask, .. } => match (self.asking.remove(&ask.0), FileAnswer::of(&command)) {
                        (Some(waiter), Some(answer)) => drop(waiter.send(answer)),
                        _ => rest.push(command),
                    },
                    // What grows under `sync` is in the row before its write returns: there is nothing that it lacks.
                    Command::Store { inode, size, mtime } => {
                        more.extend(self.holder.on(now, Event::Stored { inode, size, mtime }))
                    }
                    other => rest.push(other),
                }
            }
            todo = more;
        }
        rest
    }

    /// Something happened to changes of this server.
    pub(crate) fn announce(&mut self, now: Moment, happened: Happened) {
        let mut steps = Vec::new();
        self.announcing.announcer.on(now, happened, &mut steps);
        // What the holder is asked for on the way is nobody's answer here.
        self.carry_out(now, Vec::new(), steps);
    }

    /// When something happens by itself.
    fn wakeup(&self) -> Option<Moment> {
        self.holder.wakeup().into_iter().chain(self.announcing.announcer.wakeup()).min()
    }

    /// Puts something into a session's mailbox.
    pub fn tell(&mut self, session: SessionId, put: impl FnOnce(&mut Mailbox)) {
        if let Some(mailbox) = self.caching.get_mut(&session) {
            put(mailbox);
            mailbox.bell.notify_waiters();
        }
    }

    /// The session has ended while others served beside this server.
    pub fn is_over(&self, session: SessionId) -> bool {
        matches!(self.ending.get(&session), Some(Some(_)))
    }

    /// Who listens looks again.
    pub fn ring_all(&self) {
        self.caching.values().for_each(|mailbox| mailbox.bell.notify_waiters());
    }

    pub fn tell_to_leave(&mut self, session: SessionId, inode: InodeId) {
        self.tell(session, |mailbox| _ = mailbox.leave.insert(inode));
    }

    pub fn others_cache(&self, session: SessionId) -> bool {
        self.caching.keys().any(|other| *other != session)
    }
}

impl Leases {
    /// Without `others` it holds every slot under the epoch.
    pub fn new(
        env: Env,
        epoch: MembershipEpoch,
        limits: Limits,
        leases_max: usize,
        others: Option<Arc<dyn Others>>,
    ) -> Self {
        let (member, begun) = match &others {
            Some(others) => (others.me(), MembershipEpoch(0)),
            None => (MemberId(env.random.u64().max(1)), epoch),
        };
        let state = State {
            holder: Holder::new(limits.clone(), leases_max),
            last: 0,
            announcing: Announcing::new(&limits, member, begun),
            traces: BTreeMap::new(),
            locks: LockOps::default(),
            seals: Seals::default(),
            outside: BTreeMap::new(),
            asking: BTreeMap::new(),
            caching: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            to_end: BTreeSet::new(),
            end_some: false,
            run_out: 0,
            sync_floor: LeaseGen::default(),
            ending: BTreeMap::new(),
            stopped: false,
        };
        let [woken, to_end, said, seals, left, outgoing] = std::array::from_fn(|_| Notify::new());
        Leases {
            env,
            begun,
            others,
            member,
            limits,
            state: Mutex::new(state),
            woken,
            to_end,
            said,
            seals,
            left,
            outgoing,
            asks_nobody: false,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(self.env.clock.now().0)
    }

    pub(crate) fn on(&self, state: &mut State, event: Event) -> Vec<Command> {
        self.watch(state, |state, now| state.drive(now, event))
    }

    /// Looks at what the announcer or the holder is told for what others wait for.
    pub(crate) fn watch<T>(&self, state: &mut State, told: impl FnOnce(&mut State, Moment) -> T) -> T {
        let (before, unsaid) = (state.wakeup(), state.holder.unsaid());
        let done = told(state, self.now());
        if state.holder.unsaid() < unsaid {
            self.said.notify_waiters();
        }
        if !state.announcing.out.is_empty() {
            self.outgoing.notify_one();
        }
        if std::mem::take(&mut state.end_some) {
            self.to_end.notify_one();
        }
        let after = state.wakeup();
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.woken.notify_one();
        }
        done
    }

    // --- sessions ---

    /// At the start: of these sessions' rows it is known that they may hold something of a predecessor.
    pub fn begin(&self, caching: Vec<SessionId>) {
        let mut state = self.state.lock();
        state.caching = caching.iter().map(|id| (*id, Mailbox::default())).collect();
        self.on(&mut state, Event::Gained { epoch: self.begun, slots: SlotSet::all(), sessions: caching });
    }

    /// The session may cache from now on.
    pub fn opened(&self, session: SessionId) -> Term {
        let mut state = self.state.lock();
        let not_before = state.unnamed.iter().filter(|(_, by)| **by != session).map(|(id, _)| *id).collect();
        state.caching.entry(session).or_insert_with(|| Mailbox { not_before, ..Mailbox::default() });
        self.term(&mut state, session)
    }

    /// `None` if the session does not cache.
    pub fn renewed(&self, session: SessionId) -> Option<Term> {
        let mut state = self.state.lock();
        state.caching.contains_key(&session).then(|| self.term(&mut state, session))
    }

    fn term(&self, state: &mut State, session: SessionId) -> Term {
        let commands = self.on(state, Event::Renew { session });
        let given = commands.into_iter().find_map(|command| match command {
            Command::Renewed { prolonged, reassert, anew, .. } => Some((prolonged, reassert, anew)),
            _ => None,
        });
        let (prolonged, reassert, anew) = given.unwrap_or_default();
        let (member, epoch, alone) = (self.member, state.holder.epoch(), self.others.is_none());
        Term { member, epoch, alone, prolonged, reassert, anew }
    }

    /// Its process has gone, and with it what it and its kernel cached: no change waits for that, also those that its end
    /// makes.
    pub fn gone(&self, session: SessionId) {
        let mut state = self.state.lock();
        if state.caching.contains_key(&session) {
            self.on(&mut state, Event::Gone { session });
        }
    }

    /// It is being ended, so that nothing prolongs its term. Gives for how long it may still show what it was granted here.
    pub fn ending(&self, session: SessionId) -> Duration {
        let mut state = self.state.lock();
        if self.others.is_some() {
            state.ending.entry(session).or_default();
        }
        self.on(&mut state, Event::Ending { session });
        let until = state.holder.live_until(session).filter(|_| !state.stopped);
        until.map_or(Duration::ZERO, |until| until.since(self.now()))
    }

    /// The same, and returns when that is over: until then it may show what it was granted. That is so for one that was renewed all the while
    /// and never said what it holds; of one that has gone, or was silent, it is over.
    pub async fn until_over(&self, session: SessionId) {
        loop {
            let left = self.ending(session);
            if left.is_zero() {
                return;
            }
            self.env.sleep(left).await;
        }
    }

    /// Every data server refuses it, and nothing is answered to it any more.
    pub fn ended(&self, session: SessionId) {
        let mut state = self.state.lock();
        // Also of one that caches nothing: what is on the list is tried again and again.
        state.to_end.remove(&session);
        if self.others.is_some() {
            let now = self.now();
            state.ending.insert(session, Some(now));
            // Their rows have been forgotten by now, or say so.
            let kept = self.limits.session_expiry * 4;
            state.ending.retain(|_, over| over.is_none_or(|over| now.since(over) < kept));
        }
        state.locks.session_over(session);
        state.seals.session_over(session);
        self.seals.notify_waiters();
        if let Some(mailbox) = state.caching.remove(&session) {
            mailbox.bell.notify_waiters();
            self.on(&mut state, Event::Ended { session });
        }
        self.left.notify_waiters();
    }

    /// Takes what there is for the session, or waits for it.
    pub async fn listen(&self, session: SessionId, listen: &Listen) -> Result<Orders> {
        self.acknowledged(session, listen.member, &listen.revocations);
        let end = self.env.clock.now() + Duration::from_millis(listen.wait_ms.into()).min(LISTEN_MAX);
        loop {
            let bell = self.state.lock().caching.get(&session).map(|mailbox| mailbox.bell.clone());
            let bell = bell.ok_or_else(|| {
                Error::new(Code::SessionUnknown, format_args!("session {session}"), "it has ended, or does not cache")
            })?;
            let rung = bell.notified();
            let mut rung = std::pin::pin!(rung);
            // Registered before the look, so that nothing between the two is missed.
            rung.as_mut().enable();
            let left = end.since(self.env.clock.now());
            let pause = {
                let mut state = self.state.lock();
                let (stopped, epoch) = (state.stopped, state.holder.epoch());
                let is_other = (listen.member, listen.epoch) != (self.member, epoch);
                // Who has not heard of this start takes nothing along: it would not know what it is of.
                let is_unknown = self.others.is_some() && state.holder.awaits(session);
                let mailbox = state.caching.get_mut(&session).filter(|_| !is_other);
                let now = self.env.clock.now();
                let orders = mailbox.map(|mailbox| mailbox.take(is_unknown.then_some(now))).unwrap_or_default();
                if !orders.is_empty() || stopped || left.is_zero() || is_other {
                    return Ok(Orders { member: self.member, epoch, orders });
                }
                if is_unknown { left.min(RENEW_AGAIN) } else { left }
            };
            let _ = self.env.timeout(pause, rung).await;
        }
    }

    /// `said_to`: which start of the server.
    pub fn acknowledged(&self, session: SessionId, said_to: MemberId, revocations: &[u64]) {
        if said_to != self.member || revocations.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for revocation in revocations {
            if let Some(mailbox) = state.caching.get_mut(&session) {
                mailbox.orders.remove(revocation);
            }
            let revocation = RevocationId(*revocation);
            self.on(&mut state, Event::Acknowledge { session, revocation, open: false });
        }
    }

    pub fn reasserted(&self, session: SessionId, reassert: &Reassert) -> Result<lease::Reasserted> {
        if reassert.member != self.member {
            return Err(Error::new(
                Code::NotServing,
                format_args!("session {session}"),
                "it was said to another start",
            ));
        }
        let said = |inode: InodeId| Reasserted {
            inode,
            mode: Mode::None,
            handles: Handles::default(),
            grown: None,
            locks: Vec::new(),
        };
        let mut files: BTreeMap<InodeId, Reasserted> = BTreeMap::new();
        for (inode, state) in &reassert.files {
            files.entry(*inode).or_insert_with(|| said(*inode)).mode = held_of(*state);
        }
        for (inode, locks) in &reassert.locks {
            files.entry(*inode).or_insert_with(|| said(*inode)).locks = held_by(session, locks);
        }
        let files = files.into_values().collect();
        let mut state = self.state.lock();
        if !state.holder.has_asked(session, reassert.round) {
            let cause = "it is asked again, under another number";
            return Err(Error::new(Code::StaleLease, format_args!("what session {session} holds"), cause));
        }
        self.locks_done(&mut state, session, reassert.locks_done);
        // Before it counts as having said what it holds.
        reassert.sealed.iter().for_each(|(inode, number)| state.seals.hold(session, *inode, *number));
        let commands = self.on(&mut state, Event::Reassert { session, round: reassert.round, files });
        self.locks_said(&mut state, session);
        let locks_lost = |command: &Command| match command {
            Command::LocksLost { session: of, inode } if *of == session => Some(*inode),
            _ => None,
        };
        let lost = |command: &Command| match command {
            Command::Lost { session: of, inode } if *of == session => Some(*inode),
            _ => None,
        };
        Ok(lease::Reasserted {
            held: commands.iter().filter_map(regranted).collect(),
            lost: commands.iter().filter_map(lost).collect(),
            locks_lost: commands.iter().filter_map(locks_lost).collect(),
        })
    }

    // --- readers ---

    /// To be called before the rows are read. `None` if the session keeps nothing.
    pub fn ask(&self, session: SessionId) -> Option<Ask<'_>> {
        let mut state = self.state.lock();
        state.caching.get(&session).filter(|mailbox| mailbox.not_before.is_empty())?;
        state.last += 1;
        let ask = AskId(state.last);
        self.on(&mut state, Event::Ask { ask, session });
        Some(Ask { leases: self, id: Some(ask) })
    }

    /// How often all leases of a session have run out since this server's start.
    pub fn run_out(&self) -> u64 {
        self.state.lock().run_out
    }

    // --- changes ---

    /// Others may cache what a change of this session makes old.
    pub fn others_cache(&self, session: SessionId) -> bool {
        self.others.is_some() || self.state.lock().others_cache(session)
    }

    // --- time ---

    /// Sends again what is not acknowledged, and notices terms that are over.
    pub fn keep_time(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("leases", async move {
            loop {
                let (at, stopped) = {
                    let state = self.state.lock();
                    (state.wakeup(), state.stopped)
                };
                if stopped {
                    return;
                }
                match at {
                    Some(at) => _ = self.env.timeout(at.since(self.now()), self.woken.notified()).await,
                    None => self.woken.notified().await,
                }
                let mut state = self.state.lock();
                self.on(&mut state, Event::Tick);
                self.watch(&mut state, |state, now| state.announce(now, Happened::Tick));
            }
        });
    }

    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.ring_all();
        // Who waits is answered with an error that may be repeated, at the next start.
        state.announcing.stop();
        state.asking.clear();
        state.locks.stop();
        drop(state);
        self.woken.notify_one();
        self.to_end.notify_one();
        self.said.notify_waiters();
        self.left.notify_waiters();
        self.outgoing.notify_one();
    }

    /// Leases that are out: of the namespace, of files.
    pub fn count(&self) -> (usize, usize) {
        self.state.lock().holder.leases()
    }
}

impl Ask<'_> {
    /// What was read is covered by these. Gives those that are granted.
    pub fn claim(mut self, keys: Vec<Key>) -> Vec<Key> {
        let Some(ask) = self.id.take() else { return Vec::new() };
        let commands = self.leases.on(&mut self.leases.state.lock(), Event::Claim { ask, keys });
        let granted = commands.into_iter().find_map(|command| match command {
            Command::Claimed { granted, .. } => Some(granted),
            _ => None,
        });
        granted.unwrap_or_default()
    }
}

impl Drop for Ask<'_> {
    fn drop(&mut self) {
        if let Some(ask) = self.id.take() {
            self.leases.on(&mut self.leases.state.lock(), Event::Abandon { ask });
        }
    }
}
