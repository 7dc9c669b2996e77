//! Both clients write, cut and read the same few files at once, and open them anew for every few calls. What a read shows
//! meanwhile is checked by `bytes`; here no call may fail, no session may end, and when both have closed, both see the same.

use super::durable::leave;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Caller, FileSystem, OpenFlags, Result, SetAttr};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const FILES: u8 = 3;
const PAUSE_MS_MAX: u64 = 40;
const OFFSETS: [u64; 5] = [0, 3000, 60_000, (1 << 20) - 2000, (1 << 20) + 5000];
const SIZES: [u64; 4] = [0, 2000, 40_000, (1 << 20) + 100];
const READ_MAX: u32 = 4 << 20;

#[derive(Default)]
pub struct Shared {
    /// Who has closed everything.
    closed: Mutex<BTreeSet<Machine>>,
    /// What the first to look saw.
    seen: Mutex<BTreeMap<u8, Vec<u8>>>,
}

fn name(number: u8) -> Name {
    Name::new(format!("both-{number}").as_bytes()).expect("a short name")
}

impl Shared {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    async fn play(&self, process: &Process, fs: &Mount, random: &mut Stream) -> Result<()> {
        while !process.cluster.is_calm() {
            self.session_with(random.random_range(0..FILES), process, fs, random).await?;
        }
        fs.sync_fs().await?;
        self.closed.lock().insert(process.machine);
        while self.closed.lock().len() < Machine::CLIENTS.len() {
            pause(process, random).await;
        }
        for number in 0..FILES {
            self.compare(process, fs, number).await?;
        }
        Ok(())
    }

    async fn session_with(&self, number: u8, process: &Process, fs: &Mount, random: &mut Stream) -> Result<()> {
        let (cx, flags) = (Caller::default(), OpenFlags { read: true, write: true, ..OpenFlags::default() });
        let (entry, opened) = fs.create(&cx, InodeId::ROOT, &name(number), Mode(0o644), flags).await?;
        for _ in 0..random.random_range(1..8) {
            match random.random_range(0..8) {
                0..5 => {
                    let offset = OFFSETS[random.random_range(0..OFFSETS.len())];
                    let bytes = vec![random.random_range(1..=255u8); random.random_range(1..9000)];
                    process.note(format_args!("file {number}: {} bytes at {offset}", bytes.len()));
                    fs.write(opened.handle, offset, bytes.into()).await?;
                }
                5 | 6 => {
                    let size = SIZES[random.random_range(0..SIZES.len())];
                    process.note(format_args!("file {number}: truncate to {size}"));
                    let change = SetAttr { size: Some(size), ..SetAttr::default() };
                    fs.set_attr(&cx, entry.attr.id, Some(opened.handle), change).await?;
                }
                _ => drop(fs.read(opened.handle, 0, READ_MAX).await?),
            }
            pause(process, random).await;
        }
        fs.flush(opened.handle).await?;
        fs.release(opened.handle).await;
        Ok(())
    }

    async fn compare(&self, process: &Process, fs: &Mount, number: u8) -> Result<()> {
        let cx = Caller::default();
        let Some(attr) = fs.lookup(&cx, InodeId::ROOT, &name(number)).await?.attr else { return Ok(()) };
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = fs.open(&cx, attr.id, flags).await?.handle;
        let content = fs.read(handle, 0, READ_MAX).await?.concat();
        fs.release(handle).await;
        let first = self.seen.lock().entry(number).or_insert_with(|| content.clone()).clone();
        if first != content {
            let at = first.iter().zip(&content).position(|(a, b)| a != b);
            let text = format!(
                "clients see {} and {} bytes of file {number}, first difference {at:?}",
                first.len(),
                content.len()
            );
            process.cluster.around.failures.add(Invariant::CloseToOpen, text);
        }
        Ok(())
    }
}

async fn pause(process: &Process, random: &mut Stream) {
    process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
}

impl Work for Shared {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let (fs, mut random) = (mount(&process).await, process.stream("shared"));
            let played = self.play(&process, &fs, &mut random).await;
            leave(&process, &fs, played).await;
        })
    }

    fn waits_for(&self) -> String {
        format!("have closed: {:?}", self.closed.lock())
    }
}
