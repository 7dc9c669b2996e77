//! chmod, chown, utimens, truncate: one message, one transaction.

use super::attr::attr_answer;
use super::free::{forget_cuts, truncate};
use super::seal::expect_unsealed;
use super::{acl, content};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::Code;
use braid_api::meta::{AttrAnswer, ChangeAttr, NewTime};
use braid_meta_engine::Key;
use braid_types::{FileKind, Timestamp};

impl Mutation for ChangeAttr {
    type Answer = AttrAnswer;

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        if self.size.is_some() {
            first.extend(content::keys_ahead(self.inode.id));
        }
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<AttrAnswer, OpError> {
        let mut located = unit.find(&self.inode).await?;
        let inode = &mut located.inode;
        expect_unsealed(inode)?;
        forget_cuts(inode, self.cuts_applied);
        if let Some(size) = self.size {
            match inode.kind {
                FileKind::File => {}
                FileKind::Directory => return Err(Code::IsDirectory.into()),
                _ => return Err(Code::Invalid.into()),
            }
            truncate(unit, inode, size).await?;
            inode.touch(cx.now);
        }
        if let Some(uid) = self.uid {
            unit.exempt_users();
            inode.uid = uid;
        }
        if let Some(gid) = self.gid {
            inode.gid = gid;
        }
        if let Some(mode) = self.mode {
            inode.mode = mode;
            acl::follow_chmod(unit, inode).await?;
        }
        // On a directory these bits mean something else and stay, as in Linux.
        if self.kill_privileges && inode.kind != FileKind::Directory {
            inode.kill_privileges();
        }
        let time = |new: NewTime| -> Timestamp {
            match new {
                NewTime::Now => cx.now,
                NewTime::At(t) => t,
            }
        };
        if let Some(atime) = self.atime {
            inode.atime = time(atime);
        }
        if let Some(mtime) = self.mtime {
            inode.mtime = time(mtime);
        }
        // An atime alone that a reader reports (relatime) is no change of status; utimens sets both or asks for
        // a ctime through the kernel, which this cannot tell apart, so only a change of nothing leaves ctime.
        inode.change(cx.now);
        unit.store(&located);
        Ok(attr_answer(&self.inode, &located))
    }
}
