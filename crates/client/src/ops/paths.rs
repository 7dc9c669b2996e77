//! Paths, for who asks by path and not name by name: native callers.
//!
//! Promises: as much of a path as is known costs no message, and all that is not one; attributes are asked for of what the path leads to and of no
//! directory on the way, so that what is made there ends nothing that is known of it. Symbolic links are not followed.
//! Where several metadata servers serve, what one of them may grant is asked of it: a message for each name that is not known.

use crate::cache::{Learnt, Ticket, Way};
use crate::core::{Core, Op};
use braid_api::meta::{Walk, Walked};
use braid_api::{Caller, Code, Error, OpenFlags, Opened, Result};
use braid_types::{Attr, InodeId, Name, TraceId};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// So often it is looked again what a path leads to, if what it led to has been asked about and it is not known to have led there all the while.
const LED_ELSEWHERE_MAX: u32 = 3;

/// Where a walk has ended.
enum End {
    /// All was known, or asked for name by name.
    Known(InodeId),
    /// This is what the path leads to as the server said it, since the ticket was drawn.
    Told(Box<Attr>, Ticket),
}

impl End {
    fn id(&self) -> InodeId {
        match self {
            End::Known(id) => *id,
            End::Told(attr, _) => attr.id,
        }
    }
}

fn lacks(name: &Name) -> Error {
    Error::new(Code::NotFound, name, "")
}

fn is_below_no_directory(name: &Name) -> Error {
    Error::new(Code::NotDirectory, name, "what is before it in the path is no directory")
}

impl Core {
    /// What a path leads to.
    pub async fn walk(&self, from: InodeId, path: &[Name]) -> Result<InodeId> {
        Ok(self.walk_to_end(from, path, false, self.op(TraceId(0))).await?.id())
    }

    /// Its attributes.
    pub async fn stat(&self, from: InodeId, path: &[Name]) -> Result<Attr> {
        let op = self.op(TraceId(0));
        let mut again = 0..LED_ELSEWHERE_MAX;
        loop {
            let id = match self.walk_to_end(from, path, true, op).await? {
                End::Told(attr, ticket) => match self.shown_since(ticket, &attr) {
                    Some(attr) => return Ok(attr),
                    // A save ended meanwhile, and what it saved is not in the answer.
                    None => attr.id,
                },
                End::Known(id) => id,
            };
            let found = match self.get_attr(&Caller::default(), id).await {
                Err(error) if error.code == Code::Stale && !op.deadline.left(&self.env).is_zero() => continue,
                found => found?.attr,
            };
            // What it says is of the path only if that has led there all the while.
            let way = self.cache.way(from, path, self.now());
            if (way.end, way.names) == (id, path.len()) || again.next().is_none() {
                return Ok(found);
            }
        }
    }

    /// Opens the file it leads to; gives its attributes too. What it leads to may be another by then: it is walked again.
    pub async fn open_at(
        self: &Arc<Self>,
        cx: &Caller,
        from: InodeId,
        path: &[Name],
        flags: OpenFlags,
    ) -> Result<(Attr, Opened)> {
        let op = self.op(cx.trace);
        let opened = loop {
            let id = match self.look_to_open(cx, from, path, flags, op).await? {
                Some(id) => id,
                None => self.walk_to_end(from, path, false, op).await?.id(),
            };
            match self.open(cx, id, flags).await {
                Err(error) if error.code == Code::Stale && !op.deadline.left(&self.env).is_zero() => {}
                opened => break opened?,
            }
        };
        let file = self.handles.file(opened.handle)?;
        let state = file.inode.state.lock();
        Ok((state.shown(&state.attr), opened))
    }

    /// Where all but the last name is known: what that leads to, and with it what an open would be told.
    async fn look_to_open(
        &self,
        cx: &Caller,
        from: InodeId,
        path: &[Name],
        flags: OpenFlags,
        op: Op,
    ) -> Result<Option<InodeId>> {
        let way = self.known_way(from, path)?;
        let [name] = &path[way.names..] else { return Ok(None) };
        if flags.write || flags.truncate || way.end.is_in_snapshot() {
            return Ok(None);
        }
        let Some(found) = self.lookup_once(cx, way.end, name, true, op).await? else { return Ok(None) };
        found.attr.map(|attr| Some(attr.id)).ok_or_else(|| lacks(name))
    }

    fn known_way(&self, from: InodeId, path: &[Name]) -> Result<Way> {
        self.cache.exists(from)?;
        let way = self.cache.way(from, path, self.now());
        match path.get(way.names) {
            Some(name) if way.lacks => Err(lacks(name)),
            Some(name) if self.cache.is_dir(way.end) == Some(false) => Err(is_below_no_directory(name)),
            _ => Ok(way),
        }
    }

    async fn walk_to_end(&self, from: InodeId, path: &[Name], attr: bool, op: Op) -> Result<End> {
        let way = self.known_way(from, path)?;
        let rest = &path[way.names..];
        let counted = if rest.is_empty() { &self.counters.cache_hits } else { &self.counters.cache_misses };
        counted.fetch_add(1, Relaxed);
        if self.route.is_several() {
            let mut end = way.end;
            for name in rest {
                let found = self.lookup(&Caller::default(), end, name).await?;
                end = found.attr.ok_or_else(|| lacks(name))?.id;
            }
            return Ok(End::Known(end));
        }
        if rest.is_empty() {
            return Ok(End::Known(way.end));
        }
        let (walked, ticket) = self.walk_on(way.end, rest, attr, op).await?;
        let last = walked.found.attrs.last();
        Ok(last.map_or(End::Known(way.end), |attr| End::Told(Box::new(*attr), ticket)))
    }

    /// Asks where a path leads, all of it, and learns what is granted of that.
    async fn walk_on(&self, from: InodeId, path: &[Name], attr: bool, op: Op) -> Result<(Walked, Ticket)> {
        let asking = self.cache.ask(from);
        let ticket = asking.ticket;
        let walked = self.call(Walk { from, path: path.to_vec(), attr }, op).await?;
        let attrs = &walked.found.attrs;
        self.cache.learn_kinds(attrs);
        if attrs.is_empty() {
            // The metadata server knows only that no such name is there.
            self.expect_dir(&Caller::default(), from).await.map_err(|error| match error.code {
                Code::NotDirectory => is_below_no_directory(&path[0]),
                _ => error,
            })?;
        }
        let dirs = std::iter::once(from).chain(attrs.iter().map(|attr| attr.id));
        let names = dirs.zip(path).zip(attrs.iter().map(|attr| Some(attr.id)).zip(walked.names.iter().copied()));
        let mut learnt: Vec<Learnt<'_>> =
            names.map(|((dir, name), (id, granted))| Learnt::Name(dir, name, id, granted)).collect();
        if let (Some(attr), 0) = (attrs.last(), walked.found.rest) {
            learnt.push(Learnt::Attr(attr, walked.attr));
        }
        let end = attrs.last().map_or(from, |attr| attr.id);
        if walked.found.rest == 1
            && let Some(name) = path.last()
        {
            learnt.push(Learnt::Name(end, name, None, walked.absence));
        }
        self.cache.learn(asking, ticket, self.now(), &learnt);
        match walked.found.rest {
            0 => Ok((walked, ticket)),
            _ => Err(walked.found.why_short_at(&path[attrs.len()])),
        }
    }
}
