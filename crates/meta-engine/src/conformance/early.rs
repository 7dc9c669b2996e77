//! Answers before durability. An engine that gives none passes as well: what is examined is what nobody may notice.

use super::script::*;
use crate::{Early, Engine, EngineError, Order, Table};
use std::sync::Arc;

const MINE: Early = Early { owner: 7, admitted: false };
const OTHER: Early = Early { owner: 8, admitted: false };

/// A change of `MINE`; the number of its answer if it was early.
async fn change<E: Engine>(engine: &E, steps: Vec<Step>) -> Option<u64> {
    let (_, order) = engine.transact_early(1, MINE, Script(steps)).await.expect("the transaction commits");
    match order {
        Order::Early(number) => Some(number),
        Order::Durable => None,
    }
}

fn is_durable<E: Engine>(engine: &E, number: Option<u64>) -> bool {
    number.is_none_or(|number| engine.durable() >= number)
}

pub async fn numbers_follow_the_order_and_become_durable<E: Engine>(engine: &E) {
    let mut last = 0;
    for n in 0..20 {
        if let Some(number) = change(engine, vec![put(n % 3, "a", &n.to_string())]).await {
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        engine.settle().await.expect("the engine runs");
        assert!(engine.durable() >= last, "settled");
    }
}

pub async fn an_owner_sees_what_it_was_answered_for<E: Engine>(engine: &E) {
    for n in 0..20 {
        let text = n.to_string();
        change(engine, vec![put(1, "a", &text), insert(2, &text, "x")]).await;
        let look = Script(vec![get(&[key(1, "a")]), scan(2, "", None, 100)]);
        let (mut seen, _) = engine.read_early(1, MINE, look).await.expect("it reads");
        assert_eq!(seen.remove(0).rows(), [Some(row(&text))]);
        assert_eq!(seen.remove(0).page().rows.len(), n + 1);
        let write = engine.read_early(1, MINE, Script(vec![get(&[key(1, "a")]), put(1, "a", "z")])).await;
        assert!(matches!(write, Err(ScriptError::Engine(EngineError::ReadOnly(_)))), "{write:?}");
    }
}

/// Whoever else looks, in whatever way, sees it, and sees it durable.
pub async fn others_are_shown_only_what_is_durable<E: Engine>(engine: &E) {
    commit(engine, vec![put(1, "there", "x"), put(9, "apart", "x")]).await;
    let table = || Step::ScanTable { table: Table::Inodes, after: None, limit: 100 };
    let looks: [fn() -> Step; 2] = [|| get(&[key(1, "new")]), || scan(1, "n", None, 10)];
    for (n, look) in looks.into_iter().chain([table as fn() -> Step]).enumerate() {
        for how in 0..3 {
            let number = change(engine, vec![put(1, "new", &format!("{n} {how}")), delete(1, "there")]).await;
            let script = Script(vec![look()]);
            let seen = match how {
                0 => engine.read(1, script).await.expect("it reads"),
                1 => engine.read_early(1, OTHER, script).await.expect("it reads").0,
                _ => engine.transact_early(1, OTHER, script).await.expect("it commits").0,
            };
            assert!(is_durable(engine, number), "look {n}, way {how}: {number:?} of {}", engine.durable());
            let found = format!("{seen:?}");
            assert!(found.contains(&format!("{:?}", row(&format!("{n} {how}")))), "look {n}, way {how}: {found}");
        }
    }
    let number = change(engine, vec![put(1, "taken", "x")]).await;
    let refused = engine.transact_early(1, OTHER, Script(vec![insert(1, "taken", "y")])).await;
    assert!(matches!(refused, Err(ScriptError::Engine(EngineError::Exists(_)))), "{refused:?}");
    assert!(is_durable(engine, number), "a refusal tells of it, too");
    let number = change(engine, vec![put(1, "over", "x")]).await;
    engine.transact_early(1, OTHER, Script(vec![put(1, "over", "y")])).await.expect("it commits");
    assert!(is_durable(engine, number), "written over without having been read");
}

/// What one owner does elsewhere is none of another's business.
pub async fn what_is_apart_waits_for_nothing<E: Engine>(engine: &E) {
    let number = change(engine, vec![put(1, "mine", "x")]).await;
    let look = Script(vec![get(&[key(1, "other")]), scan(2, "", None, 10)]);
    let (_, order) = engine.read_early(1, OTHER, look).await.expect("it reads");
    assert_eq!(order, Order::Durable, "it depends on nothing");
    let (_, order) = engine.transact_early(1, OTHER, Script(vec![put(1, "other", "y")])).await.expect("it commits");
    if let (Some(first), Order::Early(second)) = (number, order) {
        assert!(second > first, "one order of all owners");
    }
}

pub async fn failures_leave_no_trace_early_either<E: Engine>(engine: &E) {
    change(engine, vec![insert(1, "a", "x")]).await;
    let refused = engine.transact_early(1, MINE, Script(vec![put(1, "b", "x"), insert(1, "a", "y")])).await;
    assert!(matches!(refused, Err(ScriptError::Engine(EngineError::Exists(_)))), "{refused:?}");
    let aborted = engine.transact_early(1, MINE, Script(vec![put(1, "b", "x"), Step::Fail])).await;
    assert!(matches!(aborted, Err(ScriptError::Own)));
    assert_eq!(rows(engine, &[key(1, "a"), key(1, "b")]).await, [Some(row("x")), None]);
}

/// Owners that change rows of their own and look at those of others, all at once: a read is never older than what had
/// been answered before it began.
pub async fn reads_see_what_was_answered_before<E: Engine>(engine: E) {
    let engine = Arc::new(engine);
    let answered = Arc::new([const { std::sync::atomic::AtomicU64::new(0) }; 3]);
    let mut tasks = Vec::new();
    for me in 0..3_u64 {
        let (engine, answered) = (engine.clone(), answered.clone());
        tasks.push(tokio::spawn(async move {
            let order = std::sync::atomic::Ordering::SeqCst;
            for n in 1..=150_u64 {
                let early = Early::of(me + 1);
                let mine = Script(vec![put(me, "n", &format!("{n:05}"))]);
                engine.transact_early(me, early, mine).await.expect("it commits");
                answered[me as usize].store(n, order);
                let other = (me + n) % 3;
                let least = answered[other as usize].load(order);
                let look = Script(vec![get(&[key(other, "n")])]);
                let seen = match n % 2 {
                    0 => engine.read(other, look).await.expect("it reads"),
                    _ => engine.read_early(other, early, look).await.expect("it reads").0,
                };
                let found = seen.into_iter().next().and_then(|seen| seen.rows().remove(0)).unwrap_or_default();
                let found = String::from_utf8(found).expect("digits").parse().unwrap_or(0);
                assert!(found >= least, "{me} saw {found} of {other} after {least} had been answered");
            }
        }));
    }
    for task in tasks {
        task.await.expect("the task ends");
    }
}
