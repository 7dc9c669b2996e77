//! A cluster of the real state machines over a made-up network, made-up disks and made-up clients, driven by one seed.
//!
//! Every message may be lost, repeated or late; every process may be killed, lose its power, stand still or be cut off;
//! clocks are off by up to 1 %. `checks.rs` says what must hold at every step and at the end.

#![allow(dead_code, clippy::unwrap_used)]

pub mod checks;
pub mod clients;
pub mod disk;
pub mod faults;
pub mod leaving;
pub mod net;
pub mod run;

use braid_chain::*;
use braid_types::{ChunkId, ContainerId, LeaderEpoch, ServerId};
use checks::Ledger;
use clients::Client;
use disk::Disk;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

pub const C: ContainerId = ContainerId(7);

/// Microseconds of true time.
pub type Us = u64;
pub const MS: Us = 1_000;
pub const S: Us = 1_000_000;

#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Mistakes made at the doors of the machines, that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Messages of an older epoch are taken for ones of the present.
    StaleEpochAccepted,
    /// A member acknowledges what it has not.
    AckBeforeTheMemberHasIt,
    /// A group that follows a lost one is taken for the next.
    PrefixAdvancedOverAGap,
    /// The leader takes silence for an answer.
    TakeOverWithTooFewAnswers,
    /// A member acknowledges what it goes on serving.
    InvalidationAcknowledgedBeforeApplied,
    /// A data server's clock does not count the time it stood still.
    LeaseThatSuspensionDoesNotEnd,
    /// A copy calls stable what no sync has covered.
    SkippedSync,
    /// Who has handed ownership over goes on answering those that wait.
    PastOwnerAnswers,
    /// Ownership is taken by who has not got all of what the owner before had.
    TakenWithoutAll,
    /// The next owner takes it that its members know what it knows.
    MembersNotToldByTheNextOwner,
    /// The copy at a server that leaves is deleted when another has got its place, and not when that one has everything.
    UnlinkedBeforeReplaced,
    /// The leader takes it that who has lost a copy never had one.
    LostTakenForNothing,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub servers: u64,
    pub copies: u8,
    pub min_copies: u8,
    pub chunks: u64,
    pub blocks: u64,
    pub clients: usize,
    pub limits: Limits,
    pub bug: Option<Bug>,
    /// After so many of a hundred writes the server beside the writer wants to own the chunk.
    pub moves_percent: u64,
    pub loss_percent: u64,
    /// How many of a hundred messages overtake others by far, and by how much at most.
    pub late: (u64, Us),
    /// Faults come until then.
    pub storm: Us,
    pub trace: bool,
}

pub struct Node {
    pub id: ServerId,
    pub machine: Option<DataServer>,
    pub incarnation: u64,
    pub disk: Disk,
    /// This clock's rate in parts per million, and where it began.
    pub rate: i64,
    pub offset: Us,
    pub paused_until: Us,
    /// How long it has stood still in all: for the bug of a clock that does not count it.
    pub stood_still: Us,
    /// Its disk has no room for what it is to have, until then.
    pub full_until: Us,
    pub gone: bool,
}

pub struct LeaderNode {
    pub machine: Option<Leader>,
    pub epoch: u64,
    pub rows: BTreeMap<ContainerId, ContainerRow>,
    pub paused_until: Us,
}

pub enum Item {
    Tick(usize, u64),
    LeaderTick(u64),
    ToServer { to: usize, from: ServerId, envelope: Envelope, content: Vec<(u64, u64)> },
    ToLeader { from: ServerId, incarnation: u64, message: ToLeader },
    FromLeader { to: usize, incarnation: u64, message: FromLeader },
    Io { node: usize, incarnation: u64, io: disk::Io },
    Committed { epoch: u64, number: u64, row: ContainerRow },
    Request { node: usize, op: u64 },
    Want { node: usize, chunk: ChunkId },
    Answered { op: u64, result: Result<Answer, Refusal>, epoch: Option<u32> },
    ReadDone { op: u64, node: usize, value: Option<u64>, epoch: Option<u32> },
    Client(usize),
    Timeout { client: usize, op: u64 },
    Fault(faults::Fault),
}

pub struct Due {
    at: Us,
    order: u64,
    item: Item,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

pub struct World {
    pub setup: Setup,
    pub rng: Rng,
    pub now: Us,
    pub order: u64,
    pub queue: BinaryHeap<Due>,
    pub nodes: Vec<Node>,
    pub leader: LeaderNode,
    pub clients: Vec<Client>,
    pub lease: clients::LeaseState,
    /// Pairs that do not hear each other; 0 is the leader. Until when.
    pub cuts: BTreeMap<(u64, u64), Us>,
    pub ops: BTreeMap<u64, clients::Op>,
    pub next_op: u64,
    pub next_value: u64,
    pub ledger: Ledger,
    pub calm: bool,
    /// A server that is drained, from when on.
    pub leaves: Option<(ServerId, Us)>,
    /// It is not drained: its place in the chain goes to this one, if that can be.
    pub place_goes_to: Option<ServerId>,
    pub seen: BTreeMap<&'static str, u64>,
    pub steps: u64,
    /// Messages sent, work begun on disks, answers: of servers and of the leader.
    pub commands: u64,
    /// What goes wrong by number and not by time.
    pub by_number: Option<faults::ByNumber>,
    pub log: Vec<String>,
}

/// The first live server that is not in the chain.
pub struct FirstSpare;
impl Spares for FirstSpare {
    fn successor(&mut self, _: ContainerId, chain: &[ServerId], live: &[ServerId], _: u64) -> Option<ServerId> {
        live.iter().find(|server| !chain.contains(server)).copied()
    }
}

impl World {
    /// Three copies of one small chunk on four servers, where nothing goes wrong by itself.
    pub fn calm(seed: u64, clients: usize, storm: Us) -> World {
        let setup = Setup {
            servers: 4,
            copies: 3,
            min_copies: 2,
            chunks: 1,
            blocks: 3,
            clients,
            limits: Limits::default(),
            bug: None,
            moves_percent: 0,
            loss_percent: 0,
            late: (0, S),
            storm,
            trace: false,
        };
        World::new(seed, setup)
    }

    pub fn new(seed: u64, setup: Setup) -> World {
        let mut rng = Rng(seed);
        let nodes: Vec<Node> = (1..=setup.servers)
            .map(|id| Node {
                id: ServerId(id),
                machine: None,
                incarnation: 0,
                disk: Disk::default(),
                rate: rng.between(0, 20_000) as i64 - 10_000,
                offset: rng.below(1000 * S),
                paused_until: 0,
                stood_still: 0,
                full_until: 0,
                gone: false,
            })
            .collect();
        let members = (1..=u64::from(setup.copies)).map(ServerId).collect();
        let row = ContainerRow::new(C, members, setup.copies, setup.min_copies);
        let leader = LeaderNode { machine: None, epoch: 0, rows: BTreeMap::from([(C, row.clone())]), paused_until: 0 };
        let mut world = World {
            rng,
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            nodes,
            leader,
            clients: (0..setup.clients).map(Client::new).collect(),
            lease: clients::LeaseState::Exclusive(0),
            cuts: BTreeMap::new(),
            ops: BTreeMap::new(),
            next_op: 0,
            next_value: 0,
            ledger: Ledger::default(),
            calm: false,
            leaves: None,
            place_goes_to: None,
            seen: BTreeMap::new(),
            steps: 0,
            commands: 0,
            by_number: None,
            log: Vec::new(),
            setup,
        };
        for node in 0..world.nodes.len() {
            world.start_node(node);
        }
        world.start_leader();
        world.leader_event(LeaderEvent::Made { container: C, row });
        for client in 0..world.clients.len() {
            world.at(50 * MS + client as u64 * MS, Item::Client(client));
        }
        world
    }

    pub fn chunks(&self) -> impl Iterator<Item = ChunkId> + use<> {
        (1..=self.setup.chunks).map(ChunkId)
    }

    pub fn at(&mut self, delay: Us, item: Item) {
        self.order += 1;
        self.queue.push(Due { at: self.now + delay, order: self.order, item });
    }

    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.setup.trace {
            self.log.push(format!("{:>10.3} ms  {}", self.now as f64 / 1000.0, text()));
        }
    }

    /// What this machine's clock shows.
    pub fn clock(&self, node: usize) -> Moment {
        let node = &self.nodes[node];
        let slept = if self.setup.bug == Some(Bug::LeaseThatSuspensionDoesNotEnd) {
            // What it stood still for has not passed, as far as it knows.
            node.stood_still
        } else {
            0
        };
        let passed = self.now.saturating_sub(slept);
        Duration::from_micros(node.offset + (passed as i64 + passed as i64 * node.rate / 1_000_000) as u64)
    }

    pub fn leader_clock(&self) -> Moment {
        Duration::from_micros(self.now)
    }

    pub fn start_node(&mut self, index: usize) {
        let found = self.nodes[index].disk.found();
        let node = &mut self.nodes[index];
        node.incarnation += 1;
        let limits = self.setup.limits.clone();
        node.machine = Some(DataServer::new(node.id, node.incarnation, limits, found));
        let incarnation = node.incarnation;
        self.at(MS, Item::Tick(index, incarnation));
    }

    pub fn start_leader(&mut self) {
        self.leader.epoch += 1;
        let epoch = LeaderEpoch(self.leader.epoch);
        let rows = if self.leader.epoch == 1 { BTreeMap::new() } else { self.leader.rows.clone() };
        let machine = Leader::new(self.leader_clock(), epoch, self.setup.limits.clone(), rows);
        self.leader.machine = Some(machine);
        let number = self.leader.epoch;
        self.at(MS, Item::LeaderTick(number));
    }

    pub fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].paused_until > self.now
    }

    pub fn is_full(&self, node: usize) -> bool {
        self.nodes[node].full_until > self.now
    }

    pub fn node_of(&self, server: ServerId) -> usize {
        server.0 as usize - 1
    }

    /// May these two speak now? 0 is the leader; clients are never cut off.
    pub fn is_cut(&self, a: u64, b: u64) -> bool {
        self.cuts.get(&(a.min(b), a.max(b))).is_some_and(|until| *until > self.now)
    }
}
