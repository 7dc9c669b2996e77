//! Policies: a row for each directory that has one of its own, and in every inode the directory whose policy
//! holds (`policy_root`). A file keeps the policy it was made under.

use crate::rows::{IdRow, Inode, PolicyRow, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{GetPolicy, PolicyAnswer, SetPolicy};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{InodeId, Layout, Medium, Policy};

/// The policy for what is made in `dir` now.
pub(super) async fn in_force(unit: &mut Unit<'_>, dir: &Inode) -> Result<Policy, OpError> {
    let (policy, root) = in_force_from(unit, dir).await?;
    unit.policy_of = Some((dir.id, root));
    Ok(policy)
}

/// With the directory that has it.
async fn in_force_from(unit: &mut Unit<'_>, dir: &Inode) -> Result<(Policy, InodeId), OpError> {
    let (mut root, mut at) = (dir.policy_root, dir.id);
    for _ in 0..DEPTH_MAX {
        // Whatever is made below it reads it.
        if let Some(row) = unit.get_shared::<PolicyRow>(&keys::policy(root)).await? {
            return Ok((row.policy, root));
        }
        // It was moved away from the directory whose policy held for it, and that has been removed, or lost its policy while
        // directories below it were being told. What holds where it is now holds for it.
        match unit.get(&keys::inode_id(at)).await? {
            Some(IdRow::At { parent, .. }) => {
                root = unit.find(&parent.into()).await?.inode.policy_root;
                at = parent;
            }
            // In a tree that was removed and is being emptied.
            Some(IdRow::Attributes(_)) => return Err(Code::NotFound.into()),
            None => break,
        }
    }
    Err(Error::new(
        Code::Internal,
        format_args!("directory {}", dir.id),
        format_args!("the policy of directory {} is missing; run braid admin fsck", dir.policy_root),
    )
    .into())
}

/// As in `rename`.
const DEPTH_MAX: usize = 1 << 16;

impl Query for GetPolicy {
    type Answer = PolicyAnswer;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<PolicyAnswer, OpError> {
        let inode = unit.find(&self.inode).await?.inode;
        let (policy, root) = match inode.policy {
            Some(policy) => (policy, inode.policy_root),
            None => in_force_from(unit, &inode).await?,
        };
        Ok(PolicyAnswer { policy, root })
    }
}

/// Refuses what no data server of this version can store, before a file is made that nobody can write.
pub fn check_served(policy: &Policy) -> Result<(), OpError> {
    let cause = match policy.layout {
        // A chain of one must have been one from the start: its server orders writes without a lease of the leader.
        Layout::Replica { copies } if copies > 1 && policy.min_copies() < 2 => {
            "several copies need min_copies of at least 2 in this version"
        }
        Layout::Replica { .. } if policy.medium == Medium::Disk => return Ok(()),
        _ => "this version serves plain and replica:N on disk; rain and memory come later",
    };
    Err(Error::new(Code::NotSupported, format_args!("policy {policy}"), cause).into())
}

/// The policy as clients are told it: bytes beside a row are on as many disks as the row, and where that is fewer than the policy
/// promises they go to chunks (design.md §4 *Embedded engine*). The row keeps what was asked for: how many copies of the rows
/// there are changes.
pub fn as_served(policy: Policy, row_copies: usize) -> Policy {
    if policy.min_copies() > row_copies { Policy { inline_bytes: 0, ..policy } } else { policy }
}

/// Changes the directory itself, and lists it: [`super::spread::SpreadPolicy`] then goes through the directories below.
impl Mutation for SetPolicy {
    type Answer = ();

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        first.push(keys::policy(self.inode.id));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<(), OpError> {
        if let Some(policy) = &self.policy {
            check_served(policy)?;
        }
        let mut dir = unit.find_dir(&self.inode).await?;
        let id = dir.inode.id;
        match self.policy {
            Some(policy) => {
                unit.put(keys::policy(id), &PolicyRow { policy });
                dir.inode.policy_root = id;
            }
            None if id == InodeId::ROOT => {
                return Err(Error::new(Code::Invalid, "the root directory", "it must have a policy").into());
            }
            None => {
                let crate::Place::Entry(parent, _) = &dir.place else { return Err(Code::Internal.into()) };
                let parent = unit.find(&(*parent).into()).await?;
                unit.delete(keys::policy(id));
                dir.inode.policy_root = parent.inode.policy_root;
            }
        }
        dir.inode.change(cx.now);
        unit.store(&dir);
        unit.list_spread(id, id);
        Ok(())
    }
}
