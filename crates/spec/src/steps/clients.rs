//! Clients and their calls: writes in attempts, fsync, the end of a lease, the fence of a session.

use crate::messages::{Entry, Request, Version};
use crate::rules::{Passing, Rule, Setup};
use crate::states::{Call, State, Waiting};

impl State {
    /// The client's next write, or another attempt at it, which gives up those before.
    pub(super) fn send_write(&mut self, setup: &Setup, client: u8, to: u8) -> bool {
        let known = &mut self.clients.each[usize::from(client)];
        let may_write = setup.beside || self.clients.lease == client + 1;
        if !may_write || known.done == setup.writes[usize::from(client)] {
            return false;
        }
        if known.asked {
            let Some(repeats) = self.may.repeats.checked_sub(1) else { return false };
            self.may.repeats = repeats;
        }
        known.asked = true;
        known.place += 1;
        let first = if client == 0 { 0 } else { setup.writes[0] };
        let (write, place) = (first + known.done + 1, known.place);
        let (lease, epoch) = (if setup.beside { 1 } else { client + 1 }, self.leader.epoch);
        let request = Request { to, client, write, place, lease, epoch };
        if let Err(at) = self.requests.binary_search(&request) {
            self.requests.insert(at, request);
        }
        true
    }

    /// At a server, which orders it if it owns the chunk. If not, the client's next attempt is another request.
    pub(super) fn arrive(&mut self, setup: &Setup, request: Request) -> bool {
        let Request { to, client, write, place, lease, epoch } = request;
        let fence_is_over = self.facts.ended;
        let server = self.server_mut(to);
        // Calls wait while ownership moves (0014: Nothing is begun while ownership moves).
        let is_held = server.moving.is_some_and(|moving| !moving.handed) && setup.keeps(Rule::NothingBegun);
        if !server.up || is_held {
            return false;
        }
        // What its sender has given up is refused (0011, *Places*), also by who learns it from this very request.
        let settled = &mut server.late.places[usize::from(client)];
        let is_given_up = place < *settled;
        *settled = place.max(*settled);
        let is_fenced = server.fenced && client == 0 && setup.keeps(Rule::FenceRefuses);
        let is_late = is_given_up || lease < server.late.lease || is_fenced;
        let may_order = server.acting && server.promised == epoch && server.lease;
        let (term, promised, told) = (server.term, server.promised, server.line);
        let mut once = server.once;
        if let Some(owning) = server.owning.as_mut().filter(|owning| may_order && !is_late && owning.fetch == 0) {
            let last = if owning.queue.is_empty() { told.last() } else { owning.queue.last() };
            let counter = if (last.epoch(), last.term()) == (promised, term) { last.counter() } else { 0 };
            let version = Version::new(promised, term, counter + 1);
            if setup.beside && once & 1 << write != 0 {
                // It has happened; the answer says so.
                owning.wait(Waiting { version: last, call: Call::Write(write) });
            } else {
                owning.queue.push(Entry { version, write });
                once |= 1 << write;
            }
            if setup.beside {
                server.once = once;
            }
            server.late.lease = lease.max(server.late.lease);
            self.facts.late |= fence_is_over && client == 0;
            if !setup.slow_store {
                self.applied(to);
            }
        }
        self.requests.retain(|other| *other != request);
        true
    }

    /// A call that waits for everything ordered before, at who may take it.
    fn wait_for_all(&mut self, at: u8, call: Call) -> bool {
        let server = self.server_mut(at);
        let may_begin = server.acting && server.lease && server.moving.is_none();
        let line = server.line;
        let Some(owning) = server.owning.as_mut().filter(|_| may_begin) else { return false };
        let version = if owning.queue.is_empty() { line.last() } else { owning.queue.last() };
        let waiting = Waiting { version, call };
        !owning.waiting.contains(&Some(waiting)) && owning.wait(waiting)
    }

    pub(super) fn fsync(&mut self, at: u8) -> bool {
        let Some(fsyncs) = self.may.fsyncs.checked_sub(1) else { return false };
        self.may.fsyncs = fsyncs;
        self.wait_for_all(at, Call::Fsync)
    }

    /// The first client gives its lease up, and waits for none of its changes any more.
    pub(super) fn flush(&mut self, setup: &Setup, at: u8) -> bool {
        if setup.passing != Passing::Yields || self.clients.lease != 1 || !self.wait_for_all(at, Call::Flush) {
            return false;
        }
        let place = self.clients.each[0].place + 1;
        let settled = &mut self.server_mut(at).late.places[0];
        *settled = place.max(*settled);
        true
    }

    pub(super) fn answer(&mut self, setup: &Setup, at: u8, call: u8, heard: bool) -> bool {
        let (shared, stable) = self.horizons(setup, at);
        let server = self.server(at);
        let may_answer = server.may_acknowledge();
        let Some(owning) = server.owning.filter(|_| may_answer) else { return false };
        let Some(Waiting { version, call: what }) = owning.waiting[usize::from(call)] else { return false };
        let is_so = match what {
            Call::Write(_) => !setup.shared || version <= shared,
            Call::Fsync => version <= stable,
            Call::Flush | Call::Fence => version <= shared,
        };
        let may_be_lost = matches!(what, Call::Write(_));
        if !is_so || !(heard || may_be_lost && self.may.repeats > 0) {
            return false;
        }
        if let Some(owning) = &mut self.server_mut(at).owning {
            owning.waiting[usize::from(call)] = None;
            owning.sort();
        }
        self.answered(setup, at, Waiting { version, call: what }, heard);
        true
    }

    /// A promise is made.
    pub(super) fn answered(&mut self, setup: &Setup, at: u8, Waiting { version, call }: Waiting, heard: bool) {
        let (epoch, writes) = (self.server(at).promised, self.server(at).line.upto(version).writes());
        match call {
            Call::Write(write) => {
                if self.facts.answered_in != epoch {
                    (self.facts.answered, self.facts.answered_in) = (0, epoch);
                }
                self.facts.answered |= 1 << write;
                if setup.shared {
                    self.facts.visible |= 1 << write;
                }
                let client = u8::from(write > setup.writes[0]);
                let known = &mut self.clients.each[usize::from(client)];
                let number = write - if client == 0 { 0 } else { setup.writes[0] };
                if heard && known.done + 1 == number {
                    (known.done, known.asked) = (number, false);
                }
            }
            Call::Fsync => {
                self.facts.durable |= writes;
                let holds = |disk: &crate::states::Disk| disk.line.writes() & writes == writes;
                let disks = self.servers.iter().filter(|server| holds(&server.disk)).count();
                self.facts.short |= disks < usize::from(setup.min_copies);
            }
            Call::Flush => {
                self.facts.visible |= writes;
                self.clients.lease = 2;
            }
            Call::Fence => {
                self.facts.visible |= writes;
                self.fence_is_at(at);
            }
        }
    }

    /// The metadata server ends the first session.
    pub(super) fn fence(&mut self, setup: &Setup) -> bool {
        let may = setup.passing == Passing::Fenced && self.clients.fencing.is_none();
        if may {
            self.clients.fencing = Some(0);
        }
        may
    }

    fn fence_is_at(&mut self, at: u8) {
        if let Some(fenced) = &mut self.clients.fencing {
            *fenced |= 1 << at;
        }
    }

    /// A server refuses the session, and flushes what it owns. A call that is held while ownership moves ends with the move.
    pub(super) fn fence_at(&mut self, setup: &Setup, at: u8) -> bool {
        let has_it = self.clients.fencing.is_none_or(|fenced| fenced & 1 << at != 0);
        let server = self.server_mut(at);
        let is_moving = server.moving.is_some_and(|moving| !moving.handed);
        if has_it || (is_moving && server.fenced) {
            return false;
        }
        let is_first = !std::mem::replace(&mut server.fenced, true);
        let must_flush = server.acting && server.is_owner() && setup.keeps(Rule::FenceFlushes);
        match must_flush {
            false => self.fence_is_at(at),
            true if is_moving => return is_first,
            true => return self.wait_for_all(at, Call::Fence) || is_first,
        }
        true
    }

    /// Every server has the fence, or is being left behind and has no lease: only then another has the file.
    pub(super) fn fence_ends(&mut self) -> bool {
        let Some(fenced) = self.clients.fencing.filter(|_| !self.facts.ended) else { return false };
        let is_over = |at: u8| {
            let server = self.server(at);
            fenced & 1 << at != 0 || (!server.lease && (!server.up || server.promised < self.leader.epoch))
        };
        if !self.ids().all(is_over) {
            return false;
        }
        self.facts.ended = true;
        self.clients.lease = 2;
        // What was answered survives the loss of the owner or of its client, not of both.
        if self.leader.epoch == 1 && !self.facts.crashed {
            self.facts.visible |= self.facts.answered;
        }
        true
    }
}
