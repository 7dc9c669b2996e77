//! Several processes over one row, from a seed: clocks that drift, processes that stand still, a database that is slow and loses answers.
//! Never do two answer at once, and when all is well again one does soon.

use braid_election::{Candidate, DRIFT, Limits, Record, Role, Step, Written};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;

/// True time.
type Us = u64;

#[derive(Clone, Copy, PartialEq)]
enum Weather {
    Calm,
    /// One answer in twenty takes up to 6 s, some are lost, and processes stand still or are killed.
    Stormy,
    /// Each answer takes seconds.
    Slow,
}

#[derive(Clone, Copy)]
enum Under {
    Nothing,
    /// The answer is back then; if it is lost, that is noticed then.
    Call {
        id: u64,
        step: Step,
        began: Duration,
        back: Us,
        is_lost: bool,
    },
    Sleep {
        until: Us,
    },
    Dead,
}

/// On its way to the database, whatever has become of who sent it.
struct Pending {
    at: Us,
    id: u64,
    step: Step,
}

#[derive(Clone, Copy)]
enum Answer {
    Found(Option<Record>),
    Wrote(Written),
}

struct Process {
    machine: Candidate,
    /// Its clock's speed in millionths.
    speed: u64,
    offset: Us,
    /// It stands still until then.
    paused: Us,
    under: Under,
}

impl Process {
    fn clock(&self, now: Us) -> Duration {
        Duration::from_micros((u128::from(now + self.offset) * u128::from(self.speed) / 1_000_000) as u64)
    }

    /// When its clock shows this.
    fn time_of(&self, moment: Duration) -> Us {
        let shown = moment.as_micros().min(u128::from(u64::MAX / 2_000_000)) * 1_000_000;
        (shown.div_ceil(u128::from(self.speed)) as u64).saturating_sub(self.offset)
    }
}

const STEP: Us = 1_000;
const STORMY: Us = 120_000_000;
const CALM: Us = 90_000_000;
/// There and back.
const SLOWEST: Us = 7_000_000;

struct World {
    random: SmallRng,
    row: Option<Record>,
    processes: Vec<Process>,
    pending: Vec<Pending>,
    answered: BTreeMap<u64, Answer>,
    calls: u64,
    limits: Limits,
    now: Us,
    leaders: u64,
    answers: u64,
}

impl World {
    fn new(seed: u64, limits: Limits) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let count = random.random_range(2..=4);
        let mut world = World {
            random,
            row: None,
            processes: Vec::new(),
            pending: Vec::new(),
            answered: BTreeMap::new(),
            calls: 0,
            limits,
            now: 0,
            leaders: 0,
            answers: 0,
        };
        for _ in 0..count {
            world.start();
        }
        world
    }

    fn start(&mut self) {
        // Two of them differ by no more than a part in DRIFT.
        let span = 1_000_000 / u64::from(DRIFT) / 2;
        let speed = self.random.random_range(1_000_000 - span + 2000..=1_000_000 + span - 2000);
        let machine = Candidate::new(self.random.random(), self.limits.clone());
        let offset = self.random.random_range(0..10_000_000_000);
        self.processes.push(Process { machine, speed, offset, paused: 0, under: Under::Nothing });
    }

    fn latency(&mut self, weather: Weather) -> Us {
        match weather {
            Weather::Slow => self.random.random_range(1_000_000..SLOWEST / 2),
            Weather::Stormy if self.random.random_bool(0.05) => self.random.random_range(100_000..6_000_000),
            _ => self.random.random_range(300..30_000),
        }
    }

    fn run(&mut self, weather: Weather, time: Us) -> Result<(), String> {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            if weather == Weather::Stormy && self.random.random_bool(0.0005) {
                let which = self.random.random_range(0..self.processes.len());
                match self.random.random_bool(0.3) {
                    true => self.kill(which),
                    false => self.processes[which].paused = self.now + self.random.random_range(100_000..15_000_000),
                }
            }
            self.deliver();
            for which in 0..self.processes.len() {
                self.go_on(which, weather);
            }
            let answering: Vec<usize> = (0..self.processes.len())
                .filter(|which| {
                    let process = &self.processes[*which];
                    process.paused <= self.now && process.machine.may_answer(process.clock(self.now))
                })
                .collect();
            self.answers += answering.len() as u64;
            if answering.len() > 1 {
                return Err(format!("at {} µs processes {answering:?} answer", self.now));
            }
        }
        Ok(())
    }

    /// Kills who answers. For how long nobody does then, in a database that is well.
    fn silence_after_a_kill(&mut self) -> Us {
        let may_answer = |process: &Process, now| process.machine.may_answer(process.clock(now));
        // If nobody does yet, somebody will.
        let leads = (0..300).find_map(|_| {
            self.is_calm_for_a_moment();
            self.processes.iter().position(|process| process.paused <= self.now && may_answer(process, self.now))
        });
        self.kill(leads.expect("nobody leads though all is well"));
        let killed_at = self.now;
        while !self.processes.iter().any(|process| process.paused <= self.now && may_answer(process, self.now)) {
            assert!(self.now - killed_at < 120_000_000, "nobody leads");
            self.is_calm_for_a_moment();
        }
        self.now - killed_at
    }

    fn is_calm_for_a_moment(&mut self) {
        self.run(Weather::Calm, 100_000).expect("two answer at once though all is well");
    }

    /// What it has sent may still arrive: it is left under way, and nobody hears the answer.
    fn kill(&mut self, which: usize) {
        self.processes[which].paused = Us::MAX;
        self.processes[which].machine = Candidate::new(0, self.limits.clone());
        self.start();
    }

    /// The database carries out what has arrived, one after the other.
    fn deliver(&mut self) {
        let now = self.now;
        let mut arrived: Vec<Pending> = self.pending.extract_if(.., |pending| pending.at <= now).collect();
        arrived.sort_by_key(|pending| (pending.at, pending.id));
        for Pending { id, step, .. } in arrived {
            let answer = match step {
                Step::Read => Answer::Found(self.row),
                Step::Write { expects, record } if expects == self.row => {
                    self.leaders += u64::from(self.row.is_none_or(|row| row.epoch != record.epoch));
                    self.row = Some(record);
                    Answer::Wrote(Written::Done)
                }
                Step::Write { .. } => Answer::Wrote(Written::Not(self.row)),
                Step::Wait(_) => continue,
            };
            self.answered.insert(id, answer);
        }
    }

    fn go_on(&mut self, which: usize, weather: Weather) {
        if self.processes[which].paused > self.now {
            return;
        }
        let (is_lost, to, fro) =
            (weather == Weather::Stormy && self.random.random_bool(0.02), self.latency(weather), self.latency(weather));
        let never_arrives = is_lost && self.random.random_bool(0.5);
        let process = &mut self.processes[which];
        let clock = process.clock(self.now);
        match process.under {
            Under::Dead => return,
            Under::Sleep { until } if until > self.now => return,
            Under::Call { back, .. } if back > self.now => return,
            Under::Call { id, step, began, is_lost, .. } => {
                let answer = self.answered.remove(&id).filter(|_| !is_lost);
                match (step, answer) {
                    (Step::Read, Some(Answer::Found(found))) => process.machine.read(found, clock),
                    (Step::Write { record, .. }, Some(Answer::Wrote(written))) => {
                        process.machine.wrote(record, written, began, clock);
                    }
                    (Step::Write { record, .. }, _) => process.machine.wrote(record, Written::Unknown, began, clock),
                    _ => {}
                }
            }
            Under::Nothing | Under::Sleep { .. } => {}
        }
        let patience = process.machine.patience().as_micros() as Us;
        let step = process.machine.next(clock);
        if let Step::Write { record, .. } = step {
            // Whoever reads it takes the lead after that.
            assert!(!process.machine.may_answer(clock + record.lease()), "it believes to lead for longer than it says");
        }
        process.under = match step {
            _ if process.machine.role() == Role::Over => Under::Dead,
            Step::Wait(until) => Under::Sleep { until: process.time_of(until) },
            step => {
                self.calls += 1;
                let id = self.calls;
                if !never_arrives {
                    self.pending.push(Pending { at: self.now + to, id, step });
                }
                // Nobody waits longer than this.
                // What is lost is noticed when nobody waits any more, or fails at once, whatever becomes of it.
                let (is_late, is_known) = (to + fro > patience, is_lost && self.random.random_bool(0.5));
                let (is_lost, took) = (is_lost || is_late, if is_known { 1_000 } else { patience });
                let back = self.now + if is_lost { took } else { to + fro };
                Under::Call { id, step, began: clock, back, is_lost }
            }
        };
        // A process whose leadership is over is started again.
        if matches!(process.under, Under::Dead) {
            self.start();
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn in_no_seed_do_two_answer_at_once_and_one_does_when_all_is_well() {
    let (first, seeds) = (number("ELECTION_FIRST_SEED", 0), number("ELECTION_SEEDS", 40));
    let (mut leaders, mut answers) = (0, 0);
    for seed in first..first + seeds {
        let mut world = World::new(seed, Limits::default());
        let ran = world.run(Weather::Stormy, STORMY).and_then(|()| world.run(Weather::Calm, CALM));
        assert_eq!(ran, Ok(()), "seed {seed}");
        let before = (world.answers, world.leaders);
        world.run(Weather::Calm, 10_000_000).unwrap();
        assert!(world.answers - before.0 >= 9_990, "seed {seed}: nobody answers though all is well");
        assert_eq!(world.leaders, before.1, "seed {seed}: the leader changes though all is well");
        (leaders, answers) = (leaders + world.leaders, answers + world.answers);
    }
    assert!(leaders > 4 * seeds && answers > 100_000 * seeds, "{leaders} leaders, {answers} moments with one");
}

/// Housekeeping stands still for no longer than this, whatever the database was like before: it had been slow for minutes, and is well.
#[test]
fn who_leads_is_succeeded_within_seconds_also_after_a_storm() {
    let limits = Limits::default();
    // A lease, a twentieth by a clock that is slower by a twentieth, a round of looks, and the answers.
    let bound =
        |lease: Duration| (lease * 23 / 20 + limits.round(lease) + Duration::from_millis(300)).as_micros() as Us;
    let mut longest = [0, 0];
    for seed in 0..number("ELECTION_SEEDS", 40) {
        let worlds = || {
            let mut world = World::new(seed, limits.clone());
            world.run(Weather::Stormy, 30_000_000).unwrap();
            world.run(Weather::Slow, STORMY).unwrap();
            world
        };
        let (mut soon, mut later) = (worlds(), worlds());
        later.run(Weather::Calm, 30_000_000).unwrap();
        let took = [soon.silence_after_a_kill(), later.silence_after_a_kill()];
        // What was asked while it was slow is answered late.
        let bounds = [bound(limits.lease_max) + SLOWEST, bound(limits.lease_min)];
        assert!(took[0] <= bounds[0] && took[1] <= bounds[1], "seed {seed}: {took:?} µs of {bounds:?}");
        longest = [0, 1].map(|at| took[at].max(longest[at]));
    }
    // It had become longer, or there was nothing to come down from.
    assert!(longest[0] > 2 * bound(limits.lease_min) && longest[1] > 4_000_000, "{longest:?} µs");
}

/// One that counts from when it had asked, or allows for no drift, is a mistake that this finds.
#[test]
fn a_leader_that_is_believed_for_too_short_is_found() {
    // Those that are there from the beginning have clocks that are slower by a fifth.
    let found = (0..200).any(|seed| {
        let mut world = World::new(seed, Limits::default());
        world.processes.iter_mut().for_each(|process| process.speed = process.speed * 8 / 10);
        world.run(Weather::Stormy, STORMY).is_err()
    });
    assert!(found, "clocks that differ by more than is allowed for do no harm: the search finds nothing");
}
