//! The row: who is a member under which epoch, and so which slot is whose.
//!
//! Promises: from equal rows every process computes the same holders, in this version and in any other; when one member goes only its
//! slots move, when one comes only to it.

use braid_placement::rendezvous_score;
use braid_types::{LeaderEpoch, MemberId, MembershipEpoch, SLOT_COUNT, ServerId, Slot, SlotSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A member, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub id: MemberId,
    pub addresses: Vec<String>,
}

/// What the row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Rises by one with each change. Two rosters that were written never have the same.
    pub epoch: MembershipEpoch,
    /// The epoch under which the leader that wrote this was elected, and which member it is: when it leads no more it answers no more,
    /// which the election promises, and nothing has to be waited for.
    pub elected: LeaderEpoch,
    pub leader: MemberId,
    /// No lease that may last when this is written is longer.
    pub lease_ms: u64,
    /// In the order of their ids.
    pub members: Vec<Seat>,
}

/// A slot that is another's under another roster; `None`: nobody's, there was no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    pub slot: Slot,
    pub from: Option<MemberId>,
    pub to: Option<MemberId>,
}

impl Roster {
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub fn has(&self, id: MemberId) -> bool {
        self.members.iter().any(|seat| seat.id == id)
    }

    /// The member with the highest hash of slot and member, which is `mix(mix(slot) ^ member)` with SplitMix64's finalizer
    /// (`braid-placement`); of two equal ones the higher id. A test holds some values: who changes this changes what servers of two versions
    /// believe of one row.
    pub fn holder_of(&self, slot: Slot) -> Option<MemberId> {
        let score = |id: MemberId| (rendezvous_score(slot.0, ServerId(id.0)), id);
        self.members.iter().map(|seat| seat.id).max_by_key(|id| score(*id))
    }

    pub fn slots_of(&self, member: MemberId) -> SlotSet {
        if !self.has(member) {
            return SlotSet::none();
        }
        (0..SLOT_COUNT).map(Slot).filter(|slot| self.holder_of(*slot) == Some(member)).collect()
    }

    /// Of every member, in one go.
    pub fn shares(&self) -> BTreeMap<MemberId, SlotSet> {
        let mut shares: BTreeMap<_, _> = self.members.iter().map(|seat| (seat.id, SlotSet::none())).collect();
        for slot in (0..SLOT_COUNT).map(Slot) {
            if let Some(share) = self.holder_of(slot).and_then(|holder| shares.get_mut(&holder)) {
                share.insert(slot);
            }
        }
        shares
    }

    /// What all that route by slot look at.
    pub fn holders(&self) -> braid_lease::Roster {
        let ids = self.members.iter().map(|seat| seat.id).collect();
        // One that anybody follows has members.
        braid_lease::Roster::new(self.epoch, ids, |slot| self.holder_of(slot).unwrap_or(self.leader))
    }

    pub fn slots_that_move(old: &Roster, new: &Roster) -> Vec<Moved> {
        (0..SLOT_COUNT)
            .map(|slot| Moved { slot: Slot(slot), from: old.holder_of(Slot(slot)), to: new.holder_of(Slot(slot)) })
            .filter(|moved| moved.from != moved.to)
            .collect()
    }
}
