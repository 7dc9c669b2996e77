//! Attributes: reading, changing, truncating; and the file system's totals.

use crate::cache::{Asking, Learnt, Ticket};
use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::inode::{FileState, Inode};
use braid_api::meta::{
    AttrAnswer, ChangeAttr, ChangeTree, GetAttr, GetPlace, GetStatFs, NewTime, ReadLink, TreeChange, TreeOp,
};
use braid_api::{AttrReply, Caller, Code, Error, Result, SetAttr, StatFs, TimeOrNow};
use braid_lease::{Key, Want};
use braid_types::{Attr, FILE_BYTES_MAX, InodeId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Core {
    /// What users of this client see: the server's word with what is not saved here on top.
    pub fn shown(&self, attr: &Attr) -> Attr {
        match self.inodes.get(attr.id) {
            Some(inode) => inode.state.lock().shown(attr),
            // Not as it was before removals here that it may not know of.
            None if attr.is_dir() && self.behind.unanswered() > 0 => self.cache.not_before_guess(attr),
            None => *attr,
        }
    }

    /// The same, unless something was changed here since `ticket`: a save that ends takes with it what was to be shown on
    /// top of an answer that is older.
    pub fn shown_since(&self, ticket: Ticket, attr: &Attr) -> Option<Attr> {
        let shown = self.shown(attr);
        self.cache.valid(attr.id, ticket).then_some(shown)
    }

    /// What is leased of an inode as it is shown, and for how long a cache above may keep it.
    pub fn shown_cached(&self, id: InodeId) -> Option<(Attr, Duration)> {
        let ticket = self.cache.ticket();
        let (attr, valid) = self.cache.attr(id, self.now())?;
        Some((self.shown_since(ticket, &attr)?, valid))
    }

    pub async fn get_attr(&self, cx: &Caller, id: InodeId) -> Result<AttrReply> {
        let op = self.op(cx.trace);
        loop {
            self.cache.exists(id)?;
            if let Some((attr, valid)) = self.shown_cached(id) {
                self.counters.cache_hits.fetch_add(1, Relaxed);
                return Ok(AttrReply { attr, valid });
            }
            self.counters.cache_misses.fetch_add(1, Relaxed);
            let asking = self.cache.ask(id);
            let ticket = asking.ticket;
            let answer = self.call(GetAttr { inode: self.cache.inode(id) }, op).await?;
            let reply = self.attr_reply(answer, asking, ticket);
            // As in `shown_since`.
            if self.cache.valid(id, ticket) || op.deadline.left(&self.env).is_zero() {
                return Ok(reply);
            }
        }
    }

    pub(super) fn attr_reply(&self, answer: AttrAnswer, asking: Asking<'_>, ticket: Ticket) -> AttrReply {
        self.cache.place(answer.attr.id, answer.place);
        let learnt = [Learnt::Attr(&answer.attr, answer.grant.attr)];
        let valid = self.cache.learn(asking, ticket, self.now(), &learnt);
        AttrReply { attr: self.shown(&answer.attr), valid }
    }

    pub async fn set_attr(self: &Arc<Self>, cx: &Caller, id: InodeId, change: SetAttr) -> Result<AttrReply> {
        let mut op = self.op(cx.trace);
        if change.size.is_some_and(|size| size > FILE_BYTES_MAX) {
            return Err(Error::new(Code::FileTooBig, format!("inode {id}"), "files have at most 2^63 - 1 bytes"));
        }
        let time = |time: Option<TimeOrNow>| {
            time.map(|time| match time {
                TimeOrNow::Now => NewTime::Now,
                TimeOrNow::At(at) => NewTime::At(at),
            })
        };
        let message = ChangeAttr {
            inode: self.cache.existing(id)?,
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: time(change.atime),
            mtime: time(change.mtime),
            kill_privileges: change.kill_privileges,
            cuts_applied: Default::default(),
        };
        if change.atime.is_some() {
            // The new time wins over a read not yet reported.
            self.atimes.lock().remove(&id);
        }
        let open = self.inodes.get(id);
        if let Some(inode) = &open
            && (change.mtime.is_some() || change.atime.is_some())
        {
            // Times that buffered writes still bring must not overtake the one that is set now.
            self.commit(inode, Reach::Answered, op).await?;
            op = self.op(op.trace);
        }
        // Not before: what that commit changed is in the answer.
        let asking = self.cache.change(id, vec![Key::Attr(id)]);
        let before = asking.ticket;
        let answer = match (change.size, open) {
            (Some(size), Some(inode)) => self.truncate_leased(&inode, message, size, op).await?,
            (Some(size), None) if size > 0 => self.truncate_closed(id, message, size, op).await?,
            (size, open) => {
                let answer = self.call(message, op).await?;
                if let Some(size) = size {
                    self.cut_retained_at(id, &answer, size);
                }
                match (&open, self.inodes.get(id)) {
                    (Some(inode), _) => {
                        self.update(inode, |state| state.adopt_attr(&answer.attr, Some(&answer.cuts)));
                    }
                    // Opened meanwhile, from what was known before.
                    (None, Some(inode)) if size.is_some() => self.update(&inode, |state| state.stale = true),
                    _ => {}
                }
                answer
            }
        };
        self.cache.own_change(&answer.attr);
        let overtaken = self.cache.changed_since(id, before);
        let ticket = self.cache.ticket();
        if !overtaken {
            let reply = self.attr_reply(answer, asking, ticket);
            if self.cache.valid(id, ticket) {
                return Ok(reply);
            }
        }
        // As in `shown_since`: a save ended meanwhile, and what it saved is not in the answer.
        self.get_attr(cx, id).await
    }

    /// What is below is recalled as it changes; the directory itself is asked for again.
    pub async fn change_tree(&self, dir: InodeId, change: TreeChange) -> Result<TreeOp> {
        let message = ChangeTree { dir: self.cache.existing(dir)?, change };
        let op = self.call(message, self.own_op()).await?;
        self.cache.changed(dir);
        Ok(op)
    }

    /// Truncates a file that nobody has open here: its map is needed to cut the chunk at the border.
    async fn truncate_closed(
        self: &Arc<Self>,
        id: InodeId,
        message: ChangeAttr,
        size: u64,
        op: Op,
    ) -> Result<AttrAnswer> {
        let inode = self.open_inode(id, Want::Once, false, op).await?.0;
        let answer = self.truncate_leased(&inode, message, size, op).await;
        self.close_inode(&inode);
        answer
    }

    pub fn close_inode(self: &Arc<Self>, inode: &Arc<Inode>) {
        let clean = self.update(inode, |state| {
            state.handles = state.handles.saturating_sub(1);
            self.let_go(state);
            state.is_clean()
        });
        if clean {
            self.forget_if_unused(inode.id);
        } else {
            self.save_in_background(inode);
            self.wake.notify_one();
        }
    }

    /// A file without a name that nobody has open here: nobody will ever read what is not saved yet.
    pub fn let_go(&self, state: &mut FileState) {
        if state.handles == 0 && state.attr.nlink == 0 {
            drop(std::mem::take(&mut state.dirty));
            (state.unsaved, state.dirty_since, state.lost) = (false, None, None);
            self.cache.gone(state.attr.id);
        }
    }

    pub async fn read_link(&self, cx: &Caller, id: InodeId) -> Result<Bytes> {
        self.call(ReadLink { inode: self.cache.existing(id)? }, self.op(cx.trace)).await
    }

    pub async fn parent(&self, cx: &Caller, dir: InodeId) -> Result<InodeId> {
        if dir == InodeId::ROOT {
            return Ok(dir);
        }
        self.expect_dir(cx, dir).await?;
        let listed = self.cache.listed(dir, self.now());
        if let Some((_, Some(parent))) = listed {
            return Ok(parent);
        }
        let parent = self.call(GetPlace { id: dir }, self.op(cx.trace)).await?.parent;
        if let Some((listing, _)) = listed {
            self.cache.keep_parent(dir, listing, parent);
        }
        Ok(parent)
    }

    pub async fn statfs(&self, cx: &Caller, id: InodeId) -> Result<StatFs> {
        let now = self.now();
        // What is in a snapshot does not grow.
        let of = if id.is_in_snapshot() { InodeId(0) } else { id };
        // What holds for everything is kept under 0.
        for known in [id, InodeId(0)] {
            if let Some((totals, at)) = self.statfs.lock().get(&known).copied()
                && now.since(at) < self.config.statfs_valid
            {
                return Ok(totals);
            }
        }
        let answer = self.call(GetStatFs { of }, self.op(cx.trace)).await?;
        let totals = StatFs {
            bytes_total: answer.bytes_total,
            bytes_free: answer.bytes_free,
            files: answer.files,
            files_free: answer.files_free,
        };
        let of = if answer.limited { id } else { InodeId(0) };
        self.statfs.lock().insert(of, (totals, now));
        Ok(totals)
    }
}
