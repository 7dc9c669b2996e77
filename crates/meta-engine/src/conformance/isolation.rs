//! Many tasks at once. They run on the runtime's threads and finish in any order; only the outcome is judged.

use super::script::*;
use crate::{Engine, Key, Lock, Operation, Tx};
use std::sync::Arc;

const TASKS: u64 = 8;
const EACH: u64 = 25;

/// Adds `amount` to one counter and takes it from the other, in two separate reads.
struct Transfer {
    from: Key,
    to: Key,
    amount: u64,
}

fn number(row: &Option<Vec<u8>>) -> u64 {
    let bytes = row.as_ref().and_then(|row| row.as_slice().try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

impl Operation for Transfer {
    type Output = ();
    type Error = ScriptError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), ScriptError> {
        let rows = tx.get(&[self.from.clone(), self.to.clone()], Lock::Exclusive).await?;
        let (from, to) = (number(&rows[0]), number(&rows[1]));
        tx.put(self.from.clone(), from.wrapping_sub(self.amount).to_be_bytes().to_vec());
        tx.put(self.to.clone(), to.wrapping_add(self.amount).to_be_bytes().to_vec());
        Ok(())
    }
}

async fn join_all<T>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("the task ends"));
    }
    results
}

pub async fn no_update_is_lost<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    let task = |task: u64| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                // Both directions, so that locks taken in the order of the call would deadlock.
                let (from, to) = if task.is_multiple_of(2) { ("a", "b") } else { ("b", "a") };
                let amount = if task.is_multiple_of(2) { 1 } else { 2 };
                let transfer = Transfer { from: key(1, from), to: key(2, to), amount };
                engine.transact(1, transfer).await.expect("the transfer commits");
                let back = Transfer { from: key(3, "in"), to: key(1, "count"), amount: 1 };
                engine.transact(1, back).await.expect("the count commits");
            }
        })
    };
    join_all((0..TASKS).map(task).collect()).await;
    let counts = rows(&*engine, &[key(1, "count"), key(3, "in"), key(2, "b"), key(2, "a")]).await;
    assert_eq!(number(&counts[0]), TASKS * EACH, "increments are lost");
    assert_eq!(number(&counts[1]), 0u64.wrapping_sub(TASKS * EACH));
    assert_eq!((number(&counts[2]), number(&counts[3])), (TASKS / 2 * EACH, TASKS * EACH));
}

/// A row that is not there cannot be locked everywhere; who was told with a lock that it is not must be right all the same.
pub async fn no_update_of_a_new_row_is_lost<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    for round in 0..20 {
        let (from, to) = (key(1, &format!("from {round}")), key(2, &format!("to {round}")));
        let task = |_| {
            let (engine, from, to) = (engine.clone(), from.clone(), to.clone());
            tokio::spawn(async move { engine.transact(1, Transfer { from, to, amount: 1 }).await.map(drop) })
        };
        join_all((0..TASKS).map(task).collect()).await.into_iter().for_each(|result| result.expect("it commits"));
        let counts = rows(&*engine, &[from, to]).await;
        assert_eq!((number(&counts[0]), number(&counts[1])), (0u64.wrapping_sub(TASKS), TASKS), "round {round}");
    }
}

pub async fn one_of_many_inserts_wins<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    for round in 0..10 {
        let task = |task: u64| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let own = format!("{round}-{task}");
                let steps = vec![insert(1, &format!("{round}"), &own), put(2, &own, "trace")];
                (own, transact(&*engine, steps).await)
            })
        };
        let results = join_all((0..TASKS).map(task).collect()).await;
        let winners: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).map(|(own, _)| own).collect();
        assert_eq!(winners.len(), 1, "inserts of one key that were answered with success");
        let stored = rows(&*engine, &[key(1, &format!("{round}"))]).await;
        assert_eq!(stored, [Some(row(winners[0]))]);
        for (own, result) in &results {
            let trace = rows(&*engine, &[key(2, own)]).await.remove(0);
            assert_eq!(trace.is_some(), result.is_ok(), "{own} was answered with {result:?}");
        }
    }
}

/// The sum of two counters that only ever change together, read by two calls of one read.
struct Sum(Key, Key);

impl Operation for Sum {
    type Output = u64;
    type Error = ScriptError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<u64, ScriptError> {
        let first = tx.get(std::slice::from_ref(&self.0), Lock::None).await?;
        let second = tx.get(std::slice::from_ref(&self.1), Lock::None).await?;
        Ok(number(&first[0]).wrapping_add(number(&second[0])))
    }
}

pub async fn snapshots_are_of_one_moment<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    let (a, b) = (key(1, "a"), key(2, "b"));
    let writer = {
        let (engine, a, b) = (engine.clone(), a.clone(), b.clone());
        tokio::spawn(async move {
            for amount in 1..=200 {
                let transfer = Transfer { from: a.clone(), to: b.clone(), amount };
                engine.transact(1, transfer).await.expect("the transfer commits");
                let last = rows(&*engine, std::slice::from_ref(&b)).await;
                assert_eq!(number(&last[0]), amount * (amount + 1) / 2, "a read sees what was answered before it");
            }
        })
    };
    let reader = || {
        let (engine, a, b) = (engine.clone(), a.clone(), b.clone());
        tokio::spawn(async move {
            for _ in 0..300 {
                let sum = engine.read(1, Sum(a.clone(), b.clone())).await.expect("the read succeeds");
                assert_eq!(sum, 0, "a read saw half of a transaction");
                tokio::task::yield_now().await;
            }
        })
    };
    join_all(vec![writer, reader(), reader()]).await;
}

pub async fn a_cancelled_transaction_is_whole_or_nothing<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    let names: Vec<_> = (0..20).map(|n| format!("{n}")).collect();
    for yields in 0..20 {
        let steps = names.iter().map(|name| insert(yields, name, "x")).collect();
        let task = {
            let engine = engine.clone();
            tokio::spawn(async move { transact(&*engine, steps).await.map(drop) })
        };
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        task.abort();
        let answered = task.await.is_ok_and(|result| result.is_ok());
        // A transaction that is still under way would not be over after this one.
        commit(&*engine, vec![put(yields, "after", "x")]).await;
        let keys: Vec<_> = names.iter().map(|name| key(yields, name)).collect();
        let found = rows(&*engine, &keys).await.iter().flatten().count();
        assert!(found == 0 || found == names.len(), "{found} rows of a cancelled transaction");
        assert!(!answered || found == names.len(), "an answered transaction is not there");
    }
}
