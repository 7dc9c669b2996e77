//! Makes faults happen and repairs them.

use crate::check::rows;
use crate::cluster::Cluster;
use crate::env::Word;
use crate::fault::{Kind, Weights, pick};
use crate::machine::{Machine, Role};
use crate::scenario::Scenario;
use crate::seed::{Stream, stream};
use crate::work::Work;
use rand::RngExt;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use turmoil::Sim;

/// A link that is not well, always in the order of machines.
type Pair = (Machine, Machine);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    Held,
    Cut,
    Slow,
}

/// What is broken now, and until when.
pub struct Injector {
    cluster: Arc<Cluster>,
    work: Arc<dyn Work>,
    random: Stream,
    weights: Weights,
    /// On average between two faults.
    every: Duration,
    next: Duration,
    off: BTreeMap<Machine, Duration>,
    paused: BTreeMap<Machine, Duration>,
    links: BTreeMap<Pair, (Ill, Duration)>,
    /// The second of two, when it comes and until when it lasts.
    second: Option<(Duration, Machine, Kind, Duration)>,
    /// What becomes of the machine whose trap springs next.
    trapped: Kind,
    clients_may_die: bool,
    /// Words for which a trap has waited.
    turn: usize,
}

/// Messages that a machine still sends before it stops: of a move each side sends about so many while it lasts.
const MESSAGES_OF_A_MOVE: u64 = 12;
const MESSAGES: u64 = 60;

/// Where clients write, so that there is something to rot.
const ROT_AT: [u64; 5] = [0, 1000, 5000, 70_000, 100_000];
const ROT_BLOCKS: usize = 6;

/// What a link is like when nothing is wrong: 1 to 6 ms.
pub const LATENCY_MIN: Duration = Duration::from_millis(1);
pub const LATENCY_MAX: Duration = Duration::from_millis(6);

impl Injector {
    pub fn new(cluster: Arc<Cluster>, work: Arc<dyn Work>, scenario: &Scenario, first: Duration) -> Self {
        let Scenario { faults: weights, fault_every: every, lossy: clients_may_die, .. } = *scenario;
        let random = stream(cluster.around.seed, "faults", 0);
        Injector {
            cluster,
            work,
            random,
            weights,
            every,
            next: first,
            off: BTreeMap::new(),
            paused: BTreeMap::new(),
            links: BTreeMap::new(),
            second: None,
            trapped: Kind::PauseAtMessage,
            clients_may_die,
            turn: 0,
        }
    }

    /// Repairs what is due and, unless it is calm, breaks something new if it is time for that.
    pub fn step(&mut self, sim: &mut Sim<'static>, now: Duration) {
        self.repair(sim, |until| until <= now);
        self.spring(sim, now);
        if !self.cluster.is_calm() && now >= self.next {
            let mean = self.every.as_millis() as u64;
            self.next = now + Duration::from_millis(self.random.random_range(1..=2 * mean));
            if let Some(kind) = pick(self.weights, &mut self.random) {
                let until = now + kind.lasts(&mut self.random);
                if self.inject(sim, kind, now, until) {
                    self.cluster.coverage.count(kind.text());
                }
            }
        }
        if let Some((_, machine, kind, until)) = self.second.take_if(|(at, ..)| *at <= now)
            && !self.cluster.is_calm()
        {
            self.one(sim, machine, kind, until);
        }
    }

    pub fn repair_all(&mut self, sim: &mut Sim<'static>) {
        // One that has stopped in the last step goes on: it is calm.
        self.spring(sim, Duration::ZERO);
        self.cluster.around.trap.clear();
        self.repair(sim, |_| true);
    }

    /// A machine has stopped in the middle of a step.
    fn spring(&mut self, sim: &mut Sim<'static>, now: Duration) {
        let Some(sprung) = self.cluster.around.trap.take_sprung() else { return };
        let found = self.cluster.settings.machines().into_iter().find(|machine| machine.name() == sprung.machine);
        let Some(machine) = found else { return };
        let kind = self.trapped;
        // What a client's programs were told and it has not saved goes with it: where that must not be lost it stands still.
        let kind = if machine.role() == Role::Client && !self.clients_may_die { Kind::PauseAtMessage } else { kind };
        let until = now + kind.lasts(&mut self.random);
        let is_done = !self.cluster.is_calm()
            && match kind {
                Kind::PauseAtMessage => self.pause(machine, until),
                _ => self.stop(sim, &[machine], kind == Kind::PowerAtMessage, until),
            };
        match is_done {
            true => {
                self.cluster.coverage.count(kind.text());
                sprung.at.into_iter().for_each(|at| self.cluster.coverage.count(at));
            }
            // It is to stay, or was the last thing before the calm.
            false => self.cluster.hardware(machine).pause.resume(),
        }
    }

    fn set_trap(&mut self, kind: Kind) {
        self.trapped = kind;
        let after = self.random.random_bool(0.5);
        let trap = &self.cluster.around.trap;
        if let Some(word) = self.cluster.settings.stops_at {
            return trap.set_at_word(word, after);
        }
        // It waits until it springs: most of the time for something rare. In turn, and from seed to seed, so that none is left to luck.
        let turn = (self.cluster.around.seed as usize).wrapping_mul(5).wrapping_add(self.turn);
        if trap.set_at_rare_word(Word::ALL[turn / 2 % Word::ALL.len()], turn.is_multiple_of(2)) {
            self.turn += 1;
        }
        match self.random.random_range(0..10) {
            0..4 => {
                let taker = self.random.random_bool(0.5);
                trap.set_at_move(taker, self.random.random_range(0..MESSAGES_OF_A_MOVE), after);
            }
            // Of a move, which are few beside all others.
            4..7 => {
                let words = if self.cluster.settings.beside { Word::OF_A_MOVE } else { Word::OF_A_TAKEOVER };
                trap.set_at_word(words[self.random.random_range(0..words.len())], after);
            }
            _ => {
                let messages = self.random.random_range(0..MESSAGES);
                let machine = self.an_owner().unwrap_or_else(|| self.any_of(Role::Data));
                self.cluster.around.trap.set_at_message(machine.name(), messages, after);
            }
        }
    }

    /// Turns bits over in blocks of files, on one data server's disk: when every copy is whole again, because a block that is
    /// bad on one disk and not known to be right on another is two faults.
    pub fn rot(&mut self) {
        let chunks = rows::chunk_ids(&self.cluster);
        let machine = self.any_of(Role::Data);
        for _ in 0..ROT_BLOCKS.min(chunks.len()) {
            let chunk = chunks[self.random.random_range(0..chunks.len())];
            let path = format!("/data/chunks/{:02x}/{:016x}.data", chunk.0 & 0xff, chunk.0);
            let offset = ROT_AT[self.random.random_range(0..ROT_AT.len())] + self.random.random_range(0..500);
            // Not every server has every chunk.
            if self.cluster.hardware(machine).disk.corrupt(Path::new(&path), offset, 0x40).is_ok() {
                self.cluster.note(machine.name(), format_args!("{path} rots at {offset}"));
                self.cluster.coverage.count("block rotted");
            }
        }
        self.cluster.hardware(machine).disk.drop_caches();
    }

    fn any_of(&mut self, role: Role) -> Machine {
        let all = self.cluster.settings.machines().into_iter();
        let of: Vec<Machine> = all.filter(|machine| machine.role() == role).collect();
        of[self.random.random_range(0..of.len())]
    }

    fn a_meta(&mut self) -> Machine {
        if self.cluster.settings.several { self.any_of(Role::Meta) } else { Machine::Meta }
    }

    /// Two machines that speak with each other.
    fn any_pair(&mut self) -> Pair {
        loop {
            let all = self.cluster.settings.machines();
            let a = all[self.random.random_range(0..all.len())];
            let b = all[self.random.random_range(0..all.len())];
            let among = match a.role() {
                Role::Data => self.cluster.settings.has_copies(),
                Role::Meta => self.cluster.settings.several,
                Role::Client => false,
            };
            let speak = a.role() != b.role() || among;
            if a < b && speak {
                return (a, b);
            }
        }
    }

    /// One that owns a chunk, if any does.
    fn an_owner(&mut self) -> Option<Machine> {
        let owners = self.cluster.owners();
        (!owners.is_empty()).then(|| owners[self.random.random_range(0..owners.len())])
    }

    /// A fault of one data server.
    fn one(&mut self, sim: &mut Sim<'static>, machine: Machine, kind: Kind, until: Duration) -> bool {
        match kind {
            Kind::PauseData | Kind::PauseOwner => self.pause(machine, until),
            Kind::PowerData | Kind::PowerOwner => self.stop(sim, &[machine], true, until),
            _ => self.stop(sim, &[machine], false, until),
        }
    }

    fn inject(&mut self, sim: &mut Sim<'static>, kind: Kind, now: Duration, until: Duration) -> bool {
        match kind {
            Kind::KillMeta | Kind::PowerMeta => {
                let machine = self.a_meta();
                self.stop(sim, &[machine], kind == Kind::PowerMeta, until)
            }
            Kind::KillData | Kind::PowerData | Kind::PauseData => {
                let machine = self.any_of(Role::Data);
                self.one(sim, machine, kind, until)
            }
            Kind::KillOwner | Kind::PowerOwner | Kind::PauseOwner => {
                self.an_owner().is_some_and(|machine| self.one(sim, machine, kind, until))
            }
            // Counted when it springs.
            Kind::KillAtMessage | Kind::PowerAtMessage | Kind::PauseAtMessage => {
                self.set_trap(kind);
                false
            }
            Kind::TwoData => {
                let (first, second) = (self.any_of(Role::Data), self.any_of(Role::Data));
                let what = [Kind::KillData, Kind::PowerData, Kind::PauseData];
                let kinds = [0, 1].map(|_| what[self.random.random_range(0..what.len())]);
                if first == second || self.second.is_some() || !self.one(sim, first, kinds[0], until) {
                    return false;
                }
                let at = now + Duration::from_millis(self.random.random_range(100..4000));
                let lasts = kind.lasts(&mut self.random);
                self.second = Some((at, second, kinds[1], at + lasts));
                true
            }
            Kind::KillClient | Kind::PowerClient => {
                let machine = self.any_of(Role::Client);
                self.stop(sim, &[machine], kind == Kind::PowerClient, until)
            }
            Kind::PowerAllData => self.stop(sim, &self.cluster.settings.data(), true, until),
            Kind::PowerEverything => self.stop(sim, &self.cluster.settings.machines(), true, until),
            Kind::PauseMeta => {
                let machine = self.a_meta();
                self.pause(machine, until)
            }
            Kind::PauseClient | Kind::FreezeClient => {
                let machine = self.any_of(Role::Client);
                self.pause(machine, until)
            }
            Kind::Hold => self.spoil(sim, Ill::Held, until),
            Kind::Cut => self.spoil(sim, Ill::Cut, until),
            Kind::Slow => self.spoil(sim, Ill::Slow, until),
            Kind::Break => {
                let (a, b) = self.any_pair();
                self.cluster.note("network", format_args!("resets {} - {}", a.name(), b.name()));
                self.cluster.around.links.break_all(a.name(), b.name());
                true
            }
        }
    }

    /// Ends the processes of those that run. False if none does.
    fn stop(&mut self, sim: &mut Sim<'static>, machines: &[Machine], power: bool, until: Duration) -> bool {
        let mut any = false;
        for &machine in machines {
            let is_spared = self.cluster.settings.one_at_a_time
                && machine.role() == Role::Data
                && self.cluster.heals_another(machine);
            if self.off.contains_key(&machine) || is_spared {
                continue;
            }
            any = true;
            self.paused.remove(&machine);
            self.cluster.hardware(machine).pause.resume();
            let how = if power { "loses its power" } else { "is killed" };
            self.cluster.note(machine.name(), format_args!("{how}"));
            if machine.role() == Role::Data {
                let running = self.cluster.servers().into_iter().find(|(other, _)| *other == machine);
                if self.cluster.settings.has_copies()
                    && self.cluster.forgets(machine, running.map(|(_, server)| server.id()))
                {
                    self.cluster.note(machine.name(), format_args!("is the second: what nobody synced may be gone"));
                    self.cluster.coverage.count("second data server stopped before the first was made up for");
                    self.work.may_be_forgotten();
                }
                self.cluster.data_server_stopped();
            }
            self.cluster.server_lost(machine);
            if power {
                self.power_off(sim, machine);
            } else {
                sim.crash(machine.name());
                self.cluster.hardware(machine).disk.kill_process();
                if machine == Machine::Meta && !self.cluster.settings.several {
                    self.crash_metadata();
                }
            }
            self.off.insert(machine, until);
        }
        any
    }

    fn power_off(&mut self, sim: &mut Sim<'static>, machine: Machine) {
        // Without a network the dying process tells nobody, as a machine without power does not.
        let all = self.cluster.settings.machines().into_iter();
        let others: Vec<Machine> = all.filter(|other| *other != machine).collect();
        others.iter().for_each(|other| sim.partition(machine.name(), other.name()));
        sim.crash(machine.name());
        for other in others {
            sim.repair(machine.name(), other.name());
            match self.links.get(&pair(machine, other)) {
                Some((Ill::Held, _)) => sim.hold(machine.name(), other.name()),
                Some((Ill::Cut, _)) => sim.partition(machine.name(), other.name()),
                _ => {}
            }
        }
        let seed = self.random.random_range(0..u64::MAX);
        self.cluster.hardware(machine).disk.crash(seed);
        if machine == Machine::Meta && !self.cluster.settings.several {
            self.crash_metadata();
        }
    }

    /// What is ordered and not durable lies in the memory of the process: it goes with a kill as with the power. Of what is
    /// being committed in that moment nobody knows.
    fn crash_metadata(&mut self) {
        let (store, random) = (&self.cluster.meta_store, &mut self.random);
        let early_before = store.early_lost();
        let lost = store.crash(|| random.random_bool(0.5));
        let early = store.early_lost() - early_before;
        self.cluster.coverage.add("early answers lost by a crash of the metadata server", early as u64);
        self.cluster.coverage.add("metadata transactions lost unanswered", (lost - early) as u64);
    }

    fn pause(&mut self, machine: Machine, until: Duration) -> bool {
        if self.off.contains_key(&machine) || self.paused.contains_key(&machine) {
            return false;
        }
        self.cluster.note(machine.name(), format_args!("is stopped"));
        self.cluster.hardware(machine).pause.pause();
        self.paused.insert(machine, until);
        true
    }

    fn spoil(&mut self, sim: &mut Sim<'static>, ill: Ill, until: Duration) -> bool {
        let (a, b) = self.any_pair();
        if self.links.contains_key(&(a, b)) {
            return false;
        }
        self.cluster.note("network", format_args!("{} - {}: {ill:?}", a.name(), b.name()));
        match ill {
            Ill::Held => sim.hold(a.name(), b.name()),
            Ill::Cut => sim.partition(a.name(), b.name()),
            Ill::Slow => {
                let ms = self.random.random_range(20..200);
                sim.set_link_max_message_latency(a.name(), b.name(), Duration::from_millis(ms));
            }
        }
        self.links.insert((a, b), (ill, until));
        true
    }

    fn repair(&mut self, sim: &mut Sim<'static>, due: impl Fn(Duration) -> bool) {
        let links: Vec<(Pair, Ill)> =
            self.links.iter().filter(|(_, (_, until))| due(*until)).map(|(pair, (ill, _))| (*pair, *ill)).collect();
        for ((a, b), ill) in links {
            self.cluster.note("network", format_args!("{} - {}: well again", a.name(), b.name()));
            self.links.remove(&(a, b));
            match ill {
                Ill::Held => sim.release(a.name(), b.name()),
                Ill::Cut => {
                    sim.repair(a.name(), b.name());
                    self.cluster.around.links.break_all(a.name(), b.name());
                }
                Ill::Slow => sim.set_link_max_message_latency(a.name(), b.name(), LATENCY_MAX),
            }
        }
        for machine in overdue(&mut self.paused, &due) {
            self.cluster.note(machine.name(), format_args!("goes on"));
            self.cluster.hardware(machine).pause.resume();
        }
        for machine in overdue(&mut self.off, &due) {
            sim.bounce(machine.name());
        }
    }
}

fn pair(a: Machine, b: Machine) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

fn overdue(table: &mut BTreeMap<Machine, Duration>, due: impl Fn(Duration) -> bool) -> Vec<Machine> {
    let found: Vec<Machine> = table.iter().filter(|(_, until)| due(**until)).map(|(machine, _)| *machine).collect();
    found.iter().for_each(|machine| {
        table.remove(machine);
    });
    found
}
