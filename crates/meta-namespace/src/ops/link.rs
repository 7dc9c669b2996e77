//! Hard links. The second name of a file moves its attributes to `inode_ids`, where they stay for ever.

use super::make_node::count_entry;
use super::seal::expect_unsealed;
use super::snapshot::expect_to_link;
use crate::rows::{Entry, flags, keys};
use crate::{Mutation, OpContext, OpError, Place, Unit};
use braid_api::Code;
use braid_api::meta::{EntryAnswer, Grant, Link};
use braid_meta_engine::Key;

/// As many as ext4 allows.
const LINKS_MAX: u32 = 65_000;

impl Mutation for Link {
    type Answer = EntryAnswer;

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::parent_and_entry(&self.parent, &self.name);
        first.extend(super::keys_of(&self.inode));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<EntryAnswer, OpError> {
        let mut parent = unit.find_dir(&self.parent).await?;
        let mut located = match unit.find(&self.inode).await {
            Err(OpError(e)) if e.code == Code::Stale => return Err(Code::NotFound.into()),
            other => other?,
        };
        if located.inode.is_dir() {
            return Err(Code::NotPermitted.into());
        }
        if unit.get::<Entry>(&keys::entry(parent.inode.id, &self.name)).await?.is_some() {
            return Err(Code::Exists.into());
        }
        expect_unsealed(&located.inode)?;
        if located.inode.nlink >= LINKS_MAX {
            return Err(Code::TooManyLinks.into());
        }
        expect_to_link(unit, &located, &parent.inode).await?;
        let pointer = Entry::Elsewhere { id: located.inode.id, kind: located.inode.kind };
        if let Place::Entry(at, Some(name)) = &located.place {
            unit.put(keys::entry(*at, name), &pointer);
        }
        if located.inode.nlink == 0 {
            // A file of O_TMPFILE gets its first name. One whose last name has gone has gone for everybody who looks for it: a link that came
            // after its removal was answered would bring it back.
            if !located.inode.has(flags::NAMELESS) {
                return Err(Code::NotFound.into());
            }
            located.inode.set(flags::NAMELESS, false);
            unit.delete(keys::orphan(located.inode.id));
            located.inode.quota_roots = parent.inode.quota_roots.clone();
            located.inode.snapshot_root = parent.inode.snapshot_root;
        }
        if located.inode.snapshot_root.0 == 0 {
            located.inode.snapshot_root = parent.inode.snapshot_root;
        }
        located.place = Place::Id;
        located.inode.nlink += 1;
        located.inode.change(cx.now);
        unit.store(&located);
        unit.insert(keys::entry(parent.inode.id, &self.name), &pointer);
        count_entry(&mut parent.inode, cx.now, 1, false);
        unit.store(&parent);
        Ok(EntryAnswer {
            attr: located.inode.attr(),
            grant: Grant::default(),
            dir: parent.inode.attr().into(),
            empty: false,
            replaced: None,
        })
    }
}
