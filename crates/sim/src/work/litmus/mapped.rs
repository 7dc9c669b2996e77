//! One file that a program of each mount has mapped: loads out of pages that its kernel keeps, and writes.

use super::super::bytes::{filled, value_in};
use super::{Given, Litmus, Program, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mapping, Mount, PAGE_BYTES};
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, FileSystem, OpenFlags, Result, SetAttr};
use braid_model::objects::{SlotOp, Slots};
use braid_types::{InodeId, Mode};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A page each.
const SLOTS: usize = 4;
/// Pages from one to the next: in even seeds all are in the row or in one chunk, in odd ones in several.
const STRIDES: [u64; 2] = [1, 40];

pub struct Mapped {
    stride: u64,
    last: AtomicU64,
}

impl Mapped {
    pub fn work(seed: u64) -> Arc<dyn Work> {
        Litmus::of(Mapped { stride: STRIDES[(seed % 2) as usize], last: AtomicU64::new(0) })
    }
}

impl Program for Mapped {
    const BREAKS: Invariant = Invariant::BytesAreLinearizable;
    /// What a kernel shows of a write that is on its way, to others on its own mount, is its own affair.
    const TASKS: usize = 1;
    type Object = Slots;
    type Life = Mapping;

    fn object(&self) -> Slots {
        Slots(vec![0; SLOTS])
    }

    async fn open(&self, process: &Process, fs: &Mount) -> Result<Mapping> {
        let (cx, flags) = (Caller::default(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let (entry, opened) = fs.create(&cx, InodeId::ROOT, &name("mapped"), Mode(0o644), flags).await?;
        let size = SLOTS as u64 * self.stride * PAGE_BYTES as u64;
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        fs.set_attr(&cx, entry.attr.id, Some(opened.handle), change).await?;
        Ok(Mapping::new(process, fs, entry.attr.id, opened.handle))
    }

    fn draw(&self, _: usize, random: &mut Stream) -> SlotOp {
        let slot = random.random_range(0..SLOTS);
        match random.random_range(0..4) {
            0 => SlotOp::Write(slot, self.last.fetch_add(1, Relaxed) + 1),
            _ => SlotOp::Read(slot),
        }
    }

    fn last(&self, _: usize) -> Vec<SlotOp> {
        (0..SLOTS).map(SlotOp::Read).collect()
    }

    async fn perform(&self, _: &Process, fs: &Mount, life: &mut Mapping, op: &SlotOp) -> Given<Option<u64>> {
        let page = |slot: usize| slot as u64 * self.stride;
        match *op {
            SlotOp::Write(slot, value) => {
                life.write(fs, page(slot), filled(value, PAGE_BYTES).into()).await?;
                Ok(Ok(None))
            }
            SlotOp::Read(slot) => Ok(value_in(&life.load(fs, page(slot)).await?, PAGE_BYTES).map(Some)),
            SlotOp::Append(_) | SlotOp::Truncate(_) | SlotOp::Size => unreachable!("not drawn"),
        }
    }
}
