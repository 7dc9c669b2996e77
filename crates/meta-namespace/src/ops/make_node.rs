//! mkdir, mknod, symlink: what is made without being opened.

use super::{acl, policy};
use crate::rows::{Charge, Entry, IdRow, InlineState, Inode, flags, keys};
use crate::{Located, Mutation, OpContext, OpError, Unit};
use braid_api::meta::{EntryAnswer, Grant, MakeNode, NodeSpec, SHARED_XATTR};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::*;
use bytes::Bytes;

/// Longest target of a symbolic link: PATH_MAX without its NUL.
const TARGET_BYTES_MAX: usize = 4095;

/// A new inode below `parent`, as POSIX wants it: owner from the caller, group from a setgid parent, mode under
/// the umask or the parent's default ACL. Not written yet.
pub(super) async fn new_inode(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    parent: &Inode,
    spec: &NodeSpec,
) -> Result<Inode, OpError> {
    let is_dir = spec.kind == FileKind::Directory;
    if spec.kind == FileKind::Symlink && (spec.target.is_empty() || spec.target.len() > TARGET_BYTES_MAX) {
        return Err(if spec.target.is_empty() { Code::NotFound } else { Code::NameTooLong }.into());
    }
    let setgid = parent.mode.has(Mode::SETGID);
    let id = cx.new_id(parent.id, is_dir);
    let mut mode = spec.mode;
    if setgid && is_dir {
        mode.0 |= Mode::SETGID;
    }
    if cx.limits {
        let gid = if setgid { parent.gid } else { spec.gid };
        let charge = Charge { roots: parent.quota_roots.clone(), uid: spec.uid, gid, bytes: 0 };
        let with = (spec.kind == FileKind::File).then(|| keys::policy(parent.policy_root));
        unit.read_accounts(charge.payers(), with).await?;
    }
    let policy = if spec.kind == FileKind::File { Some(policy::in_force(unit, parent).await?) } else { None };
    let mut inode = Inode {
        id,
        kind: spec.kind,
        mode,
        uid: spec.uid,
        gid: if setgid { parent.gid } else { spec.gid },
        rdev: spec.rdev,
        nlink: if is_dir { 2 } else { 1 },
        size: if spec.kind == FileKind::Symlink { spec.target.len() as u64 } else { 0 },
        atime: cx.now,
        mtime: cx.now,
        ctime: cx.now,
        btime: cx.now,
        flags: 0,
        inline: InlineState::None,
        trunc_gen: TruncGen(0),
        cuts: Vec::new(),
        layout_gen: LayoutGen(0),
        lease_gen: LeaseGen(0),
        policy_root: parent.policy_root,
        policy,
        quota_roots: parent.quota_roots.clone(),
        room: 0,
        snapshot_root: parent.snapshot_root,
        born: 0,
        changed: 0,
        target: if spec.kind == FileKind::Symlink { spec.target.clone() } else { Bytes::new() },
    };
    acl::inherit(unit, parent, &mut inode, spec.umask).await?;
    if parent.has(flags::SHARED) && matches!(spec.kind, FileKind::File | FileKind::Directory) {
        unit.put_raw(keys::xattr(id, SHARED_XATTR), b"1".to_vec());
        inode.set(flags::XATTRS | flags::SHARED, true);
    }
    Ok(inode)
}

/// Adds the name to its directory, which counts it and keeps the time: this write of the parent's row is what
/// proves a directory empty to whoever removes it.
pub(super) fn add_entry(unit: &mut Unit<'_>, cx: &OpContext, parent: &mut Located, name: &Name, inode: &Inode) {
    unit.insert(keys::entry(parent.inode.id, name), &Entry::Here(inode.clone()));
    unit.put(keys::inode_id(inode.id), &IdRow::At { parent: parent.inode.id, name: name.as_bytes().to_vec() });
    count_entry(&mut parent.inode, cx.now, 1, inode.is_dir());
    unit.store(parent);
}

/// One entry more or less in a directory, and its link count if the entry is a directory.
pub(super) fn count_entry(parent: &mut Inode, now: Timestamp, by: i64, is_dir: bool) {
    parent.size = parent.size.saturating_add_signed(by);
    if is_dir {
        parent.nlink = parent.nlink.saturating_add_signed(by as i32);
    }
    parent.touch(now);
}

impl Mutation for MakeNode {
    type Answer = EntryAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::parent_and_entry(&self.parent, &self.name)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<EntryAnswer, OpError> {
        let mut parent = unit.find_dir(&self.parent).await?;
        if unit.get::<Entry>(&keys::entry(parent.inode.id, &self.name)).await?.is_some() {
            return Err(Code::Exists.into());
        }
        let is_dir = self.spec.kind == FileKind::Directory;
        if is_dir && parent.inode.nlink >= u32::MAX - 1 {
            return Err(Error::new(Code::TooManyLinks, format_args!("directory {}", parent.inode.id), "").into());
        }
        let inode = new_inode(unit, cx, &parent.inode, &self.spec).await?;
        add_entry(unit, cx, &mut parent, &self.name, &inode);
        Ok(EntryAnswer {
            attr: inode.attr(),
            grant: Grant::default(),
            dir: parent.inode.attr().into(),
            empty: false,
            replaced: None,
        })
    }
}
