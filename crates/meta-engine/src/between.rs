use crate::any::{BoxFuture, Erased, Failure, Ran, Way, Whole};
use crate::over::{Changes, Over};
use crate::{AnyEngine, Awaited, EngineError, Operation, Tx};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tokio::sync::Notify;

/// Stands between operations that change rows and their transactions: sees what is changed and adds to it, in the same transaction.
pub trait Between: Send + Sync + 'static {
    /// There is nothing to be seen yet: an operation goes to the engine as it is. What is answered is kept until it has ended.
    fn unseen(&self) -> Option<Unseen<'_>>;

    /// What an operation has for its transaction instead of `tx`.
    fn over<'t>(&'t self, tx: &'t mut dyn Tx) -> Box<dyn Passing + 't>;
}

/// A transaction that somebody looks at.
pub trait Passing: Send {
    fn tx(&mut self) -> &mut dyn Tx;

    /// The operation has done its part: what it wrote goes on, with what is added.
    fn finish<'a>(self: Box<Self>) -> Awaited<'a, ()>
    where
        Self: 'a;
}

/// Whether changes are looked at, and how many are under way at which nobody looks.
#[derive(Debug, Default)]
pub struct Watch {
    on: AtomicBool,
    unseen: AtomicUsize,
    /// There is none any more.
    none: Notify,
    /// It was waited for them.
    all: AtomicBool,
}

impl Watch {
    /// A change begins; `None` if it is to be looked at.
    pub fn unseen(&self) -> Option<Unseen<'_>> {
        // Either this sees that it is on, or who turned it on sees this one.
        self.unseen.fetch_add(1, SeqCst);
        let unseen = Unseen(self);
        (!self.on.load(SeqCst)).then_some(unseen)
    }

    /// Changes that begin are looked at from now on. When this returns, whatever was begun before has taken effect or never will. To be
    /// repeated if it fails or nobody waits for it.
    pub async fn begin(&self, engine: &AnyEngine) -> Result<(), EngineError> {
        self.on.store(true, SeqCst);
        if self.all.load(SeqCst) {
            return Ok(());
        }
        loop {
            let none = self.none.notified();
            if self.unseen.load(SeqCst) == 0 {
                break;
            }
            none.await;
        }
        // Also what nobody waits for any more.
        engine.0.settle().await?;
        self.all.store(true, SeqCst);
        Ok(())
    }
}

/// A change at which nobody looks.
#[derive(Debug)]
pub struct Unseen<'w>(&'w Watch);

impl Drop for Unseen<'_> {
    fn drop(&mut self) {
        if self.0.unseen.fetch_sub(1, SeqCst) == 1 && self.0.on.load(SeqCst) {
            self.0.none.notify_waiters();
        }
    }
}

/// An engine whose changes pass somebody.
struct Watched {
    engine: Arc<dyn Erased>,
    between: Arc<dyn Between>,
}

impl AnyEngine {
    /// The same engine, whose changes pass `between`.
    pub fn watched(self, between: Arc<dyn Between>) -> AnyEngine {
        AnyEngine(Arc::new(Over(Watched { engine: self.0, between })))
    }
}

/// An operation in a transaction that is looked at.
pub(crate) struct Passed {
    op: Whole,
    between: Arc<dyn Between>,
}

impl Passed {
    pub(crate) async fn run(&self, tx: &mut dyn Tx) -> Result<Box<dyn Any + Send>, Failure> {
        let mut passing = self.between.over(tx);
        let output = Operation::run(&self.op, passing.tx()).await?;
        passing.finish().await?;
        Ok(output)
    }

    pub(crate) fn op(&self) -> &Whole {
        &self.op
    }
}

impl Changes for Watched {
    fn engine(&self) -> &dyn Erased {
        &*self.engine
    }

    fn change(&self, way: Way, partition: u64, op: Whole) -> BoxFuture<'_, Ran> {
        match self.between.unseen() {
            Some(unseen) => {
                let ran = self.engine.run(way, partition, op);
                Box::pin(async move {
                    let _unseen = unseen;
                    ran.await
                })
            }
            None => self.engine.run(way, partition, Whole::passed(Passed { op, between: self.between.clone() })),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Engine, Key, MemEngine, MemStore, Table};
    use std::time::Duration;

    /// Counts what it has seen.
    #[derive(Default)]
    struct Seen {
        watch: Watch,
        seen: AtomicUsize,
    }

    struct As<'t>(&'t mut dyn Tx);

    impl Passing for As<'_> {
        fn tx(&mut self) -> &mut dyn Tx {
            self.0
        }

        fn finish<'a>(self: Box<Self>) -> Awaited<'a, ()>
        where
            Self: 'a,
        {
            Awaited::ready(Ok(()))
        }
    }

    impl Between for Seen {
        fn unseen(&self) -> Option<Unseen<'_>> {
            self.watch.unseen()
        }

        fn over<'t>(&'t self, tx: &'t mut dyn Tx) -> Box<dyn Passing + 't> {
            self.seen.fetch_add(1, SeqCst);
            Box::new(As(tx))
        }
    }

    struct Put(u64);

    impl Operation for Put {
        type Output = ();
        type Error = EngineError;

        async fn run(&self, tx: &mut dyn Tx) -> Result<(), EngineError> {
            tx.put(Key::new(Table::Inodes, self.0, b"name"), vec![1]);
            Ok(())
        }
    }

    #[tokio::test]
    async fn nothing_is_under_way_unseen_when_it_has_begun() {
        let store = MemStore::new();
        let goes = Arc::new(AtomicBool::new(false));
        let waits = goes.clone();
        store.set_commit_delay(move || {
            let waits = waits.clone();
            Box::pin(async move {
                while !waits.load(SeqCst) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        let between = Arc::new(Seen::default());
        let engine = AnyEngine::new(Arc::new(MemEngine::new(store))).watched(between.clone());
        let own = engine.clone();
        let under_way = tokio::spawn(async move { own.transact(1, Put(1)).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Of this one nobody waits for the end.
        let given_up = engine.transact(2, Put(2));
        tokio::time::timeout(Duration::from_millis(20), given_up).await.expect_err("its commit takes long");
        let (of, by) = (between.clone(), engine.clone());
        let mut begun = tokio::spawn(async move { of.watch.begin(&by).await });
        tokio::time::timeout(Duration::from_millis(50), &mut begun).await.expect_err("two changes are under way");
        goes.store(true, SeqCst);
        begun.await.unwrap().unwrap();
        under_way.await.unwrap().unwrap();
        assert_eq!(between.seen.load(SeqCst), 0);
        engine.transact(3, Put(3)).await.unwrap();
        assert_eq!(between.seen.load(SeqCst), 1);
        between.watch.begin(&engine).await.unwrap();
    }
}
