//! Rounds, each with a file of its own: one client makes it, and the second writes it by a handle that caches nothing, so that its chunk moves to the
//! server beside it. As soon as that has begun all three read and write it beside each other: where the word that hands the chunk over does
//! not arrive, they wait for regions of it at the owner before, and go along when it is said again (docs/design/0018-region-locks.md, *A move*). The
//! answers of each file must have one order, through crashes of data servers, and everybody must be through in the end. (In which order who goes along is
//! let in is what `chain/tests/it/locks.rs` looks at.)
//!
//! A chunk that was written beside others stays where it is, so each file gets there once; and only clients on three hosts do: of two, one
//! made the file.

use super::bytes::{ByteOp, Places, opened_as};
use super::durable::leave;
use super::{Task, Work};
use crate::cluster::Process;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{FileSystem, HandleId, Result};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const CLIENTS: [Machine; 3] = [Machine::Client1, Machine::Client2, Machine::Client3];
const PLACES: [u64; 3] = [0, 8000, 500_000];
const TASKS: u64 = 2;
/// Of each task in a round.
const CALLS_MAX: u64 = 6;
const PAUSE_MS_MAX: u64 = 4;
/// The write that has the chunk moved, its fsync and the recall of its lease take about so long.
const LATE_MS_MAX: u64 = 30;
const POLL: Duration = Duration::from_millis(2);

pub struct Queued(Mutex<Round>);

struct Round {
    number: u64,
    places: Arc<Places>,
    made: bool,
    through: BTreeSet<Machine>,
    /// It was calm when the last one was over.
    over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Make,
    WriteFirst,
    Join,
}

impl Round {
    fn new(number: u64) -> Round {
        // What one file has is never right in another.
        let places = Arc::new(Places::new(&PLACES, number << 20));
        Round { number, places, made: false, through: BTreeSet::new(), over: false }
    }

    /// What there is to do for it now.
    fn part(&self, machine: Machine) -> Option<Part> {
        let at = CLIENTS.iter().position(|client| *client == machine)?;
        let part = [Part::Make, Part::WriteFirst, Part::Join][(at + self.number as usize) % CLIENTS.len()];
        let can = !self.through.contains(&machine) && (self.made || part == Part::Make);
        can.then_some(part)
    }
}

impl Queued {
    pub fn new() -> Arc<Self> {
        Arc::new(Queued(Mutex::new(Round::new(0))))
    }

    fn through(&self, process: &Process) {
        let mut round = self.0.lock();
        round.through.insert(process.machine);
        if round.through.len() == CLIENTS.len() {
            match process.cluster.is_calm() {
                true => round.over = true,
                false => *round = Round::new(round.number + 1),
            }
        }
    }

    async fn play(&self, process: &Process, fs: &Arc<Mount>, random: &mut Stream) -> Result<()> {
        loop {
            let (name, places, part) = {
                let round = self.0.lock();
                if round.over {
                    return Ok(());
                }
                (format!("queued-{}", round.number), round.places.clone(), round.part(process.machine))
            };
            let Some(part) = part else {
                process.env.sleep(POLL).await;
                continue;
            };
            if part == Part::Make {
                make(process, fs, &name).await?;
                self.0.lock().made = true;
            }
            if part != Part::WriteFirst {
                process.env.sleep(Duration::from_millis(random.random_range(0..LATE_MS_MAX))).await;
            }
            let handle = opened_as(process, fs, &name, true).await;
            if part == Part::WriteFirst {
                places.once(process, fs, handle, 0, places.draw_write()).await;
            }
            beside_each_other(process, fs, handle, &name, &places).await;
            fs.flush(handle).await?;
            fs.release(handle).await;
            self.through(process);
        }
    }
}

/// A file with a chunk that is owned beside who makes it.
async fn make(process: &Process, fs: &Mount, name: &str) -> Result<()> {
    let handle = opened_as(process, fs, name, false).await;
    fs.write(handle, 0, vec![0; 600_000].into()).await?;
    fs.fsync(handle, false).await?;
    fs.flush(handle).await?;
    fs.release(handle).await;
    Ok(())
}

async fn beside_each_other(process: &Process, fs: &Arc<Mount>, handle: HandleId, name: &str, places: &Arc<Places>) {
    let task = |number: u64| {
        let (process, fs, places) = (process.clone(), fs.clone(), places.clone());
        let mut random = process.stream(&format!("{name} {number}"));
        async move {
            for _ in 0..random.random_range(1..=CALLS_MAX) {
                process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
                let (place, op) = (random.random_range(0..places.len()), places.draw(&mut random));
                places.once(&process, &fs, handle, place, op).await;
            }
            for place in 0..places.len() {
                places.once(&process, &fs, handle, place, ByteOp::Read).await;
            }
        }
    };
    let spawned = (0..TASKS).map(|number| tokio::task::spawn_local(process.spawner.guard("queued", task(number))));
    for task in spawned.collect::<Vec<_>>() {
        let _ = task.await;
    }
}

impl Work for Queued {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let (fs, mut random) = (mount(&process).await, process.stream("queued"));
            let played = self.play(&process, &fs, &mut random).await;
            leave(&process, &fs, played).await;
        })
    }

    fn waits_for(&self) -> String {
        let round = self.0.lock();
        format!("round {}, made: {}, through: {:?}", round.number, round.made, round.through)
    }
}
