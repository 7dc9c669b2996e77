//! The counters, which the budgets of file operations are measured by.

use super::script::*;
use crate::{Engine, Table};

pub async fn round_trips_are_exact<E: Engine>(engine: &E) {
    let many: Vec<_> = (0..50).map(|n| key(n, "k")).collect();
    let page = || scan(1, "", None, 10);
    let table = Step::ScanTable { table: Table::Inodes, after: None, limit: 10 };
    let cases = [
        ("a commit without writes is none", vec![], 0),
        ("one get of many keys is one, and its commit none", vec![get(&many)], 1),
        ("writes go out with the commit", vec![put(1, "a", "x"), put(2, "b", "x"), insert(3, "c", "x")], 1),
        ("two gets, a scan and a commit", vec![get(&many), get(&many[..1]), page(), put(1, "a", "y")], 4),
        ("a scan of a table is one", vec![table], 1),
        ("an abort sends nothing more", vec![get(&many[..1]), put(1, "a", "z"), Step::Fail], 1),
    ];
    for (what, steps, expected) in cases {
        let before = engine.stats().snapshot();
        let _ = transact(engine, steps).await;
        let after = engine.stats().snapshot();
        assert_eq!(after.round_trips - before.round_trips, expected, "round trips: {what}");
        assert_eq!(after.transactions - before.transactions, 1, "transactions: {what}");
        assert_eq!((after.reads, after.retries), (before.reads, before.retries), "{what}");
    }
    let before = engine.stats().snapshot();
    read(engine, vec![get(&many), page()]).await;
    let after = engine.stats().snapshot();
    assert_eq!(after.round_trips - before.round_trips, 2, "a read counts its calls");
    assert_eq!((after.reads - before.reads, after.transactions), (1, before.transactions));
    assert_eq!(after.syncs, before.syncs, "a read waits for no disk");
}
