//! What was answered and is not durable: written by the write thread, looked at by readers on their own threads.

use braid_meta_engine::{Dirty, Key, Table, Touched};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// A reader takes a [`View`] *before* its snapshot, looks at each row it touches, and asks at its end whether the view
/// held: what was answered before the read began was either durable when the view was taken, and then is in the
/// snapshot, or is found here, or has become durable meanwhile, and then the view did not hold.
#[derive(Default)]
pub struct Ordered {
    inner: Mutex<Inner>,
    /// Something is in `inner`. Written under its lock, read without it.
    any: AtomicBool,
    durable: AtomicU64,
    /// Changes that were answered are lost to this process: nobody may be shown anything any more.
    failed: AtomicBool,
}

#[derive(Default)]
struct Inner {
    /// Of the group that is open.
    open: Dirty,
    /// What it has for those who wait for its commit. Readers are shown what was before, and need not know of it.
    waiting: Dirty,
    /// Groups that are on this disk and not yet kept elsewhere, each with the number of its last change.
    sealed: VecDeque<(u64, Dirty)>,
    /// How often something has been cleared.
    clears: u64,
}

impl Inner {
    fn groups(&self) -> impl Iterator<Item = &Dirty> {
        self.sealed.iter().map(|(_, dirty)| dirty).chain([&self.open])
    }

    fn seen(&self, by_writer: bool) -> impl Iterator<Item = &Dirty> {
        self.groups().chain(by_writer.then_some(&self.waiting))
    }
}

/// What a reader saw when it began; `None` if nothing was pending.
#[derive(Clone, Copy)]
pub struct View(Option<u64>);

impl Ordered {
    /// To be called before the change is answered.
    pub fn add<'a>(&self, owner: u64, keys: impl Iterator<Item = &'a Key>) {
        let mut inner = self.inner.lock();
        keys.for_each(|key| inner.open.add(key, owner));
        self.any.store(!inner.open.is_empty() || !inner.sealed.is_empty(), SeqCst);
    }

    /// Changed for one who waits, and shown to nobody until it is kept elsewhere. To be called before the commit.
    pub fn hide<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let mut inner = self.inner.lock();
        keys.for_each(|key| inner.open.add_for_nobody(key));
        self.any.store(true, SeqCst);
    }

    /// Changed for one who waits for the commit, by the write thread, which alone sees it until then. What was added to is not in it
    /// (`Tx::add`).
    pub fn wait<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let mut inner = self.inner.lock();
        keys.for_each(|key| inner.waiting.add_for_nobody(key));
    }

    /// The open group is committed here; `number` is that of its last change.
    pub fn seal(&self, number: u64) {
        let mut inner = self.inner.lock();
        // As large as the largest group, if it were cleared.
        inner.waiting = Dirty::default();
        if !inner.open.is_empty() {
            let group = std::mem::take(&mut inner.open);
            inner.sealed.push_back((number, group));
        }
    }

    /// Everything up to this number is durable. To be called after the commit, and after [`Ordered::seal`].
    pub fn settled(&self, number: u64) {
        self.durable.fetch_max(number, SeqCst);
        let mut inner = self.inner.lock();
        let before = inner.sealed.len();
        while inner.sealed.front().is_some_and(|(last, _)| *last <= number) {
            inner.sealed.pop_front();
        }
        if inner.sealed.len() < before {
            inner.clears += 1;
            self.any.store(!inner.open.is_empty() || !inner.sealed.is_empty(), SeqCst);
        }
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(SeqCst)
    }

    pub fn fail(&self) {
        self.failed.store(true, SeqCst);
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    pub fn view(&self) -> View {
        View(self.any.load(SeqCst).then(|| self.inner.lock().clears))
    }

    pub fn held(&self, view: View) -> bool {
        view.0.is_none_or(|clears| self.inner.lock().clears == clears)
    }
}

/// One transaction's look at [`Ordered`].
pub struct Looker<'a> {
    ordered: &'a Ordered,
    owner: Option<u64>,
    /// There was something when it began, or when its snapshot was taken.
    any: bool,
    /// It is in the open group's transaction, and sees what that has for those who wait.
    writes: bool,
    pub touched: Touched,
}

impl<'a> Looker<'a> {
    pub fn new(ordered: &'a Ordered, view: View, owner: Option<u64>) -> Self {
        // What was committed after the view was taken may be in the snapshot, and not be durable yet where copies are kept:
        // by then it is here.
        let any = view.0.is_some() || ordered.any.load(SeqCst);
        Looker { ordered, owner, any, writes: false, touched: Touched::default() }
    }

    /// Of a transaction on the write thread.
    pub fn of_writer(ordered: &'a Ordered, owner: Option<u64>) -> Self {
        let inner = ordered.inner.lock();
        let any = !inner.waiting.is_empty() || inner.groups().any(|dirty| !dirty.is_empty());
        drop(inner);
        Looker { ordered, owner, any, writes: true, touched: Touched::default() }
    }

    pub fn keys<'k>(&mut self, keys: impl IntoIterator<Item = &'k Key>) {
        if self.any {
            let inner = self.ordered.inner.lock();
            for key in keys {
                let (owner, touched) = (self.owner, &mut self.touched);
                inner.seen(self.writes).for_each(|dirty| dirty.touch(key, owner, touched));
            }
        }
    }

    pub fn partition(&mut self, table: Table, partition: u64) {
        if self.any {
            let inner = self.ordered.inner.lock();
            let (owner, touched) = (self.owner, &mut self.touched);
            inner.seen(self.writes).for_each(|dirty| dirty.touch_partition(table, partition, owner, touched));
        }
    }

    pub fn table(&mut self, table: Table) {
        if self.any {
            let inner = self.ordered.inner.lock();
            let (owner, touched) = (self.owner, &mut self.touched);
            inner.seen(self.writes).for_each(|dirty| dirty.touch_table(table, owner, touched));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_holds_until_what_it_saw_has_become_durable() {
        let ordered = Ordered::default();
        let key = Key::new(Table::Inodes, 1, b"a");
        let before = ordered.view();
        ordered.add(7, [&key].into_iter());
        assert!(ordered.held(before), "what came after it began is none of a reader's business");
        let during = ordered.view();
        let mut looker = Looker::new(&ordered, during, Some(8));
        looker.keys([&key]);
        assert!(looker.touched.foreign && ordered.held(during));
        ordered.seal(1);
        ordered.settled(1);
        assert!(!ordered.held(during), "its snapshot may be older, and nothing is found here any more");
        let after = ordered.view();
        let mut looker = Looker::new(&ordered, after, Some(8));
        looker.keys([&key]);
        assert!(looker.touched == Touched::default() && ordered.held(after));
        assert_eq!(ordered.durable(), 1);
    }
}
