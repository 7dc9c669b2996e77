//! Under which file lease each chunk was changed last: a change under an older one comes late, and is refused.
//!
//! In memory alone. A start needs none of it: connections break with the process, so nothing that was on its way before arrives,
//! and a client sends again only under a lease that it holds then. What has not been changed for [`KEPT`] is forgotten.

use braid_api::{Code, Error, Result};
use braid_env::Monotonic;
use braid_types::{ChunkId, LeaseGen, ServerId, Token};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Longer than TCP keeps what is on its way (924 s on Linux with `tcp_retries2` = 15). At 10,000 chunks a second, which no disk
/// makes, twice that is 24 million entries of 32 bytes; with files of 1 MiB at 1 GB/s it is 76 MB.
const KEPT: Duration = Duration::from_secs(1200);

#[derive(Default)]
struct Periods {
    begun: Monotonic,
    now: HashMap<ChunkId, LeaseGen>,
    before: HashMap<ChunkId, LeaseGen>,
}

impl Periods {
    fn go_on(&mut self, now: Monotonic) {
        if now.since(self.begun) > KEPT {
            self.before = std::mem::take(&mut self.now);
            self.begun = now;
        }
    }

    fn of(&self, chunk: ChunkId) -> LeaseGen {
        self.now.get(&chunk).or_else(|| self.before.get(&chunk)).copied().unwrap_or_default()
    }
}

#[derive(Default)]
pub(crate) struct Newest(Mutex<Periods>);

impl Newest {
    /// To be asked by the holder of the chunk's turn, right before the change. A token without a lease is not used: the metadata
    /// server's repairs, and clients without leases.
    pub fn check(&self, server: ServerId, chunk: ChunkId, token: &Token, now: Monotonic) -> Result<()> {
        let got = token.lease_gen;
        if got.0 == 0 {
            return Ok(());
        }
        let mut periods = self.0.lock();
        periods.go_on(now);
        let newest = periods.of(chunk);
        if got < newest {
            let about = format_args!("data server {server}, chunk {chunk}");
            let cause = format_args!("it was changed under lease {}, the request carries {}", newest.0, got.0);
            return Err(Error::new(Code::StaleLease, about, cause));
        }
        periods.now.insert(chunk, got);
        Ok(())
    }

    /// Under which the chunk was changed last, as far as it is known; 0 if it is not.
    pub fn of(&self, chunk: ChunkId) -> LeaseGen {
        self.0.lock().of(chunk)
    }

    /// The chunk was changed elsewhere, under this one.
    pub fn raise(&self, chunk: ChunkId, lease: LeaseGen, now: Monotonic) {
        let mut periods = self.0.lock();
        periods.go_on(now);
        if lease > periods.of(chunk) {
            periods.now.insert(chunk, lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_under_an_older_lease_is_refused_for_as_long_as_it_may_be_on_its_way() {
        let newest = Newest::default();
        let check = |chunk, lease, at| {
            let token = Token { lease_gen: LeaseGen(lease), ..Token::default() };
            newest.check(ServerId(1), ChunkId(chunk), &token, Monotonic(Duration::from_secs(at))).map_err(|e| e.code)
        };
        assert_eq!([check(1, 5, 0), check(1, 5, 1), check(1, 7, 2)], [Ok(()); 3]);
        assert_eq!((check(1, 5, 3), check(2, 5, 3)), (Err(Code::StaleLease), Ok(())), "of this chunk");
        assert_eq!(check(1, 0, 3), Ok(()), "not used");
        assert_eq!((check(2, 5, 1300), check(1, 6, 1310)), (Ok(()), Err(Code::StaleLease)));
        assert_eq!((check(2, 5, 2600), check(1, 6, 2600)), (Ok(()), Ok(())), "nothing is on its way for so long");
        let raise = |lease, at| newest.raise(ChunkId(1), LeaseGen(lease), Monotonic(Duration::from_secs(at)));
        raise(9, 2601);
        raise(8, 2602);
        assert_eq!((newest.of(ChunkId(1)), check(1, 8, 2603)), (LeaseGen(9), Err(Code::StaleLease)), "told by another");
    }
}
