//! Listing directories, with offsets that stay valid (design.md *readdir offsets*).

use crate::core::{Core, Op};
use crate::dirpages::{Cursor, PAGE_ENTRIES, offset_after};
use crate::handles::{CurrentPage, DirState};
use braid_api::meta::ReadDir;
use braid_api::{Caller, Code, DirEntry, Error, HandleId, Result};
use braid_types::{InodeId, Name};

impl Core {
    pub async fn open_dir(&self, cx: &Caller, id: InodeId) -> Result<HandleId> {
        let attr = self.get_attr(cx, id).await?.attr;
        if !attr.is_dir() {
            return Err(Code::NotDirectory.into());
        }
        Ok(self.handles.open_dir(id))
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
                state.current = None;
                state.pages.rewind()
            }
            _ => state.pages.cursor(offset).ok_or_else(|| {
                Error::new(Code::Invalid, format!("directory {}", dir.inode), "no such offset in this listing")
            })?,
        };
        loop {
            if !holds(&state, &cursor, plus) {
                self.fetch_page(dir.inode, &mut state, &cursor, plus, op).await?;
            }
            let Some(current) = &state.current else { return Ok(Vec::new()) };
            let from = (cursor.index - current.first) as usize;
            if from < current.entries.entries.len() {
                return Ok(self.entries(dir.inode, current, &cursor, from, limit));
            }
            if !current.entries.more {
                return Ok(Vec::new());
            }
            let last: Option<Name> = current.entries.entries.last().map(|(name, ..)| name.clone());
            let Some(last) = last.or_else(|| cursor.after.clone()) else { return Ok(Vec::new()) };
            cursor = state.pages.next(cursor.page, last);
        }
    }

    async fn fetch_page(&self, dir: InodeId, state: &mut DirState, cursor: &Cursor, plus: bool, op: Op) -> Result<()> {
        let (ticket, asked_at) = (self.cache.ticket(), self.now());
        let limit = PAGE_ENTRIES + cursor.skip as u32;
        let message = ReadDir { inode: dir, after: cursor.after.clone(), limit, plus };
        let mut page = self.call(message, op).await?;
        let names: Vec<Name> = page.entries.iter().map(|(name, ..)| name.clone()).collect();
        let count = state.pages.fill(cursor, &names);
        let skip = (cursor.skip as usize).min(page.entries.len());
        page.more |= skip + count < page.entries.len();
        page.entries = page.entries.drain(skip..).take(count).collect();
        for (name, id, _, attr) in &page.entries {
            self.cache.keep_name(dir, name, Some(*id), ticket, asked_at, page.grant);
            if let Some(attr) = attr {
                self.cache.keep_attr(attr, ticket, asked_at, page.grant);
            }
        }
        state.current =
            Some(CurrentPage { page: cursor.page, first: cursor.index, entries: page, asked_at, ticket, plus });
        Ok(())
    }

    fn entries(
        &self,
        dir: InodeId,
        current: &CurrentPage,
        cursor: &Cursor,
        from: usize,
        limit: usize,
    ) -> Vec<DirEntry> {
        // Attributes that changed here since the page came are left out: the kernel asks for them.
        let valid = self.valid(current.asked_at, current.entries.grant);
        let whole = self.cache.valid(dir, current.ticket);
        let page = current.entries.entries.iter().enumerate().skip(from).take(limit);
        page.map(|(i, (name, id, kind, attr))| {
            let fresh = whole && self.cache.valid(*id, current.ticket);
            DirEntry {
                name: name.clone(),
                id: *id,
                kind: *kind,
                offset: offset_after(cursor.page, current.first + i as u64),
                attr: attr.filter(|_| current.plus && fresh).map(|attr| (self.shown(&attr), valid)),
            }
        })
        .collect()
    }
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
