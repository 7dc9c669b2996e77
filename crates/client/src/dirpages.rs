//! Offsets of a directory. Pure.
//!
//! Names come from the server in pages. A directory numbers the pages it handed out, from 1, for all its handles; the offset after the
//! entry at `index` of page `p` is `p * 4096 + index + 1`. A page that is read again begins after the name its
//! predecessor ended with, and resumes after the very name the offset stood for, so entries that were removed
//! meanwhile shift nothing. Only names are remembered, and of all but the last [`PAGES_WITH_NAMES`] pages only
//! where they begin; an offset into the middle of such an old page counts entries as they are now.
//!
//! Who begins anew gets new pages, unless what is in the directory is known to be as it was: then the same, so that a cache above that
//! was filled through one handle is right for all.

use braid_types::Name;
use std::collections::BTreeMap;

/// Entries asked for at once; at most 4095 - 1024, so that a page resumed in its middle keeps its numbers.
pub const PAGE_ENTRIES: u32 = 1024;
const STRIDE: u64 = 4096;
/// 65,536 names, of some 40 bytes each.
const PAGES_WITH_NAMES: u64 = 64;
/// Offsets from so many pages ago stand for nothing any more: 64 million entries.
const PAGES_MAX: u64 = 1 << 16;

struct Page {
    /// The name after which it begins.
    after: Option<Name>,
    /// The page behind it, once somebody came that far.
    next: Option<u64>,
    /// `None` if they were forgotten.
    names: Option<Vec<Name>>,
}

#[derive(Default)]
pub struct Pages {
    pages: BTreeMap<u64, Page>,
    last: u64,
    /// Where who began last began.
    first: Option<u64>,
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
    /// Begins again, `unchanged` or not; offsets given before stay valid.
    pub fn rewind(&mut self, unchanged: bool) -> Cursor {
        let same = self.first.filter(|first| unchanged && self.pages.contains_key(first));
        let page = same.unwrap_or_else(|| self.begin(None));
        self.first = Some(page);
        Cursor { page, index: 0, after: None, skip: 0 }
    }

    fn begin(&mut self, after: Option<Name>) -> u64 {
        self.last += 1;
        if let Some(old) = self.last.checked_sub(PAGES_WITH_NAMES).and_then(|old| self.pages.get_mut(&old)) {
            old.names = None;
        }
        if let Some(old) = self.last.checked_sub(PAGES_MAX) {
            self.pages.remove(&old);
        }
        self.pages.insert(self.last, Page { after, next: None, names: Some(Vec::new()) });
        self.last
    }

    /// What `offset` stands for; `None` if this directory never gave it, or long ago.
    pub fn cursor(&self, offset: u64) -> Option<Cursor> {
        let (number, index) = (offset / STRIDE, offset % STRIDE);
        let page = self.pages.get(&number)?;
        let (after, skip) = match (&page.names, index) {
            (_, 0) => (page.after.clone(), 0),
            (Some(names), _) => (Some(names.get(index as usize - 1)?.clone()), 0),
            (None, _) => (page.after.clone(), index),
        };
        Some(Cursor { page: number, index, after, skip })
    }

    /// The server's names from the cursor on, of which the first `cursor.skip` are passed over. Gives how many
    /// of the rest belong to this page; their offsets are `offset_after(cursor.page, cursor.index + i)`. Where they are others than were
    /// told of this page before, they are those of a new page, and so is the cursor: other handles still go by the old ones.
    pub fn fill(&mut self, cursor: &mut Cursor, names: &[Name]) -> usize {
        let room = (STRIDE - 1 - cursor.index) as usize;
        let next = self.pages.get(&cursor.page).and_then(|page| page.next);
        let next = next.and_then(|next| self.pages.get(&next)?.after.clone());
        let belongs = |name: &&Name| next.as_ref().is_none_or(|next| *name <= next);
        let fit: Vec<Name> = names.iter().skip(cursor.skip as usize).take(room).take_while(belongs).cloned().collect();
        let count = fit.len();
        if cursor.skip > 0 {
            return count;
        }
        let Some(page) = self.pages.get_mut(&cursor.page) else { return count };
        let (index, told) = (cursor.index as usize, page.names.get_or_insert_default());
        let known = told.len().saturating_sub(index).min(count);
        if told.len() >= index && told[index..index + known] == fit[..known] {
            told.extend(fit.into_iter().skip(known));
            return count;
        }
        let fit: Vec<Name> = names.iter().take(STRIDE as usize - 1).cloned().collect();
        let (count, number) = (fit.len(), self.begin(cursor.after.clone()));
        if let Some(page) = self.pages.get_mut(&number) {
            page.names = Some(fit);
        }
        if cursor.after.is_none() {
            self.first = Some(number);
        }
        (cursor.page, cursor.index) = (number, 0);
        count
    }

    /// The page after this one, which ended with `last`.
    pub fn next(&mut self, number: u64, last: Name) -> Cursor {
        let next = self.pages.get(&number).and_then(|page| page.next);
        if let Some(page) = next
            && self.pages.get(&page).is_some_and(|page| page.after.as_ref() == Some(&last))
        {
            return Cursor { page, index: 0, after: Some(last), skip: 0 };
        }
        let page = self.begin(Some(last.clone()));
        if let Some(before) = self.pages.get_mut(&number)
            && next.is_none()
        {
            before.next = Some(page);
        }
        Cursor { page, index: 0, after: Some(last), skip: 0 }
    }

    /// All names from this page on, if they are remembered.
    pub fn all(&self, first: u64) -> Option<Vec<Name>> {
        let (mut at, mut names) = (Some(first), Vec::new());
        while let Some(page) = at {
            let page = self.pages.get(&page)?;
            names.extend(page.names.as_ref()?.iter().cloned());
            at = page.next;
        }
        Some(names)
    }

    /// How many names are remembered.
    pub fn names(&self) -> usize {
        let pages = self.pages.range(self.last.saturating_sub(PAGES_WITH_NAMES)..);
        pages.filter_map(|(_, page)| page.names.as_ref()).map(Vec::len).sum()
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
        let mut first = pages.rewind(false);
        assert_eq!(pages.fill(&mut first, &names(0..1024)), 1024);
        let offset = offset_after(1, 499);
        assert!(offset >= 4096);
        let mut cursor = pages.cursor(offset).unwrap();
        assert_eq!(cursor, Cursor { page: 1, index: 500, after: Some("000499".parse().unwrap()), skip: 0 });
        let second = pages.next(1, "001023".parse().unwrap());
        assert_eq!((second.page, second.after.clone().unwrap().to_string()), (2, "001023".into()));
        // The first half was removed; the page read again ends where the second begins.
        assert_eq!(pages.fill(&mut cursor, &names(500..1524)), 524);
        assert_eq!(pages.cursor(offset_after(1, 0)).unwrap().after.unwrap().to_string(), "000000");
    }

    /// Reads so many pages of ten.
    fn read(pages: &mut Pages, mut cursor: Cursor, count: u32) -> Vec<u64> {
        let mut numbers = Vec::new();
        for page in 0..count {
            let list = names(page * 10..page * 10 + 10);
            assert_eq!(pages.fill(&mut cursor, &list), 10);
            numbers.push(cursor.page);
            cursor = pages.next(cursor.page, list[9].clone());
        }
        numbers
    }

    #[test]
    fn old_pages_remember_where_they_begin_and_a_rewind_keeps_them() {
        let mut pages = Pages::default();
        let begin = pages.rewind(false);
        read(&mut pages, begin, 80);
        let old = pages.cursor(offset_after(2, 3)).unwrap();
        assert_eq!((old.after.unwrap().to_string(), old.skip), ("000009".into(), 4));
        assert!(pages.rewind(false).page > 80 && pages.cursor(offset_after(2, 3)).is_some());
        assert!(pages.cursor(99 * 4096).is_none() && pages.cursor(7).is_none());
    }

    #[test]
    fn what_is_unchanged_has_the_same_offsets_for_all() {
        let mut pages = Pages::default();
        let begin = pages.rewind(false);
        let first = read(&mut pages, begin, 3);
        // Another begins anew in between, and both go on.
        let (again, anew) = (pages.rewind(true), pages.rewind(false));
        assert_eq!(read(&mut pages, again, 3), first);
        let other = read(&mut pages, anew, 2);
        assert!(other.iter().all(|page| !first.contains(page)));
        let longer = pages.cursor(offset_after(first[2], 9)).unwrap();
        assert_eq!(longer.after.as_ref().unwrap().to_string(), "000029");
        // What comes behind a page is what was read behind it, whoever read what meanwhile.
        assert_eq!(pages.next(first[0], "000009".parse().unwrap()).page, first[1]);
        assert_eq!(pages.next(other[0], "000009".parse().unwrap()).page, other[1]);
    }

    #[test]
    fn what_one_handle_reads_anew_shifts_nothing_for_another() {
        let mut pages = Pages::default();
        let mut begin = pages.rewind(false);
        pages.fill(&mut begin, &names(0..1024));
        let second = pages.next(begin.page, "001023".parse().unwrap());
        // Two stand at 300 and at 800 when ten names between them are removed; the first asks, then the other.
        let (at, other) = (offset_after(begin.page, 299), offset_after(begin.page, 799));
        let mut cursor = pages.cursor(at).unwrap();
        let left: Vec<Name> = names(300..500).into_iter().chain(names(510..1334)).collect();
        let count = pages.fill(&mut cursor, &left);
        assert!(cursor.page != begin.page && cursor.index == 0, "{cursor:?}");
        assert_eq!(pages.cursor(offset_after(cursor.page, 250)).unwrap().after.unwrap().to_string(), "000560");
        assert_eq!(pages.cursor(other).unwrap().after.unwrap().to_string(), "000799");
        // What comes behind the names that were told now, and not behind those that were told then.
        let after = pages.next(cursor.page, left[count - 1].clone());
        assert_eq!(after.after.unwrap(), left[count - 1]);
        // Names were added in front of where it ends: what follows begins where this ended.
        let mut cursor = pages.cursor(other).unwrap();
        let more: Vec<Name> =
            names(800..900).into_iter().chain(["000899a".parse().unwrap()]).chain(names(900..1100)).collect();
        let count = pages.fill(&mut cursor, &more);
        let after = pages.next(cursor.page, more[count - 1].clone());
        assert!(after.page != second.page && after.after.unwrap() == more[count - 1]);
    }
}
