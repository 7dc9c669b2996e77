//! What one transaction does, and what it leaves.

use super::script::*;
use crate::{Counts, Engine, EngineError, Key, Lock, Table};

pub async fn reads_see_own_writes<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "a", "old"), put(1, "b", "old")]).await;
    let keys = [key(1, "a"), key(1, "b"), key(1, "c"), key(1, "d")];
    let steps = vec![
        put(1, "a", "new"),
        Step::Delete(keys[1].clone()),
        insert(1, "c", "new"),
        get(&keys),
        Step::Delete(keys[2].clone()),
        get(&keys),
    ];
    let seen = commit(engine, steps).await;
    assert_eq!(seen[0], Seen::Rows(vec![Some(row("new")), None, Some(row("new")), None]));
    assert_eq!(seen[1], Seen::Rows(vec![Some(row("new")), None, None, None]));
    assert_eq!(rows(engine, &keys).await, [Some(row("new")), None, None, None]);
}

pub async fn get_keeps_order_and_shows_absence<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "a", "1"), put(2, "a", "2"), put(1, "b", "3")]).await;
    let keys = [key(2, "a"), key(1, "none"), key(1, "b"), key(1, "a"), key(2, "a")];
    let expected = vec![Some(row("2")), None, Some(row("3")), Some(row("1")), Some(row("2"))];
    for lock in [Lock::None, Lock::Shared, Lock::Exclusive] {
        let seen = commit(engine, vec![Step::Get(keys.to_vec(), lock)]).await;
        assert_eq!(seen[0], Seen::Rows(expected.clone()), "under {lock:?}");
    }
    assert_eq!(rows(engine, &keys).await, expected);
    assert_eq!(rows(engine, &[]).await, []);
}

pub async fn last_write_of_a_row_counts<E: Engine>(engine: &E) {
    let (a, b) = (key(1, "a"), key(1, "b"));
    let steps = vec![
        put(1, "a", "1"),
        put(1, "a", "2"),
        put(1, "b", "1"),
        Step::Delete(b.clone()),
        Step::Delete(key(1, "never was")),
    ];
    commit(engine, steps).await;
    assert_eq!(rows(engine, &[a.clone(), b.clone()]).await, [Some(row("2")), None]);
    commit(engine, vec![Step::Delete(a.clone()), put(1, "a", "")]).await;
    assert_eq!(rows(engine, &[a]).await, [Some(row(""))], "an empty row is a row");
}

pub async fn insert_over_a_row_is_refused<E: Engine>(engine: &E) {
    commit(engine, vec![insert(1, "a", "first")]).await;
    let clash = transact(engine, vec![put(1, "b", "x"), insert(1, "a", "second"), put(1, "c", "x")]).await;
    assert_exists(&clash, &key(1, "a"));
    // A row this transaction wrote is a row, too.
    let clash = transact(engine, vec![put(1, "d", "x"), insert(1, "d", "y")]).await;
    assert_exists(&clash, &key(1, "d"));
    let keys = [key(1, "a"), key(1, "b"), key(1, "c"), key(1, "d")];
    assert_eq!(rows(engine, &keys).await, [Some(row("first")), None, None, None]);
}

pub async fn insert_after_own_delete_is_allowed<E: Engine>(engine: &E) {
    commit(engine, vec![insert(1, "a", "first")]).await;
    commit(engine, vec![Step::Delete(key(1, "a")), insert(1, "a", "second")]).await;
    assert_eq!(rows(engine, &[key(1, "a")]).await, [Some(row("second"))]);
}

pub async fn an_error_leaves_no_trace<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "a", "old"), put(1, "b", "old")]).await;
    let steps = vec![put(1, "a", "new"), Step::Delete(key(1, "b")), insert(1, "c", "new"), Step::Fail];
    let failed = transact(engine, steps).await;
    assert!(matches!(failed, Err(ScriptError::Own)), "the operation's own error comes back, not {failed:?}");
    let keys = [key(1, "a"), key(1, "b"), key(1, "c")];
    assert_eq!(rows(engine, &keys).await, [Some(row("old")), Some(row("old")), None]);
}

pub async fn a_read_may_not_write<E: Engine>(engine: &E) {
    for write in
        [put(1, "a", "x"), insert(1, "a", "x"), Step::Delete(key(1, "a")), Step::Add(key(1, "a"), Counts([1, 1]))]
    {
        let refused = engine.read(1, Script(vec![write.clone()])).await;
        let Err(ScriptError::Engine(EngineError::ReadOnly(named))) = &refused else {
            panic!("{write:?} in a read was answered by {refused:?}");
        };
        assert_eq!(*named, key(1, "a"));
    }
    assert_eq!(rows(engine, &[key(1, "a")]).await, [None]);
}

pub async fn tables_and_partitions_are_apart<E: Engine>(engine: &E) {
    let everywhere = || Table::ALL.into_iter().flat_map(|table| [1, 2, u64::MAX].map(|p| Key::new(table, p, b"k")));
    let text = |key: &Key| row(&format!("{key:?}"));
    commit(engine, everywhere().map(|key| Step::Put(key.clone(), text(&key))).collect()).await;
    let keys: Vec<_> = everywhere().collect();
    assert_eq!(rows(engine, &keys).await, keys.iter().map(|key| Some(text(key))).collect::<Vec<_>>());
    commit(engine, vec![Step::Delete(keys[4].clone())]).await;
    let gone = rows(engine, &keys).await.iter().filter(|row| row.is_none()).count();
    assert_eq!(gone, 1, "one deletion removes one row");
}

fn assert_exists(result: &Result<Vec<Seen>, ScriptError>, key: &Key) {
    let Err(ScriptError::Engine(EngineError::Exists(named))) = result else {
        panic!("an insert over a row was answered by {result:?}");
    };
    assert_eq!(named, key);
}
