//! What a metadata server does around its holder and its announcer.

use super::world::{Message, Plant, Work, World, key, keys, number_of, server, session};
use braid_lease::*;
use braid_types::{MemberId, Slot};
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub holder: Holder,
    pub announcer: Announcer,
    pub dead: bool,
    /// What the roster gives it and it may not hold yet.
    pub gains: Option<BTreeSet<Slot>>,
    /// Changes that were given up before they were transacted: whose, and of what.
    pub again: VecDeque<(usize, Ticket, u8)>,
}

/// A change that a server runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub c: usize,
    pub ticket: Ticket,
    pub mask: u8,
    values: [u8; 2],
    pub committed: bool,
    /// By holder.
    pub ready: [bool; 2],
}

impl Server {
    pub fn new(limits: &Limits, s: usize, roster: Roster) -> Self {
        let (holder, announcer) = (Holder::new(limits.clone(), 1000), Announcer::new(limits, server(s), roster));
        Server { holder, announcer, dead: false, gains: None, again: VecDeque::new() }
    }
}

impl World {
    /// Tells the holder, and does what it says. Gives what is granted.
    fn holder(&mut self, s: usize, event: Event) -> Vec<Key> {
        let now = self.server_now();
        let mut granted = Vec::new();
        for command in self.servers[s].holder.on(now, event) {
            match command {
                Command::Claimed { granted: own, .. } | Command::Kept { granted: own, .. } => granted.extend(own),
                Command::Ready { announcement: AnnouncementId { server, number: change }, epoch, open, unsure } => {
                    let to = number_of(server);
                    match to == s {
                        true => self.is_ready(s, (s, change), epoch, (open, unsure)),
                        false => self.send(Message::Ready { to, from: s, change, epoch }),
                    }
                }
                Command::Void { announcement: id } => self.refuse(s, id),
                Command::Revoke { session, revocation, keys, .. } => {
                    let c = session.0 as usize - 1;
                    self.send(Message::Revoke { c, from: s, revocation, keys });
                }
                Command::End { session: id, .. } => {
                    self.clients[id.0 as usize - 1].ending = true;
                    for other in self.alive() {
                        self.holder(other, Event::Ending { session: id });
                    }
                }
                Command::Renewed { .. } => unreachable!("answered where it is asked"),
                Command::Lapsed { .. } => {}
                other => panic!("not asked for: {other:?}"),
            }
        }
        granted
    }

    fn alive(&self) -> Vec<usize> {
        (0..2).filter(|s| !self.servers[*s].dead).collect()
    }

    /// There are no files here, and nothing to fence.
    pub fn end(&mut self, c: usize) {
        self.clients[c].ended = true;
        for s in self.alive() {
            self.holder(s, Event::Ended { session: session(c) });
        }
    }

    fn refuse(&mut self, s: usize, id: AnnouncementId) {
        let (epoch, to, change) = (self.servers[s].holder.epoch(), number_of(id.server), id.number);
        match to == s {
            true => self.announcer(s, Happened::Refused { from: server(s), change, epoch }),
            false => self.send(Message::Refused { to, from: s, change, epoch }),
        }
    }

    fn is_ready(
        &mut self,
        s: usize,
        (from, change): (usize, u64),
        epoch: braid_types::MembershipEpoch,
        (open, unsure): (Vec<braid_types::SessionId>, bool),
    ) {
        if let Some(job) = self.jobs.get_mut(&(s, change)) {
            job.ready[from] = true;
        }
        let all: &[usize] = if self.plant == Plant::OneReadyIsEnough { &[0, 1] } else { &[from] };
        for from in all {
            let (from, open) = (server(*from), open.clone());
            self.announcer(s, Happened::Ready { from, change, epoch, open, unsure });
        }
    }

    /// Tells the announcer, and does what it says.
    fn announcer(&mut self, s: usize, happened: Happened) {
        let (now, mut steps) = (self.server_now(), Vec::new());
        self.servers[s].announcer.on(now, happened, &mut steps);
        for step in steps {
            match step {
                Step::Announce { to, announcement: id, session, keys, epoch, .. } => match number_of(to) {
                    to if to == s => {
                        let event = Event::Announce { announcement: id, session, keys, unlinks: None };
                        self.holder(s, event);
                    }
                    to => self.send(Message::Announce { to, id, session, keys, epoch }),
                },
                Step::Transact { change, epoch, .. } => {
                    self.work.insert(Work { s, change, epoch, heard: true });
                }
                Step::Release { to, announcement: id, keep } => match number_of(to) {
                    to if to == s => {
                        let granted = self.holder(s, Event::Release { announcement: id, keep });
                        self.announcer(s, Happened::Released { from: server(s), change: id.number, granted });
                    }
                    to => self.send(Message::Release { to, id, keep }),
                },
                Step::GiveUp { change, .. } => {
                    if let Some(job) = self.jobs.remove(&(s, change)) {
                        self.servers[s].again.push_back((job.c, job.ticket, job.mask));
                    }
                }
                Step::Kept { change, granted } => {
                    let Some(job) = self.jobs.remove(&(s, change)) else { continue };
                    let granted = [0, 1].map(|k| granted.contains(&key(k)));
                    let Job { c, ticket, mask, values, .. } = job;
                    let epoch = self.servers[s].holder.epoch();
                    self.send(Message::Changed { c, ticket, mask, values, granted, epoch });
                }
            }
        }
    }

    pub fn serve(&mut self, s: usize, message: Message) {
        match message {
            Message::Look { c, ticket, k, .. } => {
                if !self.holds(s, k) {
                    return self.send(Message::Roster { c });
                }
                self.numbers += 1;
                let ask = AskId(self.numbers);
                self.holder(s, Event::Ask { ask, session: session(c) });
                let granted = !self.holder(s, Event::Claim { ask, keys: vec![key(k)] }).is_empty();
                self.send(Message::Looked { c, ticket, k, value: self.rows[k].0, granted });
            }
            Message::Change { c, ticket, mask, .. } => self.begin(s, (c, ticket, mask)),
            Message::Acknowledge { c, revocation, .. } => {
                self.holder(s, Event::Acknowledge { session: session(c), revocation, open: false });
            }
            Message::Renew { c, asked, .. } => {
                let now = self.server_now();
                self.holder(s, Event::Tick);
                let mut out = self.servers[s].holder.on(now, Event::Renew { session: session(c) });
                let Some(Command::Renewed { prolonged, epoch, reassert, anew, .. }) = out.pop() else {
                    panic!("{out:?}")
                };
                self.send(Message::Renewed { c, from: s, asked, given: (prolonged, anew), epoch, reassert });
            }
            Message::Reassert { c, round, .. } => {
                _ = self.holder(s, Event::Reassert { session: session(c), round, files: vec![] });
            }
            Message::Announce { id, session, keys, epoch, .. } => match epoch == self.servers[s].holder.epoch() {
                true => _ = self.holder(s, Event::Announce { announcement: id, session, keys, unlinks: None }),
                false => self.refuse(s, id),
            },
            Message::Ready { from, change, epoch, .. } => self.is_ready(s, (from, change), epoch, (vec![], false)),
            Message::Refused { from, change, epoch, .. } => {
                self.announcer(s, Happened::Refused { from: server(from), change, epoch });
            }
            Message::Release { id, keep, .. } => {
                let granted = self.holder(s, Event::Release { announcement: id, keep });
                let (to, change) = (number_of(id.server), id.number);
                self.send(Message::Released { to, from: s, change, granted });
            }
            Message::Released { from, change, granted, .. } => {
                self.announcer(s, Happened::Released { from: server(from), change, granted });
            }
            _ => {}
        }
    }

    fn holds(&self, s: usize, k: usize) -> bool {
        let slot = Slot(k as u64);
        let waits = self.servers[s].gains.as_ref().is_some_and(|gains| gains.contains(&slot));
        self.servers[s].announcer.roster().holder(slot) == server(s) && !waits
    }

    fn begin(&mut self, s: usize, (c, ticket, mask): (usize, Ticket, u8)) {
        self.numbers += 1;
        let change = self.numbers;
        let (values, ready) = ([0; 2], [false; 2]);
        self.jobs.insert((s, change), Job { c, ticket, mask, values, committed: false, ready });
        self.announcer(s, Happened::Begin { change, session: session(c), keys: keys(mask), unlinks: None });
    }

    pub fn again(&mut self, s: usize) {
        if let Some(job) = self.servers[s].again.pop_front() {
            self.begin(s, job);
        }
    }

    pub fn transact(&mut self, work: Work) {
        self.work.remove(&work);
        let Work { s, change, epoch, heard } = work;
        let Some(job) = self.jobs.get(&(s, change)) else { return };
        let (c, ticket, mask) = (job.c, job.ticket, job.mask);
        let commits = epoch.0 == self.fence || self.plant == Plant::EpochNotCompared;
        if commits {
            for k in (0..2).filter(|k| mask & (1 << k) != 0) {
                self.rows[k] = (self.rows[k].0 + 1, Some((c, ticket)));
            }
        }
        self.fenced |= !commits;
        let values = self.rows.map(|(value, _)| value);
        if self.servers[s].dead || !heard {
            self.jobs.remove(&(s, change));
            if !self.servers[s].dead {
                // The engine has done all that was ordered; its client has been told that it is not known.
                self.announcer(s, Happened::Failed { change });
            }
            return;
        }
        if let Some(job) = self.jobs.get_mut(&(s, change)) {
            (job.values, job.committed) = (values, commits);
        }
        if commits {
            self.announcer(s, Happened::Answered { change, keep: keys(mask) });
        } else {
            self.jobs.remove(&(s, change));
            self.servers[s].again.push_back((c, ticket, mask));
            self.announcer(s, Happened::Failed { change });
        }
    }

    pub fn outcome_lost(&mut self, work: Work) {
        self.work.remove(&work);
        let Work { s, change, .. } = work;
        self.work.insert(Work { heard: false, ..work });
        let Some(job) = self.jobs.get(&(s, change)) else { return };
        let (c, ticket, mask) = (job.c, job.ticket, job.mask);
        match self.plant {
            Plant::UnknownTakenForFailed => self.announcer(s, Happened::Failed { change }),
            _ => self.announcer(s, Happened::Unknown { change }),
        }
        self.send(Message::GivenUp { c, ticket, mask });
    }

    pub fn tick(&mut self) {
        for s in self.alive() {
            self.holder(s, Event::Tick);
            self.announcer(s, Happened::Tick);
        }
    }

    pub fn die(&mut self, s: usize) {
        let of_it = |message: &Message| message.server() == Some(s);
        self.servers[s].dead = true;
        self.servers[s].again.clear();
        self.dead = Some(s);
        self.network.retain(|message| !of_it(message));
        let work = &self.work;
        self.jobs.retain(|(of, change), _| *of != s || work.iter().any(|w| w.s == s && w.change == *change));
        if self.plant == Plant::ReleasedBeforeTheEpoch {
            for (_, number) in self.jobs.keys().copied().filter(|(of, _)| *of == s).collect::<Vec<_>>() {
                let announcement = AnnouncementId { server: server(s), number };
                self.holder(1 - s, Event::Release { announcement, keep: vec![] });
            }
        }
    }

    pub fn hear(&mut self, s: usize) {
        let (roster, own) = (self.roster(), server(s));
        let slots_of = |roster: &Roster, server: MemberId| -> BTreeSet<Slot> {
            [Slot(0), Slot(1)].into_iter().filter(|slot| roster.holder(*slot) == server).collect()
        };
        let new = slots_of(&roster, own);
        let old = match roster.epoch().0 {
            1 => BTreeSet::new(),
            _ => slots_of(self.servers[s].announcer.roster(), own),
        };
        let (epoch, members) = (roster.epoch(), roster.members().clone());
        self.holder(s, Event::Epoch { epoch, members, keeps: new.iter().copied().collect() });
        self.announcer(s, Happened::EpochChanged(roster));
        let gains: BTreeSet<Slot> = new.difference(&old).copied().collect();
        self.servers[s].gains = (!gains.is_empty()).then_some(gains);
    }

    pub fn gain(&mut self, s: usize) {
        let Some(slots) = self.servers[s].gains.take() else { return };
        let epoch = self.servers[s].holder.epoch();
        let none = epoch.0 == 1 || self.plant == Plant::NoTermForTheNewHolder;
        let sessions = if none { vec![] } else { vec![session(0), session(1)] };
        let sessions = sessions.into_iter().filter(|id| !self.clients[id.0 as usize - 1].ended).collect();
        self.holder(s, Event::Gained { epoch, slots: slots.into_iter().collect(), sessions });
    }
}
