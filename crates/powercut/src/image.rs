//! The content of a file as sparse pages, which copies share until one changes.
//!
//! Knows nothing of syncs: `content.rs` keeps two of these for a file.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const PAGE_BYTES: u64 = 4096;

type Page = Arc<[u8; PAGE_BYTES as usize]>;

#[derive(Clone, Default)]
pub(crate) struct Image {
    pub len: u64,
    pages: BTreeMap<u64, Page>,
}

/// A range cut at page boundaries: (page, start inside it, bytes before the piece, its length).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let inside = (at % PAGE_BYTES) as usize;
        let part = (PAGE_BYTES as usize - inside).min(len - done);
        let piece = (at / PAGE_BYTES, inside, done, part);
        done += part;
        (part > 0).then_some(piece)
    })
}

impl Image {
    /// The bytes of a range that lie inside the length.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        self.peek(offset, len.min(self.len.saturating_sub(offset)) as usize)
    }

    /// The bytes of a range whatever the length; what was never written is zero.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (page, inside, done, part) in pieces(offset, len) {
            if let Some(page) = self.pages.get(&page) {
                bytes[done..done + part].copy_from_slice(&page[inside..inside + part]);
            }
        }
        bytes
    }

    /// Changes bytes and leaves the length.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (page, inside, done, part) in pieces(offset, bytes.len()) {
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
            Arc::make_mut(page)[inside..inside + part].copy_from_slice(&bytes[done..done + part]);
        }
    }

    /// Zeroes a range and frees the pages that lie in it whole.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|(page, _)| *page).collect();
        for number in touched {
            let base = number * PAGE_BYTES;
            let (from, to) = (offset.max(base) - base, end.min(base + PAGE_BYTES) - base);
            if to - from == PAGE_BYTES {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                Arc::make_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    pub fn set_len(&mut self, len: u64) {
        self.len = len;
        self.clip();
    }

    /// Drops what lies beyond the length, so that growing shows zeros.
    pub fn clip(&mut self) {
        self.zero(self.len, u64::MAX - self.len);
    }

    pub fn has_page(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    pub fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_holes_and_lengths() {
        let mut image = Image { len: 10_000, ..Image::default() };
        image.put(4000, &[7; 5000]);
        assert_eq!(image.read(3999, 2), [0, 7]);
        assert_eq!(image.read(9_990, 100).len(), 10);
        image.zero(4096, 4096);
        assert_eq!((image.page_count(), image.has_page(1)), (2, false));
        assert_eq!(image.read(8191, 2), [0, 7]);
        image.set_len(4010);
        image.set_len(10_000);
        assert_eq!(image.peek(4009, 2), [7, 0]);
    }
}
