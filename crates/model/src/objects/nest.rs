use crate::linear::Sequential;
use std::collections::BTreeMap;

/// A directory, told apart from all others by its number, under which it has its only name, too. 0 and 1 are there from the beginning.
pub type DirNumber = u32;

/// Directories that are always there and in no other.
pub const ROOTS: u32 = 2;

/// Directories in directories that all move, make and remove: which is in which.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nest(BTreeMap<DirNumber, DirNumber>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestOp {
    Make {
        dir: DirNumber,
        parent: DirNumber,
    },
    /// Refused unless it is in there, and empty.
    Remove {
        dir: DirNumber,
        parent: DirNumber,
    },
    /// Refused unless it is in there, and never into what is in it itself.
    Move {
        dir: DirNumber,
        from: DirNumber,
        to: DirNumber,
    },
    Lookup {
        dir: DirNumber,
        parent: DirNumber,
    },
    List(DirNumber),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NestAnswer {
    Done,
    Refused,
    /// Also of a parent that has gone.
    Nothing,
    Found,
    /// In order. Of one that has gone: none.
    Listed(Vec<DirNumber>),
}

impl Nest {
    fn exists(&self, dir: DirNumber) -> bool {
        dir < ROOTS || self.0.contains_key(&dir)
    }

    fn is_in(&self, dir: DirNumber, parent: DirNumber) -> bool {
        self.0.get(&dir) == Some(&parent)
    }

    /// It is the other, or somewhere below it.
    fn is_within(&self, mut dir: DirNumber, other: DirNumber) -> bool {
        loop {
            match self.0.get(&dir) {
                _ if dir == other => return true,
                Some(parent) => dir = *parent,
                None => return false,
            }
        }
    }

    fn children(&self, of: DirNumber) -> impl Iterator<Item = DirNumber> {
        self.0.iter().filter(move |(_, parent)| **parent == of).map(|(dir, _)| *dir)
    }
}

impl Sequential for Nest {
    type Op = NestOp;
    type Answer = NestAnswer;

    fn apply(&mut self, op: &NestOp) -> NestAnswer {
        let done = match *op {
            NestOp::Make { dir, parent } => {
                let may = self.exists(parent) && !self.exists(dir);
                if may {
                    self.0.insert(dir, parent);
                }
                may
            }
            NestOp::Remove { dir, parent } => {
                let may = self.is_in(dir, parent) && self.children(dir).next().is_none();
                if may {
                    self.0.remove(&dir);
                }
                may
            }
            NestOp::Move { dir, from, to } => {
                let may = self.is_in(dir, from) && self.exists(to) && !self.is_within(to, dir);
                if may {
                    self.0.insert(dir, to);
                }
                may
            }
            NestOp::Lookup { dir, parent } if self.is_in(dir, parent) => return NestAnswer::Found,
            NestOp::Lookup { .. } => return NestAnswer::Nothing,
            NestOp::List(of) => return NestAnswer::Listed(self.children(of).collect()),
        };
        if done { NestAnswer::Done } else { NestAnswer::Refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Linear;

    #[test]
    fn nothing_comes_into_what_is_in_it() {
        let mut nest = Nest::default();
        let mut is = |op, answer| assert_eq!(nest.apply(&op), answer, "{op:?}");
        is(NestOp::Make { dir: 5, parent: 0 }, NestAnswer::Done);
        is(NestOp::Make { dir: 6, parent: 5 }, NestAnswer::Done);
        is(NestOp::Make { dir: 7, parent: 9 }, NestAnswer::Refused);
        is(NestOp::Move { dir: 5, from: 0, to: 6 }, NestAnswer::Refused);
        is(NestOp::Move { dir: 5, from: 0, to: 5 }, NestAnswer::Refused);
        is(NestOp::Move { dir: 5, from: 1, to: 1 }, NestAnswer::Refused);
        is(NestOp::Move { dir: 5, from: 0, to: 0 }, NestAnswer::Done);
        is(NestOp::Remove { dir: 5, parent: 0 }, NestAnswer::Refused);
        is(NestOp::Move { dir: 6, from: 5, to: 1 }, NestAnswer::Done);
        is(NestOp::Move { dir: 5, from: 0, to: 6 }, NestAnswer::Done);
        is(NestOp::Lookup { dir: 5, parent: 0 }, NestAnswer::Nothing);
        is(NestOp::Lookup { dir: 5, parent: 6 }, NestAnswer::Found);
        is(NestOp::List(1), NestAnswer::Listed(vec![6]));
        is(NestOp::Remove { dir: 5, parent: 6 }, NestAnswer::Done);
        is(NestOp::Move { dir: 6, from: 1, to: 5 }, NestAnswer::Refused);
        is(NestOp::List(5), NestAnswer::Listed(Vec::new()));
    }

    /// Of two that are moved into each other at once one is refused, and one alone.
    #[test]
    fn a_loop_is_found() {
        for (second, is_right) in [(NestAnswer::Refused, true), (NestAnswer::Done, false)] {
            let mut linear = Linear::new(Nest::default());
            for dir in [5, 6] {
                let made = linear.begin(NestOp::Make { dir, parent: 0 });
                assert!(linear.end(made, &NestAnswer::Done));
            }
            let one = linear.begin(NestOp::Move { dir: 5, from: 0, to: 6 });
            let other = linear.begin(NestOp::Move { dir: 6, from: 0, to: 5 });
            assert!(linear.end(one, &NestAnswer::Done));
            assert_eq!(linear.end(other, &second), is_right);
        }
    }
}
