//! The row that says which metadata servers serve at once, on the engines that keep it.

use braid_members::{Roster, Seat};
use braid_meta_engine::{Engine, MemEngine, MemStore};
use braid_meta_engine_embedded::{EmbeddedEngine, EmbeddedOptions};
use braid_meta_namespace::ops::roster::{ReadRoster, WriteRoster};
use braid_meta_namespace::rows::RosterRow;
use braid_types::{LeaderEpoch, MemberId, MembershipEpoch};

fn row(epoch: u64, leader: u64) -> RosterRow {
    let seat = |id| Seat { id: MemberId(id), addresses: vec![format!("tcp:host-{id}:7400")] };
    let (members, lease_ms) = (vec![seat(1), seat(u64::MAX)], 9_000);
    let (epoch, elected, leader) = (MembershipEpoch(epoch), LeaderEpoch(7), MemberId(leader));
    RosterRow { roster: Roster { epoch, elected, leader, lease_ms, members }, fence: 3 }
}

/// Of two that lead one after the other only one has its way.
async fn what_is_expected_counts(engine: &impl Engine) {
    let write = async |expects: Option<&RosterRow>, row: &RosterRow| {
        let expects = expects.map(|row| row.roster.clone());
        engine.transact(0, WriteRoster { expects, row: row.clone() }).await.unwrap()
    };
    let (first, second, other) = (row(1, 1), row(2, 1), row(2, u64::MAX));
    assert_eq!(engine.read(0, ReadRoster).await.unwrap(), None);
    assert_eq!(write(Some(&first), &second).await, Err(None));
    assert_eq!(write(None, &first).await, Ok(()));
    assert_eq!(write(None, &other).await, Err(Some(first.clone())));
    assert_eq!(write(Some(&first), &second).await, Ok(()));
    assert_eq!(write(Some(&first), &other).await, Err(Some(second.clone())));
    assert_eq!(engine.read(0, ReadRoster).await.unwrap(), Some(second));
}

#[tokio::test]
async fn in_memory() {
    what_is_expected_counts(&MemEngine::new(MemStore::new())).await;
}

#[tokio::test]
async fn on_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { map_bytes: 1 << 24, ..EmbeddedOptions::default() };
    what_is_expected_counts(&EmbeddedEngine::open(dir.path(), options).unwrap()).await;
}
