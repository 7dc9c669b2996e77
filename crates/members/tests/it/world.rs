//! Processes over two rows, from a seed: each a candidate of the election, a member, and a leader while it is elected. Clocks drift, processes
//! stand still, are cut off from the others, killed, stopped in order and started; messages and answers of the database are lost or late.

use crate::process::{Call, Flaw, Process};
use braid_election::{Candidate, DRIFT, Record, Role};
use braid_members::{
    Answer, Leader, Limits, Member, MemberId, Moment, Next, Question, Reply, Roster, Seat, Step, Written,
};
use braid_types::{LeaderEpoch, SlotSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;

/// True time.
pub type Us = u64;

pub const SECOND: Us = 1_000_000;
/// Nobody waits longer for the database.
const PATIENCE: Us = 3 * SECOND;

enum Op {
    Election(braid_election::Step),
    Roster(Step),
    /// A member looks at the row itself.
    Look,
}

enum Outcome {
    Found(Option<Record>),
    Wrote(braid_election::Written),
    FoundRoster(Option<Roster>),
    WroteRoster(Written),
    Looked(Option<Roster>),
}

/// What is on its way.
enum Parcel {
    Ask { from: usize, question: Question, asked: Moment },
    Reply { reply: Reply, asked: Moment },
    Leaves(MemberId),
    Outcome { call: u64, outcome: Outcome },
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub leaders: u64,
    pub rosters: u64,
    /// Writes of the roster of which nothing was heard.
    pub unknown: u64,
    /// For how long, of each process that may answer.
    pub answers: u64,
    /// For how long a slot's holder, which has it since before and is well, may not answer; of each such slot.
    pub gaps: u64,
}

pub struct World {
    pub random: SmallRng,
    flaw: Flaw,
    limits: Limits,
    record: Option<Record>,
    pub roster: Option<Roster>,
    /// Of each member under the row.
    shares: BTreeMap<MemberId, SlotSet>,
    pub processes: Vec<Process>,
    /// By when they arrive; `None` is the database.
    parcels: BTreeMap<(Us, u64), (usize, Parcel)>,
    ops: BTreeMap<(Us, u64), (usize, u64, Op, bool)>,
    starts: Vec<Us>,
    trouble_at: Us,
    numbers: u64,
    pub now: Us,
    is_stormy: bool,
    /// Now and then who leads is told to serve alone.
    pub asks_for_one: bool,
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64, flaw: Flaw) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let count = random.random_range(2..=4);
        let limits = match flaw {
            Flaw::IgnoresDrift => Limits { drift: u32::MAX, ..Limits::default() },
            _ => Limits::default(),
        };
        let mut world = World {
            random,
            flaw,
            limits,
            record: None,
            roster: None,
            shares: BTreeMap::new(),
            processes: Vec::new(),
            parcels: BTreeMap::new(),
            ops: BTreeMap::new(),
            starts: Vec::new(),
            trouble_at: 0,
            numbers: 0,
            now: 0,
            is_stormy: false,
            asks_for_one: false,
            seen: Seen::default(),
        };
        for _ in 0..count {
            world.start();
        }
        world
    }

    pub fn start(&mut self) {
        // Two of them differ by no more than a part in DRIFT; most are at one end or the other, where it matters.
        let span = 1_000_000 / u64::from(DRIFT) / 2 - 2_000;
        let speed = match self.random.random_range(0..3) {
            0 => 1_000_000 - span,
            1 => 1_000_000 + span,
            _ => self.random.random_range(1_000_000 - span..=1_000_000 + span),
        };
        let speed =
            if self.flaw == Flaw::Clocks && self.processes.len().is_multiple_of(2) { speed * 8 / 10 } else { speed };
        let id = MemberId(self.random.random());
        self.processes.push(Process {
            id,
            candidate: Candidate::new(id.0, braid_election::Limits::default()),
            member: Member::new(id, vec![format!("{id}:7000")], self.limits.clone()),
            leader: None,
            speed,
            offset: self.random.random_range(100 * SECOND..10_000 * SECOND),
            paused: 0,
            cut: 0,
            apart: 0,
            election_call: None,
            roster_call: None,
            wake: 0,
            stays: SlotSet::none(),
        });
    }

    pub fn alive(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|which| self.processes[*which].is_alive()).collect()
    }

    /// Whatever it has sent may still arrive, and nobody hears the answer.
    pub fn kill(&mut self, which: usize) {
        let process = &mut self.processes[which];
        process.paused = Us::MAX;
        process.leader = None;
    }

    pub fn stop(&mut self, which: usize) {
        let process = &mut self.processes[which];
        let id = process.id;
        process.member.leaves();
        match process.candidate.release() {
            Some(step) => self.operate(which, Op::Election(step)),
            None => {
                for to in self.alive() {
                    self.send(which, to, Parcel::Leaves(id));
                }
                0
            }
        };
        self.kill(which);
    }

    /// Who leads is to serve alone for so long.
    pub fn alone(&mut self, time: Us) {
        let until = self.now + time;
        let all: Vec<MemberId> = self.processes.iter().map(|process| process.id).collect();
        for process in &mut self.processes {
            let until = process.clock(until);
            let Some(leader) = &mut process.leader else { continue };
            leader.stays_alone(until);
            if self.flaw == Flaw::TakesAtOnce {
                all.iter().for_each(|id| leader.leaves(*id));
            }
        }
    }

    /// It goes on, and nobody hears it.
    pub fn cut(&mut self, which: usize, time: Us) {
        self.processes[which].cut = self.now + time;
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn latency(&mut self) -> Us {
        match self.is_stormy {
            true if self.random.random_bool(0.003) => self.random.random_range(6 * SECOND..60 * SECOND),
            true if self.random.random_bool(0.05) => self.random.random_range(100_000..6 * SECOND),
            _ => self.random.random_range(300..30_000),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.is_stormy && self.random.random_bool(0.03)
    }

    fn send(&mut self, from: usize, to: usize, parcel: Parcel) {
        let is_cut = self.processes[from].cut > self.now || self.processes[to].cut > self.now;
        if from != to && (is_cut || self.is_lost()) {
            return;
        }
        let key = (self.now + self.latency(), self.number());
        self.parcels.insert(key, (to, parcel));
    }

    /// Sends it to the database.
    fn operate(&mut self, which: usize, op: Op) -> u64 {
        let call = self.number();
        let is_apart = self.processes[which].apart > self.now;
        let (is_lost, never_arrives) = (is_apart || self.is_lost(), self.random.random_bool(0.5));
        if !(is_lost && never_arrives) {
            let key = (self.now + self.latency(), call);
            self.ops.insert(key, (which, call, op, is_lost));
        }
        call
    }

    pub fn run(&mut self, is_stormy: bool, time: Us) -> Result<(), String> {
        self.is_stormy = is_stormy;
        let end = self.now + time;
        if is_stormy {
            self.trouble_at = self.now;
        }
        while self.now < end {
            let next = self.next_event().clamp(self.now + 1, end);
            self.passes(next - self.now);
            self.now = next;
            self.happens();
            self.check()?;
        }
        Ok(())
    }

    /// Until then nothing is otherwise.
    fn next_event(&self) -> Us {
        let parcel = self.parcels.first_key_value().map(|(key, _)| key.0);
        let op = self.ops.first_key_value().map(|(key, _)| key.0);
        let trouble = self.is_stormy.then_some(self.trouble_at);
        let wakes = self.processes.iter().filter(|process| process.is_alive()).flat_map(|process| {
            let lapses = process.time_of(process.member.answers_until());
            [Some(process.wake.max(process.paused)), (lapses > self.now).then_some(lapses)]
        });
        let all = wakes.chain([parcel, op, trouble, self.starts.iter().min().copied()]);
        all.flatten().min().unwrap_or(Us::MAX)
    }

    fn happens(&mut self) {
        if self.is_stormy && self.trouble_at <= self.now {
            self.trouble();
            self.trouble_at = self.now + self.random.random_range(0..4 * SECOND);
        }
        while let Some(at) = self.starts.iter().position(|at| *at <= self.now) {
            self.starts.swap_remove(at);
            self.start();
        }
        while let Some(entry) = self.ops.first_entry()
            && entry.key().0 <= self.now
        {
            let (which, call, op, is_lost) = entry.remove();
            self.carry_out(which, call, op, is_lost);
        }
        while let Some(entry) = self.parcels.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, parcel) = entry.remove();
            match self.processes[to].paused {
                Us::MAX => {}
                until if until > self.now => {
                    let key = (until, self.number());
                    self.parcels.insert(key, (to, parcel));
                }
                _ => {
                    self.arrives(to, parcel);
                    self.processes[to].wake = self.now;
                }
            }
        }
        for which in 0..self.processes.len() {
            if self.processes[which].paused <= self.now && self.processes[which].wake <= self.now {
                self.go_on(which);
            }
        }
    }

    fn trouble(&mut self) {
        let alive = self.alive();
        if alive.is_empty() {
            return;
        }
        if self.asks_for_one && self.random.random_bool(0.1) {
            let time = self.random.random_range(0..30 * SECOND);
            self.alone(time);
        }
        // Often it is who leads.
        let leads = alive.iter().copied().find(|which| self.processes[*which].leader.is_some());
        let any = alive[self.random.random_range(0..alive.len())];
        let which = leads.filter(|_| self.random.random_bool(0.3)).unwrap_or(any);
        let (what, long) = (self.random.random_range(0..100), self.random.random_range(100_000..15 * SECOND));
        match what {
            0..15 => {
                self.kill(which);
                self.starts.push(self.now + long / 4);
            }
            15..30 => {
                self.stop(which);
                self.starts.push(self.now + long / 4);
            }
            30..45 => self.processes[which].cut = self.now + long,
            45..55 => self.processes[which].apart = self.now + long,
            55..60 if alive.len() + self.starts.len() < 4 => self.starts.push(self.now),
            60..65 if alive.len() + self.starts.len() > 2 => self.kill(which),
            65..70 => _ = self.operate(which, Op::Look),
            _ => self.processes[which].paused = self.now + long,
        }
    }

    /// In the database, one after the other.
    fn carry_out(&mut self, which: usize, call: u64, op: Op, is_lost: bool) {
        let outcome = match op {
            Op::Look => Outcome::Looked(self.roster.clone()),
            Op::Roster(Step::Read) => Outcome::FoundRoster(self.roster.clone()),
            Op::Roster(Step::Write { expects, roster }) if expects == self.roster => {
                self.seen.rosters += 1;
                self.shares = roster.shares();
                for process in &mut self.processes {
                    process.stays = match self.shares.get(&process.id) {
                        Some(share) => process.stays.both(share),
                        None => SlotSet::none(),
                    };
                }
                self.roster = Some(roster);
                Outcome::WroteRoster(Written::Done)
            }
            Op::Roster(_) => Outcome::WroteRoster(Written::Not(self.roster.clone())),
            Op::Election(braid_election::Step::Read) => Outcome::Found(self.record),
            Op::Election(braid_election::Step::Write { expects, record }) if expects == self.record => {
                self.seen.leaders += u64::from(self.record.is_none_or(|row| row.epoch != record.epoch));
                self.record = Some(record);
                Outcome::Wrote(braid_election::Written::Done)
            }
            Op::Election(_) => Outcome::Wrote(braid_election::Written::Not(self.record)),
        };
        if !is_lost {
            let key = (self.now + self.latency(), self.number());
            self.parcels.insert(key, (which, Parcel::Outcome { call, outcome }));
        }
    }

    fn arrives(&mut self, to: usize, parcel: Parcel) {
        let process = &mut self.processes[to];
        let clock = process.clock(self.now);
        match parcel {
            Parcel::Ask { from, question, asked } => {
                let reply = match &mut process.leader {
                    Some(leader) => leader.asks(question, clock),
                    None => Reply::NotLeading,
                };
                let reply = self.as_told(reply);
                self.send(to, from, Parcel::Reply { reply, asked });
            }
            Parcel::Reply { reply, asked } => {
                let asked = if self.flaw == Flaw::CountsFromTheAnswer { clock } else { asked };
                process.member.hears(reply, asked, clock);
            }
            Parcel::Leaves(id) => {
                if let Some(leader) = &mut process.leader {
                    leader.leaves(id);
                }
            }
            Parcel::Outcome { outcome: Outcome::Looked(found), .. } => {
                if let Some(found) = found {
                    process.member.learns(found, clock);
                }
            }
            Parcel::Outcome { call, outcome } => {
                if let Some(own) = process.election_call.take_if(|own| own.number == call) {
                    match (outcome, own.step) {
                        (Outcome::Found(found), _) => process.candidate.read(found, clock),
                        (Outcome::Wrote(written), braid_election::Step::Write { record, .. }) => {
                            process.candidate.wrote(record, written, own.began, clock);
                        }
                        _ => unreachable!("an answer to another question"),
                    }
                } else if process.roster_call.take_if(|own| own.number == call).is_some()
                    && let Some(leader) = &mut process.leader
                {
                    match outcome {
                        Outcome::FoundRoster(found) => leader.read(found, clock),
                        Outcome::WroteRoster(written) => leader.wrote(written, clock),
                        _ => unreachable!("an answer to another question"),
                    }
                    process.member.is_outdated(clock);
                }
            }
        }
    }

    fn as_told(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Member(answer) if self.flaw == Flaw::NeverWaitsForOthers => {
                Reply::Member(Answer { is_settled: true, ..answer })
            }
            reply => reply,
        }
    }

    fn go_on(&mut self, which: usize) {
        let now = self.now;
        self.gives_up(which);
        let mut wake = now + SECOND;
        let process = &mut self.processes[which];
        let clock = process.clock(now);
        if process.election_call.is_none() {
            match process.candidate.next(clock) {
                braid_election::Step::Wait(until) => wake = wake.min(process.time_of(until)),
                step => {
                    let number = self.operate(which, Op::Election(step));
                    let call = Call { number, step, began: clock, deadline: now + PATIENCE };
                    self.processes[which].election_call = Some(call);
                }
            }
        }
        let process = &mut self.processes[which];
        let is_over = process.candidate.role() == Role::Over || process.member.is_over();
        if is_over || process.leader.as_ref().is_some_and(Leader::is_over) {
            // It is started again.
            self.kill(which);
            self.starts.push(now + SECOND / 10);
            return;
        }
        if let (Role::Leads(epoch), Some(until)) = (process.candidate.role(), process.candidate.answers_until()) {
            if self.flaw != Flaw::KeepsItsLeaseAsLeader {
                process.member.leads(until, clock);
            }
            let me = Seat { id: process.id, addresses: vec![format!("{}:7000", process.id)] };
            let began = if self.flaw == Flaw::ForgetsPredecessors { Moment::ZERO } else { clock };
            let new = || Leader::new(me, LeaderEpoch(epoch), self.limits.clone(), until, began);
            process.leader.get_or_insert_with(new).leads(until, clock);
        }
        if let Some(leader) = process.leader.as_mut().filter(|_| process.roster_call.is_none()) {
            match leader.next(clock) {
                Step::Wait(until) => wake = wake.min(process.time_of(until)),
                step => {
                    let number = self.operate(which, Op::Roster(step.clone()));
                    let call = Call { number, step, began: clock, deadline: now + PATIENCE };
                    self.processes[which].roster_call = Some(call);
                }
            }
        }
        let process = &mut self.processes[which];
        match process.member.next(clock) {
            Next::Wait(until) => wake = wake.min(process.time_of(until)),
            Next::Over => wake = now,
            Next::Ask(question) => {
                let question = self.as_said(question);
                self.asks(which, question, clock);
                wake = now;
            }
        }
        let process = &mut self.processes[which];
        let deadlines = [
            process.election_call.as_ref().map(|call| call.deadline),
            process.roster_call.as_ref().map(|call| call.deadline),
        ];
        process.wake = deadlines.into_iter().flatten().fold(wake, Us::min);
    }

    /// The database has not answered for too long.
    fn gives_up(&mut self, which: usize) {
        let (now, process) = (self.now, &mut self.processes[which]);
        let clock = process.clock(now);
        if let Some(call) = process.election_call.take_if(|call| call.deadline <= now)
            && let braid_election::Step::Write { record, .. } = call.step
        {
            process.candidate.wrote(record, braid_election::Written::Unknown, call.began, clock);
        }
        if let Some(call) = process.roster_call.take_if(|call| call.deadline <= now)
            && let (Step::Write { .. }, Some(leader)) = (call.step, &mut process.leader)
        {
            self.seen.unknown += 1;
            let is_believed = self.flaw == Flaw::BelievesEveryWrite;
            leader.wrote(if is_believed { Written::Done } else { Written::Unknown }, clock);
        }
    }

    fn as_said(&self, question: Question) -> Question {
        match (self.flaw, &self.roster) {
            (Flaw::SaysWhatItDoesNotKnow, Some(roster)) if question.knows.is_some() => {
                Question { knows: Some(roster.epoch), ..question }
            }
            _ => question,
        }
    }

    /// Who leads asks itself; all others ask everybody.
    fn asks(&mut self, which: usize, question: Question, clock: Moment) {
        let process = &mut self.processes[which];
        if let Some(leader) = &mut process.leader {
            let reply = leader.asks(question, clock);
            let reply = self.as_told(reply);
            self.processes[which].member.hears(reply, clock, clock);
            return;
        }
        for to in self.alive() {
            if to != which {
                let question = question.clone();
                self.send(which, to, Parcel::Ask { from: which, question, asked: clock });
            }
        }
    }

    pub fn answers(&self, which: usize) -> bool {
        let process = &self.processes[which];
        process.paused <= self.now && process.clock(self.now) < process.member.answers_until()
    }

    fn check(&mut self) -> Result<(), String> {
        let now = self.now;
        let mut answered = SlotSet::none();
        for which in self.alive() {
            let answers = self.answers(which);
            let process = &mut self.processes[which];
            if process.paused > now || process.cut > now || process.apart > now {
                process.stays = SlotSet::none();
            }
            if !answers || process.member.held().is_empty() {
                continue;
            }
            let held = process.member.held();
            let twice = answered.both(held);
            if !twice.is_empty() {
                return Err(format!("at {now} µs {} slots of {} are another's as well", twice.len(), process.id));
            }
            let Some(share) = self.shares.get(&process.id) else {
                return Err(format!("at {now} µs {} answers and is not in the row", process.id));
            };
            answered = answered.or(held);
            process.stays = process.stays.or(&held.both(share));
        }
        Ok(())
    }

    /// As it is now, for so long.
    fn passes(&mut self, time: Us) {
        for which in self.alive() {
            let (answers, process) = (self.answers(which), &self.processes[which]);
            let held = if answers { process.member.held().clone() } else { SlotSet::none() };
            self.seen.answers += if held.is_empty() { 0 } else { time };
            self.seen.gaps += process.stays.without(&held).len() as u64 * time;
        }
    }

    /// Everybody who is there is a member, all know the row, and each slot is answered for.
    pub fn is_well(&self) -> Result<(), String> {
        let Some(row) = &self.roster else { return Err("there is no row".into()) };
        let alive = self.alive();
        let mut answered = SlotSet::none();
        for which in &alive {
            let process = &self.processes[*which];
            if process.member.roster() != Some(row) {
                return Err(format!("{} knows another row", process.id));
            }
            if self.answers(*which) {
                answered = answered.or(process.member.held());
            }
        }
        match (row.members.len() == alive.len(), answered == SlotSet::all()) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("{} are in the row, {} are there", row.members.len(), alive.len())),
            (_, false) => Err(format!("{} slots are answered for", answered.len())),
        }
    }

    /// How long it takes until all is well.
    pub fn until_well(&mut self, at_most: Us) -> Result<Us, String> {
        let began = self.now;
        while let Err(why) = self.is_well() {
            if self.now >= began + at_most {
                return Err(why);
            }
            self.run(false, SECOND / 100)?;
        }
        Ok(self.now - began)
    }
}
