//! States: of a copy at its server, of the leader's row, of clients; and facts that only the invariants look at.

use crate::messages::{Entry, Late, Line, Message, Request, Version};
use crate::rules::Setup;

/// At most so many servers.
pub const SERVERS_MAX: usize = 3;

/// A set of servers, one bit each.
pub type Servers = u8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub servers: Vec<Server>,
    /// Sent, and not without effect yet wherever it would be heard.
    pub net: Vec<Message>,
    pub requests: Vec<Request>,
    pub leader: Leader,
    pub clients: Clients,
    pub may: Left,
    pub facts: Facts,
}

/// How much may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub repeats: u8,
    pub fsyncs: u8,
    pub words: u8,
    pub epochs: u8,
    pub crashes: u8,
    pub lost_hands: u8,
}

/// A data server and its copy of the chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    pub up: bool,
    pub lease: bool,
    /// Nothing older is obeyed.
    pub promised: u8,
    /// In a chain of the epoch promised: not sealed.
    pub acting: bool,
    pub members: Servers,
    pub term: u8,
    pub owner: u8,
    /// What it holds: complete up to its last entry. Of an owner also what is told to nobody yet.
    pub line: Line,
    /// What the chain left behind, and what is newer than where it goes on from, while it lacks some of that: claimed, not served.
    pub stale: Line,
    pub opening: Version,
    pub told: Version,
    /// No reader here sees anything older.
    pub invalidated: Version,
    pub disk: Disk,
    /// Has not been told in this epoch and term.
    pub greeting: bool,
    pub owning: Option<Owning>,
    pub moving: Option<Moving>,
    pub late: Late,
    /// The first client's session has ended, as far as is known here.
    pub fenced: bool,
    /// Writes that were carried out once, in this start and epoch.
    pub once: u16,
}

/// The record, and what it says is synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    pub epoch: u8,
    pub term: u8,
    pub owner: u8,
    pub line: Line,
    pub stale: Line,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owning {
    /// Ordered and not applied.
    pub queue: Line,
    pub opened: bool,
    /// Who holds what it has to fetch, and what it has then.
    pub fetch: Servers,
    pub pending: Line,
    pub peers: [Peer; SERVERS_MAX],
    /// Calls that wait, with the version they wait for.
    pub waiting: [Option<Waiting>; WAITING_MAX],
}

pub const WAITING_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiting {
    pub version: Version,
    pub call: Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    Write(u8),
    Fsync,
    /// The lease is given up.
    Flush,
    /// The session is fenced.
    Fence,
}

/// What an owner knows of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer {
    pub greeted: bool,
    pub told: Version,
    pub complete: Version,
    pub stable: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moving {
    pub to: u8,
    pub handed: bool,
}

/// The leader and its row. Another leader is one that begins with raising the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    pub epoch: u8,
    pub members: Servers,
    /// The chain in which the chunk was open last: its answers count.
    pub counted: Servers,
    /// Of all chains since then: these must have stopped.
    pub kept: Servers,
    pub stage: Stage,
    pub known: [Known; SERVERS_MAX],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Collecting,
    Settled(Decision),
}

/// How the chunk goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Decision {
    pub owner: u8,
    pub start: Line,
    /// What is newer than the start, and the opening.
    pub pending: Line,
    /// Of that, what the owner holds itself.
    pub own: Line,
    pub fetch: Servers,
}

/// What the leader knows of a server's process in the newest epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Known {
    #[default]
    Nothing,
    Reported {
        line: Line,
        stale: Line,
        owns: bool,
    },
    Installed,
    /// It has restarted, and lost what the decision rests on.
    Barred,
}

/// Two clients; the first has the file lease until it passes to the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clients {
    /// 1 is the first client's, 2 the second's.
    pub lease: u8,
    pub each: [Client; 2],
    /// The first one's session is being ended: who has the fence.
    pub fencing: Option<Servers>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Answered, as far as it knows.
    pub done: u8,
    /// It has sent the write after these.
    pub asked: bool,
    /// Of its last attempt.
    pub place: u8,
}

/// What was promised. No step depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Writes that were answered in this epoch.
    pub answered: u16,
    pub answered_in: u8,
    /// Writes that every reader must see from now on.
    pub visible: u16,
    /// Writes that an fsync was answered for.
    pub durable: u16,
    /// An fsync was answered that too few disks hold.
    pub short: bool,
    /// The fence was acknowledged by all.
    pub ended: bool,
    /// Something of the fenced session was ordered then.
    pub late: bool,
    pub crashed: bool,
    /// A `Hand` was lost and said again.
    pub again: bool,
    /// What a server with a later term holds was fetched.
    pub fetched: bool,
    /// A move was given up.
    pub kept: bool,
}

impl Server {
    pub fn is_owner(&self) -> bool {
        self.owning.is_some()
    }

    /// Could it acknowledge a write now?
    pub fn may_acknowledge(&self) -> bool {
        self.up && self.lease && self.acting && self.owning.is_some_and(|owning| owning.opened)
    }

    /// Is what it holds seen by a reader? By one that comes now if nothing is missing; and by one that came before it was told of more,
    /// until it has let go.
    pub fn serves(&self) -> bool {
        let has = |version: Version| version >= self.opening && self.line.last() >= version;
        let is_valid = match &self.owning {
            Some(owning) => owning.fetch == 0,
            None => has(self.told) || (self.invalidated < self.told && has(self.invalidated)),
        };
        self.up && self.lease && self.acting && self.stale.is_empty() && is_valid
    }

    /// Applied and told to the members, of an owner.
    pub fn complete(&self) -> Version {
        if self.is_owner() { self.told.min(self.line.last()) } else { self.line.last() }
    }

    /// Its record says so, and it is still so.
    pub fn stable(&self) -> Version {
        self.disk.line.first(self.disk.line.common(&self.line)).last().min(self.complete())
    }

    /// What a record would say.
    pub fn record(&self) -> Disk {
        let Server { term, owner, stale, .. } = *self;
        Disk { epoch: self.promised, term, owner, line: self.line.upto(self.complete()), stale }
    }
}

impl Owning {
    pub fn peer(&self, server: u8) -> &Peer {
        &self.peers[usize::from(server)]
    }

    pub fn wait(&mut self, waiting: Waiting) -> bool {
        let free = self.waiting.iter_mut().find(|place| place.is_none());
        let Some(place) = free else { return false };
        *place = Some(waiting);
        self.sort();
        true
    }

    /// The order of waiting calls says nothing.
    pub fn sort(&mut self) {
        self.waiting.sort_unstable_by_key(|place| (place.is_none(), *place));
    }

    pub fn nobody_waits(&self) -> bool {
        self.waiting.iter().all(Option::is_none)
    }
}

impl State {
    /// Every server of the first chain acts in epoch 1, and server 0 owns what was never written.
    pub fn first(setup: &Setup) -> State {
        let members: Servers = (1 << setup.copies) - 1;
        let server = |id: u8| {
            let acting = members & 1 << id != 0;
            let owning =
                Owning { opened: true, peers: [Peer { greeted: true, ..Peer::default() }; 3], ..Owning::default() };
            Server {
                up: true,
                lease: true,
                promised: u8::from(acting),
                acting,
                members,
                term: 1,
                disk: Disk { epoch: u8::from(acting), term: 1, ..Disk::default() },
                owning: (id == 0).then_some(owning),
                ..Server::default()
            }
        };
        State {
            servers: (0..setup.servers).map(server).collect(),
            net: Vec::new(),
            requests: Vec::new(),
            leader: Leader {
                epoch: 1,
                members,
                counted: members,
                kept: members,
                stage: Stage::Settled(Decision::default()),
                known: [Known::Installed; SERVERS_MAX],
            },
            clients: Clients { lease: 1, ..Clients::default() },
            may: Left {
                repeats: setup.repeats,
                fsyncs: setup.fsyncs,
                words: setup.words,
                epochs: setup.epochs,
                crashes: setup.crashes,
                lost_hands: setup.lost_hands,
            },
            facts: Facts::default(),
        }
    }

    pub fn server(&self, id: u8) -> &Server {
        &self.servers[usize::from(id)]
    }

    pub fn server_mut(&mut self, id: u8) -> &mut Server {
        &mut self.servers[usize::from(id)]
    }

    pub fn ids(&self) -> std::ops::Range<u8> {
        0..self.servers.len() as u8
    }

    pub fn send(&mut self, message: Message) {
        if let Err(at) = self.net.binary_search(&message) {
            self.net.insert(at, message);
        }
    }

    /// The opening of the newest epoch.
    pub fn opening(&self) -> Entry {
        Entry { version: Version::new(self.leader.epoch, 1, 0), write: 0 }
    }
}
