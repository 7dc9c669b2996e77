//! Names: finding, making, removing, moving.

use crate::cache::Ticket;
use crate::commit::Reach;
use crate::core::{Core, Op};
use braid_api::meta::*;
use braid_api::{Caller, Code, EntryReply, Error, LookupReply, NewNode, NodeKind, RenameMode, Result};
use braid_env::Monotonic;
use braid_types::{Attr, DeviceId, FileKind, InodeId, Mode, Name, TraceId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What is made, for the metadata server.
pub fn spec(cx: &Caller, kind: FileKind, mode: Mode) -> NodeSpec {
    NodeSpec { kind, mode, umask: cx.umask, uid: cx.uid, gid: cx.gid, rdev: DeviceId(0), target: Bytes::new() }
}

impl Core {
    pub async fn lookup(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<LookupReply> {
        let now = self.now();
        match self.cache.name(parent, name, now) {
            Some((None, valid)) => {
                self.counters.cache_hits.fetch_add(1, Relaxed);
                return Ok(LookupReply { attr: None, valid });
            }
            Some((Some(id), name_valid)) => {
                if let Some((attr, attr_valid)) = self.cache.attr(id, now) {
                    self.counters.cache_hits.fetch_add(1, Relaxed);
                    return Ok(LookupReply { attr: Some(self.shown(&attr)), valid: name_valid.min(attr_valid) });
                }
            }
            None => {}
        }
        self.counters.cache_misses.fetch_add(1, Relaxed);
        let ticket = self.cache.ticket();
        let answer = self.call(Lookup { parent, name: name.clone() }, self.op(cx.trace)).await?;
        let id = answer.attr.map(|attr| attr.id);
        self.cache.keep_name(parent, name, id, ticket, now, answer.grant);
        if let Some(attr) = &answer.attr {
            self.cache.keep_attr(attr, ticket, now, answer.grant);
        }
        let attr = answer.attr.map(|attr| self.shown(&attr));
        Ok(LookupReply { attr, valid: self.valid(now, answer.grant) })
    }

    pub async fn make_node(&self, cx: &Caller, parent: InodeId, name: &Name, node: NewNode) -> Result<EntryReply> {
        let kind = match &node.kind {
            NodeKind::File => FileKind::File,
            NodeKind::Directory => FileKind::Directory,
            NodeKind::Symlink(_) => FileKind::Symlink,
            NodeKind::Special(kind, _) => *kind,
        };
        let mut spec = spec(cx, kind, node.mode);
        match node.kind {
            NodeKind::Symlink(target) => spec.target = target,
            NodeKind::Special(_, rdev) => spec.rdev = rdev,
            _ => {}
        }
        let (ticket, asked) = (self.cache.ticket(), self.now());
        let message = MakeNode { parent: self.cache.inode(parent), name: name.clone(), spec };
        let answer = self.call(message, self.op(cx.trace)).await?;
        Ok(self.new_entry(parent, name, &answer, ticket, asked))
    }

    fn new_entry(
        &self,
        parent: InodeId,
        name: &Name,
        answer: &EntryAnswer,
        ticket: Ticket,
        asked: Monotonic,
    ) -> EntryReply {
        self.cache.named(parent, name, &answer.attr, answer.grant, ticket, asked);
        EntryReply { attr: self.shown(&answer.attr), valid: self.valid(asked, answer.grant) }
    }

    /// Whether what a name leads to may be open here. Without knowing the name, anything that is open may be it.
    fn may_be_open(&self, parent: InodeId, name: &Name) -> bool {
        match self.cache.name(parent, name, self.now()) {
            Some((Some(id), _)) => !self.inodes.held(&[id]).is_empty(),
            Some((None, _)) => false,
            None => self.inodes.len() > 0,
        }
    }

    pub async fn unlink(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        let open_here = self.may_be_open(parent, name);
        let message = Unlink { parent: self.cache.inode(parent), name: name.clone(), open_here };
        let answer = self.call(message, self.op(cx.trace)).await;
        self.cache.name_changed(parent, name);
        self.lost_name(parent, name, &answer?.attr);
        Ok(())
    }

    /// An inode lost a name here. When it was the last and nobody has it open, nothing of it is sent any more.
    fn lost_name(&self, parent: InodeId, name: &Name, attr: &Attr) {
        self.cache.changed(attr.id);
        self.cache.drop_place(attr.id, parent, name);
        match self.inodes.get(attr.id) {
            Some(inode) => self.update(&inode, |state| state.adopt_attr(attr, None)),
            None if attr.nlink == 0 && attr.is_file() => {
                for lane in self.servers.lanes() {
                    lane.retained(|retain| {
                        let chunks = retain.chunks_of(attr.id, u64::MAX);
                        chunks.into_iter().for_each(|chunk| retain.forget(chunk));
                    });
                }
                self.atimes.lock().remove(&attr.id);
            }
            None => {}
        }
    }

    pub async fn remove_dir(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        let removed = match self.cache.name(parent, name, self.now()) {
            Some((id, _)) => id,
            None => None,
        };
        let message = RemoveDir { parent: self.cache.inode(parent), name: name.clone() };
        let answer = self.call(message, self.op(cx.trace)).await;
        self.cache.name_changed(parent, name);
        if let Some(id) = removed {
            self.cache.changed(id);
            self.cache.drop_place(id, parent, name);
        }
        answer
    }

    /// Whoever finds the new name must find what was written, so the source is saved first (design.md *File
    /// lease*).
    async fn save_source(self: &Arc<Self>, parent: InodeId, name: &Name, op: Op) -> Result<()> {
        let known = self.cache.name(parent, name, self.now()).and_then(|(id, _)| id);
        let source = match known {
            Some(id) => self.inodes.get(id),
            None => self.inodes.all().into_iter().find(|inode| {
                self.cache.inode(inode.id).hint.is_some_and(|place| place.0 == parent && place.1 == *name)
            }),
        };
        match source {
            Some(inode) => self.commit(&inode, Reach::Answered, op).await,
            None => Ok(()),
        }
    }

    pub async fn rename(
        self: &Arc<Self>,
        cx: &Caller,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        mode: RenameMode,
    ) -> Result<()> {
        let op = self.op(cx.trace);
        self.save_source(from.0, from.1, op).await?;
        let kind = match mode {
            RenameMode::Replace => RenameKind::Replace,
            RenameMode::NoReplace => RenameKind::NoReplace,
            RenameMode::Exchange => RenameKind::Exchange,
        };
        let message = Rename {
            from: self.cache.inode(from.0),
            from_name: from.1.clone(),
            to: self.cache.inode(to.0),
            to_name: to.1.clone(),
            mode: kind,
            open_here: self.may_be_open(to.0, to.1),
        };
        let answer = self.call(message, op).await;
        self.cache.name_changed(from.0, from.1);
        self.cache.name_changed(to.0, to.1);
        let answer = answer?;
        self.cache.changed(answer.moved.id);
        self.cache.own_change(&answer.moved);
        // Two names of one file: nothing moved, and its places stay.
        let moved = answer.other.is_some() || from != to;
        if moved {
            self.cache.place(answer.moved.id, Some((to.0, to.1.clone())));
        }
        match &answer.other {
            Some(other) if kind == RenameKind::Exchange => {
                self.cache.changed(other.id);
                self.cache.place(other.id, Some((from.0, from.1.clone())));
            }
            Some(other) => self.lost_name(to.0, to.1, other),
            None => {}
        }
        Ok(())
    }

    pub async fn link(&self, cx: &Caller, id: InodeId, parent: InodeId, name: &Name) -> Result<EntryReply> {
        let (ticket, asked) = (self.cache.ticket(), self.now());
        let message = Link { inode: self.cache.inode(id), parent: self.cache.inode(parent), name: name.clone() };
        let answer = self.call(message, self.op(cx.trace)).await?;
        self.cache.changed(id);
        self.cache.own_change(&answer.attr);
        if let Some(inode) = self.inodes.get(id) {
            self.update(&inode, |state| state.adopt_attr(&answer.attr, None));
        }
        Ok(self.new_entry(parent, name, &answer, ticket, asked))
    }

    pub async fn put_file(
        &self,
        parent: InodeId,
        name: &Name,
        spec: NodeSpec,
        data: Bytes,
        replace: bool,
    ) -> Result<Attr> {
        if spec.kind != FileKind::File {
            return Err(Error::new(Code::Invalid, name, "put_file makes files"));
        }
        let (ticket, asked) = (self.cache.ticket(), self.now());
        let message = PutFile { parent: self.cache.inode(parent), name: name.clone(), spec, data, replace };
        let answer = self.call(message, self.op(TraceId(0))).await?;
        Ok(self.new_entry(parent, name, &answer, ticket, asked).attr)
    }

    pub async fn resolve(&self, from: InodeId, path: &[Name]) -> Result<Resolved> {
        let mut resolved = self.call(Resolve { from, path: path.to_vec() }, self.op(TraceId(0))).await?;
        for attr in &mut resolved.attrs {
            *attr = self.shown(attr);
        }
        Ok(resolved)
    }
}
