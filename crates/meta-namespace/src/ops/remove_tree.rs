//! Removing a directory with all that is in it (design.md §4 *Directories and subtrees*; HopsFS, thesis ch. 6).
//!
//! Promises: one transaction takes the tree out of sight, whatever its size, and lists its directory as one that is to be
//! emptied. It is emptied top-down: a directory is dead, so that nothing is added to it, before it is looked through, and what is in it
//! is taken out a page at a time, each page in one transaction that lists the directories in it as dead in turn. So at every moment each
//! inode has a name, or is listed, and whoever serves the rows next goes on.
//!
//! A dead directory has no name; its row lies in `inode_ids`.

use super::entries::{Entries, locate};
use super::free::destroy;
use super::make_node::count_entry;
use super::repair::free_name;
use super::seal::moves_sealed;
use super::unlink::drop_link;
use crate::rows::{Entry, IdRow, Inode, ReclaimRow, SealedCount, flags, keys};
use crate::{OpContext, OpError, Query, Unit};
use braid_meta_engine::{Key, Lock, Operation, Tx};
use braid_types::{ContainerId, FileKind, InodeId, Name, Timestamp};
use std::collections::HashMap;

/// Takes a directory out of the tree: the caller has deleted its entry.
pub(super) fn bury(unit: &mut Unit<'_>, now: Timestamp, mut dir: Inode) {
    dir.nlink = 0;
    dir.set(flags::DEAD, true);
    dir.change(now);
    unit.put(keys::reclaim_tree(dir.id), &ReclaimRow { container: ContainerId(0) });
    unit.put(keys::inode_id(dir.id), &IdRow::Attributes(dir));
}

/// Some entries of a directory that is to be emptied.
pub struct DeadEntries {
    pub dir: InodeId,
    pub limit: usize,
}

#[derive(Debug, Default)]
pub struct Contents {
    pub entries: Vec<(Name, InodeId, FileKind)>,
    pub more: bool,
}

impl Query for DeadEntries {
    type Answer = Contents;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Contents, OpError> {
        let page = Entries::read(unit, self.dir, None, self.limit).await?;
        let entries = page.list.into_iter().map(|(name, entry)| (name, entry.id(), entry.kind())).collect();
        Ok(Contents { entries, more: page.more })
    }
}

/// Takes these entries out of a dead directory; with the last one the directory goes. What stands for something else by now stays
/// for the next time.
pub struct EmptyTree {
    pub dir: InodeId,
    pub entries: Vec<(Name, InodeId)>,
    /// There was nothing else in it.
    pub all: bool,
    /// There are sessions, which may have open what is in it.
    pub others: bool,
    pub now: Timestamp,
}

#[derive(Debug, Default)]
pub struct Emptied {
    /// Files that have no name any more and may be open.
    pub orphans: Vec<InodeId>,
    /// Directories that were in it, to be emptied in turn.
    pub dirs: Vec<InodeId>,
    /// Files that were sealed, or came here sealed, while the tree was removed: they stay, see [`Rescue`].
    pub sealed: Vec<(Name, InodeId)>,
    /// The directory itself.
    pub gone: bool,
}

impl Operation for EmptyTree {
    type Output = Emptied;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Emptied, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let (row, listed) = (keys::inode_id(self.dir), keys::reclaim_tree(self.dir));
        let names = self.entries.iter().map(|(name, _)| keys::entry(self.dir, name));
        unit.load(&names.chain([row.clone(), listed.clone()]).collect::<Vec<_>>()).await?;
        let mut done = Emptied::default();
        let mut dir = match unit.get::<IdRow>(&row).await? {
            Some(IdRow::Attributes(dir)) if dir.is_dir() && dir.has(flags::DEAD) => dir,
            // By an attempt whose answer was lost.
            _ => {
                unit.delete(listed);
                return Ok(Emptied { gone: true, ..done });
            }
        };
        let cx = OpContext { others: self.others, now: self.now, ..OpContext::default() };
        let elsewhere = self.elsewhere(&mut unit).await?;
        unit.load(&elsewhere).await?;
        let mut all = self.all;
        for (name, id) in &self.entries {
            let Some(found) = unit.find_entry(self.dir, name).await? else { continue };
            if found.inode.id != *id {
                all = false;
                continue;
            }
            if found.inode.has(flags::SEALED) {
                all = false;
                done.sealed.push((name.clone(), *id));
                continue;
            }
            unit.delete(keys::entry(self.dir, name));
            dir.size = dir.size.saturating_sub(1);
            if found.inode.is_dir() {
                bury(&mut unit, self.now, found.inode);
                done.dirs.push(*id);
                continue;
            }
            let gone = drop_link(&mut unit, &cx, found, false).await?;
            if gone.nlink == 0 && gone.is_file() && self.others {
                done.orphans.push(*id);
            }
        }
        if all {
            if dir.policy_root == dir.id {
                unit.delete(keys::policy(dir.id));
            }
            destroy(&mut unit, &dir).await?;
            unit.delete(listed);
            done.gone = true;
        } else {
            unit.put(row, &IdRow::Attributes(dir));
        }
        unit.charge_without_limits().await?;
        Ok(done)
    }
}

impl EmptyTree {
    /// The rows of files with several names, which are not beside these.
    async fn elsewhere(&self, unit: &mut Unit<'_>) -> Result<Vec<Key>, OpError> {
        let mut wanted = Vec::new();
        for (name, _) in &self.entries {
            if let Some(Entry::Elsewhere { id, .. }) = unit.get(&keys::entry(self.dir, name)).await? {
                wanted.push(keys::inode_id(id));
            }
        }
        Ok(wanted)
    }
}

/// Gives an entry of a dead directory a name in the root directory, as fsck does with what has none; the name, unless it is not
/// there any more.
pub struct Rescue {
    pub dir: InodeId,
    pub name: Name,
    pub now: Timestamp,
}

impl Operation for Rescue {
    type Output = Option<Name>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Option<Name>, OpError> {
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let (row, old) = (keys::inode_id(self.dir), keys::entry(self.dir, &self.name));
        unit.load(&[row.clone(), old.clone(), keys::root_entry()]).await?;
        let Some(mut entry) = unit.get::<Entry>(&old).await? else { return Ok(None) };
        let Some(IdRow::Attributes(mut dir)) = unit.get(&row).await? else { return Ok(None) };
        let mut root = unit.find(&InodeId::ROOT.into()).await?;
        let name = free_name(&mut unit, entry.id()).await?;
        unit.delete(old);
        if let Entry::Here(inode) = &mut entry {
            if inode.has(flags::SEALED) {
                moves_sealed(&mut unit, self.dir, InodeId::ROOT).await?;
            }
            // Snapshots may have it where it was: it stays their root's.
            inode.quota_roots.clear();
        }
        unit.put(keys::entry(InodeId::ROOT, &name), &entry);
        if let Entry::Here(inode) = &entry {
            let place = IdRow::At { parent: InodeId::ROOT, name: name.as_bytes().to_vec() };
            unit.put(keys::inode_id(inode.id), &place);
        }
        dir.size = dir.size.saturating_sub(1);
        unit.put(row, &IdRow::Attributes(dir));
        count_entry(&mut root.inode, self.now, 1, false);
        unit.store(&root);
        unit.charge_without_limits().await?;
        Ok(Some(name))
    }
}

/// Where sealed files may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seals {
    Nowhere,
    /// In the directories that [`SealedBelow`] finds.
    Counted,
    Anywhere,
}

pub struct WhereSealed;

impl Query for WhereSealed {
    type Answer = Seals;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Seals, OpError> {
        let [all, placed] = [keys::sealed_count(), keys::sealed_placed()];
        unit.load(&[all.clone(), placed.clone()]).await?;
        let (all, placed) = (unit.get::<SealedCount>(&all).await?, unit.get::<SealedCount>(&placed).await?);
        Ok(match all {
            Some(SealedCount(0)) => Seals::Nowhere,
            Some(all) if placed == Some(all) => Seals::Counted,
            _ => Seals::Anywhere,
        })
    }
}

/// Which of the directories with sealed files are this one, or below it: goes up from each of them, all one step at a time.
pub struct SealedBelow {
    pub top: InodeId,
    pub after: Option<InodeId>,
}

#[derive(Debug, Default)]
pub struct Below {
    pub dirs: Vec<InodeId>,
    /// Go on after this one.
    pub next: Option<InodeId>,
}

/// Of which all are gone up from at once.
const DIRS_A_PAGE: usize = 1024;

impl Query for SealedBelow {
    type Answer = Below;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Below, OpError> {
        let after = self.after.map(keys::sealed_in);
        let page = unit.scan(&keys::all_sealed_in(), after.as_ref(), DIRS_A_PAGE).await?;
        let dirs: Vec<InodeId> = page.rows.iter().filter_map(|(key, _)| keys::of_sealed_in(key)).collect();
        let mut parents: HashMap<InodeId, InodeId> = HashMap::new();
        let mut step = dirs.clone();
        // Ends where trees have circles too: nothing is asked for twice.
        while !step.is_empty() {
            unit.load(&step.iter().map(|dir| keys::inode_id(*dir)).collect::<Vec<_>>()).await?;
            let mut above = Vec::new();
            for dir in step {
                // What is being removed, or is not there any more, is below nothing.
                let Some(IdRow::At { parent, .. }) = unit.get(&keys::inode_id(dir)).await? else { continue };
                parents.insert(dir, parent);
                above.push(parent);
            }
            above.sort_unstable();
            above.dedup();
            above.retain(|dir| *dir != self.top && *dir != InodeId::ROOT && !parents.contains_key(dir));
            step = above;
        }
        let is_below = |dir: &InodeId| {
            let way = std::iter::successors(Some(*dir), |at| parents.get(at).copied());
            way.take(parents.len() + 1).any(|at| at == self.top)
        };
        let next = page.more.then(|| dirs.last().copied()).flatten();
        Ok(Below { dirs: dirs.into_iter().filter(is_below).collect(), next })
    }
}

/// Looks at a page of a directory for sealed files.
pub struct FindSealed {
    pub dir: InodeId,
    pub after: Option<Name>,
}

#[derive(Debug, Default)]
pub struct Looked {
    /// The first that is sealed.
    pub sealed: Option<Name>,
    pub dirs: Vec<InodeId>,
    /// Go on after this name.
    pub next: Option<Name>,
}

const ENTRIES_A_PAGE: usize = 4096;

impl Query for FindSealed {
    type Answer = Looked;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Looked, OpError> {
        let page = Entries::read(unit, self.dir, self.after.as_ref(), ENTRIES_A_PAGE).await?;
        let mut looked = Looked { next: page.next(), ..Looked::default() };
        page.load_elsewhere(unit).await?;
        for (name, entry) in page.list {
            let Some(found) = locate(unit, self.dir, &name, entry).await? else { continue };
            if found.inode.has(flags::SEALED) {
                looked.sealed.get_or_insert(name);
            } else if found.inode.is_dir() {
                looked.dirs.push(found.inode.id);
            }
        }
        Ok(looked)
    }
}
