//! Files that are open: replaced by rename, removed, opened, written, read and counted through handles of both mounts.

use super::{Given, Litmus, Program, TASKS, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::machine::Machine;
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, Code, FileSystem, HandleId, OpenFlags, RenameMode, Result};
use braid_model::objects::{Open, OpenOp};
use braid_types::{InodeId, Mode, Name};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NAMES: usize = 2;

pub struct OpenFiles {
    last: AtomicU64,
    by_path: bool,
}

impl OpenFiles {
    /// `by_path`: one task of each mount only reads, and opens what a path leads to.
    pub fn work(by_path: bool) -> Arc<dyn Work> {
        Litmus::of(OpenFiles { last: AtomicU64::new(0), by_path })
    }

    fn only_reads(&self, who: usize) -> bool {
        self.by_path && who % 2 == 1
    }
}

fn path(at: usize) -> Name {
    name(&format!("n{at}"))
}

/// Opens what the name leads to. What was looked up may be gone when it is opened: then the name is looked up again.
pub(super) async fn open_name(fs: &Mount, at: &Name, flags: OpenFlags) -> Result<Option<(InodeId, HandleId)>> {
    let cx = Caller::default();
    loop {
        let Some(attr) = fs.lookup(&cx, InodeId::ROOT, at).await?.attr else { return Ok(None) };
        match fs.open(&cx, attr.id, flags).await {
            Ok(opened) => return Ok(Some((attr.id, opened.handle))),
            Err(error) if matches!(error.code, Code::NotFound | Code::Stale) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The same for reading, by its path.
async fn open_path(fs: &Mount, at: Name) -> Result<Option<(InodeId, HandleId)>> {
    loop {
        match fs.open_at(&Caller::default(), InodeId::ROOT, std::slice::from_ref(&at), OpenFlags::READ).await {
            Ok((attr, opened)) => return Ok(Some((attr.id, opened.handle))),
            Err(error) if error.code == Code::NotFound => return Ok(None),
            Err(error) if error.code == Code::Stale => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) async fn close(fs: &Mount, handle: HandleId) -> Result<()> {
    let flushed = fs.flush(handle).await;
    fs.release(handle).await;
    flushed
}

async fn put(fs: &Mount, who: &str, at: usize, file: u64) -> Result<()> {
    let (cx, new, root) = (Caller::default(), name(&format!("new-{who}-{file}")), InodeId::ROOT);
    let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
    let (_, opened) = fs.create(&cx, root, &new, Mode(0o644), flags).await?;
    fs.write(opened.handle, 0, file.to_le_bytes().to_vec().into()).await?;
    close(fs, opened.handle).await?;
    fs.rename(&cx, (root, &new), (root, &path(at)), RenameMode::Replace).await
}

impl Program for OpenFiles {
    const BREAKS: Invariant = Invariant::BytesAreLinearizable;
    type Object = Open;
    type Life = Option<(InodeId, HandleId)>;

    fn object(&self) -> Open {
        Open::default()
    }

    async fn open(&self, _: &Process, _: &Mount) -> Result<Self::Life> {
        Ok(None)
    }

    fn draw(&self, who: usize, random: &mut Stream) -> OpenOp {
        let at = random.random_range(0..NAMES);
        let new = || self.last.fetch_add(1, Relaxed) + 1;
        match random.random_range(0..12) {
            0 | 1 => OpenOp::Put(at, new()),
            2 => OpenOp::Unlink(at),
            3 | 4 => OpenOp::Open(who, at),
            5 | 6 if !self.only_reads(who) => OpenOp::Write(who, new()),
            7 | 8 => OpenOp::Links(who),
            _ => OpenOp::Read(who),
        }
    }

    fn last(&self, who: usize) -> Vec<OpenOp> {
        let opened = (0..NAMES).flat_map(|at| [OpenOp::Open(who, at), OpenOp::Read(who), OpenOp::Links(who)]);
        [OpenOp::Read(who), OpenOp::Links(who)].into_iter().chain(opened).collect()
    }

    async fn perform(&self, process: &Process, fs: &Mount, life: &mut Self::Life, op: &OpenOp) -> Given<Option<u64>> {
        let cx = Caller::default();
        Ok(Ok(match *op {
            OpenOp::Put(at, file) => {
                put(fs, process.machine.name(), at, file).await?;
                None
            }
            OpenOp::Unlink(at) => match fs.unlink(&cx, InodeId::ROOT, &path(at)).await {
                Ok(()) => Some(1),
                Err(error) if error.code == Code::NotFound => None,
                Err(error) => return Err(error),
            },
            OpenOp::Open(who, at) => {
                if let Some((_, before)) = life.take() {
                    close(fs, before).await?;
                }
                *life = match self.only_reads(who) {
                    true => open_path(fs, path(at)).await?,
                    false => open_name(fs, &path(at), OpenFlags::READ_WRITE).await?,
                };
                life.map(|_| 1)
            }
            OpenOp::Read(_) => match life {
                Some((_, handle)) => {
                    let bytes = fs.read(*handle, 0, 8).await?.concat();
                    match <[u8; 8]>::try_from(bytes.as_slice()) {
                        Ok(bytes) => Some(u64::from_le_bytes(bytes)),
                        Err(_) => return Ok(Err(format!("{} bytes of 8", bytes.len()))),
                    }
                }
                None => None,
            },
            OpenOp::Write(_, value) => {
                if let Some((_, handle)) = life {
                    fs.write(*handle, 0, value.to_le_bytes().to_vec().into()).await?;
                }
                None
            }
            OpenOp::Links(_) => match *life {
                Some((id, handle)) => {
                    let links = fs.get_attr(&cx, id, Some(handle)).await?.attr.nlink;
                    if links == 0 {
                        process.cluster.coverage.count("open file without a name looked at");
                    }
                    Some(links.into())
                }
                None => None,
            },
        }))
    }
}

const _: () = assert!(TASKS * Machine::CLIENTS.len() == 4, "what the history can explain");
