//! rmdir: emptiness is proved by the directory's own row, which counts its entries. Or with all that is in it: see `remove_tree`.

use super::make_node::count_entry;
use super::remove_tree::bury;
use super::snapshot::expect_no_snapshots;
use crate::rows::{Inode, flags, keys};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::Code;
use braid_api::meta::{RemoveDir, UnlinkAnswer};
use braid_meta_engine::Key;

impl Mutation for RemoveDir {
    type Answer = UnlinkAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::parent_and_entry(&self.parent, &self.name)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<UnlinkAnswer, OpError> {
        let mut parent = unit.find_dir(&self.parent).await?;
        let Some(found) = unit.find_entry(parent.inode.id, &self.name).await? else {
            return Err(Code::NotFound.into());
        };
        if !found.inode.is_dir() {
            return Err(Code::NotDirectory.into());
        }
        cx.expect(0, found.inode.id)?;
        expect_no_snapshots(unit, &found.inode, self.tree && found.inode.size > 0).await?;
        unit.delete(keys::entry(parent.inode.id, &self.name));
        let mut attr = found.inode.attr();
        attr.nlink = 0;
        if self.tree && found.inode.size > 0 {
            bury(unit, cx.now, found.inode);
        } else {
            drop_dir(unit, found.inode).await?;
        }
        count_entry(&mut parent.inode, cx.now, -1, true);
        unit.store(&parent);
        Ok(UnlinkAnswer { attr, dir: parent.inode.attr().into() })
    }
}

/// Frees an empty directory; its entry has been deleted or replaced by the caller.
pub(super) async fn drop_dir(unit: &mut Unit<'_>, dir: Inode) -> Result<(), OpError> {
    if dir.size > 0 || dir.has(flags::DEAD) {
        return Err(Code::NotEmpty.into());
    }
    if dir.policy_root == dir.id {
        unit.delete(keys::policy(dir.id));
    }
    super::free::destroy(unit, &dir).await
}
