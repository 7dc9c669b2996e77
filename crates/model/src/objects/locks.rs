use crate::linear::Sequential;
use std::collections::BTreeMap;

/// One lock: a file's flock, or the fcntl lock of some bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    is_flock: bool,
    /// By whom, and whether for writing.
    held: BTreeMap<u64, bool>,
    /// Whose locks have gone with a session.
    lost: BTreeMap<u64, Lost>,
    /// Granted to somebody who has not heard it: in the way of others.
    unheard: BTreeMap<u64, bool>,
    /// Calls of each that asked for it, as far as they have taken effect.
    takes: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lost {
    /// A call may have been under way then: that one is answered as if nothing had happened, perhaps, and each after it is told.
    under_way: bool,
    /// It was for writing.
    had: Option<bool>,
}

/// Each open file that asks has a number of its own.
#[derive(Clone, Copy, Debug)]
pub enum LockOp {
    /// By whom, for writing. One that waits is answered when it has it.
    Take(u64, bool),
    /// What the n-th `Take` asks for is granted, and its answer lost with the server or the session: until `Forget`, the loss
    /// of the session or the answer to that `Take` it is in the way of others.
    Grant(u64, bool, u64),
    Forget(u64),
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
        let (held, lost, unheard, takes) = Default::default();
        Lock { is_flock, held, lost, unheard, takes }
    }

    /// Is this call told that locks were lost? The next one is.
    fn is_told(&mut self, who: u64) -> bool {
        self.lost.get_mut(&who).is_some_and(|lost| !std::mem::take(&mut lost.under_way))
    }

    fn is_free(&self, who: u64, write: bool) -> bool {
        let mut all = self.held.iter().chain(&self.unheard);
        all.all(|(holder, writes)| *holder == who || !(write || *writes))
    }

    /// flock gives the old lock up before it asks for another kind; fcntl keeps it.
    fn change(&mut self, who: u64, write: bool) {
        if self.is_flock {
            self.held.retain(|holder, had| *holder != who || *had == write);
        }
    }

    fn take(&mut self, who: u64, write: bool) -> LockAnswer {
        let is_free = self.is_free(who, write);
        self.change(who, write);
        if is_free {
            self.held.insert(who, write);
        }
        if is_free { LockAnswer::Done } else { LockAnswer::WouldBlock }
    }

    /// Is that something that can happen now?
    fn can(&self, op: &LockOp) -> bool {
        match *op {
            LockOp::Grant(who, write, take) => {
                self.takes.get(&who).copied().unwrap_or_default() + 1 == take && self.is_free(who, write)
            }
            LockOp::Forget(who) => self.unheard.contains_key(&who),
            _ => true,
        }
    }
}

impl Sequential for Lock {
    type Op = LockOp;
    type Answer = LockAnswer;

    fn apply(&mut self, op: &LockOp) -> LockAnswer {
        if let LockOp::Take(who, _) = *op {
            self.unheard.remove(&who);
            *self.takes.entry(who).or_default() += 1;
        }
        match *op {
            LockOp::Take(who, _) if self.is_told(who) => return LockAnswer::Told,
            LockOp::Take(who, write) => return self.take(who, write),
            LockOp::Free(who) => {
                self.is_told(who);
                self.held.remove(&who);
            }
            LockOp::Change(who, write) => self.change(who, write),
            LockOp::Grant(who, write, _) => {
                self.change(who, write);
                self.unheard.insert(who, write);
            }
            LockOp::Forget(who) => _ = self.unheard.remove(&who),
            LockOp::Lose(who) => {
                let had = self.held.remove(&who);
                self.unheard.remove(&who);
                self.lost.insert(who, Lost { under_way: true, had });
            }
            LockOp::Close(who) => {
                self.held.remove(&who);
                self.lost.remove(&who);
                self.takes.remove(&who);
            }
        }
        LockAnswer::Done
    }

    fn outcomes(&self, op: &LockOp) -> Vec<(Self, LockAnswer)> {
        if !self.can(op) {
            return Vec::new();
        }
        let mut after = self.clone();
        let answer = after.apply(op);
        let mut all = vec![(after, answer)];
        let lost = |who| self.lost.get(&who).copied();
        match *op {
            LockOp::Take(who, write) => {
                let Some(lost) = lost(who) else { return all };
                // The loss was noticed before the call was.
                if lost.under_way {
                    let mut told = self.clone();
                    told.lost.insert(who, Lost { under_way: false, ..lost });
                    let answer = told.apply(op);
                    all.push((told, answer));
                }
                // What an flock of another kind gives up before the loss is noticed is not missed.
                if self.is_flock && lost.had == Some(!write) {
                    let mut unaware = self.clone();
                    unaware.lost.remove(&who);
                    let answer = unaware.apply(op);
                    all.push((unaware, answer));
                }
            }
            // Nor is what is freed before.
            LockOp::Free(who) if lost(who).is_some() => {
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
    fn who_gives_up_what_he_has_lost_for_another_kind_may_never_hear_of_it() {
        for (is_flock, write, answers) in [(true, true, 2), (true, false, 3), (false, false, 2)] {
            let mut lock = Lock::new(is_flock);
            done(&mut lock, LockOp::Take(1, true), LockAnswer::Done);
            done(&mut lock, LockOp::Lose(1), LockAnswer::Done);
            let after = lock.outcomes(&LockOp::Take(1, write));
            assert_eq!(after.len(), answers);
            let next = after.into_iter().map(|(mut lock, _)| lock.apply(&LockOp::Take(1, write)));
            let unaware = next.filter(|answer| *answer == LockAnswer::Done).count();
            assert_eq!(unaware, answers - 2, "flock {is_flock}, write {write}");
        }
    }

    #[test]
    fn what_was_granted_and_not_heard_keeps_others_out_until_it_is_forgotten_or_asked_for_again() {
        let mut lock = Lock::new(false);
        done(&mut lock, LockOp::Grant(1, true, 1), LockAnswer::Done);
        done(&mut lock, LockOp::Take(2, false), LockAnswer::WouldBlock);
        done(&mut lock, LockOp::Forget(1), LockAnswer::Done);
        done(&mut lock, LockOp::Take(2, false), LockAnswer::Done);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::WouldBlock);
        // Not what has been answered for, and not what others' locks exclude.
        assert!(lock.outcomes(&LockOp::Grant(1, false, 1)).is_empty() && lock.outcomes(&LockOp::Forget(1)).is_empty());
        assert!(lock.outcomes(&LockOp::Grant(1, true, 2)).is_empty());
        assert_eq!(lock.outcomes(&LockOp::Grant(1, false, 2)).len(), 1);
        done(&mut lock, LockOp::Free(2), LockAnswer::Done);
        done(&mut lock, LockOp::Grant(1, true, 2), LockAnswer::Done);
        done(&mut lock, LockOp::Take(1, true), LockAnswer::Done);
        done(&mut lock, LockOp::Free(1), LockAnswer::Done);
        done(&mut lock, LockOp::Take(2, true), LockAnswer::Done);
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
