use super::snapshot::MemSnapshot;
use super::store::State;
use super::tx::MemTx;
use super::{CommitFault, MemStore, PlantedBug};
use crate::{
    BasePage, Copied, Early, Engine, EngineError, EngineStats, Key, Operation, Order, Outlet, Overlay, Snapshot,
    may_answer, run_ready,
};
use braid_types::{MetaPosition, RowChange, RowChanges};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The process that has a [`MemStore`] open, until the store crashes.
pub struct MemEngine {
    store: MemStore,
    stats: Arc<EngineStats>,
    life: u64,
    /// Of one of several processes over the store: the epoch in which it changes something.
    epoch: Option<AtomicU64>,
}

/// A transaction that has its place in the order.
struct Placed<T, E> {
    answer: Result<T, E>,
    /// What must be durable before the answer may be given.
    wait_for: Option<u64>,
    /// If nothing must.
    order: Order,
}

impl MemEngine {
    pub fn new(store: MemStore) -> Self {
        let life = store.lock().life;
        MemEngine { store, stats: Arc::default(), life, epoch: None }
    }

    /// One of several processes that have the store open at once, as a database is: each is in an epoch, and changes nothing when that is over.
    pub fn of_several(store: MemStore) -> Self {
        let epoch = Some(AtomicU64::new(store.lock().epoch()));
        MemEngine { epoch, ..MemEngine::new(store) }
    }

    fn expect_epoch(&self, state: &State, epoch: u64) -> Result<(), EngineError> {
        match state.epoch() == epoch {
            true => Ok(()),
            false => Err(EngineError::Fenced(format!("its epoch {epoch} is over"))),
        }
    }

    /// Runs the operation on all that is ordered and orders its writes, which `writes` says whether it may have.
    fn place<O: Operation>(&self, op: &O, early: Option<Early>, writes: bool) -> Placed<O::Output, O::Error> {
        let mut state = self.store.lock();
        let owner = early.map(|early| early.owner);
        if state.life != self.life {
            return Placed { answer: Err(EngineError::Closed.into()), wait_for: None, order: Order::Durable };
        }
        let dirty = [&state.dirty, &state.waiting];
        let mut tx = MemTx::new(&state.view, &dirty, owner);
        let ran = match run_ready(op.run(&mut tx)) {
            Some(Ok(output)) => tx.check_inserts().map(|()| output).map_err(O::Error::from),
            Some(Err(error)) => Err(error),
            None => Err(waited().into()),
        };
        let MemTx { overlay, round_trips, touched, .. } = tx;
        self.stats.round_trips.fetch_add(round_trips, Relaxed);
        let written = overlay.first().cloned();
        let ran = match written {
            Some(key) if !writes => Err(EngineError::ReadOnly(key).into()),
            _ => ran,
        };
        let outcome = ran.as_ref().map(|output| op.may_be_early(output)).map_err(drop);
        let early = owner.filter(|_| may_answer(touched, outcome));
        let wrote = ran.is_ok() && !overlay.is_empty();
        let answer = match ran {
            Ok(output) => self.commit(&mut state, &overlay, early).map(|()| output).map_err(O::Error::from),
            Err(error) => Err(error),
        };
        if early.is_some() && answer.is_ok() {
            let order = if wrote || touched.own { Order::Early(state.last()) } else { Order::Durable };
            if wrote {
                self.hold(&mut state);
            }
            return Placed { answer, wait_for: None, order };
        }
        // An operation that wrote nothing, or failed, may have seen what is not durable yet: it waits as well.
        let wait_for = if early.is_some() { None } else { state.seen() };
        Placed { answer, wait_for, order: Order::Durable }
    }

    fn commit(&self, state: &mut State, overlay: &Overlay, early: Option<u64>) -> Result<(), EngineError> {
        if overlay.is_empty() {
            return Ok(());
        }
        if let Some(epoch) = &self.epoch {
            self.expect_epoch(state, epoch.load(SeqCst))?;
        }
        self.stats.round_trips.fetch_add(1, Relaxed);
        let fault = state.next_fault();
        if matches!(fault, None | Some(CommitFault::MaybeCommitted { applied: true })) {
            state.order(overlay, early)?;
        }
        match fault {
            None => Ok(()),
            Some(CommitFault::Storage) => Err(EngineError::Storage("a fault was injected".into())),
            Some(CommitFault::Full) => Err(EngineError::Full("a fault was injected".into())),
            Some(CommitFault::MaybeCommitted { .. }) => Err(EngineError::MaybeCommitted("a fault was injected".into())),
        }
    }

    /// Sees to it that what was answered early becomes durable some time.
    fn hold(&self, state: &mut State) {
        let Some(hold) = state.begin_hold() else { return };
        let (store, stats, life) = (self.store.clone(), self.stats.clone(), self.life);
        hold(Box::pin(async move {
            let outlet = {
                let mut state = store.lock();
                if state.life != life {
                    return;
                }
                state.end_hold();
                let last = state.last();
                state.sync(last, &stats);
                state.copies.clone()
            };
            if let Some(outlet) = outlet {
                let group = outlet.last();
                // Whoever waits for it is told by its own wait.
                let _ = kept(&store, life, &outlet, group, false).await;
            }
        }));
    }

    async fn answer<T, E: From<EngineError>>(&self, placed: Placed<T, E>, synced: bool) -> Result<(T, Order), E> {
        if let Some(number) = placed.wait_for {
            self.durable_up_to(number, synced).await?;
        }
        Ok((placed.answer?, placed.order))
    }

    /// Runs a read on what is durable; `None` if it touched what is not and was answered.
    fn look<O: Operation>(&self, op: &O, owner: Option<u64>) -> Option<Result<O::Output, O::Error>> {
        let state = self.store.lock();
        if state.life != self.life {
            return Some(Err(EngineError::Closed.into()));
        }
        let dirty = [&state.dirty];
        let mut tx = MemTx::new(state.readable(), &dirty, owner);
        let ran = run_ready(op.run(&mut tx));
        if tx.touched.own || (tx.touched.foreign && state.bug != Some(PlantedBug::DirtyRead)) {
            return None;
        }
        self.stats.round_trips.fetch_add(tx.round_trips, Relaxed);
        if let Some(key) = tx.overlay.first() {
            return Some(Err(EngineError::ReadOnly(key.clone()).into()));
        }
        Some(ran.unwrap_or_else(|| Err(waited().into())))
    }

    /// Waits until everything up to `number` is durable; with `synced` also on the copies' stable storage.
    async fn durable_up_to(&self, number: u64, synced: bool) -> Result<(), EngineError> {
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
        let crashed = || EngineError::MaybeCommitted("the store crashed before the commit was durable".into());
        let outlet = {
            let mut state = self.store.lock();
            if state.life != self.life {
                return Err(crashed());
            }
            state.sync(number, &self.stats);
            state.copies.clone()
        };
        let Some(outlet) = outlet else { return Ok(()) };
        let group = outlet.last();
        if synced {
            outlet.want_sync(group);
        }
        kept(&self.store, self.life, &outlet, group, synced).await
    }
}

impl Engine for MemEngine {
    async fn transact<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.transactions.fetch_add(1, Relaxed);
        Ok(self.answer(self.place(&op, None, true), true).await?.0)
    }

    async fn read<O: Operation>(&self, _partition: u64, op: O) -> Result<O::Output, O::Error> {
        self.stats.reads.fetch_add(1, Relaxed);
        match self.look(&op, None) {
            Some(answer) => answer,
            None => Ok(self.answer(self.place(&op, None, false), false).await?.0),
        }
    }

    async fn transact_early<O: Operation>(
        &self,
        _partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.stats.transactions.fetch_add(1, Relaxed);
        self.answer(self.place(&op, Some(early), true), false).await
    }

    async fn read_early<O: Operation>(
        &self,
        _partition: u64,
        early: Early,
        op: O,
    ) -> Result<(O::Output, Order), O::Error> {
        self.stats.reads.fetch_add(1, Relaxed);
        match self.look(&op, Some(early.owner)) {
            Some(answer) => Ok((answer?, Order::Durable)),
            None => self.answer(self.place(&op, Some(early), false), false).await,
        }
    }

    fn durable(&self) -> u64 {
        let state = self.store.lock();
        // What the store says after a crash is of another engine, and a dead one knows of nothing that it is durable: its
        // caller would forget what it keeps.
        if state.life == self.life { state.durable_number() } else { 0 }
    }

    async fn settle(&self) -> Result<(), EngineError> {
        let number = {
            let state = self.store.lock();
            if state.life != self.life {
                return Err(EngineError::Closed);
            }
            // With copies what is kept may not be on their stable storage yet.
            state.seen().or(state.copies.as_ref().map(|_| 0))
        };
        match number {
            Some(number) => self.durable_up_to(number, true).await,
            None => Ok(()),
        }
    }

    async fn snapshot(&self, tables: &[crate::Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        self.settle().await?;
        let snapshot = MemSnapshot::new(tables, self.store.lock().readable());
        // Copies elsewhere may not have all of it yet.
        self.settle().await?;
        Ok(Box::new(snapshot))
    }

    async fn join(&self) -> Result<(), EngineError> {
        if let Some(epoch) = &self.epoch {
            epoch.store(self.store.lock().epoch(), SeqCst);
        }
        Ok(())
    }

    async fn fence_others(&self) -> Result<(), EngineError> {
        if let Some(epoch) = &self.epoch {
            let mut state = self.store.lock();
            self.expect_epoch(&state, epoch.load(SeqCst))?;
            state.epochs_begun += 1;
            epoch.store(state.epoch(), SeqCst);
        }
        Ok(())
    }

    fn epoch(&self) -> u64 {
        self.epoch.as_ref().map_or(0, |epoch| epoch.load(SeqCst))
    }

    async fn join_at(&self, wanted: u64) -> Result<(), EngineError> {
        if let Some(epoch) = &self.epoch {
            self.expect_epoch(&self.store.lock(), wanted)?;
            epoch.store(wanted, SeqCst);
        }
        Ok(())
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

/// Waits until the copies have everything up to `group`, and shows it.
async fn kept(store: &MemStore, life: u64, outlet: &Outlet, group: u64, synced: bool) -> Result<(), EngineError> {
    outlet.kept(group, synced).await?;
    let mut state = store.lock();
    if state.life != life {
        return Err(EngineError::MaybeCommitted("the store crashed before the commit was known to be kept".into()));
    }
    state.kept(group);
    Ok(())
}

impl Copied for MemEngine {
    fn position(&self) -> Result<MetaPosition, EngineError> {
        Ok(self.store.lock().position)
    }

    fn stored_set(&self) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.store.lock().set.clone())
    }

    fn store_set(&self, set: &[u8]) -> Result<(), EngineError> {
        let mut state = self.store.lock();
        if state.life != self.life {
            return Err(EngineError::Closed);
        }
        state.set = Some(set.to_vec());
        Ok(())
    }

    fn copy_to(&self, outlet: Arc<Outlet>) {
        self.store.lock().copies = Some(outlet);
    }

    fn base_page(&self, from: Option<(u8, Vec<u8>)>, bytes_max: usize) -> Result<BasePage, EngineError> {
        let state = self.store.lock();
        let mut page = BasePage { at: state.position, ..BasePage::default() };
        let mut rows = RowChanges::default();
        for (key, row) in &state.durable {
            let place = (key.table() as u8, key.bytes());
            if from.as_ref().is_some_and(|(table, key)| place < (*table, key.as_slice())) {
                continue;
            }
            if rows.len() >= bytes_max {
                page.next = Some((place.0, place.1.to_vec()));
                break;
            }
            rows.push(RowChange { table: place.0, key: place.1, row: Some(row) });
        }
        page.rows = rows.into_bytes();
        Ok(page)
    }

    fn load(&self, changes: &[u8], at: MetaPosition) -> Result<(), EngineError> {
        let mut rows = Vec::new();
        for change in RowChanges::read(changes) {
            let spoilt = || EngineError::Storage("these are no changes of rows".into());
            let change = change.map_err(|_| spoilt())?;
            let table = crate::Table::ALL.into_iter().find(|table| *table as u8 == change.table).ok_or_else(spoilt)?;
            let key = Key::from_bytes(table, change.key).ok_or_else(spoilt)?;
            rows.push((key, change.row.map(<[u8]>::to_vec)));
        }
        self.store.lock().load(rows, at);
        Ok(())
    }
}

fn waited() -> EngineError {
    EngineError::Storage("the operation waited for something else than its transaction".into())
}
