//! Inodes without a name that may still be open. Every session reads the list with its renewals and says which
//! of them it holds; what all sessions have read and none holds is freed.

use crate::sessions::SessionState;
use braid_types::{InodeId, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
struct Log {
    /// Number in the list → inode. Numbers rise for ever; a restarted server begins a new list.
    listed: BTreeMap<u64, InodeId>,
    next: u64,
}

#[derive(Default)]
pub struct Orphans {
    log: Mutex<Log>,
}

impl Orphans {
    /// Adds an inode to the list. Twice is harmless: the second freeing finds nothing.
    pub fn add(&self, inode: InodeId) {
        let mut log = self.log.lock();
        log.next += 1;
        let number = log.next;
        log.listed.insert(number, inode);
    }

    /// What a session that has read up to `seen` has not read yet, and up to where that goes.
    pub fn after(&self, seen: u64) -> (Vec<InodeId>, u64) {
        let log = self.log.lock();
        // A mark from the list of a server that was here before means nothing: read all.
        let from = if seen > log.next { 0 } else { seen };
        (log.listed.range(from + 1..).map(|(_, id)| *id).collect(), log.next)
    }

    /// Inodes that every session has read of and none holds, with their numbers.
    pub fn free_now(&self, sessions: &[(SessionId, SessionState)]) -> Vec<(u64, InodeId)> {
        let log = self.log.lock();
        let read_by_all = sessions.iter().map(|(_, s)| s.orphans_seen).min().unwrap_or(log.next).min(log.next);
        log.listed
            .range(..=read_by_all)
            .filter(|(_, id)| sessions.iter().all(|(_, s)| !s.orphans_held.contains(id)))
            .map(|(number, id)| (*number, *id))
            .collect()
    }

    pub fn remove(&self, number: u64) {
        self.log.lock().listed.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_env::Monotonic;
    use braid_types::SessionEpoch;

    fn session(id: u64, seen: u64, held: &[u64]) -> (SessionId, SessionState) {
        let mut state = SessionState::new(SessionEpoch(1), String::new(), String::new(), Monotonic::default());
        state.orphans_seen = seen;
        state.orphans_held = held.iter().map(|n| InodeId(*n)).collect();
        (SessionId(id), state)
    }

    #[test]
    fn an_orphan_is_freed_when_all_have_read_of_it_and_none_holds_it() {
        let orphans = Orphans::default();
        orphans.add(InodeId(10));
        orphans.add(InodeId(20));
        assert_eq!(orphans.after(0), (vec![InodeId(10), InodeId(20)], 2));
        assert_eq!(orphans.after(1), (vec![InodeId(20)], 2));
        assert!(orphans.free_now(&[session(1, 2, &[]), session(2, 0, &[])]).is_empty(), "2 has not read");
        let held = orphans.free_now(&[session(1, 2, &[20]), session(2, 2, &[])]);
        assert_eq!(held, [(1, InodeId(10))]);
        orphans.remove(1);
        assert_eq!(orphans.free_now(&[session(1, 2, &[])]), [(2, InodeId(20))]);
        assert_eq!(orphans.free_now(&[]), [(2, InodeId(20))], "without sessions nobody holds anything");
    }

    #[test]
    fn a_mark_of_an_earlier_server_reads_the_whole_list() {
        let orphans = Orphans::default();
        orphans.add(InodeId(10));
        assert_eq!(orphans.after(99).0, [InodeId(10)]);
    }
}
