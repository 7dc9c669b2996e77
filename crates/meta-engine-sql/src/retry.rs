//! How often, and for how long, a transaction is begun again.

use crate::failure::Verdict;
use crate::options::SqlOptions;
use braid_meta_engine::EngineError;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(crate) struct Attempts {
    made: u32,
    /// Of them, how many met another transaction.
    conflicts: u32,
    begun: Instant,
    attempts_max: u32,
    give_up_after: Duration,
}

impl Attempts {
    pub fn new(options: &SqlOptions) -> Attempts {
        Attempts {
            made: 1,
            conflicts: 0,
            begun: Instant::now(),
            attempts_max: options.attempts_max,
            give_up_after: options.give_up_after,
        }
    }

    /// Returns when it is time for another attempt; an error when there is to be none.
    pub async fn again(&mut self, verdict: Verdict) -> Result<(), EngineError> {
        let late = self.begun.elapsed() >= self.give_up_after;
        match verdict {
            Verdict::Final(error) => return Err(error),
            Verdict::Conflict => {
                self.conflicts += 1;
                if late || self.conflicts >= self.attempts_max {
                    return Err(EngineError::Conflict { attempts: self.made });
                }
            }
            Verdict::Away(why) if late => {
                return Err(EngineError::Storage(format!("the database does not answer: {why}")));
            }
            Verdict::Away(why) => tracing::debug!(why, "the database does not answer: trying again"),
        }
        sleep(self.pause()).await;
        self.made += 1;
        Ok(())
    }

    /// Doubles from 1 to 64 ms; half of it by chance, so that those who met do not meet again.
    fn pause(&self) -> Duration {
        let full = 1000_u64 << (self.made - 1).min(6);
        Duration::from_micros(full / 2 + rand::random::<u64>() % (full / 2))
    }
}
