//! Streams of random operations: every call of `FileSystem`, on few names and few inodes, so that they meet.
//!
//! An operation names inodes and handles by position in the lists its driver keeps (modulo their length), because two
//! file systems number them differently.

use braid_api::{
    FallocateMode, LockKind, LockSpace, NodeKind, OpenFlags, RenameMode, SeekWhence, SetAttr, TimeOrNow, XattrMode,
};
use braid_posix::acl::{self, Acl, Entry, Who};
use braid_types::{ByteRange, DeviceId, FILE_BYTES_MAX, FileKind, Mode, Timestamp};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub type Node = usize;
pub type Handle = usize;
pub type At = (Node, &'static str);

/// One call.
#[derive(Clone, Debug, PartialEq)]
#[rustfmt::skip]
pub enum Op {
    StatFs,
    Lookup { at: At },
    Parent { dir: Node },
    GetAttr { node: Node, handle: Option<Handle> },
    SetAttr { node: Node, change: SetAttr },
    SetSealed { node: Node, sealed: bool },
    ReadLink { node: Node },
    MakeNode { at: At, kind: NodeKind, mode: Mode, caller: usize },
    Unlink { at: At },
    RemoveDir { at: At },
    RemoveTree { at: At },
    Rename { from: At, to: At, mode: RenameMode },
    Link { node: Node, at: At },
    Open { node: Node, flags: OpenFlags },
    Create { at: At, mode: Mode, flags: OpenFlags, caller: usize },
    MakeTemporary { dir: Node, mode: Mode, flags: OpenFlags, caller: usize },
    Read { handle: Handle, offset: u64, len: u32 },
    Write { handle: Handle, offset: u64, len: usize, fill: u8 },
    Flush { handle: Handle },
    Fsync { handle: Handle, data_only: bool },
    Release { handle: Handle },
    Fallocate { handle: Handle, mode: FallocateMode, range: ByteRange },
    Seek { handle: Handle, offset: u64, whence: SeekWhence },
    CopyRange { from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: u64 },
    OpenDir { node: Node },
    ReadDir { handle: Handle, limit: usize, plus: bool },
    SyncDir { handle: Handle },
    SyncFs,
    GetXattr { node: Node, name: &'static str },
    SetXattr { node: Node, name: &'static str, value: Bytes, mode: XattrMode },
    ListXattr { node: Node },
    RemoveXattr { node: Node, name: &'static str },
    GetLock { handle: Handle, space: LockSpace, owner: u64, kind: LockKind, range: ByteRange },
    SetLock { handle: Handle, space: LockSpace, owner: u64, kind: LockKind, range: ByteRange },
}

/// How often each group of calls comes, relative to the others; 0 is never.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// lookup, make_node, link, unlink, remove_dir, rename.
    pub names: u32,
    pub attributes: u32,
    /// open, create, make_temporary, release.
    pub handles: u32,
    /// read, write, fallocate, seek, copy_range.
    pub data: u32,
    pub listings: u32,
    pub xattrs: u32,
    /// The policy is among the extended attributes: ours, and in no standard.
    pub policies: bool,
    pub locks: u32,
    /// flush, fsync, sync_dir, sync_fs.
    pub syncs: u32,
    /// Sealing and, more often, unsealing.
    pub seals: u32,
    /// remove_tree.
    pub trees: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Weights {
            names: 30,
            attributes: 12,
            handles: 14,
            data: 24,
            listings: 4,
            xattrs: 8,
            policies: true,
            locks: 5,
            syncs: 3,
            seals: 4,
            trees: 0,
        }
    }
}

const NAMES: [&str; 6] = ["a", "b", "c", "dir", "x y", "\u{fc}ml\u{e4}ut"];
const POLICY: &str = "user.braid.policy";
const XATTRS: [&str; 8] = [
    "user.one",
    "user.two",
    "trusted.t",
    "security.s",
    "system.posix_acl_access",
    "system.posix_acl_default",
    POLICY,
    "wrong",
];
const OFFSETS: [u64; 9] = [0, 1, 100, 4095, 4096, 8192, 10_000, 65_536, 1 << 20];
const LENGTHS: [usize; 7] = [0, 1, 10, 4096, 4097, 8192, 20_000];

/// Makes one operation of a group.
type Maker = fn(&mut Stream) -> Op;

/// An endless stream of operations from a seed.
pub struct Stream {
    random: StdRng,
    weights: Weights,
}

impl Stream {
    pub fn new(seed: u64, weights: Weights) -> Self {
        Stream { random: StdRng::seed_from_u64(seed), weights }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())].clone()
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }

    fn any(&mut self) -> usize {
        self.random.random_range(0..1 << 16)
    }

    fn at(&mut self) -> At {
        (self.any(), self.pick(&NAMES))
    }

    fn mode(&mut self) -> Mode {
        self.pick(&[Mode(0o644), Mode(0o600), Mode(0o777), Mode(0o2775), Mode(0o4755), Mode(0o1777), Mode(0)])
    }

    fn offset(&mut self) -> u64 {
        if self.one_in(200) { FILE_BYTES_MAX - 5 } else { self.pick(&OFFSETS) }
    }

    fn range(&mut self) -> ByteRange {
        let (start, len) = (self.offset(), self.pick(&LENGTHS) as u64);
        ByteRange::at(start, len)
    }

    fn open_flags(&mut self) -> OpenFlags {
        let write = !self.one_in(4);
        OpenFlags {
            read: !write || !self.one_in(3),
            write,
            append: write && self.one_in(5),
            truncate: write && self.one_in(6),
            exclusive: self.one_in(4),
            sync: self.one_in(10),
            direct: self.one_in(10),
        }
    }

    fn names(&mut self) -> Op {
        match self.random.random_range(0..12) {
            0 | 1 => Op::Lookup { at: self.at() },
            2 => Op::Parent { dir: self.any() },
            3..6 => {
                let special = [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
                let kind = match self.random.random_range(0..10) {
                    0..3 => NodeKind::File,
                    3..8 => NodeKind::Directory,
                    8 => NodeKind::Symlink(Bytes::from_static(b"a/b")),
                    _ => NodeKind::Special(self.pick(&special), DeviceId(0x0103)),
                };
                Op::MakeNode { at: self.at(), kind, mode: self.mode(), caller: self.any() }
            }
            6 | 7 => Op::Unlink { at: self.at() },
            8 => Op::RemoveDir { at: self.at() },
            9 => Op::Link { node: self.any(), at: self.at() },
            _ => {
                let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                Op::Rename { from: self.at(), to: self.at(), mode: self.pick(&modes) }
            }
        }
    }

    fn attributes(&mut self) -> Op {
        let node = self.any();
        match self.random.random_range(0..8) {
            0 => Op::StatFs,
            1 => Op::ReadLink { node },
            2 | 3 => Op::GetAttr { node, handle: None },
            _ => {
                let size = self.offset();
                let times = [TimeOrNow::Now, TimeOrNow::At(Timestamp(5)), TimeOrNow::At(Timestamp(-7_000_000_000))];
                let time = self.pick(&times);
                let all = SetAttr {
                    mode: Some(self.mode()),
                    uid: Some(1000),
                    gid: Some(100),
                    size: Some(size),
                    atime: Some(time),
                    mtime: Some(time),
                    kill_privileges: true,
                };
                let none = SetAttr::default();
                let change = match self.random.random_range(0..8) {
                    0 => none,
                    1 | 2 => SetAttr { mode: all.mode, ..none },
                    3 => SetAttr { uid: all.uid, gid: all.gid, kill_privileges: true, ..none },
                    4 | 5 => SetAttr { size: all.size, ..none },
                    6 => SetAttr { atime: all.atime, mtime: all.mtime, ..none },
                    _ => all,
                };
                Op::SetAttr { node, change }
            }
        }
    }

    fn handles(&mut self) -> Op {
        let (flags, caller) = (self.open_flags(), self.any());
        match self.random.random_range(0..10) {
            0..3 => Op::Open { node: self.any(), flags },
            3..6 => Op::Create { at: self.at(), mode: self.mode(), flags, caller },
            6 => Op::MakeTemporary { dir: self.any(), mode: self.mode(), flags, caller },
            _ => Op::Release { handle: self.any() },
        }
    }

    fn data(&mut self) -> Op {
        let handle = self.any();
        match self.random.random_range(0..12) {
            0..3 => Op::Read { handle, offset: self.offset(), len: self.pick(&LENGTHS) as u32 },
            3..8 => {
                let fill = self.random.random_range(1..=255);
                Op::Write { handle, offset: self.offset(), len: self.pick(&LENGTHS), fill }
            }
            8 => {
                let modes = [
                    FallocateMode::Allocate,
                    FallocateMode::AllocateKeepSize,
                    FallocateMode::PunchHole,
                    FallocateMode::ZeroRange { keep_size: false },
                    FallocateMode::ZeroRange { keep_size: true },
                ];
                Op::Fallocate { handle, mode: self.pick(&modes), range: self.range() }
            }
            9 | 10 => {
                let whence = self.pick(&[SeekWhence::Data, SeekWhence::Hole]);
                Op::Seek { handle, offset: self.offset(), whence }
            }
            _ => Op::CopyRange {
                from: handle,
                from_offset: self.offset(),
                to: self.any(),
                to_offset: self.offset(),
                len: self.pick(&LENGTHS) as u64,
            },
        }
    }

    fn xattr_value(&mut self, name: &str) -> Bytes {
        if name.as_bytes() == acl::ACCESS || name.as_bytes() == acl::DEFAULT {
            let allowed = [7, 6, 5, 4, 0];
            let mut entry = |who| Entry { who, allowed: self.pick(&allowed) };
            let mut entries = vec![entry(Who::Owner), entry(Who::OwningGroup), entry(Who::Others)];
            if self.one_in(2) {
                let mut entry = |who| Entry { who, allowed: self.pick(&allowed) };
                entries.insert(1, entry(Who::User(1000)));
                entries.insert(3, entry(Who::Mask));
            }
            return match Acl::new(entries) {
                Ok(list) if !self.one_in(8) => list.to_bytes().into(),
                _ => Bytes::from_static(b"\x02\0\0\0"),
            };
        }
        let values = ["", "v", "plain", "replica:3", "rain:4+2", "raid9"];
        if self.one_in(50) { vec![7; (64 << 10) + 1].into() } else { self.pick(&values).into() }
    }

    fn xattrs(&mut self) -> Op {
        let (node, mut name) = (self.any(), self.pick(&XATTRS));
        while name == POLICY && !self.weights.policies {
            name = self.pick(&XATTRS);
        }
        match self.random.random_range(0..8) {
            0 | 1 => Op::GetXattr { node, name },
            2 => Op::ListXattr { node },
            3 => Op::RemoveXattr { node, name },
            _ => {
                let modes = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                Op::SetXattr { node, name, value: self.xattr_value(name), mode: self.pick(&modes) }
            }
        }
    }

    fn locks(&mut self) -> Op {
        let handle = self.any();
        let space = self.pick(&[LockSpace::Posix, LockSpace::Posix, LockSpace::Flock]);
        let kind = self.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
        let owner = self.random.random_range(1..4);
        let range = ByteRange::at(self.random.random_range(0..8), self.random.random_range(1..8));
        if self.one_in(4) {
            Op::GetLock { handle, space, owner, kind, range }
        } else {
            Op::SetLock { handle, space, owner, kind, range }
        }
    }
}

impl Iterator for Stream {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let w = self.weights;
        let groups: [(u32, Maker); 10] = [
            (w.names, Stream::names),
            (w.attributes, Stream::attributes),
            (w.handles, Stream::handles),
            (w.data, Stream::data),
            (w.listings, |s| match s.one_in(3) {
                true => Op::OpenDir { node: s.any() },
                false => Op::ReadDir { handle: s.any(), limit: s.pick(&[1, 2, 100]), plus: s.one_in(2) },
            }),
            (w.xattrs, Stream::xattrs),
            (w.locks, Stream::locks),
            (w.syncs, |s| match s.random.random_range(0..4) {
                0 => Op::Flush { handle: s.any() },
                1 => Op::Fsync { handle: s.any(), data_only: s.one_in(2) },
                2 => Op::SyncDir { handle: s.any() },
                _ => Op::SyncFs,
            }),
            (w.seals, |s| Op::SetSealed { node: s.any(), sealed: s.one_in(10) }),
            (w.trees, |s| Op::RemoveTree { at: s.at() }),
        ];
        let total: u32 = groups.iter().map(|(weight, _)| weight).sum();
        let mut point = self.random.random_range(0..total.max(1));
        for (weight, make) in groups {
            if point < weight {
                return Some(make(self));
            }
            point -= weight;
        }
        None
    }
}
