//! Rows of numbers, to which transactions add.

use super::script::*;
use crate::{Counts, Early, Engine, Key};
use std::sync::Arc;

const TASKS: i128 = 8;
const EACH: i128 = 25;

fn add(rest: &str, by: [i128; 2]) -> Step {
    Step::Add(key(5, rest), Counts(by))
}

async fn numbers<E: Engine>(engine: &E, key: Key) -> Option<[i128; 2]> {
    engine.settle().await.expect("the engine runs");
    let row = rows(engine, &[key]).await.pop().flatten()?;
    Some(Counts::from_row(&row).expect("a row of numbers").0)
}

pub async fn numbers_are_added<E: Engine>(engine: &E) {
    assert_eq!(numbers(engine, key(5, "n")).await, None);
    commit(engine, vec![add("n", [3, -4]), put(1, "a", "x")]).await;
    assert_eq!(numbers(engine, key(5, "n")).await, Some([3, -4]), "added to nothing");
    commit(engine, vec![add("n", [1, 1 << 50]), add("m", [1, 1]), add("n", [-7, 0])]).await;
    assert_eq!(numbers(engine, key(5, "n")).await, Some([-3, (1 << 50) - 4]), "twice in a transaction");
    commit(engine, vec![add("n", [-5, 4 - (1 << 50)])]).await;
    assert_eq!(numbers(engine, key(5, "n")).await, Some([-8, 0]), "alone in a transaction");
    assert_eq!(numbers(engine, key(5, "m")).await, Some([1, 1]));
    commit(engine, vec![Step::Put(key(5, "n"), Counts([100, 7]).to_row())]).await;
    commit(engine, vec![add("n", [1, 1])]).await;
    assert_eq!(numbers(engine, key(5, "n")).await, Some([101, 8]), "to a row that was written");
    let longest = i128::from(i64::MAX);
    for _ in 0..3 {
        commit(engine, vec![add("large", [1, longest])]).await;
        commit(engine, vec![add("small", [-1, -longest])]).await;
    }
    assert_eq!(numbers(engine, key(5, "large")).await, Some([3, 3 * longest]), "more than 64 bits hold");
    assert_eq!(numbers(engine, key(5, "small")).await, Some([-3, -3 * longest]));
    for _ in 0..3 {
        commit(engine, vec![add("large", [-1, -longest])]).await;
    }
    assert_eq!(numbers(engine, key(5, "large")).await, Some([0, 0]));
}

pub async fn nothing_is_added_by_an_error<E: Engine>(engine: &E) {
    commit(engine, vec![add("n", [1, 1])]).await;
    let failed = transact(engine, vec![add("n", [1, 1]), put(1, "a", "x"), Step::Fail]).await;
    assert!(matches!(failed, Err(ScriptError::Own)), "{failed:?}");
    commit(engine, vec![put(1, "a", "x")]).await;
    let failed = transact(engine, vec![add("n", [1, 1]), insert(1, "a", "y")]).await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(numbers(engine, key(5, "n")).await, Some([1, 1]));
}

/// Two who each keep what they are answered for early add to the same row, and neither is held up by the other.
pub async fn what_is_added_keeps_nobody_waiting<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "a", "x"), put(2, "a", "x")]).await;
    for n in 0..20 {
        let mut early = Vec::new();
        for owner in [7, 8] {
            let steps = vec![put(owner, "a", &n.to_string()), add("n", [1, 10])];
            let done = engine.transact_early(owner, Early::of(owner), Script(steps)).await.expect("it commits");
            early.push(matches!(done.1, crate::Order::Early(_)));
        }
        assert_eq!(early[0], early[1], "the second waited for the first");
        engine.settle().await.expect("the engine runs");
    }
    assert_eq!(numbers(engine, key(5, "n")).await, Some([40, 400]));
}

pub async fn all_that_add_at_once_are_counted<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    let task = |task: i128| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in 0..EACH {
                let mine = insert(task as u64, &format!("{n}"), "x");
                commit(&*engine, vec![mine, add("n", [1, task]), add("m", [-1, -task])]).await;
            }
        })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await.expect("the task ends");
    }
    let sum = EACH * (0..TASKS).sum::<i128>();
    assert_eq!(numbers(&*engine, key(5, "n")).await, Some([TASKS * EACH, sum]));
    assert_eq!(numbers(&*engine, key(5, "m")).await, Some([-TASKS * EACH, -sum]));
}
