//! What follows from the row.

use braid_members::{MemberId, Roster, Seat};
use braid_types::{LeaderEpoch, MembershipEpoch, SLOT_COUNT, Slot, SlotSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

pub fn roster(epoch: u64, ids: &[u64]) -> Roster {
    let seat = |id: &u64| Seat { id: MemberId(*id), addresses: vec![format!("host-{id}:7000")] };
    Roster {
        epoch: MembershipEpoch(epoch),
        elected: LeaderEpoch(1),
        leader: MemberId(ids.first().copied().unwrap_or(0)),
        lease_ms: 9_000,
        members: ids.iter().map(seat).collect(),
    }
}

/// Servers of two versions must believe the same of one row.
#[test]
fn holders_stay_what_they_are() {
    let row = roster(1, &[1, 2, 3, 0xfeed_beef_0bad_cafe]);
    let holders: Vec<u64> = (0..12).filter_map(|slot| row.holder_of(Slot(slot))).map(|id| id.0 % 1000).collect();
    assert_eq!(holders, [2, 1, 1, 1, 1, 1, 470, 470, 2, 3, 470, 3]);
    let turned = Roster { members: row.members.iter().rev().cloned().collect(), ..row.clone() };
    assert_eq!(Roster::slots_that_move(&row, &turned), [], "the order in the row says nothing");
    assert_eq!(roster(1, &[]).holder_of(Slot(0)), None);
}

#[test]
fn each_slot_is_one_member_s_and_no_member_holds_half_as_much_again_as_its_part() {
    let mut random = SmallRng::seed_from_u64(7);
    let mut fuller = 0;
    for round in 0..400 {
        let ids: Vec<u64> = (0..2 + round % 7).map(|_| random.random()).collect();
        let row = roster(1, &ids);
        let shares = row.shares();
        let mut all = SlotSet::none();
        for (id, share) in &shares {
            assert!(all.both(share).is_empty() && *share == row.slots_of(*id));
            all = all.or(share);
        }
        assert!(all == SlotSet::all() && shares.len() == ids.len());
        let fullest = shares.values().map(SlotSet::len).max().unwrap_or(0);
        fuller += u64::from(fullest * ids.len() * 2 > 3 * SLOT_COUNT as usize);
    }
    // Of 256 slots one of eight holds 32 and by chance 5 more or less: three times that is rare, and harmless.
    let rare = if SLOT_COUNT > 1000 { 0 } else { 8 };
    assert!(fuller <= rare, "in {fuller} of 400 rosters one has half as much again as its part");
    assert!(roster(1, &[1, 2]).slots_of(MemberId(3)).is_empty(), "who is no member holds nothing");
}

#[test]
fn who_goes_moves_its_own_slots_alone_and_who_comes_takes_only_for_itself() {
    let mut random = SmallRng::seed_from_u64(8);
    for count in 2..9 {
        let ids: Vec<u64> = (0..count).map(|_| random.random()).collect();
        let (all, fewer) = (roster(1, &ids), roster(2, &ids[1..]));
        let (gone, moved) = (MemberId(ids[0]), Roster::slots_that_move(&all, &fewer));
        assert_eq!(moved.iter().map(|moved| moved.slot).collect::<SlotSet>(), all.slots_of(gone));
        assert!(!moved.is_empty() && moved.iter().all(|moved| moved.from == Some(gone) && moved.to != Some(gone)));
        let back = Roster::slots_that_move(&fewer, &all);
        assert!(back.len() == moved.len() && back.iter().all(|moved| moved.to == Some(gone)));
    }
    let first = Roster::slots_that_move(&roster(1, &[]), &roster(2, &[5]));
    assert_eq!(first.len() as u64, SLOT_COUNT, "all were nobody's");
}
