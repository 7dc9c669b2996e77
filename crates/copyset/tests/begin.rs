//! When copies begin, and how many data servers have what counts.
#![allow(clippy::unwrap_used)]

use braid_copyset::{Keeper, Leader, Limits};
use braid_types::{CopySet, MetaPosition, MetaTerm, ServerId, Voter};
use std::collections::BTreeMap;
use std::time::Duration;

const TERM: MetaTerm = MetaTerm { counter: 1, nonce: 7 };

/// A leader, and data servers that answer everything at once.
struct Small {
    leader: Leader,
    now: Duration,
    keepers: BTreeMap<ServerId, Keeper>,
}

impl Small {
    fn new(wanted: usize) -> Small {
        let now = Duration::from_secs(1);
        let (set, at) = (CopySet::default(), MetaPosition::default());
        let leader = Leader::new(TERM, set, at, wanted, "m".to_owned(), Limits::default(), now);
        Small { leader, now, keepers: BTreeMap::new() }
    }

    fn add(&mut self, id: u64) {
        let id = ServerId(id);
        self.leader.learn(Voter { id, host: format!("h{}", id.0), addresses: Vec::new() });
        self.keepers.insert(id, Keeper::default());
    }

    /// Some seconds, during which whoever is there is asked and told all there is.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 5 {
            self.now += Duration::from_millis(200);
            self.leader.tick(self.now);
            for (id, keeper) in &mut self.keepers {
                let _ = keeper.record(self.leader.set());
                let mut appended = false;
                if self.leader.needs_base(*id) {
                    let last = self.leader.last();
                    if keeper.begin_base(TERM, last) == Ok(true) && keeper.page(TERM, last, 0) == Ok(true) {
                        keeper.paged(Some(last.number), self.leader.durable());
                        keeper.replace(self.leader.durable());
                        keeper.synced(last);
                    }
                } else if let Some(append) = self.leader.append(*id, 8) {
                    appended = keeper.append(TERM, append.prev, &append.groups, append.durable).is_ok();
                }
                self.leader.answered(*id, self.now, self.now, &keeper.report(), appended);
            }
        }
    }

    /// Voters, members, and on how many disks beside the metadata server's own every row is.
    fn counts(&self) -> (usize, usize, usize) {
        let set = self.leader.counting();
        (set.voters.len(), set.members.len(), self.leader.kept_by())
    }

    fn may_answer(&mut self) -> bool {
        self.leader.progress().lease > self.now
    }
}

/// A cluster with one data server goes on when that is away, and one with more gets its copies.
#[test]
fn two_copies_begin_with_the_second_data_server() {
    let mut small = Small::new(2);
    assert!(small.leader.is_settled());
    small.add(1);
    small.run(5);
    assert_eq!(small.counts(), (0, 0, 0));
    let only = small.keepers.remove(&ServerId(1)).unwrap();
    small.run(20);
    assert!(small.may_answer(), "nobody is asked who is away");
    small.keepers.insert(ServerId(1), only);
    small.add(2);
    small.run(5);
    assert_eq!(small.counts(), (2, 2, 2));
    // One of two may be away, and it is known that there is one copy less.
    small.keepers.remove(&ServerId(1));
    small.run(5);
    assert_eq!((small.counts(), small.may_answer()), ((2, 1, 1), true));
}

/// Who wants one has it on the one there is.
#[test]
fn a_single_copy_begins_with_the_first_data_server() {
    let mut small = Small::new(1);
    small.add(1);
    small.run(5);
    assert_eq!((small.counts(), small.may_answer()), ((1, 1, 1), true));
}

/// A member that is to come, and one that is to go, has not what counts.
#[test]
fn members_of_a_set_that_is_not_recorded_do_not_count() {
    let mut small = Small::new(2);
    (1..=4).for_each(|id| small.add(id));
    small.run(6);
    assert_eq!(small.counts(), (4, 2, 2));
    let members = small.leader.counting().members.clone();
    small.keepers.retain(|id, _| !members.contains(id));
    let mut fewest = usize::MAX;
    for _ in 0..6 {
        small.run(1);
        fewest = fewest.min(small.leader.kept_by());
    }
    assert_eq!(fewest, 0, "both were away for longer than 2 s");
    assert_eq!(small.counts(), (4, 2, 2), "others have taken their places");
}

/// It answers, so that it is neither silent nor, for a while, known to stand still.
#[test]
fn a_member_whose_disk_refuses_is_replaced_at_once() {
    let mut small = Small::new(2);
    (1..=4).for_each(|id| small.add(id));
    small.run(6);
    let full = small.leader.counting().members[0];
    let members = |small: &Small| small.leader.counting().members.clone();
    small.leader.refused(full, small.now);
    small.run(2);
    assert_eq!(small.counts(), (4, 2, 2));
    assert!(!members(&small).contains(&full), "{:?}", members(&small));
    // It is not asked for another while, also if it is the only one left.
    let other = members(&small)[0];
    small.keepers.retain(|id, _| *id == full || *id == other);
    small.run(10);
    assert_eq!(members(&small), [other]);
    small.run(30);
    assert_eq!(small.counts(), (4, 2, 2), "later it is tried again");
}
