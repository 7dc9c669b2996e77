//! A data server's part: what it has promised, and which groups its copy has.

use crate::report::{Report, Standing};
use braid_types::{CopySet, MetaPosition, MetaTerm};
use std::collections::VecDeque;

/// The positions of a copy: a base, and groups after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Everything up to here is in the base.
    pub base: MetaPosition,
    /// The base was read while groups went on: it is a state of the rows only with the groups up to this number. `None`
    /// until its last page is here.
    pub upto: Option<u64>,
    pub pages: u64,
    log: VecDeque<MetaPosition>,
    synced: u64,
    current: bool,
}

/// What is to be done with groups that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Those after this number go: their term's server never acknowledged them.
    pub drop_after: Option<u64>,
    /// So many of the first are here already.
    pub skip: usize,
    /// They are for the copy that is forming.
    pub forming: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("it has promised term {0}")]
    Newer(MetaTerm),
    #[error("they do not follow what is here")]
    Gap,
}

/// What is volatile in it is lost with the process: see [`Keeper::restarted`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    promised: MetaTerm,
    set: Option<CopySet>,
    kept: Option<Copy>,
    forming: Option<Copy>,
}

impl Copy {
    /// As it is found after a start.
    pub fn found(base: MetaPosition, upto: u64, log: impl IntoIterator<Item = MetaPosition>) -> Copy {
        let log: VecDeque<_> = log.into_iter().collect();
        let synced = log.back().unwrap_or(&base).number;
        Copy { base, upto: Some(upto), pages: 0, log, synced, current: false }
    }

    pub fn last(&self) -> MetaPosition {
        self.log.back().copied().unwrap_or(self.base)
    }

    pub fn is_whole(&self) -> bool {
        self.upto.is_some_and(|upto| self.last().number >= upto)
    }

    fn has(&self, at: MetaPosition) -> bool {
        // Numbers rise, and some are left out.
        at == self.base || self.log.binary_search_by_key(&at.number, |p| p.number).is_ok_and(|i| self.log[i] == at)
    }

    fn standing(&self) -> Standing {
        Standing { last: self.last(), synced: self.synced, current: self.current }
    }

    /// Everything up to this group went into the base.
    fn rotate(&mut self, base: MetaPosition) {
        while self.log.front().is_some_and(|p| p.number <= base.number) {
            self.log.pop_front();
        }
        self.base = base;
    }
}

impl Keeper {
    /// From what is on stable storage.
    pub fn restarted(promised: MetaTerm, set: Option<CopySet>, kept: Option<Copy>) -> Keeper {
        Keeper { promised, set, kept, forming: None }
    }

    pub fn promised(&self) -> MetaTerm {
        self.promised
    }

    pub fn set(&self) -> Option<&CopySet> {
        self.set.as_ref()
    }

    pub fn copy(&self) -> Option<&Copy> {
        self.kept.as_ref()
    }

    pub fn report(&self) -> Report {
        Report {
            promised: self.promised,
            set: self.set.clone(),
            copy: self.kept.as_ref().map(Copy::standing),
            forming: self.forming.as_ref().map(|copy| (copy.standing(), copy.pages)),
        }
    }

    /// Obeys this term from now on and no older one; true if that must be made stable before it is answered.
    pub fn promise(&mut self, term: MetaTerm) -> Result<bool, Refused> {
        if term < self.promised {
            return Err(Refused::Newer(self.promised));
        }
        let news = term > self.promised;
        self.promised = term;
        Ok(news)
    }

    /// Records a set, and obeys its term; true if that must be made stable before it is answered.
    pub fn record(&mut self, set: &CopySet) -> Result<bool, Refused> {
        let mut news = self.promise(set.term)?;
        if self.set.as_ref().is_none_or(|old| old.order() < set.order()) {
            self.set = Some(set.clone());
            news = true;
        }
        Ok(news)
    }

    /// Takes groups that follow `prev`; `durable` is the last number that was acknowledged when they were sent.
    pub fn append(
        &mut self,
        term: MetaTerm,
        prev: MetaPosition,
        groups: &[MetaPosition],
        durable: u64,
    ) -> Result<Room, Refused> {
        if term != self.promised {
            return Err(Refused::Newer(self.promised));
        }
        let forming = self.forming.is_some();
        let copy = self.forming.as_mut().or(self.kept.as_mut()).ok_or(Refused::Gap)?;
        // Numbers rise and one position is one group: what is here of them is their beginning.
        let skip = groups.iter().take_while(|at| copy.has(**at)).count();
        let follow = skip.checked_sub(1).map_or(prev, |last| groups[last]);
        if !copy.has(follow) {
            return Err(Refused::Gap);
        }
        // Late and repeated ones change nothing: in one term, what is here beyond them is newer.
        let end = groups.last().map_or(prev.number, |at| at.number);
        if copy.last().term == term && end <= copy.last().number {
            self.settle(durable);
            return Ok(Room { drop_after: None, skip: groups.len(), forming });
        }
        let drop_after = (follow != copy.last()).then_some(follow.number);
        if let Some(number) = drop_after {
            while copy.log.back().is_some_and(|p| p.number > number) {
                copy.log.pop_back();
            }
            copy.synced = copy.synced.min(number);
        }
        copy.log.extend(&groups[skip..]);
        self.settle(durable);
        Ok(Room { drop_after, skip, forming })
    }

    /// A new base comes, read from `from` on; true if it is not the one that is coming already. The copy that was here is
    /// kept until it is whole. Late words of a base that is older than what is here are refused.
    pub fn begin_base(&mut self, term: MetaTerm, from: MetaPosition) -> Result<bool, Refused> {
        if term != self.promised {
            return Err(Refused::Newer(self.promised));
        }
        let is_past = |copy: &Copy| copy.has(from) || (copy.last().term == term && copy.last().number >= from.number);
        match &self.forming {
            Some(forming) if forming.base == from => return Ok(false),
            Some(forming) if is_past(forming) => return Err(Refused::Gap),
            _ if self.kept.as_ref().is_some_and(is_past) => return Err(Refused::Gap),
            _ => {}
        }
        if let Some(kept) = &mut self.kept {
            kept.current = false;
        }
        self.forming = Some(Copy { base: from, ..Copy::default() });
        Ok(true)
    }

    /// Page `page` of the base that began at `from` is to be added. True if it is the next one.
    pub fn page(&self, term: MetaTerm, from: MetaPosition, page: u64) -> Result<bool, Refused> {
        if term != self.promised {
            return Err(Refused::Newer(self.promised));
        }
        let forming = self.forming.as_ref().filter(|copy| copy.base == from).ok_or(Refused::Gap)?;
        match page <= forming.pages {
            true => Ok(page == forming.pages && forming.upto.is_none()),
            false => Err(Refused::Gap),
        }
    }

    /// It was added; `upto` if it was the last.
    pub fn paged(&mut self, upto: Option<u64>, durable: u64) {
        if let Some(forming) = &mut self.forming {
            forming.pages += 1;
            forming.upto = upto;
        }
        self.settle(durable);
    }

    /// The copy that was forming is whole: it must be made stable, then [`Keeper::replace`] be called.
    pub fn is_formed(&self) -> bool {
        self.forming.as_ref().is_some_and(Copy::is_whole)
    }

    pub fn replace(&mut self, durable: u64) {
        if self.is_formed() {
            self.kept = self.forming.take();
        }
        self.settle(durable);
    }

    fn settle(&mut self, durable: u64) {
        if let Some(copy) = self.kept.as_mut().filter(|_| self.forming.is_none()) {
            copy.current |= copy.last().number >= durable;
        }
    }

    /// What was there up to this position when a sync began is stable.
    pub fn synced(&mut self, at: MetaPosition) {
        // Dropped meanwhile: then the number is another group's.
        for copy in [&mut self.kept, &mut self.forming].into_iter().flatten().filter(|copy| copy.has(at)) {
            copy.synced = copy.synced.max(at.number);
        }
    }

    /// The last group here, also of a copy that forms.
    pub fn last(&self) -> Option<MetaPosition> {
        self.forming.as_ref().or(self.kept.as_ref()).map(Copy::last)
    }

    /// The base now reaches to `base`.
    pub fn rotated(&mut self, base: MetaPosition) {
        if let Some(copy) = self.kept.as_mut().filter(|copy| copy.has(base)) {
            copy.rotate(base);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(counter: u64) -> MetaTerm {
        MetaTerm { counter, nonce: 0 }
    }

    fn at(counter: u64, number: u64) -> MetaPosition {
        MetaPosition { term: term(counter), number }
    }

    fn keeper() -> Keeper {
        let copy = Copy::found(at(1, 4), 4, [at(1, 5), at(1, 6)]);
        let mut keeper = Keeper::restarted(term(1), None, Some(copy));
        keeper.promise(term(1)).unwrap();
        keeper
    }

    #[test]
    fn groups_follow_repeat_and_are_dropped_by_a_new_term_only() {
        let mut k = keeper();
        assert_eq!(k.append(term(1), at(1, 7), &[at(1, 8)], 0), Err(Refused::Gap));
        let room = |drop_after, skip| Ok(Room { drop_after, skip, forming: false });
        assert_eq!(k.append(term(1), at(1, 5), &[at(1, 6), at(1, 7)], 0), room(None, 1));
        assert_eq!(k.append(term(1), at(1, 4), &[at(1, 5)], 0), room(None, 1), "late: nothing is dropped");
        assert_eq!(k.append(term(1), at(1, 5), &[], 0), room(None, 0), "late: nothing is dropped");
        assert_eq!(k.last(), Some(at(1, 7)));
        assert_eq!(k.append(term(1), at(1, 6), &[at(1, 8)], 0), room(Some(6), 0), "7 failed at its server");
        assert_eq!(k.append(term(1), at(1, 6), &[at(1, 7)], 0), room(None, 1), "late, and failed at its server");
        assert_eq!(k.last(), Some(at(1, 8)));
        assert_eq!(k.append(term(2), at(1, 6), &[], 0), Err(Refused::Newer(term(1))), "it has promised nothing of it");
        k.promise(term(2)).unwrap();
        assert_eq!(k.append(term(2), at(1, 6), &[], 0), room(Some(6), 0));
        assert_eq!(k.append(term(1), at(1, 6), &[at(1, 8)], 0), Err(Refused::Newer(term(2))));
        assert_eq!(k.last(), Some(at(1, 6)));
    }

    #[test]
    fn a_copy_counts_again_when_it_has_all_that_was_acknowledged() {
        let mut k = keeper();
        let current = |k: &Keeper| k.report().copy.unwrap().current;
        k.append(term(1), at(1, 6), &[at(1, 7)], 8).unwrap();
        assert!(!current(&k));
        k.append(term(1), at(1, 7), &[at(1, 8)], 8).unwrap();
        assert!(current(&k));
        assert_eq!(k.begin_base(term(1), at(1, 8)), Err(Refused::Gap), "late");
        assert_eq!(k.begin_base(term(1), at(1, 9)), Ok(true));
        assert!(!current(&k), "it will not get what comes now");
        assert_eq!(k.page(term(1), at(1, 9), 0), Ok(true));
        k.paged(Some(10), 10);
        assert_eq!(k.page(term(1), at(1, 9), 0), Ok(false), "repeated");
        assert!(!k.is_formed());
        k.append(term(1), at(1, 9), &[at(1, 10)], 10).unwrap();
        assert!(k.is_formed() && !current(&k));
        k.replace(10);
        assert!(current(&k) && k.report().forming.is_none());
    }

    #[test]
    fn a_sync_of_what_was_dropped_says_nothing() {
        let mut k = keeper();
        k.append(term(1), at(1, 6), &[at(1, 7)], 0).unwrap();
        k.promise(term(2)).unwrap();
        k.append(term(2), at(1, 6), &[at(2, 7)], 0).unwrap();
        k.synced(at(1, 7));
        assert_eq!(k.report().copy.unwrap().synced, 6);
        k.synced(at(2, 7));
        assert_eq!(k.report().copy.unwrap().synced, 7);
    }
}
