/// Randomness. In the simulator it comes from the seed.
pub trait Random: Send + Sync {
    fn u64(&self) -> u64;

    fn fill(&self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.u64().to_le_bytes()[..piece.len()]);
        }
    }

    /// A number below `bound`, which is at least 1. The bias of the remainder is below 2^-32 for bounds below
    /// 2^32, and no decision depends on it.
    fn below(&self, bound: u64) -> u64 {
        self.u64() % bound.max(1)
    }
}
