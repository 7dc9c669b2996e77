//! Mounts that make, link, rename, remove, look up and list files and directories in two directories that all of them work in, or directories
//! in directories that they move into each other: the answers must have one order (design.md §8 *Linearizable metadata*), through lost answers and crashes of metadata servers.

use super::litmus::on_mount;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use braid_api::{Caller, Code, Error, FileSystem, NewNode, NodeKind, Result};
use braid_model::linear::{Linear, TooMany};
use braid_model::objects::Plays;
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;

const TASKS: usize = 2;
/// Keeps the history short enough to be explained; calls take a few milliseconds each.
const PAUSE_MS_MAX: u64 = 80;

pub struct Tree<P: Plays> {
    play: P,
    /// Nothing: too much happened at once for a verdict.
    linear: Mutex<Option<Linear<P::Object>>>,
}

impl<P: Plays> Tree<P> {
    pub fn new() -> Arc<Self> {
        let linear = Mutex::new(Some(Linear::new(P::Object::default())));
        Arc::new(Tree { play: P::default(), linear })
    }

    async fn task(self: Arc<Self>, process: Process, fs: Arc<Mount>, number: usize) {
        let failures = &process.cluster.around.failures;
        let dirs = match (made(&fs, "a").await, made(&fs, "b").await) {
            (Ok(a), Ok(b)) => [a, b],
            (Err(error), _) | (_, Err(error)) => {
                return failures.add(Invariant::OperationsSurviveFaults, format_args!("directories: {error}"));
            }
        };
        let mut random = process.stream(&format!("tree {number}"));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let op = self.play.draw(|sides| random.random_range(0..sides));
            process.note(format_args!("{op:?}"));
            let id = self.linear.lock().as_mut().map(|linear| linear.begin(op));
            let (answer, why) = match self.play.perform(&*fs, dirs, op).await {
                Ok(answer) => answer,
                Err(error) => {
                    return failures.add(Invariant::OperationsSurviveFaults, format_args!("{op:?}: {error}"));
                }
            };
            process.note(format_args!("{op:?}: {answer:?} {why:?}"));
            if why == Some(Code::Invalid) {
                process.cluster.coverage.count("move of a directory into itself refused");
            }
            let mut judged = self.linear.lock();
            let (Some(linear), Some(id)) = (&mut *judged, id) else { continue };
            match P::SEARCH()(linear, id, &answer) {
                Ok(true) => process.cluster.coverage.count("answer about a tree explained"),
                Ok(false) => {
                    let who = process.machine.name();
                    let text = format_args!("nothing explains that {op:?} on {who} gave {answer:?} {why:?}");
                    failures.add(Invariant::NamesAreLinearizable, text);
                    return;
                }
                Err(TooMany) => {
                    process.cluster.coverage.count("tree without a verdict");
                    *judged = None;
                }
            }
        }
    }
}

async fn made(fs: &Mount, text: &str) -> Result<InodeId> {
    let (cx, name) = (Caller::default(), Name::new(text.as_bytes()).map_err(|_| Error::bare(Code::Invalid))?);
    let node = NewNode { kind: NodeKind::Directory, mode: Mode::new(0o755) };
    match fs.make_node(&cx, InodeId::ROOT, &name, node).await {
        Ok(made) => Ok(made.attr.id),
        Err(error) if error.code == Code::Exists => {
            let found = fs.lookup(&cx, InodeId::ROOT, &name).await?.attr;
            found.map(|attr| attr.id).ok_or(Error::bare(Code::NotFound))
        }
        Err(error) => Err(error),
    }
}

impl<P: Plays> Work for Tree<P> {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            on_mount(&process, TASKS, |fs, number| self.clone().task(process.clone(), fs, number)).await;
        })
    }
}
