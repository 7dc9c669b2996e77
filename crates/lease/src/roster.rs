//! Who holds which slot, and who is a member, under one membership epoch: what all that route by slot look at.
//!
//! Promises: two rosters of one epoch are the same one, because the leader writes one row an epoch; what a slot's holder is
//! follows from that alone. A member is one *start* of a server: one that begins anew has forgotten what it granted and
//! announced, and joins under another id.

use crate::key::KeyRef;
use braid_types::{MemberId, MembershipEpoch, SLOT_COUNT, Slot, SlotSet};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub struct Roster {
    epoch: MembershipEpoch,
    members: Arc<BTreeSet<MemberId>>,
    /// By slot.
    holders: Arc<[MemberId]>,
    slots: Arc<BTreeMap<MemberId, SlotSet>>,
}

impl PartialEq for Roster {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch
    }
}

impl Eq for Roster {}

impl Hash for Roster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.epoch.hash(state);
    }
}

impl Roster {
    /// `holder` gives members only.
    pub fn new(epoch: MembershipEpoch, members: BTreeSet<MemberId>, holder: impl Fn(Slot) -> MemberId) -> Self {
        let holders: Arc<[MemberId]> = (0..SLOT_COUNT).map(|slot| holder(Slot(slot))).collect();
        let mut slots: BTreeMap<MemberId, SlotSet> = BTreeMap::new();
        for (server, slot) in holders.iter().zip(0..) {
            slots.entry(*server).or_insert_with(SlotSet::none).insert(Slot(slot));
        }
        Roster { epoch, members: Arc::new(members), holders, slots: Arc::new(slots) }
    }

    /// One server holds everything.
    pub fn alone(epoch: MembershipEpoch, server: MemberId) -> Self {
        Roster::new(epoch, BTreeSet::from([server]), |_| server)
    }

    pub fn epoch(&self) -> MembershipEpoch {
        self.epoch
    }

    pub fn members(&self) -> &BTreeSet<MemberId> {
        &self.members
    }

    pub fn holder(&self, slot: Slot) -> MemberId {
        self.holders[(slot.0 % SLOT_COUNT) as usize]
    }

    pub fn holder_of<'a>(&self, key: impl Into<KeyRef<'a>>) -> MemberId {
        self.holder(key.into().slot())
    }

    /// What the server holds.
    pub fn slots_of(&self, server: MemberId) -> SlotSet {
        self.slots.get(&server).cloned().unwrap_or_else(SlotSet::none)
    }

    /// The slot's holder kept it from `before` to this. Of who missed an epoch nobody knows what was in between: the slot may
    /// have been another's.
    pub fn keeps(&self, before: &Roster, slot: Slot) -> bool {
        let follows = self.epoch.0 == before.epoch.0.saturating_add(1);
        self.epoch == before.epoch || follows && self.holder(slot) == before.holder(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stays_from_one_epoch_to_the_next_and_from_no_earlier_one() {
        let (one, two) = (MemberId(1), MemberId(2));
        let roster = |epoch, moved: bool| {
            let holder = move |slot: Slot| if slot.0 == 0 || (slot.0 == 1 && !moved) { one } else { two };
            Roster::new(MembershipEpoch(epoch), BTreeSet::from([one, two]), holder)
        };
        let (first, second) = (roster(1, false), roster(2, true));
        assert_eq!([0, 1, 2].map(|slot| second.keeps(&first, Slot(slot))), [true, false, true]);
        assert!(!roster(3, false).keeps(&first, Slot(0)), "it may have been another's under the second");
        assert!(first.keeps(&first, Slot(1)));
        assert_eq!((second.slots_of(one), second.holder(Slot(1))), (SlotSet::from_iter([Slot(0)]), two));
    }
}
