//! The bound on bytes that are processed at once.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Grain of the budget: a semaphore counts 32 bits.
const UNIT_BYTES: u64 = 4096;

/// Bytes are given in the order in which they were asked for. Whoever waits here holds at most its chunk's turn,
/// which whoever holds bytes never waits for.
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// Bytes in use, until dropped.
pub(crate) struct Held {
    _units: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub fn new(bytes: u64) -> Budget {
        let most = u64::from(u32::MAX).min(Semaphore::MAX_PERMITS as u64);
        let units_max = (bytes / UNIT_BYTES).clamp(1, most) as u32;
        Budget { units: Arc::new(Semaphore::new(units_max as usize)), units_max }
    }

    /// Waits until there is room. What is larger than the whole budget takes all of it.
    pub async fn take(&self, bytes: usize) -> Held {
        let units = (bytes as u64).div_ceil(UNIT_BYTES).clamp(1, u64::from(self.units_max)) as u32;
        // The semaphore is never closed.
        Held { _units: self.units.clone().acquire_many_owned(units).await.ok() }
    }

    pub fn bytes_held(&self) -> u64 {
        (u64::from(self.units_max) - self.units.available_permits() as u64) * UNIT_BYTES
    }
}
