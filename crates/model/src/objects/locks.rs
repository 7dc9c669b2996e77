use crate::linear::Sequential;
use std::collections::BTreeMap;

/// One lock: a file's flock, or the fcntl lock of some bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    is_flock: bool,
    /// By whom, and whether for writing.
    held: BTreeMap<u64, bool>,
    /// Whose locks have gone with a session, and whether a call may have been under way then: that one is answered as if nothing
    /// had happened, perhaps, and each after it is told.
    lost: BTreeMap<u64, bool>,
}

/// Each open file that asks has a number of its own.
#[derive(Clone, Copy, Debug)]
pub enum LockOp {
    /// By whom, for writing. One that waits is answered when it has it.
    Take(u64, bool),
    Free(u64),
    /// An flock that is to be of this kind is given up before it is asked for: where that is not one moment, the first half.
    Change(u64, bool),
    /// The session ends.
    Lose(u64),
    Close(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockAnswer {
    Done,
    WouldBlock,
    /// That locks were lost.
    Told,
}

impl Lock {
    pub fn new(is_flock: bool) -> Self {
        Lock { is_flock, held: BTreeMap::new(), lost: BTreeMap::new() }
    }

    /// Is this call told that locks were lost? The next one is.
    fn is_told(&mut self, who: u64) -> bool {
        self.lost.get_mut(&who).is_some_and(|under_way| !std::mem::take(under_way))
    }

    fn take(&mut self, who: u64, write: bool) -> LockAnswer {
        let is_free = self.held.iter().all(|(holder, writes)| *holder == who || !(write || *writes));
        // flock gives the old lock up before it asks for another kind; fcntl keeps it.
        if self.is_flock && self.held.get(&who).is_some_and(|had| *had != write) {
            self.held.remove(&who);
        }
        if is_free {
            self.held.insert(who, write);
        }
        if is_free { LockAnswer::Done } else { LockAnswer::WouldBlock }
    }
}

impl Sequential for Lock {
    type Op = LockOp;
    type Answer = LockAnswer;

    fn apply(&mut self, op: &LockOp) -> LockAnswer {
        match *op {
            LockOp::Take(who, _) if self.is_told(who) => return LockAnswer::Told,
            LockOp::Take(who, write) => return self.take(who, write),
            LockOp::Free(who) => {
                self.is_told(who);
                self.held.remove(&who);
            }
            LockOp::Change(who, write) => self.held.retain(|holder, had| *holder != who || *had == write),
            LockOp::Lose(who) => {
                self.held.remove(&who);
                self.lost.insert(who, true);
            }
            LockOp::Close(who) => {
                self.held.remove(&who);
                self.lost.remove(&who);
            }
        }
        LockAnswer::Done
    }

    fn outcomes(&self, op: &LockOp) -> Vec<(Self, LockAnswer)> {
        let mut after = self.clone();
        let answer = after.apply(op);
        let mut all = vec![(after, answer)];
        match *op {
            // The loss was noticed before the call was.
            LockOp::Take(who, _) if self.lost.get(&who) == Some(&true) => {
                let mut told = self.clone();
                told.lost.insert(who, false);
                all.push((told, LockAnswer::Told));
            }
            // What is freed before the loss is noticed is not missed.
            LockOp::Free(who) if self.lost.contains_key(&who) => {
                let mut unaware = self.clone();
                unaware.held.remove(&who);
                unaware.lost.remove(&who);
                all.push((unaware, LockAnswer::Done));
            }
            _ => {}
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(lock: &mut Lock, op: LockOp, expected: LockAnswer) {
        assert_eq!(lock.apply(&op), expected, "{op:?}: {lock:?}");
    }

    #[test]
    fn a_writer_excludes_all_others_and_an_flock_that_changes_is_given_up_first() {
        for is_flock in [false, true] {
            let mut lock = Lock::new(is_flock);
            done(&mut lock, LockOp::Take(1, false), LockAnswer::Done);
            done(&mut lock, LockOp::Take(2, false), LockAnswer::Done);
            done(&mut lock, LockOp::Take(1, true), LockAnswer::WouldBlock);
            let left = if is_flock { LockAnswer::Done } else { LockAnswer::WouldBlock };
            done(&mut lock, LockOp::Take(2, true), left);
            done(&mut lock, LockOp::Free(1), LockAnswer::Done);
            done(&mut lock, LockOp::Take(2, true), LockAnswer::Done);
            done(&mut lock, LockOp::Take(1, false), LockAnswer::WouldBlock);
        }
    }

    #[test]
    fn who_has_lost_locks_is_told_after_the_call_that_was_under_way() {
        let mut lock = Lock::new(false);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::Done);
        done(&mut lock, LockOp::Lose(1), LockAnswer::Done);
        let at_once = lock.outcomes(&LockOp::Take(1, true)).into_iter().map(|(_, answer)| answer);
        assert_eq!(at_once.collect::<Vec<_>>(), [LockAnswer::Done, LockAnswer::Told]);
        done(&mut lock, LockOp::Take(2, true), LockAnswer::Done);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::WouldBlock);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::Told);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::Told);
        // Who frees what he has lost may never hear of it.
        let freed = lock.outcomes(&LockOp::Free(1)).into_iter();
        let next: Vec<_> = freed.map(|(mut lock, _)| lock.apply(&LockOp::Take(1, true))).collect();
        assert_eq!(next, [LockAnswer::Told, LockAnswer::WouldBlock]);
    }
}
