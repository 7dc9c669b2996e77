//! Leases, crashes, and the leader's way from one epoch to the next (0006, *Take-over, in order*).
//!
//! The leader's messages are not modelled: each is asked for again until it is answered, so what it says is done at some moment, or
//! never. Its row is durable; a leader that dies is one that raises the epoch again.

use crate::messages::{Entry, Line, Version};
use crate::rules::{Rule, Setup};
use crate::states::{Decision, Known, Owning, SERVERS_MAX, Server, Servers, Stage, State};

impl State {
    /// The row gets the next epoch and its members. Any of them may have been asked to go.
    pub(super) fn raise(&mut self, setup: &Setup, members: Servers) -> bool {
        let count = members.count_ones();
        let asked = setup.chains.get(usize::from(self.leader.epoch) - 1).copied().unwrap_or_default();
        let fits = match asked {
            0 => (u32::from(setup.min_copies)..=u32::from(setup.copies)).contains(&count),
            asked => asked == members,
        };
        let Some(epochs) = self.may.epochs.checked_sub(1).filter(|_| fits) else { return false };
        self.may.epochs = epochs;
        let leader = &mut self.leader;
        leader.epoch += 1;
        leader.members = members;
        leader.kept |= members;
        leader.stage = Stage::Collecting;
        leader.known = [Known::Nothing; SERVERS_MAX];
        true
    }

    /// A server stops acting in an older epoch, and says what it has.
    pub(super) fn prepare(&mut self, at: u8) -> bool {
        let epoch = self.leader.epoch;
        let server = self.server(at);
        let is_known = self.leader.kept & 1 << at != 0;
        let has_reported = self.leader.known[usize::from(at)] != Known::Nothing;
        if !server.up || !is_known || has_reported || (server.acting && server.promised == epoch) {
            return false;
        }
        let owns = server.acting && server.is_owner();
        self.seal(at);
        if self.leader.stage == Stage::Collecting {
            let Server { line, stale, .. } = *self.server(at);
            self.leader.known[usize::from(at)] = Known::Reported { line, stale, owns };
        }
        true
    }

    fn seal(&mut self, at: u8) {
        self.stop(at);
        self.server_mut(at).promised = self.leader.epoch;
    }

    /// How the chunk goes on (0006, `takeover::decide`).
    pub(super) fn decide(&mut self, setup: &Setup) -> bool {
        let leader = &self.leader;
        let report = |at: u8| match leader.known[usize::from(at)] {
            Known::Reported { line, stale, owns } => Some((at, line, stale, owns)),
            _ => None,
        };
        let reports: Vec<(u8, Line, Line, bool)> = self.ids().filter_map(report).collect();
        let answered = reports.iter().fold(0, |all, (at, ..)| all | 1 << at);
        // Whoever may act in an older epoch has stopped, or its lease is over.
        let needed = (leader.counted.count_ones() + 1).saturating_sub(setup.min_copies.into()).max(1);
        let quorum = (leader.counted & answered).count_ones() >= needed || !setup.keeps(Rule::Quorum);
        if leader.stage != Stage::Collecting || !quorum {
            return false;
        }
        // The longest goes on; among equals the present owner, then the first of the chain.
        let candidates = reports.iter().filter(|(at, ..)| leader.members & 1 << at != 0);
        let rank = |(at, line, _, owns): &&(u8, Line, Line, bool)| (line.last(), *owns, std::cmp::Reverse(*at));
        let Some((owner, start, own_stale, _)) = candidates.max_by_key(rank).copied() else { return false };
        // With everything newer that any answer holds, its own where it has it.
        let is_newer = |entry: &&Entry| entry.version > start.last();
        let held = |line: &Line, stale: &Line| -> Vec<Entry> {
            line.entries().iter().chain(stale.entries()).filter(is_newer).copied().collect()
        };
        let mut newer: Vec<(Entry, u8)> = Vec::new();
        for (at, line, stale, _) in &reports {
            newer.extend(held(line, stale).into_iter().map(|entry| (entry, *at)));
        }
        newer.sort_unstable_by_key(|(entry, at)| (entry.version, *at != owner, *at));
        newer.dedup_by_key(|(entry, _)| *entry);
        let (mut pending, mut own) = (Line::default(), Line::default());
        newer.iter().for_each(|(entry, _)| pending.push(*entry));
        held(&start, &own_stale).iter().for_each(|entry| own.push(*entry));
        pending.push(self.opening());
        let fetch = newer.iter().filter(|(_, at)| *at != owner).fold(0, |all, (_, at)| all | 1 << at);
        // What only memories held may be gone with two of them: one that crashed, and one that does not answer.
        if self.facts.crashed && answered & leader.counted != leader.counted {
            self.facts.visible &= self.facts.durable;
        }
        // Whoever may act in an older epoch has stopped, or its lease is over now: that it was over before makes less possible.
        let kept = self.leader.kept;
        for at in self.ids().filter(|at| kept & !answered & 1 << at != 0 && setup.keeps(Rule::LeaseWaitedOut)) {
            self.server_mut(at).lease = false;
        }
        self.leader.stage = Stage::Settled(Decision { owner, start, pending, own, fetch });
        true
    }

    /// A member goes into the epoch as it was decided: one that reported, or is first told of it now.
    pub(super) fn install(&mut self, at: u8) -> bool {
        let epoch = self.leader.epoch;
        let Stage::Settled(decision) = self.leader.stage else { return false };
        let known = self.leader.known[usize::from(at)];
        let is_invited = matches!(known, Known::Reported { .. } | Known::Nothing);
        let is_member = self.leader.members & 1 << at != 0;
        let (members, fencing) = (self.leader.members, self.clients.fencing.is_some());
        if !self.server(at).up || !is_member || !is_invited || (at == decision.owner && known == Known::Nothing) {
            return false;
        }
        self.seal(at);
        self.leader.known[usize::from(at)] = Known::Installed;
        let server = self.server_mut(at);
        let opening = Version::new(epoch, 1, 0);
        (server.acting, server.members, server.term, server.owner) = (true, members, 1, decision.owner);
        (server.opening, server.once) = (opening, 0);
        // A new lease comes with the epochs that were raised; and with one who registers anew it is heard which sessions have ended.
        server.fenced |= !server.lease && fencing;
        server.lease = true;
        if at == decision.owner {
            (server.line, server.stale) = (decision.start, decision.own);
            let owning = Owning { fetch: decision.fetch, pending: decision.pending, ..Owning::default() };
            server.owning = Some(owning);
            (server.told, server.invalidated) = (opening, opening);
            self.begin_if_fetched(at);
        } else {
            // Back to where this copy and the chain part.
            let fork = server.line.common(&decision.start);
            let mut stale: Vec<Entry> =
                server.stale.entries().iter().chain(&server.line.entries()[fork..]).copied().collect();
            stale.sort_unstable();
            stale.dedup();
            (server.line, server.stale) = (server.line.first(fork), Line::default());
            server.stale.extend(&stale);
            (server.told, server.invalidated) = (server.line.last(), server.line.last());
            server.greeting = true;
        }
        true
    }

    fn begin_if_fetched(&mut self, at: u8) {
        let server = self.server_mut(at);
        if let Some(owning) = server.owning.as_mut().filter(|owning| owning.fetch == 0) {
            server.line.extend(owning.pending.entries());
            (owning.pending, server.stale) = (Line::default(), Line::default());
        }
    }

    /// A successor takes newer content from who holds it, who may be in no chain any more.
    pub(super) fn fetched(&mut self, setup: &Setup, owner: u8, from: u8) -> bool {
        let (to, holder) = (*self.server(owner), *self.server(from));
        let Some(owning) = to.owning.filter(|owning| to.acting && owning.fetch & 1 << from != 0) else { return false };
        // Under the term of whoever asks; its own may be a later one of an older epoch, and is not understood.
        let term = if setup.keeps(Rule::FetchInAskersTerm) { to.term } else { holder.term };
        if !holder.up || holder.promised != to.promised || term != to.term {
            return false;
        }
        let fetch = owning.fetch & !(1 << from);
        if let Some(owning) = &mut self.server_mut(owner).owning {
            owning.fetch = fetch;
        }
        self.facts.fetched |= holder.term > to.term;
        self.begin_if_fetched(owner);
        true
    }

    /// `min_copies` have the opening on their disks, and the row says so; then the owner answers.
    pub(super) fn open(&mut self, setup: &Setup, at: u8) -> bool {
        let (_, stable) = self.horizons(setup, at);
        let epoch = self.leader.epoch;
        let server = self.server_mut(at);
        let (opening, promised) = (server.opening, server.promised);
        let Some(owning) = server.owning.as_mut().filter(|owning| !owning.opened && owning.fetch == 0) else {
            return false;
        };
        let in_row = setup.keeps(Rule::OpenInRow);
        if stable < opening || (in_row && promised != epoch) {
            return false;
        }
        owning.opened = true;
        if in_row {
            (self.leader.counted, self.leader.kept) = (self.leader.members, self.leader.members);
        }
        true
    }

    /// What is in memory is lost, and what is on its way there.
    pub(super) fn crash(&mut self, at: u8) -> bool {
        let Some(crashes) = self.may.crashes.checked_sub(1) else { return false };
        self.may.crashes = crashes;
        self.facts.crashed = true;
        let server = self.server_mut(at);
        let disk = server.disk;
        *server = Server { disk, ..Server::default() };
        self.requests.retain(|request| request.to != at);
        true
    }

    /// It owns nothing and serves nothing until it is put into a new epoch.
    pub(super) fn come_back(&mut self, at: u8) -> bool {
        let server = self.server(at);
        if server.up {
            return false;
        }
        let disk = server.disk;
        let fenced = self.clients.fencing.is_some();
        let (promised, term, owner, line, stale) = (disk.epoch, disk.term, disk.owner, disk.line, disk.stale);
        *self.server_mut(at) =
            Server { up: true, promised, term, owner, line, stale, disk, fenced, ..Server::default() };
        let known = &mut self.leader.known[usize::from(at)];
        *known = match (&self.leader.stage, *known) {
            (_, Known::Nothing) | (Stage::Collecting, _) => Known::Nothing,
            (Stage::Settled(_), _) => Known::Barred,
        };
        true
    }
}
