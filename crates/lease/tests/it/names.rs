//! Leases on the namespace in small systems, every interleaving: sessions that look up and change, a network that loses,
//! repeats and reorders, a kernel that drops late, clocks that drift, a session that dies.
//!
//! What must hold: what a session shows from a cache is what the row says, unless the row's last change is its own and
//! not yet answered. It holds from the moment of the commit on, which is more than users are promised.
#![allow(clippy::unwrap_used)]

use crate::explore::{Bounds, Model, explore};
use braid_lease::*;
use braid_types::{InodeId, MemberId, MembershipEpoch, SessionId, SlotSet};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Mistakes of those around the machines, or of a machine that leaves out a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plant {
    Nothing,
    AcknowledgedBeforeDropped,
    GrantedDuringCommit,
    RegisteredAfterReading,
    CountedFromTheAnswer,
    NoRoomForDrift,
    OvertakenAnswerKept,
    ReleasedBeforeCommit,
    FormerHolderForgotten,
    OldAcknowledgementCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Message {
    Look { c: usize, ticket: Ticket, key: usize },
    Looked { c: usize, ticket: Ticket, key: usize, value: u8, granted: bool },
    Change { c: usize, ticket: Ticket, key: usize },
    Changed { c: usize, ticket: Ticket, key: usize, value: u8, granted: bool },
    Revoke { c: usize, revocation: RevocationId, keys: Vec<Key> },
    Acknowledge { c: usize, revocation: RevocationId },
    Renew { c: usize, asked: Moment },
    Renewed { c: usize, asked: Moment, prolonged: bool, epoch: MembershipEpoch, reassert: Option<u64> },
    Reassert { c: usize, round: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    held: Holdings,
    values: BTreeMap<usize, u8>,
    /// What the kernel keeps, and until when by the client's clock.
    kernel: BTreeMap<usize, (u8, Moment)>,
    /// Invalidations the kernel has not carried out.
    invalidating: BTreeMap<RevocationId, Vec<Key>>,
    looking: Option<Ticket>,
    changing: Option<(Ticket, usize)>,
    dead: bool,
}

/// What the server does for one message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    Read { ask: AskId, c: usize, ticket: Ticket, key: usize },
    Claim { ask: AskId, c: usize, ticket: Ticket, key: usize, value: u8 },
    Announced { id: AnnouncementId, c: usize, ticket: Ticket, key: usize },
    Commit { id: AnnouncementId, c: usize, ticket: Ticket, key: usize },
    Release { id: AnnouncementId, c: usize, ticket: Ticket, key: usize, value: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    looks: u8,
    changes: u8,
    renewals: u8,
    ticks: u8,
    losses: u8,
    repeats: u8,
    deaths: u8,
    restarts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    plant: Plant,
    /// Shared by all keys of a change: dir, name, attributes would only multiply the states.
    keys: usize,
    ticks: u32,
    holder: Holder,
    rows: Vec<(u8, Option<usize>)>,
    clients: Vec<Client>,
    network: BTreeSet<Message>,
    work: BTreeSet<Work>,
    numbers: u64,
    epoch: u64,
    /// The last revocation sent to each.
    revoked: Vec<RevocationId>,
    left: Budget,
}

#[derive(Clone, Debug)]
enum Action {
    Look(usize, usize),
    Change(usize, usize),
    Renew(usize),
    Deliver(Message),
    Lose(Message),
    Repeat(Message),
    Work(Work),
    Invalidated(usize, RevocationId),
    Tick,
    Die(usize),
    Restart,
}

fn session(c: usize) -> SessionId {
    SessionId(c as u64 + 1)
}

fn key(k: usize) -> Key {
    match k {
        0 => Key::Attr(InodeId(4096)),
        _ => Key::Dir(InodeId(8192)),
    }
}

fn number(k: &Key) -> usize {
    usize::from(*k == key(1))
}

impl World {
    fn new(clients: usize, keys: usize, left: Budget, plant: Plant) -> Self {
        let mut limits = Limits::default();
        if plant == Plant::NoRoomForDrift {
            limits.drop_margin = Duration::ZERO;
        }
        let client = |_| Client {
            held: Holdings::new(&limits),
            values: BTreeMap::new(),
            kernel: BTreeMap::new(),
            invalidating: BTreeMap::new(),
            looking: None,
            changing: None,
            dead: false,
        };
        let mut world = World {
            plant,
            keys,
            ticks: 0,
            holder: Holder::new(limits.clone(), 1000),
            rows: vec![(0, None); keys],
            clients: (0..clients).map(client).collect(),
            network: BTreeSet::new(),
            work: BTreeSet::new(),
            numbers: 0,
            epoch: 1,
            revoked: vec![RevocationId(0); clients],
            left,
        };
        let gained = Event::Gained { epoch: MembershipEpoch(1), slots: SlotSet::all(), sessions: vec![] };
        world.server(gained);
        for c in 0..clients {
            let asked = world.client_now(c);
            world.deliver(Message::Renew { c, asked });
            let answer = world.network.pop_first().unwrap();
            world.deliver(answer);
        }
        world
    }

    /// Everybody has looked everything up.
    fn warm(mut self) -> Self {
        let left = std::mem::replace(&mut self.left, Budget { looks: 99, ..NONE });
        let keys = self.keys;
        for (c, k) in (0..self.clients.len()).flat_map(|c| (0..keys).map(move |k| (c, k))) {
            self.act(&Action::Look(c, k));
            while let Some(action) = self.fair() {
                self.act(&action);
            }
            assert_eq!(self.shown(c, k), [0, 0], "the warm state is warm");
        }
        self.left = left;
        self
    }

    /// A tick is 5 s of true time. The holder's clock is fast by 1 %, the clients' are slow by 1 %.
    fn server_now(&self) -> Moment {
        Moment(Duration::from_millis(5_050) * self.ticks)
    }

    fn client_now(&self, _: usize) -> Moment {
        Moment(Duration::from_millis(4_950) * self.ticks)
    }

    fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn send(&mut self, message: Message) {
        self.network.insert(message);
    }

    fn server(&mut self, event: Event) -> Vec<(Key, bool)> {
        let now = self.server_now();
        let mut claims = Vec::new();
        for command in self.holder.on(now, event) {
            match command {
                Command::Renewed { .. } => unreachable!("answered where it is asked"),
                Command::Claimed { granted, refused, .. } => {
                    claims.extend(granted.into_iter().map(|k| (k, true)));
                    claims.extend(refused.into_iter().map(|(k, _)| (k, false)));
                }
                Command::Kept { granted, .. } => claims.extend(granted.into_iter().map(|k| (k, true))),
                Command::Ready { announcement, .. } => {
                    let found =
                        self.work.iter().find(|w| matches!(w, Work::Announced { id, .. } if *id == announcement));
                    if let Some(Work::Announced { id, c, ticket, key }) = found.cloned() {
                        self.work.remove(&Work::Announced { id, c, ticket, key });
                        self.work.insert(Work::Commit { id, c, ticket, key });
                        if self.plant == Plant::ReleasedBeforeCommit {
                            self.server(Event::Release { announcement: id, keep: vec![] });
                        }
                    }
                }
                Command::Revoke { session, revocation, keys, .. } => {
                    let c = session.0 as usize - 1;
                    self.revoked[c] = revocation;
                    self.send(Message::Revoke { c, revocation, keys });
                }
                Command::End { session, .. } => {
                    // Fenced at once: there are no files here.
                    let c = session.0 as usize - 1;
                    self.clients[c].dead = true;
                    claims.extend(self.server(Event::Ended { session }));
                }
                // Of whom nothing is asked any more by then.
                Command::Lapsed { .. } => {}
                other => panic!("not asked for: {other:?}"),
            }
        }
        claims
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Look { c, ticket, key } => {
                let ask = AskId(self.next());
                if self.plant != Plant::RegisteredAfterReading {
                    self.server(Event::Ask { ask, session: session(c) });
                }
                self.work.insert(Work::Read { ask, c, ticket, key });
            }
            Message::Change { c, ticket, key: k } => {
                let id = AnnouncementId { server: MemberId(1), number: self.next() };
                self.work.insert(Work::Announced { id, c, ticket, key: k });
                let keys = vec![key(k)];
                self.server(Event::Announce { announcement: id, session: session(c), keys, unlinks: None });
            }
            Message::Acknowledge { c, revocation } => {
                let mut revocation = revocation;
                if self.plant == Plant::OldAcknowledgementCounts {
                    // As if acknowledgements named no revocation: any answers the last one.
                    revocation = self.revoked[c];
                }
                self.server(Event::Acknowledge { session: session(c), revocation, open: false });
            }
            Message::Renew { c, asked } => {
                let now = self.server_now();
                self.server(Event::Tick);
                let mut out = self.holder.on(now, Event::Renew { session: session(c) });
                let Some(Command::Renewed { prolonged, epoch, reassert, .. }) = out.pop() else { panic!("{out:?}") };
                self.send(Message::Renewed { c, asked, prolonged, epoch, reassert });
            }
            Message::Reassert { c, round } => {
                _ = self.server(Event::Reassert { session: session(c), round, files: vec![] });
            }
            Message::Looked { c, .. }
            | Message::Changed { c, .. }
            | Message::Revoke { c, .. }
            | Message::Renewed { c, .. } => {
                if !self.clients[c].dead {
                    self.client(c, message);
                }
            }
        }
    }

    fn client(&mut self, c: usize, message: Message) {
        let now = self.client_now(c);
        match message {
            Message::Looked { ticket, key, value, granted, .. } => {
                if self.clients[c].looking == Some(ticket) {
                    self.clients[c].looking = None;
                }
                self.keep(c, ticket, key, value, granted);
            }
            Message::Changed { ticket, key: k, value, granted, .. } => {
                if self.clients[c].changing != Some((ticket, k)) {
                    return;
                }
                self.clients[c].changing = None;
                self.seen(c, Seen::Tick);
                let client = &mut self.clients[c];
                let keep = client.held.changed(now, ticket, &key(k), granted);
                client.held.answered(now, ticket, vec![]);
                match keep {
                    true => {
                        client.values.insert(k, value);
                        client.kernel.insert(k, (value, now + client.held.left(now)));
                    }
                    // The answer goes through the kernel that asked: it does not show the old value after it, even if a
                    // revocation has not got there yet.
                    false => {
                        client.kernel.remove(&k);
                        client.values.remove(&k);
                    }
                }
            }
            Message::Revoke { revocation, keys, .. } => {
                self.seen(c, Seen::Revoke { revocation, keys, open: false });
            }
            Message::Renewed { asked, prolonged, epoch, reassert, .. } => {
                let asked = if self.plant == Plant::CountedFromTheAnswer { now } else { asked };
                let mut term = Limits::default().session_lease;
                if self.plant == Plant::NoRoomForDrift {
                    term = term * 100 / 98 + Duration::from_millis(1);
                }
                self.seen(c, Seen::Renewed { asked, term, prolonged, epoch, reassert });
            }
            _ => {}
        }
    }

    fn keep(&mut self, c: usize, ticket: Ticket, k: usize, value: u8, granted: bool) {
        let now = self.client_now(c);
        self.seen(c, Seen::Tick);
        let client = &mut self.clients[c];
        let keys = if granted { vec![key(k)] } else { vec![] };
        let ticket = match self.plant {
            Plant::OvertakenAnswerKept => {
                client.held.answered(now, ticket, vec![]);
                client.held.ask()
            }
            _ => ticket,
        };
        if !client.held.answered(now, ticket, keys).is_empty() {
            client.values.insert(k, value);
            client.kernel.insert(k, (value, now + client.held.left(now)));
        }
    }

    fn seen(&mut self, c: usize, seen: Seen) {
        let now = self.client_now(c);
        for todo in self.clients[c].held.on(now, seen) {
            match todo {
                Todo::Drop { revocation, keys } => {
                    let client = &mut self.clients[c];
                    keys.iter().for_each(|k| _ = client.values.remove(&number(k)));
                    client.invalidating.insert(revocation, keys);
                    if self.plant == Plant::AcknowledgedBeforeDropped {
                        self.seen(c, Seen::Dropped { revocation });
                    }
                }
                Todo::Acknowledge { revocation, .. } => self.send(Message::Acknowledge { c, revocation }),
                Todo::DropAll => {
                    self.clients[c].values.clear();
                    // What the kernel has ends by itself in time, unless this comes from a new holder.
                    self.clients[c].kernel.clear();
                }
                Todo::Reassert { round } => self.send(Message::Reassert { c, round }),
                other => panic!("no files here: {other:?}"),
            }
        }
    }

    fn work(&mut self, work: Work) {
        self.work.remove(&work);
        match work {
            Work::Read { ask, c, ticket, key } => {
                let value = self.rows[key].0;
                self.work.insert(Work::Claim { ask, c, ticket, key, value });
            }
            Work::Claim { ask, c, ticket, key: k, value } => {
                if self.plant == Plant::RegisteredAfterReading {
                    self.server(Event::Ask { ask, session: session(c) });
                }
                let claims = self.server(Event::Claim { ask, keys: vec![key(k)] });
                let refused_for_a_change = claims.iter().any(|(_, granted)| !granted);
                let granted = claims.iter().any(|(_, granted)| *granted)
                    || (self.plant == Plant::GrantedDuringCommit && refused_for_a_change);
                self.send(Message::Looked { c, ticket, key: k, value, granted });
            }
            Work::Announced { .. } => {}
            Work::Commit { id, c, ticket, key } => {
                self.rows[key] = (self.rows[key].0 + 1, Some(c));
                let value = self.rows[key].0;
                self.work.insert(Work::Release { id, c, ticket, key, value });
            }
            Work::Release { id, c, ticket, key: k, value } => {
                let claims = self.server(Event::Release { announcement: id, keep: vec![key(k)] });
                let granted = claims.iter().any(|(_, granted)| *granted);
                self.send(Message::Changed { c, ticket, key: k, value, granted });
            }
        }
    }

    /// What the client would show for the key now, from its own or the kernel's memory.
    fn shown(&self, c: usize, k: usize) -> Vec<u8> {
        let client = &self.clients[c];
        let now = self.client_now(c);
        let kernel = client.kernel.get(&k).filter(|(_, until)| now < *until).map(|(value, _)| *value);
        let own = client.values.get(&k).filter(|_| client.held.may_serve(now, &key(k))).copied();
        // A session that died does not serve; its kernel is excepted by design.md §4 *Kernel notifications*.
        kernel.into_iter().chain(own).filter(|_| !client.dead).collect()
    }
}

impl Model for World {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (c, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.dead) {
            for k in 0..self.keys {
                if self.left.looks > 0 && client.looking.is_none() && self.shown(c, k).is_empty() {
                    actions.push(Action::Look(c, k));
                }
                if self.left.changes > 0 && client.changing.is_none() {
                    actions.push(Action::Change(c, k));
                }
            }
            if self.left.renewals > 0 {
                actions.push(Action::Renew(c));
            }
            if self.left.deaths > 0 {
                actions.push(Action::Die(c));
            }
            actions.extend(client.invalidating.keys().map(|id| Action::Invalidated(c, *id)));
        }
        for message in &self.network {
            actions.push(Action::Deliver(message.clone()));
            // A change's answer is awaited until it comes: losing it is delaying it.
            let matters = !matches!(message, Message::Change { .. } | Message::Changed { .. });
            if self.left.losses > 0 && matters {
                actions.push(Action::Lose(message.clone()));
            }
            // Requests take effect once (`requests` rows); the messages of leases have to bear repetition themselves.
            if self.left.repeats > 0 && matters {
                actions.push(Action::Repeat(message.clone()));
            }
        }
        actions.extend(self.work.iter().filter(|w| !matches!(w, Work::Announced { .. })).cloned().map(Action::Work));
        if self.left.ticks > 0 {
            actions.push(Action::Tick);
        }
        if self.left.restarts > 0 {
            actions.push(Action::Restart);
        }
        actions
    }

    fn act(&mut self, action: &Action) {
        match action.clone() {
            Action::Look(c, k) => {
                self.left.looks = self.left.looks.saturating_sub(1);
                let ticket = self.clients[c].held.ask();
                self.clients[c].looking = Some(ticket);
                self.send(Message::Look { c, ticket, key: k });
            }
            Action::Change(c, k) => {
                self.left.changes = self.left.changes.saturating_sub(1);
                let ticket = self.clients[c].held.changing(&[key(k)]);
                self.clients[c].changing = Some((ticket, k));
                self.send(Message::Change { c, ticket, key: k });
            }
            Action::Renew(c) => {
                self.left.renewals = self.left.renewals.saturating_sub(1);
                let asked = self.client_now(c);
                self.send(Message::Renew { c, asked });
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
            Action::Work(work) => self.work(work),
            Action::Invalidated(c, revocation) => {
                if let Some(keys) = self.clients[c].invalidating.remove(&revocation) {
                    keys.iter().for_each(|k| _ = self.clients[c].kernel.remove(&number(k)));
                }
                self.seen(c, Seen::Dropped { revocation });
            }
            Action::Tick => {
                self.left.ticks = self.left.ticks.saturating_sub(1);
                self.ticks += 1;
                // The holder hears of time by its own timer; a client, too, or it is too late (see `shown`).
                self.server(Event::Tick);
            }
            Action::Die(c) => {
                self.left.deaths -= 1;
                self.clients[c].dead = true;
            }
            Action::Restart => {
                // Leases, announcements and work are lost; rows stay. Transactions of the old epoch fail.
                self.left.restarts -= 1;
                self.epoch += 1;
                // A request that was committed is repeated and answered from its row; another was never made.
                self.network
                    .retain(|m| matches!(m, Message::Renew { .. } | Message::Looked { .. } | Message::Changed { .. }));
                for work in std::mem::take(&mut self.work) {
                    if let Work::Release { c, ticket, key, value, .. } = work {
                        self.send(Message::Changed { c, ticket, key, value, granted: false });
                    }
                }
                for c in 0..self.clients.len() {
                    let is_answer = |m: &Message| matches!(m, Message::Changed { c: to, .. } if *to == c);
                    self.clients[c].looking = None;
                    if !self.network.iter().any(is_answer) {
                        self.clients[c].changing = None;
                    }
                }
                self.holder = Holder::new(Limits::default(), 1000);
                let mut sessions: Vec<SessionId> = (0..self.clients.len()).map(session).collect();
                if self.plant == Plant::FormerHolderForgotten {
                    sessions.clear();
                }
                let epoch = MembershipEpoch(self.epoch);
                self.server(Event::Gained { epoch, slots: SlotSet::all(), sessions });
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        self.holder.audit(self.server_now())?;
        for c in 0..self.clients.len() {
            for k in 0..self.keys {
                let (value, by) = self.rows[k];
                let own = by == Some(c) && self.clients[c].changing.is_some_and(|(_, changed)| changed == k);
                if let Some(old) = self.shown(c, k).into_iter().find(|shown| *shown != value && !own) {
                    return Err(format!("client {c} shows {old} of key {k}, which is {value}"));
                }
            }
        }
        Ok(())
    }

    fn fair(&self) -> Option<Action> {
        if let Some(message) = self.network.first() {
            return Some(Action::Deliver(message.clone()));
        }
        if let Some(work) = self.work.iter().find(|w| !matches!(w, Work::Announced { .. })) {
            return Some(Action::Work(work.clone()));
        }
        let mut alive = self.clients.iter().enumerate().filter(|(_, client)| !client.dead);
        if let Some((c, id)) = alive.find_map(|(c, client)| Some((c, *client.invalidating.keys().next()?))) {
            return Some(Action::Invalidated(c, id));
        }
        // A change still waits: for a lost message to be repeated, or for a session's term.
        self.work.iter().any(|w| matches!(w, Work::Announced { .. })).then_some(Action::Tick)
    }

    fn marks(&self, mark: &mut dyn FnMut(&'static str)) {
        let waiting = self.work.iter().filter(|w| matches!(w, Work::Announced { .. })).count();
        if waiting > 0 {
            mark("a change waits");
        }
        if waiting > 1 {
            mark("two changes wait");
        }
        if self.clients.iter().filter(|c| !c.kernel.is_empty()).count() > 1 {
            mark("two sessions cache");
        }
        if self.clients.iter().any(|c| c.dead) {
            mark("a session is dead");
        }
        if self.ticks >= 2 {
            mark("a term ran out");
        }
        if (0..self.clients.len()).any(|c| self.clients[c].changing.is_some() && !self.shown(c, 0).is_empty()) {
            mark("the issuer keeps its lease");
        }
    }
}

const NONE: Budget =
    Budget { looks: 0, changes: 0, renewals: 0, ticks: 0, losses: 0, repeats: 0, deaths: 0, restarts: 0 };

/// Each small in another direction; together every rule is used.
fn systems(plant: Plant) -> Vec<(&'static str, World)> {
    let world = |clients, keys, left| World::new(clients, keys, left, plant);
    vec![
        ("from nothing", world(2, 1, Budget { looks: 1, changes: 1, ..NONE })),
        ("two change", world(2, 1, Budget { looks: 1, changes: 2, ..NONE }).warm()),
        ("a message is repeated", world(2, 1, Budget { looks: 1, changes: 1, repeats: 1, ..NONE }).warm()),
        ("an acknowledgement is repeated", world(2, 1, Budget { looks: 1, changes: 2, repeats: 1, ..NONE }).warm()),
        ("a message is lost", world(2, 1, Budget { looks: 1, changes: 1, losses: 1, ticks: 1, ..NONE }).warm()),
        ("terms run out", world(2, 1, Budget { looks: 1, changes: 1, renewals: 1, ticks: 2, ..NONE }).warm()),
        ("one dies", world(2, 1, Budget { looks: 1, changes: 1, ticks: 2, deaths: 1, ..NONE }).warm()),
        ("the holder restarts", world(2, 1, Budget { changes: 1, renewals: 1, ticks: 2, restarts: 1, ..NONE }).warm()),
        ("three sessions", world(3, 1, Budget { changes: 2, ..NONE }).warm()),
        ("two keys", world(2, 2, Budget { looks: 1, changes: 2, ..NONE }).warm()),
    ]
}

const BOUNDS: Bounds = Bounds { states_max: 50_000, drain_every: 8, drain_max: 200 };

#[test]
fn no_session_shows_what_a_change_made_stale_and_no_change_waits_for_ever() {
    let mut marks = BTreeMap::new();
    for (name, world) in systems(Plant::Nothing) {
        let report = explore(world, &BOUNDS).unwrap_or_else(|failure| panic!("{name}: {failure:#?}"));
        println!("{name}: {report:?}");
        for (mark, count) in report.marks {
            *marks.entry(mark).or_insert(0) += count;
        }
    }
    for mark in [
        "a change waits",
        "two changes wait",
        "two sessions cache",
        "a session is dead",
        "a term ran out",
        "the issuer keeps its lease",
    ] {
        assert!(marks.get(mark).is_some_and(|count| *count > 100), "hardly reached: {mark}, of {marks:?}");
    }
}

#[test]
fn every_planted_mistake_is_found() {
    for plant in [
        Plant::AcknowledgedBeforeDropped,
        Plant::GrantedDuringCommit,
        Plant::RegisteredAfterReading,
        Plant::CountedFromTheAnswer,
        Plant::NoRoomForDrift,
        Plant::OvertakenAnswerKept,
        Plant::ReleasedBeforeCommit,
        Plant::FormerHolderForgotten,
        Plant::OldAcknowledgementCounts,
    ] {
        let found = systems(plant).into_iter().find_map(|(name, world)| Some((name, explore(world, &BOUNDS).err()?)));
        let (name, failure) = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
        println!("{plant:?}: {} in {} states, {} steps ({name})", failure.what, failure.states, failure.trace.len());
        assert!(failure.what.contains("shows") || failure.what.contains("lease"), "{plant:?}: {failure:#?}");
    }
}
