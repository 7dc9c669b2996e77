//! Which chunks a session's writes have made longer: when it ends without a word, the sizes of its files may not know.
//!
//! A client that lives reports a size within seconds, so what is older than [`KEPT`] is forgotten: memory is bounded by
//! what was written in twice that time, and not by how long a session lasts.

use braid_env::Monotonic;
use braid_types::{ChunkId, SessionId};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Far above the time until a size is reported (a second), and the time until a silent session ends (its lease, and as
/// long as a data server needs to acknowledge): a metadata server that was away for longer looks through all chunks,
/// because it hears of this server anew.
const KEPT: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Period {
    begun: Monotonic,
    chunks: HashMap<SessionId, BTreeSet<ChunkId>>,
}

#[derive(Default)]
struct Periods {
    now: Period,
    before: Period,
}

#[derive(Default)]
pub(crate) struct Grown(Mutex<Periods>);

impl Grown {
    pub fn add(&self, session: SessionId, chunk: ChunkId, now: Monotonic) {
        let mut periods = self.0.lock();
        if now.since(periods.now.begun) > KEPT {
            let ended = std::mem::replace(&mut periods.now, Period { begun: now, chunks: HashMap::new() });
            periods.before = ended;
        }
        periods.now.chunks.entry(session).or_default().insert(chunk);
    }

    /// The session's chunks, in order. They are kept: the answer may be lost, and is asked for again.
    pub fn of(&self, session: SessionId) -> Vec<ChunkId> {
        let periods = self.0.lock();
        let both = [&periods.before, &periods.now];
        let all: BTreeSet<ChunkId> = both.iter().filter_map(|p| p.chunks.get(&session)).flatten().copied().collect();
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_kept_by_session_for_some_minutes() {
        let (grown, start) = (Grown::default(), Monotonic::default());
        let (one, other) = (SessionId(1), SessionId(2));
        for chunk in [5, 3, 5] {
            grown.add(one, ChunkId(chunk), start);
        }
        grown.add(other, ChunkId(9), start);
        assert_eq!(grown.of(one), [ChunkId(3), ChunkId(5)]);
        grown.add(one, ChunkId(7), start + KEPT + Duration::from_secs(1));
        assert_eq!(grown.of(one), [ChunkId(3), ChunkId(5), ChunkId(7)]);
        grown.add(one, ChunkId(8), start + 2 * KEPT + Duration::from_secs(2));
        assert_eq!(grown.of(one), [ChunkId(7), ChunkId(8)]);
        assert_eq!(grown.of(other), []);
    }
}
