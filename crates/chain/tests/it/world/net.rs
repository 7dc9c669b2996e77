//! Carrying out commands: messages over a bad network, work on disks that takes time.

use super::disk::Io;
use super::*;

impl World {
    fn delay(&mut self) -> Us {
        // Some overtake others by far.
        let (percent, longest) = self.setup.late;
        let is_late = !self.calm && self.rng.chance(percent);
        if is_late { self.rng.between(10 * MS, longest) } else { self.rng.between(100, 3 * MS) }
    }

    /// How often a message arrives, and after how long.
    fn journeys(&mut self, a: u64, b: u64) -> Vec<Us> {
        if self.is_cut(a, b) {
            return Vec::new();
        }
        if !self.calm && self.rng.chance(self.setup.loss_percent) {
            return Vec::new();
        }
        let copies = if !self.calm && self.rng.chance(3) { 2 } else { 1 };
        (0..copies).map(|_| self.delay()).collect()
    }

    pub fn node_event(&mut self, index: usize, event: Event, content: &[(u64, u64)]) {
        let now = self.clock(index);
        let Some(machine) = self.nodes[index].machine.as_mut() else { return };
        let commands = machine.on(now, event);
        for command in commands {
            if self.dies_before_command(Some(index)) {
                return;
            }
            self.carry_out(index, command, content);
        }
    }

    fn io(&mut self, index: usize, delay: Us, io: Io) {
        let incarnation = self.nodes[index].incarnation;
        self.at(delay, Item::Io { node: index, incarnation, io });
    }

    /// Work on one chunk's content is done in order.
    fn io_in_order(&mut self, index: usize, chunk: ChunkId, delay: Us, io: Io) {
        let stored = self.nodes[index].disk.chunks.entry(chunk).or_default();
        let done = (self.now + delay).max(stored.busy_until + 1);
        stored.busy_until = done;
        self.io(index, done - self.now, io);
    }

    pub fn carry_out(&mut self, index: usize, command: Command, content: &[(u64, u64)]) {
        let me = self.nodes[index].id;
        match command {
            Command::Apply { op, chunk, version, .. } => {
                let delay = self.rng.between(20, 2 * MS);
                self.io_in_order(index, chunk, delay, Io::Apply { op, chunk, version });
            }
            Command::Store { number, chunk, blocks, .. } => {
                let content: Vec<_> = content.iter().filter(|(block, _)| blocks.contains(*block)).copied().collect();
                let delay = self.rng.between(20, 2 * MS);
                self.io_in_order(index, chunk, delay, Io::Store { chunk, number, content });
            }
            Command::Answer { op, result } => self.answered(index, op, result),
            Command::Send { to, envelope } => {
                self.note(|| format!("{me} -> {to}: {}/{} {:?}", envelope.epoch, envelope.term, envelope.body));
                match envelope.body {
                    Body::Hand { .. } => self.saw("ownership handed over"),
                    Body::Owns => self.saw("ownership taken"),
                    _ => {}
                }
                self.send(index, to, envelope, Vec::new());
            }
            Command::SendContent { to, envelope } => {
                // In the order of the chunk's work: after what was applied before, before what is applied later.
                let delay = self.rng.between(1, MS);
                let chunk = envelope.chunk;
                self.io_in_order(index, chunk, delay, Io::Content { to, envelope });
            }
            Command::Invalidate { chunk, upto, .. } => {
                let delay = self.rng.between(1, 5 * MS);
                self.io(index, delay, Io::Invalidate { chunk, upto });
            }
            Command::Sync { number, chunk, .. } => {
                let delay = self.rng.between(1, MS);
                self.io_in_order(index, chunk, delay, Io::SyncBegins { chunk, number });
            }
            Command::Persist { number, chunk, record, .. } => {
                let delay = self.rng.between(500, 5 * MS);
                self.io_in_order(index, chunk, delay, Io::Persist { chunk, number, record });
            }
            Command::HandsOff { epoch, .. } => {
                let delay = self.rng.between(1, 5 * MS);
                self.io(index, delay, Io::HandsOff { epoch });
            }
            Command::Discard { chunk, .. } => {
                self.saw("content discarded");
                let disk = &mut self.nodes[index].disk;
                let stored = disk.chunks.entry(chunk).or_default();
                if disk.losing.remove(&chunk) {
                    disk.had.insert(chunk, stored.complete());
                }
                let busy_until = stored.busy_until;
                *stored = disk::Stored::default();
                stored.busy_until = busy_until;
            }
            Command::Remove { container, epoch, server } => {
                self.saw("removal asked");
                self.tell_leader(index, ToLeader::Remove { container, epoch, server });
            }
            Command::ToLeader(message) => self.tell_leader(index, message),
            Command::Agreed { .. } => self.saw("all members have it on stable storage"),
        }
    }

    fn tell_leader(&mut self, index: usize, message: ToLeader) {
        let (from, incarnation) = (self.nodes[index].id, self.nodes[index].incarnation);
        if let ToLeader::Prepared { reports, .. } = &message {
            let any = |is: fn(&Claims) -> bool| reports.iter().any(|report| is(&report.claims));
            let states: [(&'static str, bool); 4] = [
                ("reported: content the chain left behind", any(|claims| !claims.stale.is_empty())),
                ("reported: suspect after a crash", any(|claims| !claims.suspect.is_empty())),
                ("reported: torn blocks", any(|claims| !claims.bad.is_empty())),
                ("reported: told of more than it has", any(|claims| claims.changes.told() > claims.complete())),
            ];
            states.iter().filter(|(_, is_so)| *is_so).for_each(|(what, _)| self.saw(what));
        }
        if matches!(message, ToLeader::PreparedWithout { .. }) {
            self.saw("reported: lost");
        }
        if matches!(message, ToLeader::Full { .. }) {
            self.saw("said to be full");
        }
        if !matches!(message, ToLeader::Renew { .. }) {
            self.note(|| format!("{from} -> leader: {message:?}"));
        }
        for delay in self.journeys(0, from.0) {
            self.at(delay, Item::ToLeader { from, incarnation, message: message.clone() });
        }
    }

    pub fn send(&mut self, index: usize, to: ServerId, mut envelope: Envelope, content: Vec<(u64, u64)>) {
        let from = self.nodes[index].id;
        if self.setup.bug == Some(Bug::AckBeforeTheMemberHasIt)
            && let Body::Ack { told, complete, .. } = &mut envelope.body
        {
            let mine = self.nodes[index].machine.as_ref().and_then(|machine| machine.copy(C, envelope.chunk));
            *complete = mine.map_or(*told, |copy| copy.told);
        }
        if self.setup.bug == Some(Bug::SkippedSync)
            && let Body::Ack { complete, stable, .. } = &mut envelope.body
        {
            *stable = *complete;
        }
        for delay in self.journeys(from.0, to.0) {
            let to = self.node_of(to);
            let envelope = envelope.clone();
            self.at(delay, Item::ToServer { to, from, envelope, content: content.clone() });
        }
    }

    pub fn leader_event(&mut self, event: LeaderEvent) {
        let now = self.leader_clock();
        let Some(machine) = self.leader.machine.as_mut() else { return };
        let commands = machine.on(now, event, &mut FirstSpare);
        for command in commands {
            if self.dies_before_command(None) {
                return;
            }
            match command {
                LeaderCommand::Send { to, incarnation, message } => {
                    if !matches!(message, FromLeader::Grant { .. }) {
                        self.note(|| format!("leader -> {to}: {message:?}"));
                    }
                    for delay in self.journeys(0, to.0) {
                        let to = self.node_of(to);
                        self.at(delay, Item::FromLeader { to, incarnation, message: message.clone() });
                    }
                }
                LeaderCommand::Commit { number, row, .. } => {
                    self.note(|| format!("leader commits {row:?}"));
                    let epoch = self.leader.epoch;
                    let delay = self.rng.between(MS, 10 * MS);
                    self.at(delay, Item::Committed { epoch, number, row });
                }
                LeaderCommand::Decided { decision, .. } => {
                    self.note(|| format!("decided {decision:?}"));
                    self.saw("take-over decided");
                    if !decision.fetch.is_empty() {
                        self.saw("newer blocks fetched");
                    }
                    if decision.lost > 0 {
                        self.saw("blocks went back to the prefix");
                    }
                    if decision.sealed > 0 {
                        self.saw("blocks sealed");
                        self.ledger.sealed.insert(decision.chunk);
                    }
                    if decision.lineage.starts().len() > 2 {
                        self.saw("third epoch of a chunk");
                    }
                }
            }
        }
    }

    /// What arrives at a data server, as the planted bugs make it look.
    pub fn arrive(&mut self, to: usize, from: ServerId, mut envelope: Envelope, content: &[(u64, u64)]) {
        let copy = self.nodes[to].machine.as_ref().and_then(|machine| machine.copy(C, envelope.chunk));
        match self.setup.bug {
            Some(Bug::StaleEpochAccepted) => {
                if let Some(epoch) = copy.as_ref().and_then(|copy| copy.epoch) {
                    envelope.epoch = epoch;
                }
            }
            Some(Bug::TakenWithoutAll) => match (&mut envelope.body, &copy) {
                (Body::Ack { told, complete, .. }, Some(copy)) => (*told, *complete) = (copy.told, copy.told),
                (Body::Hand { told, .. }, Some(copy)) => *told = copy.told,
                _ => {}
            },
            Some(Bug::MembersNotToldByTheNextOwner) => {
                if let (Body::Hello { told }, Some(copy)) = (&mut envelope.body, &copy)
                    && copy.term.0 > 1
                {
                    *told = copy.told;
                }
            }
            Some(Bug::PrefixAdvancedOverAGap) => {
                if let (Body::Tell { groups, .. }, Some(copy)) = (&mut envelope.body, &copy)
                    && let Some(first) = groups.first_mut()
                    && first.base > copy.told
                {
                    first.base = copy.told;
                }
            }
            Some(Bug::InvalidationAcknowledgedBeforeApplied) => {
                if let (Body::Tell { groups, .. }, Some(copy)) = (&envelope.body, &copy)
                    && let Some(last) = groups.last()
                    && last.upto > copy.told
                    && self.rng.chance(50)
                {
                    let (complete, stable) = (copy.complete, copy.stable);
                    let body = Body::Ack { told: last.upto, complete, stable, gap: false };
                    self.send(to, from, Envelope { body, ..envelope.clone() }, Vec::new());
                    let delay = self.rng.between(20 * MS, 100 * MS);
                    // The second time it is done.
                    let later = Item::ToServer { to, from, envelope, content: content.to_vec() };
                    return self.at(delay, later);
                }
            }
            _ => {}
        }
        if let Body::Ack { gap: true, .. } = envelope.body {
            self.saw("a gap was noticed");
        }
        self.node_event(to, Event::FromPeer { from, envelope }, content);
    }

    pub fn io_done(&mut self, index: usize, io: Io) {
        let container = C;
        match io {
            Io::Apply { op, chunk, version } => {
                let (blocks, value) = (self.ops[&op].blocks.clone(), self.ops[&op].value);
                let disk = self.nodes[index].disk.chunks.entry(chunk).or_default();
                blocks.runs().flatten().for_each(|block| disk.write(block, value));
                self.node_event(index, Event::Applied { container, chunk, version }, &[]);
            }
            Io::Store { chunk, number, content } if self.is_full(index) => {
                // A part of it found room.
                let fits = self.rng.below(content.len() as u64 + 1) as usize;
                let disk = self.nodes[index].disk.chunks.entry(chunk).or_default();
                content[..fits].iter().for_each(|(block, value)| disk.write(*block, *value));
                self.node_event(index, Event::Unstored { container, chunk, number }, &[]);
            }
            Io::SyncBegins { chunk, number } | Io::Persist { chunk, number, .. }
                if self.is_full(index) && self.rng.chance(50) =>
            {
                self.saw("no room for a record");
                self.node_event(index, Event::Unsynced { container, chunk, number }, &[]);
            }
            Io::Store { chunk, number, content } => {
                let disk = self.nodes[index].disk.chunks.entry(chunk).or_default();
                content.iter().for_each(|(block, value)| disk.write(*block, *value));
                self.node_event(index, Event::Stored { container, chunk, number }, &[]);
            }
            Io::Invalidate { chunk, upto } => {
                self.node_event(index, Event::Invalidated { container, chunk, upto }, &[]);
            }
            Io::SyncBegins { chunk, number } => {
                self.nodes[index].disk.chunks.entry(chunk).or_default().sync_begins(number);
                let delay = self.rng.between(MS, 20 * MS);
                self.io(index, delay, Io::Synced { chunk, number });
            }
            Io::Synced { chunk, number } => {
                self.nodes[index].disk.chunks.entry(chunk).or_default().synced(number);
                self.node_event(index, Event::Synced { container, chunk, number }, &[]);
            }
            Io::Persist { chunk, number, record } => {
                self.nodes[index].disk.chunks.entry(chunk).or_default().persisted(number, record);
                self.node_event(index, Event::Persisted { container, chunk, number }, &[]);
            }
            Io::Content { to, envelope } => self.send_content(index, to, envelope),
            Io::HandsOff { epoch } => self.node_event(index, Event::HandsOff { container, epoch }, &[]),
        }
    }

    /// Content as it is when it is sent.
    pub fn send_content(&mut self, index: usize, to: ServerId, envelope: Envelope) {
        let (Body::Blocks { blocks, .. } | Body::Fetched { blocks }) = &envelope.body else { return };
        let stored = self.nodes[index].disk.chunks.get(&envelope.chunk);
        let value = |block: u64| stored.and_then(|stored| stored.cache.get(&block)).copied().unwrap_or(0);
        let content = blocks.runs().flatten().map(|block| (block, value(block))).collect();
        self.send(index, to, envelope, content);
    }
}
