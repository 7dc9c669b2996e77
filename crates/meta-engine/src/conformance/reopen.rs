//! What is committed stays.

use super::script::*;
use crate::{Engine, Table};
use std::future::Future;

/// Closes an engine and opens it again: `place` makes somewhere to keep rows, `open` opens what is there.
pub async fn test_durable<P, E, M, F, Fut>(place: M, open: F)
where
    E: Engine,
    M: Fn() -> P,
    F: Fn(&P) -> Fut,
    Fut: Future<Output = E>,
{
    let here = place();
    for round in 0..4 {
        let engine = open(&here).await;
        let found = whole_table(&engine, Table::Inodes).await;
        assert_eq!(found.len(), round * 10, "rows of earlier rounds");
        let rows = (0..10).map(|n| insert(round as u64, &format!("{n}"), "x"));
        commit(&engine, rows.collect()).await;
        let _ = transact(&engine, vec![put(99, "never", "x"), Step::Fail]).await;
    }
    let elsewhere = open(&place()).await;
    assert_eq!(whole_table(&elsewhere, Table::Inodes).await, [], "another place is empty");
}
