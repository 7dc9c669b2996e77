//! One client writes a file and closes it, then the other opens it and must see just that; then they change places
//! (close-to-open). Now and then the file is replaced by rename, or removed.
//!
//! In odd seeds the writer syncs before it closes, in even ones it only closes; what is read must be right whatever happened to
//! servers in between: before another mount may read or write the file, what this one wrote is stable.

use super::durable::leave;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Caller, FileSystem, OpenFlags, RenameMode, Result};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(5);
const LENGTHS: [usize; 5] = [0, 700, 4096, 30_000, (1 << 20) + 20_000];
const READ_MAX: u32 = 4 << 20;

/// `None`: the name leads to nothing.
type Content = Option<Vec<u8>>;

pub struct Handover {
    synced: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Even: the first client writes, then the second reads; odd: the other way round.
    round: u64,
    written: bool,
    /// What the name leads to; `None` is nothing.
    content: Content,
    /// It is calm, and whose turn it was to write has left instead.
    over: bool,
}

enum Turn {
    Write(Content),
    Read(u64, Content),
    Wait,
}

fn shared_name() -> Name {
    Name::new(b"shared").expect("a short name")
}

fn spare_name() -> Name {
    Name::new(b"new").expect("a short name")
}

impl Handover {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Handover { synced: seed % 2 == 1, state: Mutex::default() })
    }

    fn turn(&self, me: Machine) -> Turn {
        let state = self.state.lock();
        let writer = Machine::CLIENTS[(state.round % 2) as usize];
        match (writer == me, state.written) {
            (true, false) => Turn::Write(state.content.clone()),
            (false, true) => Turn::Read(state.round, state.content.clone()),
            _ => Turn::Wait,
        }
    }

    /// Rounds are played to their end, also when it is calm.
    fn is_over(&self, process: &Process) -> bool {
        let mut state = self.state.lock();
        let writer = Machine::CLIENTS[(state.round % 2) as usize] == process.machine;
        state.over |= process.cluster.is_calm() && !state.written && writer;
        state.over
    }

    async fn play(&self, process: &Process, fs: &Mount, random: &mut Stream) -> Result<()> {
        while !self.is_over(process) {
            match self.turn(process.machine) {
                Turn::Write(before) => {
                    let content = write(process, fs, random, before, self.synced).await?;
                    let mut state = self.state.lock();
                    (state.content, state.written) = (content, true);
                }
                Turn::Read(round, expected) => {
                    let seen = read(fs).await?;
                    if seen != expected {
                        let text = differ(process, round, &seen, &expected);
                        process.cluster.around.failures.add(Invariant::CloseToOpen, text);
                    }
                    let mut state = self.state.lock();
                    (state.round, state.written) = (state.round + 1, false);
                }
                Turn::Wait => process.env.sleep(POLL).await,
            }
        }
        Ok(())
    }
}

fn differ(process: &Process, round: u64, seen: &Content, expected: &Content) -> String {
    let what = |content: &Content| match content {
        Some(bytes) => format!("{} bytes", bytes.len()),
        None => "nothing".to_owned(),
    };
    let at = match (seen, expected) {
        (Some(seen), Some(expected)) => seen.iter().zip(expected).position(|(a, b)| a != b),
        _ => None,
    };
    let (who, seen, expected) = (process.machine.name(), what(seen), what(expected));
    format!("{who} in round {round} sees {seen} instead of {expected}, first difference at {at:?}")
}

/// Makes the name lead to something else, and closes; answers what.
async fn write(process: &Process, fs: &Mount, random: &mut Stream, before: Content, synced: bool) -> Result<Content> {
    let (cx, root) = (Caller::default(), InodeId::ROOT);
    let what = random.random_range(0..10);
    let len = LENGTHS[random.random_range(0..LENGTHS.len())];
    let fill: u8 = random.random_range(1..=255);
    let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 61) as u8)).collect();
    process.note(format_args!("way {what}, {len} bytes"));
    if what == 0 && before.is_some() {
        fs.unlink(&cx, root, &shared_name()).await?;
        return Ok(None);
    }
    // Another file that takes the name, all of it anew, or over what is there.
    let replace = what < 4;
    let name = if replace { spare_name() } else { shared_name() };
    let truncate = replace || what < 7;
    let flags = OpenFlags { read: true, write: true, truncate, ..OpenFlags::default() };
    let (_, opened) = fs.create(&cx, root, &name, Mode(0o644), flags).await?;
    let mut content = if truncate { Vec::new() } else { before.unwrap_or_default() };
    if content.len() < bytes.len() {
        content.resize(bytes.len(), 0);
    }
    content[..bytes.len()].copy_from_slice(&bytes);
    for (n, piece) in bytes.chunks(50_000).enumerate() {
        fs.write(opened.handle, n as u64 * 50_000, piece.to_vec().into()).await?;
    }
    if synced {
        fs.fsync(opened.handle, false).await?;
    }
    fs.flush(opened.handle).await?;
    fs.release(opened.handle).await;
    if replace {
        fs.rename(&cx, (root, &name), (root, &shared_name()), RenameMode::Replace).await?;
    }
    Ok(Some(content))
}

async fn read(fs: &Mount) -> Result<Content> {
    let cx = Caller::default();
    let Some(attr) = fs.lookup(&cx, InodeId::ROOT, &shared_name()).await?.attr else { return Ok(None) };
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = fs.open(&cx, attr.id, flags).await?.handle;
    let content = fs.read(handle, 0, READ_MAX).await?.concat();
    fs.release(handle).await;
    Ok(Some(content))
}

impl Work for Handover {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let (fs, mut random) = (mount(&process).await, process.stream("handover"));
            let played = self.play(&process, &fs, &mut random).await;
            leave(&process, &fs, played).await;
        })
    }

    fn waits_for(&self) -> String {
        let state = self.state.lock();
        format!("round {}, written: {}", state.round, state.written)
    }
}
