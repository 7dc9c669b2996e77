use crate::Random;
use rand::Rng;

/// A ChaCha generator a thread, seeded by getrandom and reseeded now and then: about 10 ns a number, and no lock.
/// Cluster ids and session ids come from here, so a generator that can be predicted would not do.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn u64(&self) -> u64 {
        rand::rng().next_u64()
    }

    fn fill(&self, bytes: &mut [u8]) {
        rand::rng().fill_bytes(bytes);
    }
}
