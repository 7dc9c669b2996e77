//! File leases at the client.

use super::{Holdings, Ticket, Todo};
use crate::files::{Generation, HeldLock, Mode, Want};
use crate::key::Key;
use crate::time::Moment;
use braid_types::InodeId;

/// What a grant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    pub mode: Mode,
    pub generation: Generation,
    pub token: Generation,
    pub locks: bool,
}

/// What a recall says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recalled {
    pub number: Generation,
    pub token: Generation,
    pub to: Mode,
    pub locks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Yielding {
    recall: Recalled,
    /// Kept until then, so that each turn moves some bytes; afterwards it is being flushed.
    hold_ends: Option<Moment>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHeld {
    mode: Mode,
    generation: Generation,
    /// For data requests.
    token: Generation,
    /// May grant itself locks.
    locks: bool,
    granted: Moment,
    /// The newest recall that was heard of: older grants are over.
    seen: Generation,
    asked: Option<(Ticket, Want)>,
    yielding: Option<Yielding>,
    /// The lease ran out here; what is unsent waits until it is renewed.
    suspended: bool,
    /// The holder has been told of it and has not answered.
    reasserting: bool,
    /// `sync` that no operation begins under any more: what is under way is finished, and it is asked for anew.
    void: bool,
}

impl Recalled {
    fn flush(self, inode: InodeId) -> Todo {
        Todo::Flush { inode, generation: self.number, to: self.to, locks: self.locks }
    }
}

impl FileHeld {
    pub fn hold_ends(&self) -> Option<Moment> {
        self.yielding.and_then(|yielding| yielding.hold_ends)
    }

    pub fn is_written(&self) -> bool {
        self.mode.writes() || self.locks
    }

    /// The lease is over here. False if nothing is left to remember.
    pub fn suspend(&mut self) -> bool {
        if !self.mode.writes() {
            self.mode = Mode::None;
        }
        // A grant on its way may be of a term that is over at the holder too.
        self.asked = None;
        self.suspended = self.mode != Mode::None;
        self.suspended || self.yielding.is_some()
    }

    pub fn resume(&mut self) {
        self.suspended = false;
    }

    pub fn reassert(&mut self) {
        self.reasserting = self.mode != Mode::None;
        // What was being yielded is reasserted and recalled anew: the holder waits under a new number.
        if self.reasserting {
            self.yielding = None;
        }
    }

    /// Its slot went to another holder, which has to hear of it. `None` if there is nothing to say.
    pub fn moved(mut self) -> Option<Self> {
        self.suspend();
        self.reassert();
        self.reasserting.then_some(self)
    }

    fn is_empty(&self) -> bool {
        self.mode == Mode::None && self.asked.is_none() && self.yielding.is_none() && !self.reasserting
    }
}

impl Holdings {
    /// What data requests carry, if an operation may begin under the lease now.
    pub fn may_use(&self, now: Moment, inode: InodeId, want: Want) -> Option<Generation> {
        let file = self.files.get(&inode)?;
        let stopped =
            file.suspended || file.reasserting || file.void || file.yielding.is_some_and(|y| y.hold_ends.is_none());
        (now < self.end && !stopped && file.mode.serves(want)).then_some(file.token)
    }

    /// Under which number the file is held so that its bytes and their places are what they were when it was granted, but for what
    /// is written here, if an operation may begin under it.
    pub fn held_as(&self, now: Moment, inode: InodeId, want: Want) -> Option<Generation> {
        self.may_use(now, inode, want)?;
        let file = self.files.get(&inode)?;
        matches!(file.mode, Mode::Shared | Mode::Exclusive).then_some(file.generation)
    }

    /// What a change of the file's bytes carries that is sent now, also while the file is being given up. Nothing is sent beyond
    /// the lease's end: nobody may have heard of it at a server that is out of touch.
    pub fn may_send(&self, now: Moment, inode: InodeId) -> Option<Generation> {
        let file = self.files.get(&inode)?;
        (now < self.end && !file.suspended && !file.reasserting && file.mode.writes()).then_some(file.token)
    }

    /// Pages read now may be kept and shown.
    pub fn may_cache(&self, now: Moment, inode: InodeId) -> bool {
        let caches = self.files.get(&inode).is_some_and(|file| matches!(file.mode, Mode::Shared | Mode::Exclusive));
        caches && self.may_use(now, inode, Want::Read).is_some()
    }

    /// Locks on the file may be granted here, without the holder.
    pub fn may_lock(&self, now: Moment, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.locks) && self.may_use(now, inode, Want::Once).is_some()
    }

    /// Locks on the file are granted here, or were until a recall that is being answered.
    pub fn grants_locks(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.locks)
    }

    /// The lease is held, though it may be on its way out.
    pub fn has(&self, now: Moment, inode: InodeId, want: Want) -> bool {
        self.files.get(&inode).is_some_and(|file| file.mode.serves(want) && !file.void) && now < self.end
    }

    /// Mode and token, whether or not it may be used now.
    pub fn file(&self, inode: InodeId) -> (Mode, Generation) {
        self.files.get(&inode).map_or((Mode::None, Generation(0)), |file| (file.mode, file.token))
    }

    /// A recall of the file is being carried out: [`super::Seen::Flushed`] is waited for.
    pub fn is_flushing(&self, inode: InodeId) -> bool {
        self.files.get(&inode).is_some_and(|file| file.yielding.is_some_and(|y| y.hold_ends.is_none()))
    }

    /// The recall with this number is going to be answered with less than it asks for.
    pub fn keep_at_most(&mut self, inode: InodeId, number: Generation, to: Mode) {
        if let Some(Yielding { recall, .. }) = self.files.get_mut(&inode).and_then(|file| file.yielding.as_mut())
            && (recall.number == number && to.is_within(recall.to))
        {
            recall.to = to;
        }
    }

    /// An answer says that what is held is granted, under a new number: what is given up of one's own accord is given up under it.
    pub fn said_again(&mut self, inode: InodeId, mode: Mode, generation: Generation, token: Generation) {
        if let Some(file) = self.files.get_mut(&inode)
            && (file.mode == mode && file.yielding.is_none() && !file.reasserting)
            && (generation > file.generation && generation >= file.seen)
        {
            (file.generation, file.token) = (generation, token);
        }
    }

    /// A file that is not reasserted, because nothing here needs it: the holder forgets it with the answer.
    pub fn forget_file(&mut self, inode: InodeId) {
        self.files.remove(&inode);
    }

    /// What is to be reasserted; the caller adds what else it has open or locked.
    pub fn reassertion(&self) -> Vec<(InodeId, Mode)> {
        self.files.iter().filter(|(_, file)| file.mode != Mode::None).map(|(inode, f)| (*inode, f.mode)).collect()
    }

    /// Of it, what has not been answered yet.
    pub(super) fn to_be_said(&self) -> Vec<(InodeId, Mode)> {
        self.files.iter().filter(|(_, file)| file.reasserting).map(|(inode, f)| (*inode, f.mode)).collect()
    }

    pub(super) fn need(&mut self, now: Moment, inode: InodeId, want: Want, todo: &mut Vec<Todo>) {
        let asked = self.files.get(&inode).and_then(|file| file.asked);
        let waits = asked.is_some_and(|(_, asked)| asked >= want);
        if now >= self.end || waits || self.may_use(now, inode, want).is_some() {
            return;
        }
        self.take(inode, want, todo);
    }

    fn take(&mut self, inode: InodeId, want: Want, todo: &mut Vec<Todo>) {
        let ticket = self.draw();
        self.files.entry(inode).or_default().asked = Some((ticket, want));
        todo.push(Todo::Take { ticket, inode, want });
    }

    pub(super) fn granted(
        &mut self,
        now: Moment,
        ticket: Option<Ticket>,
        inode: InodeId,
        grant: Granted,
        todo: &mut Vec<Todo>,
    ) {
        let Some(file) = self.files.get_mut(&inode) else {
            // Nobody waits for it here. If it is still the holder's last word, it is given back.
            let generation = grant.generation;
            todo.push(Todo::Yield { inode, generation, mode: Mode::None, held: Vec::new() });
            return;
        };
        let answers = match ticket {
            Some(ticket) => file.asked.is_some_and(|(asked, _)| asked == ticket),
            None => file.reasserting,
        };
        // Less than the holder believes is safe: a recall brings both together. So what does not fit is left alone.
        if !answers || now >= self.end {
            return;
        }
        if grant.generation < file.seen || grant.generation <= file.generation {
            // Recalled before it came, and maybe answered already. What it was for is asked for again, if it was asked for at all.
            if ticket.is_some()
                && let Some((_, want)) = file.asked.take()
            {
                self.need(now, inode, want, todo);
            }
            return;
        }
        if ticket.is_some() {
            file.asked = None;
        }
        // What was on its way when another holder began is finished first, by all: the holder calls it in.
        file.void = ticket.is_none() && grant.mode == Mode::Sync;
        // Also by a grant that was asked for: the holder knows by then what was said, whether its answer to that came or not.
        (file.reasserting, file.suspended) = (false, false);
        (file.mode, file.generation, file.token) = (grant.mode, grant.generation, grant.token);
        (file.locks, file.granted) = (grant.locks, now);
    }

    pub(super) fn refused(&mut self, ticket: Ticket, inode: InodeId) {
        if let Some(file) = self.files.get_mut(&inode)
            && file.asked.is_some_and(|(asked, _)| asked == ticket)
        {
            file.asked = None;
            self.tidy(inode);
        }
    }

    /// A data server knows of a newer right to write. What is held here may be as good, under another token.
    pub(super) fn stale(&mut self, now: Moment, inode: InodeId, token: Generation, want: Want, todo: &mut Vec<Todo>) {
        let Some(file) = self.files.get_mut(&inode).filter(|file| file.token == token) else { return };
        file.void |= file.mode == Mode::Sync;
        if file.asked.is_none() && now < self.end {
            self.take(inode, want, todo);
        }
    }

    pub(super) fn recall(&mut self, now: Moment, inode: InodeId, recall: Recalled, todo: &mut Vec<Todo>) {
        let hold = self.file_hold;
        let file = self.files.entry(inode).or_default();
        let is_done_now = file.yielding.is_some_and(|yielding| yielding.recall.number == recall.number);
        if recall.number < file.seen || recall.number < file.generation || is_done_now {
            return;
        }
        file.seen = recall.number;
        let hold_ends = file.granted + hold;
        let is_owed = file.mode == Mode::Exclusive && recall.to != Mode::Exclusive && !file.suspended;
        let keeps = is_owed && now < hold_ends;
        file.yielding = Some(Yielding { recall, hold_ends: keeps.then_some(hold_ends) });
        match keeps {
            true => _ = self.kept_a_while.insert(inode),
            false => todo.push(recall.flush(inode)),
        }
    }

    pub(super) fn end_holds(&mut self, now: Moment, todo: &mut Vec<Todo>) {
        let files = &mut self.files;
        self.kept_a_while.retain(|inode| {
            let Some(yielding) = files.get_mut(inode).and_then(|file| file.yielding.as_mut()) else { return false };
            let keeps = yielding.hold_ends.is_some_and(|at| at > now);
            if !keeps && yielding.hold_ends.take().is_some() {
                todo.push(yielding.recall.flush(*inode));
            }
            keeps
        });
    }

    pub(super) fn flushed(&mut self, inode: InodeId, number: Generation, held: Vec<HeldLock>, todo: &mut Vec<Todo>) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        let is_it = |y: &mut Yielding| y.recall.number == number && y.hold_ends.is_none();
        let Some(Yielding { recall, .. }) = file.yielding.take_if(is_it) else { return };
        let owned = file.mode.writes();
        if !file.mode.is_within(recall.to) {
            (file.mode, file.token) = (recall.to, recall.token);
        }
        let mode = file.mode;
        file.void &= mode == Mode::Sync;
        // As the holder does: who keeps `exclusive` keeps its generation.
        if mode != Mode::Exclusive {
            file.generation = number;
        }
        file.locks &= recall.locks && mode == Mode::Exclusive;
        file.suspended &= mode != Mode::None;
        todo.push(Todo::Yield { inode, generation: number, mode, held });
        if owned && mode != Mode::Exclusive {
            // Attributes on their way here were read before what was stored just now.
            self.void(Key::Attr(inode));
        }
        self.tidy(inode);
    }

    pub(super) fn give_up(&mut self, inode: InodeId, to: Mode, held: Vec<HeldLock>, todo: &mut Vec<Todo>) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        // A recall has the last word, and a reassertion is answered first.
        if file.yielding.is_some() || file.reasserting || !to.is_within(file.mode) || to == file.mode {
            return;
        }
        (file.mode, file.locks, file.void) = (to, false, false);
        todo.push(Todo::Yield { inode, generation: file.generation, mode: to, held });
        self.void(Key::Attr(inode));
        self.tidy(inode);
    }

    pub(super) fn lost(&mut self, inode: InodeId, todo: &mut Vec<Todo>) {
        if self.files.get(&inode).is_some_and(|file| file.reasserting) {
            self.files.remove(&inode);
            todo.push(Todo::Fail { inode });
        }
    }

    fn tidy(&mut self, inode: InodeId) {
        if self.files.get(&inode).is_some_and(FileHeld::is_empty) {
            self.files.remove(&inode);
        }
    }
}
