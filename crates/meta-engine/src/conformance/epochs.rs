//! Epochs, as one engine sees them. That *others* are fenced is for the tests of engines that several processes reach.

use super::script::*;
use crate::{Engine, EngineError, Key, Lock, Operation, Tx};
use std::sync::Arc;
use tokio::sync::Notify;

pub async fn who_is_in_the_present_epoch_goes_on<E: Engine>(engine: &E) {
    let first = engine.epoch();
    engine.join_at(first).await.expect("it is the present one");
    commit(engine, vec![Step::Put(key(1, "a"), vec![1])]).await;
    engine.fence_others().await.expect("nobody else is there");
    let next = engine.epoch();
    assert_eq!(next > first, first != 0, "an epoch follows, where there are any");
    engine.join_at(next).await.expect("it is the present one");
    commit(engine, vec![Step::Put(key(1, "b"), vec![2])]).await;
}

pub async fn only_the_present_epoch_is_joined<E: Engine>(engine: &E) {
    if engine.epoch() == 0 {
        return;
    }
    engine.fence_others().await.expect("nobody else is there");
    let epoch = engine.epoch();
    for other in [epoch - 1, epoch + 1] {
        let joined = engine.join_at(other).await;
        assert!(matches!(joined, Err(EngineError::Fenced(_))), "{other} of {epoch}: {joined:?}");
    }
    assert_eq!(engine.epoch(), epoch);
    commit(engine, vec![Step::Put(key(1, "a"), vec![1])]).await;
}

/// Whoever began it asked before that who else changes these rows.
pub async fn what_was_begun_in_an_older_epoch_does_not_commit<E: Engine>(engine: E) {
    if engine.epoch() == 0 {
        return;
    }
    let engine = Arc::new(engine);
    for outlives in [false, true] {
        let (reached, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let at = key(1, if outlives { "outlives" } else { "ends" });
        let op = Slow { at: at.clone(), outlives, reached: reached.clone(), goes_on: goes_on.clone() };
        let own = engine.clone();
        let under_way = tokio::spawn(async move { own.transact(1, op).await });
        reached.notified().await;
        engine.fence_others().await.expect("nobody else is there");
        goes_on.notify_one();
        // If it is made again, it does not wait again.
        goes_on.notify_one();
        let ended = under_way.await.expect("it ends");
        assert_eq!(rows(&*engine, &[at]).await[0].is_some(), outlives);
        match outlives {
            true => ended.expect("it need not know who else is there"),
            false => assert!(matches!(ended, Err(EngineError::Fenced(_))), "{ended:?}"),
        }
    }
}

struct Slow {
    at: Key,
    outlives: bool,
    reached: Arc<Notify>,
    goes_on: Arc<Notify>,
}

impl Operation for Slow {
    type Output = ();
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
        tx.get(std::slice::from_ref(&self.at), Lock::Exclusive).await?;
        self.reached.notify_one();
        self.goes_on.notified().await;
        self.goes_on.notify_one();
        tx.put(self.at.clone(), vec![1]);
        Ok(())
    }

    fn outlives_its_epoch(&self) -> bool {
        self.outlives
    }
}
