//! Opening and creating files; closing them.

use crate::believed::keeps_pages;
use crate::cache::{Learnt, Stamp, Task, Ticket, entry_keys};
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::files::Made;
use crate::handles::Handle;
use crate::inode::Inode;
use crate::shared::asked;
use braid_api::meta::{AttrAnswer, ChangeAttr, Content, CreateFile, CreateTemporary, OpenAhead, OpenAnswer, OpenFile};
use braid_api::{Caller, Code, EntryReply, Error, HandleId, OpenFlags, Opened, Result};
use braid_lease::{Key, Want};
use braid_types::{Durability, FileKind, InodeId, Mode, Name};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Core {
    /// The inode with its map, counted as open once more, and what the server said.
    pub async fn open_inode(
        self: &Arc<Self>,
        id: InodeId,
        want: Want,
        truncate: bool,
        op: Op,
    ) -> Result<(Arc<Inode>, OpenAnswer)> {
        let _opening = self.inodes.opening(id, false);
        let sure = !self.returns.is_under_way(id);
        let (version, ticket) = (self.version_of(id), self.cache.ticket());
        let message = OpenFile { inode: self.cache.existing(id)?, want: asked(want), truncate };
        let take = self.begin_take(id, want);
        let answer = match self.call(message, op).await {
            Ok(answer) => answer,
            Err(error) => {
                self.no_lease(id, take);
                return Err(error);
            }
        };
        let inode = self.adopt_opened(&answer, version, sure);
        self.heard_lease(id, take, answer.lease);
        self.not_overtaken(&inode, ticket, false, op).await?;
        Ok((inode, answer))
    }

    /// A save that ended while the answer was on its way is not in it, and its inode may have been forgotten since.
    /// `made` by the very request: if another client has removed it since, before anybody could say that it is open here, it is
    /// there for its handle alone, and empty.
    async fn not_overtaken(self: &Arc<Self>, inode: &Arc<Inode>, ticket: Ticket, made: bool, op: Op) -> Result<()> {
        if !self.cache.valid(inode.id, ticket) {
            inode.state.lock().stale = true;
        }
        let fresh = self.fresh(inode, op).await;
        if made && fresh.as_ref().is_err_and(|error| error.code == Code::Stale) {
            self.update(inode, |state| (state.stale, state.attr.nlink) = (false, 0));
            return Ok(());
        }
        if fresh.is_err() {
            self.close_inode(inode);
        }
        fresh
    }

    pub fn version_of(&self, id: InodeId) -> u64 {
        self.inodes.get(id).map_or(0, |inode| inode.state.lock().version)
    }

    pub fn learn_containers(&self, answer: &OpenAnswer) {
        if let Content::Chunked(page) = &answer.map.content {
            self.servers.learn(&page.containers);
        }
    }

    /// `sure`: what it says of room holds.
    fn adopt_opened(self: &Arc<Self>, answer: &OpenAnswer, version: u64, sure: bool) -> Arc<Inode> {
        self.learn_containers(answer);
        let (inode, new) = self.inodes.open(&answer.attr, self.config.file_writes_max);
        self.cache.not_gone(inode.id);
        // It may have been forgotten while the answer was on its way, and then its version begins anew.
        self.update(&inode, |state| {
            state.adopt_open(answer, if new { state.version } else { version });
            if !sure {
                state.doubt_room();
            }
        });
        inode
    }

    /// The inode of what a question about another was told as an open is, counted as open once more: if it is not in use here, and nothing of it was changed or
    /// revoked since it was asked about. Who opens it asks again then.
    pub fn adopt_looked(
        self: &Arc<Self>,
        about: InodeId,
        answer: &OpenAnswer,
        asked_at: Ticket,
        made: &Made<'_>,
    ) -> Option<Arc<Inode>> {
        let id = answer.attr.id;
        // Else its lease would count under the term of another holder than the one that gave it, if that is not known here yet.
        if !self.route.is_answered_with(about, id) {
            return None;
        }
        self.heard_mark(id, answer.shared, &mut OpenFlags::default());
        // Of one that is in use here what is known may be from before it was given up: it must be asked for again under the lease that comes now.
        let in_use = self.inodes.get(id).inspect(|inode| inode.state.lock().stale = true).is_some();
        let is_good = !in_use && !answer.shared && answer.attr.nlink > 0 && self.cache.valid(id, asked_at);
        let inode = is_good.then(|| self.adopt_opened(answer, self.version_of(id), false));
        self.heard_lease_of_new(id, Want::Read, answer.lease, asked_at, made);
        if let Some(inode) = inode.as_ref().filter(|_| !self.cache.valid(id, asked_at)) {
            inode.state.lock().stale = true;
        }
        inode
    }

    pub async fn open(self: &Arc<Self>, cx: &Caller, id: InodeId, flags: OpenFlags) -> Result<Opened> {
        let opened = self.open_now(cx, id, flags).await;
        if opened.as_ref().is_err_and(|error| error.code == Code::Stale) {
            self.opened_too_late(id);
        }
        opened
    }

    async fn open_now(self: &Arc<Self>, cx: &Caller, id: InodeId, mut flags: OpenFlags) -> Result<Opened> {
        let op = self.op(cx.trace);
        let _opening = self.inodes.opening(id, flags.write);
        flags.direct |= self.marked.lock().get(&id).is_some();
        if !flags.write && !flags.truncate {
            self.readers.opened(id);
            // Also if what was asked for ahead is still on its way: it was no wrong guess.
            self.ahead.opened(id);
        }
        // Who may write asks: what else is said to a writer, of quotas, nobody holds.
        if !flags.truncate
            && !flags.write
            && let Some(inode) = self.open_known(id, flags)
        {
            return self.opened(inode, flags);
        }
        if !flags.write
            && !flags.truncate
            && let Some(inode) = self.open_with_next(id, flags, op).await
        {
            return self.opened(inode, flags);
        }
        // Given up or failed, it may have taken effect.
        let changing = flags.truncate.then_some(Key::Attr(id));
        let asking = self.cache.change(id, changing.into_iter().collect());
        // What is buffered here must be dropped by the truncate, so it goes through the inode's own order.
        let known = self.inodes.get(id);
        let (in_use, is_open) = (known.is_some(), known.is_some_and(|inode| inode.state.lock().handles > 0));
        let want = self.want_to_open(id, flags);
        let opened = self.open_inode(id, want, flags.truncate && !in_use, op).await;
        let (inode, answer) = match opened {
            // A handle of this mount writes, or did when this was asked; who only reads is refused nothing for that.
            Err(error) if error.code == Code::Sealed && !flags.write && !flags.truncate => {
                self.open_inode(id, if flags.direct { Want::Direct } else { Want::Read }, false, op).await?
            }
            opened => opened?,
        };
        // Who took its last name away, and had it open nowhere, need not see to it any more that its bytes outlive their server's power.
        if answer.attr.nlink == 0 && !is_open {
            self.close_inode(&inode);
            return Err(Error::new(
                Code::Stale,
                format_args!("inode {id}"),
                "its last name was removed before it was open",
            ));
        }
        self.heard_mark(id, answer.shared, &mut flags);
        if flags.truncate {
            if in_use {
                let truncated = self.truncate_leased(&inode, emptied(self, id), 0, op).await;
                if let Err(error) = truncated {
                    self.close_inode(&inode);
                    return Err(error);
                }
            } else {
                self.cut_retained_at(id, &attr_of(&answer), 0);
            }
            self.cache.changed(id);
        } else {
            let (ticket, learnt) = (asking.ticket, [Learnt::Attr(&answer.attr, answer.grant.attr)]);
            self.cache.learn(asking, ticket, self.now(), &learnt);
        }
        self.opened(inode, flags)
    }

    /// For reading: the inode, counted as open once more, without a word to the metadata server: the file is held, and all that an answer would tell
    /// is known. Who has a file open is nobody's business but of this client until it is recalled or loses its last name, and then it is asked.
    fn open_known(self: &Arc<Self>, id: InodeId, flags: OpenFlags) -> Option<Arc<Inode>> {
        let want = self.want_to_open(id, flags);
        let mut known = self.cache.known(id, want, self.now())?;
        let kept = known.kept.take();
        if !known.attr.is_file() || known.attr.nlink == 0 || flags.direct || self.files.is_adrift(id) {
            return None;
        }
        if let Some(kept) = &kept {
            // As of one that was not known before: the kernel may have forgotten it meanwhile.
            kept.state.lock().end_moved = true;
        }
        let was_kept = kept.is_some();
        let inode = self.inodes.open_known(id, kept)?;
        // From here on whoever recalls or changes the file finds it. Before, somebody may have.
        let is_still = self.cache.is_still_known(id, &known, want, self.now());
        let is_good = self.update(&inode, |state| {
            let is_same = state.map_lease.0 == known.number.0 && state.attr.ctime == known.attr.ctime;
            let is_good = is_still && is_same && !state.stale && state.loss.is_none();
            match is_good {
                true => state.adopt_attr(&known.attr, None),
                false => state.stale |= was_kept,
            }
            is_good
        });
        if !is_good {
            self.close_inode(&inode);
            return None;
        }
        self.counters.opens_known.fetch_add(1, Relaxed);
        Some(inode)
    }

    /// Asks for the file and, where others of its directory were opened before it, for those that come next, as if all were opened for a moment.
    /// `None` if that was not so, or the file cannot be had without asking somebody to give it up: then it is opened by itself.
    async fn open_with_next(self: &Arc<Self>, id: InodeId, flags: OpenFlags, op: Op) -> Option<Arc<Inode>> {
        let dir = self.cache.dir_of(id)?;
        let is_new = self.inodes.get(id).is_none() && !self.cache.holds_file(id);
        if !is_new || flags.direct || id.is_in_snapshot() {
            return None;
        }
        let count = self.ahead.missed(dir);
        let next = if count > 0 { self.cache.files_after(id, count, OpenAhead::BYTES_MAX) } else { Vec::new() };
        let is_new = |next: &InodeId| !self.ahead.is_brought(*next) && self.inodes.get(*next).is_none();
        let is_answered = |next: &InodeId| self.route.is_answered_with(id, *next);
        let next: Vec<InodeId> = next.into_iter().filter(|next| is_new(next) && is_answered(next)).collect();
        if next.is_empty() {
            return None;
        }
        self.ahead.brings(dir, &next);
        let asking = self.cache.ask(id);
        let (ticket, made) = (asking.ticket, self.files.making());
        let inodes = std::iter::once(id).chain(next.iter().copied()).collect();
        // What is wrong with it is said to who opens it by itself.
        let answers = self.call(OpenAhead { inodes }, op).await.unwrap_or_default();
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        let came: HashSet<InodeId> = answers.iter().map(|answer| answer.attr.id).collect();
        self.ahead.did_not_come(next.iter().filter(|next| !came.contains(*next)));
        let adopted: Vec<_> =
            answers.iter().filter_map(|answer| self.adopt_looked(id, answer, ticket, &made)).collect();
        drop(made);
        let learnt: Vec<_> = answers.iter().map(|answer| Learnt::Attr(&answer.attr, answer.grant.attr)).collect();
        self.cache.learn(asking, ticket, self.now(), &learnt);
        adopted.iter().for_each(|inode| self.close_inode(inode));
        self.open_known(id, flags)
    }

    /// No handle of a marked file is cached. The next open knows before it asks for a lease.
    fn heard_mark(&self, id: InodeId, is_marked: bool, flags: &mut OpenFlags) {
        match is_marked {
            true => self.marked.lock().insert(id, ()),
            false => _ = self.marked.lock().remove(&id),
        }
        flags.direct |= is_marked;
    }

    /// A handle, and whether the kernel's pages of the file are still right.
    fn opened(self: &Arc<Self>, inode: Arc<Inode>, flags: OpenFlags) -> Result<Opened> {
        // What the server says, not what is shown: writes that are not saved yet are this client's own.
        let attr = inode.state.lock().attr;
        let seen = self.cache.seen(inode.id);
        let keep_cache = seen == Some(Stamp::from(&attr));
        self.cache.saw(&attr);
        let handle = self.handles.open_file(inode.clone(), flags).inspect_err(|_| self.close_inode(&inode))?;
        Ok(Opened { handle: handle.id, keep_cache, direct_io: !keeps_pages(flags) })
    }

    pub async fn create(
        self: &Arc<Self>,
        cx: &Caller,
        parent: InodeId,
        name: &Name,
        mode: Mode,
        mut flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        let op = self.op(cx.trace);
        // If there is none, that is remembered apart from the listing, which this change makes old: see `may_be_created`.
        self.cache.name(parent, name, self.now());
        let asking = self.cache.change(parent, entry_keys(parent, name));
        let ticket = asking.ticket;
        let message = CreateFile {
            parent: self.cache.existing(parent)?,
            name: name.clone(),
            spec: self.spec(cx, parent, FileKind::File, mode).await?,
            exclusive: flags.exclusive,
            // A file that exists may have buffered bytes here; see `open`.
            truncate: false,
            write: flags.write,
        };
        let _creating = self.inodes.creating.begin(Some((parent, name.clone())));
        let made = self.files.making();
        let answer = self.call(message, op).await?;
        let id = answer.attr.id;
        let _opening = self.inodes.opening(id, flags.write);
        let version = self.version_of(id);
        // Of a file that was there room may have gone back since this was asked.
        let inode = self.adopt_opened(&answer, version, answer.created);
        self.heard_lease_of_new(id, Want::Once, answer.lease, ticket, &made);
        drop(made);
        self.heard_mark(id, answer.shared, &mut flags);
        self.not_overtaken(&inode, ticket, answer.created, op).await?;
        let mut valid = Duration::ZERO;
        if answer.created {
            inode.state.lock().end_moved = false;
            valid = self.named(parent, name, &answer.attr, answer.grant, &[Learnt::Dir(parent, &answer.dir)], asking);
        } else {
            let learnt = [Learnt::Name(parent, name, Some(id), answer.grant.entry)];
            self.cache.learn(asking, ticket, self.now(), &learnt);
            if flags.truncate {
                if let Err(error) = self.truncate_leased(&inode, emptied(self, id), 0, op).await {
                    self.close_inode(&inode);
                    return Err(error);
                }
                self.cache.changed(id);
            }
        }
        let attr = {
            let state = inode.state.lock();
            state.shown(&state.attr)
        };
        let opened = self.opened(inode, flags)?;
        Ok((EntryReply { attr, valid }, opened))
    }

    pub async fn make_temporary(
        self: &Arc<Self>,
        cx: &Caller,
        parent: InodeId,
        mode: Mode,
        mut flags: OpenFlags,
    ) -> Result<(EntryReply, Opened)> {
        let asking = self.cache.ask(parent);
        let spec = self.spec(cx, parent, FileKind::File, mode).await?;
        let _creating = self.inodes.creating.begin(None);
        let message = CreateTemporary { parent: self.cache.existing(parent)?, spec };
        let made = self.files.making();
        let answer = self.call(message, self.op(cx.trace)).await?;
        let inode = self.adopt_opened(&answer, 0, true);
        self.heard_lease_of_new(inode.id, Want::Once, answer.lease, asking.ticket, &made);
        drop(made);
        self.heard_mark(inode.id, answer.shared, &mut flags);
        // O_EXCL says that the file shall never get a name.
        inode.state.lock().linkable = !flags.exclusive;
        let (ticket, learnt) = (asking.ticket, [Learnt::Attr(&answer.attr, answer.grant.attr)]);
        let valid = self.cache.learn(asking, ticket, self.now(), &learnt);
        let opened = self.opened(inode, flags)?;
        Ok((EntryReply { attr: answer.attr, valid }, opened))
    }

    /// What close(2) waits for.
    pub async fn flush(self: &Arc<Self>, handle: HandleId) -> Result<()> {
        // Closing a directory promises nothing.
        let Handle::File(file) = self.handles.any(handle)? else { return Ok(()) };
        if !file.flags.write {
            return Ok(());
        }
        let reach = match file.inode.state.lock().policy.durability {
            Durability::Fsync => Reach::Answered,
            Durability::Close | Durability::Write => Reach::Stable,
        };
        let saved = self.commit(&file.inode, reach, self.own_op()).await;
        let earlier = file.report_all();
        saved.and(earlier)
    }

    pub async fn fsync(self: &Arc<Self>, handle: HandleId) -> Result<()> {
        let Handle::File(file) = self.handles.any(handle)? else { return self.settle_changes(self.own_op()).await };
        file.has_its_locks()?;
        let saved = self.commit(&file.inode, Reach::Stable, self.own_op()).await;
        let earlier = file.report_all();
        saved.and(earlier)
    }

    pub async fn release(self: &Arc<Self>, handle: HandleId) {
        let Some(closed) = self.handles.close(handle) else { return };
        let owners = std::mem::take(&mut *closed.flock_owners().lock());
        for owner in owners {
            self.free_flock(closed.inode(), owner).await;
        }
        let Handle::File(file) = closed else { return };
        {
            let mut state = file.inode.state.lock();
            state.blocks.forget(handle.0, u64::MAX, u64::MAX);
            state.writers -= u32::from(file.flags.write);
            state.cached -= u32::from(!file.flags.direct);
            state.cached_writers -= u32::from(file.flags.write && !file.flags.direct);
            state.paged -= u32::from(keeps_pages(file.flags));
        }
        if self.handles_changed(file.inode.id) {
            self.leases.add(vec![Task::SayHandles(file.inode.id)]);
        }
        if file.flags.write {
            self.stop_paying(&file.inode);
        }
        self.close_inode(&file.inode);
    }
}

fn attr_of(answer: &OpenAnswer) -> AttrAnswer {
    AttrAnswer { attr: answer.attr, cuts: answer.map.cuts.clone(), grant: answer.grant, place: None }
}

/// The change that O_TRUNC is.
fn emptied(core: &Core, id: InodeId) -> ChangeAttr {
    ChangeAttr {
        inode: core.cache.inode(id),
        mode: None,
        uid: None,
        gid: None,
        size: Some(0),
        atime: None,
        mtime: None,
        kill_privileges: false,
        cuts_applied: Default::default(),
    }
}
