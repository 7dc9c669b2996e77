//! A recall is carried out: the kernel drops its pages, what was written is saved, and the file's lease goes
//! (docs/design/0005-leases.md *Files*; the promises stand at `files`).

use crate::cache::Task;
use crate::core::Core;
use crate::files::{LOOK_AGAIN, Locking, Locks, Recall, Stage};
use crate::wait::join_all;
use braid_api::{Result, Shown};
use braid_lease::{Mode, Seen, Want};
use braid_types::{ByteRange, InodeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a kernel may take to drop what was served last before its requests are served again: one of them may be what it
/// waits for.
const SHUT_MAX: Duration = Duration::from_millis(50);
/// Between two attempts to save what is recalled.
const SAVE_AGAIN: Duration = Duration::from_millis(500);

/// Which pages the kernel has locked for a request that is not answered, in the order in which it is tried.
#[derive(Clone, Copy)]
enum Locked {
    /// Of a write the last one, if any, since Linux 5.13: what it had before is unlocked, and what it had not ends the request.
    AsSaid,
    AllPages,
    /// All of the folios that these lie in.
    Folios,
}

const PAGE: u64 = 4 << 10;
/// No folio of a page cache is larger.
const FOLIO_MAX: u64 = 2 << 20;

impl Locked {
    fn of(self, request: Locking) -> ByteRange {
        let Locking { range, locks, .. } = request;
        let last = range.end.max(range.start + 1) - 1;
        let (first, grain) = match (self, locks) {
            (Locked::AsSaid, Locks::LastPage) => (last, PAGE),
            (Locked::AsSaid, Locks::AllPages) | (Locked::AllPages, _) => (range.start, PAGE),
            (Locked::Folios, _) => (range.start, FOLIO_MAX),
        };
        ByteRange::new(first / grain * grain, (last / grain + 1).saturating_mul(grain))
    }
}

/// What is left of `range` without these.
fn without(range: ByteRange, mut holes: Vec<ByteRange>) -> Vec<ByteRange> {
    holes.sort_by_key(|hole| hole.start);
    let (mut rest, mut at) = (Vec::new(), range.start);
    for hole in holes {
        if hole.start.min(range.end) > at {
            rest.push(ByteRange::new(at, hole.start.min(range.end)));
        }
        at = at.max(hole.end);
    }
    if at < range.end {
        rest.push(ByteRange::new(at, range.end));
    }
    rest
}

impl Core {
    /// Carries out a recall, and those that come meanwhile.
    pub async fn give_up(self: Arc<Self>, id: InodeId, recall: Recall) {
        let mut next = Some(recall);
        while let Some(recall) = next {
            self.files.set(id, Stage::Draining);
            self.give_up_once(id, recall).await;
            next = self.files.next_to_give_up(id);
        }
    }

    async fn give_up_once(self: &Arc<Self>, id: InodeId, Recall { generation, to, locks }: Recall) {
        let gives_up = |what| self.waits.enter(&self.env, format_args!("giving up inode {id}"), what).of(id);
        let waits = gives_up("its kernel to drop the pages, and calls under way");
        // `Exclusive` only asks for size and times. What nobody can write here may be read here by then as well.
        let is_written = self.is_written_to(id);
        let drops = matches!(to, Mode::None | Mode::Sync) || (to != Mode::Exclusive && is_written);
        // A recall may come before the grant that it takes back. Then the kernel has no page, and it may hold one locked for which it
        // waits until there is a lease: that would wait for this, and this for that.
        if drops && self.cache.holds_file(id) {
            self.kernel_drops(id).await;
        } else if to != Mode::Exclusive {
            self.files.set(id, Stage::Reading);
        }
        if to == Mode::Shared && is_written {
            // Who may write here reads under the right to write only, so that nothing that is left could be used; and its requests would
            // not be served while it is taken away.
            self.cache.keep_at_most(id, generation, Mode::None);
        }
        if to == Mode::Sync {
            self.begin_sync(id);
            if self.is_cached(id) {
                self.cache.keep_at_most(id, generation, Mode::None);
            }
        }
        drop(waits);
        let _waits = gives_up("what was written to be saved");
        let stop = self.stop.listen();
        loop {
            let saved = tokio::select! {
                biased;
                saved = self.save_for_others(id, to) => saved,
                () = stop.wait() => break,
            };
            match saved {
                Ok(()) => break,
                Err(error) if !self.cache.is_flushing(id) => {
                    tracing::warn!(%error, inode = id.0, "not saved before its lease was lost");
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, inode = id.0, "another session waits until it is saved");
                    self.env.sleep(SAVE_AGAIN).await;
                }
            }
        }
        if to != Mode::Exclusive
            && let Some(inode) = self.inodes.get(id)
        {
            self.update(&inode, |state| state.blocks.clear());
        }
        if to == Mode::Shared && !is_written && self.is_written_to(id) {
            // Opened since.
            self.kernel_drops(id).await;
            self.cache.keep_at_most(id, generation, Mode::None);
        }
        // Others ask for size and times, and this one is done: they may keep the answer.
        let gives_more = to == Mode::Exclusive && !self.is_written_to(id) && self.is_stable(id);
        if gives_more {
            self.cache.keep_at_most(id, generation, Mode::Shared);
        }
        if to != Mode::Exclusive || gives_more || !locks {
            self.locks.hand_back(id, generation, self.cache.grants_locks(id));
        }
        let tasks = self.cache.on(self.now(), None, Seen::Flushed { inode: id, generation, held: Vec::new() });
        let answers = |task: &Task| matches!(task, Task::Yield { inode, generation: of, .. } if (*inode, *of) == (id, generation));
        if !tasks.iter().any(answers) {
            // The session has ended meanwhile, or another recall has come after this one: nobody is told what is held, and who wants a
            // lock would wait until somebody is.
            self.locks.handed(id, generation);
        }
        self.carry_out(tasks);
        self.files.set(id, Stage::Open);
        self.forget_if_unused(id);
    }

    /// It is open for writing (or mapped: the kernel keeps the handle of a mapping) or about to be, or not all of it is saved.
    fn is_written_to(&self, id: InodeId) -> bool {
        self.inodes.is_opening_to_write(id)
            || self.inodes.get(id).is_some_and(|inode| {
                let state = inode.state.lock();
                state.writers > 0 || !state.is_clean()
            })
    }

    /// Some handle is open here through which the kernel caches.
    fn is_cached(&self, id: InodeId) -> bool {
        self.inodes.get(id).is_some_and(|inode| inode.state.lock().cached > 0)
    }

    /// Others write the file from now on, and this mount caches nothing of it: what is known of its bytes is not to be found good later.
    pub fn begin_sync(&self, id: InodeId) {
        self.cache.forget_seen(id);
        if let Some(inode) = self.inodes.get(id) {
            self.update(&inode, |state| state.blocks.clear());
        }
    }

    /// Nothing of it would have to be repeated after a restart of a data server.
    fn is_stable(&self, id: InodeId) -> bool {
        self.servers.lanes().iter().all(|lane| lane.retained(|retain| retain.chunks_of(id, retain.order()).is_empty()))
    }

    /// Files of which something would have to be repeated.
    pub fn unstable_files(&self) -> BTreeSet<InodeId> {
        self.servers.lanes().iter().flat_map(|lane| lane.retained(|retain| retain.files())).collect()
    }

    /// The kernel drops its pages; then nothing runs under the lease, and nothing begins.
    async fn kernel_drops(self: &Arc<Self>, id: InodeId) {
        self.kernel_drops_pages(id, ByteRange::new(0, u64::MAX)).await;
        loop {
            self.files.set(id, Stage::Shut);
            self.until_idle(id).await;
            let Some(served) = self.files.take_served(id) else { return };
            if self.env.timeout(SHUT_MAX, self.forget_pages(id, served)).await.is_ok() {
                return;
            }
            // It waits for a page that it is asking for, or is writing back.
            self.files.set(id, Stage::Draining);
            self.kernel_drops_pages(id, served).await;
        }
    }

    /// A request that the kernel has sent may wait for a lease that comes only when this one is given up, where this one serves no writes
    /// (nor reads of a file that is open for writing). The kernel keeps pages locked until it is answered: what it reads, and the last
    /// one that it writes, if it did not have that before. Of such a page it shows nothing, so it need not be dropped, and to wait for it
    /// would be to wait for ever.
    async fn kernel_drops_pages(&self, id: InodeId, range: ByteRange) {
        loop {
            for locked in [Locked::AsSaid, Locked::AllPages, Locked::Folios] {
                let stuck = match self.cache.has_file(id, Want::Once, self.now()) {
                    true => Vec::new(),
                    false => self.files.locking(id),
                };
                let rest = without(range, stuck.into_iter().map(|request| locked.of(request)).collect());
                let dropped = join_all(rest.into_iter().map(|part| self.forget_pages(id, part)).collect());
                if self.env.timeout(SHUT_MAX, dropped).await.is_ok() {
                    return;
                }
            }
            // Something else keeps it, a page that is being read or written back: whoever begins to wait meanwhile is looked for again.
            if self.env.timeout(LOOK_AGAIN, self.forget_pages(id, range)).await.is_ok() {
                return;
            }
        }
    }

    async fn until_idle(&self, id: InodeId) {
        loop {
            let changed = self.files.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.files.is_idle(id) {
                return;
            }
            let _ = self.env.timeout(LOOK_AGAIN, changed).await;
        }
    }

    pub async fn forget_pages(&self, id: InodeId, range: ByteRange) {
        if let Some(watcher) = self.leases.watcher() {
            watcher.forget(vec![Shown::Pages(id, range.start, range.end)]).await;
        }
    }

    /// What was written under the lease goes where others find it: stable, so that nothing of it is ever repeated over what they
    /// write; or, if only size and times are asked for, to the servers.
    async fn save_for_others(self: &Arc<Self>, id: InodeId, to: Mode) -> Result<()> {
        use crate::commit::Reach;
        let op = self.own_op();
        let inode = self.inodes.get(id);
        if to == Mode::Exclusive {
            return match inode {
                Some(inode) => self.commit(&inode, Reach::Answered, op).await,
                None => Ok(()),
            };
        }
        match inode {
            Some(inode) => self.commit(&inode, Reach::Stable, op).await,
            // Closed, and maybe not stable.
            None => self.sync_file(id, op).await,
        }
    }

    /// The lease is over by its time, or with its holder's start.
    pub async fn drop_pages(self: Arc<Self>, ids: Vec<InodeId>) {
        for id in ids {
            if let Some(inode) = self.inodes.get(id) {
                self.update(&inode, |state| state.blocks.clear());
            }
            self.forget_pages(id, ByteRange::new(0, u64::MAX)).await;
        }
        self.files.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_has_locked_is_left_out() {
        let of = |start, end, locks| Locking { inode: InodeId(1), range: ByteRange::new(start, end), locks };
        let write = of(5000, 12_288, Locks::LastPage);
        assert_eq!(Locked::AsSaid.of(write), ByteRange::new(8192, 12_288));
        assert_eq!(Locked::AllPages.of(write), ByteRange::new(4096, 12_288));
        assert_eq!(Locked::Folios.of(write), ByteRange::new(0, FOLIO_MAX));
        let read = of(5000, 12_288, Locks::AllPages);
        assert_eq!(Locked::AsSaid.of(read), ByteRange::new(4096, 12_288));
        assert_eq!(Locked::Folios.of(read), ByteRange::new(0, FOLIO_MAX));
        let all = ByteRange::new(0, u64::MAX);
        let rest = without(all, vec![Locked::AsSaid.of(write), Locked::AsSaid.of(of(0, 8, Locks::LastPage))]);
        assert_eq!(rest, [ByteRange::new(4096, 8192), ByteRange::new(12_288, u64::MAX)]);
        assert_eq!(without(ByteRange::new(0, 100), vec![ByteRange::new(0, PAGE)]), []);
        assert_eq!(without(all, Vec::new()), [all]);
        assert_eq!(Locked::AsSaid.of(of(u64::MAX - 1, u64::MAX, Locks::LastPage)).end, u64::MAX);
    }
}
