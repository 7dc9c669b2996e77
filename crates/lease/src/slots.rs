//! Which slots are held here, and which of them were somebody else's a moment ago.

use crate::key::Key;
use crate::time::Moment;
use braid_types::{InodeId, MembershipEpoch, SessionId, Slot, SlotSet};
use std::collections::BTreeSet;

/// The holder's slots and the state of those that changed hands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    pub epoch: MembershipEpoch,
    held: SlotSet,
    /// Gained, and somebody may still hold a lease on them that is not known here.
    settling: SlotSet,
    /// Leases of the namespace that the former holder gave on `settling` are over then.
    until: Moment,
    /// Sessions that may have file leases and locks in `settling` and have not said which.
    unknown: BTreeSet<SessionId>,
    /// Of these, processes that are known to have gone: they hold nothing of the namespace.
    gone: BTreeSet<SessionId>,
}

impl Slots {
    pub fn new() -> Self {
        Slots {
            epoch: MembershipEpoch(0),
            held: SlotSet::none(),
            settling: SlotSet::none(),
            until: Moment::default(),
            unknown: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    pub fn gain(&mut self, slots: SlotSet, until: Moment, sessions: &[SessionId]) {
        if sessions.is_empty() && self.unknown.is_empty() {
            // Nobody has a session: nobody holds anything.
            self.held.extend(&slots);
            return;
        }
        self.held.extend(&slots);
        self.settling.extend(&slots);
        self.until = self.until.max(until);
        self.unknown.extend(sessions);
        sessions.iter().for_each(|session| _ = self.gone.remove(session));
    }

    pub fn lose(&mut self, slots: &SlotSet) {
        self.held.remove(slots);
        self.settling.remove(slots);
        if self.settling.is_empty() {
            // What they would say is another holder's to hear: nobody is ended here for not having said it.
            self.unknown.clear();
            self.gone.clear();
        }
    }

    /// What is held here and not among `keeps`.
    pub fn held_without(&self, keeps: &SlotSet) -> SlotSet {
        self.held.without(keeps)
    }

    /// The session's process has gone.
    pub fn gone(&mut self, session: SessionId) {
        if self.unknown.contains(&session) {
            self.gone.insert(session);
        }
    }

    /// The session has said what it holds, or has ended. True if it was the last one.
    pub fn settle(&mut self, session: SessionId) -> bool {
        self.gone.remove(&session);
        let last = self.unknown.remove(&session) && self.unknown.is_empty();
        if last {
            self.settling = SlotSet::none();
        }
        last
    }

    /// Another session may have locks in the slot that are not known here.
    pub fn may_have_locks(&self, slot: Slot, but: SessionId) -> bool {
        self.settling.has(slot) && self.unknown.iter().any(|other| *other != but)
    }

    pub fn is_unknown(&self, session: SessionId) -> bool {
        self.unknown.contains(&session)
    }

    pub fn unknown(&self) -> &BTreeSet<SessionId> {
        &self.unknown
    }

    /// When those who have not said what they hold have nothing of the namespace any more.
    pub fn until(&self) -> Option<Moment> {
        (!self.unknown.is_empty()).then_some(self.until)
    }

    pub fn holds(&self, slot: Slot) -> bool {
        self.held.has(slot)
    }

    /// A lease of the namespace that is not known here may exist on the key, of another session than the one that changes it.
    pub fn may_be_leased(&self, key: &Key, by: SessionId, now: Moment) -> bool {
        let own = usize::from(self.unknown.contains(&by) && !self.gone.contains(&by));
        now < self.until && self.gone.len() + own < self.unknown.len() && self.settling.has(key.slot())
    }

    /// These may have the inode to themselves, under a lease that is not known here.
    pub fn may_own(&self, inode: InodeId) -> impl Iterator<Item = SessionId> + '_ {
        let unknown = self.is_settling(inode).then_some(&self.unknown);
        unknown.into_iter().flatten().copied()
    }

    /// A file lease or lock that is not known here may exist on the inode.
    pub fn is_settling(&self, inode: InodeId) -> bool {
        self.settling.has(inode.slot())
    }
}
