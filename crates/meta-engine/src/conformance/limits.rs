//! The largest keys and rows the tables need, and a transaction as large as a batch of a subtree operation.

use super::script::*;
use crate::{Engine, Key, Table};

/// A name of 255 bytes and a snapshot number: the longest key of design.md §4 (`old_rows`).
const REST_BYTES_MAX: usize = 255 + 8;

pub async fn keys_and_rows_of_every_size<E: Engine>(engine: &E) {
    let long = Key::new(Table::OldRows, 9, &[0xff; REST_BYTES_MAX]);
    let longer_by_one_name = Key::new(Table::OldRows, 9, &[0xff; REST_BYTES_MAX - 1]);
    let binary = Key::new(Table::OldRows, 9, &[0, 1, 0, 255, 0]);
    let sizes = [0, 1, 1024, 2047, 4096, 16 * 1024, 64 * 1024, 64 * 1024 + 256];
    for size in sizes {
        let value = |salt: u8| (0..size).map(|n| (n % 251) as u8 ^ salt).collect::<Vec<_>>();
        let keys = [&long, &longer_by_one_name, &binary];
        commit(engine, (1..).zip(keys).map(|(salt, key)| Step::Put(key.clone(), value(salt))).collect()).await;
        let found = rows(engine, &keys.map(Key::clone)).await;
        assert!(found == [Some(value(1)), Some(value(2)), Some(value(3))], "rows of {size} bytes come back");
    }
    commit(engine, vec![Step::Delete(long.clone())]).await;
    let page = Step::Scan { prefix: Key::new(Table::OldRows, 9, b""), after: None, limit: 10 };
    let left: Vec<_> = read(engine, vec![page]).await.remove(0).page().rows.into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, [binary, longer_by_one_name]);
}

pub async fn a_large_transaction<E: Engine>(engine: &E) {
    let keys: Vec<_> = (0..5_000).map(|n| key(n % 7, &format!("{n:05}"))).collect();
    commit(engine, keys.iter().map(|key| Step::Insert(key.clone(), vec![7; 200])).collect()).await;
    assert_eq!(whole_table(engine, Table::Inodes).await.len(), keys.len());
    let failed = keys.iter().map(|key| Step::Delete(key.clone())).chain([Step::Fail]).collect();
    assert!(matches!(transact(engine, failed).await, Err(ScriptError::Own)));
    assert!(rows(engine, &keys).await.iter().all(Option::is_some), "a large abort leaves no trace");
    commit(engine, keys.iter().map(|key| Step::Delete(key.clone())).collect()).await;
    assert_eq!(whole_table(engine, Table::Inodes).await, []);
}
