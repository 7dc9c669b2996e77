//! Two mounts keep one file open, and read and write the same few places of it without closing, opening or syncing in between:
//! the answers must have one order (design.md §4 *File lease*), through crashes of all servers and a network that fails.

use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::seed::Stream;
use braid_api::{Caller, FileSystem, HandleId, OpenFlags, Result};
use braid_model::linear::{Linear, Sequential};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

/// Where the places are: in the first bytes, over the border of two blocks, over that of two chunks.
const PLACES: [u64; 3] = [0, 8000, (1 << 20) - 300];
/// For handles that cache nothing: the last is over the border of two chunks, which their owners order, each for itself.
const DIRECT_PLACES: [u64; 4] = [0, 8000, 500_000, (1 << 20) - 300];
pub(super) const PLACE_BYTES: usize = 600;
const TASKS: u64 = 2;
/// Keeps the history short enough to be explained.
const PAUSE_MS_MAX: u64 = 60;
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub enum ByteOp {
    Write(u64),
    Read,
}

/// One place: what was last written there, 0 for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

impl Sequential for Place {
    type Op = ByteOp;
    type Answer = Option<u64>;

    fn apply(&mut self, op: &ByteOp) -> Option<u64> {
        match op {
            ByteOp::Write(value) => {
                self.0 = *value;
                None
            }
            ByteOp::Read => Some(self.0),
        }
    }
}

/// Places of one file, and the order that all answers must have.
pub(super) struct Places {
    offsets: &'static [u64],
    all: Vec<Mutex<Linear<Place>>>,
    last: Mutex<u64>,
}

impl Places {
    /// Values are above `last`.
    pub fn new(offsets: &'static [u64], last: u64) -> Places {
        let all = offsets.iter().map(|_| Mutex::new(Linear::new(Place::default()))).collect();
        Places { offsets, all, last: Mutex::new(last) }
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn draw_write(&self) -> ByteOp {
        let mut last = self.last.lock();
        *last += 1;
        ByteOp::Write(*last)
    }

    pub fn draw(&self, random: &mut Stream) -> ByteOp {
        if random.random_range(0..5) < 3 { ByteOp::Read } else { self.draw_write() }
    }

    pub async fn once(&self, process: &Process, fs: &Mount, handle: HandleId, place: usize, op: ByteOp) {
        process.note(format_args!("{op:?} at place {place}"));
        let id = self.all[place].lock().begin(op);
        let failures = &process.cluster.around.failures;
        let answer = match perform(fs, handle, self.offsets[place], op).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mixture)) => {
                return failures
                    .add(Invariant::BytesAreLinearizable, format_args!("{op:?} at place {place}: {mixture}"));
            }
            Err(error) => {
                return failures.add(Invariant::OperationsSurviveFaults, format_args!("{op:?} at {place}: {error}"));
            }
        };
        process.note(format_args!("{op:?} at place {place}: {answer:?}"));
        if !self.all[place].lock().end(id, &answer) {
            let who = process.machine.name();
            let text = format_args!("nothing explains that {op:?} at place {place} on {who} gave {answer:?}");
            failures.add(Invariant::BytesAreLinearizable, text);
        }
    }
}

pub struct Bytes {
    direct: bool,
    places: Places,
}

/// Tells one value from another at each of its bytes' positions.
pub(super) fn bytes_of(value: u64) -> Vec<u8> {
    filled(value, PLACE_BYTES)
}

pub(super) fn filled(value: u64, len: usize) -> Vec<u8> {
    value.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// Which value these are; an error says what they are instead.
pub(super) fn value_of(bytes: &[u8]) -> std::result::Result<u64, String> {
    match bytes.len() < PLACE_BYTES && bytes.iter().all(|byte| *byte == 0) {
        true => Ok(0),
        false => value_in(bytes, PLACE_BYTES),
    }
}

/// The same of as many as there must be.
pub(super) fn value_in(bytes: &[u8], len: usize) -> std::result::Result<u64, String> {
    let mut first = [0; 8];
    let some = bytes.len().min(8);
    first[..some].copy_from_slice(&bytes[..some]);
    let value = u64::from_le_bytes(first);
    match bytes == filled(value, len) {
        true => Ok(value),
        false => Err(format!("a mixture: {} bytes, beginning with value {value}", bytes.len())),
    }
}

impl Bytes {
    /// `direct`: by handles that cache nothing, under the lease `sync`.
    pub fn new(direct: bool) -> Arc<Self> {
        Arc::new(Bytes { direct, places: Places::new(if direct { &DIRECT_PLACES } else { &PLACES }, 0) })
    }

    /// A call over two chunks by a handle that caches is one for other mounts, not for the other task of its own.
    fn places_of(&self, number: u64) -> usize {
        if self.direct || number == 0 { self.places.len() } else { self.places.len() - 1 }
    }

    async fn task(self: Arc<Self>, process: Process, fs: Arc<Mount>, handle: HandleId, number: u64) {
        let mut random = process.stream(&format!("bytes {number}"));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let place = random.random_range(0..self.places_of(number));
            let op = self.places.draw(&mut random);
            self.places.once(&process, &fs, handle, place, op).await;
        }
        for place in 0..self.places_of(number) {
            self.places.once(&process, &fs, handle, place, ByteOp::Read).await;
        }
    }
}

type Answer = std::result::Result<Option<u64>, String>;

async fn perform(fs: &Mount, handle: HandleId, offset: u64, op: ByteOp) -> Result<Answer> {
    match op {
        ByteOp::Write(value) => {
            fs.write(handle, offset, bytes_of(value).into()).await?;
            Ok(Ok(None))
        }
        ByteOp::Read => {
            let bytes = fs.read(handle, offset, PLACE_BYTES as u32).await?.concat();
            Ok(value_of(&bytes).map(Some))
        }
    }
}

pub(super) async fn opened(process: &Process, fs: &Mount, direct: bool) -> HandleId {
    opened_as(process, fs, "bytes", direct).await
}

pub(super) async fn opened_as(process: &Process, fs: &Mount, name: &str, direct: bool) -> HandleId {
    let (cx, name) = (Caller::default(), Name::new(name.as_bytes()).expect("a short name"));
    let flags = OpenFlags { read: true, write: true, direct, ..OpenFlags::default() };
    loop {
        match fs.create(&cx, InodeId::ROOT, &name, Mode::new(0o644), flags).await {
            Ok((_, opened)) => return opened.handle,
            Err(error) => {
                process.note(format_args!("not opened yet: {error}"));
                process.env.sleep(RETRY).await;
            }
        }
    }
}

impl Work for Bytes {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let fs = mount(&process).await;
            let handle = opened(&process, &fs, self.direct).await;
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let task = self.clone().task(process.clone(), fs.clone(), handle, number);
                    tokio::task::spawn_local(process.spawner.guard("bytes", task))
                })
                .collect();
            for task in tasks {
                let _ = task.await;
            }
            if let Err(error) = fs.shutdown().await {
                let text = format_args!("leaving: {error}");
                process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, text);
            }
        })
    }
}
