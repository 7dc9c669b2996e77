//! The outside world of a simulated machine, behind `braid_env::Env`.
//!
//! Promises: time, randomness, network and disk come from the seed and from nothing else; a machine's clock is wrong by
//! a constant and drifts by up to 1 %; timers of one process of three are late now and then; a restarted process draws other numbers than the one before; disks outlive
//! processes. Blocking work runs in place. Unix sockets are refused: machines are apart.

mod clock;
pub mod entropy;
mod handing;
mod links;
mod pause;
mod random;
mod spawn;
mod transport;
mod trap;
mod word;

pub use clock::Skew;
pub use handing::Handing;
pub use links::Links;
pub use pause::PauseGate;
pub use spawn::SimSpawn;
pub use trap::Trap;
pub use word::Word;

use crate::failures::Failures;
use crate::history::History;
use crate::seed::stream;
use braid_env::Env;
use braid_env::simdisk::SimDisk;
use clock::{Lateness, SimClock};
use random::SimRandom;
use std::sync::Arc;
use transport::SimTransport;

/// What the machines of a world share.
#[derive(Clone)]
pub struct Surroundings {
    pub seed: u64,
    pub history: Arc<History>,
    pub failures: Arc<Failures>,
    pub links: Arc<Links>,
    pub handing: Arc<Handing>,
    pub trap: Arc<Trap>,
}

/// What a machine keeps over the lives of its process.
#[derive(Clone)]
pub struct Hardware {
    pub name: &'static str,
    pub skew: Skew,
    pub disk: SimDisk,
    pub pause: Arc<PauseGate>,
}

/// The outside world of the process that is started on `hardware` for the `life`th time. The spawner is given too,
/// for the process's first task.
pub fn process_env(around: &Surroundings, hardware: &Hardware, life: u64) -> (Env, Arc<SimSpawn>) {
    let spawner = Arc::new(SimSpawn::new(hardware.name, hardware.pause.clone(), around.failures.clone()));
    let lateness = Lateness::draw(stream(around.seed, &format!("timers of {}", hardware.name), life));
    let env = Env {
        clock: Arc::new(SimClock::new(hardware.skew, lateness)),
        random: Arc::new(SimRandom::new(around.seed, hardware.name, life)),
        disk: Arc::new(hardware.disk.clone()),
        transport: Arc::new(SimTransport::new(hardware, around)),
        spawner: spawner.clone(),
    };
    (env, spawner)
}
