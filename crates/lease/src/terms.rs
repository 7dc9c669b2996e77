//! How long each session's leases last: one term a session, prolonged by its renewals.

use crate::time::Moment;
use braid_types::SessionId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Term {
    end: Moment,
    /// Does not acknowledge: its renewals prolong nothing until the term has run out.
    condemned: bool,
    /// The term is over and what hung on it has been taken away.
    lapsed: bool,
    /// It has said what it has open since it was last out of touch.
    settled: bool,
    /// Which asking for that the answer has to name.
    round: u64,
    /// It is to say all that it has here: else what it has in slots that came here, and the rest went on without a pause.
    anew: bool,
    /// Its end has been asked for.
    ending: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    all: BTreeMap<SessionId, Term>,
    rounds: u64,
}

impl Terms {
    /// A session of which nothing is known in slots that came here, nor in others if it is new here.
    pub fn inherit(&mut self, session: SessionId) {
        self.rounds += 1;
        let new = Term {
            end: Moment::default(),
            condemned: false,
            lapsed: true,
            settled: false,
            round: 0,
            anew: true,
            ending: false,
        };
        let term = self.all.entry(session).or_insert(new);
        term.anew &= !term.settled;
        (term.settled, term.round) = (false, self.rounds);
    }

    /// Prolongs the term to `end`; gives the end it has now, and whether this did it. Terms that are over must have
    /// lapsed before.
    pub fn renew(&mut self, session: SessionId, end: Moment) -> (Moment, bool) {
        let new = Term { end, condemned: false, lapsed: false, settled: true, round: 0, anew: false, ending: false };
        let term = self.all.entry(session).or_insert(new);
        // Its end has been asked for and will come: nothing is to be given to it meanwhile.
        let prolongs = !term.condemned && !term.ending;
        if prolongs {
            term.end = term.end.max(end);
            term.lapsed = false;
        }
        (term.end, prolongs)
    }

    /// Nothing that was granted is known any more: each is to say all it has.
    pub fn forget(&mut self) {
        for term in self.all.values_mut() {
            self.rounds += 1;
            (term.settled, term.anew, term.round) = (false, true, self.rounds);
        }
    }

    pub fn is_live(&self, session: SessionId, now: Moment) -> bool {
        self.all.get(&session).is_some_and(|term| now < term.end)
    }

    /// What it holds is void, unless it may be written under.
    pub fn has_lapsed(&self, session: SessionId) -> bool {
        self.all.get(&session).is_none_or(|term| term.lapsed)
    }

    /// It is to say what it holds, under this number; whether that is all, or what it has in slots that came here.
    pub fn asked(&self, session: SessionId) -> Option<(u64, bool)> {
        self.all.get(&session).filter(|term| !term.settled).map(|term| (term.round, term.anew))
    }

    /// What it says is all that it holds here.
    pub fn says_all(&self, session: SessionId) -> bool {
        self.all.get(&session).is_some_and(|term| term.anew)
    }

    /// It says what it holds: `Some(true)` for the first time under this number, `None` if it was not asked.
    pub fn says(&self, session: SessionId, round: u64) -> Option<bool> {
        self.all.get(&session).filter(|term| term.round == round && round > 0).map(|term| !term.settled)
    }

    pub fn is_ending(&self, session: SessionId) -> bool {
        self.all.get(&session).is_some_and(|term| term.ending)
    }

    pub fn condemn(&mut self, session: SessionId) {
        if let Some(term) = self.all.get_mut(&session) {
            term.condemned = true;
        }
    }

    pub fn settle(&mut self, session: SessionId) {
        if let Some(term) = self.all.get_mut(&session) {
            term.settled = true;
        }
    }

    /// Some session may have something open of which nothing is known here.
    pub fn any_unsettled(&self) -> bool {
        self.all.values().any(|term| !term.settled)
    }

    /// The session's end is to be asked for. False if it has been.
    pub fn begin_end(&mut self, session: SessionId) -> bool {
        match self.all.get_mut(&session) {
            Some(term) => !std::mem::replace(&mut term.ending, true),
            None => false,
        }
    }

    /// Nobody is there any more to whom its term would say anything.
    pub fn gone(&mut self, session: SessionId, now: Moment) {
        if let Some(term) = self.all.get_mut(&session) {
            (term.end, term.ending) = (term.end.min(now), true);
        }
    }

    pub fn remove(&mut self, session: SessionId) {
        self.all.remove(&session);
    }

    pub fn end(&self, session: SessionId) -> Option<Moment> {
        self.all.get(&session).map(|term| term.end)
    }

    /// Sessions whose term has run out since the last call.
    pub fn lapse(&mut self, now: Moment) -> Vec<SessionId> {
        let mut lapsed = Vec::new();
        for (session, term) in &mut self.all {
            if !term.lapsed && term.end <= now {
                self.rounds += 1;
                (term.lapsed, term.settled, term.condemned) = (true, false, false);
                term.anew = true;
                term.round = self.rounds;
                lapsed.push(*session);
            }
        }
        lapsed
    }

    /// When the next term runs out.
    pub fn next(&self) -> Option<Moment> {
        self.all.values().filter(|term| !term.lapsed).map(|term| term.end).min()
    }
}
