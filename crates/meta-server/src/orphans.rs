//! Inodes without a name that may still be open. Every session reads the list with its renewals and says which
//! of them it holds; what all sessions have read and none holds is freed.

use crate::sessions::SessionState;
use braid_types::{InodeId, MembershipEpoch, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Of at most 10 bytes each: 640 KiB of the 1 MiB that a message may have.
const A_REPLY: usize = 1 << 16;

struct Log {
    /// Number in the list → inode. Numbers rise for ever.
    listed: BTreeMap<u64, InodeId>,
    /// Of those that somebody was just told to have open: the number with which that was listed. Sessions that have read of the
    /// inode before then, as of one that a start of the server found, did not know.
    held: BTreeMap<InodeId, u64>,
    next: u64,
}

impl Log {
    /// Gives its number.
    fn add(&mut self, inode: InodeId) -> u64 {
        self.next += 1;
        self.listed.insert(self.next, inode);
        self.next
    }
}

pub struct Orphans {
    log: Mutex<Log>,
}

impl Orphans {
    /// A restarted server begins a new list, above all numbers of those before it: else what a session had read of the old one
    /// would count for the new one, and files that it has open would be freed. 4 billion orphans for each start.
    pub fn new(epoch: MembershipEpoch) -> Orphans {
        Orphans { log: Mutex::new(Log { listed: BTreeMap::new(), held: BTreeMap::new(), next: epoch.0 << 32 }) }
    }

    /// Adds an inode to the list. Twice is harmless: the second freeing finds nothing.
    pub fn add(&self, inode: InodeId) {
        self.log.lock().add(inode);
    }

    /// The same of one that somebody has open from now on: what was read of it before counts for nothing.
    pub fn add_held(&self, inode: InodeId) {
        let mut log = self.log.lock();
        let number = log.add(inode);
        log.held.insert(inode, number);
    }

    /// What a session that has read up to `seen` has not read yet, and up to where that goes: the rest comes with its next renewal.
    pub fn after(&self, seen: u64) -> (Vec<InodeId>, u64) {
        let log = self.log.lock();
        let unread: Vec<_> = log.listed.range(seen.saturating_add(1)..).take(A_REPLY).collect();
        let upto = match unread.last() {
            Some((number, _)) if unread.len() == A_REPLY => **number,
            _ => log.next,
        };
        (unread.into_iter().map(|(_, id)| *id).collect(), upto)
    }

    pub fn len(&self) -> usize {
        self.log.lock().listed.len()
    }

    /// The number of the newest.
    pub fn last(&self) -> u64 {
        self.log.lock().next
    }

    /// Inodes that every session has read of and none holds, with their numbers: of those up to `last`, which was asked for
    /// before the sessions were looked at, else a session that began in between could hold one; the first `limit` of them.
    pub fn free_now(&self, last: u64, sessions: &[(SessionId, SessionState)], limit: usize) -> Vec<(u64, InodeId)> {
        let log = self.log.lock();
        let read_by_all = sessions.iter().map(|(_, s)| s.orphans_seen).min().unwrap_or(last).min(last);
        log.listed
            .range(..=read_by_all)
            .filter(|(_, id)| log.held.get(id).is_none_or(|number| *number <= read_by_all))
            .filter(|(_, id)| sessions.iter().all(|(_, s)| !s.orphans_held.contains(id)))
            .map(|(number, id)| (*number, *id))
            .take(limit)
            .collect()
    }

    pub fn remove(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut log = self.log.lock();
        for number in numbers {
            let Some(inode) = log.listed.remove(&number) else { continue };
            if log.held.get(&inode) == Some(&number) {
                log.held.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_env::Monotonic;
    use braid_types::SessionEpoch;

    fn free_now(orphans: &Orphans, sessions: &[(SessionId, SessionState)]) -> Vec<(u64, InodeId)> {
        orphans.free_now(orphans.last(), sessions, usize::MAX)
    }

    fn session(id: u64, seen: u64, held: &[u64]) -> (SessionId, SessionState) {
        let mut state = SessionState::new(SessionEpoch(1), String::new(), String::new(), Monotonic::default());
        state.orphans_seen = seen;
        state.orphans_held = held.iter().map(|n| InodeId(*n)).collect();
        (SessionId(id), state)
    }

    #[test]
    fn an_orphan_is_freed_when_all_have_read_of_it_and_none_holds_it() {
        let orphans = Orphans::new(MembershipEpoch(1));
        let base = 1 << 32;
        orphans.add(InodeId(10));
        orphans.add(InodeId(20));
        assert_eq!(orphans.after(0), (vec![InodeId(10), InodeId(20)], base + 2));
        assert_eq!(orphans.after(base + 1), (vec![InodeId(20)], base + 2));
        let read = base + 2;
        assert!(free_now(&orphans, &[session(1, read, &[]), session(2, 0, &[])]).is_empty(), "2 has not read");
        let held = free_now(&orphans, &[session(1, read, &[20]), session(2, read, &[])]);
        assert_eq!(held, [(base + 1, InodeId(10))]);
        orphans.remove([base + 1]);
        assert_eq!(free_now(&orphans, &[session(1, read, &[])]), [(read, InodeId(20))]);
        assert_eq!(free_now(&orphans, &[]), [(read, InodeId(20))], "without sessions nobody holds anything");
        orphans.add(InodeId(30));
        assert_eq!(orphans.free_now(read, &[], 9), [(read, InodeId(20))], "who has 30 open was not asked");
        assert_eq!(orphans.free_now(read + 1, &[], 1), [(read, InodeId(20))], "the rest with the next call");
    }

    /// A start of the server finds it, its maker reads of it and does not know it: the answer that made it was lost. Then the
    /// request is repeated.
    #[test]
    fn what_is_open_by_a_repeated_answer_is_asked_for_again() {
        let orphans = Orphans::new(MembershipEpoch(2));
        orphans.add(InodeId(10));
        let (_, seen) = orphans.after(0);
        orphans.add_held(InodeId(10));
        assert!(free_now(&orphans, &[session(1, seen, &[])]).is_empty(), "what it said was of before");
        let (again, seen) = orphans.after(seen);
        assert_eq!(again, [InodeId(10)]);
        assert!(free_now(&orphans, &[session(1, seen, &[10])]).is_empty());
        let freed = free_now(&orphans, &[session(1, seen, &[])]);
        assert_eq!(freed.len(), 2);
        orphans.remove(freed.iter().map(|(number, _)| *number));
        assert!(orphans.log.lock().held.is_empty());
    }

    #[test]
    fn a_long_list_is_read_in_parts() {
        let orphans = Orphans::new(MembershipEpoch(1));
        let count = A_REPLY as u64 + 5;
        (1..=count).for_each(|id| orphans.add(InodeId(id)));
        let (first, seen) = orphans.after(0);
        assert_eq!(first.len(), A_REPLY);
        let freed = free_now(&orphans, &[session(1, seen, &[])]);
        assert_eq!(freed.len(), A_REPLY, "of the rest the session was not asked");
        let (rest, seen) = orphans.after(seen);
        assert_eq!(rest, (A_REPLY as u64 + 1..=count).map(InodeId).collect::<Vec<_>>());
        assert_eq!(orphans.after(seen), (vec![], seen));
    }

    #[test]
    fn what_was_read_of_an_earlier_servers_list_counts_for_nothing() {
        let before = Orphans::new(MembershipEpoch(1));
        (1..=3).for_each(|id| before.add(InodeId(id)));
        let (_, seen) = before.after(0);
        let orphans = Orphans::new(MembershipEpoch(2));
        (2..=9).for_each(|id| orphans.add(InodeId(id)));
        assert!(free_now(&orphans, &[session(1, seen, &[])]).is_empty(), "it was asked for none of them");
        assert_eq!(orphans.after(seen).0.len(), 8);
    }
}
