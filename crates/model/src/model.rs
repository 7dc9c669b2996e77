use crate::clock::Clock;
use crate::locks::Locks;
use crate::state::State;
use braid_api::*;
use braid_types::{Attr, ByteRange, InodeId, Mode, Name};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Totals that `statvfs` shows; the model itself is bounded by memory alone.
const BYTES_TOTAL: u64 = 1 << 40;
const FILES_TOTAL: u64 = 1 << 20;

/// See the crate.
pub struct Model {
    state: Mutex<State>,
    locks: Locks,
    clock: Clock,
    valid: Duration,
    watcher: Mutex<Option<Arc<dyn Watcher>>>,
    lookups: Answers,
    reads: Answers,
}

/// Answers of one kind. They can be made and not given: late by what a test does meanwhile.
#[derive(Default)]
pub struct Answers {
    given: RwLock<()>,
    made: AtomicUsize,
}

impl Answers {
    /// None is given as long as this is kept.
    pub fn hold(&self) -> impl Drop + '_ {
        self.given.write()
    }

    pub fn made(&self) -> usize {
        self.made.load(SeqCst)
    }

    fn one(&self) {
        self.made.fetch_add(1, SeqCst);
        drop(self.given.read());
    }
}

impl Default for Model {
    fn default() -> Self {
        Model::new(Clock::default())
    }
}

impl Model {
    pub fn new(clock: Clock) -> Self {
        let state = Mutex::new(State::new(clock.now()));
        Model {
            state,
            locks: Locks::default(),
            clock,
            valid: Duration::from_secs(1),
            watcher: Mutex::default(),
            lookups: Answers::default(),
            reads: Answers::default(),
        }
    }

    /// For how long answers may be kept; doors are tested with none and with much.
    pub fn with_valid(mut self, valid: Duration) -> Self {
        self.valid = valid;
        self
    }

    /// What keeps answers above; a test that changes something behind its back has it forget.
    pub fn watcher(&self) -> Option<Arc<dyn Watcher>> {
        self.watcher.lock().clone()
    }

    pub fn lookups(&self) -> &Answers {
        &self.lookups
    }

    pub fn reads(&self) -> &Answers {
        &self.reads
    }

    fn entry(&self, attr: Attr) -> EntryReply {
        EntryReply { attr, valid: self.valid }
    }

    fn check_handle(&self, handle: HandleId) -> Result<()> {
        self.state.lock().handle(handle).map(drop)
    }
}

impl FileSystem for Model {
    fn watch(&self, watcher: Arc<dyn Watcher>) {
        *self.watcher.lock() = Some(watcher);
    }

    async fn statfs(&self, _cx: &Caller, _id: InodeId) -> Result<StatFs> {
        let state = self.state.lock();
        let files = state.inodes.len() as u64;
        let used: u64 = state.inodes.values().map(|inode| inode.stat().blocks * 512).sum();
        Ok(StatFs {
            bytes_total: BYTES_TOTAL,
            bytes_free: BYTES_TOTAL.saturating_sub(used),
            files: FILES_TOTAL,
            files_free: FILES_TOTAL.saturating_sub(files),
        })
    }

    async fn lookup(&self, _cx: &Caller, parent: InodeId, name: &Name) -> Result<LookupReply> {
        let attr = {
            let state = self.state.lock();
            state.find(parent, name)?.map(|id| state.stat(id)).transpose()?
        };
        self.lookups.one();
        Ok(LookupReply { attr, valid: self.valid })
    }

    async fn parent(&self, _cx: &Caller, dir: InodeId) -> Result<InodeId> {
        self.state.lock().parent(dir)
    }

    async fn get_attr(&self, _cx: &Caller, id: InodeId, _handle: Option<HandleId>) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.state.lock().stat(id)?, valid: self.valid })
    }

    async fn set_attr(
        &self,
        _cx: &Caller,
        id: InodeId,
        _handle: Option<HandleId>,
        change: SetAttr,
    ) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.state.lock().set_attr(id, change, self.clock.now())?, valid: self.valid })
    }

    async fn set_sealed(&self, _cx: &Caller, id: InodeId, sealed: bool, _wait: Duration) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.state.lock().set_sealed(id, sealed, self.clock.now())?, valid: self.valid })
    }

    async fn read_link(&self, _cx: &Caller, id: InodeId) -> Result<Bytes> {
        self.state.lock().read_link(id, self.clock.now())
    }

    async fn make_node(&self, cx: &Caller, parent: InodeId, name: &Name, node: NewNode) -> Result<EntryReply> {
        self.state.lock().make_node(cx, parent, name, node, self.clock.now()).map(|attr| self.entry(attr))
    }

    async fn unlink(&self, _cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.state.lock().unlink(parent, name, self.clock.now())
    }

    async fn remove_dir(&self, _cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.state.lock().remove_dir(parent, name, self.clock.now())
    }

    async fn remove_tree(&self, _cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.state.lock().remove_tree(parent, name, self.clock.now())
    }

    async fn rename(&self, _cx: &Caller, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> Result<()> {
        self.state.lock().rename(from, to, mode, self.clock.now())
    }

    async fn link(&self, _cx: &Caller, id: InodeId, parent: InodeId, name: &Name) -> Result<EntryReply> {
        self.state.lock().link(id, parent, name, self.clock.now()).map(|attr| self.entry(attr))
    }

    async fn open(&self, _cx: &Caller, id: InodeId, flags: OpenFlags) -> Result<Opened> {
        self.state.lock().open(id, flags, self.clock.now())
    }

    async fn create(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        let (attr, opened) = self.state.lock().create(cx, (parent, name), mode, flags, self.clock.now())?;
        Ok((self.entry(attr), opened))
    }

    async fn make_temporary(
        &self,
        cx: &Caller,
        parent: InodeId,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        let (attr, opened) = self.state.lock().make_temporary(cx, parent, mode, flags, self.clock.now())?;
        Ok((self.entry(attr), opened))
    }

    async fn read(&self, handle: HandleId, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        let bytes = self.state.lock().read(handle, offset, len, self.clock.now())?;
        self.reads.one();
        Ok(if bytes.is_empty() { Vec::new() } else { vec![bytes.into()] })
    }

    async fn write(&self, handle: HandleId, offset: u64, data: Bytes) -> Result<u32> {
        self.state.lock().write(handle, offset, &data, self.clock.now())
    }

    async fn flush(&self, handle: HandleId) -> Result<()> {
        self.check_handle(handle)
    }

    async fn fsync(&self, handle: HandleId, _data_only: bool) -> Result<()> {
        self.check_handle(handle)
    }

    async fn release(&self, handle: HandleId) {
        let closed = self.state.lock().close_handle(handle);
        if let Some(id) = closed {
            self.locks.released(handle, id);
        }
    }

    async fn fallocate(&self, handle: HandleId, mode: FallocateMode, range: ByteRange) -> Result<()> {
        self.state.lock().fallocate(handle, mode, range, self.clock.now())
    }

    async fn seek(&self, handle: HandleId, offset: u64, whence: SeekWhence) -> Result<u64> {
        self.state.lock().seek(handle, offset, whence)
    }

    async fn copy_range(
        &self,
        from: HandleId,
        from_offset: u64,
        to: HandleId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.state.lock().copy_range((from, from_offset), (to, to_offset), len, self.clock.now())
    }

    async fn open_dir(&self, _cx: &Caller, id: InodeId) -> Result<OpenedDir> {
        let handle = self.state.lock().open_dir(id)?;
        Ok(OpenedDir { handle, may_cache: false, keep_cache: false })
    }

    async fn read_dir(
        &self,
        _cx: &Caller,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirEntry>> {
        self.state.lock().read_dir(handle, offset, limit, plus.then_some(self.valid), self.clock.now())
    }

    async fn sync_dir(&self, handle: HandleId) -> Result<()> {
        self.check_handle(handle)
    }

    async fn sync_fs(&self) -> Result<()> {
        Ok(())
    }

    async fn get_xattr(&self, _cx: &Caller, id: InodeId, name: &[u8]) -> Result<Bytes> {
        self.state.lock().get_xattr(id, name)
    }

    async fn set_xattr(&self, _cx: &Caller, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()> {
        self.state.lock().set_xattr(id, name, value, mode, self.clock.now())
    }

    async fn list_xattr(&self, _cx: &Caller, id: InodeId) -> Result<Vec<Bytes>> {
        self.state.lock().list_xattr(id)
    }

    async fn remove_xattr(&self, _cx: &Caller, id: InodeId, name: &[u8]) -> Result<()> {
        self.state.lock().remove_xattr(id, name, self.clock.now())
    }

    async fn get_lock(&self, handle: HandleId, lock: LockRequest) -> Result<Option<LockRequest>> {
        let (id, _) = self.state.lock().file_handle(handle)?;
        Ok(self.locks.test(id, &lock))
    }

    async fn set_lock(&self, handle: HandleId, lock: LockRequest, wait: bool) -> Result<()> {
        // flock works on directories too.
        let id = self.state.lock().handle(handle)?.inode();
        self.locks.set(handle, id, lock, wait).await
    }
}
