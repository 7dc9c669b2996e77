//! The alarm and its test: two models agree, and every planted difference is found.

use braid_api::*;
use braid_model::stream::{Op, Stream, Weights};
use braid_model::{Model, compare, compare_stream};
use braid_types::{ByteRange, InodeId, Mode, Name};
use bytes::Bytes;
use std::collections::HashSet;
use std::mem::discriminant;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Every how many calls of its kind a bug strikes.
const RARELY: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    TruncateLost,
    RenameLost,
    WriteLost,
    WriteShifted,
    AppendIgnored,
    UnlinkKeepsName,
    ModeIgnoresUmask,
    XattrNotRemoved,
    EntryMissing,
    WrongCode,
    LockAlwaysGranted,
    HoleNotPunched,
}

struct Broken {
    inner: Model,
    bug: Bug,
    calls: AtomicU32,
}

impl Broken {
    fn new(bug: Bug) -> Self {
        Broken { inner: Model::default(), bug, calls: AtomicU32::new(0) }
    }

    fn strikes(&self, bug: Bug) -> bool {
        self.bug == bug && self.calls.fetch_add(1, Ordering::Relaxed) % RARELY == RARELY - 1
    }
}

macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(async fn $name(&self, $($arg: $kind),*) -> $out { self.inner.$name($($arg),*).await })*
    };
}

impl FileSystem for Broken {
    pass! {
        statfs(cx: &Caller, id: InodeId) -> Result<StatFs>;
        lookup(cx: &Caller, parent: InodeId, name: &Name) -> Result<LookupReply>;
        parent(cx: &Caller, dir: InodeId) -> Result<InodeId>;
        get_attr(cx: &Caller, id: InodeId, handle: Option<HandleId>) -> Result<AttrReply>;
        set_sealed(cx: &Caller, id: InodeId, sealed: bool, wait: Duration) -> Result<AttrReply>;
        read_link(cx: &Caller, id: InodeId) -> Result<Bytes>;
        remove_dir(cx: &Caller, parent: InodeId, name: &Name) -> Result<()>;
        remove_tree(cx: &Caller, parent: InodeId, name: &Name) -> Result<()>;
        link(cx: &Caller, id: InodeId, parent: InodeId, name: &Name) -> Result<EntryReply>;
        create(cx: &Caller, parent: InodeId, name: &Name, mode: Mode, flags: OpenFlags) -> Result<(EntryReply, Opened)>;
        make_temporary(cx: &Caller, parent: InodeId, mode: Mode, flags: OpenFlags) -> Result<(EntryReply, Opened)>;
        read(handle: HandleId, offset: u64, len: u32) -> Result<Vec<Bytes>>;
        flush(handle: HandleId) -> Result<()>;
        fsync(handle: HandleId, data_only: bool) -> Result<()>;
        release(handle: HandleId) -> ();
        seek(handle: HandleId, offset: u64, whence: SeekWhence) -> Result<u64>;
        copy_range(from: HandleId, from_offset: u64, to: HandleId, to_offset: u64, len: u64) -> Result<u64>;
        open_dir(cx: &Caller, id: InodeId) -> Result<OpenedDir>;
        sync_dir(handle: HandleId) -> Result<()>;
        sync_fs() -> Result<()>;
        get_xattr(cx: &Caller, id: InodeId, name: &[u8]) -> Result<Bytes>;
        set_xattr(cx: &Caller, id: InodeId, name: &[u8], value: Bytes, mode: XattrMode) -> Result<()>;
        list_xattr(cx: &Caller, id: InodeId) -> Result<Vec<Bytes>>;
        get_lock(handle: HandleId, lock: LockRequest) -> Result<Option<LockRequest>>;
    }

    async fn set_attr(
        &self,
        cx: &Caller,
        id: InodeId,
        handle: Option<HandleId>,
        mut change: SetAttr,
    ) -> Result<AttrReply> {
        if change.size.is_some() && self.strikes(Bug::TruncateLost) {
            change.size = None;
        }
        self.inner.set_attr(cx, id, handle, change).await
    }

    async fn make_node(&self, cx: &Caller, parent: InodeId, name: &Name, node: NewNode) -> Result<EntryReply> {
        let umask = if self.strikes(Bug::ModeIgnoresUmask) { 0 } else { cx.umask };
        self.inner.make_node(&Caller { umask, ..cx.clone() }, parent, name, node).await
    }

    async fn unlink(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        if self.inner.lookup(cx, parent, name).await?.attr.is_some_and(|a| !a.is_dir())
            && self.strikes(Bug::UnlinkKeepsName)
        {
            return Ok(());
        }
        self.inner.unlink(cx, parent, name).await
    }

    async fn rename(&self, cx: &Caller, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> Result<()> {
        let result = self.inner.rename(cx, from, to, mode).await;
        if result.is_ok() && self.strikes(Bug::RenameLost) {
            // Undone, but said to be done.
            let _ = self.inner.rename(cx, to, from, RenameMode::NoReplace).await;
        }
        if result.is_err() && self.strikes(Bug::WrongCode) {
            return Err(Code::NotPermitted.into());
        }
        result
    }

    async fn open(&self, cx: &Caller, id: InodeId, mut flags: OpenFlags) -> Result<Opened> {
        flags.append &= self.bug != Bug::AppendIgnored;
        self.inner.open(cx, id, flags).await
    }

    async fn write(&self, handle: HandleId, offset: u64, data: Bytes) -> Result<u32> {
        if self.strikes(Bug::WriteLost) {
            return Ok(data.len() as u32);
        }
        let offset = if self.strikes(Bug::WriteShifted) { offset + 1 } else { offset };
        self.inner.write(handle, offset, data).await
    }

    async fn fallocate(&self, handle: HandleId, mode: FallocateMode, range: ByteRange) -> Result<()> {
        if mode == FallocateMode::PunchHole && !range.is_empty() && self.strikes(Bug::HoleNotPunched) {
            return self.inner.fallocate(handle, FallocateMode::AllocateKeepSize, range).await;
        }
        self.inner.fallocate(handle, mode, range).await
    }

    async fn read_dir(
        &self,
        cx: &Caller,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirEntry>> {
        let mut page = self.inner.read_dir(cx, handle, offset, limit, plus).await?;
        if page.len() > 1 && self.strikes(Bug::EntryMissing) {
            page.remove(0);
        }
        Ok(page)
    }

    async fn remove_xattr(&self, cx: &Caller, id: InodeId, name: &[u8]) -> Result<()> {
        if self.inner.get_xattr(cx, id, name).await.is_ok() && self.strikes(Bug::XattrNotRemoved) {
            return Ok(());
        }
        self.inner.remove_xattr(cx, id, name).await
    }

    async fn set_lock(&self, handle: HandleId, lock: LockRequest, wait: bool) -> Result<()> {
        let result = self.inner.set_lock(handle, lock, wait).await;
        if self.strikes(Bug::LockAlwaysGranted) { Ok(()) } else { result }
    }
}

#[tokio::test]
async fn two_models_agree() {
    for seed in 0..20 {
        let summary = compare(&Model::default(), &Model::default(), seed, 3000).await.unwrap_or_else(|r| panic!("{r}"));
        assert_eq!(summary.steps, 3000);
        assert!(summary.succeeded > 1000 && summary.walked > 5, "seed {seed} proves little: {summary:?}");
    }
}

#[tokio::test]
async fn a_wrapper_without_a_bug_agrees() {
    compare(&Model::default(), &Broken::new(Bug::None), 1, 5000).await.unwrap_or_else(|r| panic!("{r}"));
}

#[tokio::test]
async fn every_planted_difference_is_found() {
    let bugs = [
        Bug::TruncateLost,
        Bug::RenameLost,
        Bug::WriteLost,
        Bug::WriteShifted,
        Bug::AppendIgnored,
        Bug::UnlinkKeepsName,
        Bug::ModeIgnoresUmask,
        Bug::XattrNotRemoved,
        Bug::EntryMissing,
        Bug::WrongCode,
        Bug::LockAlwaysGranted,
        Bug::HoleNotPunched,
    ];
    for bug in bugs {
        let mut found = None;
        // An attribute that is there is removed some three times in a stream, and a bug strikes at the fifth.
        for seed in 0..40 {
            if let Err(report) = compare(&Model::default(), &Broken::new(bug), seed, 3000).await {
                found = Some(report);
                break;
            }
        }
        let report = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        assert!(!report.history.is_empty() && report.to_string().contains("seed"), "{report}");
    }
}

#[tokio::test]
async fn weights_turn_groups_off() {
    let weights = Weights { data: 0, locks: 0, ..Weights::default() };
    assert!(Stream::new(3, weights).take(5000).all(|op| !matches!(op, Op::Write { .. } | Op::SetLock { .. })));
    compare_stream(&Model::default(), &Model::default(), 3, weights, 2000).await.unwrap_or_else(|r| panic!("{r}"));
}

/// A call that no operation makes is a call that is never compared.
#[test]
fn a_stream_has_every_operation() {
    let kinds: HashSet<_> =
        Stream::new(5, Weights { trees: 1, ..Weights::default() }).take(20_000).map(|op| discriminant(&op)).collect();
    assert_eq!(kinds.len(), 34);
}
