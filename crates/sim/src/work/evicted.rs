//! Two mounts keep one file open, and read and write the same few places of it, while each of them now and then stands still
//! until its session has ended. What a mount had buffered then is lost, it is told so at its next call, and nothing of it comes
//! later: the answers must have one order in which each session may be lost once, between its last call that was good and the first
//! that was told (docs/design/0011-what-a-lost-session-takes.md).

use super::bytes::{PLACE_BYTES, bytes_of, opened, value_of};
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::seed::Stream;
use braid_api::{Code, FileSystem, HandleId, Result};
use braid_model::linear::{Linear, Sequential};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// In the first bytes, over the border of two blocks, in the second chunk. None over that of two chunks: a session that ends may have
/// sent one half of a write.
const PLACES: [u64; 3] = [0, 8000, (1 << 20) + 300];
const TASKS: u64 = 2;
const PAUSE_MS_MAX: u64 = 150;

/// One life of a handle.
type Life = u64;

#[derive(Clone, Copy, Debug)]
enum Op {
    Write(Life, u64),
    Read(Life),
    Sync(Life),
    /// The session ends before everything is safe.
    Lose(Life),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Done,
    Value(u64),
    Told,
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The last is what is there. Those before may be there again when the session of `owner` is lost.
    values: Vec<u64>,
    owner: Life,
    lost: BTreeSet<Life>,
}

impl Place {
    fn last(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }

    /// Nothing of it can be lost with a session, but of this one.
    fn flushed(&mut self, but: Life) {
        if self.owner != but {
            (self.values, self.owner) = (vec![self.last()], but);
        }
    }
}

impl Sequential for Place {
    type Op = Op;
    type Answer = Answer;

    fn apply(&mut self, op: &Op) -> Answer {
        match *op {
            Op::Write(life, _) | Op::Read(life) | Op::Sync(life) if self.lost.contains(&life) => Answer::Told,
            Op::Write(life, value) => {
                self.flushed(life);
                self.values.push(value);
                Answer::Done
            }
            Op::Read(life) => {
                self.flushed(life);
                Answer::Value(self.last())
            }
            Op::Sync(life) => {
                if self.owner == life {
                    self.values = vec![self.last()];
                }
                Answer::Done
            }
            Op::Lose(life) => {
                self.lost.insert(life);
                Answer::Done
            }
        }
    }

    fn outcomes(&self, op: &Op) -> Vec<(Self, Answer)> {
        let mut after = self.clone();
        let answer = after.apply(op);
        match *op {
            // Some of what it wrote had been sent, and the rest was not.
            Op::Lose(life) if self.owner == life => {
                let left = |value: &u64| (Place { values: vec![*value], owner: 0, ..after.clone() }, answer.clone());
                self.values.iter().map(left).collect()
            }
            _ => vec![(after, answer)],
        }
    }
}

pub struct Evicted {
    places: Vec<Mutex<Linear<Place>>>,
    last: Mutex<u64>,
}

/// What the tasks of one life share.
struct Living {
    process: Process,
    fs: Arc<Mount>,
    handle: HandleId,
    life: Life,
    is_told: AtomicBool,
}

impl Evicted {
    pub fn new() -> Arc<Self> {
        let nothing = Place { values: vec![0], owner: 0, lost: BTreeSet::new() };
        let places = PLACES.iter().map(|_| Mutex::new(Linear::new(nothing.clone()))).collect();
        Arc::new(Evicted { places, last: Mutex::new(0) })
    }

    fn draw(&self) -> u64 {
        let mut last = self.last.lock();
        *last += 1;
        *last
    }

    async fn task(self: Arc<Self>, living: Arc<Living>, number: u64) {
        let Living { process, life, .. } = &*living;
        let mut random = process.stream(&format!("evicted {life} {number}"));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let place = random.random_range(0..PLACES.len());
            let op = self.op(*life, &mut random);
            self.once(&living, place, op).await;
            if living.is_told.load(Relaxed) {
                return;
            }
        }
        for place in 0..PLACES.len() {
            self.once(&living, place, Op::Read(*life)).await;
        }
    }

    /// A life in two hardly writes: what comes late to a chunk that was written since is refused whoever sent it.
    fn op(&self, life: Life, random: &mut Stream) -> Op {
        let writes = if life.is_multiple_of(2) { 50 } else { 2 };
        match random.random_range(0..100) {
            0..10 => Op::Sync(life),
            drawn if drawn < 10 + writes => Op::Write(life, self.draw()),
            _ => Op::Read(life),
        }
    }

    async fn once(&self, living: &Living, place: usize, op: Op) {
        let Living { process, fs, handle, is_told, .. } = living;
        process.note(format_args!("{op:?} at place {place}"));
        // What an fsync says, it says of all places.
        let concerned = if matches!(op, Op::Sync(_)) { 0..PLACES.len() } else { place..place + 1 };
        let ids: Vec<_> = concerned.map(|place| (place, self.places[place].lock().begin(op))).collect();
        let failures = &process.cluster.around.failures;
        let answer = match perform(fs, *handle, place, op).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mixture)) => {
                let text = format_args!("{op:?} at place {place}: {mixture}");
                return failures.add(Invariant::BytesAreLinearizable, text);
            }
            Err(error) if error.code == Code::WriteLost => {
                is_told.store(true, Relaxed);
                Answer::Told
            }
            Err(error) => {
                return failures.add(Invariant::OperationsSurviveFaults, format_args!("{op:?} at {place}: {error}"));
            }
        };
        process.note(format_args!("{op:?} at place {place}: {answer:?}"));
        for (place, id) in ids {
            if !self.places[place].lock().end(id, &answer) {
                let who = process.machine.name();
                let text = format_args!("nothing explains that {op:?} at place {place} on {who} gave {answer:?}");
                failures.add(Invariant::BytesAreLinearizable, text);
            }
        }
    }

    /// From an open to the close, or to a call that is told that bytes are lost. True if it was.
    async fn life(self: &Arc<Self>, process: &Process, fs: &Arc<Mount>) -> bool {
        let handle = opened(process, fs, false).await;
        let life = self.draw();
        let losing: Vec<_> = self.places.iter().map(|place| place.lock().begin(Op::Lose(life))).collect();
        let (process, fs, is_told) = (process.clone(), fs.clone(), AtomicBool::new(false));
        let living = Arc::new(Living { process: process.clone(), fs, handle, life, is_told });
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let task = self.clone().task(living.clone(), number);
                tokio::task::spawn_local(process.spawner.guard("evicted", task))
            })
            .collect();
        for task in tasks {
            let _ = task.await;
        }
        let closed = living.fs.flush(handle).await;
        living.fs.release(handle).await;
        let is_told = living.is_told.load(Relaxed) || closed.as_ref().is_err_and(|e| e.code == Code::WriteLost);
        if let (Err(error), false) = (closed, is_told) {
            process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, format_args!("close: {error}"));
        }
        for (place, id) in self.places.iter().zip(losing) {
            place.lock().perhaps(id);
        }
        if is_told {
            process.cluster.coverage.count("living client told that bytes went with its session");
        }
        is_told
    }
}

async fn perform(fs: &Mount, handle: HandleId, place: usize, op: Op) -> Result<std::result::Result<Answer, String>> {
    match op {
        Op::Write(_, value) => {
            fs.write(handle, PLACES[place], bytes_of(value).into()).await?;
            Ok(Ok(Answer::Done))
        }
        Op::Read(_) => {
            let bytes = fs.read(handle, PLACES[place], PLACE_BYTES as u32).await?.concat();
            Ok(value_of(&bytes).map(Answer::Value))
        }
        Op::Sync(_) | Op::Lose(_) => {
            fs.fsync(handle, false).await?;
            Ok(Ok(Answer::Done))
        }
    }
}

impl Work for Evicted {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let fs = mount(&process).await;
            while self.life(&process, &fs).await {}
            if let Err(error) = fs.shutdown().await {
                let text = format_args!("leaving: {error}");
                process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, text);
            }
        })
    }
}
