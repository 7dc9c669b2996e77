//! Removing a name that is no directory's.

use super::free::let_go;
use super::make_node::count_entry;
use super::seal::expect_unsealed;
use crate::rows::{Inode, keys};
use crate::{Located, Mutation, OpContext, OpError, Place, Unit};
use braid_api::Code;
use braid_api::meta::{Unlink, UnlinkAnswer};
use braid_meta_engine::Key;

impl Mutation for Unlink {
    type Answer = UnlinkAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::parent_and_entry(&self.parent, &self.name)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<UnlinkAnswer, OpError> {
        let mut parent = unit.find_dir(&self.parent).await?;
        let Some(found) = unit.find_entry(parent.inode.id, &self.name).await? else {
            return Err(Code::NotFound.into());
        };
        if found.inode.is_dir() {
            return Err(Code::IsDirectory.into());
        }
        expect_unsealed(&found.inode)?;
        cx.expect(0, found.inode.id)?;
        unit.delete(keys::entry(parent.inode.id, &self.name));
        let inode = drop_link(unit, cx, found, self.open_here).await?;
        count_entry(&mut parent.inode, cx.now, -1, false);
        unit.store(&parent);
        Ok(UnlinkAnswer { attr: inode.attr(), dir: parent.inode.attr().into() })
    }
}

/// One name less for an inode that is no directory; its entry has been deleted or replaced by the caller.
pub(super) async fn drop_link(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    mut found: Located,
    open_here: bool,
) -> Result<Inode, OpError> {
    expect_unsealed(&found.inode)?;
    if found.place == Place::Id && found.inode.nlink > 1 {
        found.inode.nlink -= 1;
        found.inode.change(cx.now);
        unit.store(&found);
        return Ok(found.inode);
    }
    let_go(unit, cx, found.inode, open_here).await
}
