use super::{CommitFault, PlantedBug};
use crate::{Dirty, EngineError, EngineStats, Key, Outlet, Overlay, Row, Table};
use braid_types::{MetaPosition, RowChange, RowChanges};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(super) type Rows = BTreeMap<Key, Row>;

/// What a transaction awaits between its order and its durability.
pub type CommitDelay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The disk: survives [`MemEngine`](super::MemEngine)s and crashes. Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemStore {
    state: Arc<Mutex<State>>,
}

impl MemStore {
    pub fn new() -> Self {
        MemStore::default()
    }

    /// `delay` is called and awaited once a transaction, between order and durability.
    pub fn set_commit_delay(&self, delay: impl Fn() -> CommitDelay + Send + Sync + 'static) {
        self.lock().delay = Some(Arc::new(delay));
    }

    /// What is answered early becomes durable when somebody waits for durability, or when `hold` has awaited what it is
    /// given: it is called with that once for all that is answered until then. Without it nothing but a wait does it.
    pub fn set_hold(&self, hold: impl Fn(CommitDelay) + Send + Sync + 'static) {
        self.lock().hold = Some(Arc::new(hold));
    }

    /// From now on the store has this bug, or none.
    pub fn plant(&self, bug: impl Into<Option<PlantedBug>>) {
        self.lock().bug = bug.into();
    }

    /// The next `count` commits that carry writes fail like this.
    pub fn fail_commits(&self, count: u32, fault: CommitFault) {
        self.lock().faults.extend(std::iter::repeat_n(fault, count as usize));
    }

    /// The machine stops. Of the transactions that are ordered and not durable, oldest first, those survive
    /// for which `keep` says so, up to the first no. Engines that had the store open answer
    /// `MaybeCommitted` to what was under way and `Closed` to all else. Returns how many were lost.
    pub fn crash(&self, mut keep: impl FnMut() -> bool) -> usize {
        let mut state = self.lock();
        let state = &mut *state;
        let mut kept = Vec::new();
        while !state.pending.is_empty() && keep() {
            kept.extend(state.pending.pop_front());
        }
        let torn = (state.bug == Some(PlantedBug::TornCommit)).then(|| kept.pop()).flatten();
        for ordered in kept {
            state.durable.apply(ordered.writes);
        }
        state.durable.apply(torn.into_iter().flat_map(|ordered| ordered.writes).step_by(2));
        let lost = state.pending.len();
        state.early_lost += state.pending.iter().filter(|ordered| ordered.early.is_some()).count();
        state.pending.clear();
        state.unkept.clear();
        if let Some(outlet) = state.copies.take() {
            outlet.close("the store crashed");
        }
        state.holding = false;
        state.dirty.clear();
        state.waiting.clear();
        state.view = state.durable.clone();
        state.life += 1;
        lost
    }

    /// The disk is lost, and there is an empty one in its place. To be called after [`MemStore::crash`].
    pub fn lose(&self) {
        let mut state = self.lock();
        (state.view, state.durable) = (Rows::new(), Rows::new());
        (state.position, state.set) = (MetaPosition::default(), None);
    }

    /// How many of the transactions that crashes have lost had been answered early.
    pub fn early_lost(&self) -> usize {
        self.lock().early_lost
    }

    /// How many transactions are ordered and not durable.
    pub fn pending(&self) -> usize {
        self.lock().pending.len()
    }

    /// The durable rows of a table, for checkers that look past the engine.
    pub fn durable_rows(&self, table: Table) -> Vec<(Key, Row)> {
        let state = self.lock();
        let rows = state.durable.range(Key::new(table, 0, &[])..).take_while(|(key, _)| key.table() == table);
        rows.map(|(key, row)| (key.clone(), row.clone())).collect()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Under SkippedSync nobody waits for durability, so the oldest transactions become durable when this many
/// younger ones are pending, as an operating system writes back what nobody syncs.
const UNSYNCED_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct State {
    /// Everything ordered.
    pub view: Rows,
    pub durable: Rows,
    /// Ordered and not durable, oldest first: `view` is `durable` with these on top.
    pending: VecDeque<Ordered>,
    /// The number of the last ordered transaction.
    last: u64,
    /// How often the store has crashed.
    pub life: u64,
    /// How often an epoch was begun after the first, by those whom that concerns ([`super::MemEngine::of_several`]).
    pub epochs_begun: u64,
    early_lost: usize,
    pub bug: Option<PlantedBug>,
    faults: VecDeque<CommitFault>,
    pub delay: Option<Arc<dyn Fn() -> CommitDelay + Send + Sync>>,
    /// Of the pending, those that were answered early.
    pub dirty: Dirty,
    /// Of the pending, those that somebody waits for: what touches them is not answered early. Reads do not see them.
    pub waiting: Dirty,
    hold: Option<Arc<dyn Fn(CommitDelay) + Send + Sync>>,
    /// The hook has been given what makes the pending durable.
    holding: bool,
    /// Where groups are kept too; of the engine that has the store open.
    pub copies: Option<Arc<Outlet>>,
    /// In `durable` and not kept by the copies, oldest first.
    unkept: VecDeque<Unkept>,
    /// Of the last group in `durable`.
    pub position: MetaPosition,
    pub set: Option<Vec<u8>>,
}

/// A group that is on this disk and on its way to copies.
struct Unkept {
    group: u64,
    /// The numbers of its transactions.
    first: u64,
    last: u64,
    rows: Vec<(Key, Option<u64>)>,
}

struct Ordered {
    number: u64,
    /// Who keeps it, if it was answered early.
    early: Option<u64>,
    writes: Vec<(Key, Option<Row>)>,
    /// Rows of numbers, after what was added to them.
    added: Vec<(Key, Option<Row>)>,
}

impl Ordered {
    fn all(&self) -> impl Iterator<Item = &(Key, Option<Row>)> {
        self.writes.iter().chain(&self.added)
    }
}

impl State {
    /// 0 is none.
    pub fn epoch(&self) -> u64 {
        self.epochs_begun + 1
    }

    pub fn next_fault(&mut self) -> Option<CommitFault> {
        self.faults.pop_front()
    }

    /// Gives the writes their place in the order; `early` is who keeps them, if somebody does.
    pub fn order(&mut self, overlay: &Overlay, early: Option<u64>) -> Result<(), EngineError> {
        if overlay.is_empty() {
            return Ok(());
        }
        let added = overlay.added(|key| Ok(self.view.get(key).cloned()))?;
        let added: Vec<_> = added.into_iter().map(|(key, row)| (key, Some(row))).collect();
        match early {
            Some(owner) => overlay.writes().for_each(|(key, _)| self.dirty.add(key, owner)),
            None => {
                let dirty = if self.copies.is_some() { &mut self.dirty } else { &mut self.waiting };
                overlay.writes().for_each(|(key, _)| dirty.add_for_nobody(key));
            }
        }
        let writes: Vec<_> = overlay.writes().map(|(key, pending)| (key.clone(), pending.row.clone())).collect();
        let ordered = Ordered { number: self.last + 1, early, writes, added };
        self.view.apply(ordered.all().cloned());
        self.last += 1;
        self.pending.push_back(ordered);
        if self.bug == Some(PlantedBug::SkippedSync)
            && self.pending.len() > UNSYNCED_MAX
            && let Some(oldest) = self.pending.pop_front()
        {
            self.durable.apply(oldest.all().cloned());
        }
        Ok(())
    }

    /// What must be durable before anyone may learn what a transaction saw that runs now.
    pub fn seen(&self) -> Option<u64> {
        let unkept = self.unkept.back().map(|group| group.last);
        self.pending.back().map(|ordered| ordered.number).or(unkept)
    }

    /// Makes everything up to `number` durable.
    pub fn sync(&mut self, number: u64, stats: &EngineStats) {
        let mut group = Vec::new();
        while self.pending.front().is_some_and(|ordered| ordered.number <= number) {
            if let Some(ordered) = self.pending.pop_front() {
                self.durable.apply(ordered.all().cloned());
                group.push(ordered);
            }
        }
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        stats.syncs.fetch_add(1, Relaxed);
        if let Some(outlet) = &self.copies {
            let mut changes = RowChanges::default();
            for (key, row) in group.iter().flat_map(Ordered::all) {
                changes.push(RowChange { table: key.table() as u8, key: key.bytes(), row: row.as_deref() });
            }
            self.position = outlet.push(Arc::new(changes.into_bytes()));
            let rows = |ordered: &Ordered| {
                let owner = ordered.early;
                ordered.writes.iter().map(move |(key, _)| (key.clone(), owner)).collect::<Vec<_>>()
            };
            let (first, last) = (first.number, last.number);
            let rows = group.iter().flat_map(rows).collect();
            self.unkept.push_back(Unkept { group: self.position.number, first, last, rows });
        }
        self.look_at_dirty();
    }

    /// Of a copy elsewhere.
    pub fn load(&mut self, rows: Vec<(Key, Option<Row>)>, at: MetaPosition) {
        self.durable.apply(rows);
        self.view = self.durable.clone();
        self.position = at;
    }

    /// The copies have everything up to this group.
    pub fn kept(&mut self, group: u64) {
        while self.unkept.front().is_some_and(|unkept| unkept.group <= group) {
            self.unkept.pop_front();
        }
        self.look_at_dirty();
    }

    fn look_at_dirty(&mut self) {
        self.dirty.clear();
        self.waiting.clear();
        let mut add = |key: &Key, owner: Option<u64>, hidden: bool| match owner {
            Some(owner) => self.dirty.add(key, owner),
            None if hidden => self.dirty.add_for_nobody(key),
            None => self.waiting.add_for_nobody(key),
        };
        let hidden = self.copies.is_some();
        self.unkept.iter().flat_map(|group| &group.rows).for_each(|(key, owner)| add(key, *owner, hidden));
        for ordered in &self.pending {
            ordered.writes.iter().for_each(|(key, _)| add(key, ordered.early, hidden));
        }
    }

    /// Everything up to this number is durable.
    pub fn durable_number(&self) -> u64 {
        let unkept = self.unkept.front().map(|group| group.first - 1);
        unkept.unwrap_or_else(|| self.pending.front().map_or(self.last, |oldest| oldest.number - 1))
    }

    /// The last number that was given.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The hook, for the one who is to call it.
    pub fn begin_hold(&mut self) -> Option<Arc<dyn Fn(CommitDelay) + Send + Sync>> {
        if self.holding {
            return None;
        }
        self.holding = self.hold.is_some();
        self.hold.clone()
    }

    pub fn end_hold(&mut self) {
        self.holding = false;
    }

    /// What [`Engine::read`](crate::Engine::read) sees.
    pub fn readable(&self) -> &Rows {
        match self.bug {
            // The bug answers before durable, and readers must see what was answered.
            Some(PlantedBug::SkippedSync | PlantedBug::DirtyRead) => &self.view,
            _ => &self.durable,
        }
    }
}

trait Apply {
    fn apply(&mut self, writes: impl IntoIterator<Item = (Key, Option<Row>)>);
}

impl Apply for Rows {
    fn apply(&mut self, writes: impl IntoIterator<Item = (Key, Option<Row>)>) {
        for (key, row) in writes {
            match row {
                Some(row) => self.insert(key, row),
                None => self.remove(&key),
            };
        }
    }
}
