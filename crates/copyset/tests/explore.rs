//! Small systems of one or two metadata servers and two to four data servers, taken through random schedules: messages are
//! late, lost and repeated, processes are killed, machines lose their power, the metadata's disk is lost, a recovery runs
//! while the old server lives and comes back. Planted mistakes must be found.
#![allow(clippy::unwrap_used)]

use braid_copyset::{Candidate, Copy, Keeper, Leader, Limits, OwnDisk, Report, Source, Verdict};
use braid_types::{CopySet, MetaPosition, MetaTerm, ServerId, Voter};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A recovery does not wait out the lease.
    NoWait,
    /// A data server grants leases to whoever asks.
    OldLease,
    /// A group counts when it is on the metadata's disk.
    AckEarly,
    /// A server that was left behind starts from its disk.
    NoFence,
    /// A copy that lost its power counts at once.
    LostIsCurrent,
    /// A recovery takes whatever copy answers first.
    AnyCopy,
}

#[derive(Clone, Debug)]
enum Say {
    Ask(MetaTerm),
    Keep(CopySet),
    Append(MetaTerm, MetaPosition, Vec<MetaPosition>, u64),
    /// A base whole: everything in one message.
    Base(MetaTerm, MetaPosition, Vec<MetaPosition>, u64),
    Sync(MetaTerm, u64),
}

struct Mail {
    from: usize,
    life: u64,
    to: ServerId,
    asked: Duration,
    body: Result<Say, (Report, bool)>,
}

/// A data server: its machine, and what of its rows it has, for the check.
struct Data {
    keeper: Keeper,
    rows: Vec<MetaPosition>,
    up: bool,
}

enum Phase {
    Off,
    Asks(Candidate),
    /// A recovery that waits out the lease.
    Waits(MetaTerm, CopySet, Source, Duration),
    /// It has the rows, and records a set of its own.
    Records(CopySet, BTreeSet<ServerId>, Vec<MetaPosition>, Vec<ServerId>),
    Leads(Box<Leader>),
}

/// A metadata server's machine.
struct Meta {
    phase: Phase,
    life: u64,
    /// Its disk, if there is one: the newest set and all groups.
    disk: Option<(CopySet, Vec<MetaPosition>)>,
    /// Executed and not on the disk yet.
    next: Option<MetaPosition>,
    /// Nobody hears it before.
    cut: Duration,
}

struct World {
    rng: StdRng,
    bug: Option<Bug>,
    now: Duration,
    data: BTreeMap<ServerId, Data>,
    metas: Vec<Meta>,
    mail: Vec<Mail>,
    acknowledged: Vec<MetaPosition>,
    /// Milliseconds between two steps, at most: in some worlds much is done within a lease.
    pace: u64,
    has_power_cuts: bool,
    has_lost_power: bool,
    /// A data server that is to keep no copy, then to have no vote, and then is never there again.
    leaver: Option<ServerId>,
    is_out: bool,
    counts: BTreeMap<&'static str, u64>,
}

const LIMITS: fn() -> Limits = Limits::default;

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let servers = rng.random_range(2..=4);
        let new = |id| (ServerId(id), Data { keeper: Keeper::default(), rows: Vec::new(), up: true });
        let disk = Some((CopySet::default(), Vec::new()));
        let metas = vec![
            Meta { phase: Phase::Off, life: 0, disk, next: None, cut: Duration::ZERO },
            Meta { phase: Phase::Off, life: 0, disk: None, next: None, cut: Duration::ZERO },
        ];
        let has_power_cuts = rng.random_bool(0.5);
        World {
            bug,
            now: Duration::from_secs(100),
            data: (1..=servers).map(new).collect(),
            metas,
            mail: Vec::new(),
            acknowledged: Vec::new(),
            pace: [4, 8, 30][rng.random_range(0..3)],
            has_power_cuts,
            has_lost_power: false,
            leaver: (bug.is_none() && seed.is_multiple_of(3) && servers > 2).then_some(ServerId(servers)),
            is_out: false,
            counts: BTreeMap::new(),
            rng,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn voter(id: ServerId) -> Voter {
        Voter { id, host: format!("h{id}"), addresses: Vec::new() }
    }

    fn send(&mut self, from: usize, to: ServerId, say: Say) {
        let (life, asked) = (self.metas[from].life, self.now);
        self.mail.push(Mail { from, life, to, asked, body: Ok(say) });
    }

    /// One step; an error is a broken promise.
    fn step(&mut self) -> Result<(), String> {
        self.now += Duration::from_millis(self.rng.random_range(0..self.pace));
        match self.rng.random_range(0..2000) {
            0..1100 => self.deliver()?,
            1100..1990 => {
                let n = self.rng.random_range(0..2);
                self.work(n)?;
            }
            1990..1992 => {
                let n = self.rng.random_range(0..2);
                self.kill_meta(n);
            }
            1992..1994 => self.lose_disk_or_recover(),
            1994..1998 => self.kill_data(),
            _ => self.now += Duration::from_millis(self.rng.random_range(0..1500)),
        }
        self.check()
    }

    fn kill_meta(&mut self, n: usize) {
        self.metas[n].life += 1;
        self.metas[n].phase = Phase::Off;
        if let (Some(next), Some((_, rows))) = (self.metas[n].next.take(), &mut self.metas[n].disk)
            && self.rng.random_bool(0.5)
        {
            rows.push(next);
        }
        self.count("metadata server killed");
    }

    fn lose_disk_or_recover(&mut self) {
        let Some(n) = (0..2).find(|n| self.metas[*n].disk.is_some()) else { return };
        if !matches!(self.metas[n].phase, Phase::Leads(_)) {
            return;
        }
        if self.has_power_cuts && self.rng.random_bool(0.5) {
            // The worst moment: one has just lost its power and is back, another one is away.
            let Phase::Leads(leader) = &self.metas[n].phase else { return };
            let members = leader.counting().members.clone();
            for (id, again) in members.into_iter().zip([true, false]) {
                if !self.data[&id].up {
                    continue;
                }
                self.toggle(id, again);
                if again {
                    self.toggle(id, again);
                }
            }
        }
        // Half of the time the old one lives on, or comes back.
        if self.rng.random_bool(0.5) {
            self.kill_meta(n);
            self.metas[n].disk = None;
            self.count("metadata disk lost");
        } else {
            self.metas[n].cut = self.now + Duration::from_millis(self.rng.random_range(0..10_000));
        }
        self.begin_recovery(1 - n);
    }

    fn begin_recovery(&mut self, other: usize) {
        self.metas[other] = Meta {
            phase: Phase::Asks(Candidate::recover(self.rng.random(), false)),
            life: self.metas[other].life + 1,
            disk: None,
            next: None,
            cut: Duration::ZERO,
        };
        self.count("recovery begun");
    }

    fn kill_data(&mut self) {
        let id = ServerId(self.rng.random_range(1..=self.data.len() as u64));
        let power = self.has_power_cuts && self.rng.random_bool(0.5);
        if self.data[&id].up && self.rng.random_bool(0.6) || (self.is_out && self.leaver == Some(id)) {
            return;
        }
        self.toggle(id, power);
    }

    /// Stops a data server, or starts it again.
    fn toggle(&mut self, id: ServerId, power: bool) {
        let lies = self.bug == Some(Bug::LostIsCurrent);
        let Some(data) = self.data.get_mut(&id) else { return };
        if data.up {
            data.up = false;
            // Its process is gone at once, and its power with what was not synced.
            if let Some(copy) = data.keeper.report().copy
                && power
            {
                self.has_lost_power = true;
                data.rows.retain(|at| at.number <= copy.synced);
            }
            return;
        }
        data.up = true;
        let (promised, set) = (data.keeper.promised(), data.keeper.set().cloned());
        let copy = data.keeper.copy().map(|copy| {
            let (base, upto) = (copy.base, copy.upto.unwrap_or_default());
            Copy::found(base, upto, data.rows.iter().copied().filter(|at| at.number > base.number))
        });
        data.keeper = Keeper::restarted(promised, set, copy);
        if lies && let Some(last) = data.keeper.last() {
            let _ = data.keeper.append(promised, last, &[], 0);
        }
        self.count("data server restarted");
    }

    fn deliver(&mut self) -> Result<(), String> {
        if self.mail.is_empty() {
            return Ok(());
        }
        // Mostly in order; some are very late.
        let young = if self.rng.random_bool(0.9) { 6 } else { usize::MAX };
        let at = self.rng.random_range(self.mail.len().saturating_sub(young)..self.mail.len());
        let Mail { from, life, to, asked, body } = self.mail.swap_remove(at);
        if self.rng.random_bool(0.05) || self.now < self.metas[from].cut {
            return Ok(());
        }
        match body {
            Ok(say) => {
                let repeated = self.rng.random_bool(0.1).then(|| say.clone());
                if let Some(say) = repeated {
                    self.mail.push(Mail { from, life, to, asked, body: Ok(say) });
                }
                if let Some(answer) = self.data_hears(to, say) {
                    self.mail.push(Mail { from, life, to, asked, body: Err(answer) });
                }
            }
            Err(_) if self.metas[from].life != life => {}
            Err((report, appended)) => self.meta_hears(from, to, asked, report, appended),
        }
        Ok(())
    }

    fn data_hears(&mut self, id: ServerId, say: Say) -> Option<(Report, bool)> {
        let bug = self.bug;
        let data = self.data.get_mut(&id).filter(|data| data.up)?;
        let k = &mut data.keeper;
        let mut appended = false;
        match say {
            Say::Ask(term) => drop(k.promise(term)),
            Say::Keep(set) => {
                if bug == Some(Bug::OldLease) && set.term < k.promised() {
                    return Some((Report { promised: set.term, ..k.report() }, false));
                }
                let _ = k.record(&set);
            }
            Say::Append(term, prev, groups, durable) => {
                appended = term >= k.promised();
                if let Ok(room) = k.append(term, prev, &groups, durable) {
                    if let Some(number) = room.drop_after {
                        data.rows.retain(|at| at.number <= number);
                    }
                    data.rows.extend(&groups[room.skip..]);
                }
            }
            Say::Base(term, from, rows, durable) => {
                if k.begin_base(term, from) == Ok(true) && k.page(term, from, 0) == Ok(true) {
                    k.paged(Some(from.number), durable);
                    k.replace(durable);
                    // As a real one it is made stable before it takes the place of the old one.
                    k.synced(from);
                    data.rows = rows;
                }
            }
            Say::Sync(term, number) => {
                if term == k.promised()
                    && let Some(last) = k.last().filter(|last| last.number >= number)
                {
                    k.synced(last);
                }
            }
        }
        Some((k.report(), appended))
    }

    fn meta_hears(&mut self, n: usize, id: ServerId, asked: Duration, report: Report, appended: bool) {
        let now = self.now;
        match &mut self.metas[n].phase {
            Phase::Off | Phase::Waits(..) => {}
            Phase::Asks(candidate) => candidate.answered(id, report),
            Phase::Records(set, recorded, ..) => {
                if set.voter(id).is_some() && report.set.is_some_and(|told| told.order() == set.order()) {
                    recorded.insert(id);
                }
            }
            Phase::Leads(leader) => leader.answered(id, asked, now, &report, appended),
        }
    }

    fn work(&mut self, n: usize) -> Result<(), String> {
        let servers: Vec<ServerId> = self.data.keys().copied().collect();
        let to = servers[self.rng.random_range(0..servers.len())];
        let now = self.now;
        let mut phase = std::mem::replace(&mut self.metas[n].phase, Phase::Off);
        match &mut phase {
            Phase::Off => {
                if let Some((set, rows)) = &self.metas[n].disk
                    && self.rng.random_bool(0.05)
                {
                    let own = OwnDisk { set: set.clone(), at: rows.last().copied().unwrap_or_default() };
                    phase = Phase::Asks(Candidate::start(own, self.rng.random()));
                }
            }
            Phase::Asks(candidate) => {
                let verdict = match (candidate.verdict(), &self.metas[n].disk) {
                    (Verdict::Fenced { .. }, Some((set, rows))) if self.bug == Some(Bug::NoFence) => {
                        let (term, at) = (candidate.term(), rows.last().copied().unwrap_or_default());
                        Verdict::Lead { term, set: set.clone(), at }
                    }
                    (Verdict::Unsure { best: Some(from), .. }, _) if self.bug == Some(Bug::AnyCopy) => {
                        Verdict::Take { term: candidate.term(), set: candidate.set(), from }
                    }
                    (verdict, _) => verdict,
                };
                match verdict {
                    Verdict::Wait { .. } | Verdict::Unsure { .. } => {
                        let say = Say::Ask(candidate.term());
                        self.send(n, to, say);
                    }
                    Verdict::Nothing => phase = Phase::Off,
                    Verdict::Fenced { .. } => {
                        self.count("old metadata server fenced");
                        self.metas[n].disk = None;
                        phase = Phase::Off;
                    }
                    Verdict::Lead { term, set, at } => {
                        let (host, limits) = ("m".to_owned(), LIMITS());
                        let mut leader = Leader::new(term, set, at, 2, host, limits, now);
                        servers.iter().for_each(|id| leader.learn(World::voter(*id)));
                        if let Some((own, _)) = &mut self.metas[n].disk {
                            *own = leader.set().clone();
                        }
                        phase = Phase::Leads(Box::new(leader));
                    }
                    Verdict::Take { term, set, from } => {
                        let wait = if self.bug == Some(Bug::NoWait) { Duration::ZERO } else { LIMITS().waited_out() };
                        phase = Phase::Waits(term, set, from, now + wait);
                    }
                }
            }
            Phase::Waits(term, set, from, until) if now >= *until => {
                let rows = self.data[&from.server].rows.clone();
                if rows.last().copied().unwrap_or_default() != from.at {
                    // It has been replaced or has lost its power meanwhile: ask again.
                    phase = Phase::Asks(Candidate::recover(self.rng.random(), false));
                } else {
                    let members = vec![from.server];
                    let next = CopySet { term: *term, number: 1, members, voters: set.voters.clone() };
                    self.count("rows recovered");
                    phase = Phase::Records(next, BTreeSet::new(), rows, set.members.clone());
                }
            }
            Phase::Waits(..) => {}
            Phase::Records(set, recorded, rows, members) => {
                if recorded.len() >= braid_copyset::quorum(set.voters.len(), false) {
                    self.check_rows(rows, members)?;
                    self.metas[n].disk = Some((set.clone(), std::mem::take(rows)));
                    phase = Phase::Off;
                    self.count("recovered");
                } else {
                    let set = set.clone();
                    self.send(n, to, Say::Keep(set));
                }
            }
            Phase::Leads(leader) if leader.fenced().is_some() => {
                self.kill_meta(n);
                phase = Phase::Off;
            }
            Phase::Leads(leader) => self.lead(n, to, leader),
        }
        // A recovery that was cut short is begun again by somebody else.
        self.metas[n].phase = phase;
        Ok(())
    }

    fn lead(&mut self, n: usize, to: ServerId, leader: &mut Leader) {
        let now = self.now;
        if let Some(id) = self.leaver.filter(|_| now > Duration::from_secs(104)) {
            let is_member = leader.counting().members.contains(&id) || leader.set().members.contains(&id);
            let gone = BTreeSet::from([id]).into_iter().filter(|_| !is_member && leader.is_settled()).collect();
            leader.leaves(BTreeSet::from([id]), gone);
            let votes = leader.counting().voter(id).is_some() || leader.set().voter(id).is_some();
            if !votes && leader.is_settled() && !self.is_out {
                // Its disk is taken out.
                self.data.entry(id).and_modify(|data| data.up = false);
                self.is_out = true;
                self.count("data server taken out");
            }
        }
        leader.tick(now);
        if let Some((own, _)) = &mut self.metas[n].disk {
            *own = leader.set().clone();
        }
        let term = leader.term();
        match self.rng.random_range(0..5) {
            0 if self.metas[n].next.is_none() && leader.is_settled() => {
                let number = leader.last().number.max(last(&self.metas[n])) + 1;
                self.metas[n].next = Some(leader.push(number));
            }
            1 => {
                if let (Some(next), Some((_, rows))) = (self.metas[n].next.take(), &mut self.metas[n].disk) {
                    if self.rng.random_bool(0.1) {
                        leader.retract(next.number);
                    } else {
                        rows.push(next);
                    }
                }
            }
            2 => {
                let set = leader.set().clone();
                self.send(n, to, Say::Keep(set));
            }
            3 if leader.needs_base(to) && self.metas[n].next.is_none() => {
                let rows = self.metas[n].disk.as_ref().map(|(_, rows)| rows.clone()).unwrap_or_default();
                self.send(n, to, Say::Base(term, rows.last().copied().unwrap_or_default(), rows, leader.durable()));
            }
            3 => {
                if let Some(append) = leader.append(to, 3) {
                    self.send(n, to, Say::Append(term, append.prev, append.groups, append.durable));
                }
            }
            _ if self.rng.random_bool(0.1) => self.send(n, to, Say::Sync(term, 0)),
            _ => {}
        }
        let progress = leader.progress();
        let counts = if self.bug == Some(Bug::AckEarly) { u64::MAX } else { progress.received };
        if progress.lease > now
            && let Some((_, rows)) = &self.metas[n].disk
        {
            let known = self.acknowledged.last().map_or(0, |at| at.number);
            let new: Vec<_> = rows.iter().filter(|at| at.number > known && at.number <= counts).copied().collect();
            if !new.is_empty() {
                self.acknowledged.extend(new);
                self.count("group acknowledged");
            }
        }
    }

    /// A recovery may lack only what no member of the set has any more.
    fn check_rows(&mut self, rows: &[MetaPosition], members: &[ServerId]) -> Result<(), String> {
        let lost: Vec<_> = self.acknowledged.iter().filter(|at| !rows.contains(at)).copied().collect();
        for at in &lost {
            let held = members.iter().any(|id| self.data[id].rows.contains(at));
            if held || !self.has_lost_power {
                return Err(format!("{at} was acknowledged, a copy has it ({held}), and the recovery does not"));
            }
        }
        // What is lost with all that had it is excused; the numbers may be given again.
        self.acknowledged.retain(|at| !lost.contains(at));
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let now = self.now;
        let mut answering = Vec::new();
        for n in 0..2 {
            if let Phase::Leads(leader) = &mut self.metas[n].phase
                && leader.progress().lease > now
            {
                answering.push(n);
            }
        }
        if answering.len() > 1 {
            return Err("two metadata servers may answer".to_owned());
        }
        for n in answering {
            let rows = self.metas[n].disk.as_ref().map(|(_, rows)| rows.as_slice()).unwrap_or_default();
            if let Some(at) = self.acknowledged.iter().find(|at| !rows.contains(at)) {
                return Err(format!("a metadata server answers without {at}, which was acknowledged"));
            }
            self.count("may answer");
        }
        Ok(())
    }
}

fn last(meta: &Meta) -> u64 {
    meta.disk.as_ref().and_then(|(_, rows)| rows.last()).map_or(0, |at| at.number)
}

const STEPS: usize = 10_000;

fn run(seed: u64, bug: Option<Bug>) -> (Result<(), String>, BTreeMap<&'static str, u64>) {
    let mut world = World::new(seed, bug);
    for step in 0..STEPS {
        if let Err(broken) = world.step() {
            return (Err(format!("seed {seed}, step {step}: {broken}")), world.counts);
        }
    }
    (Ok(()), world.counts)
}

#[test]
fn no_acknowledged_group_is_lost_and_never_two_answer() {
    let mut counts = BTreeMap::<&str, u64>::new();
    for seed in 0..300 {
        let (done, reached) = run(seed, None);
        done.unwrap();
        reached.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    println!("{counts:#?}");
    for what in [
        "may answer",
        "group acknowledged",
        "metadata server killed",
        "metadata disk lost",
        "recovery begun",
        "rows recovered",
        "recovered",
        "data server taken out",
        "old metadata server fenced",
        "data server restarted",
    ] {
        assert!(counts.get(what).is_some_and(|count| *count > 30), "{what} was not reached often enough: {counts:?}");
    }
}

#[test]
fn planted_mistakes_are_found() {
    for bug in [Bug::NoWait, Bug::OldLease, Bug::AckEarly, Bug::NoFence, Bug::LostIsCurrent, Bug::AnyCopy] {
        let found = (0..3000).find(|seed| run(*seed, Some(bug)).0.is_err());
        println!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
