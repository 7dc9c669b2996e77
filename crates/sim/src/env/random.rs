use crate::seed::{Stream, stream};
use braid_env::Random;
use parking_lot::Mutex;
use rand::Rng;

/// A process's random numbers: from the seed, the machine and the number of its life.
pub struct SimRandom(Mutex<Stream>);

impl SimRandom {
    pub fn new(seed: u64, machine: &str, life: u64) -> Self {
        SimRandom(Mutex::new(stream(seed, machine, life)))
    }
}

impl Random for SimRandom {
    fn u64(&self) -> u64 {
        self.0.lock().next_u64()
    }
}
