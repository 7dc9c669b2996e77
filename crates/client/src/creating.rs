//! Creates on their way: which file each of them opens is not known before its answer.
//!
//! Promises: what one of them may open counts as open here, so that neither a removal by this client nor the server's list of unlinked files frees it. What none can open does
//! not: a program that removes beside one that creates is not held up, and files that are gone are not kept by an endless row of creates.

use braid_types::{InodeId, Name};
use parking_lot::Mutex;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Creating(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    last: u64,
    creates: BTreeMap<u64, Create>,
}

struct Create {
    /// None: of a file that has none.
    name: Option<(InodeId, Name)>,
    /// What it made or found may have got another name through this client.
    renamed: bool,
}

impl Create {
    fn may_open(&self, parent: InodeId, name: &Name, lacks: impl Fn(InodeId, &Name) -> bool) -> bool {
        match &self.name {
            None => false,
            Some((dir, made)) => self.renamed || (*dir, made) == (parent, name) || !lacks(*dir, made),
        }
    }
}

/// One of them, until its handle counts.
pub struct Created<'a>(&'a Creating, u64);

impl Drop for Created<'_> {
    fn drop(&mut self) {
        self.0.0.lock().creates.remove(&self.1);
    }
}

impl Creating {
    pub fn begin(&self, name: Option<(InodeId, Name)>) -> Created<'_> {
        let mut under_way = self.0.lock();
        under_way.last += 1;
        let number = under_way.last;
        under_way.creates.insert(number, Create { name, renamed: false });
        Created(self, number)
    }

    /// One of them may open what the name leads to, which is not another file that happens to be created. `lacks`: the directory had no such name but
    /// by this client's doing. Without knowing that, a file may have been there that has this name as well, or somebody gave it this one.
    pub fn may_open(&self, parent: InodeId, name: &Name, lacks: impl Fn(InodeId, &Name) -> bool) -> bool {
        self.0.lock().creates.values().any(|create| create.may_open(parent, name, &lacks))
    }

    /// This client gives what a name leads to another name: perhaps what a create is about to open.
    pub fn renames(&self, parent: InodeId, name: &Name, lacks: impl Fn(InodeId, &Name) -> bool) {
        self.0.lock().creates.values_mut().for_each(|create| create.renamed |= create.may_open(parent, name, &lacks));
    }

    pub fn is_any(&self) -> bool {
        !self.0.lock().creates.is_empty()
    }

    /// The last that began.
    pub fn last(&self) -> u64 {
        self.0.lock().last
    }

    /// The first of those that are on their way. To be asked before it is looked at what is open: one that is answered in between is open then.
    pub fn first(&self) -> Option<u64> {
        self.0.lock().creates.first_key_value().map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    #[test]
    fn what_a_create_may_open_counts_as_open_until_it_is_answered() {
        let (creating, dir) = (Creating::default(), InodeId(7));
        let (lacked, unsure) = (|_: InodeId, _: &Name| true, |_: InodeId, _: &Name| false);
        let made = creating.begin(Some((dir, name("made"))));
        assert!(creating.may_open(dir, &name("made"), lacked));
        assert!(
            !creating.may_open(dir, &name("other"), lacked) && !creating.may_open(InodeId(8), &name("made"), lacked)
        );
        // The file that may be there may be called anything else as well.
        assert!(creating.may_open(dir, &name("other"), unsure));
        creating.renames(dir, &name("another"), lacked);
        assert!(!creating.may_open(dir, &name("other"), lacked));
        creating.renames(dir, &name("made"), lacked);
        assert!(creating.may_open(dir, &name("other"), lacked));
        drop(made);
        assert!(!creating.may_open(dir, &name("made"), unsure));
    }

    #[test]
    fn an_endless_row_of_creates_keeps_no_file_that_is_gone() {
        let creating = Creating::default();
        let first = creating.begin(None);
        let listed = creating.last();
        let second = creating.begin(None);
        assert!(creating.first().is_some_and(|first| first <= listed));
        drop(first);
        assert!(creating.first().is_some_and(|first| first > listed));
        drop(second);
        assert_eq!(creating.first(), None);
    }
}
