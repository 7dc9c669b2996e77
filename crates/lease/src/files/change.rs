//! What ends leases of many files at once: a session that comes back and says what it has, slots that go to another holder,
//! a data server that begins anew.

use super::{Around, File, Files, Generation, Mode, Reasserted};
use crate::command::{Command, Refusal};
use crate::time::Moment;
use braid_types::{InodeId, SessionId};
use std::collections::BTreeSet;

impl Files {
    /// A data server has begun anew, or another goes on where one did: of a write under `sync` that was on its way nobody but its
    /// writer knows whether it happened. So each of them finishes what it has under way, and only then is the file written or read
    /// under `sync` again, with a token above all that were given out until now.
    pub fn end_sync(&mut self, around: &mut Around<'_>) {
        self.void_sync(self.last, around);
        // Tokens that are given out from here on are above it.
        self.next_number();
    }

    /// The bound that data servers are told is the highest of all holders' last numbers: this one goes on above it. What it gave
    /// out before it heard of that is on the wrong side, and ends as well.
    pub fn above(&mut self, floor: Generation, around: &mut Around<'_>) {
        self.void_sync(floor, around);
        self.last = self.last.max(floor);
    }

    fn void_sync(&mut self, up_to: Generation, around: &mut Around<'_>) {
        let in_sync = |file: &File| file.sync || file.held.values().any(|held| held.mode == Mode::Sync);
        let in_sync = |file: &File| file.token <= up_to && in_sync(file);
        let inodes: Vec<InodeId> = self.files.iter().filter(|(_, file)| in_sync(file)).map(|(id, _)| *id).collect();
        for inode in inodes {
            let Some(file) = self.files.get_mut(&inode) else { continue };
            file.sync = false;
            let held = file.held.iter().filter(|(_, held)| held.mode == Mode::Sync);
            let sessions: Vec<SessionId> = held.map(|(session, _)| *session).collect();
            sessions.into_iter().for_each(|session| self.make_void(session, inode, around));
        }
    }

    fn make_void(&mut self, session: SessionId, inode: InodeId, around: &mut Around<'_>) {
        self.entry(session, inode).void = true;
        // One that is silent is ended when somebody waits.
        if !around.view.terms.has_lapsed(session) {
            self.recall(inode, session, Mode::None, false, around);
        }
    }

    /// What the session holds, as it says, for the `first` time. If that is `all`, what is known of it here and not said is not held any
    /// more, but for what it was granted since it was to say so: that answer and this word may have crossed.
    pub fn reassert(
        &mut self,
        session: SessionId,
        files: &[Reasserted],
        (first, all): (bool, bool),
        around: &mut Around<'_>,
    ) {
        let said: BTreeSet<InodeId> = files.iter().map(|file| file.inode).collect();
        if all {
            let is_old = |files: &Self, inode: &InodeId| {
                let held = files.files.get(inode).and_then(|file| file.held.get(&session));
                held.is_none_or(|held| held.mode == Mode::None || held.granted == Moment::default())
            };
            for inode in self.inodes_of(session) {
                if said.contains(&inode) || !is_old(self, &inode) {
                    continue;
                }
                self.remove(session, inode);
                around.locks.adopt(inode, session, &[], around.out);
                self.step(inode, around);
            }
        }
        for file in files {
            self.reassert_one(session, file, (first, all), around);
            self.step(file.inode, around);
        }
    }

    fn reassert_one(
        &mut self,
        session: SessionId,
        said: &Reasserted,
        (first, all): (bool, bool),
        around: &mut Around<'_>,
    ) {
        let inode = said.inode;
        let view = &around.view;
        let known = self.mode(session, inode).0;
        // Known here and never taken away, or of the holder before, of whom nothing is known.
        let is_its_own =
            said.mode.is_within(known) || (first && view.slots.is_unknown(session) && view.slots.is_settling(inode));
        let others = self.files.get(&inode).into_iter().flat_map(|file| file.held.iter());
        let agrees = others.filter(|(s, _)| **s != session).all(|(_, held)| held.mode.agrees_with(said.mode));
        if !view.slots.holds(inode.slot()) {
            // Another holder's, or not here yet: then it is asked for once more.
            return;
        }
        if view.terms.is_ending(session) || !is_its_own || !agrees {
            around.out.push(Command::Lost { session, inode });
            return;
        }
        // Of a slot that went on without a pause a lock may be on its way to the session that it does not know of.
        let is_whole = first && (all || view.slots.is_settling(inode));
        if is_whole && !around.locks.adopt(inode, session, &said.locks, around.out) {
            around.out.push(Command::LocksLost { session, inode });
        }
        if said.handles.seq >= self.entry(session, inode).handles.seq {
            self.entry(session, inode).handles = said.handles;
        }
        if said.mode != Mode::None {
            let keep = (said.mode == Mode::Exclusive).then_some(session);
            if said.mode.writes() {
                // Nobody was granted attributes while the slot settles, nor while the lease was known here.
                around.names.bar(&around.view, inode, keep, around.out);
            }
            if let (Some(grown), Some(file)) = (said.grown, self.files.get_mut(&inode)) {
                file.grow(grown);
            }
            self.entry(session, inode).recall = None;
            self.recalled.remove(&(inode, session));
            self.grant(None, session, inode, said.mode, around);
            if said.mode == Mode::Sync {
                // It may have begun before something that the holder before was about to end it for.
                self.make_void(session, inode, around);
            }
        }
        self.tidy(session, inode);
    }

    pub fn slots_lost(&mut self, lost: impl Fn(InodeId) -> bool, out: &mut Vec<Command>) {
        let gone: Vec<InodeId> = self.files.keys().copied().filter(|inode| lost(*inode)).collect();
        for inode in gone {
            let Some(file) = self.files.remove(&inode) else { continue };
            for waiter in file.queue {
                self.asks.remove(&waiter.ask);
                out.push(Command::Refuse { ask: waiter.ask, why: Refusal::NotHere });
            }
            for (session, held) in file.held {
                self.by_age.remove(&held.generation);
                self.recalled.remove(&(inode, session));
                if let Some(inodes) = self.by_session.get_mut(&session) {
                    inodes.remove(&inode);
                }
            }
            self.due.remove(&inode);
        }
        self.by_session.retain(|_, inodes| !inodes.is_empty());
    }
}
