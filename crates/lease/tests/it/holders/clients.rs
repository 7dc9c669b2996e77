//! A client of two holders: what it and its kernel keep, and what it does with what it hears.

use super::world::{Message, Plan, Plant, World, key, keys, number_of, place, server};
use braid_lease::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub held: ManyHoldings,
    pub values: BTreeMap<usize, u8>,
    /// What the kernel keeps, and until when by the client's clock.
    pub kernel: BTreeMap<usize, (u8, Moment)>,
    /// Invalidations the kernel has not carried out: of which holder's revocations.
    pub invalidating: BTreeMap<(RevocationId, usize), Vec<Key>>,
    /// The same of slots: by number, which of the keys are in them.
    pub invalidating_slots: BTreeMap<u64, [bool; 2]>,
    pub looking: Option<Ticket>,
    /// Under which ticket, what, and at which server.
    pub changing: Option<(Ticket, u8, usize)>,
    pub plans: Vec<Plan>,
    /// The servers do not want it any more; and have forgotten it.
    pub ending: bool,
    pub ended: bool,
}

impl Client {
    pub fn new(limits: &Limits, roster: Roster, plans: &[Plan]) -> Self {
        Client {
            held: ManyHoldings::new(limits, roster),
            values: BTreeMap::new(),
            kernel: BTreeMap::new(),
            invalidating: BTreeMap::new(),
            invalidating_slots: BTreeMap::new(),
            looking: None,
            changing: None,
            plans: plans.to_vec(),
            ending: false,
            ended: false,
        }
    }

    pub fn changes(&self, with: Ticket) -> bool {
        self.changing.is_some_and(|(ticket, ..)| ticket == with)
    }

    fn forget(&mut self, k: usize) {
        self.values.remove(&k);
        self.kernel.remove(&k);
    }
}

impl World {
    pub fn look(&mut self, c: usize, k: usize) {
        let client = &mut self.clients[c];
        let Key::Name(dir, _) = key(k) else { unreachable!() };
        let ticket = client.held.ask(dir);
        client.looking = Some(ticket);
        let to = number_of(client.held.roster().holder_of(&key(k)));
        self.send(Message::Look { c, to, ticket, k });
    }

    pub fn change(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let (mask, first) = client.plans.remove(0);
        let ticket = client.held.changing(&keys(mask));
        let to = number_of(client.held.roster().holder_of(&key(first)));
        client.changing = Some((ticket, mask, to));
        self.send(Message::Change { c, to, ticket, mask });
    }

    /// Its change waits for something that only time brings.
    pub fn is_answered_late(&self, c: usize) -> bool {
        let Some((ticket, _, to)) = self.clients[c].changing else { return false };
        let runs = self.jobs.iter().any(|((s, _), job)| *s == to && job.c == c && job.ticket == ticket);
        runs && !self.servers[to].dead
    }

    pub fn heard(&mut self, message: Message) {
        let now = self.client_now();
        match message {
            Message::Looked { c, ticket, k, value, granted } => {
                self.tick_of(c);
                let client = &mut self.clients[c];
                if client.looking == Some(ticket) {
                    client.looking = None;
                }
                let keys = if granted { vec![key(k)] } else { vec![] };
                if !client.held.answered(now, ticket, keys).is_empty() {
                    let Key::Name(dir, _) = key(k) else { unreachable!() };
                    client.values.insert(k, value);
                    client.kernel.insert(k, (value, now + client.held.left(now, dir)));
                }
            }
            Message::Changed { c, ticket, mask, values, granted, epoch } => {
                if !self.clients[c].changes(ticket) {
                    return;
                }
                self.tick_of(c);
                let client = &mut self.clients[c];
                client.changing = None;
                for k in (0..2).filter(|k| mask & (1 << k) != 0) {
                    let granted = granted[k].then_some(epoch);
                    client.forget(k);
                    if client.held.changed(now, ticket, &key(k), granted) {
                        let Key::Name(dir, _) = key(k) else { unreachable!() };
                        client.values.insert(k, values[k]);
                        client.kernel.insert(k, (values[k], now + client.held.left(now, dir)));
                    }
                }
                client.held.answered(now, ticket, vec![]);
            }
            Message::GivenUp { c, ticket, mask } if self.clients[c].changes(ticket) => self.give_up(c, ticket, mask),
            Message::Roster { c } => {
                let roster = self.roster();
                if let Some(ticket) = self.clients[c].looking.take() {
                    self.clients[c].held.answered(now, ticket, vec![]);
                }
                let lost = self.clients[c].changing.filter(|(.., to)| !roster.members().contains(&server(*to)));
                if let Some((ticket, mask, _)) = lost {
                    self.give_up(c, ticket, mask);
                }
                let todo = self.clients[c].held.roster_is(now, roster);
                self.todo(c, todo);
            }
            Message::Revoke { c, from, revocation, keys } => {
                self.seen(c, from, Seen::Revoke { revocation, keys, open: false });
            }
            Message::Renewed { c, from, asked, given: (prolonged, anew), epoch, reassert } => {
                let term = Limits::default().session_lease;
                let known = self.clients[c].held.roster().epoch();
                let counts = self.plant == Plant::RenewalOfANewerEpochCounts;
                let epoch = if counts { known } else { epoch };
                let renewal = Renewal { asked, term, prolonged, epoch, reassert, anew };
                let todo = self.clients[c].held.renewed(now, server(from), renewal);
                self.todo(c, todo);
            }
            _ => {}
        }
    }

    /// What was known of a change that may have been made is forgotten.
    fn give_up(&mut self, c: usize, ticket: Ticket, mask: u8) {
        let now = self.client_now();
        let client = &mut self.clients[c];
        client.changing = None;
        for k in (0..2).filter(|k| mask & (1 << k) != 0) {
            client.forget(k);
            client.held.forget(&key(k));
            client.held.changed(now, ticket, &key(k), None);
        }
        client.held.answered(now, ticket, vec![]);
    }

    fn tick_of(&mut self, c: usize) {
        let now = self.client_now();
        let todo = self.clients[c].held.tick(now);
        self.todo(c, todo);
    }

    fn seen(&mut self, c: usize, from: usize, seen: Seen) {
        let now = self.client_now();
        let todo = self.clients[c].held.on(now, server(from), seen);
        self.todo(c, todo);
    }

    fn todo(&mut self, c: usize, todo: Vec<ManyTodo>) {
        for todo in todo {
            match todo {
                ManyTodo::Of(from, Todo::Drop { revocation, keys }) => {
                    let client = &mut self.clients[c];
                    keys.iter().for_each(|key| _ = client.values.remove(&place(key)));
                    client.invalidating.insert((revocation, number_of(from)), keys);
                }
                ManyTodo::Of(to, Todo::Acknowledge { revocation, .. }) => {
                    self.send(Message::Acknowledge { c, to: number_of(to), revocation });
                }
                ManyTodo::Of(to, Todo::Reassert { round }) => {
                    self.send(Message::Reassert { c, to: number_of(to), round });
                }
                ManyTodo::DropSlots { number, slots } => {
                    let client = &mut self.clients[c];
                    client.values.retain(|k, _| !slots.has(key(*k).slot()));
                    client.invalidating_slots.insert(number, [0, 1].map(|k| slots.has(key(k).slot())));
                    if self.plant == Plant::SaidBeforeDropped {
                        let todo = self.clients[c].held.dropped(number);
                        self.todo(c, todo);
                    }
                }
                ManyTodo::Learn { .. } => self.send(Message::Roster { c }),
                ManyTodo::Renew(to) => {
                    let asked = self.client_now();
                    self.send(Message::Renew { c, to: number_of(to), asked });
                }
                other => panic!("no files here: {other:?}"),
            }
        }
    }

    pub fn invalidated(&mut self, c: usize, revocation: RevocationId, from: usize) {
        let client = &mut self.clients[c];
        if let Some(keys) = client.invalidating.remove(&(revocation, from)) {
            keys.iter().for_each(|key| _ = client.kernel.remove(&place(key)));
        }
        self.seen(c, from, Seen::Dropped { revocation });
    }

    pub fn invalidated_slots(&mut self, c: usize, number: u64) {
        let client = &mut self.clients[c];
        if let Some(moved) = client.invalidating_slots.remove(&number) {
            client.kernel.retain(|k, _| !moved[*k]);
        }
        let todo = client.held.dropped(number);
        self.todo(c, todo);
    }
}
