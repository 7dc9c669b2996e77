//! A directory of files that are read one after the other, so that those that come next are asked for together, and written meanwhile. Some stay
//! open where they were read.

use super::super::bytes::{filled, value_in};
use super::{Given, Litmus, Program, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, FileSystem, HandleId, OpenFlags, Result};
use braid_model::objects::{SlotOp, Slots};
use braid_types::{InodeId, Mode, Name};
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FILES: usize = 12;
/// Beside the row, in its table, and in a chunk.
const LENS: [usize; 3] = [600, 5000, 70_000];
/// Of four.
const STAYS: usize = 1;

/// Each file is a slot, and `Size` is to list them all.
pub struct Ahead {
    last: AtomicU64,
}

impl Ahead {
    pub fn work() -> Arc<dyn Work> {
        Litmus::of(Ahead { last: AtomicU64::new(0) })
    }
}

fn path(at: usize) -> Name {
    name(&format!("f{at:02}"))
}

/// How many names there are, with attributes.
async fn listed(fs: &Mount) -> Result<u64> {
    let cx = Caller::default();
    let handle = fs.open_dir(&cx, InodeId::ROOT).await?.handle;
    let (mut found, mut offset) = (0, 0);
    loop {
        let page = fs.read_dir(&cx, handle, offset, 100, true).await?;
        let Some(last) = page.last() else { break };
        offset = last.offset;
        found += page.iter().filter(|entry| entry.name.as_bytes().starts_with(b"f")).count() as u64;
    }
    fs.release(handle).await;
    Ok(found)
}

async fn read(fs: &Mount, handle: HandleId, len: usize) -> Given<Option<u64>> {
    let bytes = fs.read(handle, 0, len as u32).await?.concat();
    Ok(if bytes.is_empty() { Ok(Some(0)) } else { value_in(&bytes, len).map(Some) })
}

impl Program for Ahead {
    const BREAKS: Invariant = Invariant::BytesAreLinearizable;
    const TASKS: usize = 1;
    type Object = Slots;
    /// The files, and handles of those that stay open.
    type Life = (Vec<InodeId>, BTreeMap<usize, HandleId>);

    fn object(&self) -> Slots {
        Slots(vec![0; FILES])
    }

    async fn open(&self, _: &Process, fs: &Mount) -> Result<Self::Life> {
        let mut files = Vec::new();
        for at in 0..FILES {
            let (entry, opened) =
                fs.create(&Caller::default(), InodeId::ROOT, &path(at), Mode(0o644), OpenFlags::READ_WRITE).await?;
            fs.release(opened.handle).await;
            files.push(entry.attr.id);
        }
        Ok((files, BTreeMap::new()))
    }

    fn draw(&self, _: usize, random: &mut Stream) -> SlotOp {
        let file = random.random_range(0..FILES);
        match random.random_range(0..16) {
            0 | 1 => SlotOp::Write(file, self.last.fetch_add(1, Relaxed) + 1),
            2 | 3 => SlotOp::Size,
            _ => SlotOp::Read(file),
        }
    }

    fn last(&self, _: usize) -> Vec<SlotOp> {
        (0..FILES).map(SlotOp::Read).collect()
    }

    async fn perform(
        &self,
        _: &Process,
        fs: &Mount,
        (files, open): &mut Self::Life,
        op: &SlotOp,
    ) -> Given<Option<u64>> {
        let (cx, len) = (Caller::default(), |file: usize| LENS[file % LENS.len()]);
        match *op {
            SlotOp::Write(file, value) => {
                let handle = fs.open(&cx, files[file], OpenFlags::READ_WRITE).await?.handle;
                fs.write(handle, 0, filled(value, len(file)).into()).await?;
                fs.flush(handle).await?;
                fs.release(handle).await;
                Ok(Ok(None))
            }
            SlotOp::Size => Ok(Ok(Some(listed(fs).await?))),
            SlotOp::Read(file) => {
                if let Some(handle) = open.get(&file) {
                    return read(fs, *handle, len(file)).await;
                }
                let handle = fs.open(&cx, files[file], OpenFlags::READ).await?.handle;
                let given = read(fs, handle, len(file)).await?;
                match file % 4 == STAYS {
                    true => _ = open.insert(file, handle),
                    false => fs.release(handle).await,
                }
                Ok(given)
            }
            SlotOp::Append(_) | SlotOp::Truncate(_) => Ok(Err("it is not drawn".to_owned())),
        }
    }
}
