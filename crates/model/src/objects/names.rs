use crate::linear::Sequential;

pub const NAMES: usize = 4;

/// What has which name: its mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Modes(pub [Option<u32>; NAMES]);

#[derive(Clone, Copy, Debug)]
pub enum ModeOp {
    /// O_EXCL.
    Create(usize, u32),
    Unlink(usize),
    Rename(usize, usize),
    Chmod(usize, u32),
    Stat(usize),
    Open(usize),
}

impl Sequential for Modes {
    type Op = ModeOp;
    /// Whether it succeeded; the mode, where one is seen.
    type Answer = (bool, Option<u32>);

    fn apply(&mut self, op: &ModeOp) -> (bool, Option<u32>) {
        let Modes(names) = self;
        match *op {
            ModeOp::Create(at, mode) => {
                let is_free = names[at].is_none();
                names[at] = Some(names[at].unwrap_or(mode));
                (is_free, None)
            }
            ModeOp::Unlink(at) => (names[at].take().is_some(), None),
            ModeOp::Rename(from, to) => match names[from].take() {
                Some(mode) => {
                    names[to] = Some(mode);
                    (true, None)
                }
                None => (false, None),
            },
            ModeOp::Chmod(at, mode) => {
                names[at] = names[at].map(|_| mode);
                (names[at].is_some(), None)
            }
            ModeOp::Stat(at) => (names[at].is_some(), names[at]),
            ModeOp::Open(at) => (names[at].is_some(), None),
        }
    }
}
