//! What must hold: at every step, at every answer, at every read, and when everything is whole again.

use super::disk::TORN;
use super::*;
use braid_types::Version;
use std::collections::BTreeSet;

/// A write as its client sees it.
#[derive(Clone, Debug)]
pub struct Write {
    pub client: usize,
    pub chunk: ChunkId,
    pub blocks: BlockSet,
    pub issued: Us,
    pub acked: Option<Us>,
    pub shared: Option<Us>,
    pub stable: Option<Us>,
    /// In which it was last answered: what was answered in an older one and is not kept may have been lost with it.
    pub epoch: u32,
}

#[derive(Default)]
pub struct Ledger {
    pub writes: BTreeMap<u64, Write>,
    by_block: BTreeMap<(ChunkId, u64), Vec<u64>>,
    /// Begin and end of everything that went wrong at a data server.
    pub faults: Vec<(Us, Us)>,
    pub sealed: BTreeSet<ChunkId>,
    pub failure: Option<String>,
}

impl Ledger {
    pub fn issued(&mut self, value: u64, client: usize, chunk: ChunkId, blocks: &BlockSet, now: Us) {
        let (acked, shared, stable) = (None, None, None);
        let blocks = blocks.clone();
        let is_new = !self.writes.contains_key(&value);
        if is_new {
            blocks.runs().flatten().for_each(|b| self.by_block.entry((chunk, b)).or_default().push(value));
            self.writes.insert(value, Write { client, chunk, blocks, issued: now, acked, shared, stable, epoch: 0 });
        }
    }

    pub fn acked(&mut self, value: u64, now: Us, until: Until, again: bool, epoch: u32) {
        let Some(write) = self.writes.get_mut(&value) else { return };
        write.acked.get_or_insert(now);
        write.epoch = epoch;
        if !again {
            if until.shared {
                write.shared = Some(now);
            }
            if until.stable {
                write.stable = Some(now);
            }
        }
    }

    pub fn acked_of(&self, client: usize, chunk: ChunkId, epoch: u32) -> Vec<u64> {
        let is = |write: &Write| write.client == client && write.chunk == chunk && write.epoch == epoch;
        self.writes.iter().filter(|(_, write)| is(write)).map(|(value, _)| *value).collect()
    }

    pub fn covered(&mut self, values: &[u64], now: Us, until: Until) {
        for value in values {
            if let Some(write) = self.writes.get_mut(value) {
                if until.shared {
                    write.shared.get_or_insert(now);
                }
                if until.stable {
                    write.stable.get_or_insert(now);
                }
            }
        }
    }

    fn faults_since(&self, from: Us) -> usize {
        self.faults.iter().filter(|(_, end)| *end + 6 * S >= from).count()
    }

    /// Was the write of this value over before that other one began?
    fn is_older(&self, value: u64, than: &Write) -> bool {
        match self.writes.get(&value) {
            None => true,
            Some(write) => write.acked.is_some_and(|acked| acked < than.issued),
        }
    }
}

impl World {
    fn fail(&mut self, text: impl FnOnce() -> String) {
        if self.ledger.failure.is_none() {
            self.ledger.failure = Some(format!("at {:.3} ms: {}", self.now as f64 / 1000.0, text()));
        }
    }

    /// Must whoever looks now see this write or a later one? `reader` is a client, if one looks.
    fn is_required(&self, value: u64, write: &Write, reader: Option<usize>, at: Us) -> bool {
        let is = |moment: Option<Us>| moment.is_some_and(|moment| moment <= at);
        if is(write.stable) && (is(write.shared) || reader.is_some()) {
            return true;
        }
        let few_faults = self.ledger.faults_since(write.issued) < usize::from(self.setup.min_copies);
        if is(write.shared) && few_faults {
            return true;
        }
        // A write that reached its owner survives the loss of the owner or of its client, not of both.
        let client = &self.clients[write.client];
        let survives = client.alive && (client.keeps(value) || few_faults);
        reader == Some(write.client) && is(write.acked) && survives
    }

    /// The write that a block's value is too old for, if there is one.
    fn too_old_for(&self, chunk: ChunkId, block: u64, value: u64, reader: Option<usize>, at: Us) -> Option<u64> {
        let writes = self.ledger.by_block.get(&(chunk, block))?;
        writes.iter().rev().copied().find(|other| {
            let write = &self.ledger.writes[other];
            if *other == value || !self.is_required(*other, write, reader, at) {
                return false;
            }
            if value == TORN {
                // It was being overwritten, by something newer or by a client that repeated what it kept, when the
                // power went, and no copy that verifies answered: counted, never silent.
                return !self.ledger.sealed.contains(&chunk);
            }
            self.ledger.is_older(value, write)
        })
    }

    pub fn check_read(&mut self, node: usize, client: usize, chunk: ChunkId, block: u64, value: u64, issued: Us) {
        // While the holder repeats what was lost, its reads wait.
        let older = self.too_old_for(chunk, block, value, Some(client), issued);
        if let Some(missed) = older {
            let write = self.ledger.writes[&missed].clone();
            let id = self.nodes[node].id;
            self.fail(|| {
                format!(
                    "client {client} read {value} of block {block} of chunk {chunk} from server {id}, which is \
                         older than {missed}: {write:?}"
                )
            });
        }
    }

    /// What a server says when it acknowledges is so.
    pub fn check_answer(&mut self, node: usize, op: u64, result: Result<Answer, Refusal>) {
        let Ok(answer) = result else { return };
        let (chunk, task) = (self.ops[&op].chunk, self.ops[&op].task.clone());
        let until = match &task {
            clients::Task::Write { until, .. } => *until,
            clients::Task::Wait { until, .. } => *until,
            _ => return,
        };
        self.saw(match (until.shared, until.stable) {
            (false, false) => "answered: the owner has it",
            (true, false) => "answered: shared",
            (false, true) => "answered: stable",
            (true, true) => "answered: both",
        });
        if until.stable {
            let holds = |node: &&Node| {
                let has = node.disk.chunks.get(&chunk).map_or(Version::default(), |stored| stored.complete());
                let had = node.disk.had.get(&chunk).copied().unwrap_or_default();
                has.max(had) >= answer.version
            };
            let copies = self.nodes.iter().filter(holds).count();
            if copies < usize::from(self.setup.min_copies) {
                let id = self.nodes[node].id;
                self.fail(|| format!("server {id} answered an fsync of {answer:?} that {copies} disks hold"));
            }
        }
        if until.shared {
            // Who has stopped acting since it acknowledged may have had it.
            let epoch = self.nodes[node].machine.as_ref().and_then(|machine| machine.epoch(C));
            let may_hold = |other: &&Node| {
                let machine = other.machine.as_ref().filter(|machine| machine.epoch(C) == epoch);
                let copy = machine.map(|machine| machine.copy(C, chunk));
                copy.is_none_or(|copy| copy.is_some_and(|copy| copy.complete >= answer.version))
            };
            // The chain it answers in: the leader may have written the next one down, of which nobody has heard yet.
            let row = &self.leader.rows[&C];
            let own = row.chains.iter().find(|chain| Some(chain.epoch) == epoch);
            let chain = own.map_or(row.members(), |chain| &chain.members);
            let is_member = |other: &&Node| chain.contains(&other.id);
            let copies = self.nodes.iter().filter(is_member).filter(may_hold).count();
            if answer.version > Version::default() && copies < usize::from(self.setup.min_copies) {
                let id = self.nodes[node].id;
                self.fail(|| format!("server {id} answered for {answer:?} that {copies} memories hold"));
            }
        }
        // Whatever was shared: no copy serves anything older from this moment on.
        if until.shared
            && let clients::Task::Write { blocks, value, .. } = &task
        {
            for block in blocks.runs().flatten() {
                for other in 0..self.nodes.len() {
                    if self.serves(other, chunk, block) {
                        let there = self.content(other, chunk, block);
                        let write = self.ledger.writes[value].clone();
                        if there != *value && there != TORN && self.ledger.is_older(there, &write) {
                            let id = self.nodes[other].id;
                            self.fail(|| {
                                format!(
                                    "{value} of block {block} of chunk {chunk} is acknowledged to all, and server \
                                         {id} serves {there}"
                                )
                            });
                        }
                    }
                }
            }
        }
    }

    fn serves(&self, node: usize, chunk: ChunkId, block: u64) -> bool {
        let blocks = BlockSet::of(block..block + 1);
        let now = self.clock(node);
        let machine = self.nodes[node].machine.as_ref();
        machine.is_some_and(|m| m.may_serve(now, C, chunk, Some(&blocks), Version::default()).is_ok())
    }

    pub fn check_step(&mut self) -> Result<(), String> {
        for chunk in self.chunks() {
            let mut able = self.nodes.iter().enumerate().filter(|(index, node)| {
                let now = self.clock(*index);
                node.machine.as_ref().is_some_and(|machine| machine.may_acknowledge(now, C, chunk))
            });
            if let (Some((_, a)), Some((_, b))) = (able.next(), able.next()) {
                let (a, b) = (a.id, b.id);
                self.fail(|| format!("servers {a} and {b} both may acknowledge writes to chunk {chunk}"));
                break;
            }
        }
        if self.steps.is_multiple_of(16) {
            self.check_served();
        }
        self.ledger.failure.clone().map_or(Ok(()), Err)
    }

    /// No server serves what is older than what all were told.
    fn check_served(&mut self) {
        for node in 0..self.nodes.len() {
            for chunk in self.chunks() {
                for block in 0..self.setup.blocks {
                    if !self.serves(node, chunk, block) {
                        continue;
                    }
                    let value = self.content(node, chunk, block);
                    if let Some(missed) = self.too_old_for(chunk, block, value, None, self.now) {
                        let id = self.nodes[node].id;
                        let write = self.ledger.writes[&missed].clone();
                        self.fail(|| {
                            format!(
                                "server {id} serves {value} of block {block} of chunk {chunk}, older than \
                                     {missed}: {write:?}"
                            )
                        });
                    }
                }
            }
        }
    }

    /// Everything is as it should be for ever.
    pub fn is_whole(&self) -> Result<(), String> {
        let leader = self.leader.machine.as_ref().ok_or("there is no leader")?;
        let row = leader.row(C).ok_or("there is no row")?;
        if !leader.is_settled(C) {
            let live = |node: &&Node| leader.is_live(node.id, self.leader_clock());
            let live: Vec<_> = self.nodes.iter().filter(live).map(|node| node.id.0).collect();
            return Err(format!("the leader is not done, of {live:?}: {row:?}"));
        }
        let drained = self.leaves.filter(|_| self.place_goes_to.is_none());
        let live = self.nodes.iter().filter(|node| !node.gone).count();
        let others = self.nodes.iter().filter(|node| !node.gone && drained.is_none_or(|(id, _)| id != node.id)).count();
        let copies = usize::from(self.setup.copies);
        // One that leaves is not taken back, also if there are too few others; and goes only if there are enough.
        if row.members().len() != live.min(copies) && row.members().len() != others.min(copies) {
            return Err(format!("the chain has {:?}, of {live} servers", row.members()));
        }
        if let Some((leaves, _)) = drained.filter(|(id, _)| row.knows(*id) && others >= copies) {
            return Err(format!("{leaves} is not drained: {row:?}"));
        }
        if let Some(client) = self.clients.iter().find(|c| c.alive && (c.outstanding.is_some() || !c.tasks.is_empty()))
        {
            return Err(format!("client {} waits for {:?}", client.id, client.tasks.front()));
        }
        if let Some(client) = self.clients.iter().find(|c| c.alive && c.kept.values().any(|kept| !kept.is_empty())) {
            return Err(format!("client {} still keeps {:?}", client.id, client.kept));
        }
        for chunk in self.chunks() {
            let copies: Vec<_> = row
                .members()
                .iter()
                .map(|server| self.nodes[self.node_of(*server)].machine.as_ref().and_then(|m| m.copy(C, chunk)))
                .collect();
            let Some(owner) = copies.iter().flatten().find(|copy| copy.is_owner) else {
                if copies.iter().all(Option::is_none) {
                    continue;
                }
                return Err(format!("chunk {chunk} has no owner: {copies:?}"));
            };
            if !owner.is_open || owner.unannounced > 0 {
                return Err(format!("chunk {chunk} is not open: {owner:?}"));
            }
            for (copy, server) in copies.iter().zip(row.members()) {
                let Some(copy) = copy else {
                    if owner.told == Version::default() {
                        continue;
                    }
                    return Err(format!("server {server} has no copy of chunk {chunk}"));
                };
                let is_whole = copy.told == owner.told && copy.complete == owner.told && copy.invalid.is_empty();
                if !is_whole || copy.stable != owner.told || copy.epoch != owner.epoch {
                    return Err(format!(
                        "the copy of chunk {chunk} at {server} is not whole: {copy:?}, owner {owner:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The end: all copies are equal, and hold what was promised.
    pub fn check_end(&mut self) -> Result<(), String> {
        let row = self.leader.machine.as_ref().and_then(|leader| leader.row(C).cloned()).ok_or("there is no row")?;
        for chunk in self.chunks() {
            for block in 0..self.setup.blocks {
                let values: Vec<u64> =
                    row.members().iter().map(|server| self.content(self.node_of(*server), chunk, block)).collect();
                if values.iter().any(|value| *value != values[0]) {
                    return Err(format!("block {block} of chunk {chunk} differs at the end: {values:?}"));
                }
                for client in 0..self.clients.len() {
                    if let Some(missed) = self.too_old_for(chunk, block, values[0], Some(client), self.now) {
                        let write = &self.ledger.writes[&missed];
                        return Err(format!(
                            "block {block} of chunk {chunk} ends as {}, older than {missed}: {write:?}",
                            values[0]
                        ));
                    }
                }
            }
        }
        let bound = self.setup.limits.groups_max.max(4);
        for node in &self.nodes {
            for chunk in self.chunks() {
                let copy = node.machine.as_ref().and_then(|machine| machine.copy(C, chunk));
                if copy.as_ref().is_some_and(|copy| copy.groups > bound) {
                    return Err(format!("{copy:?} remembers more than {bound} groups"));
                }
            }
        }
        Ok(())
    }
}
