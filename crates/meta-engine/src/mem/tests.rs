use super::*;
use crate::conformance::{self, Ledger, Script, ScriptError, Step};
use crate::{Copied, Early, Engine, EngineError, Kept, Key, Order, Outlet, Table};
use braid_types::MetaTerm;
use rand::{RngExt, SeedableRng};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A store whose commits become durable only after two further polls.
fn slow_store() -> MemStore {
    let store = MemStore::new();
    store.set_commit_delay(|| {
        Box::pin(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        })
    });
    store
}

/// A store whose commits never become durable.
fn stuck_store() -> MemStore {
    let store = MemStore::new();
    store.set_commit_delay(|| Box::pin(std::future::pending()));
    store
}

fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    crate::run_ready(future)
}

fn put(rest: &str) -> Script {
    Script(vec![Step::Put(Key::new(Table::Inodes, 0, rest.as_bytes()), vec![1])])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    conformance::test_all(|| async { MemEngine::new(MemStore::new()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_with_slow_commits() {
    conformance::test_all(|| async { MemEngine::new(slow_store()) }).await;
}

/// An engine whose groups are kept elsewhere, a little later.
fn kept_elsewhere(store: MemStore) -> (MemEngine, Arc<Outlet>) {
    let engine = MemEngine::new(store);
    let outlet = Arc::new(Outlet::new(MetaTerm { counter: 2, nonce: 1 }, engine.position().unwrap().number));
    engine.copy_to(outlet.clone());
    (engine, outlet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_with_copies_elsewhere() {
    conformance::test_all(|| async {
        let (engine, outlet) = kept_elsewhere(slow_store());
        tokio::spawn(async move {
            loop {
                outlet.filled().await;
                tokio::task::yield_now().await;
                let (_, synced) = outlet.take();
                outlet.keep(Kept { received: outlet.last(), synced });
            }
        });
        engine
    })
    .await;
}

#[tokio::test]
async fn what_copies_do_not_have_is_neither_answered_nor_shown() {
    let (engine, outlet) = kept_elsewhere(MemStore::new());
    let mut writes = pin!(engine.transact(0, put("a")));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(writes.as_mut().poll(&mut cx).is_pending());
    assert_eq!(engine.position().unwrap().number, 1, "it is on this disk");
    let look = || Script(vec![Step::Get(vec![Key::new(Table::Inodes, 0, b"a")], crate::Lock::None)]);
    assert!(poll_once(engine.read(0, look())).is_none(), "it may be lost with this disk");
    outlet.keep(Kept { received: 1, synced: 0 });
    assert!(writes.as_mut().poll(&mut cx).is_pending(), "who waits, waits for stable storage there");
    outlet.keep(Kept { received: 1, synced: 1 });
    assert!(matches!(writes.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    assert!(matches!(poll_once(engine.read(0, look())), Some(Ok(_))));
    let page = engine.base_page(None, 1000).unwrap();
    let copy = MemEngine::new(MemStore::new());
    copy.load(&page.rows, page.at).unwrap();
    assert_eq!(copy.position().unwrap(), engine.position().unwrap());
    assert_eq!(copy.rows(Table::Inodes), Some(1));
}

#[tokio::test]
async fn keeps_what_is_committed() {
    conformance::test_durable(MemStore::new, |store| std::future::ready(MemEngine::new(store.clone()))).await;
}

/// Orders twenty transactions, polls at random so that some are answered, crashes, and checks what is left.
async fn crash_run(seed: u64, bug: Option<PlantedBug>) -> Result<(u64, u64), String> {
    let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
    let store = slow_store();
    store.plant(bug);
    let engine = MemEngine::new(store.clone());
    let mut acknowledged = 0;
    {
        let mut running: Vec<_> =
            (0..20).map(|number| Box::pin(engine.transact(number, Ledger::entry(number)))).collect();
        let mut answered = [false; 20];
        let mut context = Context::from_waker(Waker::noop());
        for round in 0..random.random_range(1..4) {
            // In each round a shorter beginning is polled, so that the order stays that of the numbers.
            for number in 0..20 - 6 * round {
                if !answered[number]
                    && let Poll::Ready(result) = running[number].as_mut().poll(&mut context)
                {
                    result.expect("the transaction commits");
                    answered[number] = true;
                    acknowledged += 1;
                }
            }
        }
    }
    store.crash(|| random.random_bool(0.7));
    store.plant(None);
    let survived = Ledger::check(&MemEngine::new(store), acknowledged).await?;
    Ok((acknowledged, survived))
}

#[tokio::test]
async fn a_crash_keeps_the_acknowledged_and_a_prefix() {
    let (mut lost, mut kept_unacknowledged) = (0, 0);
    for seed in 0..200 {
        let (acknowledged, survived) = crash_run(seed, None).await.expect("nothing acknowledged is lost");
        lost += u32::from(survived < 20);
        kept_unacknowledged += u32::from(survived > acknowledged);
    }
    assert!(lost > 0 && kept_unacknowledged > 0, "both outcomes of a crash are reached");
}

#[tokio::test]
async fn planted_bugs_are_detected() {
    for bug in [PlantedBug::SkippedSync, PlantedBug::TornCommit] {
        let mut found = 0;
        for seed in 0..50 {
            found += u32::from(crash_run(seed, Some(bug)).await.is_err());
        }
        assert!(found > 0, "{bug:?} was never found");
    }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_crash() {
    assert_eq!(crash_run(7, None).await, crash_run(7, None).await);
}

#[tokio::test]
async fn reads_see_durable_rows_only_unless_the_bug_is_planted() {
    let store = stuck_store();
    let engine = MemEngine::new(store.clone());
    assert!(poll_once(engine.transact(0, put("a"))).is_none(), "it waits for durability");
    let look = || Script(vec![Step::ScanTable { table: Table::Inodes, after: None, limit: 9 }]);
    let seen = |seen: Vec<conformance::Seen>| seen[0].clone().page().rows.len();
    assert_eq!(seen(engine.read(0, look()).await.expect("reads do not wait")), 0);
    assert!(poll_once(engine.transact(0, look())).is_none(), "what saw undurable rows waits for them");
    store.plant(PlantedBug::DirtyRead);
    assert_eq!(seen(engine.read(0, look()).await.expect("reads do not wait")), 1);
}

#[tokio::test]
async fn a_crashed_engine_answers_no_more() {
    let store = slow_store();
    let engine = MemEngine::new(store.clone());
    {
        let mut running = pin!(engine.transact(0, put("a")));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(store.pending(), 1);
        assert_eq!(store.crash(|| false), 1);
        let answer = running.await;
        assert!(matches!(answer, Err(ScriptError::Engine(EngineError::MaybeCommitted(_)))), "{answer:?}");
    }
    assert!(matches!(engine.transact(0, put("b")).await, Err(ScriptError::Engine(EngineError::Closed))));
    assert!(matches!(engine.read(0, Script(vec![])).await, Err(ScriptError::Engine(EngineError::Closed))));
    assert_eq!(store.durable_rows(Table::Inodes), []);
}

#[tokio::test]
async fn injected_faults_hit_the_next_commits_with_writes() {
    let store = MemStore::new();
    let engine = MemEngine::new(store.clone());
    store.fail_commits(1, CommitFault::Full);
    store.fail_commits(1, CommitFault::MaybeCommitted { applied: true });
    store.fail_commits(1, CommitFault::MaybeCommitted { applied: false });
    assert!(engine.transact(0, Script(vec![])).await.is_ok(), "nothing was to be committed");
    assert!(matches!(engine.transact(0, put("full")).await, Err(ScriptError::Engine(EngineError::Full(_)))));
    for name in ["applied", "lost"] {
        let answer = engine.transact(0, put(name)).await;
        assert!(matches!(answer, Err(ScriptError::Engine(EngineError::MaybeCommitted(_)))));
    }
    engine.transact(0, put("well")).await.expect("the faults are used up");
    let names: Vec<_> = store.durable_rows(Table::Inodes).into_iter().map(|(key, _)| key.rest().to_vec()).collect();
    assert_eq!(names, [&b"applied"[..], b"well"]);
}

async fn early(engine: &MemEngine, owner: u64, script: Script) -> Order {
    engine.transact_early(0, Early::of(owner), script).await.expect("it commits").1
}

#[tokio::test]
async fn early_answers_wait_for_nothing_and_a_crash_takes_the_last_of_them() {
    let store = stuck_store();
    let engine = MemEngine::new(store.clone());
    for number in 0..10 {
        let order = poll_once(early(&engine, 1, Ledger::entry(number)));
        assert_eq!(order, Some(Order::Early(number + 1)));
    }
    assert_eq!((store.pending(), engine.durable()), (10, 0));
    let mut kept = 0;
    let keep = || {
        kept += 1;
        kept <= 4
    };
    assert_eq!(store.crash(keep), 6);
    assert_eq!(Ledger::check(&MemEngine::new(store), 0).await, Ok(4));
}

#[tokio::test]
async fn who_touches_what_nobody_keeps_is_not_answered_early() {
    let store = stuck_store();
    let engine = MemEngine::new(store.clone());
    let look = |rest: &str| {
        let key = Key::new(Table::Inodes, 0, rest.as_bytes());
        engine.read_early(0, Early::of(1), Script(vec![Step::Get(vec![key], crate::Lock::None)]))
    };
    assert!(poll_once(early(&engine, 1, put("a"))).is_some());
    assert!(poll_once(look("a")).is_some(), "its own");
    assert!(poll_once(engine.transact(0, put("b"))).is_none(), "it waits");
    assert!(poll_once(early(&engine, 1, put("c"))).is_some(), "it is apart");
    assert!(poll_once(look("a")).is_some(), "it is apart");
    assert!(poll_once(early(&engine, 1, put("b"))).is_none(), "nobody keeps b, which it is put over");
    let scan = Script(vec![Step::Scan { prefix: Key::new(Table::Inodes, 0, b""), after: None, limit: 9 }]);
    assert!(poll_once(engine.transact_early(0, Early::of(1), scan)).is_none(), "nobody keeps b, which it has seen");
    assert!(poll_once(look("b")).is_some_and(|seen| seen.is_ok()), "a read is told what is durable");
    assert!(poll_once(engine.read(0, put("a"))).is_none(), "another one waits");
}

#[tokio::test]
async fn a_hook_makes_durable_what_nobody_waits_for() {
    let store = MemStore::new();
    let held = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let hook = held.clone();
    store.set_hold(move |sync| hook.lock().push(sync));
    let engine = MemEngine::new(store.clone());
    early(&engine, 1, put("a")).await;
    early(&engine, 1, put("b")).await;
    assert_eq!((held.lock().len(), engine.durable()), (1, 0), "one for both");
    let sync = held.lock().remove(0);
    sync.await;
    assert_eq!((engine.durable(), store.pending()), (2, 0));
    early(&engine, 1, put("c")).await;
    assert_eq!(held.lock().len(), 1, "and again");
}

#[tokio::test]
async fn of_several_only_those_in_the_epoch_change_anything() {
    let store = MemStore::new();
    let [one, two] = [(); 2].map(|()| MemEngine::of_several(store.clone()));
    one.transact(0, put("a")).await.expect("all are in the first epoch");
    two.fence_others().await.expect("nobody was first");
    let refused = one.transact(0, put("b")).await.expect_err("its epoch is over");
    assert!(matches!(refused, ScriptError::Engine(EngineError::Fenced(_))), "{refused:?}");
    two.transact(0, put("b")).await.expect("it began this one");
    assert!(matches!(one.fence_others().await, Err(EngineError::Fenced(_))));
    assert!(matches!(one.join_at(two.epoch() + 1).await, Err(EngineError::Fenced(_))));
    one.join_at(two.epoch()).await.expect("it is this one");
    one.transact(0, put("c")).await.expect("it has joined");
}
