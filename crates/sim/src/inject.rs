//! Makes faults happen and repairs them.

use crate::cluster::Cluster;
use crate::fault::{Kind, Weights, pick};
use crate::machine::{Machine, Role};
use crate::seed::{Stream, stream};
use rand::RngExt;
use std::collections::BTreeMap;
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
    random: Stream,
    weights: Weights,
    /// On average between two faults.
    every: Duration,
    next: Duration,
    off: BTreeMap<Machine, Duration>,
    paused: BTreeMap<Machine, Duration>,
    links: BTreeMap<Pair, (Ill, Duration)>,
}

/// What a link is like when nothing is wrong: 1 to 6 ms.
pub const LATENCY_MIN: Duration = Duration::from_millis(1);
pub const LATENCY_MAX: Duration = Duration::from_millis(6);

impl Injector {
    pub fn new(cluster: Arc<Cluster>, weights: Weights, every: Duration, first: Duration) -> Self {
        let random = stream(cluster.around.seed, "faults", 0);
        Injector {
            cluster,
            random,
            weights,
            every,
            next: first,
            off: BTreeMap::new(),
            paused: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    /// Repairs what is due and, unless it is calm, breaks something new if it is time for that.
    pub fn step(&mut self, sim: &mut Sim<'static>, now: Duration) {
        self.repair(sim, |until| until <= now);
        if !self.cluster.is_calm() && now >= self.next {
            let mean = self.every.as_millis() as u64;
            self.next = now + Duration::from_millis(self.random.random_range(1..=2 * mean));
            if let Some(kind) = pick(self.weights, &mut self.random) {
                let until = now + kind.lasts(&mut self.random);
                if self.inject(sim, kind, until) {
                    self.cluster.coverage.count(kind.text());
                }
            }
        }
    }

    pub fn repair_all(&mut self, sim: &mut Sim<'static>) {
        self.repair(sim, |_| true);
    }

    fn any_of(&mut self, role: Role) -> Machine {
        let of: Vec<Machine> = Machine::ALL.into_iter().filter(|machine| machine.role() == role).collect();
        of[self.random.random_range(0..of.len())]
    }

    /// Two machines that speak with each other.
    fn any_pair(&mut self) -> Pair {
        loop {
            let a = Machine::ALL[self.random.random_range(0..Machine::ALL.len())];
            let b = Machine::ALL[self.random.random_range(0..Machine::ALL.len())];
            if a < b && a.role() != b.role() {
                return (a, b);
            }
        }
    }

    fn inject(&mut self, sim: &mut Sim<'static>, kind: Kind, until: Duration) -> bool {
        match kind {
            Kind::KillMeta => self.stop(sim, &[Machine::Meta], false, until),
            Kind::PowerMeta => self.stop(sim, &[Machine::Meta], true, until),
            Kind::KillData | Kind::PowerData => {
                let machine = self.any_of(Role::Data);
                self.stop(sim, &[machine], kind == Kind::PowerData, until)
            }
            Kind::KillClient | Kind::PowerClient => {
                let machine = self.any_of(Role::Client);
                self.stop(sim, &[machine], kind == Kind::PowerClient, until)
            }
            Kind::PowerAllData => self.stop(sim, &Machine::DATA, true, until),
            Kind::PowerEverything => self.stop(sim, &Machine::ALL, true, until),
            Kind::PauseMeta => self.pause(Machine::Meta, until),
            Kind::PauseData => {
                let machine = self.any_of(Role::Data);
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
            if self.off.contains_key(&machine) {
                continue;
            }
            any = true;
            if self.paused.remove(&machine).is_some() {
                self.cluster.hardware(machine).pause.resume();
            }
            let how = if power { "loses its power" } else { "is killed" };
            self.cluster.note(machine.name(), format_args!("{how}"));
            self.cluster.store_lost(machine);
            if machine.role() == Role::Data {
                self.cluster.data_server_stopped();
            }
            if power {
                self.power_off(sim, machine);
            } else {
                sim.crash(machine.name());
                self.cluster.hardware(machine).disk.kill_process();
                if machine == Machine::Meta {
                    self.crash_metadata();
                }
            }
            self.off.insert(machine, until);
        }
        any
    }

    fn power_off(&mut self, sim: &mut Sim<'static>, machine: Machine) {
        // Without a network the dying process tells nobody, as a machine without power does not.
        let others: Vec<Machine> = Machine::ALL.into_iter().filter(|other| *other != machine).collect();
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
        if machine == Machine::Meta {
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
