//! Streams of random numbers, all from one seed.
//!
//! Every user has a stream of its own, named by a label and a number: what one draws does not move another, so that a
//! fault added to a scenario leaves the rest of the history recognisable.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::hash::{DefaultHasher, Hash, Hasher};

pub type Stream = Xoshiro256PlusPlus;

/// The stream `label`, `number` of `seed`.
pub fn stream(seed: u64, label: &str, number: u64) -> Stream {
    // With its fixed keys, unlike those of a `HashMap`, this hasher gives the same everywhere.
    let mut hasher = DefaultHasher::new();
    (seed, label, number).hash(&mut hasher);
    Stream::seed_from_u64(hasher.finish())
}
