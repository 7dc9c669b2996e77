//! An owner and its members inside an epoch (0006): order, apply, tell, acknowledge, sync.

use crate::messages::{Body, Entry, Line, Message, Version};
use crate::rules::{Rule, Setup};
use crate::states::{Call, Peer, State, Waiting};

/// What `count` of these have reached.
fn reached(versions: impl Iterator<Item = Version>, count: u8) -> Version {
    let mut versions: Vec<Version> = versions.collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    versions.get(usize::from(count.max(1)) - 1).copied().unwrap_or_default()
}

impl State {
    /// The oldest write that is ordered is in the store, and its call waits for what it asked for.
    pub(super) fn applied(&mut self, at: u8) -> bool {
        let server = self.server_mut(at);
        let Some(owning) = server.owning.as_mut() else { return false };
        let Some(Entry { version, write }) = owning.queue.entries().first().copied() else { return false };
        if !owning.wait(Waiting { version, call: Call::Write(write) }) {
            return false;
        }
        owning.queue = owning.queue.without_first();
        server.line.push(Entry { version, write });
        true
    }

    /// Tells those that have greeted it what changed.
    pub(super) fn announce(&mut self, at: u8) -> bool {
        let server = self.server_mut(at);
        let (line, last) = (server.line, server.line.last());
        let Some(owning) = server.owning.filter(|owning| server.acting && owning.fetch == 0 && last > server.told)
        else {
            return false;
        };
        (server.told, server.invalidated) = (last, last);
        let (members, epoch, term) = (server.members, server.promised, server.term);
        for to in self.ids().filter(|to| *to != at && members & 1 << to != 0 && owning.peer(*to).greeted) {
            self.send(Message { from: at, to, epoch, term, body: Body::Said { line } });
        }
        true
    }

    /// What only makes more possible happens at once: `Hello`, `Ack`, and, when no server crashes any more, syncs. No guard asks that an
    /// owner know little of a member, so whatever may happen when these are late may happen when they are not.
    pub(super) fn follow(&mut self, setup: &Setup) {
        if self.may.crashes == 0 {
            for at in self.ids() {
                self.sync(at);
            }
        }
        let all = self.ids();
        for (owner, member) in all.clone().flat_map(|owner| all.clone().map(move |member| (owner, member))) {
            if self.is_followed(owner, member) {
                self.greet(setup, owner, member);
                self.learn(owner, member);
            }
        }
    }

    /// `Hello`, and the answer, which tells all there is. A member greets whom it has heard to own the chunk until it is told.
    fn greet(&mut self, setup: &Setup, owner: u8, member: u8) {
        let (from, told) = (*self.server(member), self.server(owner).told);
        // 0014: what it serves nothing older than, not what it was told.
        let served = if setup.keeps(Rule::HelloSaysServed) { from.invalidated } else { from.told };
        let to = self.server_mut(owner);
        let (line, epoch, term) = (to.line.upto(told), to.promised, to.term);
        let Some(owning) = to.owning.as_mut().filter(|owning| from.greeting && owning.fetch == 0) else { return };
        let peer = &mut owning.peers[usize::from(member)];
        if !peer.greeted {
            *peer = Peer { greeted: true, told: served, ..Peer::default() };
        }
        self.server_mut(member).greeting = false;
        self.send(Message { from: owner, to: member, epoch, term, body: Body::Said { line } });
    }

    /// Both act in one epoch and term, and the member knows who owns the chunk.
    fn is_followed(&self, owner: u8, member: u8) -> bool {
        let (to, from) = (self.server(owner), self.server(member));
        let both_act = to.up && from.up && to.acting && from.acting;
        let is_one = (to.promised, to.term) == (from.promised, from.term);
        both_act && is_one && to.is_owner() && !from.is_owner() && from.owner == owner
    }

    /// Is the message of the epoch and term in which its hearer acts, from the owner it knows?
    pub(super) fn is_of_now(&self, message: &Message) -> bool {
        let to = self.server(message.to);
        let acts_in = to.up && to.acting && to.promised == message.epoch;
        acts_in && to.term == message.term && !to.is_owner() && to.owner == message.from
    }

    /// From here on what it lacks is not served.
    pub(super) fn told(&mut self, setup: &Setup, message: Message) -> bool {
        let Body::Said { line } = message.body else { return false };
        let is_of_now = self.is_of_now(&message);
        let server = self.server_mut(message.to);
        if !is_of_now || line.last() <= server.told {
            return false;
        }
        server.told = line.last();
        if !setup.slow_readers {
            server.invalidated = server.told;
        }
        true
    }

    /// Descriptors and cached pages of what was before are back.
    pub(super) fn let_go(&mut self, at: u8) -> bool {
        let server = self.server_mut(at);
        let may = server.acting && server.invalidated < server.told;
        if may {
            server.invalidated = server.told;
        }
        may
    }

    /// Content of what it was told.
    pub(super) fn stored(&mut self, message: Message) -> bool {
        let Body::Said { line } = message.body else { return false };
        let is_of_now = self.is_of_now(&message);
        let server = self.server_mut(message.to);
        if !is_of_now || server.told < line.last() || line.last() <= server.line.last() {
            return false;
        }
        server.line = line;
        if line.last() >= server.opening {
            server.stale = Line::default();
        }
        true
    }

    /// `Ack`.
    fn learn(&mut self, owner: u8, member: u8) {
        let from = *self.server(member);
        let Some(owning) = &mut self.server_mut(owner).owning else { return };
        let peer = &mut owning.peers[usize::from(member)];
        if peer.greeted {
            peer.told = from.invalidated.max(peer.told);
            peer.complete = from.complete().max(peer.complete);
            peer.stable = from.stable().max(peer.stable);
        }
    }

    /// A sync, and the record after it.
    pub(super) fn sync(&mut self, at: u8) -> bool {
        let server = self.server_mut(at);
        let record = server.record();
        let may = server.acting && server.disk != record;
        if may {
            server.disk = record;
        }
        may
    }

    /// (told by all and in `min_copies` memories, on `min_copies` disks)
    pub(super) fn horizons(&self, setup: &Setup, at: u8) -> (Version, Version) {
        let server = self.server(at);
        let Some(owning) = &server.owning else { return Default::default() };
        let others = self.ids().filter(|other| *other != at && server.members & 1 << other != 0);
        let peers: Vec<&Peer> = others.map(|other| owning.peer(other)).collect();
        let own = server.complete();
        let told = peers.iter().map(|peer| peer.told).min().unwrap_or(own);
        let bytes = reached(peers.iter().map(|peer| peer.complete).chain([own]), setup.min_copies);
        let stable = reached(peers.iter().map(|peer| peer.stable).chain([server.stable()]), setup.min_copies);
        (told.min(bytes), stable)
    }
}
