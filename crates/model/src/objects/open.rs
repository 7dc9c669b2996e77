use crate::linear::Sequential;
use std::collections::BTreeMap;

/// Files by the number they were made with: what each has in it. Who has which file open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Open {
    names: BTreeMap<usize, u64>,
    handles: BTreeMap<usize, u64>,
    bytes: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
pub enum OpenOp {
    /// A new file under the name, in the place of what was there.
    Put(usize, u64),
    Unlink(usize),
    /// By whom: what was open is closed before.
    Open(usize, usize),
    Read(usize),
    Write(usize, u64),
    /// How many names the open file has.
    Links(usize),
}

impl Open {
    /// What nobody can reach any more is no part of the state.
    fn forget(&mut self) {
        let Open { names, handles, bytes } = self;
        bytes.retain(|file, _| names.values().chain(handles.values()).any(|reached| reached == file));
    }
}

impl Sequential for Open {
    type Op = OpenOp;
    type Answer = Option<u64>;

    fn apply(&mut self, op: &OpenOp) -> Option<u64> {
        let answer = match *op {
            OpenOp::Put(at, file) => {
                self.names.insert(at, file);
                self.bytes.insert(file, file);
                None
            }
            OpenOp::Unlink(at) => self.names.remove(&at).map(|_| 1),
            OpenOp::Open(who, at) => {
                self.handles.remove(&who);
                let found = self.names.get(&at).copied();
                found.map(|file| self.handles.insert(who, file));
                found.map(|_| 1)
            }
            OpenOp::Read(who) => self.handles.get(&who).and_then(|file| self.bytes.get(file).copied()),
            OpenOp::Write(who, value) => {
                if let Some(bytes) = self.handles.get(&who).and_then(|file| self.bytes.get_mut(file)) {
                    *bytes = value;
                }
                None
            }
            OpenOp::Links(who) => {
                self.handles.get(&who).map(|file| self.names.values().filter(|named| *named == file).count() as u64)
            }
        };
        self.forget();
        answer
    }
}
