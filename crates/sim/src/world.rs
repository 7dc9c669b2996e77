//! One run: a cluster from a seed, a storm of faults, the calm after it, and the checks.

use crate::bug::Bug;
use crate::check::{chains, rows};
use crate::cluster::Cluster;
use crate::coverage::Counts;
use crate::env::{Surroundings, entropy};
use crate::failures::{Failure, Invariant};
use crate::host;
use crate::inject::{Injector, LATENCY_MAX, LATENCY_MIN};
use crate::scenario::Scenario;
use crate::work::Work;
use braid_meta_engine::Table;
use braid_types::{ChunkId, InodeId};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, SystemTime};
use turmoil::Sim;

/// The step of the network: what happens within it on one machine is not seen by the others.
const TICK: Duration = Duration::from_millis(1);
/// The cluster forms undisturbed.
const FIRST_FAULT: Duration = Duration::from_millis(500);
/// After the last fault everything must have ended within this time. Longer than many deadlines: each
/// chunk that is lost for ever costs one.
const CALM_MAX: Duration = Duration::from_secs(900);
/// And after the last client has left, housekeeping within this.
const HOUSE_MAX: Duration = Duration::from_secs(30);
/// And chains have all their members, with equal copies, within this: a member that did not answer is not taken back for
/// four seconds, and copying is throttled.
const WHOLE_MAX: Duration = Duration::from_secs(40);
/// Everybody has left, and what is still to be drained or evened out is, within this.
const OPERATOR_MAX: Duration = Duration::from_secs(180);
const WHOLE_LOOK: Duration = Duration::from_millis(250);
/// Of real time, for a run that takes a second or two: the only clock here that is not simulated.
const HANG: Duration = Duration::from_secs(120);
/// Between two looks at the rows.
const LOOK: Duration = Duration::from_millis(50);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    pub scenario: &'static str,
    pub bug: Option<Bug>,
    pub failures: Vec<Failure>,
    pub coverage: Counts,
    /// Of the history.
    pub hash: u64,
    pub events: u64,
    pub simulated: Duration,
}

/// Runs `scenario` with `seed`; prints the history if asked to.
pub fn run(seed: u64, scenario: &Scenario, print: bool) -> Outcome {
    let (name, bug, scenario) = (scenario.name, scenario.settings.bug, scenario.clone());
    let (send, outcome) = mpsc::channel();
    // On a thread of its own, whose hash tables nobody used before.
    let running = std::thread::spawn(move || {
        entropy::simulate(seed);
        // Blocking work runs in place here, also that of a read.
        braid_env::may_wait_during(usize::MAX, || {
            let mut world = World::new(seed, &scenario, print);
            world.storm_and_calm();
            // Whoever asked has gone only if it is a hang that ended after all.
            let _ = send.send(world.outcome());
        });
    });
    match outcome.recv_timeout(HANG) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Outcome::hang(seed, name, bug),
        Err(RecvTimeoutError::Disconnected) => match running.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Outcome::hang(seed, name, bug),
        },
    }
}

impl Outcome {
    /// What shows this run again, with its history. In the profile of this build: a debug assertion that failed here would
    /// not be there in the other.
    pub fn command(&self) -> String {
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let bug = self.bug.map_or(String::new(), |bug| format!(" --bug {}", bug.text()));
        let (scenario, seed) = (self.scenario, self.seed);
        format!("cargo run -p braid-sim{release} -- --scenario {scenario}{bug} --seed {seed} --trace")
    }

    /// The simulator cannot interrupt code that never awaits.
    fn hang(seed: u64, scenario: &'static str, bug: Option<Bug>) -> Outcome {
        let text = format!("stands still for {HANG:?} of real time: an endless loop, or a lock taken twice");
        let failure = Failure { invariant: Invariant::NothingPanics, text };
        let (coverage, simulated) = (Counts::default(), Duration::ZERO);
        Outcome { seed, scenario, bug, failures: vec![failure], coverage, hash: 0, events: 0, simulated }
    }
}

struct World {
    sim: Sim<'static>,
    cluster: Arc<Cluster>,
    scenario: Scenario,
    work: Arc<dyn Work>,
    injector: Injector,
    next_look: Duration,
}

impl World {
    fn new(seed: u64, scenario: &Scenario, print: bool) -> Self {
        let (history, failures, links, handing, trap) = Default::default();
        let around = Surroundings { seed, history, failures, links, handing, trap };
        around.history.print(print);
        let cluster = Cluster::new(around, scenario.settings.clone());
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .epoch(SystemTime::UNIX_EPOCH)
            .simulation_duration(Duration::from_secs(3600))
            .tick_duration(TICK)
            .min_message_latency(LATENCY_MIN)
            .max_message_latency(LATENCY_MAX)
            // Segments, of any size: turmoil has no window of bytes, and stalls or panics where this is too small.
            .tcp_capacity(4096)
            .enable_random_order()
            .build();
        let work = scenario.work(seed);
        for machine in cluster.settings.machines() {
            let (cluster, work) = (cluster.clone(), work.clone());
            sim.host(machine.name(), move || {
                let process = cluster.boot(machine);
                let spawner = process.spawner.clone();
                let running = spawner.guard("process", host::run(process, work.clone()));
                async move {
                    running.await;
                    Ok(())
                }
            });
        }
        let injector = Injector::new(cluster.clone(), work.clone(), scenario, FIRST_FAULT);
        World { sim, cluster, scenario: scenario.clone(), work, injector, next_look: LOOK }
    }

    fn fail(&self, invariant: Invariant, text: impl std::fmt::Display) {
        self.cluster.around.failures.add(invariant, text);
    }

    fn failed(&self) -> bool {
        self.cluster.around.failures.any()
    }

    /// One step of everything. False when there is no sense in another.
    fn step(&mut self) -> bool {
        let now = self.sim.elapsed();
        self.cluster.around.history.tick(now);
        self.injector.step(&mut self.sim, now);
        if let Err(error) = self.sim.step() {
            self.fail(Invariant::NothingPanics, error);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look();
        }
        !self.failed()
    }

    /// Steps until `done`, at most to `end`. False if that did not happen.
    fn step_until(&mut self, end: Duration, done: impl Fn(&World) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            if self.sim.elapsed() >= end || !self.step() {
                return false;
            }
        }
    }

    fn storm_and_calm(&mut self) {
        let stormy = self.scenario.stormy;
        self.step_until(FIRST_FAULT, |_| false);
        self.cluster.plant();
        self.step_until(stormy, |_| false);
        self.cluster.note("world", format_args!("the storm is over"));
        self.cluster.calm_down();
        self.injector.repair_all(&mut self.sim);
        if !self.step_until(stormy + CALM_MAX, |world| world.all_have_left()) {
            if !self.failed() {
                self.fail(
                    Invariant::ItComesBack,
                    format_args!(
                        "after {CALM_MAX:?} of calm: clients that have left: {:?}; {}",
                        self.cluster.left.lock(),
                        self.work.waits_for()
                    ),
                );
            }
            return;
        }
        self.cluster.note("world", format_args!("all clients have left"));
        let end = self.sim.elapsed() + HOUSE_MAX;
        if !self.step_until(end, |world| world.is_tidy()) {
            if !self.failed() {
                let left = rows::unfinished(&self.cluster);
                self.fail(Invariant::ItComesBack, format_args!("not cleared up after {HOUSE_MAX:?}: {left:?}"));
            }
            return;
        }
        let end = self.sim.elapsed() + OPERATOR_MAX;
        if !self.step_until(end, |world| world.cluster.operator.is_done()) {
            if !self.failed() {
                let waits_for = self.cluster.operator.waits_for();
                self.fail(
                    Invariant::ItComesBack,
                    format_args!("after {OPERATOR_MAX:?}: the operator waits: {waits_for}"),
                );
            }
            return;
        }
        if !self.becomes_whole() {
            return;
        }
        if self.cluster.settings.has_copies() {
            self.injector.rot();
            if !self.becomes_whole() {
                return;
            }
        }
        for text in chains::differences(&self.cluster) {
            self.fail(Invariant::CopiesAreEqual, text);
        }
        self.work.check(&self.cluster);
        for (invariant, text) in rows::check(&self.cluster, self.scenario.lossy) {
            self.fail(invariant, text);
        }
    }

    /// Every chain has all its members with whole copies, in time.
    fn becomes_whole(&mut self) -> bool {
        let end = self.sim.elapsed() + WHOLE_MAX;
        // Looked at now and then: it reads every copy.
        while self.sim.elapsed() < end && !self.failed() {
            if self.all_run() && chains::unwhole(&self.cluster).is_empty() {
                return true;
            }
            let next = self.sim.elapsed() + WHOLE_LOOK;
            self.step_until(next, |_| false);
        }
        if !self.failed() {
            let left = chains::unwhole(&self.cluster);
            self.fail(Invariant::CopiesAreWhole, format_args!("not whole after {WHOLE_MAX:?}: {left:?}"));
        }
        false
    }

    fn all_run(&self) -> bool {
        self.cluster.servers().len() == self.cluster.settings.data().len()
    }

    /// All machines run, and housekeeping has nothing left to do.
    fn is_tidy(&self) -> bool {
        self.all_run() && rows::unfinished(&self.cluster).is_empty()
    }

    fn all_have_left(&self) -> bool {
        self.cluster.left.lock().len() == self.cluster.settings.clients()
    }

    /// Counts what only rows show.
    fn look(&self) {
        let orphans = self.cluster.meta_store.durable_rows(Table::Orphans);
        let freed = self.cluster.witness.orphans_now(orphans.iter().map(|(key, _)| InodeId(key.partition())).collect());
        self.cluster.coverage.add("orphan freed", freed);
        self.cluster.look_at_clients();
        self.cluster.look_at_wounds();
        if self.cluster.settings.operator || self.cluster.settings.has_copies() {
            self.cluster.moves.look(&self.cluster, self.sim.elapsed());
        }
    }

    fn outcome(self) -> Outcome {
        let chunks: Vec<ChunkId> = rows::chunk_ids(&self.cluster);
        self.cluster.coverage.add("spare adopted from a lost client", self.cluster.witness.adopted(chunks));
        for (_, server) in self.cluster.servers() {
            let name = "braid_data_mended_blocks_total ";
            let text = server.metrics_text();
            let mended = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            self.cluster.coverage.add("bad block mended from another copy", mended.unwrap_or(0));
        }
        let (hash, events) = self.cluster.around.history.hash();
        Outcome {
            seed: self.cluster.around.seed,
            scenario: self.scenario.name,
            bug: self.cluster.settings.bug,
            failures: self.cluster.around.failures.take(),
            coverage: self.cluster.coverage.counts(),
            hash,
            events,
            simulated: self.sim.elapsed(),
        }
    }
}
