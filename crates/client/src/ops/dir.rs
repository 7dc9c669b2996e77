//! Listing directories, with offsets that stay valid (design.md *readdir offsets*).

use crate::believed::DROPS_MAX;
use crate::cache::{KnownPage, Learnt, ListingId};
use crate::core::{Core, Op};
use crate::dirpages::{Cursor, PAGE_ENTRIES, offset_after};
use crate::handles::{CurrentPage, DirHandle, DirState};
use braid_api::meta::{DirPage, Grant, ReadDir};
use braid_api::{Caller, Code, DirEntry, Error, HandleId, OpenedDir, Result};
use braid_types::{Attr, ByteRange, InodeId, Name};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Core {
    pub async fn open_dir(&self, cx: &Caller, id: InodeId) -> Result<OpenedDir> {
        // Where it has a name that is leased it is there, and who came by a path needs no attributes of it.
        let is_there = !self.config.pages_above && (id == InodeId::ROOT || self.cache.has_name(id, self.now()));
        match is_there {
            true => self.expect_dir(cx, id).await?,
            false if !self.get_attr(cx, id).await?.attr.is_dir() => return Err(Code::NotDirectory.into()),
            false => {}
        }
        let keep_cache = self.cache.opens_listing(id, self.now());
        Ok(OpenedDir { handle: self.handles.open_dir(id), may_cache: true, keep_cache })
    }

    pub async fn read_dir(
        &self,
        cx: &Caller,
        handle: HandleId,
        offset: u64,
        limit: usize,
        plus: bool,
    ) -> Result<Vec<DirEntry>> {
        let dir = self.handles.dir(handle)?;
        let op = self.op(cx.trace);
        let mut state = dir.state.lock().await;
        let mut cursor = match offset {
            0 => {
                (state.current, state.leased, state.asked) = (None, None, false);
                let unchanged = self.cache.reads_listing(dir.inode, self.now());
                dir.pages.lock().rewind(unchanged)
            }
            _ => dir.pages.lock().cursor(offset).ok_or_else(|| {
                Error::new(Code::Invalid, format!("directory {}", dir.inode), "no such offset in this listing")
            })?,
        };
        loop {
            if !holds(&state, &cursor, plus) {
                self.fetch_page(&dir, &mut state, &mut cursor, plus, op).await?;
            }
            let Some(current) = &state.current else { return Ok(Vec::new()) };
            let from = (cursor.index - current.first) as usize;
            if from < current.entries.entries.len() {
                return Ok(self.entries(dir.inode, current, &cursor, from, limit));
            }
            if !current.entries.more {
                self.end_of_listing(&dir, &state).await;
                return Ok(Vec::new());
            }
            let last: Option<Name> = current.entries.entries.last().map(|(name, ..)| name.clone());
            let Some(last) = last.or_else(|| cursor.after.clone()) else { return Ok(Vec::new()) };
            cursor = dir.pages.lock().next(cursor.page, last);
        }
    }

    /// A cache above takes the listing for whole when it hears of its end. It must not be kept unless what is in the directory is leased
    /// since its beginning: it is dropped before the end is told. Then a cache that begins anew finds that nothing is there.
    async fn end_of_listing(&self, handle: &DirHandle, state: &DirState) {
        let dir = handle.inode;
        let is_kept = state.leased.is_some_and(|(first, listing)| {
            let names = || state.asked.then(|| handle.pages.lock().all(first)).flatten();
            self.cache.end_listing(dir, listing, self.now(), names)
        });
        if !is_kept {
            let all = ByteRange::new(0, u64::MAX);
            let _ = self.env.timeout(DROPS_MAX, self.forget_pages(dir, all)).await;
        }
    }

    async fn fetch_page(
        &self,
        handle: &DirHandle,
        state: &mut DirState,
        cursor: &mut Cursor,
        plus: bool,
        op: Op,
    ) -> Result<()> {
        let dir = handle.inode;
        let limit = PAGE_ENTRIES + cursor.skip as u32;
        let is_first = cursor.index == 0 && cursor.after.is_none();
        let begins = is_first.then_some(&handle.pages);
        let known = self.cache.known_page(dir, cursor.after.as_ref(), limit as usize, self.now(), begins);
        if let Some(KnownPage { entries: mut page, ticket, listing }) = known {
            self.counters.cache_hits.fetch_add(1, Relaxed);
            take_in(handle, cursor, &mut page);
            match is_first {
                true => state.leased = listing.map(|id| (cursor.page, id)),
                false => self.cache.count_listing(dir),
            }
            state.current = Some(CurrentPage { page: cursor.page, first: cursor.index, entries: page, ticket, plus });
            return Ok(());
        }
        state.asked = true;
        // What is known of it is not asked for again: with each name come two leases, which cost more than the rest of a listing.
        let mut knows = if plus && is_first { self.cache.known_in(dir, self.now()) } else { Vec::new() };
        let mut again = true;
        let (asking, mut page) = loop {
            let asking = self.cache.ask(dir);
            let completes = !knows.is_empty();
            let after = cursor.after.clone();
            let message = ReadDir { inode: dir, after, limit, plus, knows: std::mem::take(&mut knows) };
            let mut page = self.call(message, op).await?;
            // Of a file with several links a name may be known and another not; what was known may have been revoked meanwhile; and all that is held is
            // dropped when the server has started again. Then it would be shown without attributes.
            let is_complete = !completes || self.completes_page(dir, &mut page);
            if !again || is_complete && (!plus || self.cache.valid(dir, asking.ticket)) {
                break (asking, page);
            }
            again = false;
        };
        let ticket = asking.ticket;
        let skip = take_in(handle, cursor, &mut page);
        let grants = page.grants.drain(..).skip(skip).chain(std::iter::repeat(Grant::default()));
        let mut learnt = Vec::with_capacity(page.entries.len() * 2 + 1);
        let listing = AtomicU64::new(0);
        learnt.extend(is_first.then_some(Learnt::Listing(dir, page.listing, &handle.pages, &listing)));
        for ((name, id, _, attr), grant) in page.entries.iter().zip(grants) {
            learnt.push(Learnt::Name(dir, name, Some(*id), grant.entry));
            learnt.extend(attr.as_ref().map(|attr| Learnt::Attr(attr, grant.attr)));
        }
        self.cache.learn(asking, ticket, self.now(), &learnt);
        if is_first {
            state.leased = ListingId::from_learnt(listing.into_inner()).map(|id| (cursor.page, id));
        } else {
            self.cache.count_listing(dir);
        }
        if plus && is_first && !page.more {
            self.cache.saw_all(dir, &page);
        }
        state.current = Some(CurrentPage { page: cursor.page, first: cursor.index, entries: page, ticket, plus });
        Ok(())
    }

    /// Adds the attributes that were not asked for. False if some are not known any more.
    fn completes_page(&self, dir: InodeId, page: &mut DirPage) -> bool {
        let now = self.now();
        page.entries.iter_mut().filter(|(.., attr)| attr.is_none()).all(|(name, id, _, attr)| {
            let named = self.cache.name(dir, name, now).is_some_and(|(named, _)| named == Some(*id));
            *attr = self.cache.attr(*id, now).filter(|_| named).map(|(attr, _)| attr);
            attr.is_some()
        })
    }

    fn entries(
        &self,
        dir: InodeId,
        current: &CurrentPage,
        cursor: &Cursor,
        from: usize,
        limit: usize,
    ) -> Vec<DirEntry> {
        // What is leased is as it is now; of the rest, attributes that changed here since the page came are left out: the
        // kernel asks for them.
        let now = self.now();
        let whole = self.cache.valid(dir, current.ticket);
        let page = current.entries.entries.iter().enumerate().skip(from).take(limit);
        page.map(|(i, (name, id, kind, attr))| {
            let leased = || {
                let (named, _) = self.cache.name(dir, name, now)?;
                self.shown_cached(*id).filter(|_| named == Some(*id))
            };
            let fresh = |attr: &Attr| {
                let attr = self.shown_since(current.ticket, attr).filter(|_| whole)?;
                Some((attr, Duration::ZERO))
            };
            let attr = attr.filter(|_| current.plus).and_then(|attr| leased().or_else(|| fresh(&attr)));
            DirEntry {
                name: name.clone(),
                id: *id,
                kind: *kind,
                offset: offset_after(cursor.page, current.first + i as u64),
                attr,
            }
        })
        .collect()
    }
}

/// Gives the entries of a page their offsets, and how many before them were passed over.
fn take_in(handle: &DirHandle, cursor: &mut Cursor, page: &mut DirPage) -> usize {
    let names: Vec<Name> = page.entries.iter().map(|(name, ..)| name.clone()).collect();
    let count = handle.pages.lock().fill(cursor, &names);
    let skip = (cursor.skip as usize).min(page.entries.len());
    page.more |= skip + count < page.entries.len();
    page.entries = page.entries.drain(skip..).take(count).collect();
    skip
}

/// The page in hand has the entry at the cursor.
fn holds(state: &DirState, cursor: &Cursor, plus: bool) -> bool {
    state.current.as_ref().is_some_and(|current| {
        let end = current.first + current.entries.entries.len() as u64;
        current.page == cursor.page
            && (current.plus || !plus)
            && current.first <= cursor.index
            && (cursor.index < end || cursor.index == end && !current.entries.entries.is_empty())
    })
}
