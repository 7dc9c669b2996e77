//! Which copies are mended first, and how fast: the most endangered, under a limit of bytes a second.
//!
//! Nothing is kept here that a restart would lose: how far a copy has come is in its own map of missing blocks, which
//! lies in its record.

use crate::limits::{Limits, Moment};
use braid_types::{BLOCK_BYTES, ChunkId, ContainerId};
use std::collections::{BTreeMap, BTreeSet};

type Key = (ContainerId, ChunkId);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Repair {
    /// How many whole copies each has.
    copies: BTreeMap<Key, u8>,
    /// The same, the fewest first.
    order: BTreeSet<(u8, Key)>,
    /// A message is on its way for these.
    asked: BTreeSet<Key>,
    /// Bytes that may be asked for now.
    tokens: u64,
    filled: Moment,
}

impl Repair {
    /// This copy lacks blocks, and so many are whole.
    pub fn want(&mut self, key: Key, copies: u8) {
        if let Some(old) = self.copies.insert(key, copies) {
            self.order.remove(&(old, key));
        }
        self.order.insert((copies, key));
    }

    /// It lacks nothing any more, or is not ours to mend.
    pub fn done(&mut self, key: Key) {
        if let Some(copies) = self.copies.remove(&key) {
            self.order.remove(&(copies, key));
        }
        self.asked.remove(&key);
    }

    /// Forgets copies that are not this server's to mend any more: they would keep their places for ever.
    pub fn keep(&mut self, is_here: impl Fn(&Key) -> bool) {
        let gone = self.copies.keys().chain(&self.asked).filter(|key| !is_here(key));
        gone.copied().collect::<Vec<_>>().into_iter().for_each(|key| self.done(key));
    }

    /// What was asked for is here, or will not come.
    pub fn answered(&mut self, key: Key) {
        self.asked.remove(&key);
    }

    /// The copy to ask blocks for now, if any.
    pub fn take(&mut self, now: Moment, limits: &Limits) -> Option<Key> {
        let step = limits.pull_blocks * BLOCK_BYTES;
        // At most a second's worth is saved up, at least one step, or nothing would ever fit.
        let most = limits.repair_bytes_per_s.max(step);
        let passed = now.saturating_sub(self.filled).as_nanos();
        let gained = (passed * u128::from(limits.repair_bytes_per_s) / 1_000_000_000).min(u128::from(most)) as u64;
        if gained > 0 {
            self.filled = now;
            self.tokens = (self.tokens + gained).min(most);
        }
        if self.tokens < step || self.asked.len() >= limits.repair_at_once {
            return None;
        }
        let (_, key) = self.order.iter().find(|(_, key)| !self.asked.contains(key)).copied()?;
        self.tokens -= step;
        self.asked.insert(key);
        Some(key)
    }

    /// Chunks that wait to be mended, with their whole copies.
    pub fn waiting(&self) -> impl Iterator<Item = (Key, u8)> + '_ {
        self.copies.iter().map(|(key, copies)| (*key, *copies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn key(chunk: u64) -> Key {
        (ContainerId(1), ChunkId(chunk))
    }

    #[test]
    fn the_most_endangered_is_first_also_if_it_comes_later() {
        let (limits, mut repair) = (Limits { repair_at_once: 1, ..Limits::default() }, Repair::default());
        repair.want(key(1), 2);
        repair.want(key(2), 2);
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(1)));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), None, "one at once");
        repair.want(key(9), 1);
        repair.answered(key(1));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(9)));
        repair.done(key(9));
        repair.want(key(2), 1);
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(2)));
        repair.done(key(2));
        repair.done(key(1));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), None);
        assert_eq!(repair.waiting().count(), 0);
    }

    #[test]
    fn a_copy_that_is_gone_gives_up_its_place() {
        let (limits, mut repair) = (Limits { repair_at_once: 1, ..Limits::default() }, Repair::default());
        repair.want(key(1), 1);
        repair.want(key(2), 2);
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(1)));
        repair.keep(|known| *known != key(1));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(2)));
        repair.keep(|_| false);
        assert_eq!((repair.waiting().count(), repair.asked.len()), (0, 0));
    }

    #[test]
    fn repair_keeps_to_its_rate() {
        let limits = Limits { repair_bytes_per_s: 3 << 20, repair_at_once: 1000, ..Limits::default() };
        let mut repair = Repair::default();
        (0..1000).for_each(|chunk| repair.want(key(chunk), 2));
        let mut taken = 0;
        for ms in 0..10_000 {
            while repair.take(Duration::from_millis(ms), &limits).is_some() {
                taken += 1;
            }
        }
        assert!((28..=33).contains(&taken), "{taken} MiB in ten seconds at 3 MiB/s");
    }
}
