//! The calls that make, find, move and remove names.

use crate::machine::{Handle, Listed, Machine, Outcome};
use crate::names::{Edit, NewChange, NodeId, ROOT};
use crate::node::Node;

const NAME_BYTES_MAX: usize = 255;

impl Machine {
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Outcome<NodeId> {
        self.node(dir)?;
        match name {
            b"." => Ok(dir),
            b".." => Ok(self.names.parent(dir).unwrap_or(ROOT)),
            _ => self.names.get(dir, name).ok_or(libc::ENOENT),
        }
    }

    /// Makes `node` under a name that must be free.
    pub fn make(&mut self, dir: NodeId, name: &[u8], node: Node) -> Outcome<NodeId> {
        self.begin_names(dir)?;
        self.check_free(dir, name)?;
        self.last_node += 1;
        let id = self.last_node;
        self.nodes.insert(id, node);
        self.change(vec![self.edit(dir, name, Some(id))])?;
        let seq = self.seq;
        // The first fdatasync of a new file has its creation to write.
        self.node_mut(id)?.last_size_change = seq;
        Ok(id)
    }

    pub fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) -> Outcome<()> {
        self.begin_names(dir)?;
        self.check_free(dir, name)?;
        self.node(id)?;
        self.change(vec![self.edit(dir, name, Some(id))])
    }

    pub fn remove(&mut self, dir: NodeId, name: &[u8], directory: bool) -> Outcome<()> {
        self.begin_names(dir)?;
        let id = self.names.get(dir, name).ok_or(libc::ENOENT)?;
        self.check_removable(id, directory)?;
        self.change(vec![self.edit(dir, name, None)])
    }

    /// `flags` are renameat2's.
    pub fn rename(&mut self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: u32) -> Outcome<()> {
        self.begin_names(from.0)?;
        self.node(to.0)?;
        let moved = self.names.get(from.0, from.1).ok_or(libc::ENOENT)?;
        let target = self.names.get(to.0, to.1);
        if target == Some(moved) {
            return Ok(());
        }
        let is_dir = self.node(moved)?.is_dir();
        if is_dir && self.names.is_below(to.0, moved) {
            return Err(libc::EINVAL);
        }
        let stays_behind = match (flags, target) {
            (libc::RENAME_EXCHANGE, None) => return Err(libc::ENOENT),
            (libc::RENAME_EXCHANGE, Some(other)) => {
                if self.names.is_below(from.0, other) {
                    return Err(libc::EINVAL);
                }
                Some(other)
            }
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(libc::EEXIST),
            (0 | libc::RENAME_NOREPLACE, None) => {
                check_name(to.1)?;
                None
            }
            (0, Some(target)) => {
                self.check_removable(target, is_dir)?;
                None
            }
            _ => return Err(libc::EINVAL),
        };
        self.change(vec![self.edit(from.0, from.1, stays_behind), self.edit(to.0, to.1, Some(moved))])
    }

    /// The whole listing, read anew from the start.
    pub fn list(&mut self, fh: u64, from_start: bool) -> Outcome<&[Listed]> {
        let Some(Handle::Dir(dir, list)) = self.handles.get_mut(&fh) else { return Err(libc::EIO) };
        if from_start {
            let dots = [(b".".as_slice(), *dir), (b"..", *dir)];
            let mode = |node: &NodeId| self.nodes.get(node).map_or(0, |node| node.mode);
            let listed = |(name, node): (&[u8], NodeId)| Listed { name: name.to_vec(), node, mode: mode(&node) };
            *list = dots.into_iter().chain(self.names.list(*dir)).map(listed).collect();
        }
        Ok(list)
    }

    fn begin_names(&mut self, dir: NodeId) -> Outcome<()> {
        self.node(dir)?;
        self.faults.count_change()
    }

    fn check_free(&self, dir: NodeId, name: &[u8]) -> Outcome<()> {
        check_name(name)?;
        if self.names.get(dir, name).is_some() { Err(libc::EEXIST) } else { Ok(()) }
    }

    fn check_removable(&self, id: NodeId, as_directory: bool) -> Outcome<()> {
        match (self.node(id)?.is_dir(), as_directory) {
            (true, false) => Err(libc::EISDIR),
            (false, true) => Err(libc::ENOTDIR),
            (true, true) if self.names.list(id).next().is_some() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn edit(&self, dir: NodeId, name: &[u8], is: Option<NodeId>) -> Edit {
        Edit { dir, name: name.to_vec(), was: self.names.get(dir, name), is }
    }

    fn change(&mut self, edits: Vec<Edit>) -> Outcome<()> {
        let seq = self.next_seq();
        for edit in &edits {
            self.touch(edit.dir, seq);
            if let Some(gone) = edit.was {
                self.add_links(gone, -1, seq);
            }
            if let Some(come) = edit.is {
                self.add_links(come, 1, seq);
            }
        }
        let Self { names, nodes, .. } = self;
        names.change(NewChange { seq, edits, is_dir: &|id| nodes.get(&id).is_some_and(Node::is_dir) });
        Ok(())
    }

    fn touch(&mut self, id: NodeId, seq: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.last_change = seq;
            node.modified();
        }
    }

    fn add_links(&mut self, id: NodeId, change: i32, seq: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.links = node.links.saturating_add_signed(change);
        node.last_change = seq;
        node.changed();
        self.unlinked += u64::from(node.links == 0);
    }
}

fn check_name(name: &[u8]) -> Outcome<()> {
    if name.len() > NAME_BYTES_MAX { Err(libc::ENAMETOOLONG) } else { Ok(()) }
}
