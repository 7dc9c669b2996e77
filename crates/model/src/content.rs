use braid_types::BLOCK_BYTES;
use std::collections::BTreeMap;

const BLOCK: usize = BLOCK_BYTES as usize;

/// The bytes of a file: blocks of 4 KiB where something was written, holes elsewhere. Bytes at and beyond `size` are
/// zero in every block, so that a file that grows reads zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    blocks: BTreeMap<u64, Box<[u8]>>,
    size: u64,
}

/// `[start, end)` cut at blocks: number of the block and the bytes in it.
fn pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    braid_types::ByteRange::new(start, end)
        .split_by(BLOCK_BYTES)
        .map(|(block, piece)| (block, piece.start as usize..piece.end as usize))
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes occupied.
    pub fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    pub fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let end = offset.saturating_add(len.into()).min(self.size);
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        for (block, piece) in pieces(offset.min(end), end) {
            match self.blocks.get(&block) {
                Some(data) => bytes.extend_from_slice(&data[piece]),
                None => bytes.resize(bytes.len() + piece.len(), 0),
            }
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, mut data: &[u8]) {
        let end = offset + data.len() as u64;
        for (block, piece) in pieces(offset, end) {
            let (now, rest) = data.split_at(piece.len());
            let stored = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK].into());
            stored[piece].copy_from_slice(now);
            data = rest;
        }
        self.size = self.size.max(end);
    }

    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, u64::MAX);
        }
        self.size = size;
    }

    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Makes `[start, end)` a hole, as far as blocks lie wholly in it; the edges become zero.
    pub fn punch(&mut self, start: u64, end: u64) {
        let touched: Vec<u64> =
            self.blocks.range(start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(|(&block, _)| block).collect();
        for block in touched {
            let base = block * BLOCK_BYTES;
            let from = start.saturating_sub(base) as usize;
            let to = (end - base).min(BLOCK_BYTES) as usize;
            if (from, to) == (0, BLOCK) {
                self.blocks.remove(&block);
            } else if let Some(data) = self.blocks.get_mut(&block) {
                data[from..to].fill(0);
            }
        }
    }

    /// The first byte at or after `offset` that lies in a block; `None` if only a hole follows.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let (&block, _) = self.blocks.range(offset / BLOCK_BYTES..).next()?;
        let at = offset.max(block * BLOCK_BYTES);
        (at < self.size).then_some(at)
    }

    /// The first byte at or after `offset` that lies in a hole; the end of the file counts as one.
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut block = offset / BLOCK_BYTES;
        while self.blocks.contains_key(&block) {
            block += 1;
        }
        offset.max(block * BLOCK_BYTES).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_far_away_costs_one_block() {
        let mut c = Content::default();
        let far = i64::MAX as u64 - 10;
        c.write(far, b"x");
        assert_eq!((c.size(), c.allocated()), (far + 1, 4096));
        assert_eq!(c.read(far - 1, 10), [0, b'x']);
        assert_eq!((c.next_data(5), c.next_hole(5), c.next_hole(far)), (Some(far / 4096 * 4096), 5, far + 1));
    }

    #[test]
    fn what_was_cut_reads_zero_when_it_grows() {
        let mut c = Content::default();
        c.write(0, &[1; 10_000]);
        c.truncate(5000);
        c.truncate(10_000);
        assert_eq!(c.read(4999, 3), [1, 0, 0]);
        assert_eq!(c.next_hole(0), 8192);
    }

    #[test]
    fn a_punched_hole_is_found() {
        let mut c = Content::default();
        c.write(0, &[1; 4 * 4096]);
        c.punch(4000, 3 * 4096 + 1);
        assert_eq!((c.next_hole(0), c.next_data(4096)), (4096, Some(3 * 4096)));
        assert_eq!(c.read(3999, 2), [1, 0]);
        assert_eq!(c.read(3 * 4096, 2), [0, 1]);
        assert_eq!(c.size(), 4 * 4096);
    }
}
