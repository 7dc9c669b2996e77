//! One file of slots: writes, appends, cuts, reads, and how long it is for who asks.

use super::super::bytes::{filled, value_in};
use super::{Given, Litmus, Program, name};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::seed::Stream;
use crate::work::Work;
use braid_api::{Caller, FileSystem, HandleId, OpenFlags, Result, SetAttr};
use braid_model::objects::{SlotOp, Slots};
use braid_types::{InodeId, Mode};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Written and read.
const SLOTS: usize = 6;
/// What it is cut to. With large slots the last ones are in the second chunk.
const CUTS: [usize; 8] = [0, 1, 2, 3, 4, 5, 15, 17];
/// In even seeds, so that the first of them are inline and others lie over the borders of blocks; and in odd ones.
const SLOT_BYTES: [usize; 2] = [1000, 1 << 16];

pub struct Sizes {
    slot: usize,
    last: AtomicU64,
}

pub struct Opened {
    id: InodeId,
    both: HandleId,
    append: HandleId,
}

impl Sizes {
    pub fn work(seed: u64) -> Arc<dyn Work> {
        Litmus::of(Sizes { slot: SLOT_BYTES[(seed % 2) as usize], last: AtomicU64::new(0) })
    }

    fn new_value(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    fn at(&self, slot: usize) -> u64 {
        (slot * self.slot) as u64
    }
}

impl Program for Sizes {
    const BREAKS: Invariant = Invariant::BytesAreLinearizable;
    const TASKS: usize = 1;
    type Object = Slots;
    type Life = Opened;

    fn object(&self) -> Slots {
        Slots::default()
    }

    async fn open(&self, _: &Process, fs: &Mount) -> Result<Opened> {
        let (cx, flags) = (Caller::default(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let (entry, both) = fs.create(&cx, InodeId::ROOT, &name("slots"), Mode(0o644), flags).await?;
        let append =
            fs.open(&cx, entry.attr.id, OpenFlags { write: true, append: true, ..OpenFlags::default() }).await?;
        Ok(Opened { id: entry.attr.id, both: both.handle, append: append.handle })
    }

    fn draw(&self, _: usize, random: &mut Stream) -> SlotOp {
        let slot = random.random_range(0..SLOTS);
        match random.random_range(0..12) {
            0..3 => SlotOp::Write(slot, self.new_value()),
            3 | 4 => SlotOp::Append(self.new_value()),
            5 => SlotOp::Truncate(CUTS[random.random_range(0..CUTS.len())]),
            6 | 7 => SlotOp::Size,
            // Where what was appended lies.
            8 => SlotOp::Read(slot + SLOTS),
            _ => SlotOp::Read(slot),
        }
    }

    fn last(&self, _: usize) -> Vec<SlotOp> {
        [SlotOp::Size].into_iter().chain((0..2 * SLOTS).map(SlotOp::Read)).collect()
    }

    async fn perform(&self, process: &Process, fs: &Mount, life: &mut Opened, op: &SlotOp) -> Given<Option<u64>> {
        match *op {
            SlotOp::Write(slot, value) => {
                fs.write(life.both, self.at(slot), filled(value, self.slot).into()).await?;
                Ok(Ok(None))
            }
            SlotOp::Append(value) => {
                let given_up = || process.cluster.coverage.of("file given up for another mount");
                let before = given_up();
                fs.write(life.append, 0, filled(value, self.slot).into()).await?;
                process.cluster.coverage.add("append while its file was given up", given_up() - before);
                Ok(Ok(None))
            }
            SlotOp::Truncate(slots) => {
                let change = SetAttr { size: Some(self.at(slots)), ..SetAttr::default() };
                fs.set_attr(&Caller::default(), life.id, Some(life.both), change).await?;
                Ok(Ok(None))
            }
            SlotOp::Read(slot) => {
                let bytes = fs.read(life.both, self.at(slot), self.slot as u32).await?.concat();
                Ok(match bytes.is_empty() {
                    true => Ok(None),
                    false => value_in(&bytes, self.slot).map(Some),
                })
            }
            SlotOp::Size => {
                let size = fs.get_attr(&Caller::default(), life.id, None).await?.attr.size;
                let slots = size / self.slot as u64;
                Ok(match self.at(slots as usize) == size {
                    true => Ok(Some(slots)),
                    false => Err(format!("{size} bytes are no number of slots")),
                })
            }
        }
    }
}
