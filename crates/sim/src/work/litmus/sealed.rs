//! Files that are sealed and unsealed while tasks of both mounts read, write, rename and remove them, and read some without asking
//! (docs/design/0015-sealed-files.md).
//!
//! Where mounts die, what is written is synced before it counts, and names stay: who dies in one moment with the metadata server takes what was
//! answered early and not synced with it, which no order explains.

use super::super::bytes::{filled, value_in};
use super::open::close;
use super::{Given, Litmus, Program, TASKS, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Beneath, Mount};
use crate::machine::Machine;
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, Code, Error, FileSystem, HandleId, OpenFlags, RenameMode, Result, SetAttr};
use braid_env::DiskFile;
use braid_env::os::OsFile;
use braid_model::objects::{self, SealedAnswer, SealedOp, TASKS_OF_A_MOUNT};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const NAMES: usize = 3;
/// In one chunk, in the row, in two chunks: by the number of the file.
const LENGTHS: [u64; 5] = [20 << 10, 900, 20 << 10, 20 << 10, (1 << 20) + 4096];
/// Of a file of two chunks only its beginning is written.
const WRITTEN_MAX: u64 = 20 << 10;
/// For who is in the way, in turn.
const WAITS_MS: [u64; 3] = [0, 300, 1500];
const LOOK: Duration = Duration::from_millis(20);

pub struct Sealed {
    clients_die: bool,
    last: AtomicU64,
    /// Which file an inode is.
    made: Mutex<BTreeMap<InodeId, u64>>,
    /// What lies above each mount, of each of its lives.
    above: Mutex<BTreeMap<(Machine, u64), Arc<Beneath>>>,
    /// Tasks that have found their files, so many times.
    ready: AtomicUsize,
}

/// What a task has open.
pub struct Open {
    id: InodeId,
    handle: HandleId,
    writes: bool,
    beneath: Option<Arc<OwnedFd>>,
}

pub struct Life {
    above: Arc<Beneath>,
    open: Option<Open>,
}

fn path(at: usize) -> Name {
    name(&format!("s{at}"))
}

/// What an error says of the object, if it does.
fn refused(error: Error) -> Result<SealedAnswer> {
    match error.code {
        Code::Sealed => Ok(SealedAnswer::Refused),
        Code::TextBusy => Ok(SealedAnswer::Busy),
        Code::NotFound => Ok(SealedAnswer::Nothing),
        _ => Err(error),
    }
}

fn done(result: Result<()>) -> Result<SealedAnswer> {
    result.map_or_else(refused, |()| Ok(SealedAnswer::Done))
}

impl Sealed {
    pub fn work(clients_die: bool) -> Arc<dyn Work> {
        Litmus::of(Sealed {
            clients_die,
            last: AtomicU64::new(NAMES as u64),
            made: Mutex::default(),
            above: Mutex::default(),
            ready: AtomicUsize::new(0),
        })
    }

    fn next(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    fn len_of(&self, id: InodeId) -> u64 {
        let file = self.made.lock().get(&id).copied().unwrap_or(0);
        LENGTHS[(file % LENGTHS.len() as u64) as usize]
    }

    /// A value as it is written, from the beginning of the file. Where mounts die it is no longer than what a disk writes at once.
    fn bytes_of(&self, id: InodeId, value: u64) -> Vec<u8> {
        let len = if self.clients_die { 8 } else { self.len_of(id).min(WRITTEN_MAX) as usize };
        filled(value, len)
    }

    fn value_of(&self, id: InodeId, bytes: &[u8]) -> std::result::Result<u64, String> {
        let written = self.bytes_of(id, 0).len();
        let len = self.len_of(id).min(WRITTEN_MAX) as usize;
        if bytes.len() != len {
            return Err(format!("{} bytes of {len}", bytes.len()));
        }
        match bytes[written..].iter().all(|byte| *byte == 0) {
            true => value_in(&bytes[..written], written),
            false => Err("what was never written is there".to_owned()),
        }
    }

    /// One of the files that are there from the beginning.
    async fn found_or_made(&self, fs: &Mount, at: usize) -> Result<()> {
        let (cx, len) = (Caller::default(), LENGTHS[at]);
        if let Some(attr) = fs.lookup(&cx, InodeId::ROOT, &path(at)).await?.attr
            && attr.size == len
        {
            self.made.lock().insert(attr.id, at as u64);
            return Ok(());
        }
        let (entry, opened) = fs.create(&cx, InodeId::ROOT, &path(at), Mode(0o644), OpenFlags::READ_WRITE).await?;
        self.made.lock().insert(entry.attr.id, at as u64);
        let change = SetAttr { size: Some(len), ..SetAttr::default() };
        fs.set_attr(&cx, entry.attr.id, Some(opened.handle), change).await?;
        // All of it is there from the beginning, and has its place on the disk.
        fs.write(opened.handle, 0, vec![0; len.min(WRITTEN_MAX) as usize].into()).await?;
        fs.fsync(opened.handle, false).await?;
        close(fs, opened.handle).await
    }

    async fn put(&self, fs: &Mount, who: &str, at: usize, file: u64) -> Result<SealedAnswer> {
        let (cx, new, root) = (Caller::default(), name(&format!("new-{who}-{file}")), InodeId::ROOT);
        let flags = OpenFlags { exclusive: true, ..OpenFlags::READ_WRITE };
        let (entry, opened) = fs.create(&cx, root, &new, Mode(0o644), flags).await?;
        let id = entry.attr.id;
        self.made.lock().insert(id, file);
        let change = SetAttr { size: Some(self.len_of(id)), ..SetAttr::default() };
        fs.set_attr(&cx, id, Some(opened.handle), change).await?;
        fs.write(opened.handle, 0, self.bytes_of(id, file).into()).await?;
        close(fs, opened.handle).await?;
        let put = done(fs.rename(&cx, (root, &new), (root, &path(at)), RenameMode::Replace).await)?;
        if put != SealedAnswer::Done {
            fs.unlink(&cx, root, &new).await?;
        }
        Ok(put)
    }

    async fn write(&self, fs: &Mount, open: &Open, value: u64) -> Result<SealedAnswer> {
        let written = fs.write(open.handle, 0, self.bytes_of(open.id, value).into()).await;
        match written {
            Ok(_) if self.clients_die => done(fs.fsync(open.handle, false).await),
            other => done(other.map(|_| ())),
        }
    }

    async fn seal(&self, fs: &Mount, id: InodeId, sealed: bool) -> Result<SealedAnswer> {
        let wait = Duration::from_millis(WAITS_MS[(self.next() % WAITS_MS.len() as u64) as usize]);
        match fs.set_sealed(&Caller::default(), id, sealed, wait).await {
            Ok(reply) if reply.attr.sealed == sealed => Ok(SealedAnswer::Done),
            // Somebody else has changed it since, which the answer knows of.
            Ok(_) => Ok(SealedAnswer::Done),
            Err(error) => refused(error),
        }
    }
}

impl Program for Sealed {
    const BREAKS: Invariant = Invariant::SealedFilesStay;
    type Object = objects::Sealed;
    type Life = Life;

    fn object(&self) -> objects::Sealed {
        objects::Sealed::with_files(NAMES)
    }

    async fn open(&self, process: &Process, fs: &Mount) -> Result<Life> {
        let above = {
            let mut above = self.above.lock();
            above.entry((process.machine, process.life)).or_insert_with(|| Beneath::above(process, fs)).clone()
        };
        for at in 0..NAMES {
            self.found_or_made(fs, at).await?;
        }
        let root = fs.open_dir(&Caller::default(), InodeId::ROOT).await?.handle;
        fs.sync_dir(root).await?;
        fs.release(root).await;
        // Nobody removes what another has not found yet.
        self.ready.fetch_add(1, Relaxed);
        while self.ready.load(Relaxed) < TASKS * Machine::CLIENTS.len() {
            process.env.sleep(LOOK).await;
        }
        Ok(Life { above, open: None })
    }

    fn draw(&self, who: usize, random: &mut Stream) -> SealedOp {
        let at = random.random_range(0..NAMES);
        match random.random_range(0..if self.clients_die { 24 } else { 29 }) {
            0..5 => SealedOp::Open(who, at),
            5 | 6 => SealedOp::Close(who),
            7..10 => SealedOp::Seal(who),
            10 => SealedOp::Unseal(who),
            11..15 => SealedOp::Hold(who),
            15..19 => SealedOp::ReadBeneath(who),
            19 => SealedOp::OpenToWrite(who),
            20 | 21 => SealedOp::Write(who, self.next()),
            22 => SealedOp::Read(who),
            23 => SealedOp::Look(who),
            24 | 25 => SealedOp::Put(at, self.next()),
            26 | 27 => SealedOp::Rename(at, (at + 1) % NAMES),
            _ => SealedOp::Unlink(at),
        }
    }

    fn last(&self, who: usize) -> Vec<SealedOp> {
        let of_name = |at| [SealedOp::Open(who, at), SealedOp::Read(who), SealedOp::Look(who), SealedOp::Close(who)];
        [SealedOp::ReadBeneath(who), SealedOp::Read(who), SealedOp::Look(who), SealedOp::Close(who)]
            .into_iter()
            .chain((0..NAMES).flat_map(of_name))
            .collect()
    }

    async fn perform(&self, process: &Process, fs: &Mount, life: &mut Life, op: &SealedOp) -> Given<SealedAnswer> {
        let (cx, count) = (Caller::default(), |what| process.cluster.coverage.count(what));
        life.above.leave_what_is_asked_for(fs);
        let answer = match (*op, &mut life.open) {
            (SealedOp::Put(at, file), _) => self.put(fs, process.machine.name(), at, file).await?,
            (SealedOp::Unlink(at), _) => done(fs.unlink(&cx, InodeId::ROOT, &path(at)).await)?,
            (SealedOp::Rename(from, to), _) => {
                let (from, to) = (path(from), path(to));
                done(fs.rename(&cx, (InodeId::ROOT, &from), (InodeId::ROOT, &to), RenameMode::Replace).await)?
            }
            (SealedOp::Open(_, at), open @ None) => match super::open::open_name(fs, &path(at), OpenFlags::READ).await?
            {
                Some((id, handle)) => {
                    *open = Some(Open { id, handle, writes: false, beneath: None });
                    SealedAnswer::Done
                }
                None => SealedAnswer::Nothing,
            },
            (SealedOp::Open(..), Some(_)) | (SealedOp::Die(_), _) | (_, None) => SealedAnswer::Nothing,
            (SealedOp::OpenToWrite(_), Some(open)) => match fs.open(&cx, open.id, OpenFlags::READ_WRITE).await {
                Ok(opened) => {
                    close(fs, std::mem::replace(&mut open.handle, opened.handle)).await?;
                    open.writes = true;
                    SealedAnswer::Done
                }
                Err(error) => refused(error)?,
            },
            (SealedOp::Close(_), closed) => {
                let Some(Open { id, handle, beneath, .. }) = closed.take() else {
                    return Ok(Ok(SealedAnswer::Nothing));
                };
                close(fs, handle).await?;
                if beneath.is_some() {
                    life.above.closed(id);
                }
                SealedAnswer::Done
            }
            (SealedOp::Read(_), Some(open)) => {
                let bytes = fs.read(open.handle, 0, WRITTEN_MAX as u32).await?.concat();
                match self.value_of(open.id, &bytes) {
                    Ok(value) => SealedAnswer::Value(value),
                    Err(wrong) => return Ok(Err(wrong)),
                }
            }
            (SealedOp::Write(_, value), Some(open)) if open.writes => self.write(fs, open, value).await?,
            (SealedOp::Write(..), Some(_)) => SealedAnswer::Nothing,
            (SealedOp::Look(_), Some(open)) => {
                SealedAnswer::IsSealed(fs.get_attr(&cx, open.id, Some(open.handle)).await?.attr.sealed)
            }
            (SealedOp::Seal(_), Some(open)) => self.seal(fs, open.id, true).await?,
            (SealedOp::Unseal(_), Some(open)) => self.seal(fs, open.id, false).await?,
            (SealedOp::Hold(_), Some(Open { beneath: Some(_), .. })) => SealedAnswer::Done,
            (SealedOp::Hold(_), Some(Open { writes: true, .. })) => SealedAnswer::Nothing,
            (SealedOp::Hold(_), Some(open)) => {
                open.beneath = life.above.opened(fs, open.id, open.handle).await;
                if open.beneath.is_some() { SealedAnswer::Done } else { SealedAnswer::Nothing }
            }
            (SealedOp::ReadBeneath(_), Some(Open { id, beneath: Some(file), .. })) => {
                let mut bytes = vec![0; self.len_of(*id).min(WRITTEN_MAX) as usize];
                let file = OsFile::of(file.try_clone().expect("there are descriptors"));
                let read = file.read_at(&mut bytes, 0).expect("memory can be read");
                match self.value_of(*id, &bytes[..read]) {
                    Ok(value) => SealedAnswer::Value(value),
                    Err(wrong) => return Ok(Err(wrong)),
                }
            }
            (SealedOp::ReadBeneath(_), Some(_)) => SealedAnswer::Nothing,
        };
        match (op, answer) {
            (SealedOp::Seal(_), SealedAnswer::Done) => count("file sealed"),
            (SealedOp::Seal(_), SealedAnswer::Busy) => count("file not sealed for who has it open"),
            (SealedOp::Unseal(_), SealedAnswer::Done) => count("file unsealed"),
            (SealedOp::Unseal(_), SealedAnswer::Busy) => count("file not unsealed for who reads it without asking"),
            (SealedOp::Hold(_), SealedAnswer::Done) => count("sealed file opened to be read without asking"),
            (SealedOp::ReadBeneath(_), SealedAnswer::Value(_)) => count("sealed file read without asking"),
            (SealedOp::Write(..), SealedAnswer::Refused) => count("write by a handle of before the seal refused"),
            (_, SealedAnswer::Refused) => count("change of a sealed file refused"),
            _ => {}
        }
        Ok(Ok(answer))
    }

    fn death(&self, mount: usize) -> Option<(SealedOp, SealedAnswer)> {
        self.clients_die.then_some((SealedOp::Die(mount), SealedAnswer::Done))
    }
}

const _: () = assert!(TASKS == TASKS_OF_A_MOUNT);
