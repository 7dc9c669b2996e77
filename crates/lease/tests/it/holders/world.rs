//! What there is, what may happen next, and what must hold.

use super::clients::Client;
use super::servers::{Job, Server};
use crate::explore::Model;
use braid_lease::*;
use braid_types::{InodeId, MemberId, MembershipEpoch, SessionId, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Mistakes of those around the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    Nothing,
    /// Transacted when the first of two holders is ready.
    OneReadyIsEnough,
    /// What a dead server has announced is released when its connection ends.
    ReleasedBeforeTheEpoch,
    /// A new holder takes nobody to have anything of the former one.
    NoTermForTheNewHolder,
    /// The engine commits whatever epoch a transaction carries.
    EpochNotCompared,
    /// A new holder begins before the former one has heard of it.
    GainedBeforeAllHeard,
    /// A transaction whose outcome is not known is taken for one that failed.
    UnknownTakenForFailed,
    /// A client counts what a holder renews under an epoch of which it does not know the roster.
    RenewalOfANewerEpochCounts,
    /// A client says what it holds while its kernel still shows what moved.
    SaidBeforeDropped,
    /// A session that did not say what it has at one holder has ended at the other while its term runs there.
    EndedWhileLive,
}

/// Which keys a change touches, and the key whose holder runs it.
pub type Plan = (u8, usize);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Look {
        c: usize,
        to: usize,
        ticket: Ticket,
        k: usize,
    },
    Looked {
        c: usize,
        ticket: Ticket,
        k: usize,
        value: u8,
        granted: bool,
    },
    Change {
        c: usize,
        to: usize,
        ticket: Ticket,
        mask: u8,
    },
    /// Values and grants by key; the epoch under which they were granted.
    Changed {
        c: usize,
        ticket: Ticket,
        mask: u8,
        values: [u8; 2],
        granted: [bool; 2],
        epoch: MembershipEpoch,
    },
    /// Whether the change was made is not known.
    GivenUp {
        c: usize,
        ticket: Ticket,
        mask: u8,
    },
    /// The client is told the newest roster.
    Roster {
        c: usize,
    },
    Revoke {
        c: usize,
        from: usize,
        revocation: RevocationId,
        keys: Vec<Key>,
    },
    Acknowledge {
        c: usize,
        to: usize,
        revocation: RevocationId,
    },
    Renew {
        c: usize,
        to: usize,
        asked: Moment,
    },
    Renewed {
        c: usize,
        from: usize,
        asked: Moment,
        given: (bool, bool),
        epoch: MembershipEpoch,
        reassert: Option<u64>,
    },
    Reassert {
        c: usize,
        to: usize,
        round: u64,
    },
    Announce {
        to: usize,
        id: AnnouncementId,
        session: SessionId,
        keys: Vec<Key>,
        epoch: MembershipEpoch,
    },
    Ready {
        to: usize,
        from: usize,
        change: u64,
        epoch: MembershipEpoch,
    },
    Refused {
        to: usize,
        from: usize,
        change: u64,
        epoch: MembershipEpoch,
    },
    Release {
        to: usize,
        id: AnnouncementId,
        keep: Vec<Key>,
    },
    Released {
        to: usize,
        from: usize,
        change: u64,
        granted: Vec<Key>,
    },
}

impl Message {
    /// The server it goes to.
    pub fn server(&self) -> Option<usize> {
        match self {
            Message::Look { to, .. }
            | Message::Change { to, .. }
            | Message::Acknowledge { to, .. }
            | Message::Renew { to, .. }
            | Message::Reassert { to, .. }
            | Message::Announce { to, .. }
            | Message::Ready { to, .. }
            | Message::Refused { to, .. }
            | Message::Release { to, .. }
            | Message::Released { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// Losing a request or an answer that is awaited until it comes is delaying it.
    fn matters(&self) -> bool {
        matches!(
            self,
            Message::Announce { .. }
                | Message::Ready { .. }
                | Message::Release { .. }
                | Message::Released { .. }
                | Message::Acknowledge { .. }
        )
    }
}

/// A transaction on its way to the engine. `heard`: its server waits for the outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work {
    pub s: usize,
    pub change: u64,
    pub epoch: MembershipEpoch,
    pub heard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub looks: u8,
    pub renewals: u8,
    pub ticks: u8,
    pub losses: u8,
    pub repeats: u8,
    pub unknowns: u8,
    pub deaths: u8,
    pub raises: u8,
}

pub const NONE: Budget =
    Budget { looks: 0, renewals: 0, ticks: 0, losses: 0, repeats: 0, unknowns: 0, deaths: 0, raises: 0 };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub plant: Plant,
    ticks: u32,
    /// The epoch in the engine.
    pub fence: u64,
    pub servers: [Server; 2],
    pub clients: [Client; 2],
    /// By key: the value, and whose change made it.
    pub rows: [(u8, Option<(usize, Ticket)>); 2],
    pub network: BTreeSet<Message>,
    pub work: BTreeSet<Work>,
    pub jobs: BTreeMap<(usize, u64), Job>,
    pub numbers: u64,
    /// The server that dies, if one does: the first of them to.
    pub dead: Option<usize>,
    pub fenced: bool,
    /// Who renews of his own accord, and where: one of them alone, else there are too many ways.
    pub renews: (usize, usize),
    pub left: Budget,
}

#[derive(Clone, Debug)]
pub enum Action {
    Look(usize, usize),
    Change(usize),
    Renew(usize, usize),
    Deliver(Message),
    Lose(Message),
    Repeat(Message),
    Transact(Work),
    OutcomeLost(Work),
    Invalidated(usize, RevocationId, usize),
    InvalidatedSlots(usize, u64),
    Again(usize),
    End(usize),
    Tick,
    Die(usize),
    Raise,
    Hear(usize),
    Gain(usize),
}

pub fn session(c: usize) -> SessionId {
    SessionId(c as u64 + 1)
}

pub fn server(s: usize) -> MemberId {
    MemberId(s as u64 + 1)
}

pub fn number_of(server: MemberId) -> usize {
    server.0 as usize - 1
}

/// One in each of two slots.
pub fn key(k: usize) -> Key {
    Key::Name(InodeId::new(1, Slot(k as u64)), "n".parse().unwrap())
}

pub fn place(key: &Key) -> usize {
    key.slot().0 as usize
}

pub fn keys(mask: u8) -> Vec<Key> {
    (0..2).filter(|k| mask & (1 << k) != 0).map(key).collect()
}

impl World {
    pub fn new(plans: [&[Plan]; 2], left: Budget, plant: Plant) -> Self {
        let limits = Limits::default();
        let roster = World::roster_of(1, None);
        let mut world = World {
            plant,
            ticks: 0,
            fence: 1,
            servers: [0, 1].map(|s| Server::new(&limits, s, roster.clone())),
            clients: plans.map(|plans| Client::new(&limits, roster.clone(), plans)),
            rows: [(0, None); 2],
            network: BTreeSet::new(),
            work: BTreeSet::new(),
            jobs: BTreeMap::new(),
            numbers: 0,
            dead: None,
            fenced: false,
            renews: (1, 1),
            left,
        };
        for s in 0..2 {
            world.hear(s);
            world.gain(s);
        }
        for (c, s) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let asked = world.client_now();
            world.deliver(Message::Renew { c, to: s, asked });
            let answer = world.network.pop_first().unwrap();
            world.deliver(answer);
        }
        world
    }

    pub fn renewing(self, c: usize, at: usize) -> Self {
        World { renews: (c, at), ..self }
    }

    /// These have happened already: what else could have been in between is in other systems.
    pub fn after(mut self, actions: &[Action]) -> Self {
        actions.iter().for_each(|action| self.act(action));
        self
    }

    /// And these messages have come, and what was answered to them.
    pub fn delivered(mut self, messages: usize) -> Self {
        for _ in 0..messages {
            let message = self.network.first().cloned().unwrap();
            self.act(&Action::Deliver(message));
        }
        self
    }

    /// Everybody has looked everything up.
    pub fn warm(mut self) -> Self {
        let left = std::mem::replace(&mut self.left, Budget { looks: 99, ..NONE });
        for (c, k) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            self.act(&Action::Look(c, k));
            while let Some(action) = self.fair() {
                self.act(&action);
            }
            assert_eq!(self.shown(c, k), [0, 0], "the warm state is warm");
        }
        self.left = left;
        self
    }

    /// The first epoch: a slot for each. The second: one has both, because the other has died or it is so decided.
    fn roster_of(epoch: u64, dead: Option<usize>) -> Roster {
        let members = (0..2).filter(|s| epoch == 1 || dead != Some(*s)).map(server).collect();
        let heir = server(dead.map_or(1, |dead| 1 - dead));
        Roster::new(MembershipEpoch(epoch), members, |slot| match epoch {
            1 => server(usize::from(slot.0 == 1)),
            _ => heir,
        })
    }

    /// A tick is 5 s of true time. Servers' clocks are fast by 1 %, the clients' are slow by 1 %.
    pub fn server_now(&self) -> Moment {
        Moment(Duration::from_millis(5_050) * self.ticks)
    }

    pub fn client_now(&self) -> Moment {
        Moment(Duration::from_millis(4_950) * self.ticks)
    }

    pub fn send(&mut self, message: Message) {
        let lost = message.server().is_some_and(|to| self.servers[to].dead);
        if !lost {
            self.network.insert(message);
        }
    }

    pub fn deliver(&mut self, message: Message) {
        match message.server() {
            Some(to) if self.servers[to].dead => {}
            Some(to) => self.serve(to, message),
            None => self.heard(message),
        }
    }

    pub fn roster(&self) -> Roster {
        type Rosters = std::sync::OnceLock<[Roster; 4]>;
        // To make one costs more than a step.
        static ALL: Rosters = Rosters::new();
        let make =
            || [(1, None), (2, None), (2, Some(0)), (2, Some(1))].map(|(epoch, dead)| World::roster_of(epoch, dead));
        let which = if self.fence == 1 { 0 } else { self.dead.map_or(1, |dead| 2 + dead) };
        ALL.get_or_init(make)[which].clone()
    }

    fn may_end(&self, c: usize) -> bool {
        let now = self.server_now();
        let live = |server: &Server| !server.dead && server.holder.is_live(session(c), now);
        let early = self.plant == Plant::EndedWhileLive;
        self.clients[c].ending && !self.clients[c].ended && (early || !self.servers.iter().any(live))
    }

    /// Everybody who is a member has heard of the roster and has what it gives him.
    fn is_installed(&self) -> bool {
        let alive = self.servers.iter().filter(|server| !server.dead);
        let mut settled = alive.map(|server| server.holder.epoch().0 == self.fence && server.gains.is_none());
        settled.all(|settled| settled) && self.dead.is_none_or(|_| self.fence == 2)
    }

    fn may_gain(&self, s: usize) -> bool {
        let has_heard = |server: &Server| server.dead || server.holder.epoch().0 == self.fence;
        let all = self.plant == Plant::GainedBeforeAllHeard || self.servers.iter().all(has_heard);
        self.servers[s].gains.is_some() && all
    }

    fn may_hear(&self, s: usize) -> bool {
        !self.servers[s].dead && self.servers[s].holder.epoch().0 < self.fence
    }

    fn invalidations(&self) -> impl Iterator<Item = Action> + '_ {
        self.clients.iter().enumerate().filter(|(_, client)| !client.ended).flat_map(|(c, client)| {
            let keys = client.invalidating.keys().map(move |(id, from)| Action::Invalidated(c, *id, *from));
            keys.chain(client.invalidating_slots.keys().map(move |id| Action::InvalidatedSlots(c, *id)))
        })
    }

    /// What the client would show for the key now, from its own or the kernel's memory.
    fn shown(&self, c: usize, k: usize) -> Vec<u8> {
        let (client, now) = (&self.clients[c], self.client_now());
        let kernel = client.kernel.get(&k).filter(|(_, until)| now < *until).map(|(value, _)| *value);
        let own = client.values.get(&k).filter(|_| client.held.may_serve(now, &key(k))).copied();
        kernel.into_iter().chain(own).collect()
    }
}

impl Model for World {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (c, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.ended) {
            for k in 0..2 {
                if self.left.looks > 0 && client.looking.is_none() && self.shown(c, k).is_empty() {
                    actions.push(Action::Look(c, k));
                }
            }
            if !client.plans.is_empty() && client.changing.is_none() {
                actions.push(Action::Change(c));
            }
            if self.left.renewals > 0 && self.renews.0 == c {
                actions.push(Action::Renew(c, self.renews.1));
            }
        }
        actions.extend(self.invalidations());
        for message in &self.network {
            actions.push(Action::Deliver(message.clone()));
            if self.left.losses > 0 && message.matters() {
                actions.push(Action::Lose(message.clone()));
            }
            if self.left.repeats > 0 && message.matters() {
                actions.push(Action::Repeat(message.clone()));
            }
        }
        for work in &self.work {
            actions.push(Action::Transact(work.clone()));
            if self.left.unknowns > 0 && work.heard && !self.servers[work.s].dead {
                actions.push(Action::OutcomeLost(work.clone()));
            }
        }
        if self.left.ticks > 0 {
            actions.push(Action::Tick);
        }
        actions.extend((0..2).filter(|c| self.may_end(*c)).map(Action::End));
        for s in 0..2 {
            if self.left.deaths > 0 {
                actions.push(Action::Die(s));
            }
            if self.may_hear(s) {
                actions.push(Action::Hear(s));
            }
            if self.may_gain(s) {
                actions.push(Action::Gain(s));
            }
            if !self.servers[s].again.is_empty() && self.is_installed() {
                actions.push(Action::Again(s));
            }
        }
        // Where one may die it is counted out when it has.
        if self.left.raises > 0 && (self.left.deaths == 0) {
            actions.push(Action::Raise);
        }
        actions
    }

    fn act(&mut self, action: &Action) {
        match action.clone() {
            Action::Look(c, k) => {
                self.left.looks = self.left.looks.saturating_sub(1);
                self.look(c, k);
            }
            Action::Change(c) => self.change(c),
            Action::Renew(c, s) => {
                self.left.renewals = self.left.renewals.saturating_sub(1);
                let asked = self.client_now();
                self.send(Message::Renew { c, to: s, asked });
            }
            Action::Deliver(message) => {
                self.network.remove(&message);
                self.deliver(message);
            }
            Action::Lose(message) => {
                self.left.losses -= 1;
                self.network.remove(&message);
            }
            Action::Repeat(message) => {
                self.left.repeats -= 1;
                self.deliver(message);
            }
            Action::Transact(work) => self.transact(work),
            Action::OutcomeLost(work) => {
                self.left.unknowns -= 1;
                self.outcome_lost(work);
            }
            Action::Invalidated(c, revocation, from) => self.invalidated(c, revocation, from),
            Action::InvalidatedSlots(c, number) => self.invalidated_slots(c, number),
            Action::Again(s) => self.again(s),
            Action::End(c) => self.end(c),
            Action::Tick => {
                self.left.ticks = self.left.ticks.saturating_sub(1);
                self.ticks += 1;
                // Who has a timer hears of time.
                self.tick();
            }
            Action::Die(s) => {
                self.left.deaths -= 1;
                self.die(s);
            }
            Action::Raise => {
                self.left.raises -= 1;
                self.fence += 1;
            }
            Action::Hear(s) => self.hear(s),
            Action::Gain(s) => self.gain(s),
        }
    }

    fn check(&self) -> Result<(), String> {
        for server in self.servers.iter().filter(|server| !server.dead) {
            server.holder.audit(self.server_now())?;
        }
        for (c, k) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (value, by) = self.rows[k];
            let own = by.is_some_and(|(of, ticket)| of == c && self.clients[c].changes(ticket));
            if let Some(old) = self.shown(c, k).into_iter().find(|shown| *shown != value && !own) {
                return Err(format!("client {c} shows {old} of key {k}, which is {value}"));
            }
        }
        Ok(())
    }

    fn fair(&self) -> Option<Action> {
        if let Some(message) = self.network.first() {
            return Some(Action::Deliver(message.clone()));
        }
        if let Some(work) = self.work.first() {
            return Some(Action::Transact(work.clone()));
        }
        if let Some(action) = self.invalidations().next() {
            return Some(action);
        }
        if let Some(c) = (0..2).find(|c| self.may_end(*c)) {
            return Some(Action::End(c));
        }
        if self.dead.is_some() && self.fence == 1 {
            return Some(Action::Raise);
        }
        for s in 0..2 {
            if self.may_hear(s) {
                return Some(Action::Hear(s));
            }
            if self.may_gain(s) {
                return Some(Action::Gain(s));
            }
            if !self.servers[s].again.is_empty() && self.is_installed() {
                return Some(Action::Again(s));
            }
        }
        let under_way = self.servers.iter().any(|server| !server.dead && !server.announcer.is_empty());
        let waits = |(c, client): (usize, &Client)| !client.ended && self.is_answered_late(c);
        let waits = under_way || self.clients.iter().enumerate().any(waits);
        waits.then_some(Action::Tick)
    }

    fn marks(&self, mark: &mut dyn FnMut(&'static str)) {
        let jobs = || self.jobs.iter().filter(|((s, _), job)| !self.servers[*s].dead && job.mask == 0b11);
        let ready = |job: &Job| job.ready.iter().filter(|ready| **ready).count();
        if jobs().any(|(_, job)| !job.committed && ready(job) == 0) {
            mark("a change waits for both holders");
        }
        if jobs().any(|(_, job)| !job.committed && ready(job) == 1) {
            mark("one of two is ready");
        }
        if jobs().any(|(_, job)| job.committed) {
            mark("a release is under way");
        }
        let moved = self.fence == 2 && self.is_installed();
        if moved {
            mark("a slot has moved");
        }
        if self.clients.iter().any(|client| client.held.roster().epoch().0 < self.fence) {
            mark("a session does not know the roster");
        }
        if self.dead.is_some() && !self.work.is_empty() {
            mark("an announcer is dead");
        }
        if self.fenced {
            mark("a change is fenced");
        }
        if self.clients.iter().all(|client| !client.kernel.is_empty()) {
            mark("both sessions cache");
        }
        if moved && self.rows.iter().any(|(_, by)| by.is_some()) && self.jobs.is_empty() {
            mark("a change has ended after the move");
        }
    }
}
