//! The loop: what is due next, and whether everything that must hold does.

use super::*;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    pub failure: Option<String>,
    pub seen: BTreeMap<&'static str, u64>,
    pub steps: u64,
    pub log: Vec<String>,
    /// From the end of the faults until everything was whole again.
    pub healed_after: Us,
}

impl World {
    /// Runs until the storm is over, everything healed and every promise was looked at.
    pub fn run(mut self) -> Outcome {
        let storm = self.setup.storm;
        let mut failure = self.run_until(storm + 2 * S, false).err();
        let mut healed_after = 0;
        if failure.is_none() {
            self.heal();
            let from = self.now;
            failure = self.run_until(from + 90 * S, true).err();
            healed_after = self.now - from;
            if failure.is_none() {
                failure = self.check_end().err();
            }
        }
        Outcome { failure, seen: self.seen, steps: self.steps, log: self.log, healed_after }
    }

    /// So much further, with whatever goes wrong by then.
    pub fn run_for(&mut self, time: Us) -> Result<(), String> {
        self.run_until(self.now + time, false)
    }

    fn run_until(&mut self, end: Us, until_whole: bool) -> Result<(), String> {
        let mut looked = self.now;
        while let Some(due) = self.queue.pop() {
            if due.at > end {
                self.now = end;
                self.queue.push(due);
                break;
            }
            self.now = due.at;
            self.steps += 1;
            self.fault_by_step();
            self.handle(due.item);
            self.check_step()?;
            if until_whole && self.now >= looked + 500 * MS {
                looked = self.now;
                if self.is_whole().is_ok() {
                    return Ok(());
                }
                (0..self.clients.len()).for_each(|id| self.at(1, Item::Client(id)));
            }
        }
        if until_whole { self.is_whole().map_err(|why| format!("did not become whole again: {why}")) } else { Ok(()) }
    }

    /// What is for a machine that stands still waits.
    fn waits_for(&self, item: &Item) -> Option<usize> {
        let node = match item {
            Item::Tick(node, _) | Item::ToServer { to: node, .. } => *node,
            Item::FromLeader { to: node, .. } | Item::Io { node, .. } => *node,
            Item::Request { node, .. } | Item::Want { node, .. } => *node,
            _ => return None,
        };
        self.is_paused(node).then_some(node)
    }

    fn handle(&mut self, item: Item) {
        if let Some(node) = self.waits_for(&item) {
            let wait = self.nodes[node].paused_until - self.now;
            return self.at(wait, item);
        }
        let lives = |world: &World, node: usize, incarnation: u64| {
            world.nodes[node].incarnation == incarnation && world.nodes[node].machine.is_some()
        };
        match item {
            Item::Tick(node, incarnation) => {
                if lives(self, node, incarnation) {
                    self.node_event(node, Event::Tick, &[]);
                    self.at(50 * MS, Item::Tick(node, incarnation));
                }
            }
            Item::LeaderTick(epoch) => {
                if self.leader.epoch == epoch && self.leader.machine.is_some() {
                    self.leader_event(LeaderEvent::Tick);
                    self.drain();
                    self.at(50 * MS, Item::LeaderTick(epoch));
                }
            }
            Item::ToServer { to, from, envelope, content } => self.arrive(to, from, envelope, &content),
            Item::ToLeader { from, incarnation, message } => self.arrive_at_leader(from, incarnation, message),
            Item::FromLeader { to, incarnation, message } => {
                self.node_event(to, Event::FromLeader { incarnation, message }, &[]);
            }
            Item::Io { node, incarnation, io } => {
                if lives(self, node, incarnation) {
                    self.io_done(node, io);
                }
            }
            Item::Committed { epoch, number, row } => {
                // A transaction of a leader that died meanwhile may still be carried out, if nobody else leads.
                if epoch == self.leader.epoch {
                    self.leader.rows.insert(C, row);
                    self.leader_event(LeaderEvent::Committed { container: C, number });
                }
            }
            Item::Request { node, op } => self.request(node, op),
            Item::Want { node, chunk } => self.node_event(node, Event::Want { container: C, chunk }, &[]),
            Item::Answered { op, result, epoch } => self.got_answer(op, result, epoch),
            Item::ReadDone { op, node, value, epoch } => self.got_read(node, op, value, epoch),
            Item::Client(id) => self.client_step(id),
            Item::Timeout { client, op } => self.timed_out(client, op),
            Item::Fault(fault) => {
                if !self.calm {
                    self.fault(fault);
                }
            }
        }
    }

    fn arrive_at_leader(&mut self, from: ServerId, incarnation: u64, message: ToLeader) {
        let message = match message {
            ToLeader::PreparedWithout { container, epoch, reports, .. }
                if self.setup.bug == Some(Bug::LostTakenForNothing) =>
            {
                ToLeader::Prepared { container, epoch, reports }
            }
            other => other,
        };
        self.leader_event(LeaderEvent::FromServer { server: from, incarnation, message });
        if self.setup.bug == Some(Bug::TakeOverWithTooFewAnswers) {
            // Silence counts as an answer that has nothing.
            let Some(row) = self.leader.machine.as_ref().and_then(|leader| leader.row(C).cloned()) else { return };
            if row.settled {
                return;
            }
            for server in row.known() {
                let node = self.node_of(server);
                if self.nodes[node].machine.is_none() || self.is_paused(node) {
                    let incarnation = self.nodes[node].incarnation;
                    let message = ToLeader::Prepared { container: C, epoch: row.epoch(), reports: Vec::new() };
                    self.leader_event(LeaderEvent::FromServer { server, incarnation, message });
                }
            }
        }
    }
}
