//! What happens to leases, and what it makes of what is remembered.
//!
//! Promises: what a holder revokes, what a term's end takes and what a new roster moves is not shown from then on; the tasks are the rest.

use super::{Cache, Maps, Task, moment};
use braid_api::Shown;
use braid_env::Monotonic;
use braid_lease::{Key, ManyHoldings, ManyTodo, Moment, Renewal, Roster, Seen, Todo};
use braid_types::{InodeId, MemberId, SLOT_COUNT, SlotSet};
use std::sync::atomic::Ordering::SeqCst;

/// What a cache above may have of holders whose leases are about to end.
#[derive(Default)]
struct Above {
    /// Leases that end by their time need no word to it: nothing was given to it for longer.
    early: Vec<Key>,
    /// Pages stay as long as their lease, however long that is prolonged: the end has to be told.
    files: Vec<InodeId>,
}

impl Above {
    /// `ends`: of this holder, besides those whose time is over.
    fn of(leases: &ManyHoldings, now: Moment, ends: impl Fn(MemberId) -> bool) -> Above {
        let mut above = Above::default();
        for (holder, held) in leases.all() {
            if !ends(holder) && !held.is_running_out(now) {
                continue;
            }
            if !held.left(now).is_zero() {
                above.early.extend(held.held().cloned());
            }
            above.files.extend(held.reassertion().into_iter().map(|(inode, _)| inode));
        }
        above
    }
}

impl Cache {
    /// Takes what happened: what a holder said, or what this client did or was answered itself, which is between it and the inode's holder.
    pub fn on(&self, now: Monotonic, from: Option<MemberId>, seen: Seen) -> Vec<Task> {
        let now = moment(now);
        let mut maps = self.maps.lock();
        let is_lost = matches!(seen, Seen::SessionLost);
        let above = Above::of(&maps.leases, now, |_| is_lost);
        let holder = from.or_else(|| Some(maps.leases.roster().holder(about(&seen)?.slot()))).unwrap_or_default();
        let todo = maps.leases.on(now, holder, seen);
        self.tasks(&mut maps, &above, todo)
    }

    /// A holder's answer to a renewal.
    pub fn renewed(&self, now: Monotonic, from: MemberId, renewal: Renewal) -> Vec<Task> {
        let now = moment(now);
        let mut maps = self.maps.lock();
        // It may have taken the names away in between, and asks what is left.
        let above = Above::of(&maps.leases, now, |holder| holder == from && renewal.reassert.is_some());
        let todo = maps.leases.renewed(now, from, renewal);
        self.tasks(&mut maps, &above, todo)
    }

    /// Who holds what from now on.
    pub fn roster_is(&self, now: Monotonic, roster: Roster) -> Vec<Task> {
        let now = moment(now);
        let mut maps = self.maps.lock();
        let above = Above::of(&maps.leases, now, |_| true);
        let todo = maps.leases.roster_is(now, roster);
        self.tasks(&mut maps, &above, todo)
    }

    /// Caches above have let go of what was to be forgotten with [`Task::DroppedSlots`].
    pub fn dropped(&self, number: u64) -> Vec<Task> {
        let mut maps = self.maps.lock();
        let todo = maps.leases.dropped(number);
        self.tasks(&mut maps, &Above::default(), todo)
    }

    /// Something is held of this one, or it waits for this client's word.
    pub fn renews_at(&self, holder: MemberId) -> bool {
        self.maps.lock().leases.renews_at().any(|at| at == holder)
    }

    fn tasks(&self, maps: &mut Maps, above: &Above, todo: Vec<ManyTodo>) -> Vec<Task> {
        let mut tasks = Vec::new();
        for todo in todo {
            match todo {
                ManyTodo::Of(holder, todo) => self.task(maps, holder, todo, &mut tasks),
                ManyTodo::DropSlots { number, slots } => {
                    self.drop_slots(maps, above, &slots, &mut tasks);
                    tasks.push(Task::DroppedSlots(number));
                }
                ManyTodo::Learn { epoch } => tasks.push(Task::Learn(epoch)),
                ManyTodo::Renew(holder) => tasks.push(Task::Renew(holder)),
            }
        }
        tasks
    }

    fn task(&self, maps: &mut Maps, to: MemberId, todo: Todo, tasks: &mut Vec<Task>) {
        match todo {
            Todo::Drop { revocation, keys } => {
                let mut shown = Vec::new();
                keys.iter().for_each(|key| maps.forget(key, &mut shown));
                tasks.extend([Task::Forget(shown), Task::Dropped(to, revocation)]);
            }
            // Said as slots, see `ManyTodo::Of`.
            Todo::DropAll => {}
            Todo::Reassert { round } => tasks.push(Task::Reassert(to, round)),
            Todo::Take { ticket, inode, want } => tasks.push(Task::Take { ticket, inode, want }),
            Todo::Flush { inode, generation, to, locks } => tasks.push(Task::Flush { inode, generation, to, locks }),
            Todo::Yield { inode, generation, mode, .. } => tasks.push(Task::Yield { to, inode, generation, mode }),
            Todo::Fail { inode } => tasks.push(Task::Fail(inode)),
            Todo::Acknowledge { .. } => tasks.push(Task::Acknowledge),
        }
    }

    fn drop_slots(&self, maps: &mut Maps, above: &Above, slots: &SlotSet, tasks: &mut Vec<Task>) {
        let is_all = slots.len() as u64 == SLOT_COUNT;
        let mut shown: Vec<Shown> = maps.listings.revoke_slots(slots).into_iter().map(Shown::Listing).collect();
        let early: Vec<&Key> = above.early.iter().filter(|key| slots.has(key.slot())).collect();
        early.iter().for_each(|key| maps.forget(key, &mut shown));
        match is_all {
            true => maps.forget_all(),
            false => maps.forget_slots(slots),
        }
        tasks.push(Task::Forget(shown));
        let files: Vec<InodeId> = above.files.iter().copied().filter(|inode| slots.has(inode.slot())).collect();
        if !files.is_empty() {
            tasks.push(Task::ForgetPages(files));
        }
        // Also of what stays: an answer to what was asked before now is asked for again.
        let moment = self.moment.fetch_add(1, SeqCst) + 1;
        self.changes.iter().for_each(|stripe| stripe.store(moment, SeqCst));
    }
}

/// The inode that it is about, if it is one.
fn about(seen: &Seen) -> Option<InodeId> {
    match seen {
        Seen::Need { inode, .. }
        | Seen::Granted { inode, .. }
        | Seen::Stale { inode, .. }
        | Seen::Refused { inode, .. }
        | Seen::Recall { inode, .. }
        | Seen::Flushed { inode, .. }
        | Seen::GiveUp { inode, .. }
        | Seen::Lost { inode } => Some(*inode),
        Seen::Tick | Seen::Renewed { .. } | Seen::SessionLost | Seen::Revoke { .. } | Seen::Dropped { .. } => None,
    }
}
