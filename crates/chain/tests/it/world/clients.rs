//! Clients with one call at a time, that keep what they wrote until the owner lets them forget it, and repeat it to a
//! successor before anything else. File leases are given by the world: one exclusive holder, or all under `sync`.

use super::*;
use braid_types::Version;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Exclusive(usize),
    /// All may write; nothing new is begun while one waits to be the only one.
    Sync {
        next: Option<usize>,
    },
}

#[derive(Clone, Debug)]
pub struct Kept {
    pub value: u64,
    pub blocks: BlockSet,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    Write { chunk: ChunkId, blocks: BlockSet, value: u64, until: Until, again: bool },
    Wait { chunk: ChunkId, until: Until },
    Read { chunk: ChunkId, block: u64 },
    Switch(LeaseState),
}

impl Task {
    fn chunk(&self) -> Option<ChunkId> {
        match self {
            Task::Write { chunk, .. } | Task::Wait { chunk, .. } | Task::Read { chunk, .. } => Some(*chunk),
            Task::Switch(_) => None,
        }
    }
}

pub struct Client {
    pub id: usize,
    pub alive: bool,
    pub outstanding: Option<u64>,
    pub tasks: VecDeque<Task>,
    pub kept: BTreeMap<ChunkId, Vec<Kept>>,
    pub epoch: BTreeMap<ChunkId, u32>,
    pub seen: BTreeMap<ChunkId, Version>,
    pub target: usize,
    pub done: u64,
}

pub struct Op {
    pub client: usize,
    pub task: Task,
    pub epoch: u32,
    pub chunk: ChunkId,
    pub blocks: BlockSet,
    pub value: u64,
    pub issued: Us,
    /// Of a wait: the client's writes that it covers.
    pub covers: Vec<u64>,
}

impl Client {
    pub fn new(id: usize) -> Client {
        Client {
            id,
            alive: true,
            outstanding: None,
            tasks: VecDeque::new(),
            kept: BTreeMap::new(),
            epoch: BTreeMap::new(),
            seen: BTreeMap::new(),
            target: 0,
            done: 0,
        }
    }

    pub fn keeps(&self, value: u64) -> bool {
        self.kept.values().flatten().any(|kept| kept.value == value)
    }

    /// A newer epoch: what is kept is repeated, in order, before anything else.
    fn adopt(&mut self, chunk: ChunkId, epoch: u32) -> bool {
        if epoch <= self.epoch.get(&chunk).copied().unwrap_or(1) {
            return false;
        }
        self.epoch.insert(chunk, epoch);
        self.tasks.retain(|task| !matches!(task, Task::Write { chunk: c, again: true, .. } if *c == chunk));
        for Kept { value, blocks, .. } in self.kept.get(&chunk).into_iter().flatten().rev() {
            let (value, blocks) = (*value, blocks.clone());
            self.tasks.push_front(Task::Write { chunk, blocks, value, until: Until::default(), again: true });
        }
        true
    }
}

impl World {
    pub fn client_step(&mut self, id: usize) {
        if !self.clients[id].alive || self.clients[id].outstanding.is_some() {
            return;
        }
        while let Some(Task::Switch(next)) = self.clients[id].tasks.front().cloned() {
            self.clients[id].tasks.pop_front();
            // Under another's lease nothing of ours is repeated any more; whatever it was is shared.
            self.clients[id].kept.clear();
            self.note(|| format!("client {id} gives the lease on: {next:?}"));
            self.lease = next;
            self.wake();
        }
        if self.clients[id].tasks.is_empty() {
            let Some(task) = self.next_task(id) else { return };
            self.clients[id].tasks.extend(task);
            return self.at(0, Item::Client(id));
        }
        let task = self.clients[id].tasks[0].clone();
        let Some(chunk) = task.chunk() else { return };
        self.next_op += 1;
        let op = self.next_op;
        let (mut blocks, mut value, mut covers) = (BlockSet::new(), 0, Vec::new());
        match &task {
            Task::Write { blocks: b, value: v, again, .. } => {
                (blocks, value) = (b.clone(), *v);
                if !again {
                    self.ledger.issued(*v, id, chunk, b, self.now);
                }
            }
            Task::Wait { .. } => {
                covers = self.ledger.acked_of(id, chunk, self.clients[id].epoch.get(&chunk).copied().unwrap_or(1))
            }
            Task::Read { block, .. } => blocks = BlockSet::of(*block..*block + 1),
            Task::Switch(_) => {}
        }
        let client = &mut self.clients[id];
        client.outstanding = Some(op);
        let epoch = client.epoch.get(&chunk).copied().unwrap_or(1);
        let is_read = matches!(task, Task::Read { .. });
        let node = if is_read { self.rng.below(self.setup.servers) as usize } else { client.target };
        self.ops.insert(op, Op { client: id, task, epoch, chunk, blocks, value, issued: self.now, covers });
        let delay = self.rng.between(50, 2 * MS);
        if self.calm || !self.rng.chance(self.setup.loss_percent) {
            self.at(delay, Item::Request { node, op });
        }
        self.at(500 * MS, Item::Timeout { client: id, op });
    }

    fn wake(&mut self) {
        for id in 0..self.clients.len() {
            self.at(MS, Item::Client(id));
        }
    }

    fn next_task(&mut self, id: usize) -> Option<Vec<Task>> {
        if self.calm {
            // Whatever is still kept is made stable in the background.
            let stable = Until { shared: false, stable: true };
            let kept = self.clients[id].kept.iter().filter(|(_, kept)| !kept.is_empty());
            let tasks: Vec<Task> = kept.map(|(chunk, _)| Task::Wait { chunk: *chunk, until: stable }).collect();
            return (!tasks.is_empty()).then_some(tasks);
        }
        match self.lease {
            LeaseState::Exclusive(holder) if holder != id => {
                if !self.clients[holder].alive {
                    return self.fence(holder);
                }
                return None;
            }
            LeaseState::Sync { next: Some(next) } => {
                let idle = self.clients.iter().all(|c| c.outstanding.is_none() && c.tasks.is_empty() || !c.alive);
                if idle {
                    self.lease = LeaseState::Exclusive(next);
                    self.clients.iter_mut().for_each(|client| client.kept.clear());
                    self.wake();
                }
                return None;
            }
            _ => {}
        }
        if self.rng.chance(10) {
            // Thinks for a while.
            let pause = self.rng.between(MS, 300 * MS);
            self.at(pause, Item::Client(id));
            return None;
        }
        let chunk = ChunkId(1 + self.rng.below(self.setup.chunks));
        let is_sync = self.lease != LeaseState::Exclusive(id);
        let draw = self.rng.below(100);
        let until = |stable| Until { shared: is_sync, stable };
        Some(match draw {
            0..60 => {
                let first = self.rng.below(self.setup.blocks);
                let blocks = BlockSet::of(first..(first + 1 + self.rng.below(3)).min(self.setup.blocks));
                self.next_value += 1;
                let until = until(self.rng.chance(10));
                vec![Task::Write { chunk, blocks, value: self.next_value, until, again: false }]
            }
            60..72 => vec![Task::Wait { chunk, until: Until { shared: false, stable: true } }],
            72..94 => vec![Task::Read { chunk, block: self.rng.below(self.setup.blocks) }],
            _ => {
                let next = self.rng.below(self.setup.clients as u64) as usize;
                if is_sync {
                    self.lease = LeaseState::Sync { next: Some(next) };
                    self.wake();
                    return None;
                }
                let shared = Until { shared: true, stable: false };
                let mut tasks: Vec<Task> = self.chunks().map(|chunk| Task::Wait { chunk, until: shared }).collect();
                let to_sync = self.rng.chance(50);
                let next = if to_sync { LeaseState::Sync { next: None } } else { LeaseState::Exclusive(next) };
                tasks.push(Task::Switch(next));
                tasks
            }
        })
    }

    /// The holder is dead: what it changed is flushed in its place before anybody else may have the lease.
    fn fence(&mut self, holder: usize) -> Option<Vec<Task>> {
        let other = self.clients.iter().find(|client| client.alive).map(|client| client.id)?;
        if !self.clients[other].tasks.is_empty() {
            return None;
        }
        self.note(|| format!("client {holder} is fenced"));
        let shared = Until { shared: true, stable: false };
        self.lease = LeaseState::Exclusive(other);
        let mut tasks: Vec<Task> = self.chunks().map(|chunk| Task::Wait { chunk, until: shared }).collect();
        tasks.push(Task::Switch(LeaseState::Exclusive(other)));
        self.clients[other].tasks.extend(tasks);
        self.wake();
        None
    }

    /// A request at a server's door: the token is looked at first.
    pub fn request(&mut self, node: usize, op: u64) {
        let Some(machine) = self.nodes[node].machine.as_ref() else { return };
        let asked = &self.ops[&op];
        let (chunk, task, blocks) = (asked.chunk, asked.task.clone(), asked.blocks.clone());
        let epoch = machine.epoch(C).map(|epoch| epoch.0);
        if epoch != Some(asked.epoch) {
            return self.answer(node, op, Err(Refusal::NotInChain));
        }
        let now = self.clock(node);
        match task {
            Task::Write { until, .. } => {
                self.node_event(node, Event::Write { op, container: C, chunk, blocks, until }, &[]);
            }
            Task::Wait { until, .. } => self.node_event(node, Event::Wait { op, container: C, chunk, until }, &[]),
            Task::Read { block, .. } => {
                let client = &self.clients[asked.client];
                let at_least = client.seen.get(&chunk).copied().unwrap_or_default();
                let served = machine.may_serve(now, C, chunk, Some(&blocks), at_least);
                let copy = machine.copy(C, chunk);
                let value = match served {
                    Ok(()) => Some(self.content(node, chunk, block)),
                    Err(_) => None,
                };
                if served.is_ok() && !copy.is_some_and(|copy| copy.is_owner) {
                    self.saw("read from a member");
                }
                let delay = self.rng.between(50, 2 * MS);
                self.at(delay, Item::ReadDone { op, node, value, epoch });
            }
            Task::Switch(_) => {}
        }
    }

    pub fn content(&self, node: usize, chunk: ChunkId, block: u64) -> u64 {
        self.nodes[node].disk.chunks.get(&chunk).and_then(|s| s.cache.get(&block)).copied().unwrap_or(0)
    }

    /// A data server answers: what it says must be so now.
    pub fn answered(&mut self, node: usize, op: u64, mut result: Result<Answer, Refusal>) {
        if let (Some(Bug::PastOwnerAnswers), Err(Refusal::NotOwner { .. })) = (self.setup.bug, &result) {
            let Op { task, chunk, .. } = &self.ops[&op];
            let copy = self.nodes[node].machine.as_ref().and_then(|machine| machine.copy(C, *chunk));
            if let (Task::Wait { .. }, Some(copy)) = (task, copy.filter(|copy| copy.term.0 > 1)) {
                result = Ok(Answer { version: copy.stable, kept: Version::default() });
            }
        }
        if result.is_ok() {
            self.check_answer(node, op, result);
        }
        self.answer(node, op, result);
    }

    fn answer(&mut self, node: usize, op: u64, result: Result<Answer, Refusal>) {
        let epoch = self.nodes[node].machine.as_ref().and_then(|m| m.epoch(C)).map(|epoch| epoch.0);
        let delay = self.rng.between(50, 2 * MS);
        if self.calm || !self.rng.chance(self.setup.loss_percent) {
            self.at(delay, Item::Answered { op, result, epoch });
        }
    }

    fn again(&mut self, id: usize, epoch: Option<u32>, chunk: ChunkId, owner: Option<ServerId>) {
        let servers = self.nodes.len();
        let client = &mut self.clients[id];
        client.outstanding = None;
        client.target = match owner {
            Some(owner) if owner.0 > 0 && owner.0 as usize <= servers => owner.0 as usize - 1,
            _ => (client.target + 1) % servers,
        };
        if let Some(epoch) = epoch
            && client.adopt(chunk, epoch)
        {
            self.saw("client met a new epoch");
        }
        let pause = self.rng.between(5 * MS, 60 * MS);
        self.at(pause, Item::Client(id));
    }

    pub fn got_answer(&mut self, op: u64, result: Result<Answer, Refusal>, epoch: Option<u32>) {
        let Some(Op { client: id, task, chunk, covers, .. }) = self.ops.get(&op) else { return };
        let (id, task, chunk, covers) = (*id, task.clone(), *chunk, covers.clone());
        if self.clients[id].outstanding != Some(op) || !self.clients[id].alive {
            return;
        }
        let answer = match result {
            Ok(answer) => answer,
            Err(Refusal::NotOwner { owner }) => return self.again(id, epoch, chunk, Some(owner)),
            Err(_) => return self.again(id, epoch, chunk, None),
        };
        let now = self.now;
        let is_sync = matches!(self.lease, LeaseState::Sync { .. });
        let client = &mut self.clients[id];
        client.outstanding = None;
        client.done += 1;
        client.tasks.pop_front();
        match task {
            Task::Write { blocks, value, until, again, .. } => {
                self.ledger.acked(value, now, until, again, answer.version.chain_epoch.0);
                let kept = client.kept.entry(chunk).or_default();
                // In the order of the first time, however often it is repeated.
                if let Some(kept) = kept.iter_mut().find(|kept| kept.value == value) {
                    kept.version = answer.version;
                } else if !(is_sync && self.setup.min_copies == 1) {
                    kept.push(Kept { value, blocks, version: answer.version });
                }
                client.seen.insert(chunk, answer.version);
                let moves = self.setup.moves_percent;
                if moves > 0 && !self.calm && self.rng.chance(moves) {
                    let delay = self.rng.between(50, 2 * MS);
                    self.at(delay, Item::Want { node: id % self.nodes.len(), chunk });
                }
            }
            Task::Wait { until, .. } => self.ledger.covered(&covers, now, until),
            _ => {}
        }
        let client = &mut self.clients[id];
        if let Some(kept) = client.kept.get_mut(&chunk) {
            let may_forget =
                |kept: &Kept| kept.version.chain_epoch == answer.kept.chain_epoch && kept.version <= answer.kept;
            kept.retain(|kept| !may_forget(kept));
        }
        let pause = if self.rng.chance(70) { 0 } else { self.rng.between(MS, 50 * MS) };
        self.at(pause, Item::Client(id));
    }

    pub fn got_read(&mut self, node: usize, op: u64, value: Option<u64>, epoch: Option<u32>) {
        let Some(Op { client: id, chunk, issued, task, .. }) = self.ops.get(&op) else { return };
        let (id, chunk, issued, task) = (*id, *chunk, *issued, task.clone());
        if self.clients[id].outstanding != Some(op) || !self.clients[id].alive {
            return;
        }
        let Task::Read { block, .. } = task else { return };
        match value {
            Some(value) => {
                self.saw("read");
                self.check_read(node, id, chunk, block, value, issued);
            }
            None if self.rng.chance(80) => return self.again(id, epoch, chunk, None),
            // Gives up.
            None => {}
        }
        self.clients[id].outstanding = None;
        self.clients[id].tasks.pop_front();
        self.clients[id].done += 1;
        self.at(0, Item::Client(id));
    }

    pub fn timed_out(&mut self, id: usize, op: u64) {
        if self.clients[id].outstanding == Some(op) {
            let chunk = self.ops[&op].chunk;
            self.again(id, None, chunk, None);
        }
    }
}
