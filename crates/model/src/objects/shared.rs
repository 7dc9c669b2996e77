use crate::linear::Sequential;
use std::collections::BTreeMap;

/// A directory of two, and a name in it.
pub type Place = (u8, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// A file, told apart from all others by its maker.
    File(u32),
    /// An empty one.
    Dir,
}

/// Two directories that all work in, and what is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shared(BTreeMap<Place, Named>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedOp {
    /// O_EXCL.
    Create(Place, u32),
    Mkdir(Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place),
    /// Another name for a file that is known by what it is, wherever it is by now.
    Link(u32, Place),
    Lookup(Place),
    List(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedAnswer {
    Done,
    Refused,
    Nothing,
    Dir,
    /// With its number of names.
    File(u32, u32),
    /// Names, and whether they are directories.
    Listed(Vec<(u8, bool)>),
}

impl Shared {
    fn names_of(&self, file: u32) -> u32 {
        self.0.values().filter(|named| **named == Named::File(file)).count() as u32
    }

    fn make(&mut self, at: Place, named: Named) -> bool {
        let is_free = !self.0.contains_key(&at);
        self.0.entry(at).or_insert(named);
        is_free
    }

    fn remove(&mut self, at: Place, which: impl Fn(&Named) -> bool) -> bool {
        let is_one = self.0.get(&at).is_some_and(which);
        if is_one {
            self.0.remove(&at);
        }
        is_one
    }

    fn rename(&mut self, from: Place, to: Place) -> bool {
        match (self.0.get(&from).copied(), self.0.get(&to).copied()) {
            (None, _) => false,
            // Two names of one file, or one place: nothing happens, and that is well.
            (Some(Named::File(a)), Some(Named::File(b))) if a == b => true,
            (Some(_), _) if from == to => true,
            (Some(Named::File(_)), Some(Named::Dir)) | (Some(Named::Dir), Some(Named::File(_))) => false,
            (Some(named), _) => {
                self.0.remove(&from);
                self.0.insert(to, named);
                true
            }
        }
    }
}

impl Sequential for Shared {
    type Op = SharedOp;
    type Answer = SharedAnswer;

    fn apply(&mut self, op: &SharedOp) -> SharedAnswer {
        let done = match *op {
            SharedOp::Create(at, file) => self.make(at, Named::File(file)),
            SharedOp::Mkdir(at) => self.make(at, Named::Dir),
            SharedOp::Unlink(at) => self.remove(at, |named| *named != Named::Dir),
            SharedOp::Rmdir(at) => self.remove(at, |named| *named == Named::Dir),
            SharedOp::Rename(from, to) => self.rename(from, to),
            // A file without a name has gone.
            SharedOp::Link(file, at) => self.names_of(file) > 0 && self.make(at, Named::File(file)),
            SharedOp::Lookup(at) => {
                return match self.0.get(&at) {
                    None => SharedAnswer::Nothing,
                    Some(Named::Dir) => SharedAnswer::Dir,
                    Some(Named::File(file)) => SharedAnswer::File(*file, self.names_of(*file)),
                };
            }
            SharedOp::List(dir) => {
                let names = self.0.range((dir, 0)..=(dir, u8::MAX));
                return SharedAnswer::Listed(names.map(|((_, name), named)| (*name, *named == Named::Dir)).collect());
            }
        };
        if done { SharedAnswer::Done } else { SharedAnswer::Refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::Linear;

    #[test]
    fn names_and_files_are_two_things() {
        let mut shared = Shared::default();
        let mut is = |op, answer| assert_eq!(shared.apply(&op), answer, "{op:?}");
        is(SharedOp::Create((0, 0), 7), SharedAnswer::Done);
        is(SharedOp::Create((0, 0), 8), SharedAnswer::Refused);
        is(SharedOp::Link(7, (1, 0)), SharedAnswer::Done);
        is(SharedOp::Lookup((1, 0)), SharedAnswer::File(7, 2));
        is(SharedOp::Rename((0, 0), (1, 0)), SharedAnswer::Done);
        is(SharedOp::Lookup((0, 0)), SharedAnswer::File(7, 2));
        is(SharedOp::Mkdir((1, 1)), SharedAnswer::Done);
        is(SharedOp::Rename((0, 0), (1, 1)), SharedAnswer::Refused);
        is(SharedOp::Unlink((1, 1)), SharedAnswer::Refused);
        is(SharedOp::Rename((1, 1), (0, 1)), SharedAnswer::Done);
        is(SharedOp::List(0), SharedAnswer::Listed(vec![(0, false), (1, true)]));
        is(SharedOp::Rmdir((0, 1)), SharedAnswer::Done);
        is(SharedOp::Unlink((0, 0)), SharedAnswer::Done);
        is(SharedOp::Unlink((1, 0)), SharedAnswer::Done);
        is(SharedOp::Link(7, (0, 0)), SharedAnswer::Refused);
        is(SharedOp::List(1), SharedAnswer::Listed(Vec::new()));
    }

    /// A listing that has a file under neither or both of the names between which it moved has no order.
    #[test]
    fn a_listing_of_two_moments_is_found() {
        for (seen, is_right) in [(vec![(0, false)], true), (vec![(1, false)], true), (vec![], false)] {
            let mut linear = Linear::new(Shared::default());
            let made = linear.begin(SharedOp::Create((0, 0), 7));
            assert!(linear.end(made, &SharedAnswer::Done));
            let lists = linear.begin(SharedOp::List(0));
            let moves = linear.begin(SharedOp::Rename((0, 0), (0, 1)));
            assert!(linear.end(moves, &SharedAnswer::Done));
            assert_eq!(linear.end(lists, &SharedAnswer::Listed(seen.clone())), is_right, "{seen:?}");
        }
    }
}
