use super::{CHUNK_BYTES, info, must, read};
use crate::{ChunkStore, Cuts, Extent, WriteInfo};
use braid_types::{ByteRange, ChunkId, TruncGen};
use std::num::Wrapping;

/// A small generator of its own, so that a seed means the same with every version of a library.
pub(super) struct Dice(Wrapping<u64>);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Wrapping(seed))
    }

    /// splitmix64.
    pub fn roll(&mut self) -> u64 {
        self.0 += 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0;
        z = (z ^ (z >> 30)) * Wrapping(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)) * Wrapping(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.roll().to_le_bytes()).take(len).collect()
    }

    /// Offsets and lengths around the boundaries of blocks and extents, where mistakes live.
    pub fn range(&mut self, bound: u64) -> ByteRange {
        let grain = [1, 512, 4096, 1 << 20][self.below(4) as usize];
        let near = |dice: &mut Dice, bound: u64| {
            let at = dice.below(bound / grain + 1) * grain;
            (at + dice.below(5)).saturating_sub(2).min(bound)
        };
        let start = near(self, bound - 1);
        let len_max = [64, 5_000, 20_000, 300_000][self.below(4) as usize];
        let len = 1 + near(self, len_max);
        ByteRange::new(start, (start + len).min(bound))
    }
}

pub fn random_changes_match_plain_bytes(store: &dyn ChunkStore, seed: u64) {
    let dice = &mut Dice::new(seed);
    let id = ChunkId(seed + 1);
    let mut plain = vec![0u8; CHUNK_BYTES as usize];
    let (mut length, mut trunc_gen) = (0, TruncGen(0));
    must("create", store.create(id, super::CONTAINER, CHUNK_BYTES));
    for step in 0..300 {
        let range = dice.range(CHUNK_BYTES);
        let (start, end) = (range.start as usize, range.end as usize);
        let cuts = Cuts { trunc_gen, list: &[] };
        let info = WriteInfo { cuts, ..info(step) };
        match dice.below(12) {
            0..5 => {
                let bytes = dice.bytes(end - start);
                must("write", store.write(id, range.start, &bytes, &info));
                plain[start..end].copy_from_slice(&bytes);
                length = length.max(range.end);
            }
            5 => {
                must("punch", store.punch(id, range, &info));
                plain[start..end].fill(0);
            }
            6 => {
                trunc_gen = trunc_gen.next();
                must("cut", store.apply_cuts(id, &Cuts { trunc_gen, list: &[(trunc_gen, range.start)] }));
                plain[start..].fill(0);
                length = length.min(range.start);
            }
            7 => drop(must("sync", store.sync(&[id]))),
            8 => {
                let mut buf = vec![0; end - start];
                if must("read_cached", store.read_cached(id, range.start, &mut buf)) {
                    assert!(buf == plain[start..end], "seed {seed}, step {step}: cached read of {range:?}");
                }
            }
            9 => {
                let mut buf = vec![9; end - start];
                must("read_kept_beside", store.read_kept_beside(id, range.start, &mut buf));
                assert!(buf == plain[start..end], "seed {seed}, step {step}: read of {range:?}, kept beside");
            }
            _ => {
                let bytes = read(store, id, range.start, end - start);
                assert!(bytes == plain[start..end], "seed {seed}, step {step}: read of {range:?}");
            }
        }
        assert_eq!(must("stat", store.stat(id)).length, length, "seed {seed}, step {step}");
    }
    assert!(read(store, id, 0, plain.len()) == plain, "seed {seed}");
    let whole = ByteRange::new(0, CHUNK_BYTES);
    for extent in must("extents", store.extents(id, whole)).iter().filter(|extent| !extent.data) {
        let hole = &plain[extent.range.start as usize..extent.range.end as usize];
        assert!(hole.iter().all(|&b| b == 0), "seed {seed}: {extent:?} is no hole");
    }
}

pub fn extents_tell_data_from_holes(store: &dyn ChunkStore) {
    let id = ChunkId(1);
    must("write", store.write(id, 8_192, &[1; 8_192], &info(1)));
    must("write", store.write(id, 40_960, &[1; 100], &info(1)));
    let extent = |start, end, data| Extent { range: ByteRange::new(start, end), data };
    let found = must("extents", store.extents(id, ByteRange::new(100, 60_000)));
    let expected = [
        extent(100, 8_192, false),
        extent(8_192, 16_384, true),
        extent(16_384, 40_960, false),
        extent(40_960, 45_056, true),
        extent(45_056, 60_000, false),
    ];
    assert_eq!(found, expected);
    must("punch", store.punch(id, ByteRange::new(8_192, 16_384), &info(2)));
    must("punch to the end", store.punch(id, ByteRange::new(40_960, 41_060), &info(2)));
    let found = must("extents", store.extents(id, ByteRange::new(0, 60_000)));
    assert_eq!(found, [extent(0, 60_000, false)]);
    assert_eq!(must("stat", store.stat(id)).length, 41_060, "a hole does not change the length");
    assert_eq!(must("extents", store.extents(id, ByteRange::new(5, 5))), []);
}
