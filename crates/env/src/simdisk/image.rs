use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const PAGE_BYTES: usize = 4096;

/// A file's content: sparse pages, shared between copies until one changes.
#[derive(Clone, Default)]
pub(super) struct Image {
    pub len: u64,
    pub pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
}

/// The pieces of `[offset, offset + len)` by page: (page, start inside it, bytes before the piece, its length).
pub(super) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let inside = (at % PAGE_BYTES as u64) as usize;
        let n = (PAGE_BYTES - inside).min(len - done);
        let piece = (at / PAGE_BYTES as u64, inside, done, n);
        done += n;
        Some(piece)
    })
}

impl Image {
    /// Fills what lies inside the length and returns how much that is.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (page, inside, done, len) in pieces(offset, n) {
            let target = &mut buf[done..done + len];
            match self.pages.get(&page) {
                Some(bytes) => target.copy_from_slice(&bytes[inside..inside + len]),
                None => target.fill(0),
            }
        }
        n
    }

    /// Changes bytes without touching the length.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (page, inside, done, len) in pieces(offset, bytes.len()) {
            let target = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])));
            target[inside..inside + len].copy_from_slice(&bytes[done..done + len]);
        }
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let whole = offset.div_ceil(PAGE_BYTES as u64)..end / PAGE_BYTES as u64;
        if whole.start < whole.end {
            let gone: Vec<u64> = self.pages.range(whole).map(|(page, _)| *page).collect();
            gone.iter().for_each(|page| drop(self.pages.remove(page)));
        }
        for page in [offset / PAGE_BYTES as u64, end / PAGE_BYTES as u64] {
            let base = page * PAGE_BYTES as u64;
            let (from, to) = (offset.max(base), end.min(base + PAGE_BYTES as u64));
            if from < to
                && let Some(bytes) = self.pages.get_mut(&page)
            {
                Arc::make_mut(bytes)[(from - base) as usize..(to - base) as usize].fill(0);
            }
        }
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len - len);
        }
        self.len = len;
    }

    /// What lies beyond the length is gone.
    pub fn clip(&mut self) {
        let len = self.len;
        let end = self.pages.last_key_value().map_or(0, |(page, _)| (page + 1) * PAGE_BYTES as u64);
        if end > len {
            self.zero(len, end - len);
        }
    }
}
