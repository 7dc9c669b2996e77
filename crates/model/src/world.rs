//! What the driver of two file systems knows: which inode of one is which of the other, which handles are open; and
//! how an operation is made on one of them.

use crate::stream::{At, Op};
use braid_api::*;
use braid_types::{Attr, ByteRange, FileKind, InodeId, Mode, Name};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// The part of attributes in which two file systems must agree. `id` is translated before it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct View {
    pub id: InodeId,
    pub kind: u8,
    pub mode: u32,
    pub nlink: u32,
    pub owner: (u32, u32),
    pub size: u64,
    pub rdev: u32,
    pub sealed: bool,
}

impl From<Attr> for View {
    fn from(a: Attr) -> Self {
        let Mode(mode) = a.mode;
        // A directory's size is each file system's own, and so is the device number of what is no device.
        let size = if a.is_dir() { 0 } else { a.size };
        let rdev = if matches!(a.kind, FileKind::CharDevice | FileKind::BlockDevice) { a.rdev.0 } else { 0 };
        View { id: a.id, kind: kind(a.kind), mode, nlink: a.nlink, owner: (a.uid, a.gid), size, rdev, sealed: a.sealed }
    }
}

fn kind(kind: FileKind) -> u8 {
    kind as u8
}

/// What a call brought, as far as it can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Nothing,
    Inode(InodeId),
    Attr(Attr),
    Absent,
    Opened(Option<Attr>, HandleId),
    Data(Vec<u8>),
    Number(u64),
    Listing(BTreeSet<(Vec<u8>, u8, InodeId)>),
    Names(BTreeSet<Bytes>),
    Present(bool),
}

/// An open file or directory: the handle here, its inode, and the number that stands for it as flock owner.
#[derive(Clone, Copy, Debug)]
pub struct OpenHandle {
    pub handle: HandleId,
    pub id: InodeId,
    pub number: u64,
}

/// One file system and what the driver knows of it. The lists of both sides run in parallel.
pub struct World<'a, F> {
    pub fs: &'a F,
    pub nodes: Vec<InodeId>,
    /// Those of them that are directories.
    pub dirs: Vec<InodeId>,
    pub handles: Vec<OpenHandle>,
}

fn callers() -> [Caller; 3] {
    let caller =
        |uid, gid, groups: &[u32], umask| Caller { uid, gid, groups: groups.to_vec(), umask, ..Caller::default() };
    [caller(0, 0, &[], 0), caller(1000, 100, &[], 0o022), caller(1001, 7, &[100], 0o077)]
}

pub fn lock_of(space: LockSpace, owner: u64, kind: LockKind, range: ByteRange) -> LockRequest {
    LockRequest { space, owner, pid: owner as u32, kind, range }
}

pub const WHOLE: ByteRange = ByteRange { start: 0, end: u64::MAX };

impl<'a, F: FileSystem> World<'a, F> {
    pub fn new(fs: &'a F) -> Self {
        World { fs, nodes: vec![InodeId::ROOT], dirs: vec![InodeId::ROOT], handles: Vec::new() }
    }

    fn node(&self, index: usize) -> InodeId {
        self.nodes[index % self.nodes.len()]
    }

    /// Where a name is to be: mostly a directory, and now and then something that is none.
    fn dir(&self, index: usize) -> InodeId {
        if index.is_multiple_of(16) { self.node(index) } else { self.dirs[index % self.dirs.len()] }
    }

    /// `None` if nothing is open.
    fn open(&self, index: usize) -> Option<OpenHandle> {
        (!self.handles.is_empty()).then(|| self.handles[index % self.handles.len()])
    }

    fn file(&self, index: usize) -> Result<HandleId> {
        self.open(index).map(|open| open.handle).ok_or(Error::bare(Code::BadHandle))
    }

    fn at(&self, at: At) -> Result<(InodeId, Name)> {
        let name = Name::new(at.1.as_bytes()).map_err(|_| Error::bare(Code::Invalid))?;
        Ok((self.dir(at.0), name))
    }

    fn lock(
        &self,
        handle: usize,
        space: LockSpace,
        owner: u64,
        kind: LockKind,
        range: ByteRange,
    ) -> Result<LockRequest> {
        let number = self.open(handle).map_or(0, |open| open.number);
        Ok(match space {
            LockSpace::Posix => lock_of(space, owner, kind, range),
            LockSpace::Flock => lock_of(space, 1000 + number, kind, WHOLE),
        })
    }

    /// Positions of the inodes an operation is about, for a look at them afterwards.
    pub fn touched(&self, op: &Op) -> Vec<InodeId> {
        let handle = |index: usize| self.open(index).map(|open| open.id);
        match op {
            Op::SetAttr { node, .. }
            | Op::SetSealed { node, .. }
            | Op::SetXattr { node, .. }
            | Op::RemoveXattr { node, .. } => vec![self.node(*node)],
            Op::MakeNode { at, .. }
            | Op::Unlink { at }
            | Op::RemoveDir { at }
            | Op::RemoveTree { at }
            | Op::Create { at, .. } => {
                vec![self.dir(at.0)]
            }
            Op::Rename { from, to, .. } => vec![self.dir(from.0), self.dir(to.0)],
            Op::Link { node, at } => vec![self.node(*node), self.dir(at.0)],
            Op::Write { handle: h, .. } | Op::Fallocate { handle: h, .. } => handle(*h).into_iter().collect(),
            Op::CopyRange { from, to, .. } => handle(*from).into_iter().chain(handle(*to)).collect(),
            Op::Open { node, flags } if flags.truncate => vec![self.node(*node)],
            _ => Vec::new(),
        }
    }

    pub async fn apply(&self, op: &Op) -> Result<Answer> {
        let (fs, cx) = (self.fs, &callers()[0]);
        Ok(match op {
            // Totals are each file system's own; only that they can be had counts.
            Op::StatFs => fs.statfs(cx, InodeId::ROOT).await.map(|_| Answer::Nothing)?,
            Op::Lookup { at } => {
                let (dir, name) = self.at(*at)?;
                fs.lookup(cx, dir, &name).await?.attr.map_or(Answer::Absent, Answer::Attr)
            }
            Op::Parent { dir } => Answer::Inode(fs.parent(cx, self.node(*dir)).await?),
            Op::GetAttr { node, handle } => {
                let handle = handle.and_then(|handle| self.open(handle)).map(|open| open.handle);
                Answer::Attr(fs.get_attr(cx, self.node(*node), handle).await?.attr)
            }
            Op::SetAttr { node, change } => Answer::Attr(fs.set_attr(cx, self.node(*node), None, *change).await?.attr),
            Op::SetSealed { node, sealed } => {
                Answer::Attr(fs.set_sealed(cx, self.node(*node), *sealed, Duration::ZERO).await?.attr)
            }
            Op::ReadLink { node } => Answer::Data(fs.read_link(cx, self.node(*node)).await?.into()),
            Op::MakeNode { at, kind, mode, caller } => {
                let (dir, name) = self.at(*at)?;
                let new = NewNode { kind: kind.clone(), mode: *mode };
                Answer::Attr(fs.make_node(&callers()[caller % 3], dir, &name, new).await?.attr)
            }
            Op::Unlink { at } => {
                let (dir, name) = self.at(*at)?;
                fs.unlink(cx, dir, &name).await.map(|()| Answer::Nothing)?
            }
            Op::RemoveDir { at } => {
                let (dir, name) = self.at(*at)?;
                fs.remove_dir(cx, dir, &name).await.map(|()| Answer::Nothing)?
            }
            Op::RemoveTree { at } => {
                let (dir, name) = self.at(*at)?;
                fs.remove_tree(cx, dir, &name).await.map(|()| Answer::Nothing)?
            }
            Op::Rename { from, to, mode } => {
                let (from, to) = (self.at(*from)?, self.at(*to)?);
                fs.rename(cx, (from.0, &from.1), (to.0, &to.1), *mode).await.map(|()| Answer::Nothing)?
            }
            Op::Link { node, at } => {
                let (dir, name) = self.at(*at)?;
                Answer::Attr(fs.link(cx, self.node(*node), dir, &name).await?.attr)
            }
            Op::Open { node, flags } => Answer::Opened(None, fs.open(cx, self.node(*node), *flags).await?.handle),
            Op::Create { at, mode, flags, caller } => {
                let (dir, name) = self.at(*at)?;
                let (made, opened) = fs.create(&callers()[caller % 3], dir, &name, *mode, *flags).await?;
                Answer::Opened(Some(made.attr), opened.handle)
            }
            Op::MakeTemporary { dir, mode, flags, caller } => {
                let cx = &callers()[caller % 3];
                let (made, opened) = fs.make_temporary(cx, self.node(*dir), *mode, *flags).await?;
                Answer::Opened(Some(made.attr), opened.handle)
            }
            Op::Read { handle, offset, len } => {
                Answer::Data(fs.read(self.file(*handle)?, *offset, *len).await?.concat())
            }
            Op::Write { handle, offset, len, fill } => {
                // Not all bytes alike, so that a shift is seen.
                let data: Vec<u8> = (0..*len).map(|i| fill.wrapping_add((i / 512) as u8)).collect();
                Answer::Number(fs.write(self.file(*handle)?, *offset, data.into()).await?.into())
            }
            Op::Flush { handle } => fs.flush(self.file(*handle)?).await.map(|()| Answer::Nothing)?,
            Op::Fsync { handle, data_only } => {
                fs.fsync(self.file(*handle)?, *data_only).await.map(|()| Answer::Nothing)?
            }
            Op::Release { handle } => {
                let handle = self.file(*handle)?;
                // As a door does at close. A directory has no fcntl locks, and says so.
                for owner in 1..4 {
                    let _ = fs.set_lock(handle, lock_of(LockSpace::Posix, owner, LockKind::Unlock, WHOLE), false).await;
                }
                fs.release(handle).await;
                Answer::Nothing
            }
            Op::Fallocate { handle, mode, range } => {
                fs.fallocate(self.file(*handle)?, *mode, *range).await.map(|()| Answer::Nothing)?
            }
            Op::Seek { handle, offset, whence } => self.seek(*handle, *offset, *whence).await?,
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.file(*from)?, self.file(*to)?);
                Answer::Number(fs.copy_range(from, *from_offset, to, *to_offset, *len).await?)
            }
            Op::OpenDir { node } => Answer::Opened(None, fs.open_dir(cx, self.node(*node)).await?.handle),
            Op::ReadDir { handle, limit, plus } => Answer::Listing(list(fs, self.file(*handle)?, *limit, *plus).await?),
            Op::SyncDir { handle } => fs.sync_dir(self.file(*handle)?).await.map(|()| Answer::Nothing)?,
            Op::SyncFs => fs.sync_fs().await.map(|()| Answer::Nothing)?,
            Op::GetXattr { node, name } => {
                Answer::Data(fs.get_xattr(cx, self.node(*node), name.as_bytes()).await?.into())
            }
            Op::SetXattr { node, name, value, mode } => {
                let set = fs.set_xattr(cx, self.node(*node), name.as_bytes(), value.clone(), *mode).await;
                set.map(|()| Answer::Nothing)?
            }
            Op::ListXattr { node } => Answer::Names(fs.list_xattr(cx, self.node(*node)).await?.into_iter().collect()),
            Op::RemoveXattr { node, name } => {
                fs.remove_xattr(cx, self.node(*node), name.as_bytes()).await.map(|()| Answer::Nothing)?
            }
            // Which of several locks in the way is shown is nobody's promise.
            Op::GetLock { handle, space, owner, kind, range } => {
                let lock = self.lock(*handle, *space, *owner, *kind, *range)?;
                Answer::Present(fs.get_lock(self.file(*handle)?, lock).await?.is_some())
            }
            Op::SetLock { handle, space, owner, kind, range } => {
                let lock = self.lock(*handle, *space, *owner, *kind, *range)?;
                fs.set_lock(self.file(*handle)?, lock, false).await.map(|()| Answer::Nothing)?
            }
        })
    }

    /// Where exactly data lies is each file system's own; that the answer is inside the file is not.
    async fn seek(&self, handle: usize, offset: u64, whence: SeekWhence) -> Result<Answer> {
        let fs = self.fs;
        let open = self.open(handle).ok_or(Error::bare(Code::BadHandle))?;
        let size = fs.get_attr(&callers()[0], open.id, Some(open.handle)).await?.attr.size;
        match fs.seek(open.handle, offset, whence).await {
            Ok(at) => Ok(Answer::Present(offset <= at && at <= size)),
            Err(error) if error.code == Code::NoData && offset < size && whence == SeekWhence::Data => {
                Ok(Answer::Present(true))
            }
            Err(error) => Err(error),
        }
    }
}

/// All entries, page by page.
pub async fn list<F: FileSystem>(
    fs: &F,
    handle: HandleId,
    limit: usize,
    plus: bool,
) -> Result<BTreeSet<(Vec<u8>, u8, InodeId)>> {
    let mut entries = BTreeSet::new();
    let mut offset = 0;
    loop {
        let page = fs.read_dir(&callers()[0], handle, offset, limit, plus).await?;
        let Some(last) = page.last() else { return Ok(entries) };
        offset = last.offset;
        for entry in page {
            let known = (entry.name.as_bytes().to_vec(), kind(entry.kind), entry.id);
            if !entries.insert(known) {
                return Err(Error::new(Code::Internal, &entry.name, "listed twice"));
            }
        }
    }
}
