//! Clients, the smallest there can be or mounts that cache, that create, remove, rename and look up few names in few directories, each with two tasks: the answers must
//! have one order (design.md §8 *Linearizable metadata*), through lost answers and crashes of the metadata server.

use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, Native, mount};
use crate::machine::Machine;
use braid_api::meta::{CreateFile, Lookup, MakeNode, NodeSpec, Rename, RenameKind, Unlink};
use braid_api::{Caller, Code, Error, FileSystem, NewNode, NodeKind, OpenFlags, RenameMode, Result};
use braid_model::linear::{Linear, Sequential};
use braid_types::{DeviceId, FileKind, InodeId, Mode, Name};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const DIRS: usize = 2;
const NAMES: u8 = 6;
const TASKS: u64 = 2;
/// Keeps the history short enough to be explained; calls take a few milliseconds each.
const PAUSE_MS_MAX: u64 = 60;

#[derive(Clone, Copy, Debug)]
pub enum NameOp {
    /// O_EXCL, of a file that this owner tells apart from all others.
    Create(u8, u32),
    Unlink(u8),
    Rename(u8, u8),
    Exchange(u8, u8),
    Lookup(u8),
    /// The same by its path from the root, of which a mount keeps what it learns.
    Find(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameAnswer {
    Done,
    Exists,
    NotFound,
    /// The owner of what has the name.
    Found(Option<u32>),
}

/// Who has which name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owners(BTreeMap<u8, u32>);

impl Sequential for Owners {
    type Op = NameOp;
    type Answer = NameAnswer;

    fn apply(&mut self, op: &NameOp) -> NameAnswer {
        let Owners(names) = self;
        match *op {
            NameOp::Create(name, _) if names.contains_key(&name) => NameAnswer::Exists,
            NameOp::Create(name, owner) => {
                names.insert(name, owner);
                NameAnswer::Done
            }
            NameOp::Unlink(name) => names.remove(&name).map_or(NameAnswer::NotFound, |_| NameAnswer::Done),
            NameOp::Rename(from, to) => match names.get(&from).copied() {
                Some(owner) => {
                    names.remove(&from);
                    names.insert(to, owner);
                    NameAnswer::Done
                }
                None => NameAnswer::NotFound,
            },
            NameOp::Exchange(a, b) => match (names.get(&a).copied(), names.get(&b).copied()) {
                (Some(owner_a), Some(owner_b)) => {
                    names.insert(a, owner_b);
                    names.insert(b, owner_a);
                    NameAnswer::Done
                }
                _ => NameAnswer::NotFound,
            },
            NameOp::Lookup(name) | NameOp::Find(name) => NameAnswer::Found(names.get(&name).copied()),
        }
    }
}

/// Who makes the calls.
#[derive(Clone)]
enum Client {
    /// What it finds is the metadata server's doing alone.
    Native(Arc<Native>),
    /// What it finds may come out of its cache.
    Mount(Arc<Mount>),
}

pub struct Names {
    mounts: bool,
    linear: Mutex<Linear<Owners>>,
    next_owner: Mutex<u32>,
    /// Under way, and whose they are.
    lookups: Mutex<BTreeMap<u64, (Machine, u64)>>,
}

impl Names {
    pub fn new(mounts: bool) -> Arc<Self> {
        Arc::new(Names {
            mounts,
            linear: Mutex::new(Linear::new(Owners::default())),
            next_owner: Mutex::new(0),
            lookups: Mutex::default(),
        })
    }

    /// Lookups of dead processes explain nothing and only make the search longer.
    fn forget_lookups_before(&self, machine: Machine, life: u64) {
        let mut lookups = self.lookups.lock();
        let dead: Vec<u64> =
            lookups.iter().filter(|(_, by)| by.0 == machine && by.1 < life).map(|(id, _)| *id).collect();
        for id in dead {
            lookups.remove(&id);
            self.linear.lock().forget(id);
        }
    }

    fn draw(&self, random: &mut crate::seed::Stream) -> NameOp {
        let mut name = || random.random_range(0..NAMES);
        let (a, b) = (name(), name());
        match random.random_range(0..10) {
            0..3 => {
                let mut next = self.next_owner.lock();
                *next += 1;
                NameOp::Create(a, *next)
            }
            3..5 => NameOp::Unlink(a),
            5..7 => NameOp::Rename(a, b),
            7 => NameOp::Exchange(a, b),
            8 if self.mounts => NameOp::Find(a),
            _ => NameOp::Lookup(a),
        }
    }

    async fn task(self: Arc<Self>, process: Process, client: Client, dirs: [InodeId; DIRS], number: u64) {
        let mut random = process.stream(&format!("names {number}"));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            let op = self.draw(&mut random);
            self.once(&process, &client, &dirs, op).await;
        }
        for name in 0..NAMES {
            self.once(&process, &client, &dirs, NameOp::Lookup(name)).await;
            self.once(&process, &client, &dirs, NameOp::Find(name)).await;
        }
    }

    async fn once(&self, process: &Process, client: &Client, dirs: &[InodeId; DIRS], op: NameOp) {
        process.note(format_args!("{op:?}"));
        let id = self.linear.lock().begin(op);
        if matches!(op, NameOp::Lookup(_) | NameOp::Find(_)) {
            self.lookups.lock().insert(id, (process.machine, process.life));
        }
        let answer = match client.perform(dirs, op).await {
            Ok(answer) => answer,
            Err(error) => {
                process
                    .cluster
                    .around
                    .failures
                    .add(Invariant::OperationsSurviveFaults, format_args!("{op:?}: {error}"));
                return;
            }
        };
        process.note(format_args!("{op:?}: {answer:?}"));
        self.lookups.lock().remove(&id);
        if !self.linear.lock().end(id, &answer) {
            let text = format_args!("nothing explains that {op:?} on {} gave {answer:?}", process.machine.name());
            process.cluster.around.failures.add(Invariant::NamesAreLinearizable, text);
        }
    }
}

fn spec(kind: FileKind, uid: u32) -> NodeSpec {
    NodeSpec { kind, mode: Mode::new(0o755), umask: 0, uid, gid: 0, rdev: DeviceId(0), target: Bytes::new() }
}

fn dir_name(number: usize) -> Name {
    Name::new(format!("d{number}").as_bytes()).expect("a short name")
}

/// The directory and the name in it.
fn place(dirs: &[InodeId; DIRS], name: u8) -> (InodeId, Name) {
    let text = format!("n{}", usize::from(name) / DIRS);
    (dirs[usize::from(name) % DIRS], Name::new(text.as_bytes()).expect("a short name"))
}

async fn make_dirs(client: &Native) -> Result<[InodeId; DIRS]> {
    let mut dirs = [InodeId::ROOT; DIRS];
    for (number, dir) in dirs.iter_mut().enumerate() {
        let (parent, name) = (InodeId::ROOT, dir_name(number));
        let make = MakeNode { parent: parent.into(), name: name.clone(), spec: spec(FileKind::Directory, 0) };
        match client.call(make).await {
            Ok(made) => *dir = made.attr.id,
            Err(error) if error.code == Code::Exists => {
                let found = client.call(Lookup { parent, name }).await?.attr;
                *dir = found.ok_or(Error::bare(Code::NotFound))?.id;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(dirs)
}

async fn perform(client: &Native, dirs: &[InodeId; DIRS], op: NameOp) -> Result<NameAnswer> {
    let done = match op {
        NameOp::Create(name, uid) => {
            let (parent, name) = place(dirs, name);
            let spec = spec(FileKind::File, uid);
            let create =
                CreateFile { parent: parent.into(), name, spec, exclusive: true, truncate: false, write: true };
            client.call(create).await.map(drop)
        }
        NameOp::Unlink(name) => {
            let (parent, name) = place(dirs, name);
            client.call(Unlink { parent: parent.into(), name, open_here: false }).await.map(drop)
        }
        NameOp::Rename(a, b) | NameOp::Exchange(a, b) => {
            let mode = if matches!(op, NameOp::Rename(..)) { RenameKind::Replace } else { RenameKind::Exchange };
            let ((from, from_name), (to, to_name)) = (place(dirs, a), place(dirs, b));
            let (from, to) = (from.into(), to.into());
            client.call(Rename { from, from_name, to, to_name, mode, open_here: false }).await.map(drop)
        }
        NameOp::Lookup(name) | NameOp::Find(name) => {
            let (parent, name) = place(dirs, name);
            let found = client.call(Lookup { parent, name }).await?;
            return Ok(NameAnswer::Found(found.attr.map(|attr| attr.uid)));
        }
    };
    answer_of(done)
}

fn answer_of(done: Result<()>) -> Result<NameAnswer> {
    match done {
        Ok(()) => Ok(NameAnswer::Done),
        Err(error) if error.code == Code::Exists => Ok(NameAnswer::Exists),
        Err(error) if error.code == Code::NotFound => Ok(NameAnswer::NotFound),
        Err(error) => Err(error),
    }
}

fn caller(uid: u32) -> Caller {
    Caller { uid, ..Caller::default() }
}

async fn mount_dirs(client: &Mount) -> Result<[InodeId; DIRS]> {
    let mut dirs = [InodeId::ROOT; DIRS];
    for (number, dir) in dirs.iter_mut().enumerate() {
        let (parent, name) = (InodeId::ROOT, dir_name(number));
        let node = NewNode { kind: NodeKind::Directory, mode: Mode::new(0o755) };
        match client.make_node(&caller(0), parent, &name, node).await {
            Ok(made) => *dir = made.attr.id,
            Err(error) if error.code == Code::Exists => {
                let found = client.lookup(&caller(0), parent, &name).await?.attr;
                *dir = found.ok_or(Error::bare(Code::NotFound))?.id;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(dirs)
}

async fn perform_mounted(client: &Mount, dirs: &[InodeId; DIRS], op: NameOp) -> Result<NameAnswer> {
    let cx = caller(0);
    let done = match op {
        NameOp::Create(name, uid) => {
            let (parent, name) = place(dirs, name);
            let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
            match client.create(&caller(uid), parent, &name, Mode::new(0o755), flags).await {
                Ok((_, opened)) => {
                    client.release(opened.handle).await;
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        NameOp::Unlink(name) => {
            let (parent, name) = place(dirs, name);
            client.unlink(&cx, parent, &name).await
        }
        NameOp::Rename(a, b) | NameOp::Exchange(a, b) => {
            let mode = if matches!(op, NameOp::Rename(..)) { RenameMode::Replace } else { RenameMode::Exchange };
            let ((from, from_name), (to, to_name)) = (place(dirs, a), place(dirs, b));
            client.rename(&cx, (from, &from_name), (to, &to_name), mode).await
        }
        NameOp::Lookup(name) => {
            let (parent, name) = place(dirs, name);
            let found = client.lookup(&cx, parent, &name).await?;
            return Ok(NameAnswer::Found(found.attr.map(|attr| attr.uid)));
        }
        NameOp::Find(name) => {
            let path = [dir_name(usize::from(name) % DIRS), place(dirs, name).1];
            return match client.stat(InodeId::ROOT, &path).await {
                Ok(attr) => Ok(NameAnswer::Found(Some(attr.uid))),
                Err(error) if error.code == Code::NotFound => Ok(NameAnswer::Found(None)),
                Err(error) => Err(error),
            };
        }
    };
    answer_of(done)
}

impl Client {
    async fn start(process: &Process, mounts: bool) -> Client {
        match mounts {
            true => Client::Mount(mount(process).await),
            false => Client::Native(Native::start(process).await),
        }
    }

    async fn dirs(&self) -> Result<[InodeId; DIRS]> {
        match self {
            Client::Native(client) => make_dirs(client).await,
            Client::Mount(client) => mount_dirs(client).await,
        }
    }

    async fn perform(&self, dirs: &[InodeId; DIRS], op: NameOp) -> Result<NameAnswer> {
        match self {
            Client::Native(client) => perform(client, dirs, op).await,
            Client::Mount(client) => perform_mounted(client, dirs, op).await,
        }
    }

    /// Leaves, and says how often it answered out of its cache.
    async fn close(&self) -> Result<u64> {
        match self {
            Client::Native(client) => client.close().await.map(|()| 0),
            Client::Mount(client) => client.shutdown().await.map(|()| client.stats().cache_hits),
        }
    }
}

impl Work for Names {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            self.forget_lookups_before(process.machine, process.life);
            let client = Client::start(&process, self.mounts).await;
            let dirs = match client.dirs().await {
                Ok(dirs) => dirs,
                Err(error) => return process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, error),
            };
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let task = self.clone().task(process.clone(), client.clone(), dirs, number);
                    tokio::task::spawn_local(process.spawner.guard("names", task))
                })
                .collect();
            for task in tasks {
                let _ = task.await;
            }
            match client.close().await {
                Ok(hits) => process.cluster.coverage.add("answer out of a mount's cache of names", hits),
                Err(error) => {
                    let text = format_args!("close: {error}");
                    process.cluster.around.failures.add(Invariant::OperationsSurviveFaults, text);
                }
            }
        })
    }
}
