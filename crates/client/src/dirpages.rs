//! Offsets of an open directory. Pure.
//!
//! Names come from the server in pages. A handle numbers the pages it handed out, from 1; the offset after the
//! entry at `index` of page `p` is `p * 4096 + index + 1`. A page that is read again begins after the name its
//! predecessor ended with, and resumes after the very name the offset stood for, so entries that were removed
//! meanwhile shift nothing. Only names are remembered, and of all but the last [`PAGES_WITH_NAMES`] pages only
//! where they begin; an offset into the middle of such an old page counts entries as they are now.

use braid_types::Name;
use std::collections::BTreeMap;

/// Entries asked for at once; at most 4095 - 1024, so that a page resumed in its middle keeps its numbers.
pub const PAGE_ENTRIES: u32 = 1024;
const STRIDE: u64 = 4096;
const PAGES_WITH_NAMES: u64 = 8;

#[derive(Default)]
pub struct Pages {
    /// By number from 1: the name after which the page begins.
    begins: Vec<Option<Name>>,
    names: BTreeMap<u64, Vec<Name>>,
}

/// Where to go on reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub page: u64,
    pub index: u64,
    /// Ask the server for names after this one …
    pub after: Option<Name>,
    /// … and pass over so many, which is 0 unless the page's names were forgotten.
    pub skip: u64,
}

impl Pages {
    /// Begins again; offsets given before stay valid.
    pub fn rewind(&mut self) -> Cursor {
        self.begin(None)
    }

    fn begin(&mut self, after: Option<Name>) -> Cursor {
        self.begins.push(after.clone());
        let page = self.begins.len() as u64;
        let keep = page.saturating_sub(PAGES_WITH_NAMES);
        self.names = self.names.split_off(&keep);
        Cursor { page, index: 0, after, skip: 0 }
    }

    /// What `offset` stands for; `None` if this handle never gave it.
    pub fn cursor(&self, offset: u64) -> Option<Cursor> {
        let (page, index) = (offset / STRIDE, offset % STRIDE);
        let begin = self.begins.get(page.checked_sub(1)? as usize)?;
        if index == 0 {
            return Some(Cursor { page, index, after: begin.clone(), skip: 0 });
        }
        match self.names.get(&page) {
            Some(names) => {
                let after = names.get(index as usize - 1)?.clone();
                Some(Cursor { page, index, after: Some(after), skip: 0 })
            }
            None => Some(Cursor { page, index, after: begin.clone(), skip: index }),
        }
    }

    /// The server's names from the cursor on, of which the first `cursor.skip` are passed over. Gives how many
    /// of the rest belong to this page; their offsets are `offset_after(cursor.page, cursor.index + i)`.
    pub fn fill(&mut self, cursor: &Cursor, names: &[Name]) -> usize {
        let room = (STRIDE - 1 - cursor.index) as usize;
        let next = self.begins.get(cursor.page as usize).cloned().flatten();
        let belongs = |name: &&Name| next.as_ref().is_none_or(|next| *name <= next);
        let fit: Vec<Name> = names.iter().skip(cursor.skip as usize).take(room).take_while(belongs).cloned().collect();
        let count = fit.len();
        if cursor.skip == 0 {
            let kept = self.names.entry(cursor.page).or_default();
            kept.truncate(cursor.index as usize);
            kept.extend(fit);
        }
        count
    }

    /// The page after this one, which ended with `last`.
    pub fn next(&mut self, page: u64, last: Name) -> Cursor {
        match self.begins.get(page as usize) {
            Some(Some(after)) => Cursor { page: page + 1, index: 0, after: Some(after.clone()), skip: 0 },
            // The last page so far, or one before a rewind.
            _ => self.begin(Some(last)),
        }
    }
}

pub fn offset_after(page: u64, index: u64) -> u64 {
    page * STRIDE + index + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: impl Iterator<Item = u32>) -> Vec<Name> {
        numbers.map(|i| format!("{i:06}").parse().unwrap()).collect()
    }

    #[test]
    fn an_offset_resumes_after_its_name_though_others_were_removed() {
        let mut pages = Pages::default();
        let first = pages.rewind();
        assert_eq!(pages.fill(&first, &names(0..1024)), 1024);
        let offset = offset_after(1, 499);
        assert!(offset >= 4096);
        let cursor = pages.cursor(offset).unwrap();
        assert_eq!(cursor, Cursor { page: 1, index: 500, after: Some("000499".parse().unwrap()), skip: 0 });
        let second = pages.next(1, "001023".parse().unwrap());
        assert_eq!((second.page, second.after.clone().unwrap().to_string()), (2, "001023".into()));
        // The first half was removed; the page read again ends where the second begins.
        assert_eq!(pages.fill(&cursor, &names(500..1524)), 524);
        assert_eq!(pages.cursor(offset_after(1, 0)).unwrap().after.unwrap().to_string(), "000000");
    }

    #[test]
    fn old_pages_remember_where_they_begin_and_a_rewind_keeps_them() {
        let mut pages = Pages::default();
        let mut cursor = pages.rewind();
        for page in 0..20u32 {
            let list = names(page * 10..page * 10 + 10);
            pages.fill(&cursor, &list);
            cursor = pages.next(cursor.page, list[9].clone());
        }
        let old = pages.cursor(offset_after(2, 3)).unwrap();
        assert_eq!((old.after.unwrap().to_string(), old.skip), ("000009".into(), 4));
        assert!(pages.rewind().page > 20 && pages.cursor(offset_after(2, 3)).is_some());
        assert!(pages.cursor(99 * 4096).is_none() && pages.cursor(7).is_none());
    }
}
