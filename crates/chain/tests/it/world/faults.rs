//! What goes wrong, and when.

use super::*;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The page cache stays.
    Kill(usize),
    Power(usize),
    PowerOfAll,
    Start(usize),
    /// As SIGSTOP, for so long.
    Pause(usize, Us),
    /// Two do not hear each other; 0 is the leader.
    Cut(u64, u64, Us),
    LeaderDies,
    LeaderStarts,
    /// A server and its disk are gone for ever.
    Lose(usize),
    ClientDies(usize),
    /// A disk forgets a copy beneath the running server, which finds it out and is to begin anew: if every other member has all of it, as the leader
    /// has asked them before.
    LosesCopy(usize),
    /// A disk has no room for content and records, for so long. It loses nothing, so no promise counts it.
    Full(usize, Us),
}

/// A fault at a place that no clock can name.
#[derive(Clone, Copy, Debug)]
pub enum ByNumber {
    /// Before this step is made: a message arrives, work on a disk is done, a clock ticks.
    Step(u64, Fault),
    /// Whoever is to carry out this command dies before it does, all that it did before done: of a server, its page cache stays or not.
    Command(u64, bool),
}

impl World {
    /// Before a step.
    pub fn fault_by_step(&mut self) {
        if let Some(ByNumber::Step(step, fault)) = self.by_number
            && step == self.steps
        {
            self.fault_and_back(fault);
        }
    }

    /// Before a command of a server, or of the leader. True if it is not carried out, nor any after it.
    pub fn dies_before_command(&mut self, server: Option<usize>) -> bool {
        self.commands += 1;
        let Some(ByNumber::Command(command, power)) = self.by_number else { return false };
        if command != self.commands {
            return false;
        }
        self.fault_and_back(match server {
            Some(node) if power => Fault::Power(node),
            Some(node) => Fault::Kill(node),
            None => Fault::LeaderDies,
        });
        true
    }

    /// It starts again a second later.
    fn fault_and_back(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        self.fault(fault);
        match fault {
            Fault::Kill(node) | Fault::Power(node) => self.at(S, Item::Fault(Fault::Start(node))),
            Fault::LeaderDies => self.at(S, Item::Fault(Fault::LeaderStarts)),
            _ => {}
        }
    }

    /// A random plan of faults.
    pub fn plan_faults(&mut self, count: u64, may_lose: bool) {
        let (storm, servers) = (self.setup.storm, self.setup.servers);
        let mut lost = 0;
        for _ in 0..count {
            let at = self.rng.between(200 * MS, storm);
            let node = self.rng.below(servers) as usize;
            let long = if self.rng.chance(50) { self.rng.between(50 * MS, 2 * S) } else { self.rng.between(S, 14 * S) };
            let fault = match self.rng.below(100) {
                0..22 => Fault::Kill(node),
                22..42 => Fault::Power(node),
                42..46 => Fault::PowerOfAll,
                46..62 => Fault::Pause(node, long),
                62..82 => {
                    let (a, b) = (self.rng.below(servers + 1), self.rng.between(1, servers));
                    if a == b { Fault::Cut(0, b, long) } else { Fault::Cut(a.min(b), a.max(b), long) }
                }
                82..92 => Fault::LeaderDies,
                92..96 => Fault::ClientDies(self.rng.below(self.setup.clients as u64) as usize),
                _ if may_lose && lost + 1 < self.setup.min_copies => {
                    lost += 1;
                    Fault::Lose(node)
                }
                _ => Fault::Kill(node),
            };
            self.at(at, Item::Fault(fault));
            match fault {
                Fault::Kill(node) | Fault::Power(node) => self.at(at + long, Item::Fault(Fault::Start(node))),
                Fault::PowerOfAll => (0..self.nodes.len())
                    .for_each(|node| self.at(at + long + node as u64 * 37 * MS, Item::Fault(Fault::Start(node)))),
                Fault::LeaderDies => self.at(at + long.min(5 * S), Item::Fault(Fault::LeaderStarts)),
                _ => {}
            }
        }
    }

    /// Disks that fill up, besides.
    pub fn plan_full_disks(&mut self, count: u64) {
        for _ in 0..count {
            let at = self.rng.between(200 * MS, self.setup.storm);
            let node = self.rng.below(self.setup.servers) as usize;
            let long = self.rng.between(500 * MS, 25 * S);
            self.at(at, Item::Fault(Fault::Full(node, long)));
        }
    }

    pub fn fault(&mut self, fault: Fault) {
        self.note(|| format!("FAULT {fault:?}"));
        let until = match fault {
            Fault::Pause(_, long) | Fault::Cut(_, _, long) => self.now + long,
            _ => self.now,
        };
        match fault {
            Fault::Kill(node) => {
                self.saw("fault: kill");
                self.stop(node);
            }
            Fault::Power(node) => {
                self.saw("fault: power cut");
                self.stop(node);
                self.nodes[node].disk.power_cut(&mut self.rng);
            }
            Fault::PowerOfAll => {
                self.saw("fault: power cut of all");
                for node in 0..self.nodes.len() {
                    self.stop(node);
                    self.nodes[node].disk.power_cut(&mut self.rng);
                    self.ledger.faults.push((self.now, self.now));
                }
            }
            Fault::Start(node) => {
                if self.nodes[node].machine.is_none() && !self.nodes[node].gone {
                    self.start_node(node);
                }
                return;
            }
            Fault::Pause(node, _) => {
                self.saw("fault: pause");
                let was = self.nodes[node].paused_until.max(self.now);
                self.nodes[node].paused_until = was.max(until);
                self.nodes[node].stood_still += self.nodes[node].paused_until - was;
            }
            Fault::Cut(a, b, _) => {
                self.saw(if a == 0 { "fault: cut from the leader" } else { "fault: cut between servers" });
                self.cuts.insert((a, b), until);
            }
            Fault::LeaderDies => {
                self.saw("fault: leader dies");
                self.leader.machine = None;
                return;
            }
            Fault::LeaderStarts => {
                if self.leader.machine.is_none() {
                    self.start_leader();
                }
                return;
            }
            Fault::Lose(node) => {
                let gone = self.nodes.iter().filter(|node| node.gone).count() + 1;
                let min_copies = usize::from(self.setup.min_copies);
                if gone >= min_copies || self.nodes.len() - gone < min_copies {
                    return;
                }
                self.saw("fault: server lost for ever");
                self.stop(node);
                self.nodes[node].gone = true;
            }
            Fault::LosesCopy(node) => {
                let chunks: Vec<ChunkId> = self.chunks().collect();
                let chunk = self.rng.pick(&chunks);
                // One that is lost and not back is as good as a server.
                let is_behind = |other: &usize| self.copy_of(*other, chunk).is_none_or(|copy| !is_at_rest(&copy));
                let may = self.setup.min_copies > 1 && self.others_have_all(node, chunk) && !is_behind(&node);
                let now = self.clock(node);
                if !may || !self.nodes[node].machine.as_mut().is_some_and(|machine| machine.lose(now, C, chunk)) {
                    return;
                }
                self.saw("fault: copy lost");
                self.nodes[node].disk.losing.insert(chunk);
                self.leader_event(LeaderEvent::Lost { container: C });
            }
            Fault::Full(node, long) => {
                self.saw("fault: full disk");
                self.nodes[node].full_until = self.nodes[node].full_until.max(self.now + long);
                return;
            }
            Fault::ClientDies(client) => {
                if self.clients.iter().filter(|client| client.alive).count() > 1 {
                    self.saw("fault: client dies");
                    self.clients[client].alive = false;
                    self.clients[client].tasks.clear();
                    for id in 0..self.clients.len() {
                        self.at(100 * MS, Item::Client(id));
                    }
                }
                return;
            }
        }
        self.ledger.faults.push((self.now, until));
    }

    fn copy_of(&self, node: usize, chunk: ChunkId) -> Option<CopyStatus> {
        self.nodes[node].machine.as_ref()?.copy(C, chunk)
    }

    fn others_have_all(&self, node: usize, chunk: ChunkId) -> bool {
        let Some(leader) = &self.leader.machine else { return false };
        let (Some(epoch), Some(row)) = (leader.acts_in(C), leader.row(C)) else { return false };
        if !row.members().contains(&self.nodes[node].id) {
            return false;
        }
        let others = row.members().iter().map(|server| self.node_of(*server)).filter(|other| *other != node);
        let copies: Option<Vec<CopyStatus>> = others.map(|other| self.copy_of(other, chunk)).collect();
        copies.is_some_and(|copies| {
            let told = copies.first().map(|copy| copy.told);
            copies.iter().all(|copy| copy.epoch == Some(epoch) && Some(copy.told) == told && is_at_rest(copy))
        })
    }

    fn stop(&mut self, node: usize) {
        self.nodes[node].machine = None;
        self.nodes[node].paused_until = 0;
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        self.calm = true;
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = 0;
            self.nodes[node].full_until = 0;
            if self.nodes[node].machine.is_none() && !self.nodes[node].gone {
                self.start_node(node);
            }
        }
        if self.leader.machine.is_none() {
            self.start_leader();
        }
        for id in 0..self.clients.len() {
            self.at(MS, Item::Client(id));
        }
    }
}

fn is_at_rest(copy: &CopyStatus) -> bool {
    copy.invalid.is_empty() && copy.complete == copy.told && copy.stable == copy.told
}
