use super::store::State;
use super::tx::MemTx;
use super::{CommitFault, MemStore, PlantedBug};
use crate::{Engine, EngineError, EngineStats, Operation, Overlay, run_ready};
use std::sync::atomic::Ordering::Relaxed;

/// The process that has a [`MemStore`] open, until the store crashes.
pub struct MemEngine {
    store: MemStore,
    stats: EngineStats,
    life: u64,
}

/// A transaction that has its place in the order.
struct Placed<T, E> {
    answer: Result<T, E>,
    /// What must be durable before the answer may be given.
    wait_for: Option<u64>,
}

impl MemEngine {
    pub fn new(store: MemStore) -> Self {
        let life = store.lock().life;
        MemEngine { store, stats: EngineStats::default(), life }
    }

    /// Runs the operation on all that is ordered and orders its writes.
    fn place<O: Operation>(&self, op: &O) -> Placed<O::Output, O::Error> {
        let mut state = self.store.lock();
        if state.life != self.life {
            return Placed { answer: Err(EngineError::Closed.into()), wait_for: None };
        }
        let mut tx = MemTx::new(&state.view);
        let ran = match run_ready(op.run(&mut tx)) {
            Some(Ok(output)) => tx.check_inserts().map(|()| output).map_err(O::Error::from),
            Some(Err(error)) => Err(error),
            None => Err(waited().into()),
        };
        let MemTx { overlay, round_trips, .. } = tx;
        self.stats.round_trips.fetch_add(round_trips, Relaxed);
        let answer = match ran {
            Ok(output) => self.commit(&mut state, &overlay).map(|()| output).map_err(O::Error::from),
            Err(error) => Err(error),
        };
        // An operation that wrote nothing, or failed, may have seen what is not durable yet: it waits as well.
        Placed { answer, wait_for: state.seen() }
    }

    fn commit(&self, state: &mut State, overlay: &Overlay) -> Result<(), EngineError> {
        if overlay.is_empty() {
            return Ok(());
        }
        self.stats.round_trips.fetch_add(1, Relaxed);
        let fault = state.next_fault();
        if matches!(fault, None | Some(CommitFault::MaybeCommitted { applied: true })) {
            state.order(overlay);
        }
        match fault {
            None => Ok(()),
            Some(CommitFault::Storage) => Err(EngineError::Storage("a fault was injected".into())),
            Some(CommitFault::Full) => Err(EngineError::Full("a fault was injected".into())),
            Some(CommitFault::MaybeCommitted { .. }) => Err(EngineError::MaybeCommitted("a fault was injected".into())),
        }
    }

    /// Waits until everything up to `number` is durable.
    async fn durable(&self, number: u64) -> Result<(), EngineError> {
        let delay = {
            let state = self.store.lock();
            if state.bug == Some(PlantedBug::SkippedSync) {
                return Ok(());
            }
            state.delay.clone()
        };
        if let Some(delay) = delay {
            delay().await;
        }
        let mut state = self.store.lock();
        if state.life != self.life {
            return Err(EngineError::MaybeCommitted("the store crashed before the commit was durable".into()));
        }
        state.sync(number, &self.stats);
        Ok(())
    }
}

impl Engine for MemEngine {
    async fn transact<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.transactions.fetch_add(1, Relaxed);
        let Placed { answer, wait_for } = self.place(&op);
        if let Some(number) = wait_for {
            self.durable(number).await?;
        }
        answer
    }

    async fn read<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.reads.fetch_add(1, Relaxed);
        let state = self.store.lock();
        if state.life != self.life {
            return Err(EngineError::Closed.into());
        }
        let mut tx = MemTx::new(state.readable());
        let ran = run_ready(op.run(&mut tx));
        self.stats.round_trips.fetch_add(tx.round_trips, Relaxed);
        if let Some((key, _)) = tx.overlay.writes().next() {
            return Err(EngineError::ReadOnly(key.clone()).into());
        }
        ran.unwrap_or_else(|| Err(waited().into()))
    }

    fn stats(&self) -> &EngineStats {
        &self.stats
    }

    fn rows(&self, table: crate::Table) -> Option<u64> {
        Some(self.store.durable_rows(table).len() as u64)
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

fn waited() -> EngineError {
    EngineError::Storage("the operation waited for something else than its transaction".into())
}
