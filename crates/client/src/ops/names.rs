//! Names: finding, making, removing, moving.

use crate::cache::{Asking, Learnt, Task, entry_keys};
use crate::commit::Reach;
use crate::core::{Core, Op};
use braid_api::meta::*;
use braid_api::{Caller, Code, EntryReply, Error, LookupReply, NewNode, NodeKind, RenameMode, Result, Shown};
use braid_lease::Key;
use braid_types::{Attr, DeviceId, FileKind, InodeId, Mode, Name, TraceId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Core {
    /// What is made, for the metadata server.
    pub async fn spec(&self, cx: &Caller, parent: InodeId, kind: FileKind, mut mode: Mode) -> Result<NodeSpec> {
        let runs_as_group = Mode::SETGID | 0o010;
        if kind != FileKind::Directory && mode.0 & runs_as_group == runs_as_group && cx.uid != 0 {
            // In a setgid directory the file gets the directory's group: whoever is not in it makes no program that
            // runs as it. Linux sees to it for a mount, native callers rely on this.
            let dir = self.get_attr(cx, parent).await?.attr;
            let is_in = cx.gid == dir.gid || cx.groups.contains(&dir.gid);
            if dir.mode.has(Mode::SETGID) && !is_in {
                mode.0 &= !Mode::SETGID;
            }
        }
        let (umask, uid, gid) = (cx.umask, cx.uid, cx.gid);
        Ok(NodeSpec { kind, mode, umask, uid, gid, rdev: DeviceId(0), target: Bytes::new() })
    }

    pub async fn lookup(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<LookupReply> {
        let op = self.op(cx.trace);
        loop {
            let opens = self.readers.will_open(parent);
            let Some(found) = self.lookup_once(cx, parent, name, opens, op).await? else { continue };
            let file = found.attr.as_ref().filter(|attr| attr.is_file()).map(|attr| attr.id);
            match file {
                Some(id) if !self.is_there_to_open(parent, name, id, op).await? => {}
                _ => return Ok(found),
            }
        }
    }

    /// `None` if the answer was overtaken: what it found has gone.
    /// `opens`: it is to be opened for reading next, most likely.
    pub async fn lookup_once(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        opens: bool,
        op: Op,
    ) -> Result<Option<LookupReply>> {
        let now = self.now();
        self.cache.exists(parent)?;
        match self.cache.name(parent, name, now) {
            Some((None, valid)) => {
                self.counters.cache_hits.fetch_add(1, Relaxed);
                return Ok(Some(LookupReply { attr: None, valid }));
            }
            Some((Some(id), name_valid)) => {
                if let Some((attr, attr_valid)) = self.shown_cached(id) {
                    self.counters.cache_hits.fetch_add(1, Relaxed);
                    return Ok(Some(LookupReply { attr: Some(attr), valid: name_valid.min(attr_valid) }));
                }
                if self.route.is_of_another(parent, id)
                    && let Some(found) = self.lookup_leased(cx, parent, name, id).await?
                {
                    return Ok(Some(found));
                }
            }
            None => {}
        }
        self.counters.cache_misses.fetch_add(1, Relaxed);
        let asking = self.cache.ask(parent);
        let ticket = asking.ticket;
        let opens = opens && !parent.is_in_snapshot();
        let made = opens.then(|| self.files.making());
        let (mut answer, opened) = match opens {
            true => {
                let looked = self.call(LookToOpen { parent, name: name.clone() }, op).await?;
                (looked.found, looked.opened)
            }
            false => (self.call(Lookup { parent, name: name.clone() }, op).await?, None),
        };
        if answer.attr.is_none() {
            self.expect_dir(cx, parent).await?;
        }
        let id = answer.attr.map(|attr| attr.id);
        if let Some(file) = answer.attr.filter(Attr::is_file) {
            self.readers.looked(parent, file.id);
        }
        // It is to be open for a moment, so that it is kept as what was open before, until it is opened or another changes it.
        let core = opened.as_ref().and_then(|_| self.this.upgrade());
        let adopted = match (&core, &opened, &made) {
            (Some(core), Some(opened), Some(made)) => {
                (answer.attr, answer.grant.attr) = (Some(opened.attr), opened.grant.attr);
                core.adopt_looked(parent, opened, ticket, made).map(|inode| (core, inode))
            }
            _ => None,
        };
        drop(made);
        let mut learnt = vec![Learnt::Name(parent, name, id, answer.grant.entry)];
        learnt.extend(answer.attr.as_ref().map(|attr| Learnt::Attr(attr, answer.grant.attr)));
        let valid = self.cache.learn(asking, ticket, self.now(), &learnt);
        if let Some((core, inode)) = adopted {
            core.close_inode(&inode);
        }
        let attr = answer.attr.map(|attr| self.shown(&attr));
        match attr {
            // As in `shown_since`: a save ended meanwhile, and what it saved is not in the answer.
            Some(attr) if !self.cache.valid(attr.id, ticket) => {
                let newer = self.get_attr(cx, attr.id).await.and_then(|newer| match newer.attr.nlink {
                    // Somebody has it open yet.
                    0 => Err(Code::Stale.into()),
                    _ => Ok(newer),
                });
                match newer {
                    Ok(newer) => Ok(Some(LookupReply { attr: Some(newer.attr), valid: valid.min(newer.valid) })),
                    // It has been removed, so that the name stands for something else, or for nothing.
                    Err(error) if error.code == Code::Stale && !op.deadline.left(&self.env).is_zero() => Ok(None),
                    Err(error) => Err(error),
                }
            }
            attr => Ok(Some(LookupReply { attr, valid })),
        }
    }

    /// What a known name leads to, from its own holder, which grants what that of the name cannot. `None` if that is not so any more.
    async fn lookup_leased(
        &self,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        id: InodeId,
    ) -> Result<Option<LookupReply>> {
        let found = match self.get_attr(cx, id).await {
            Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => return Ok(None),
            Ok(found) if found.attr.nlink == 0 => return Ok(None),
            found => found?,
        };
        let known = self.cache.name(parent, name, self.now()).filter(|(known, _)| *known == Some(id));
        Ok(known.map(|(_, valid)| LookupReply { attr: Some(found.attr), valid: valid.min(found.valid) }))
    }

    /// The metadata server knows only that no such name is there; in what is no directory that is another error.
    pub async fn expect_dir(&self, cx: &Caller, id: InodeId) -> Result<()> {
        self.cache.exists(id)?;
        let is_dir = match self.cache.is_dir(id) {
            Some(is_dir) => is_dir,
            None => self.get_attr(cx, id).await?.attr.is_dir(),
        };
        if is_dir { Ok(()) } else { Err(Code::NotDirectory.into()) }
    }

    pub async fn make_node(&self, cx: &Caller, parent: InodeId, name: &Name, node: NewNode) -> Result<EntryReply> {
        let kind = match &node.kind {
            NodeKind::File => FileKind::File,
            NodeKind::Directory => FileKind::Directory,
            NodeKind::Symlink(_) => FileKind::Symlink,
            NodeKind::Special(kind, _) => *kind,
        };
        let mut spec = self.spec(cx, parent, kind, node.mode).await?;
        match node.kind {
            NodeKind::Symlink(target) => spec.target = target,
            NodeKind::Special(_, rdev) => spec.rdev = rdev,
            _ => {}
        }
        let asking = self.cache.change(parent, entry_keys(parent, name));
        let message = MakeNode { parent: self.cache.existing(parent)?, name: name.clone(), spec };
        let answer = self.call(message, self.op(cx.trace)).await?;
        Ok(self.new_entry(parent, name, &answer, asking))
    }

    fn new_entry(&self, parent: InodeId, name: &Name, answer: &EntryAnswer, asking: Asking<'_>) -> EntryReply {
        let more = [Learnt::Dir(parent, &answer.dir), Learnt::Empty(answer.attr.id, answer.empty)];
        let valid = self.named(parent, name, &answer.attr, answer.grant, &more, asking);
        EntryReply { attr: self.shown(&answer.attr), valid }
    }

    /// This client gave the name to an inode, and with that changed `more`. Gives for how long the kernel may keep both.
    pub fn named(
        &self,
        parent: InodeId,
        name: &Name,
        attr: &Attr,
        grant: Grant,
        more: &[Learnt<'_>],
        asking: Asking<'_>,
    ) -> Duration {
        let ticket = asking.ticket;
        let mut learnt = vec![Learnt::Name(parent, name, Some(attr.id), grant.entry), Learnt::Attr(attr, grant.attr)];
        learnt.extend_from_slice(more);
        let valid = self.cache.learn(asking, ticket, self.now(), &learnt);
        if valid.is_zero() && !self.is_named(parent, name, attr.id) {
            self.cache.name_gone(parent, name);
        }
        valid
    }

    /// The name is leased, if not what it stands for, which another holder would have to grant.
    fn is_named(&self, parent: InodeId, name: &Name, id: InodeId) -> bool {
        let known = || self.cache.name(parent, name, self.now()).and_then(|(known, _)| known);
        self.route.is_of_another(parent, id) && known() == Some(id)
    }

    /// This client took a name away.
    fn unnamed(&self, parent: InodeId, name: &Name, answer: &Result<UnlinkAnswer>, asking: Asking<'_>) {
        match answer {
            Ok(answer) => {
                let ticket = asking.ticket;
                let learnt = [Learnt::Gone(parent, name), Learnt::Dir(parent, &answer.dir)];
                self.cache.learn(asking, ticket, self.now(), &learnt);
            }
            Err(_) => self.cache.name_changed(parent, name),
        }
    }

    /// Whether what a name leads to may be open here. Without knowing the name, anything that is open may be it.
    fn may_be_open(&self, parent: InodeId, name: &Name) -> bool {
        self.may_be_created(parent, name)
            || match self.cache.name(parent, name, self.now()) {
                Some((Some(id), _)) => !self.inodes.held(&[id]).is_empty(),
                Some((None, _)) => false,
                None => self.inodes.len() > 0 || self.inodes.is_any_opening(),
            }
    }

    /// A create that is on its way may open it.
    pub fn may_be_created(&self, parent: InodeId, name: &Name) -> bool {
        self.inodes.creating.may_open(parent, name, self.lacks_but_for_changes())
    }

    fn lacks_but_for_changes(&self) -> impl Fn(InodeId, &Name) -> bool {
        let now = self.now();
        move |dir, name| self.cache.lacks_but_for_changes(dir, name, now)
    }

    pub async fn unlink(&self, cx: &Caller, parent: InodeId, name: &Name) -> Result<()> {
        self.behind.until_room(&self.env, parent.slot(), self.op(cx.trace).deadline).await?;
        if let Some(done) = self.remove_behind(cx.trace, parent, name).await {
            return done;
        }
        let open_here = self.may_be_open(parent, name);
        let asking = self.removing(parent, name);
        let message = Unlink { parent: self.cache.existing(parent)?, name: name.clone(), open_here };
        let answer = self.call(message, self.op(cx.trace)).await;
        self.unnamed(parent, name, &answer, asking);
        self.lost_name(parent, name, &answer?.attr);
        self.removed_one(parent);
        Ok(())
    }

    /// The name goes, and what it stands for changes.
    fn removing(&self, parent: InodeId, name: &Name) -> Asking<'_> {
        self.cache.change(parent, self.keys_removed(parent, name))
    }

    fn keys_removed(&self, parent: InodeId, name: &Name) -> Vec<Key> {
        let mut keys = entry_keys(parent, name);
        keys.extend(self.cache.name(parent, name, self.now()).and_then(|(id, _)| id).map(Key::Attr));
        keys
    }

    /// An inode lost a name here. When it was the last and nobody has it open, nothing of it is sent any more.
    pub fn lost_name(&self, parent: InodeId, name: &Name, attr: &Attr) {
        self.cache.changed(attr.id);
        self.cache.drop_place(attr.id, parent, name);
        if attr.nlink == 0 {
            self.reopens.has_lost(attr.id, parent, name);
        }
        match self.inodes.get(attr.id) {
            Some(inode) => {
                self.update(&inode, |state| {
                    state.adopt_attr(attr, None);
                    self.let_go(state);
                });
                self.forget_if_unused(attr.id);
            }
            None if attr.nlink == 0 => {
                for lane in self.servers.lanes() {
                    lane.retained(|retain| retain.forget_file(attr.id));
                }
                self.atimes.lock().remove(&attr.id);
                self.cache.gone(attr.id);
            }
            None => {}
        }
    }

    /// `tree`: with all that is in it.
    pub async fn remove_dir(&self, cx: &Caller, parent: InodeId, name: &Name, tree: bool) -> Result<()> {
        let asking = self.removing(parent, name);
        let message = RemoveDir { parent: self.cache.existing(parent)?, name: name.clone(), tree };
        let answer = self.call(message, self.op(cx.trace)).await;
        self.unnamed(parent, name, &answer, asking);
        self.lost_name(parent, name, &answer?.attr);
        Ok(())
    }

    /// Whoever finds the new name must find what was written, so the source is saved first (design.md *File
    /// lease*). Until when the operation may wait then.
    async fn save_source(self: &Arc<Self>, parent: InodeId, name: &Name, op: Op) -> Result<Op> {
        let known = self.cache.name(parent, name, self.now()).and_then(|(id, _)| id);
        let source = match known {
            Some(id) => self.inodes.get(id),
            None => self.inodes.all().into_iter().find(|inode| {
                self.cache.inode(inode.id).hint.is_some_and(|place| place.0 == parent && place.1 == *name)
            }),
        };
        match source {
            Some(inode) => self.commit(&inode, Reach::Answered, op).await.map(|()| self.op(op.trace)),
            None => Ok(op),
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
        let op = self.save_source(from.0, from.1, op).await?;
        let kind = match mode {
            RenameMode::Replace => RenameKind::Replace,
            RenameMode::NoReplace => RenameKind::NoReplace,
            RenameMode::Exchange => RenameKind::Exchange,
        };
        let open_here = self.may_be_open(to.0, to.1);
        self.inodes.creating.renames(from.0, from.1, self.lacks_but_for_changes());
        if mode == RenameMode::Exchange {
            self.inodes.creating.renames(to.0, to.1, self.lacks_but_for_changes());
        }
        let known = self.cache.name(from.0, from.1, self.now()).and_then(|(id, _)| id);
        let keys = [self.keys_removed(from.0, from.1), self.keys_removed(to.0, to.1)].concat();
        let asking = self.cache.change(from.0, keys);
        let message = Rename {
            from: self.cache.existing(from.0)?,
            from_name: from.1.clone(),
            to: self.cache.existing(to.0)?,
            to_name: to.1.clone(),
            mode: kind,
            open_here,
        };
        let answer = self.call(message, op).await;
        let answer = answer.inspect_err(|_| {
            self.cache.name_changed(from.0, from.1);
            self.cache.name_changed(to.0, to.1);
        })?;
        self.cache.own_change(&answer.moved);
        let [left, entered] = &answer.dirs;
        let mut more = Vec::with_capacity(3);
        // With two names of one file nothing happens, and both stay; then no directory has changed.
        if kind != RenameKind::Exchange && left.attr.is_some() {
            more.push(Learnt::Gone(from.0, from.1));
        } else {
            self.cache.name_gone(from.0, from.1);
        }
        more.push(Learnt::Dir(from.0, left));
        if from.0 != to.0 {
            more.push(Learnt::Dir(to.0, entered));
        }
        let valid = self.named(to.0, to.1, &answer.moved, answer.grant, &more, asking);
        if valid.is_zero() {
            self.cache.changed(answer.moved.id);
        }
        self.moved_in_the_kernel(from, to, kind, known == Some(answer.moved.id) && !valid.is_zero());
        // Two names of one file: nothing moved, and its places stay.
        let moved = answer.other.is_some() || from != to;
        if moved {
            self.cache.moved(answer.moved.id);
            self.cache.place(answer.moved.id, Some((to.0, to.1.clone())));
        }
        match &answer.other {
            Some(other) if kind == RenameKind::Exchange => {
                self.cache.changed(other.id);
                self.cache.moved(other.id);
                self.cache.place(other.id, Some((from.0, from.1.clone())));
            }
            Some(other) => self.lost_name(to.0, to.1, other),
            None => {}
        }
        Ok(())
    }

    /// A kernel moves what it took for the file, with the time for which the old name was granted. Where the new name was not granted,
    /// or the old one stood for another file by then, it must not keep that.
    fn moved_in_the_kernel(&self, from: (InodeId, &Name), to: (InodeId, &Name), kind: RenameKind, is_known: bool) {
        let entry = |(parent, name): (InodeId, &Name)| Shown::Entry(parent, name.clone());
        let mut shown = Vec::new();
        if !is_known {
            shown.push(entry(to));
        }
        if kind == RenameKind::Exchange {
            shown.push(entry(from));
        }
        if !shown.is_empty() {
            // Behind the answer: until then the kernel keeps the directory locked.
            self.leases.add(vec![Task::Forget(shown)]);
        }
    }

    pub async fn link(&self, cx: &Caller, id: InodeId, parent: InodeId, name: &Name) -> Result<EntryReply> {
        let asking = self.cache.change(parent, [entry_keys(parent, name), vec![Key::Attr(id)]].concat());
        let ticket = asking.ticket;
        // Whatever the inode is called.
        self.inodes.creating.renames(parent, name, |_, _| false);
        self.cache.exists(parent)?;
        if self.cache.is_dir(parent) == Some(false) {
            return Err(Code::NotDirectory.into());
        }
        self.cache.exists(id)?;
        // As in Linux: what lost its last name never gets another; what never had one may, unless its maker said no.
        let open = self.inodes.get(id);
        if open.is_some_and(|inode| {
            let state = inode.state.lock();
            state.attr.nlink == 0 && !state.linkable
        }) {
            if self.lookup(cx, parent, name).await?.attr.is_some() {
                return Err(Code::Exists.into());
            }
            return Err(Error::new(Code::NotFound, format_args!("inode {id}"), "its last name was removed"));
        }
        let message =
            Link { inode: self.cache.existing(id)?, parent: self.cache.existing(parent)?, name: name.clone() };
        let answer = self.call(message, self.op(cx.trace)).await?;
        let overtaken = self.cache.changed_since(id, ticket);
        let changed = self.cache.ticket();
        self.cache.own_change(&answer.attr);
        if let Some(inode) = self.inodes.get(id) {
            self.update(&inode, |state| state.adopt_attr(&answer.attr, None));
        }
        let made = self.new_entry(parent, name, &answer, asking);
        if overtaken || !self.cache.valid(id, changed) {
            return Ok(EntryReply { attr: self.get_attr(cx, id).await?.attr, ..made });
        }
        Ok(made)
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
        let known = self.cache.name(parent, name, self.now());
        let keys = if replace { self.keys_removed(parent, name) } else { entry_keys(parent, name) };
        let open_here = replace && self.may_be_open(parent, name);
        let asking = self.cache.change(parent, keys);
        let parent_ref = self.cache.inode(parent);
        let message = PutFile { parent: parent_ref, name: name.clone(), spec, data, replace, open_here };
        let answer = self.call(message, self.op(TraceId(0))).await;
        if replace {
            // What had the name has it no more, also if nobody heard of it.
            match known {
                Some((Some(old), _)) => self.cache.changed(old),
                Some((None, _)) => {}
                None => self.cache.forget_kept(),
            }
        }
        let answer = answer?;
        if let Some(gone) = &answer.replaced {
            self.lost_name(parent, name, gone);
        }
        Ok(self.new_entry(parent, name, &answer, asking).attr)
    }

    pub async fn resolve(&self, from: InodeId, path: &[Name]) -> Result<Resolved> {
        let op = self.op(TraceId(0));
        loop {
            let ticket = self.cache.ticket();
            let mut resolved = self.call(Resolve { from, path: path.to_vec() }, op).await?;
            let mut overtaken = false;
            for attr in &mut resolved.attrs {
                *attr = self.shown(attr);
                overtaken |= !self.cache.valid(attr.id, ticket);
            }
            if !overtaken || op.deadline.left(&self.env).is_zero() {
                return Ok(resolved);
            }
        }
    }
}
