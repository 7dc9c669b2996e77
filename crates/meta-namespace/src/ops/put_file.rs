//! A whole inline file in one message.

use super::content::{policy_of, put_inline};
use super::make_node::{add_entry, new_inode};
use super::unlink::drop_link;
use crate::rows::{Entry, keys};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::meta::{EntryAnswer, Grant, PutFile};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{FileKind, INLINE_BYTES_MAX};

impl Mutation for PutFile {
    type Answer = EntryAnswer;

    fn first_keys(&self) -> Vec<Key> {
        super::parent_and_entry(&self.parent, &self.name)
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<EntryAnswer, OpError> {
        if self.spec.kind != FileKind::File || self.data.len() > INLINE_BYTES_MAX as usize {
            return Err(Error::new(Code::Invalid, &self.name, "put_file takes a file of at most 64 KiB").into());
        }
        let mut parent = unit.find_dir(&self.parent).await?;
        let mut replaced = None;
        if let Some(found) = unit.find_entry(parent.inode.id, &self.name).await? {
            if !self.replace {
                return Err(Code::Exists.into());
            }
            super::open::expect_file(&found.inode)?;
            cx.expect(0, found.inode.id)?;
            replaced = Some(drop_link(unit, cx, found, self.open_here).await?.attr());
            parent.inode.size = parent.inode.size.saturating_sub(1);
            unit.delete(keys::entry(parent.inode.id, &self.name));
        }
        let mut inode = new_inode(unit, cx, &parent.inode, &self.spec).await?;
        cx.expect_copies(inode.id, &policy_of(&inode))?;
        put_inline(unit, &mut inode, &self.data);
        inode.size = self.data.len() as u64;
        let key = keys::entry(parent.inode.id, &self.name);
        if self.replace {
            // The name may have been there in this very transaction, so absence needs no proof.
            add_entry(unit, cx, &mut parent, &self.name, &inode);
            unit.put(key, &Entry::Here(inode.clone()));
        } else {
            add_entry(unit, cx, &mut parent, &self.name, &inode);
        }
        Ok(EntryAnswer {
            attr: inode.attr(),
            grant: Grant::default(),
            dir: parent.inode.attr().into(),
            empty: false,
            replaced,
        })
    }
}
