//! One worker: what programs do to keep their data (write, sync, rename; append and sync; change in place and sync), and what
//! they do without a thought, in random order.

use super::bytes::bytes;
use super::load::Load;
use super::op::Op;
use super::record::Record;
use super::state::{Entry, FILE_MODE, INLINE_BYTES, State};
use super::worker_name;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names a worker keeps: enough for renames to hit something, few enough to be compared in a second.
const NAMES_MAX: usize = 60;
const DIRS_MAX: usize = 6;
/// A file with more unsynced writes is synced before the next: the check compares with every version.
const VERSIONS_MAX: usize = 8;

pub enum End {
    Stopped,
    Failed(String),
    Wrong(String),
    Record(io::Error),
}

type Step<T = ()> = Result<T, End>;

pub struct Worker<'a> {
    pub number: u64,
    pub acknowledged: u64,
    pub syncs: u64,
    pub longest: (Duration, String),
    load: &'a Load,
    /// The worker's directory, at each mount that it uses.
    dirs: Vec<PathBuf>,
    record: Record,
    rng: Xoshiro256PlusPlus,
    state: State,
    last_file: u64,
    last_seed: u64,
    open: Option<(u64, File)>,
}

impl<'a> Worker<'a> {
    pub fn new(load: &'a Load, number: u64) -> io::Result<Self> {
        let name = worker_name(number);
        let seed = load.seed.wrapping_mul(1000).wrapping_add(number);
        Ok(Self {
            number,
            acknowledged: 0,
            syncs: 0,
            longest: (Duration::ZERO, String::new()),
            load,
            dirs: std::iter::once(&load.dir).chain(&load.also).map(|dir| dir.join(&name)).collect(),
            record: Record::create(&load.record.join(name))?,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            state: State::default(),
            last_file: 0,
            last_seed: seed << 32,
            open: None,
        })
    }

    pub fn run(&mut self) -> End {
        if let Err(error) = fs::create_dir(&self.dirs[0]) {
            return End::Failed(format!("cannot make {}: {error}", self.dirs[0].display()));
        }
        loop {
            if let Err(end) = self.step() {
                return end;
            }
        }
    }

    fn step(&mut self) -> Step {
        let files = self.files().len();
        match self.rng.random_range(0..100u32) {
            0..32 => self.publish(),
            32..42 => self.small_file(),
            42..56 if files > 0 => self.append(),
            56..70 if files > 0 => self.change_in_place(),
            70..74 if files > 0 => self.synced_write(),
            74..79 if files > 0 => self.truncate(),
            79..85 => self.directories(),
            85..90 if files > 0 => self.attributes_and_links(),
            90..92 => self.large_file(),
            92..96 if files > 0 => self.verify(),
            _ if self.state.names.len() > NAMES_MAX / 2 => self.unlink(),
            _ => self.publish(),
        }
    }

    /// A new file under a name of its own, synced, then renamed over what is to be replaced.
    fn publish(&mut self) -> Step {
        if self.state.names.len() > NAMES_MAX {
            self.unlink()?;
        }
        let (part, file) = self.create("part")?;
        for _ in 0..self.rng.random_range(1..4u32) {
            self.write_end(file, 120_000)?;
        }
        self.sync(file)?;
        self.close(file)?;
        let to = match self.pick() {
            Some(name) if self.rng.random_bool(0.5) => name,
            _ => self.new_name("f"),
        };
        self.call(Op::Rename { from: part, to })
    }

    /// Written and closed: inline bytes are kept without a sync.
    fn small_file(&mut self) -> Step {
        let (_, file) = self.create("s")?;
        let len = self.rng.random_range(0..INLINE_BYTES as u64 + 1);
        self.write(file, 0, len)?;
        self.close(file)
    }

    fn append(&mut self) -> Step {
        let Some(file) = self.reopen()? else { return Ok(()) };
        for _ in 0..self.rng.random_range(1..5u32) {
            self.write_end(file, 20_000)?;
            if self.rng.random_bool(0.7) {
                self.sync(file)?;
            }
        }
        self.close(file)
    }

    fn change_in_place(&mut self) -> Step {
        let Some(file) = self.reopen()? else { return Ok(()) };
        for _ in 0..self.rng.random_range(1..4u32) {
            let length = self.length(file);
            // Beyond the end at times, which leaves a hole.
            let offset = self.rng.random_range(0..length + 1 + length / 10);
            let len = self.rng.random_range(1..30_000u64);
            self.write(file, offset, len)?;
        }
        if self.rng.random_bool(0.8) {
            self.sync(file)?;
        }
        self.close(file)
    }

    fn synced_write(&mut self) -> Step {
        let Some((name, file)) = self.pick_file() else { return Ok(()) };
        let offset = self.rng.random_range(0..self.length(file) + 1);
        let (len, seed) = (self.rng.random_range(1..50_000u64), self.seed());
        self.syncs += 1;
        self.call(Op::SyncedWrite { name, file, offset, len, seed })
    }

    fn truncate(&mut self) -> Step {
        let Some(file) = self.reopen()? else { return Ok(()) };
        let length = self.length(file);
        let len = self.rng.random_range(0..length + 1 + length / 4);
        self.call(Op::Truncate { file, len })?;
        if self.rng.random_bool(0.5) {
            self.write_end(file, 30_000)?;
        }
        if self.rng.random_bool(0.5) {
            self.sync(file)?;
        }
        self.close(file)
    }

    fn large_file(&mut self) -> Step {
        let (_, file) = self.create("l")?;
        for _ in 0..self.rng.random_range(1..4u32) {
            let (offset, len) = (self.length(file), 1 << 20);
            self.write(file, offset, len)?;
        }
        self.sync(file)?;
        self.close(file)
    }

    fn directories(&mut self) -> Step {
        let dirs = self.dirs();
        let empty = dirs.iter().find(|dir| !self.state.names.keys().any(|name| name.starts_with(&format!("{dir}/"))));
        match (self.rng.random_range(0..3u32), empty) {
            (0, Some(empty)) => self.call(Op::Rmdir { name: empty.clone() }),
            (1, _) if !dirs.is_empty() => {
                let from = dirs[self.rng.random_range(0..dirs.len())].clone();
                let to = format!("d{}", self.next_file());
                self.call(Op::Rename { from, to })
            }
            _ if dirs.len() < DIRS_MAX => {
                let name = format!("d{}", self.next_file());
                self.call(Op::Mkdir { name })
            }
            _ => self.unlink(),
        }
    }

    fn attributes_and_links(&mut self) -> Step {
        let Some((name, _)) = self.pick_file() else { return Ok(()) };
        let other = self.new_name("n");
        let op = match self.rng.random_range(0..5u32) {
            0 => Op::Chmod { name, mode: [0o600, 0o644, 0o755, 0o440][self.rng.random_range(0..4usize)] },
            1 => Op::SetXattr { name, value: self.seed() },
            2 => Op::Symlink { target: name, name: other },
            3 => Op::Rename { from: name, to: other },
            _ => Op::Link { from: name, to: other },
        };
        self.call(op)
    }

    fn unlink(&mut self) -> Step {
        match self.pick() {
            Some(name) => self.call(Op::Unlink { name }),
            None => Ok(()),
        }
    }

    /// What is there is what was written, also while servers are down.
    fn verify(&mut self) -> Step {
        let Some((name, file)) = self.pick_file() else { return Ok(()) };
        let begun = Instant::now();
        let read = fs::read(self.dir().join(&name));
        self.took(begun, || format!("read {name}"));
        let found = read.map_err(|error| End::Failed(format!("read {name}: {error}")))?;
        let wanted = self.state.files.get(&file).map_or(&[][..], |f| f.latest());
        if found == wanted {
            return Ok(());
        }
        let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
        let offset = differs.unwrap_or(found.len().min(wanted.len()));
        let (is, was) = (found.len(), wanted.len());
        Err(End::Wrong(format!("{name} (file {file}) has {is} bytes of {was} and differs from byte {offset} on")))
    }

    // --- pieces

    fn call(&mut self, op: Op) -> Step {
        if self.load.stop.exists() {
            return Err(End::Stopped);
        }
        self.record.begins(&op).map_err(End::Record)?;
        let begun = Instant::now();
        let outcome = self.execute(&op);
        self.record.ends(&outcome, begun.elapsed()).map_err(End::Record)?;
        self.took(begun, || op.to_string());
        match outcome {
            Ok(()) => {
                self.acknowledged += 1;
                self.state.apply(&op);
                Ok(())
            }
            Err(error) => Err(End::Failed(format!("{op}: {error}"))),
        }
    }

    fn took(&mut self, begun: Instant, call: impl FnOnce() -> String) {
        let took = begun.elapsed();
        if took > self.longest.0 {
            self.longest = (took, call());
        }
    }

    fn execute(&mut self, op: &Op) -> io::Result<()> {
        let dir = self.dir().to_owned();
        let at = |name: &str| dir.join(name);
        match op {
            Op::Mkdir { name } => DirBuilder::new().mode(0o755).create(at(name)),
            Op::Rmdir { name } => fs::remove_dir(at(name)),
            Op::Create { name, file } => {
                let opened =
                    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(at(name))?;
                self.open = Some((*file, opened));
                Ok(())
            }
            Op::Open { name, file } => {
                self.open = Some((*file, OpenOptions::new().read(true).write(true).open(at(name))?));
                Ok(())
            }
            Op::Write { offset, len, seed, .. } => self.handle()?.write_all_at(&bytes(*seed, *len as usize), *offset),
            Op::SyncedWrite { name, offset, len, seed, .. } => {
                let synced = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(at(name))?;
                synced.write_all_at(&bytes(*seed, *len as usize), *offset)
            }
            Op::Fsync { .. } => self.handle()?.sync_all(),
            Op::Fdatasync { .. } => self.handle()?.sync_data(),
            Op::Truncate { len, .. } => self.handle()?.set_len(*len),
            Op::Close { .. } => match self.open.take() {
                Some((_, file)) => close(file),
                None => Ok(()),
            },
            Op::Rename { from, to } => fs::rename(at(from), at(to)),
            Op::Link { from, to } => fs::hard_link(at(from), at(to)),
            Op::Symlink { target, name } => std::os::unix::fs::symlink(target, at(name)),
            Op::Unlink { name } => fs::remove_file(at(name)),
            Op::Chmod { name, mode } => fs::set_permissions(at(name), Permissions::from_mode(*mode)),
            Op::SetXattr { name, value } => Ok(set_xattr(&at(name), *value)?),
        }
    }

    /// What is drawn decides where a call goes, and nothing when there is one mount: seeds of such runs stay.
    fn dir(&mut self) -> &Path {
        let n = if self.dirs.len() > 1 { self.rng.random_range(0..self.dirs.len()) } else { 0 };
        &self.dirs[n]
    }

    fn handle(&self) -> io::Result<&File> {
        self.open.as_ref().map(|(_, file)| file).ok_or_else(|| io::Error::other("no file is open"))
    }

    fn create(&mut self, kind: &str) -> Step<(String, u64)> {
        let name = self.new_name(kind);
        let file = self.last_file;
        self.call(Op::Create { name: name.clone(), file })?;
        Ok((name, file))
    }

    fn reopen(&mut self) -> Step<Option<u64>> {
        let Some((name, file)) = self.pick_file() else { return Ok(None) };
        self.call(Op::Open { name, file })?;
        Ok(Some(file))
    }

    fn write(&mut self, file: u64, offset: u64, len: u64) -> Step {
        if self.state.files.get(&file).is_some_and(|f| f.versions() >= VERSIONS_MAX) {
            self.sync(file)?;
        }
        let seed = self.seed();
        self.call(Op::Write { file, offset, len, seed })
    }

    fn write_end(&mut self, file: u64, len_max: u64) -> Step {
        // Small ones often, so that files grow out of their row in the middle of a life.
        let len_max = if self.rng.random_bool(0.5) { 6_000 } else { len_max };
        let (offset, len) = (self.length(file), self.rng.random_range(1..len_max));
        self.write(file, offset, len)
    }

    fn sync(&mut self, file: u64) -> Step {
        self.syncs += 1;
        let op = if self.rng.random_bool(0.7) { Op::Fsync { file } } else { Op::Fdatasync { file } };
        self.call(op)
    }

    fn close(&mut self, file: u64) -> Step {
        self.call(Op::Close { file })
    }

    fn length(&self, file: u64) -> u64 {
        self.state.files.get(&file).map_or(0, |f| f.latest().len() as u64)
    }

    fn next_file(&mut self) -> u64 {
        self.last_file += 1;
        self.last_file
    }

    fn seed(&mut self) -> u64 {
        self.last_seed += 1;
        self.last_seed
    }

    fn dirs(&self) -> Vec<String> {
        let dirs = self.state.names.iter().filter(|(_, entry)| **entry == Entry::Dir);
        dirs.map(|(name, _)| name.clone()).collect()
    }

    fn files(&self) -> Vec<(String, u64)> {
        let file = |(name, entry): (&String, &Entry)| match entry {
            Entry::File(file) => Some((name.clone(), *file)),
            _ => None,
        };
        self.state.names.iter().filter_map(file).collect()
    }

    fn pick_file(&mut self) -> Option<(String, u64)> {
        let mut files = self.files();
        let len = files.len();
        (len > 0).then(|| files.swap_remove(self.rng.random_range(0..len)))
    }

    /// A name of anything but a directory.
    fn pick(&mut self) -> Option<String> {
        let names: Vec<&String> =
            self.state.names.iter().filter(|(_, entry)| **entry != Entry::Dir).map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| names[self.rng.random_range(0..names.len())].clone())
    }

    fn new_name(&mut self, kind: &str) -> String {
        let dirs = self.dirs();
        let number = self.next_file();
        match self.rng.random_range(0..dirs.len() + 1) {
            0 => format!("{kind}{number}"),
            n => format!("{}/{kind}{number}", dirs[n - 1]),
        }
    }
}

/// `close`, with its error, which dropping would swallow.
fn close(file: File) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor is open and owned here, and nobody uses it afterwards.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The attribute that `SetXattr` sets.
pub const XATTR: &str = "user.promise";

fn set_xattr(path: &Path, value: u64) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, XATTR, value.to_string().as_bytes(), rustix::fs::XattrFlags::empty())
}
