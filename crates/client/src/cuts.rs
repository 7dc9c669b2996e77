//! What truncations mean for one chunk. Pure.

use braid_api::meta::Cuts;
use braid_types::{ChunkIndex, TruncGen};

/// The cuts that fall inside the chunk at `index`, in bytes of the chunk. A cut at or before its first byte
/// dropped the chunk's row, one at or after its end does not touch it.
pub fn in_chunk(cuts: &Cuts, index: ChunkIndex, chunk_bytes: u64) -> Cuts {
    let base = index.0.saturating_mul(chunk_bytes);
    let inside = |&&(_, size): &&(TruncGen, u64)| base < size && size - base < chunk_bytes;
    cuts.iter().filter(inside).map(|&(generation, size)| (generation, size - base)).collect()
}

/// The chunk that holds the border of a file of `size` bytes, if one is cut in two there.
pub fn border(size: u64, chunk_bytes: u64) -> Option<ChunkIndex> {
    (!size.is_multiple_of(chunk_bytes)).then_some(ChunkIndex(size / chunk_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cuts_inside_the_chunk_count() {
        let cuts = vec![(TruncGen(1), 5), (TruncGen(2), 10), (TruncGen(3), 15), (TruncGen(4), 20), (TruncGen(5), 25)];
        assert_eq!(in_chunk(&cuts, ChunkIndex(1), 10), [(TruncGen(3), 5)]);
        assert_eq!(in_chunk(&cuts, ChunkIndex(0), 10), [(TruncGen(1), 5)]);
        assert_eq!(in_chunk(&cuts, ChunkIndex(2), 10), [(TruncGen(5), 5)]);
        assert_eq!((border(20, 10), border(21, 10)), (None, Some(ChunkIndex(2))));
    }
}
