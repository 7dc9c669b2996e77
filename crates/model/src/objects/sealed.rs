use crate::linear::Sequential;
use std::collections::BTreeMap;

/// Tasks of one mount, by their numbers: the first `TASKS_OF_A_MOUNT` are those of the first, and so on.
pub const TASKS_OF_A_MOUNT: usize = 2;

/// Files that are sealed and unsealed while tasks of several mounts read, write, rename and remove them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sealed {
    names: BTreeMap<usize, u64>,
    /// By the number they were made with.
    files: BTreeMap<u64, File>,
    /// By task.
    handles: BTreeMap<usize, Handle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct File {
    value: u64,
    sealed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Handle {
    file: u64,
    writes: bool,
    /// It reads without asking.
    beneath: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedOp {
    /// A new file under the name, in the place of what was there.
    Put(usize, u64),
    Unlink(usize),
    Rename(usize, usize),
    /// By whom, and which name. Who has a file open does nothing.
    Open(usize, usize),
    /// The open file once more, and what was open is closed.
    OpenToWrite(usize),
    Close(usize),
    Read(usize),
    Write(usize, u64),
    /// Is the open file sealed?
    Look(usize),
    Seal(usize),
    Unseal(usize),
    /// From here to its close the handle reads without asking, if that can be had.
    Hold(usize),
    /// Such a read.
    ReadBeneath(usize),
    /// The mount dies, with what its tasks have open.
    Die(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SealedAnswer {
    /// There is no such name, nothing is open, or it is not for this.
    Nothing,
    Done,
    /// The file is sealed.
    Refused,
    /// Somebody is in the way.
    Busy,
    Value(u64),
    IsSealed(bool),
}

impl Sealed {
    /// Files under the first so many names, with nothing in them.
    pub fn with_files(count: usize) -> Sealed {
        let empty = File { value: 0, sealed: false };
        let names = (0..count).map(|at| (at, at as u64)).collect();
        Sealed { names, files: (0..count as u64).map(|file| (file, empty)).collect(), handles: BTreeMap::new() }
    }

    fn is_sealed(&self, at: usize) -> bool {
        self.names.get(&at).and_then(|file| self.files.get(file)).is_some_and(|file| file.sealed)
    }

    fn file_of(&mut self, who: usize) -> Option<(Handle, &mut File)> {
        let handle = *self.handles.get(&who)?;
        Some((handle, self.files.get_mut(&handle.file)?))
    }

    /// What nobody can reach any more is no part of the state.
    fn forget(&mut self) {
        let Sealed { names, handles, files } = self;
        let is_reached = |file: &u64| names.values().any(|n| n == file) || handles.values().any(|h| h.file == *file);
        files.retain(|file, _| is_reached(file));
    }

    /// What it gives where nobody is in the way.
    fn done(&mut self, op: &SealedOp) -> SealedAnswer {
        use SealedAnswer::{Done, IsSealed, Nothing, Refused, Value};
        match *op {
            SealedOp::Put(at, _) if self.is_sealed(at) => Refused,
            SealedOp::Put(at, file) => {
                self.names.insert(at, file);
                self.files.insert(file, File { value: file, sealed: false });
                Done
            }
            SealedOp::Unlink(at) if self.is_sealed(at) => Refused,
            SealedOp::Unlink(at) => self.names.remove(&at).map_or(Nothing, |_| Done),
            SealedOp::Rename(from, _) if !self.names.contains_key(&from) => Nothing,
            SealedOp::Rename(from, to) if self.is_sealed(from) || self.is_sealed(to) => Refused,
            SealedOp::Rename(from, to) => {
                if let Some(file) = self.names.remove(&from) {
                    self.names.insert(to, file);
                }
                Done
            }
            SealedOp::Open(who, _) if self.handles.contains_key(&who) => Nothing,
            SealedOp::Open(who, at) => {
                let found = self.names.get(&at).copied();
                found.map(|file| self.handles.insert(who, Handle { file, writes: false, beneath: false }));
                found.map_or(Nothing, |_| Done)
            }
            SealedOp::OpenToWrite(who) => match self.file_of(who) {
                Some((_, File { sealed: true, .. })) => Refused,
                Some(_) => {
                    self.handles.entry(who).and_modify(|handle| handle.writes = true);
                    Done
                }
                None => Nothing,
            },
            SealedOp::Close(who) => self.handles.remove(&who).map_or(Nothing, |_| Done),
            SealedOp::Read(who) => self.file_of(who).map_or(Nothing, |(_, file)| Value(file.value)),
            SealedOp::Write(who, value) => match self.file_of(who) {
                Some((Handle { writes: true, .. }, File { sealed: true, .. })) => Refused,
                Some((Handle { writes: true, .. }, file)) => {
                    file.value = value;
                    Done
                }
                _ => Nothing,
            },
            SealedOp::Look(who) => self.file_of(who).map_or(Nothing, |(_, file)| IsSealed(file.sealed)),
            SealedOp::Seal(who) | SealedOp::Unseal(who) => match self.file_of(who) {
                Some((_, file)) => {
                    file.sealed = matches!(op, SealedOp::Seal(_));
                    Done
                }
                None => Nothing,
            },
            SealedOp::Hold(who) => match self.file_of(who) {
                Some((Handle { writes: false, .. }, File { sealed: true, .. })) => {
                    self.handles.entry(who).and_modify(|handle| handle.beneath = true);
                    Done
                }
                _ => Nothing,
            },
            SealedOp::ReadBeneath(who) => match self.file_of(who) {
                Some((Handle { beneath: true, .. }, file)) => Value(file.value),
                _ => Nothing,
            },
            SealedOp::Die(mount) => {
                self.handles.retain(|who, _| who / TASKS_OF_A_MOUNT != mount);
                Done
            }
        }
    }

    /// Who makes it impossible, whatever else is so.
    fn is_in_the_way(&self, op: &SealedOp) -> bool {
        let others = |of: &usize| self.handles.get(of).map(|handle| handle.file);
        match op {
            // A writer of another mount may not be known, and is told when it writes next.
            SealedOp::Seal(who) => {
                let is_beside = |other: &usize| other / TASKS_OF_A_MOUNT == who / TASKS_OF_A_MOUNT;
                let writes = |(other, handle): (&usize, &Handle)| is_beside(other) && handle.writes;
                let file = others(who);
                self.handles.iter().filter(|(_, handle)| Some(handle.file) == file).any(writes)
            }
            SealedOp::Unseal(who) => {
                let file = others(who);
                self.handles.values().any(|handle| Some(handle.file) == file && handle.beneath)
            }
            _ => false,
        }
    }
}

impl Sequential for Sealed {
    type Op = SealedOp;
    type Answer = SealedAnswer;

    fn apply(&mut self, op: &SealedOp) -> SealedAnswer {
        let answer = self.done(op);
        self.forget();
        answer
    }

    fn outcomes(&self, op: &SealedOp) -> Vec<(Self, SealedAnswer)> {
        let mut after = self.clone();
        let answer = after.apply(op);
        let nothing = || (self.clone(), SealedAnswer::Nothing);
        let busy = || (self.clone(), SealedAnswer::Busy);
        match op {
            // What is asked for may not have been heard yet, or somebody else's call is under way.
            SealedOp::Seal(_) | SealedOp::Unseal(_) if answer == SealedAnswer::Nothing => vec![nothing()],
            SealedOp::Seal(_) | SealedOp::Unseal(_) if self.is_in_the_way(op) => vec![busy()],
            SealedOp::Seal(_) | SealedOp::Unseal(_) => vec![(after, answer), busy()],
            SealedOp::OpenToWrite(_) if answer == SealedAnswer::Done => vec![(after, answer), busy()],
            SealedOp::Hold(_) if answer == SealedAnswer::Done => vec![(after, answer), nothing()],
            _ => vec![(after, answer)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Linear;

    use SealedAnswer::{Busy, Done, Refused, Value};
    use SealedOp::{Close, Die, Hold, Open, OpenToWrite, Put, Read, Seal, Unlink, Unseal, Write};

    /// Is there an order in which the last of these gives this, one after the other?
    fn is_explained(before: &[(SealedOp, SealedAnswer)], last: (SealedOp, SealedAnswer)) -> bool {
        let mut linear = Linear::new(Sealed::with_files(1));
        for (op, answer) in before {
            let id = linear.begin(*op);
            assert!(linear.end(id, answer), "{op:?}");
        }
        let id = linear.begin(last.0);
        linear.end(id, &last.1)
    }

    #[test]
    fn a_sealed_file_changes_for_nobody_and_stays_while_it_is_read_without_asking() {
        let mut all =
            vec![(Open(0, 0), Done), (Seal(0), Done), (Hold(0), Done), (Open(2, 0), Done), (Open(3, 0), Done)];
        for never in [(Unseal(2), Done), (Unlink(0), Done), (Put(0, 7), Done), (OpenToWrite(3), Done)] {
            assert!(!is_explained(&all, never), "{never:?}");
        }
        all.extend([(Unseal(2), Busy), (Put(0, 7), Refused), (Close(0), Done), (Unseal(2), Done)]);
        all.extend([(OpenToWrite(3), Done), (Write(3, 9), Done), (Read(2), Value(9))]);
        // With a writer of its own mount, which it knows of, a file is not sealed; with one of another it may be, and then that one is told.
        assert!(!is_explained(&all, (Seal(2), Done)));
        all.extend([(Open(0, 0), Done), (Seal(0), Done)]);
        assert!(!is_explained(&all, (Write(3, 10), Done)));
        // A mount dies, with the handle that was in the way.
        all.extend([(Write(3, 10), Refused), (Hold(0), Done), (Die(0), Done)]);
        assert!(is_explained(&all, (Unseal(2), Done)));
    }
}
