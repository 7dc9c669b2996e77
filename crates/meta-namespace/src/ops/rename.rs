//! rename and its two variants. Moves one row, whatever hangs below it.
//!
//! A directory that goes to another parent takes the row `rename_lock`, so that no two renames can each make the
//! other's destination its own descendant, and walks up from the destination: meeting the moved directory there
//! is EINVAL.

use super::make_node::count_entry;
use super::remove_dir::drop_dir;
use super::restamp::{Above, come_below, expect_depth, gained};
use super::seal::expect_unsealed;
use super::snapshot::{expect_no_snapshots, expect_to_cross, expect_tree_to_cross};
use super::unlink::drop_link;
use crate::rows::{Entry, IdRow, keys};
use crate::{Located, Mutation, OpContext, OpError, Place, Unit};
use braid_api::meta::{Grant, Rename, RenameAnswer, RenameKind};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{InodeId, Name};

/// Deepest tree: what bounds the walk to the root. PATH_MAX allows 2,048 levels; by relative paths one gets deeper.
const DEPTH_MAX: usize = 1 << 16;

/// A rename, and directories that may be above both of its parents, these the first: right or wrong, what the rows say counts.
#[derive(Clone, Debug)]
pub struct RenameAlong {
    pub rename: Rename,
    pub above_from: Vec<InodeId>,
    pub above_to: Vec<InodeId>,
}

impl Mutation for RenameAlong {
    type Answer = RenameAnswer;

    fn first_keys(&self) -> Vec<Key> {
        let m = &self.rename;
        let mut first = super::parent_and_entry(&m.from, &m.from_name);
        first.extend(super::parent_and_entry(&m.to, &m.to_name));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<RenameAnswer, OpError> {
        let m = &self.rename;
        let same_dir = m.from.id == m.to.id;
        let from = unit.find_dir(&m.from).await?;
        let to = unit.find_dir(&m.to).await?;
        let Some(source) = unit.find_entry(m.from.id, &m.from_name).await? else {
            return Err(Code::NotFound.into());
        };
        let target = unit.find_entry(m.to.id, &m.to_name).await?;
        expect_to_cross(unit, &source, &from, &to).await?;
        if let (RenameKind::Exchange, Some(target)) = (m.mode, &target) {
            expect_to_cross(unit, target, &to, &from).await?;
        }
        match (m.mode, &target) {
            (RenameKind::NoReplace, Some(_)) => return Err(Code::Exists.into()),
            (RenameKind::Exchange, None) => return Err(Code::NotFound.into()),
            _ => {}
        }
        if let Some(t) = &target
            && t.inode.id == source.inode.id
        {
            // Two names of one file, or a name onto itself: POSIX says nothing happens.
            let (moved, grant) = (source.inode.attr(), Grant::default());
            return Ok(RenameAnswer { moved, other: None, grant, dirs: Default::default() });
        }
        expect_unsealed(&source.inode)?;
        if let Some(target) = &target {
            expect_unsealed(&target.inode)?;
        }
        cx.expect(0, source.inode.id)?;
        if let Some(target) = &target {
            cx.expect(1, target.inode.id)?;
        }
        if !same_dir {
            if source.inode.is_dir() {
                expect_not_below(unit, source.inode.id, m.to.id, &self.above_to).await?;
                expect_tree_to_cross(unit, source.inode.id, m.from.id, m.to.id).await?;
            }
            if let (RenameKind::Exchange, Some(t)) = (m.mode, &target)
                && t.inode.is_dir()
            {
                expect_not_below(unit, t.inode.id, m.from.id, &self.above_from).await?;
                expect_tree_to_cross(unit, t.inode.id, m.to.id, m.from.id).await?;
            }
        }
        if from.inode.quota_roots != to.inode.quota_roots {
            // What is below a directory is counted later: it is only known that something comes.
            if source.inode.is_dir() {
                expect_depth(&source.inode, &to.inode.quota_roots)?;
                unit.arrives_below(&gained(&from.inode.quota_roots, &to.inode.quota_roots));
            }
            if let (RenameKind::Exchange, Some(t)) = (m.mode, &target)
                && t.inode.is_dir()
            {
                expect_depth(&t.inode, &from.inode.quota_roots)?;
                unit.arrives_below(&gained(&to.inode.quota_roots, &from.inode.quota_roots));
            }
        }
        let mut dirs = Parents { from, to: if same_dir { None } else { Some(to) } };
        let other = match (m.mode, target) {
            (RenameKind::Exchange, Some(target)) => Some(m.exchange(unit, cx, &mut dirs, &source, target).await?),
            (_, Some(target)) => Some(m.replace(unit, cx, &mut dirs, &source, target).await?),
            (_, None) => None,
        };
        if m.mode != RenameKind::Exchange {
            let is_dir = source.inode.is_dir();
            unit.delete(keys::entry(m.from.id, &m.from_name));
            count_entry(&mut dirs.from.inode, cx.now, -1, is_dir);
            count_entry(&mut dirs.to_mut().inode, cx.now, 1, is_dir);
        }
        let above = Above::of(&dirs.to_mut().inode);
        let moved = place_at(unit, cx, source, (m.to.id, &m.to_name), &above).await?;
        dirs.store(unit);
        let to = dirs.to.map(|to| to.inode.attr().into());
        let dirs = [dirs.from.inode.attr().into(), to.unwrap_or_default()];
        Ok(RenameAnswer { moved: moved.inode.attr(), other, grant: Grant::default(), dirs })
    }
}

/// The one or two directories of a rename. With one, both names change the same row.
struct Parents {
    from: Located,
    to: Option<Located>,
}

impl Parents {
    fn to_mut(&mut self) -> &mut Located {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn store(&self, unit: &mut Unit<'_>) {
        unit.store(&self.from);
        if let Some(to) = &self.to {
            unit.store(to);
        }
    }
}

trait Steps {
    async fn exchange(
        &self,
        unit: &mut Unit<'_>,
        cx: &OpContext,
        dirs: &mut Parents,
        source: &Located,
        target: Located,
    ) -> Result<braid_types::Attr, OpError>;

    async fn replace(
        &self,
        unit: &mut Unit<'_>,
        cx: &OpContext,
        dirs: &mut Parents,
        source: &Located,
        target: Located,
    ) -> Result<braid_types::Attr, OpError>;
}

impl Steps for Rename {
    /// Puts the target where the source was; the caller puts the source where the target was.
    async fn exchange(
        &self,
        unit: &mut Unit<'_>,
        cx: &OpContext,
        dirs: &mut Parents,
        source: &Located,
        target: Located,
    ) -> Result<braid_types::Attr, OpError> {
        let (source_dir, target_dir) = (source.inode.is_dir(), target.inode.is_dir());
        dirs.from.inode.touch(cx.now);
        dirs.to_mut().inode.touch(cx.now);
        if source_dir != target_dir {
            let by: i32 = if source_dir { 1 } else { -1 };
            let from = &mut dirs.from.inode;
            from.nlink = from.nlink.saturating_add_signed(-by);
            let to = &mut dirs.to_mut().inode;
            to.nlink = to.nlink.saturating_add_signed(by);
        }
        let above = Above::of(&dirs.from.inode);
        let moved = place_at(unit, cx, target, (self.from.id, &self.from_name), &above).await?;
        Ok(moved.inode.attr())
    }

    /// Lets go of what had the new name.
    async fn replace(
        &self,
        unit: &mut Unit<'_>,
        cx: &OpContext,
        dirs: &mut Parents,
        source: &Located,
        target: Located,
    ) -> Result<braid_types::Attr, OpError> {
        match (source.inode.is_dir(), target.inode.is_dir()) {
            (true, false) => Err(Code::NotDirectory.into()),
            (false, true) => Err(Code::IsDirectory.into()),
            (true, true) => {
                let mut attr = target.inode.attr();
                expect_no_snapshots(unit, &target.inode, false).await?;
                drop_dir(unit, target.inode).await?;
                attr.nlink = 0;
                count_entry(&mut dirs.to_mut().inode, cx.now, -1, true);
                Ok(attr)
            }
            (false, false) => {
                let inode = drop_link(unit, cx, target, self.open_here).await?;
                count_entry(&mut dirs.to_mut().inode, cx.now, -1, false);
                Ok(inode.attr())
            }
        }
    }
}

/// Writes the inode's row, or the entry that leads to it, under a new place, in a directory that gives it what is `above`. Also where both
/// places have the same: a directory that is being looked through may have been passed where the inode goes, and not where it was.
async fn place_at(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    mut moved: Located,
    (parent, name): (InodeId, &Name),
    above: &Above,
) -> Result<Located, OpError> {
    moved.inode.change(cx.now);
    come_below(unit, &mut moved.inode, above).await?;
    match &moved.place {
        Place::Id => {
            let entry = Entry::Elsewhere { id: moved.inode.id, kind: moved.inode.kind };
            unit.put(keys::entry(parent, name), &entry);
        }
        Place::Entry(..) => {
            moved.place = Place::Entry(parent, Some(name.clone()));
            let row = IdRow::At { parent, name: name.as_bytes().to_vec() };
            unit.put(keys::inode_id(moved.inode.id), &row);
        }
    }
    unit.store(&moved);
    Ok(moved)
}

/// Fails if `dir` is `top` or lies below it.
///
/// The lock and the whole way up are one round trip where `above` is right. Rows are locked in the order of their tables, so the lock
/// comes before what it guards.
async fn expect_not_below(unit: &mut Unit<'_>, top: InodeId, dir: InodeId, above: &[InodeId]) -> Result<(), OpError> {
    let lock = keys::global("rename_lock");
    let way = above.iter().filter(|id| **id != InodeId::ROOT).map(|id| keys::inode_id(*id));
    unit.load(&way.chain([lock.clone()]).collect::<Vec<_>>()).await?;
    // Written, so that engines whose locks do not reach everywhere see two renames collide.
    unit.put_raw(lock, vec![1]);
    let mut at = dir;
    for _ in 0..DEPTH_MAX {
        if at == top {
            return Err(Code::Invalid.into());
        }
        if at == InodeId::ROOT {
            return Ok(());
        }
        match unit.get::<IdRow>(&keys::inode_id(at)).await? {
            Some(IdRow::At { parent, .. }) => at = parent,
            _ => return Err(Code::NotFound.into()),
        }
    }
    Err(Error::new(Code::Internal, format_args!("directory {dir}"), "no way to the root; run braid admin fsck").into())
}
