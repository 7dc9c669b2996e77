//! The tree of names: as it is, as the platter has it, and the changes in between.
//!
//! A change is kept or lost whole, a rename with both its ends. What survives a cut is always a tree that could have been: a change
//! needs those before it that touched the same name or file, or that emptied the directory it removes.
//!
//! Under [`Order::Posix`] a sync of a directory makes the names in it stable and nothing else. Under [`Order::Journal`] the
//! changes that survive are the oldest ones. Which of the two holds is drawn at the cut, so both are kept in step until then.

use crate::settle::{Fate, Order};
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type NodeId = u64;
pub(crate) const ROOT: NodeId = 1;

/// Above this the oldest changes are written, as a journal does after some seconds.
const PENDING_MAX: usize = 4096;

pub(crate) type Entries = BTreeMap<(NodeId, Vec<u8>), NodeId>;

/// A name that changes: what it meant and what it means, `None` being nothing.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub dir: NodeId,
    pub name: Vec<u8>,
    pub was: Option<NodeId>,
    pub is: Option<NodeId>,
}

impl Edit {
    fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.was.into_iter().chain(self.is)
    }

    fn is_of_same_name(&self, other: &Edit) -> bool {
        self.dir == other.dir && self.name == other.name
    }
}

/// One change of the tree that its directories were not synced after.
struct Change {
    seq: u64,
    edits: Vec<Edit>,
    /// Changes, by `seq`, without which this one cannot be.
    needs: Vec<u64>,
    moves_directory: bool,
}

impl Change {
    fn apply(&self, entries: &mut Entries) {
        for edit in &self.edits {
            let key = (edit.dir, edit.name.clone());
            match edit.is {
                Some(node) => entries.insert(key, node),
                None => entries.remove(&key),
            };
        }
    }

    fn brings(&self, node: NodeId) -> bool {
        self.edits.iter().any(|edit| edit.is == Some(node))
    }

    fn is_in(&self, dir: NodeId) -> bool {
        self.edits.iter().any(|edit| edit.dir == dir)
    }
}

#[derive(Default)]
pub(crate) struct Names {
    now: Entries,
    stable: Entries,
    pending: Vec<Change>,
    /// Metadata up to here survives under [`Order::Journal`].
    pub committed: u64,
}

/// A change to be made, with what the tree itself does not know: which nodes are directories.
pub(crate) struct NewChange<'a> {
    pub seq: u64,
    pub edits: Vec<Edit>,
    pub is_dir: &'a dyn Fn(NodeId) -> bool,
}

impl Names {
    pub fn get(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.now.get(&(dir, name.to_vec())).copied()
    }

    pub fn list(&self, dir: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let in_dir = self.now.range((dir, Vec::new())..).take_while(move |((at, _), _)| *at == dir);
        in_dir.map(|((_, name), node)| (name.as_slice(), *node))
    }

    /// How many names each node has.
    pub fn link_counts(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        for node in self.now.values() {
            *counts.entry(*node).or_default() += 1;
        }
        counts
    }

    /// The directory that has the directory `node`.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.now.iter().find(|(_, child)| **child == node).map(|((dir, _), _)| *dir)
    }

    fn ancestors(&self, dir: NodeId) -> Vec<NodeId> {
        std::iter::successors(Some(dir), |dir| self.parent(*dir)).collect()
    }

    pub fn is_below(&self, node: NodeId, dir: NodeId) -> bool {
        self.ancestors(node).contains(&dir)
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// All nodes that have a name, may get one back at a cut, or may keep one.
    pub fn named(&self) -> BTreeSet<NodeId> {
        let edited = self.pending.iter().flat_map(|change| &change.edits).flat_map(Edit::nodes);
        self.now.values().chain(self.stable.values()).copied().chain(edited).collect()
    }

    pub fn change(&mut self, change: NewChange<'_>) {
        let NewChange { seq, edits, is_dir } = change;
        let moves_directory = edits.len() > 1 && edits.iter().flat_map(Edit::nodes).any(is_dir);
        let needs = self.needs(&edits, moves_directory);
        let change = Change { seq, edits, needs, moves_directory };
        change.apply(&mut self.now);
        self.pending.push(change);
        if self.pending.len() > PENDING_MAX {
            let oldest = self.pending.remove(0);
            self.committed = self.committed.max(oldest.seq);
            oldest.apply(&mut self.stable);
        }
    }

    fn needs(&self, edits: &[Edit], moves_directory: bool) -> Vec<u64> {
        let mut nodes: BTreeSet<NodeId> = edits.iter().flat_map(Edit::nodes).collect();
        let removed: Vec<NodeId> = edits.iter().filter_map(|edit| edit.was).collect();
        // What is moved must not get lost with its new directory, however deep that is.
        let shelter: BTreeSet<NodeId> = match edits {
            [_] => BTreeSet::new(),
            _ => edits.iter().flat_map(|edit| self.ancestors(edit.dir)).collect(),
        };
        nodes.remove(&ROOT);
        let needed = |old: &&Change| {
            old.edits.iter().any(|old| {
                edits.iter().any(|edit| edit.is_of_same_name(old))
                    || old.nodes().any(|node| nodes.contains(&node))
                    || removed.contains(&old.dir)
            }) || shelter.iter().any(|dir| old.brings(*dir))
                // Two moves of directories in the wrong order can make a ring.
                || moves_directory && old.moves_directory
        };
        self.pending.iter().filter(needed).map(|old| old.seq).collect()
    }

    /// The names in `dir` are stable, with whatever they need.
    pub fn sync_dir(&mut self, dir: NodeId) {
        let mut wanted: BTreeSet<u64> = BTreeSet::new();
        for change in self.pending.iter().rev() {
            if change.is_in(dir) || wanted.contains(&change.seq) {
                wanted.insert(change.seq);
                wanted.extend(&change.needs);
            }
        }
        let stable = &mut self.stable;
        self.pending.retain(|change| {
            let synced = wanted.contains(&change.seq);
            if synced {
                change.apply(stable);
            }
            !synced
        });
    }

    /// The power goes. Gives how many changes were kept and dropped.
    pub fn cut(&mut self, fate: &mut Fate) -> (u64, u64) {
        let share = fate.share();
        let pending = std::mem::take(&mut self.pending);
        let mut dropped = BTreeSet::new();
        for change in &pending {
            let kept = match fate.order {
                Order::Journal => change.seq <= fate.journal_end,
                Order::Posix => !change.needs.iter().any(|seq| dropped.contains(seq)) && fate.rng.random_bool(share),
            };
            if kept {
                change.apply(&mut self.stable);
            } else {
                dropped.insert(change.seq);
            }
        }
        self.drop_unreachable();
        self.now = self.stable.clone();
        ((pending.len() - dropped.len()) as u64, dropped.len() as u64)
    }

    fn drop_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(dir) = open.pop() {
            let in_dir = self.stable.range((dir, Vec::new())..).take_while(|((at, _), _)| *at == dir);
            open.extend(in_dir.map(|(_, node)| *node).filter(|node| reachable.insert(*node)));
        }
        self.stable.retain(|(dir, _), _| reachable.contains(dir));
    }

    /// Gives every node a new number; after a cut nothing the kernel remembers may be taken for what is there now.
    pub fn renumber(&mut self, new: &BTreeMap<NodeId, NodeId>) {
        let number = |node: &NodeId| new.get(node).copied().unwrap_or(*node);
        let entries = std::mem::take(&mut self.now);
        self.now = entries.into_iter().map(|((dir, name), node)| ((number(&dir), name), number(&node))).collect();
        self.stable = self.now.clone();
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
