//! The checksums of a chunk's blocks, cached in pages. Every change goes to the file at once, so any page may be
//! forgotten at any time.

use crate::checksum::{BASE, BASE_ALIAS, HOLE};
use braid_env::DiskFile;
use braid_local::entry_offset;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Entries in a page: 4 KiB of file, 4 MiB of chunk.
const PAGE: u64 = 1024;
const PAGE_BYTES: usize = 4096;
/// Pages a chunk keeps in memory: 4 MiB, the table of 4 GiB. Chunks of up to 64 MiB need 16.
const PAGES_MAX: usize = 1024;

pub(crate) struct Table {
    pages: BTreeMap<u64, Page>,
    /// The chunk has a base. In others the highest value is a sum of before that value had a meaning.
    pub has_base: bool,
}

struct Page {
    sums: Box<[u32]>,
    /// Its place in the file is known to be allocated, so that writing it cannot fail for want of space.
    allocated: bool,
}

fn pages(blocks: &Range<u64>) -> Range<u64> {
    if blocks.is_empty() { 0..0 } else { blocks.start / PAGE..blocks.end.div_ceil(PAGE) }
}

impl Table {
    pub fn new(has_base: bool) -> Table {
        Table { pages: BTreeMap::new(), has_base }
    }

    pub fn has(&self, blocks: &Range<u64>) -> bool {
        pages(blocks).all(|page| self.pages.contains_key(&page))
    }

    pub fn load(&mut self, file: &dyn DiskFile, blocks: &Range<u64>) -> io::Result<()> {
        if self.has(blocks) {
            return Ok(());
        }
        if self.pages.len() >= PAGES_MAX {
            self.pages.clear();
        }
        for page in pages(blocks) {
            if self.pages.contains_key(&page) {
                continue;
            }
            let mut bytes = [0; PAGE_BYTES];
            file.read_at(&mut bytes, entry_offset(page * PAGE))?;
            let sum = |bytes: &[u8]| match u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) {
                BASE if !self.has_base => BASE_ALIAS,
                sum => sum,
            };
            let sums = bytes.chunks_exact(4).map(sum).collect();
            self.pages.insert(page, Page { sums, allocated: false });
        }
        Ok(())
    }

    /// The entry of a block that is loaded; of others, a hole.
    pub fn get(&self, block: u64) -> u32 {
        self.pages.get(&(block / PAGE)).map_or(HOLE, |page| page.sums[(block % PAGE) as usize])
    }

    /// Allocates what the entries of `blocks` need in the file.
    pub fn allocate(&mut self, file: &dyn DiskFile, blocks: &Range<u64>) -> io::Result<()> {
        for page in pages(blocks) {
            if let Some(known) = self.pages.get_mut(&page)
                && !known.allocated
            {
                match file.allocate(entry_offset(page * PAGE), PAGE_BYTES as u64) {
                    Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                    _ => known.allocated = true,
                }
            }
        }
        Ok(())
    }

    /// Sets the entries from `first` on, in memory and in the file.
    pub fn set(&mut self, file: &dyn DiskFile, first: u64, sums: &[u32]) -> io::Result<()> {
        for (sum, block) in sums.iter().zip(first..) {
            if let Some(page) = self.pages.get_mut(&(block / PAGE)) {
                page.sums[(block % PAGE) as usize] = *sum;
            }
        }
        match sums {
            [one] => file.write_at(&one.to_le_bytes(), entry_offset(first)),
            _ => {
                let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
                file.write_at(&bytes, entry_offset(first))
            }
        }
    }

    pub fn forget(&mut self) {
        self.pages.clear();
    }
}
