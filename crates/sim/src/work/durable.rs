//! Each client writes, cuts, syncs and closes files of its own, dies and comes back; whatever it was told to be safe
//! must be there (design.md §8). At the end each reads the other's files as well.

use super::{Task, Work};
use crate::check::ledger::{Change, FileLedger};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Caller, Code, Error, FileSystem, HandleId, OpenFlags, Result, SetAttr};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const FILES: u8 = 4;
/// Between operations, so that faults come between them too.
const PAUSE_MS_MAX: u64 = 120;
/// Inside the first chunk, across its end, in the second; the first two are inline for a while.
const OFFSETS: [u64; 6] = [0, 1000, 5000, 100_000, (1 << 20) - 3000, (1 << 20) + 70_000];
const LENGTHS: [usize; 5] = [1, 100, 3000, 9000, 40_000];
const SIZES: [u64; 6] = [0, 500, 4096, 50_000, 1 << 20, (1 << 20) + 80_000];
const READ_MAX: u32 = 4 << 20;

/// When a change is sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// When fsync has returned.
    AtFsync,
    /// The same, and names at once: where no client dies.
    BytesAtFsync,
    /// When close has returned: where servers lose what they remember, and no client.
    AtClose,
    /// When its names have been synced as well after that: where clients and the metadata server die, and data servers
    /// keep what they remember.
    AtCloseAndSync,
}

type FileKey = (Machine, u8);

pub struct Durable {
    sure: Sure,
    files: Mutex<BTreeMap<FileKey, File>>,
    lives: Mutex<u64>,
    /// Who has finished which part of the end.
    flushed: Mutex<BTreeSet<Machine>>,
}

#[derive(Default)]
struct File {
    /// Its creation is sure.
    exists: bool,
    ledger: FileLedger,
}

/// One life of a client.
struct Life {
    process: Process,
    fs: Arc<Mount>,
    random: Stream,
    number: u64,
}

fn name((machine, number): FileKey) -> Name {
    Name::new(format!("{}-{number}", machine.name()).as_bytes()).expect("a short name")
}

impl Durable {
    pub fn new(sure: Sure) -> Arc<Self> {
        Arc::new(Durable { sure, files: Mutex::default(), lives: Mutex::default(), flushed: Mutex::default() })
    }

    fn with<T>(&self, key: FileKey, change: impl FnOnce(&mut File) -> T) -> T {
        change(self.files.lock().entry(key).or_default())
    }

    async fn life(&self, life: &mut Life) -> Result<()> {
        let me = life.process.machine;
        for number in 0..FILES {
            self.verify(life, (me, number)).await?;
        }
        while !life.process.cluster.is_calm() {
            let number = life.random.random_range(0..FILES);
            self.session_with((me, number), life).await?;
            life.pause().await;
        }
        life.fs.sync_fs().await?;
        (0..FILES).for_each(|number| self.with((me, number), |file| file.ledger.make_sure(life.number)));
        self.flushed.lock().insert(me);
        while self.flushed.lock().len() < Machine::CLIENTS.len() {
            life.pause().await;
        }
        for machine in Machine::CLIENTS {
            for number in 0..FILES {
                self.verify(life, (machine, number)).await?;
            }
        }
        Ok(())
    }

    /// Opens a file, works on it, closes it.
    async fn session_with(&self, key: FileKey, life: &mut Life) -> Result<()> {
        let (cx, flags) = (Caller::default(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let opened = life.fs.create(&cx, InodeId::ROOT, &name(key), Mode(0o644), flags).await?;
        let (id, handle) = (opened.0.attr.id, opened.1.handle);
        life.process.note(format_args!("{key:?} opened"));
        if matches!(self.sure, Sure::AtClose | Sure::BytesAtFsync) {
            self.with(key, |file| file.exists = true);
        }
        for _ in 0..life.random.random_range(1..6) {
            self.work_on(key, id, handle, life).await?;
            life.pause().await;
        }
        life.fs.flush(handle).await?;
        life.process.note(format_args!("{key:?} closed"));
        match self.sure {
            Sure::AtFsync | Sure::BytesAtFsync => {}
            Sure::AtClose => self.sure(key, life.number),
            // Names alone: the bytes are where close brought them.
            Sure::AtCloseAndSync if life.random.random_bool(0.7) => {
                let root = life.fs.open_dir(&cx, InodeId::ROOT).await?.handle;
                life.fs.sync_dir(root).await?;
                life.fs.release(root).await;
                life.process.note(format_args!("{key:?} and its name synced"));
                self.sure(key, life.number);
            }
            Sure::AtCloseAndSync => {}
        }
        life.fs.release(handle).await;
        Ok(())
    }

    fn sure(&self, key: FileKey, life: u64) {
        self.with(key, |file| {
            file.exists = true;
            file.ledger.make_sure(life);
        });
    }

    async fn work_on(&self, key: FileKey, id: InodeId, handle: HandleId, life: &mut Life) -> Result<()> {
        let random = &mut life.random;
        match random.random_range(0..10) {
            0..6 => {
                let offset = OFFSETS[random.random_range(0..OFFSETS.len())] + random.random_range(0..50);
                let fill: u8 = random.random_range(1..=255);
                let len = LENGTHS[random.random_range(0..LENGTHS.len())];
                let bytes: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 97) as u8).max(1)).collect();
                life.process.note(format_args!("{key:?} write {len} at {offset}"));
                let change = Change::Write { offset, bytes: bytes.clone() };
                self.with(key, |file| file.ledger.begin(change, life.number));
                life.fs.write(handle, offset, bytes.into()).await.map(drop)
            }
            6 => {
                let size = SIZES[random.random_range(0..SIZES.len())];
                life.process.note(format_args!("{key:?} truncate to {size}"));
                self.with(key, |file| file.ledger.begin(Change::Truncate { size }, life.number));
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                life.fs.set_attr(&Caller::default(), id, Some(handle), change).await?;
                self.with(key, |file| file.ledger.answered());
                Ok(())
            }
            7 | 8 => {
                life.fs.fsync(handle, random.random_bool(0.5)).await?;
                life.process.note(format_args!("{key:?} synced"));
                self.sure(key, life.number);
                Ok(())
            }
            _ => {
                let content = life.fs.read(handle, 0, READ_MAX).await?.concat();
                self.compare(life, key, &content);
                Ok(())
            }
        }
    }

    fn compare(&self, life: &Life, key: FileKey, content: &[u8]) {
        // A session that has ended takes what was only buffered with it, before anybody has been told.
        let reader = if life.process.cluster.settings.sessions_end { u64::MAX } else { life.number };
        if let Err(text) = self.with(key, |file| file.ledger.check(content, reader)) {
            let invariant = match self.sure {
                Sure::AtFsync | Sure::BytesAtFsync => Invariant::FsyncIsKept,
                Sure::AtClose | Sure::AtCloseAndSync => Invariant::CloseIsKept,
            };
            let who = life.process.machine.name();
            life.process.cluster.around.failures.add(invariant, format_args!("{who} reads {}: {text}", name(key)));
        }
    }

    async fn verify(&self, life: &Life, key: FileKey) -> Result<()> {
        let cx = Caller::default();
        let Some(attr) = life.fs.lookup(&cx, InodeId::ROOT, &name(key)).await?.attr else {
            if self.with(key, |file| file.exists) {
                let text = format_args!("the name {} was answered and is gone", name(key));
                life.process.cluster.around.failures.add(Invariant::NamesAreLinearizable, text);
            }
            return Ok(());
        };
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = life.fs.open(&cx, attr.id, flags).await?.handle;
        let content = life.fs.read(handle, 0, READ_MAX).await?.concat();
        life.fs.release(handle).await;
        life.process.note(format_args!("{key:?} has {} bytes", content.len()));
        self.compare(life, key, &content);
        Ok(())
    }
}

impl Life {
    async fn pause(&mut self) {
        let ms = self.random.random_range(0..PAUSE_MS_MAX);
        self.process.env.sleep(Duration::from_millis(ms)).await;
    }
}

impl Durable {
    /// One client, from mount to its end. A session that was ended may take with it what was not synced; whoever is
    /// told so begins anew.
    async fn client(&self, process: &Process) -> Result<()> {
        let fs = mount(process).await;
        // Numbered through all clients, because a ledger is of a file, not of a client.
        let number = {
            let mut lives = self.lives.lock();
            *lives += 1;
            *lives
        };
        let random = process.stream(&format!("durable {number}"));
        let mut life = Life { process: process.clone(), fs: fs.clone(), random, number };
        let lived = self.life(&mut life).await;
        // Also after a failure: what it still tries to save would keep its session alive.
        let ended = fs.shutdown().await;
        lived.and(ended)
    }
}

impl Work for Durable {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            while let Err(error) = self.client(&process).await {
                let told = matches!(error.code, Code::Stale | Code::SessionUnknown | Code::WriteLost);
                if !told || !process.cluster.settings.sessions_end {
                    fail(&process, &error);
                    break;
                }
                process.cluster.coverage.count("living client told that bytes went with its session");
            }
        })
    }

    fn may_be_forgotten(&self) {
        self.files.lock().values_mut().for_each(|file| file.ledger.doubt());
    }

    fn waits_for(&self) -> String {
        format!("have flushed: {:?}", self.flushed.lock())
    }
}

/// The end of a client's work, however it went.
pub async fn leave(process: &Process, fs: &Mount, played: Result<()>) {
    for ended in [played, fs.shutdown().await] {
        if let Err(error) = ended {
            fail(process, &error);
        }
    }
}

pub fn fail(process: &Process, error: &Error) {
    let invariant = match error.code {
        // What was on stable storage is what fsync has waited for, or might have.
        Code::BadBlock | Code::ChunkLost => Invariant::FsyncIsKept,
        _ => Invariant::OperationsSurviveFaults,
    };
    process.cluster.around.failures.add(invariant, format_args!("{}: {error}", process.machine.name()));
}
