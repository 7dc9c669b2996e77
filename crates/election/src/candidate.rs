use crate::{Limits, Record};
use std::time::Duration;

/// A process's own time: since anything, and it never goes back.
pub type Moment = Duration;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing until then.
    Wait(Moment),
    /// Read the row.
    Read,
    /// Write the row if it is as expected (`None`: there is none), in one transaction.
    Write { expects: Option<Record>, record: Record },
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The row was not as expected: it is this.
    Not(Option<Record>),
    /// The answer was lost, or there was none.
    Unknown,
}

/// What a process is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another leads, or nobody does.
    Stands,
    /// Under this epoch. Whether it may answer is another question: [`Candidate::may_answer`].
    Leads(u64),
    /// It has led, and another does, or may: whatever it knows is worthless, and it never leads again.
    Over,
}

/// One process.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Drawn at its start.
    me: u64,
    limits: Limits,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Stands {
        /// What the row said last, and when that had been heard first.
        seen: Option<(Option<Record>, Moment)>,
        look_at: Moment,
    },
    Leads {
        /// As it stands, as far as is known.
        record: Record,
        /// The number of the last attempt: no two say the same, so that one that is found says which it was.
        tried: u64,
        /// What the next one shall say.
        lease: Duration,
        /// Nothing is answered from then on.
        until: Moment,
        beat_at: Moment,
        /// Written, and it is not known whether that holds: with when that began.
        asked: Option<(Record, Moment)>,
    },
    Over,
}

impl Candidate {
    pub fn new(me: u64, limits: Limits) -> Candidate {
        Candidate { me, limits, state: State::Stands { seen: None, look_at: Duration::ZERO } }
    }

    pub fn role(&self) -> Role {
        match &self.state {
            State::Stands { .. } => Role::Stands,
            State::Leads { record, .. } => Role::Leads(record.epoch),
            State::Over => Role::Over,
        }
    }

    /// Whether what this process says is not outdated by another. To be asked after all that the answer tells of has been read.
    pub fn may_answer(&self, now: Moment) -> bool {
        matches!(&self.state, State::Leads { until, .. } if now < *until)
    }

    /// How long an answer of the database is worth waiting for: most of a lease, so that one that has become slow makes it longer.
    pub fn patience(&self) -> Duration {
        match &self.state {
            State::Leads { record, .. } => record.lease() * 3 / 4,
            _ => self.limits.lease_max,
        }
    }

    /// For how long, if nothing more is heard.
    pub fn answers_until(&self) -> Option<Moment> {
        match &self.state {
            State::Leads { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// What is to be done now. The caller does it and says what became of it, before it asks again.
    pub fn next(&mut self, now: Moment) -> Step {
        // Others lead by now, or may: whoever still has a connection here is to look for them.
        if let State::Leads { record, until, .. } = &self.state
            && now >= *until + record.lease()
        {
            self.state = State::Over;
        }
        let step = match &self.state {
            State::Stands { seen, look_at } => {
                let Some((record, since)) = seen else { return Step::Read };
                if may_be_taken(record.as_ref(), *since, now) {
                    return Step::Write { expects: *record, record: self.first_after(record.as_ref()) };
                }
                if now < *look_at { Step::Wait(*look_at) } else { Step::Read }
            }
            // What was written with an unknown outcome is looked at, and not written again: the outcome may still come.
            State::Leads { asked: Some(_), beat_at, .. } if now >= *beat_at => Step::Read,
            State::Leads { record, tried, lease, beat_at, asked: None, .. } if now >= *beat_at => {
                let next = Record { beat: tried + 1, lease_ms: lease.as_millis() as u64, ..*record };
                Step::Write { expects: Some(*record), record: next }
            }
            State::Leads { beat_at, .. } => Step::Wait(*beat_at),
            State::Over => Step::Wait(Duration::MAX),
        };
        if let (Step::Write { record, .. }, State::Leads { until, .. }) = (step, &mut self.state) {
            // Whoever reads a shorter lease than the one before waits no longer than that.
            *until = (*until).min(now + record.lease());
        }
        step
    }

    /// Says that it leads no more: the write to be made, if it led.
    pub fn release(&mut self) -> Option<Step> {
        let State::Leads { record, asked, .. } = &self.state else { return None };
        let expects = asked.map_or(*record, |(asked, _)| asked);
        let record = Record { beat: u64::MAX, released: true, ..expects };
        self.state = State::Over;
        Some(Step::Write { expects: Some(expects), record })
    }

    /// The row was read; asked for at `asked`. An error is none of these: what is to be done next stays.
    pub fn read(&mut self, found: Option<Record>, now: Moment) {
        match &mut self.state {
            State::Stands { seen, look_at } => {
                let is_news = seen.is_none_or(|(record, _)| record != found);
                if is_news {
                    *seen = Some((found, now));
                }
                let lease = found.map_or(self.limits.lease_min, |record| record.lease());
                *look_at = now + self.limits.round(lease);
            }
            State::Leads { record, until, beat_at, asked, .. } => match (found, asked.take()) {
                (Some(found), Some((written, began))) if found == written => {
                    *record = written;
                    *until = (*until).max(began + written.lease());
                    *beat_at = now;
                }
                // Not carried out, or not yet: a transaction of which nobody waits for the answer may still be under way. What is
                // written from now on expects this row, and so does that one: only one of them can be. Or an attempt before that, of
                // which it is not known any more when it began.
                (Some(found), _) if (found.epoch, found.leader) == (record.epoch, record.leader) => *record = found,
                _ => self.state = State::Over,
            },
            State::Over => {}
        }
    }

    /// What became of a write that [`Candidate::next`] asked for, which began at `began`.
    pub fn wrote(&mut self, record: Record, written: Written, began: Moment, now: Moment) {
        let limits = self.limits.clone();
        match (&mut self.state, written) {
            (State::Stands { .. }, Written::Done) => {
                let until = began + record.lease();
                let beat_at = began + limits.round(record.lease());
                self.state =
                    State::Leads { record, tried: record.beat, lease: record.lease(), until, beat_at, asked: None };
            }
            // Whoever has it now, or this one: it is not believed before it is written again.
            (State::Stands { seen, look_at }, Written::Not(found)) => {
                *seen = Some((found, now));
                *look_at = now + limits.round(limits.lease_min);
            }
            (State::Stands { seen, .. }, Written::Unknown) => *seen = None,
            (State::Leads { record: own, tried, lease, until, beat_at, asked }, Written::Done) => {
                *tried = record.beat;
                *until = (*until).max(began + record.lease());
                *lease = limits.next_lease(record.lease(), now.saturating_sub(began));
                *beat_at = (began + limits.round(record.lease())).max(now);
                (*own, *asked) = (record, None);
            }
            // An attempt before this one, of which nothing had been heard: since when it stands is not known.
            (State::Leads { record: own, tried, .. }, Written::Not(Some(found)))
                if (found.epoch, found.leader) == (own.epoch, own.leader) =>
            {
                (*own, *tried) = (found, record.beat);
            }
            (State::Leads { .. }, Written::Not(_)) => self.state = State::Over,
            (State::Leads { tried, lease, asked, beat_at, .. }, Written::Unknown) => {
                // One that fails at once says nothing of how soon others are answered.
                *lease = limits.next_lease(record.lease(), now.saturating_sub(began)).max(record.lease());
                (*tried, *asked, *beat_at) = (record.beat, Some((record, began)), now);
            }
            (State::Over, _) => {}
        }
    }

    /// The first record of this process, over what there is.
    fn first_after(&self, record: Option<&Record>) -> Record {
        let epoch = record.map_or(0, |record| record.epoch) + 1;
        let lease = record.map_or(self.limits.lease_min, Record::lease);
        let lease_ms = lease.clamp(self.limits.lease_min, self.limits.lease_max).as_millis() as u64;
        Record { epoch, leader: self.me, beat: 0, lease_ms, released: false }
    }
}

/// There is no leader, it said that it is none any more, or it has been silent for its lease, on whatever clock.
fn may_be_taken(record: Option<&Record>, since: Moment, now: Moment) -> bool {
    let Some(record) = record else { return true };
    record.released || now.saturating_sub(since) >= Limits::patience(record.lease())
}
