//! What programs on two mounts do to each other, as histories that must have one order (design.md §8): each mount runs two tasks of
//! one [`Program`], through crashes of servers and a network that fails.

mod ahead;
mod history;
mod listings;
mod locks;
mod mapped;
mod open;
mod rights;
mod sealed;
mod sizes;

pub use ahead::Ahead;
pub use listings::Listings;
pub use locks::Locks;
pub use mapped::Mapped;
pub use open::OpenFiles;
pub use rights::Rights;
pub use sealed::Sealed;
pub use sizes::Sizes;

use self::history::History;
use super::durable::fail;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Code, Result};
use braid_model::linear::Sequential;
use braid_types::Name;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Of each mount, where its program does not say otherwise.
pub(super) const TASKS: usize = 2;
/// Keeps the history short enough to be explained.
pub(super) const PAUSE_MS_MAX: u64 = 60;

/// What a call gave: an answer, or what no order of calls could give.
pub(super) type Given<T> = Result<std::result::Result<T, String>>;

/// A call of an object, and what it gave.
pub(super) type Called<O> = (<O as Sequential>::Op, <O as Sequential>::Answer);

/// Calls of one object.
pub(super) trait Program: 'static {
    const BREAKS: Invariant;
    /// Of each mount.
    const TASKS: usize = TASKS;
    type Object: Sequential<Op: Debug, Answer: Debug>;
    /// What one task has open.
    type Life;

    fn object(&self) -> Self::Object;

    /// Before anybody else does anything to the object, but for the same of others.
    fn open(&self, process: &Process, fs: &Mount) -> impl Future<Output = Result<Self::Life>>;

    /// Something to do. `who` counts the tasks of all mounts.
    fn draw(&self, who: usize, random: &mut Stream) -> <Self::Object as Sequential>::Op;

    /// To be looked at when no more faults come.
    fn last(&self, who: usize) -> Vec<<Self::Object as Sequential>::Op>;

    fn perform(
        &self,
        process: &Process,
        fs: &Mount,
        life: &mut Self::Life,
        op: &<Self::Object as Sequential>::Op,
    ) -> impl Future<Output = Given<<Self::Object as Sequential>::Answer>>;

    /// What it is to the object that a mount dies, and what that gives, where mounts do.
    fn death(&self, _mount: usize) -> Option<Called<Self::Object>> {
        None
    }
}

/// Runs a program on both mounts.
pub(super) struct Litmus<P: Program> {
    program: P,
    history: History<P::Object>,
    /// Of mounts that live. It may come at any time, and is known of when the next life begins.
    deaths: Mutex<BTreeMap<Machine, u64>>,
}

impl<P: Program> Litmus<P> {
    pub fn of(program: P) -> Arc<Self> {
        let history = History::new(program.object(), P::BREAKS);
        Arc::new(Litmus { program, history, deaths: Mutex::default() })
    }

    fn begins_to_live(&self, process: &Process) {
        let Some((op, answer)) = self.program.death(mount_of(process)) else { return };
        let mut deaths = self.deaths.lock();
        if let Some(last) = deaths.get(&process.machine) {
            self.history.end(process, *last, &op, &answer);
        }
        deaths.insert(process.machine, self.history.begin(process, &op));
    }

    async fn task(self: Arc<Self>, process: Process, fs: Arc<Mount>, number: usize) {
        let who = number_of(&process, number);
        let mut random = process.stream(&format!("litmus {number}"));
        let mut life = match self.program.open(&process, &fs).await {
            Ok(life) => life,
            Err(error) => return fail(&process, &error),
        };
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let op = self.program.draw(who, &mut random);
            self.once(&process, &fs, &mut life, op).await;
        }
        for op in self.program.last(who) {
            self.once(&process, &fs, &mut life, op).await;
        }
    }

    async fn once(&self, process: &Process, fs: &Mount, life: &mut P::Life, op: <P::Object as Sequential>::Op) {
        let id = self.history.begin(process, &op);
        match self.program.perform(process, fs, life, &op).await {
            Ok(Ok(answer)) => self.history.end(process, id, &op, &answer),
            Ok(Err(wrong)) => self.history.wrong(process, format_args!("{op:?}: {wrong}")),
            Err(error) => {
                let failures = &process.cluster.around.failures;
                failures.add(Invariant::OperationsSurviveFaults, format_args!("{op:?}: {error}"));
            }
        }
    }
}

/// Of a task, among those of all mounts.
pub(super) fn number_of(process: &Process, number: usize) -> usize {
    mount_of(process) * TASKS + number
}

fn mount_of(process: &Process) -> usize {
    Machine::CLIENTS.iter().position(|client| *client == process.machine).unwrap_or(0)
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

/// Runs `task` for each number on a mount, and leaves.
pub(super) async fn on_mount<T>(process: &Process, tasks: usize, task: impl Fn(Arc<Mount>, usize) -> T)
where
    T: Future<Output = ()> + 'static,
{
    let fs = mount(process).await;
    let tasks: Vec<_> = (0..tasks)
        .map(|number| tokio::task::spawn_local(process.spawner.guard("litmus", task(fs.clone(), number))))
        .collect();
    for task in tasks {
        let _ = task.await;
    }
    process.cluster.coverage.add("answer out of a mount's cache of names", fs.stats().cache_hits);
    // What was answered before it was durable goes with the metadata server and the session, if both end in one moment; this says so.
    let is_lost = |code| code == Code::SessionUnknown && process.cluster.settings.sessions_end;
    if let Err(error) = fs.shutdown().await
        && !is_lost(error.code)
    {
        fail(process, &error);
    }
}

impl<P: Program> Work for Litmus<P> {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            self.begins_to_live(&process);
            on_mount(&process, P::TASKS, |fs, number| self.clone().task(process.clone(), fs, number)).await;
        })
    }
}
