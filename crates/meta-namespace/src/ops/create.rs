//! open with O_CREAT, and O_TMPFILE.

use super::content::keys_ahead;
use super::free::truncate;
use super::make_node::{add_entry, new_inode};
use super::open::{expect_file, open_answer};
use super::room;
use super::seal::expect_unsealed;
use crate::rows::{IdRow, Inode, OrphanRow, flags, keys};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::Code;
use braid_api::meta::{CreateFile, CreateTemporary, OpenAnswer};
use braid_meta_engine::Key;

async fn new_room(unit: &mut Unit<'_>, cx: &OpContext, inode: &mut Inode, write: bool) -> Result<Option<u64>, OpError> {
    if !cx.limits || !write {
        return Ok(None);
    }
    room::first(unit, cx, inode).await?;
    room::opened(unit, inode).await
}

impl Mutation for CreateFile {
    type Answer = OpenAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::parent_and_entry(&self.parent, &self.name)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<OpenAnswer, OpError> {
        let mut parent = unit.find_dir(&self.parent).await?;
        if let Some(mut found) = unit.find_entry(parent.inode.id, &self.name).await? {
            if self.exclusive {
                return Err(Code::Exists.into());
            }
            expect_file(&found.inode)?;
            if self.write || self.truncate {
                expect_unsealed(&found.inode)?;
            }
            unit.load(&keys_ahead(found.inode.id)).await?;
            if self.truncate {
                cx.expect(0, found.inode.id)?;
                truncate(unit, &mut found.inode, 0).await?;
                found.inode.touch(cx.now);
                unit.store(&found);
            }
            let answer = open_answer(unit, &found.inode, false).await?;
            let room = if cx.limits && self.write { room::opened(unit, &found.inode).await? } else { None };
            return Ok(OpenAnswer { room, ..answer });
        }
        let mut inode = new_inode(unit, cx, &parent.inode, &self.spec).await?;
        let room = new_room(unit, cx, &mut inode, self.write).await?;
        add_entry(unit, cx, &mut parent, &self.name, &inode);
        let answer = open_answer(unit, &inode, true).await?;
        Ok(OpenAnswer { dir: parent.inode.attr().into(), room, ..answer })
    }
}

impl Mutation for CreateTemporary {
    type Answer = OpenAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::keys_of(&self.parent)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<OpenAnswer, OpError> {
        let parent = unit.find_dir(&self.parent).await?;
        let mut inode = new_inode(unit, cx, &parent.inode, &self.spec).await?;
        inode.nlink = 0;
        inode.set(flags::NAMELESS, true);
        let room = new_room(unit, cx, &mut inode, true).await?;
        unit.put(keys::inode_id(inode.id), &IdRow::Attributes(inode.clone()));
        unit.put(keys::orphan(inode.id), &OrphanRow { session: cx.session, since: cx.now });
        Ok(OpenAnswer { room, ..open_answer(unit, &inode, true).await? })
    }
}
