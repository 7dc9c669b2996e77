//! Nodes and names.

use braid_fuse_kernel::{Attr, ROOT_ID, SetAttr};
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub struct Node {
    pub attr: Attr,
    pub data: Vec<u8>,
    pub children: BTreeMap<String, u64>,
    pub xattrs: HashMap<Vec<u8>, Vec<u8>>,
}

pub struct Tree {
    nodes: HashMap<u64, Node>,
    last: u64,
}

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Self { nodes: HashMap::new(), last: ROOT_ID - 1 };
        tree.make_nameless(libc::S_IFDIR | 0o777, 0);
        tree
    }
}

impl Tree {
    pub fn node(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    pub fn node_mut(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("the kernel knows only nodes it was told of")
    }

    pub fn attr(&self, id: u64) -> Attr {
        let node = self.node(id);
        let size = node.data.len() as u64;
        Attr { size, blocks: size.div_ceil(512), ..node.attr }
    }

    pub fn child(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        self.node(parent).children.get(text(name)).copied().ok_or(libc::ENOENT)
    }

    pub fn name_of(&self, id: u64) -> Option<&str> {
        let mut names = self.nodes.values().flat_map(|node| &node.children);
        names.find(|(_, child)| **child == id).map(|(name, _)| name.as_str())
    }

    pub fn list(&self, parent: u64) -> Vec<(u64, String)> {
        self.node(parent).children.iter().map(|(name, id)| (*id, name.clone())).collect()
    }

    pub fn make_nameless(&mut self, mode: u32, rdev: u32) -> u64 {
        self.last += 1;
        let attr = Attr { ino: self.last, mode, rdev, nlink: 1, blksize: 4096, ..Attr::default() };
        self.nodes.insert(self.last, Node { attr, ..Node::default() });
        self.last
    }

    pub fn make(&mut self, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Result<u64, i32> {
        if self.child(parent, name).is_ok() {
            return Err(libc::EEXIST);
        }
        let id = self.make_nameless(mode, rdev);
        self.link(parent, name, id)?;
        Ok(id)
    }

    pub fn link(&mut self, parent: u64, name: &[u8], id: u64) -> Result<(), i32> {
        self.node_mut(parent).children.insert(text(name).to_owned(), id);
        Ok(())
    }

    pub fn remove(&mut self, parent: u64, name: &[u8]) -> Result<(), i32> {
        self.node_mut(parent).children.remove(text(name)).map(drop).ok_or(libc::ENOENT)
    }

    pub fn rename(&mut self, from: u64, name: &[u8], to: u64, new_name: &[u8], flags: u32) -> Result<(), i32> {
        let moved = self.child(from, name)?;
        let there = self.child(to, new_name);
        if flags & libc::RENAME_NOREPLACE != 0 && there.is_ok() {
            return Err(libc::EEXIST);
        }
        self.remove(from, name)?;
        if flags & libc::RENAME_EXCHANGE != 0 {
            self.link(from, name, there?)?;
        }
        self.link(to, new_name, moved)
    }

    pub fn write(&mut self, id: u64, offset: usize, bytes: &[u8]) {
        let data = &mut self.node_mut(id).data;
        data.resize(data.len().max(offset + bytes.len()), 0);
        data[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn read(&self, id: u64, offset: usize, size: usize) -> Vec<u8> {
        let data = &self.node(id).data;
        let start = offset.min(data.len());
        data[start..data.len().min(start + size)].to_vec()
    }

    pub fn set(&mut self, id: u64, set: &SetAttr) {
        let node = self.node_mut(id);
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
        }
        if let Some(mode) = set.mode {
            node.attr.mode = (node.attr.mode & libc::S_IFMT) | (mode & 0o7777);
        }
        node.attr.uid = set.uid.unwrap_or(node.attr.uid);
        node.attr.gid = set.gid.unwrap_or(node.attr.gid);
    }
}

fn text(name: &[u8]) -> &str {
    str::from_utf8(name).expect("the tests use plain names")
}
