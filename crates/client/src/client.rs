//! A started client, and its face as a file system. What each call does is in `ops`.

use crate::config::ClientConfig;
use crate::core::Core;
use crate::handles::Handle;
use crate::route::Ways;
use crate::stats::Stats;
use braid_api::admin::{AdminAnswer, AdminQuery, Waiting};
use braid_api::data::DataPeers;
use braid_api::meta::{Namespace, NodeSpec, Resolved, TreeChange, TreeOp};
use braid_api::*;
use braid_env::Env;
use braid_types::{Attr, ByteRange, InodeId, Mode, Name, SessionId};
use bytes::Bytes;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A session with a cluster. Call [`Client::shutdown`] before it is dropped, or what is buffered is lost.
pub struct Client(pub(crate) Arc<Core>);

impl Client {
    /// Opens a session. `control` is the same metadata server on a connection of its own, for renewals.
    pub async fn start<N: Namespace, P: DataPeers>(
        env: Env,
        namespace: N,
        control: N,
        peers: P,
        config: ClientConfig,
    ) -> Result<Arc<Client>> {
        let alone = |any| Ways { any, each: None };
        Client::start_among(env, alone(namespace), alone(control), peers, config).await
    }

    /// The same where several metadata servers may serve at once.
    pub async fn start_among<N: Namespace, P: DataPeers>(
        env: Env,
        calls: Ways<N>,
        control: Ways<N>,
        peers: P,
        config: ClientConfig,
    ) -> Result<Arc<Client>> {
        let (calls, control) = (calls.into(), control.into());
        Ok(Arc::new(Client(Core::start(env, calls, control, Box::new(peers), config).await?)))
    }

    /// Saves everything, makes it stable and ends the session. The client answers nothing afterwards.
    pub async fn shutdown(&self) -> Result<()> {
        self.0.shutdown().await
    }

    /// What waits in this client, for what, and since when.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.waits.list(&self.0.env)
    }

    /// Under which it is known to servers now.
    pub fn session(&self) -> SessionId {
        self.0.session.token().session
    }

    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// A whole small file in one message (design.md §4, `put_file`). B406 where rows have fewer copies than the directory's policy
    /// asks for: then it is made and written as others are.
    pub async fn put_file(
        &self,
        parent: InodeId,
        name: &Name,
        spec: NodeSpec,
        data: Bytes,
        replace: bool,
    ) -> Result<Attr> {
        self.0.put_file(parent, name, spec, data, replace).await
    }

    /// Moves chunks with one copy off data servers that are drained; returns when there are none.
    pub async fn move_off(&self) -> Result<()> {
        self.0.move_off().await
    }

    /// Begins chmod -R, chown -R or setfacl -R: see [`braid_api::meta::ChangeTree`].
    pub async fn change_tree(&self, dir: InodeId, change: TreeChange) -> Result<TreeOp> {
        self.0.change_tree(dir, change).await
    }

    /// What administrators ask the metadata server.
    pub async fn admin(&self, query: AdminQuery) -> Result<AdminAnswer> {
        self.0.call(query, self.0.own_op()).await
    }

    /// What a path leads to: as much of it as is known costs no message, and all that is not one. Links are not followed.
    ///
    /// # Errors
    /// `NotFound` and `NotDirectory` with the name that leads nowhere.
    pub async fn walk(&self, from: InodeId, path: &[Name]) -> Result<InodeId> {
        self.0.walk(from, path).await
    }

    /// The attributes of what it leads to, as [`Client::walk`] finds it.
    pub async fn stat(&self, from: InodeId, path: &[Name]) -> Result<Attr> {
        self.0.stat(from, path).await
    }

    /// Opens the file that it leads to, and gives its attributes; what is known of both costs no message.
    ///
    /// # Errors
    /// As those of [`Client::walk`] and of [`FileSystem::open`].
    pub async fn open_at(&self, cx: &Caller, from: InodeId, path: &[Name], flags: OpenFlags) -> Result<(Attr, Opened)> {
        self.0.open_at(cx, from, path, flags).await
    }

    /// The attributes along a path, in one message; links are not followed, and nothing is kept of it.
    pub async fn resolve(&self, from: InodeId, path: &[Name]) -> Result<Resolved> {
        self.0.resolve(from, path).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // What runs in the background keeps parts alive for a while: nothing of it may renew or begin a session.
        self.0.stop.stop();
    }
}

impl FileSystem for Client {
    fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.0.leases.watch(watcher);
    }

    async fn statfs(&self, cx: &Caller, id: InodeId) -> Result<StatFs> {
        self.0.statfs(cx, id).await
    }

    async fn lookup(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<LookupReply> {
        self.0.lookup(cx, parent, name).await
    }

    async fn parent(&self, cx: &Caller, dir: InodeId) -> Result<InodeId> {
        self.0.parent(cx, dir).await
    }

    async fn get_attr(&self, cx: &Caller, id: InodeId, _handle: Option<HandleId>) -> Result<AttrReply> {
        self.0.get_attr(cx, id).await
    }

    async fn set_attr(&self, cx: &Caller, id: InodeId, handle: Option<HandleId>, change: SetAttr) -> Result<AttrReply> {
        if let (Some(handle), Some(_)) = (handle, change.size) {
            self.0.handles.file(handle)?.check()?;
        }
        self.0.set_attr(cx, id, change).await
    }

    async fn set_sealed(&self, cx: &Caller, id: InodeId, sealed: bool, wait: Duration) -> Result<AttrReply> {
        self.0.set_sealed(cx, id, sealed, wait).await
    }

    async fn read_link(&self, cx: &Caller, id: InodeId) -> Result<Bytes> {
        self.0.read_link(cx, id).await
    }

    async fn make_node(&self, cx: &Caller, parent: InodeId, name: &Name, node: NewNode) -> Result<EntryReply> {
        self.0.make_node(cx, parent, name, node).await
    }

    async fn unlink(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.0.unlink(cx, parent, name).await
    }

    async fn remove_dir(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.0.remove_dir(cx, parent, name, false).await
    }

    async fn remove_tree(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.0.remove_dir(cx, parent, name, true).await
    }

    async fn rename(&self, cx: &Caller, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> Result<()> {
        self.0.rename(cx, from, to, mode).await
    }

    async fn link(&self, cx: &Caller, id: InodeId, parent: InodeId, name: &Name) -> Result<EntryReply> {
        self.0.link(cx, id, parent, name).await
    }

    async fn open(&self, cx: &Caller, id: InodeId, flags: OpenFlags) -> Result<Opened> {
        self.0.open(cx, id, flags).await
    }

    async fn create(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        self.0.create(cx, parent, name, mode, flags).await
    }

    async fn make_temporary(
        &self,
        cx: &Caller,
        parent: InodeId,
        mode: Mode,
        flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        self.0.make_temporary(cx, parent, mode, flags).await
    }

    async fn read(&self, handle: HandleId, offset: u64, len: u32) -> Result<Vec<Bytes>> {
        self.0.read(handle, offset, len).await
    }

    async fn beneath(&self, handle: HandleId) -> Option<Arc<OwnedFd>> {
        self.0.beneath(handle).await
    }

    fn left_beneath(&self, id: InodeId) {
        self.0.left_beneath(id);
    }

    async fn write(&self, handle: HandleId, offset: u64, data: Bytes) -> Result<u32> {
        self.0.write(handle, offset, data).await
    }

    async fn flush(&self, handle: HandleId) -> Result<()> {
        self.0.flush(handle).await
    }

    async fn fsync(&self, handle: HandleId, _data_only: bool) -> Result<()> {
        self.0.fsync(handle).await
    }

    async fn release(&self, handle: HandleId) {
        self.0.release(handle).await;
    }

    async fn fallocate(&self, handle: HandleId, mode: FallocateMode, range: ByteRange) -> Result<()> {
        self.0.fallocate(handle, mode, range).await
    }

    async fn seek(&self, handle: HandleId, offset: u64, whence: SeekWhence) -> Result<u64> {
        self.0.seek(handle, offset, whence).await
    }

    async fn copy_range(
        &self,
        from: HandleId,
        from_offset: u64,
        to: HandleId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.0.copy_range((from, from_offset), (to, to_offset), len).await
    }

    async fn open_dir(&self, cx: &Caller, id: InodeId) -> Result<OpenedDir> {
        self.0.open_dir(cx, id).await
    }

    async fn read_dir(
        &self,
        cx: &Caller,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirEntry>> {
        self.0.read_dir(cx, handle, offset, limit, plus).await
    }

    async fn sync_dir(&self, handle: HandleId) -> Result<()> {
        self.0.handles.any(handle)?;
        self.0.settle_changes(self.0.own_op()).await
    }

    async fn sync_fs(&self) -> Result<()> {
        self.0.sync_fs().await
    }

    async fn get_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<Bytes> {
        self.0.get_xattr(cx, id, name).await
    }

    async fn set_xattr(&self, cx: &Caller, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()> {
        self.0.set_xattr(cx, id, name, value, mode).await
    }

    async fn list_xattr(&self, cx: &Caller, id: InodeId) -> Result<Vec<Bytes>> {
        self.0.list_xattr(cx, id).await
    }

    async fn remove_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<()> {
        self.0.remove_xattr(cx, id, name).await
    }

    async fn get_lock(&self, handle: HandleId, lock: LockRequest) -> Result<Option<LockRequest>> {
        let file = self.0.handles.file(handle)?;
        self.0.get_lock(file.inode.id, lock).await
    }

    async fn set_lock(&self, handle: HandleId, lock: LockRequest, wait: bool) -> Result<()> {
        let open = self.0.handles.any(handle)?;
        if lock.space == LockSpace::Flock {
            let mut owners = open.flock_owners().lock();
            if !owners.contains(&lock.owner) {
                owners.push(lock.owner);
            }
        }
        if lock.kind != LockKind::Unlock
            && let Handle::File(file) = &open
        {
            file.has_its_locks()?;
        }
        self.0.set_lock((open.inode(), handle), lock, wait).await
    }
}
