//! Since when copies are behind. Where there are writes some copy always lacks the last of them; what an administrator
//! has to know of is a copy that does not get what was written a while ago.
//!
//! Promises: a copy that follows at a distance is as late as that distance, however long it has followed; one that gets
//! nothing is later with every look. It is looked at from outside and no part of the state machine.

use crate::{DataServer, Moment};
use braid_types::{ChunkId, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of the chunks that one server owns.
#[derive(Debug, Default)]
pub struct Behind {
    /// Some copy lacked what was told up to here, and when that was seen first.
    since: BTreeMap<ChunkId, (Version, Moment)>,
}

impl Behind {
    pub fn look(&mut self, now: Moment, server: &DataServer) {
        self.see(now, server.behind());
    }

    /// Chunks with copies that are behind: what all copies have, and what was told.
    fn see(&mut self, now: Moment, all: impl Iterator<Item = (ChunkId, Version, Version)>) {
        let before = std::mem::take(&mut self.since);
        self.since = all
            .map(|(chunk, whole, told)| {
                let seen = before.get(&chunk).copied().unwrap_or((told, now));
                // An epoch may begin before what the last one told of.
                let goal = seen.0.min(told);
                (chunk, if whole >= goal { (told, now) } else { (goal, seen.1) })
            })
            .collect();
    }

    /// What was told that long ago is not at all copies yet. As of the last look.
    pub fn longest(&self, now: Moment) -> Duration {
        let first = self.since.values().map(|(_, since)| *since).min();
        first.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(counter: u64) -> Version {
        Version { counter, ..Version::default() }
    }

    #[test]
    fn who_follows_is_as_late_as_the_way_is_long_and_who_gets_nothing_later_and_later() {
        let (mut behind, ms) = (Behind::default(), Duration::from_millis);
        let (follows, stands) = (ChunkId(1), ChunkId(2));
        for n in 1..=100 {
            behind.see(ms(n * 100), [(follows, at(n - 1), at(n))].into_iter());
            assert!(behind.longest(ms(n * 100)) <= ms(100), "look {n}");
        }
        for n in 101..=200 {
            let all = [(follows, at(n - 1), at(n)), (stands, at(7), at(n))];
            behind.see(ms(n * 100), all.into_iter());
        }
        assert_eq!(behind.longest(ms(20_000)), ms(20_000 - 10_100));
        behind.see(ms(20_100), [(follows, at(200), at(201))].into_iter());
        assert!(behind.longest(ms(20_100)) <= ms(100), "what has all is forgotten");
        // The next epoch begins at 5, where all were, and goes on from there.
        behind.see(ms(20_200), [(stands, at(4), at(9))].into_iter());
        behind.see(ms(20_300), [(stands, at(4), at(5))].into_iter());
        behind.see(ms(20_400), [(stands, at(5), at(6))].into_iter());
        assert_eq!(behind.longest(ms(20_400)), ms(0), "5 is everywhere");
    }
}
