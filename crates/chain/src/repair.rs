//! Which copies are mended first, and how fast: the most endangered, under a limit of bytes a second.
//!
//! Nothing is kept here that a restart would lose: how far a copy has come is in its own map of missing blocks, which
//! lies in its record.

use crate::limits::{Limits, Moment};
use braid_types::{BLOCK_BYTES, ChunkId, ContainerId};
use std::collections::{BTreeMap, BTreeSet};

type Key = (ContainerId, ChunkId);

/// What a copy waits for. The fewest whole copies come first, of these what is done soonest: a chunk may have to be whole before
/// it takes writes, and one that lacks a block must not wait behind one that lacks all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Need {
    /// Whole copies there are.
    pub copies: u8,
    /// Blocks it lacks.
    pub blocks: u64,
}

/// Bytes that may be asked for now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Bucket {
    tokens: u64,
    filled: Moment,
}

impl Bucket {
    /// At most a second's worth is saved up, at least one step, or nothing would ever fit.
    fn fill(&mut self, now: Moment, bytes_per_s: u64, step: u64) {
        let most = bytes_per_s.max(step);
        let passed = now.saturating_sub(self.filled).as_nanos();
        let gained = (passed * u128::from(bytes_per_s) / 1_000_000_000).min(u128::from(most)) as u64;
        if gained > 0 {
            self.filled = now;
            self.tokens = (self.tokens + gained).min(most);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Repair {
    /// True: for a move. The chain has the copies it should have, and this one is one more, because another is to leave:
    /// nobody is in danger, so these come last, and the operator says how fast.
    needs: BTreeMap<Key, (bool, Need)>,
    /// The same, the most urgent first.
    order: BTreeSet<(bool, Need, Key)>,
    /// A message is on its way for these, of so many bytes.
    asked: BTreeMap<Key, u64>,
    bucket: Bucket,
    of_moves: Bucket,
}

impl Repair {
    /// This copy lacks blocks; its chain has more members than it should have, or not.
    pub fn want(&mut self, key: Key, need: Need, is_move: bool) {
        if let Some((was_move, old)) = self.needs.insert(key, (is_move, need)) {
            self.order.remove(&(was_move, old, key));
        }
        self.order.insert((is_move, need, key));
    }

    /// It lacks nothing any more, or is not ours to mend.
    pub fn done(&mut self, key: Key) {
        if let Some((is_move, need)) = self.needs.remove(&key) {
            self.order.remove(&(is_move, need, key));
        }
        self.asked.remove(&key);
    }

    /// Forgets copies that are not this server's to mend any more: they would keep their places for ever.
    pub fn keep(&mut self, is_here: impl Fn(&Key) -> bool) {
        let gone = self.needs.keys().chain(self.asked.keys()).filter(|key| !is_here(key));
        gone.copied().collect::<Vec<_>>().into_iter().for_each(|key| self.done(key));
    }

    /// What was asked for is here, or will not come.
    pub fn answered(&mut self, key: Key) {
        self.asked.remove(&key);
    }

    /// The copy to ask blocks for now, if any.
    pub fn take(&mut self, now: Moment, limits: &Limits) -> Option<Key> {
        let step = limits.pull_blocks * BLOCK_BYTES;
        let moves = limits.move_bytes_per_s.min(limits.repair_bytes_per_s);
        self.bucket.fill(now, limits.repair_bytes_per_s, step);
        match moves {
            // Paused: not even one step is saved up.
            0 => self.of_moves = Bucket { tokens: 0, filled: now },
            _ => self.of_moves.fill(now, moves, step),
        }
        let (is_move, need, key) = self.order.iter().find(|(_, _, key)| !self.asked.contains_key(key)).copied()?;
        let bytes = step.min(need.blocks * BLOCK_BYTES);
        let under_way: u64 = self.asked.values().sum();
        let has_none = self.bucket.tokens < bytes || (is_move && self.of_moves.tokens < bytes);
        if has_none || under_way + bytes > step * limits.repair_at_once as u64 {
            return None;
        }
        self.bucket.tokens -= bytes;
        if is_move {
            self.of_moves.tokens -= bytes;
        }
        self.asked.insert(key, bytes);
        Some(key)
    }

    /// Chunks that wait to be mended.
    pub fn waiting(&self) -> impl Iterator<Item = (Key, Need)> + '_ {
        self.needs.iter().map(|(key, (_, need))| (*key, *need))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn key(chunk: u64) -> Key {
        (ContainerId(1), ChunkId(chunk))
    }

    /// Of a chunk that lacks more than one message holds.
    fn large(copies: u8) -> Need {
        Need { copies, blocks: 16_384 }
    }

    #[test]
    fn the_most_endangered_is_first_also_if_it_comes_later() {
        let (limits, mut repair) = (Limits { repair_at_once: 1, ..Limits::default() }, Repair::default());
        repair.want(key(1), large(2), false);
        repair.want(key(2), large(2), false);
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(1)));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), None, "one at once");
        repair.want(key(9), large(1), false);
        repair.answered(key(1));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(9)));
        repair.done(key(9));
        repair.want(key(2), large(1), false);
        assert_eq!(repair.take(Duration::from_secs(1), &limits), Some(key(2)));
        repair.done(key(2));
        repair.done(key(1));
        assert_eq!(repair.take(Duration::from_secs(1), &limits), None);
        assert_eq!(repair.waiting().count(), 0);
    }

    #[test]
    fn a_copy_that_is_gone_gives_up_its_place() {
        let (limits, mut repair) = (Limits { repair_at_once: 1, ..Limits::default() }, Repair::default());
        repair.want(key(1), large(1), false);
        repair.want(key(2), large(2), false);
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
        (0..1000).for_each(|chunk| repair.want(key(chunk), large(2), false));
        let mut taken = 0;
        for ms in 0..10_000 {
            while repair.take(Duration::from_millis(ms), &limits).is_some() {
                taken += 1;
            }
        }
        assert!((28..=33).contains(&taken), "{taken} MiB in ten seconds at 3 MiB/s");
    }

    /// Each costs what it lacks, not a whole message; and none waits behind a large one.
    #[test]
    fn small_chunks_keep_to_the_rate_too_and_come_before_large_ones() {
        let limits = Limits { repair_bytes_per_s: 1 << 20, ..Limits::default() };
        let mut repair = Repair::default();
        repair.want(key(1), large(2), false);
        (2..=2001).for_each(|chunk| repair.want(key(chunk), Need { copies: 2, blocks: 4 }, false));
        repair.want(key(3000), large(1), false);
        let begin = Duration::from_secs(5);
        assert_eq!(repair.take(begin, &limits), Some(key(3000)), "the most endangered before all");
        repair.done(key(3000));
        let mut taken = Vec::new();
        for ms in (0..10_000).step_by(50) {
            while let Some(key) = repair.take(begin + Duration::from_millis(ms), &limits) {
                taken.push(key);
                repair.done(key);
            }
        }
        assert!((600..=640).contains(&taken.len()), "{} of 16 KiB in ten seconds at 1 MiB/s", taken.len());
        assert!(!taken.contains(&key(1)));
    }

    /// What is moved keeps to its own rate as well, and repair does not wait for it.
    #[test]
    fn moves_come_last_keep_to_the_operators_rate_and_stop_when_they_are_paused() {
        let mut limits = Limits { repair_at_once: 1000, move_bytes_per_s: 2 << 20, ..Limits::default() };
        let mut repair = Repair::default();
        let begin = Duration::from_secs(5);
        (0..1000).for_each(|chunk| repair.want(key(chunk), large(1), true));
        repair.want(key(5000), large(3), false);
        assert_eq!(repair.take(begin, &limits), Some(key(5000)), "though more copies of it are whole");
        let mut moved = |from: u64, limits: &Limits| {
            let mut taken = 0;
            for ms in (from..from + 10_000).step_by(50) {
                while let Some(key) = repair.take(begin + Duration::from_millis(ms), limits) {
                    taken += u64::from(key != self::key(5000));
                    repair.answered(key);
                    repair.done(key);
                }
            }
            taken
        };
        let taken = moved(0, &limits);
        assert!((19..=22).contains(&taken), "{taken} MiB in ten seconds at 2 MiB/s");
        limits.move_bytes_per_s = 0;
        assert_eq!(moved(10_000, &limits), 0);
        limits.move_bytes_per_s = u64::MAX;
        limits.repair_bytes_per_s = 4 << 20;
        let taken = moved(20_000, &limits);
        assert!((39..=45).contains(&taken), "{taken} MiB in ten seconds: what repair may take is the most");
    }
}
