//! Who may have what: the first request of a file is compared with what others hold, and granted when nobody has more
//! than may stay beside it.

use super::{Around, File, Files, Generation, Held, Mode, Purpose, ROOM_BATCH, Recall, Waiter, Want};
use crate::command::Command;
use crate::key::AskId;
use crate::locks::LockAnswer;
use braid_types::{InodeId, SessionId};

/// What another session may keep beside a request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Allowed {
    mode: Mode,
    /// It may go on granting itself locks.
    locks: bool,
    /// It is to say size and times even if it may keep what it has.
    report: bool,
}

impl File {
    /// What a session gets when it is its turn.
    fn target(&self, session: SessionId, want: Want) -> Mode {
        let others_write = self.held.iter().any(|(s, held)| *s != session && held.handles.writes());
        // One cached write handle anywhere, and the file is never `sync`: its pages cannot be kept in step.
        let all_can_sync = self.held.values().all(|held| !held.handles.cached_write);
        let own = self.held.get(&session).map_or(Mode::None, |held| held.mode);
        match want {
            Want::Once => Mode::Exclusive,
            Want::Write | Want::Direct if others_write && all_can_sync => Mode::Sync,
            Want::Write => Mode::Exclusive,
            // Its own writes under `sync` may be on their way: nobody else may cache what they change.
            Want::Read if own == Mode::Sync => Mode::Exclusive,
            Want::Direct if own == Mode::Sync => Mode::Sync,
            Want::Read | Want::Direct => Mode::Shared,
        }
    }

    fn allowed(&self, waiter: &Waiter, other: &Held) -> Allowed {
        let keep = Allowed { mode: other.mode, locks: other.locks, report: false };
        let only = |mode| Allowed { mode, locks: false, report: false };
        match waiter.purpose {
            Purpose::Still { .. } if other.mode.writes() => only(Mode::None),
            Purpose::Still { .. } => keep,
            Purpose::Refresh => {
                Allowed { report: other.mode == Mode::Exclusive && other.answered <= waiter.arrived, ..keep }
            }
            Purpose::Lock { .. } | Purpose::TestLock { .. } => Allowed { locks: false, ..keep },
            Purpose::Take(want) => match self.target(waiter.session, want) {
                Mode::Exclusive | Mode::None => only(Mode::None),
                Mode::Sync => only(Mode::Sync),
                // Who has it open for writing caches pages only under `exclusive`: it keeps nothing.
                Mode::Shared if other.handles.writes() => only(Mode::None),
                Mode::Shared => only(Mode::Shared),
            },
        }
    }

    fn store(&mut self, inode: InodeId, around: &mut Around<'_>) {
        if let Some(grown) = self.grown
            && !std::mem::replace(&mut self.storing, true)
        {
            around.out.push(Command::Store { inode, size: grown.size, mtime: grown.mtime });
        }
    }
}

impl Files {
    /// Serves the file's queue as far as it goes. Who wants to write while nobody is to is passed over, and who keeps the file still: nobody
    /// who reads, or asks for a lock, waits for them.
    pub fn step(&mut self, inode: InodeId, around: &mut Around<'_>) {
        self.due.remove(&inode);
        if !around.view.slots.is_settling(inode) {
            // Whoever was told stands behind some that came before, where another has let go.
            let told = |waiter: &Waiter| waiter.purpose == Purpose::Still { told: true };
            let mut is_still = self.files.get(&inode).is_some_and(|file| file.queue.iter().any(told));
            let mut passed = 0;
            while let Some(waiter) = self.files.get(&inode).and_then(|file| file.queue.get(passed).copied()) {
                if let Purpose::Still { .. } = waiter.purpose
                    && self.is_still(inode, &waiter, around)
                {
                    (passed, is_still) = (passed + 1, true);
                    continue;
                }
                if (is_still || self.writes_held > 0) && self.begins_to_write(inode, &waiter) {
                    passed += 1;
                    continue;
                }
                if !self.serve(inode, waiter, around) {
                    return;
                }
                self.asks.remove(&waiter.ask);
                if let Some(file) = self.files.get_mut(&inode) {
                    file.queue.retain(|other| other.ask != waiter.ask);
                    // Most leases outlive their requests for long; the room of four requests is 416 bytes.
                    if file.queue.is_empty() {
                        file.queue.shrink_to_fit();
                    }
                }
            }
            if passed > 0 {
                return;
            }
        }
        self.rest(inode, around);
        self.make_room(around);
    }

    /// True if the request is answered.
    fn serve(&mut self, inode: InodeId, waiter: Waiter, around: &mut Around<'_>) -> bool {
        if let Some(why) = waiter.purpose.refusal(&around.view, waiter.session, inode) {
            around.out.push(Command::Refuse { ask: waiter.ask, why });
            return true;
        }
        if !self.others_agree(inode, &waiter, around) {
            return false;
        }
        match waiter.purpose {
            Purpose::Take(want) => self.serve_take(inode, &waiter, want, around),
            // What was written is being stored.
            Purpose::Still { .. } => false,
            Purpose::Refresh => {
                let grown = self.files.get(&inode).and_then(|file| file.grown);
                around.out.push(Command::Fresh { ask: waiter.ask, grown });
                true
            }
            Purpose::Lock { until: Some(until), .. } if until <= around.view.now => {
                around.out.push(Command::Locked { ask: waiter.ask, answer: LockAnswer::TimedOut });
                true
            }
            Purpose::Lock { space, lock, until } => {
                let in_the_way = around.locks.set(waiter.ask, inode, space, lock, (waiter.since, until), around.out);
                around.end.extend(in_the_way.into_iter().filter(|s| around.view.terms.has_lapsed(*s)));
                true
            }
            Purpose::TestLock { space, lock } => {
                let answer = around.locks.test(inode, space, &lock);
                if let LockAnswer::Held(held) = answer
                    && around.view.terms.has_lapsed(held.owner.session)
                {
                    around.end.insert(held.owner.session);
                }
                around.out.push(Command::Locked { ask: waiter.ask, answer });
                true
            }
        }
    }

    /// Nobody writes, and nothing is to be stored: that is told once, and stays so.
    fn is_still(&mut self, inode: InodeId, waiter: &Waiter, around: &mut Around<'_>) -> bool {
        if waiter.purpose.refusal(&around.view, waiter.session, inode).is_some()
            || !self.others_agree(inode, waiter, around)
        {
            return false;
        }
        let Some(file) = self.files.get_mut(&inode) else { return false };
        if file.grown.is_some() {
            file.store(inode, around);
            return false;
        }
        if let Some(own) = file.queue.iter_mut().find(|other| other.ask == waiter.ask)
            && own.purpose != (Purpose::Still { told: true })
        {
            own.purpose = Purpose::Still { told: true };
            around.out.push(Command::Fresh { ask: waiter.ask, grown: None });
        }
        true
    }

    /// It wants to write, and does not have that yet.
    fn begins_to_write(&self, inode: InodeId, waiter: &Waiter) -> bool {
        let (Purpose::Take(want), Some(file)) = (waiter.purpose, self.files.get(&inode)) else { return false };
        let own = file.held.get(&waiter.session).map_or(Mode::None, |held| held.mode);
        file.target(waiter.session, want).writes() && !own.writes()
    }

    fn serve_take(&mut self, inode: InodeId, waiter: &Waiter, want: Want, around: &mut Around<'_>) -> bool {
        let Some(file) = self.files.get_mut(&inode) else { return true };
        let target = file.target(waiter.session, want);
        let own = file.held.get(&waiter.session);
        if own.is_some_and(|own| own.recall.is_some()) {
            return false;
        }
        let own_mode = own.map_or(Mode::None, |own| own.mode);
        // What it has serves: said again, because the answer may have been lost.
        let mode = if target.is_within(own_mode) { own_mode } else { target };
        // What others wrote under `sync` belongs in the row before somebody keeps a size of his own.
        if mode != Mode::Sync && file.grown.is_some() {
            file.store(inode, around);
            return false;
        }
        let keep = (mode == Mode::Exclusive).then_some(waiter.session);
        if mode.writes() && !around.names.bar(&around.view, inode, keep, around.out) {
            return false;
        }
        self.grant(Some(waiter.ask), waiter.session, inode, mode, around);
        true
    }

    pub(super) fn grant(
        &mut self,
        ask: Option<AskId>,
        session: SessionId,
        inode: InodeId,
        mode: Mode,
        around: &mut Around<'_>,
    ) {
        let queue = self.files.get(&inode).map(|file| &file.queue);
        let locks_wanted = queue.is_some_and(|queue| {
            queue.iter().any(|w| matches!(w.purpose, Purpose::Lock { .. } | Purpose::TestLock { .. }))
        });
        let had_locks = self.entry(session, inode).locks;
        let is_unsure = around.view.slots.may_have_locks(inode.slot(), session);
        let may_delegate = around.locks.may_delegate(inode, session, around.view.now);
        let may_lock = had_locks || (!locks_wanted && !is_unsure && may_delegate);
        let locks = mode == Mode::Exclusive && may_lock;
        let generation = self.next_number();
        let was_exclusive = self.mode(session, inode).0 == Mode::Exclusive;
        let token = self.pass_token(inode, mode, mode == Mode::Exclusive && !was_exclusive, generation);
        self.set_mode(session, inode, mode, generation);
        let held = self.entry(session, inode);
        (held.granted, held.locks) = (around.view.now, locks);
        around.out.push(Command::Grant { ask, session, inode, mode, generation, token, locks });
    }

    /// The token of who has `mode` from now on; `raise` if the right to write is new to it.
    fn pass_token(&mut self, inode: InodeId, mode: Mode, raise: bool, number: Generation) -> Generation {
        let Some(file) = self.files.get_mut(&inode) else { return number };
        let begins_sync = mode == Mode::Sync && !file.sync;
        if raise || begins_sync {
            file.token = number;
        }
        match mode {
            Mode::Sync => file.sync = true,
            Mode::Shared | Mode::Exclusive => file.sync = false,
            Mode::None => {}
        }
        file.token
    }

    /// Recalls what may not stay beside the request. True if nothing has to go.
    fn others_agree(&mut self, inode: InodeId, waiter: &Waiter, around: &mut Around<'_>) -> bool {
        let Some(file) = self.files.get(&inode) else { return true };
        let is_lock = matches!(waiter.purpose, Purpose::Lock { .. } | Purpose::TestLock { .. });
        let mut recalls = Vec::new();
        for (session, held) in file.held.iter() {
            // A session that grants itself locks hands them in even for a request of its own.
            if *session == waiter.session && !(is_lock && held.locks) {
                continue;
            }
            let allowed = file.allowed(waiter, held);
            let is_take = matches!(waiter.purpose, Purpose::Take(_));
            let is_over = held.void && is_take;
            let may_stay = held.mode.is_within(allowed.mode) && (!held.locks || allowed.locks) && !allowed.report;
            let may_stay = may_stay && !is_over;
            if !may_stay {
                recalls.push((*session, allowed));
            }
        }
        let agree = recalls.is_empty();
        for (session, allowed) in recalls {
            self.recall(inode, session, allowed.mode, allowed.locks, around);
        }
        agree
    }

    pub(super) fn recall(
        &mut self,
        inode: InodeId,
        session: SessionId,
        to: Mode,
        locks: bool,
        around: &mut Around<'_>,
    ) {
        let now = around.view.now;
        if around.view.terms.has_lapsed(session) {
            // It cannot answer any more and what it has may be written under: the data servers must know first.
            around.end.insert(session);
            return;
        }
        let held = self.entry(session, inode);
        if held.recall.is_some() {
            return;
        }
        let hold_ends = held.granted + around.view.limits.file_hold;
        if held.mode == Mode::Exclusive && to != Mode::Exclusive && now < hold_ends {
            self.due.insert(inode, hold_ends);
            return;
        }
        let number = self.next_number();
        let token = self.pass_token(inode, to, false, number);
        let recall = Recall { number, to, token, locks, first: now, sent: now };
        self.entry(session, inode).recall = Some(recall);
        around.out.push(recall.told(session, inode));
        self.recalled.insert((inode, session));
    }

    /// Nobody waits: the row gets what it lacks, and attributes may be cached again.
    fn rest(&mut self, inode: InodeId, around: &mut Around<'_>) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let written = file.held.values().any(|held| held.mode.writes());
        let sync = file.held.values().any(|held| held.mode == Mode::Sync);
        if file.grown.is_some() && !sync {
            file.store(inode, around);
        } else if !written {
            around.names.unbar(inode);
        }
        if file.held.is_empty() && file.queue.is_empty() && file.grown.is_none() {
            self.files.remove(&inode);
        }
    }

    fn make_room(&mut self, around: &mut Around<'_>) {
        if self.by_age.len() <= self.leases_max {
            return;
        }
        let idle = |(_, (inode, session)): (&Generation, &(InodeId, SessionId))| {
            let held = self.files.get(inode)?.held.get(session)?;
            let idle = held.recall.is_none() && !held.handles.any() && !around.view.terms.has_lapsed(*session);
            idle.then_some((*inode, *session))
        };
        let oldest: Vec<_> = self.by_age.iter().take(ROOM_BATCH).filter_map(idle).collect();
        for (inode, session) in oldest {
            self.recall(inode, session, Mode::None, false, around);
        }
    }
}
