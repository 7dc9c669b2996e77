//! A metadata server that starts, or a recovery on another machine: may it lead, and from which rows?

use crate::quorum::quorum;
use crate::report::Report;
use braid_types::{CopySet, MetaPosition, MetaTerm, ServerId, Voter};
use std::collections::{BTreeMap, BTreeSet};

/// What a metadata server that starts finds on its own disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnDisk {
    /// The newest set it knows; the default one where there never was any.
    pub set: CopySet,
    pub at: MetaPosition,
}

/// Whose rows a recovery takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub server: ServerId,
    pub at: MetaPosition,
    /// It is known to have all that was acknowledged.
    pub is_complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// So many data servers have answered, so many must, and these have not.
    Wait { have: usize, need: usize, missing: Vec<Voter> },
    /// A metadata server somewhere else has gone on from the copies: the rows on this disk are of the past.
    Fenced { by: MetaTerm },
    /// Enough have promised this term: lead from one's own disk.
    Lead { term: MetaTerm, set: CopySet, at: MetaPosition },
    /// Enough have promised this term: take these rows, wait out the lease, record a set, lead.
    Take { term: MetaTerm, set: CopySet, from: Source },
    /// Enough have promised, but no member of the newest set that has answered is known to have everything, and these have
    /// not answered.
    Unsure { best: Option<Source>, missing: Vec<ServerId> },
    /// There never was a copy anywhere: there is nothing to recover.
    Nothing,
}

/// Asks all data servers for a term of its own.
#[derive(Clone, Debug)]
pub struct Candidate {
    own: Option<OwnDisk>,
    nonce: u64,
    term: MetaTerm,
    reports: BTreeMap<ServerId, Report>,
    accept_loss: bool,
}

impl Candidate {
    /// A start on one's own disk.
    pub fn start(own: OwnDisk, nonce: u64) -> Candidate {
        let term = MetaTerm { counter: own.set.term.counter.max(own.at.term.counter) + 1, nonce };
        Candidate { own: Some(own), nonce, term, reports: BTreeMap::new(), accept_loss: false }
    }

    /// A recovery: there is no disk. With `accept_loss` members that do not answer are taken to be lost for good.
    pub fn recover(nonce: u64, accept_loss: bool) -> Candidate {
        let term = MetaTerm { counter: 1, nonce };
        Candidate { own: None, nonce, term, reports: BTreeMap::new(), accept_loss }
    }

    /// The term that is to be promised; rises when another is found to be promised.
    pub fn term(&self) -> MetaTerm {
        self.term
    }

    pub fn answered(&mut self, server: ServerId, report: Report) {
        if report.promised > self.term {
            self.term = MetaTerm { counter: report.promised.counter + 1, nonce: self.nonce };
        }
        self.reports.insert(server, report);
    }

    /// The newest set that anybody knows.
    pub fn set(&self) -> CopySet {
        let told = self.reports.values().filter_map(|report| report.set.as_ref());
        let own = self.own.iter().map(|own| &own.set);
        told.chain(own).max_by_key(|set| set.order()).cloned().unwrap_or_default()
    }

    pub fn verdict(&self) -> Verdict {
        let set = self.set();
        if let Some(own) = &self.own
            && own.set.term < set.term
        {
            return Verdict::Fenced { by: set.term };
        }
        if self.own.is_none() && !self.reports.is_empty() && set.voters.is_empty() {
            return Verdict::Nothing;
        }
        let promised = |voter: &&Voter| self.reports.get(&voter.id).is_some_and(|r| r.promised == self.term);
        let have = set.voters.iter().filter(promised).count();
        let need = quorum(set.voters.len(), self.own.is_some());
        if have < need {
            let missing = set.voters.iter().filter(|voter| !promised(voter)).cloned().collect();
            return Verdict::Wait { have, need, missing };
        }
        match &self.own {
            Some(own) => Verdict::Lead { term: self.term, at: own.at, set },
            None => self.source(set),
        }
    }

    fn source(&self, set: CopySet) -> Verdict {
        // What promised an older term may still be changed by its server.
        let copy = |id: &ServerId| {
            let report = self.reports.get(id).filter(|report| report.promised == self.term)?;
            report.copy.map(|copy| (*id, copy))
        };
        let best_of = |ids: &mut dyn Iterator<Item = ServerId>| {
            let copies = ids.filter_map(|id| copy(&id));
            copies.max_by_key(|(_, copy)| copy.last).map(|(server, copy)| (server, copy.last))
        };
        let answered: BTreeSet<ServerId> = set.members.iter().filter(|id| copy(id).is_some()).copied().collect();
        let missing: Vec<ServerId> = set.members.iter().filter(|id| !answered.contains(id)).copied().collect();
        let is_current = answered.iter().any(|id| copy(id).is_some_and(|(_, copy)| copy.current));
        let best = best_of(&mut set.members.iter().copied());
        let is_complete = is_current || (missing.is_empty() && !answered.is_empty());
        // Of servers outside the set nobody knows how old their copies are: better than nothing at all.
        let best = match best {
            None if self.accept_loss => best_of(&mut self.reports.keys().copied()),
            best => best,
        };
        let source = best.map(|(server, at)| Source { server, at, is_complete });
        match source {
            Some(from) if is_complete || self.accept_loss => Verdict::Take { term: self.term, set, from },
            best => Verdict::Unsure { best, missing },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Standing;

    fn term(counter: u64) -> MetaTerm {
        MetaTerm { counter, nonce: 7 }
    }

    fn set(counter: u64, members: &[u64]) -> CopySet {
        let voter = |id| Voter { id: ServerId(id), host: format!("h{id}"), addresses: Vec::new() };
        let members = members.iter().map(|id| ServerId(*id)).collect();
        CopySet { term: term(counter), number: 1, members, voters: (1..=3).map(voter).collect() }
    }

    fn report(promised: MetaTerm, set: Option<CopySet>, last: u64, current: bool) -> Report {
        let last = MetaPosition { term: term(4), number: last };
        Report { promised, set, copy: Some(Standing { last, synced: last.number, current }), forming: None }
    }

    #[test]
    fn a_start_needs_a_majority_and_rises_above_what_it_finds() {
        let own = OwnDisk { set: set(4, &[1, 2]), at: MetaPosition { term: term(4), number: 9 } };
        let mut c = Candidate::start(own, 7);
        assert_eq!(c.term(), term(5));
        c.answered(ServerId(1), report(term(8), Some(set(4, &[1, 2])), 9, true));
        assert_eq!(c.term(), term(9), "somebody else has asked for 8");
        assert!(matches!(c.verdict(), Verdict::Wait { have: 0, need: 2, .. }));
        c.answered(ServerId(1), report(term(9), Some(set(4, &[1, 2])), 9, true));
        c.answered(ServerId(3), report(term(9), None, 0, false));
        assert!(matches!(c.verdict(), Verdict::Lead { at: MetaPosition { number: 9, .. }, .. }));
        c.answered(ServerId(3), report(term(9), Some(set(6, &[3])), 9, true));
        assert_eq!(c.verdict(), Verdict::Fenced { by: term(6) });
    }

    #[test]
    fn a_start_without_data_servers_waits_for_nobody() {
        assert!(matches!(Candidate::start(OwnDisk::default(), 7).verdict(), Verdict::Lead { .. }));
        let mut nobody = Candidate::recover(7, false);
        assert!(matches!(nobody.verdict(), Verdict::Wait { have: 0, need: 1, .. }));
        nobody.answered(ServerId(1), Report::default());
        assert_eq!(nobody.verdict(), Verdict::Nothing);
    }

    #[test]
    fn a_recovery_takes_the_furthest_and_does_not_guess() {
        let mut c = Candidate::recover(7, false);
        let newest = Some(set(4, &[1, 2]));
        c.answered(ServerId(3), report(term(4), newest.clone(), 20, true));
        let asked = c.term();
        c.answered(ServerId(3), report(asked, newest.clone(), 20, true));
        c.answered(ServerId(2), report(asked, newest.clone(), 8, false));
        let best = Source { server: ServerId(2), at: MetaPosition { term: term(4), number: 8 }, is_complete: false };
        assert_eq!(c.verdict(), Verdict::Unsure { best: Some(best), missing: vec![ServerId(1)] });
        let mut forced = c.clone();
        forced.accept_loss = true;
        assert!(matches!(forced.verdict(), Verdict::Take { from, .. } if from == best));
        c.answered(ServerId(1), report(asked, newest, 9, false));
        assert!(matches!(
            c.verdict(),
            Verdict::Take { from: Source { server: ServerId(1), is_complete: true, .. }, .. }
        ));
    }
}
