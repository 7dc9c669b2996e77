//! Mounts write files of one directory, by handles that cache and by such that do not, and make, rename and remove others, while somebody
//! makes snapshots of it, reads them again and again, and lets go of some (docs/design/0028-snapshots.md).
//!
//! A snapshot must be the state of one moment between its request and its answer, over all files and whoever wrote them ([`cut`]), and show the
//! same whenever it is read; the files themselves are what they would be without. In every other seed all is let go of and removed in the end, and
//! nothing may be left of it anywhere.

mod cut;
mod names;
mod picture;
mod takes;

use self::cut::{History, Life as Number, Taken};
use self::names::who_has;
use self::picture::{Picture, Sum, find, name};
use super::bytes::{ByteOp, PLACE_BYTES, Place, bytes_of, value_of};
use super::durable::fail;
use super::{Task, Work};
use crate::cluster::{Cluster, Process};
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Caller, Code, FileSystem, HandleId, NewNode, NodeKind, OpenFlags, Result};
use braid_meta_engine::Table;
use braid_model::linear::Linear;
use braid_types::{InodeId, Mode};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A file that all tasks write, and where.
struct Shared {
    name: &'static str,
    direct: bool,
    places: &'static [u64],
}

/// One that stays inline, one in two chunks, and one that several write at once; the last places are over the border of two chunks.
const FILES: [Shared; 3] = [
    Shared { name: "small", direct: false, places: &[0, 2000] },
    Shared { name: "large", direct: false, places: &[0, 8000, (1 << 20) - 300] },
    Shared { name: "direct", direct: true, places: &[0, 8000, 500_000, (1 << 20) - 300] },
];
/// Of each mount, that write the shared files.
const TASKS: usize = 2;
const PAUSE_MS_MAX: u64 = 60;
const RETRY: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    /// Of which file, and which of its places.
    Place(usize, usize),
    /// All names of a task.
    Names(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Tree(BTreeMap<String, Sum>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Kept,
    /// It is being let go of.
    Going,
}

struct Shot {
    by: Machine,
    state: State,
    taken: Taken,
    /// As it was read first.
    picture: Option<Picture>,
}

pub struct Snapshots {
    /// Then only what was synced is sure, and nobody has names of his own.
    clients_die: bool,
    /// All is removed in the end.
    clears: bool,
    /// And the files before the snapshots that have them.
    files_first: bool,
    history: Mutex<History<Cell, Value>>,
    places: BTreeMap<Cell, Mutex<Linear<Place>>>,
    shots: Mutex<BTreeMap<String, Shot>>,
    last_value: Mutex<u64>,
    last_life: Mutex<BTreeMap<Machine, Number>>,
    /// How far each has come at the end.
    phases: Mutex<BTreeMap<Machine, u8>>,
}

/// What a task of one life of a client has.
struct Life {
    process: Process,
    fs: Arc<Mount>,
    number: Number,
    dir: InodeId,
    random: Stream,
}

impl Life {
    async fn pause(&mut self, ms_max: u64) {
        let ms = self.random.random_range(0..ms_max);
        self.process.env.sleep(Duration::from_millis(ms)).await;
    }

    fn count(&self, what: &'static str) {
        self.process.cluster.coverage.count(what);
    }

    fn fail(&self, invariant: Invariant, text: impl std::fmt::Display) {
        let who = self.process.machine.name();
        self.process.cluster.around.failures.add(invariant, format_args!("{who}: {text}"));
    }

    fn task(&self, label: &str) -> Life {
        let random = self.process.stream(label);
        Life { process: self.process.clone(), fs: self.fs.clone(), number: self.number, dir: self.dir, random }
    }
}

fn client_of(machine: Machine) -> usize {
    Machine::CLIENTS.iter().position(|client| *client == machine).unwrap_or(0)
}

impl Snapshots {
    pub fn new(clients_die: bool, seed: u64) -> Arc<Self> {
        let (mut history, mut places) = (History::new(), BTreeMap::new());
        for (file, kind) in FILES.iter().enumerate() {
            for place in 0..kind.places.len() {
                history.add(Cell::Place(file, place), Value::Number(0));
                places.insert(Cell::Place(file, place), Mutex::new(Linear::new(Place::default())));
            }
        }
        for who in 0..Machine::CLIENTS.len() {
            history.add(Cell::Names(who), Value::Tree(BTreeMap::new()));
        }
        Arc::new(Snapshots {
            clients_die,
            clears: seed / 8 % 2 == 1,
            files_first: seed / 16 % 2 == 1,
            history: Mutex::new(history),
            places,
            shots: Mutex::default(),
            last_value: Mutex::default(),
            last_life: Mutex::default(),
            phases: Mutex::default(),
        })
    }

    /// A new life of this client; what the last had not synced may be gone.
    fn begins_to_live(&self, machine: Machine) -> Number {
        let (mut lives, mut history) = (self.last_life.lock(), self.history.lock());
        let number = lives.values().max().copied().unwrap_or(0) + 1;
        if let Some(last) = lives.insert(machine, number) {
            history.lose(last);
        }
        number
    }

    async fn write_and_read(&self, mut life: Life, handles: [HandleId; 3], task: usize) -> Result<()> {
        while !life.process.cluster.is_calm() {
            life.pause(PAUSE_MS_MAX).await;
            let file = life.random.random_range(0..FILES.len());
            // A call over two chunks is one for other mounts, not for the other task of its own: a mount that has the file to itself caches it
            // for every handle.
            let places = FILES[file].places.len() - usize::from(file > 0 && task != 0);
            let (cell, handle) = (Cell::Place(file, life.random.random_range(0..places)), handles[file]);
            match life.random.random_range(0..10) {
                0..6 => self.write(&life, cell, handle).await?,
                6 if self.clients_die => self.sync(&life, file, handle).await?,
                6 if life.random.random_bool(0.3) => life.fs.fsync(handle, false).await?,
                _ => self.read(&life, cell, handle).await?,
            }
        }
        for (cell, _) in self.places.iter().filter(|_| task == 0) {
            if let Cell::Place(file, _) = cell {
                self.read(&life, *cell, handles[*file]).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, life: &Life, cell: Cell, handle: HandleId) -> Result<()> {
        let value = {
            let mut last = self.last_value.lock();
            *last += 1;
            *last
        };
        life.process.note(format_args!("writes {value} to {cell:?}"));
        let number = self.history.lock().begin(&cell, Value::Number(value), life.number);
        let id = self.places[&cell].lock().begin(ByteOp::Write(value));
        life.fs.write(handle, offset_of(cell), bytes_of(value).into()).await?;
        self.history.lock().end(&cell, number);
        life.process.note(format_args!("has written {value} to {cell:?}"));
        if !self.clients_die && !self.places[&cell].lock().end(id, &None) {
            life.fail(
                Invariant::BytesAreLinearizable,
                format_args!("nothing explains the write of {value} to {cell:?}"),
            );
        }
        Ok(())
    }

    async fn read(&self, life: &Life, cell: Cell, handle: HandleId) -> Result<()> {
        let id = self.places[&cell].lock().begin(ByteOp::Read);
        let bytes = life.fs.read(handle, offset_of(cell), PLACE_BYTES as u32).await?.concat();
        life.process.note(format_args!("reads {:?} from {cell:?}", value_of(&bytes)));
        let text = match value_of(&bytes) {
            // What a client had not stored when it died is gone, or there in part, which no order explains.
            _ if self.clients_die => return Ok(()),
            Ok(value) if self.places[&cell].lock().end(id, &Some(value)) => return Ok(()),
            Ok(value) => format!("nothing explains {value} in {cell:?}"),
            Err(mixture) => format!("{cell:?} is {mixture}"),
        };
        life.fail(Invariant::BytesAreLinearizable, text);
        Ok(())
    }

    async fn sync(&self, life: &Life, file: usize, handle: HandleId) -> Result<()> {
        let begun = self.history.lock().now();
        life.fs.fsync(handle, false).await?;
        life.process.note(format_args!("has synced file {file}"));
        let of_it = |cell: &Cell| matches!(cell, Cell::Place(of, _) if *of == file);
        self.history.lock().make_sure(of_it, life.number, begun);
        Ok(())
    }

    /// The directory and the one below it, whoever makes them first.
    async fn directory(&self, process: &Process, fs: &Mount) -> Result<InodeId> {
        let mut at = InodeId::ROOT;
        for text in ["d", "sub"] {
            let node = NewNode { kind: NodeKind::Directory, mode: Mode::new(0o755) };
            match fs.make_node(&Caller::default(), at, &name(text), node).await {
                Err(error) if error.code != Code::Exists => return Err(error),
                _ => {}
            }
            if text == "d" {
                while find(fs, at, &[text]).await?.is_none() {
                    process.env.sleep(RETRY).await;
                }
                at = find(fs, at, &[text]).await?.map_or(at, |attr| attr.id);
            }
        }
        Ok(at)
    }

    async fn opened(&self, fs: &Mount, dir: InodeId) -> Result<[HandleId; 3]> {
        let mut handles = [HandleId(0); 3];
        for (handle, file) in handles.iter_mut().zip(&FILES) {
            let flags = OpenFlags { read: true, write: true, direct: file.direct, ..OpenFlags::default() };
            *handle = fs.create(&Caller::default(), dir, &name(file.name), Mode::new(0o644), flags).await?.1.handle;
        }
        Ok(handles)
    }

    /// Until all have come as far.
    async fn meet(&self, life: &Life, phase: u8) {
        self.phases.lock().insert(life.process.machine, phase);
        let has_come = |phases: &BTreeMap<Machine, u8>| {
            phases.len() == Machine::CLIENTS.len() && phases.values().all(|come| *come >= phase)
        };
        while !has_come(&self.phases.lock()) {
            life.process.env.sleep(LOOK).await;
        }
    }

    async fn live(self: &Arc<Self>, process: &Process, fs: &Arc<Mount>) -> Result<()> {
        let number = self.begins_to_live(process.machine);
        let dir = self.directory(process, fs).await?;
        let random = process.stream("snapshots");
        let life = Life { process: process.clone(), fs: fs.clone(), number, dir, random };
        let handles = self.opened(fs, dir).await?;
        let mut tasks = Vec::new();
        for task in 0..TASKS {
            let (work, life) = (self.clone(), life.task(&format!("bytes {task}")));
            tasks.push(spawned(process, async move { work.write_and_read(life, handles, task).await }));
        }
        if !self.clients_die {
            let (work, life) = (self.clone(), life.task("names"));
            let who = client_of(process.machine);
            tasks.push(spawned(process, async move { work.names(life, who).await }));
        }
        let (work, takes) = (self.clone(), life.task("takes"));
        tasks.push(spawned(process, async move { work.take_and_let_go(takes).await }));
        for task in tasks {
            let _ = task.await;
        }
        for handle in handles {
            fs.flush(handle).await?;
            fs.release(handle).await;
        }
        self.end(&life).await
    }

    /// Everybody has stopped writing.
    async fn end(&self, life: &Life) -> Result<()> {
        let is_first = client_of(life.process.machine) == 0;
        self.meet(life, 1).await;
        if is_first {
            self.take(life, "last").await;
        }
        self.meet(life, 2).await;
        let all: Vec<String> = self.shots.lock().keys().cloned().collect();
        for text in &all {
            self.look(life, text).await?;
        }
        let now = Picture::of(&life.fs, life.dir).await?;
        let last = self.shots.lock().get("last").and_then(|shot| shot.picture.clone());
        if let Some(last) = last.filter(|last| *last != now) {
            let text = format_args!("of what nobody has written since: {:?}", last.differs(&now));
            life.fail(Invariant::SnapshotsAreOfOneMoment, text);
        }
        self.meet(life, 3).await;
        if !is_first || !self.clears {
            return Ok(());
        }
        if self.files_first {
            self.remove_files(life).await?;
            for text in &all {
                self.look(life, text).await?;
            }
        }
        for text in &all {
            self.let_go(life, text).await?;
        }
        if !self.files_first {
            self.remove_files(life).await?;
        }
        life.fs.remove_dir(&Caller::default(), InodeId::ROOT, &name("d")).await
    }

    async fn remove_files(&self, life: &Life) -> Result<()> {
        let cx = Caller::default();
        for path in [&["sub"][..], &[]] {
            let dir = match path.is_empty() {
                true => life.dir,
                false => find(&life.fs, life.dir, path).await?.map_or(life.dir, |attr| attr.id),
            };
            for text in picture::files_in(&life.fs, dir).await? {
                life.fs.unlink(&cx, dir, &text).await?;
            }
        }
        life.fs.remove_dir(&cx, life.dir, &name("sub")).await
    }
}

fn offset_of(cell: Cell) -> u64 {
    match cell {
        Cell::Place(file, place) => FILES[file].places[place],
        Cell::Names(_) => 0,
    }
}

/// Errors are failures, once.
fn spawned(process: &Process, task: impl Future<Output = Result<()>> + 'static) -> tokio::task::JoinHandle<()> {
    let of = process.clone();
    let told = async move {
        if let Err(error) = task.await {
            fail(&of, &error);
        }
    };
    tokio::task::spawn_local(process.spawner.guard("snapshots", told))
}

impl Work for Snapshots {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let fs = mount(&process).await;
            let lived = self.live(&process, &fs).await;
            let ended = fs.shutdown().await;
            if let Err(error) = lived.and(ended) {
                fail(&process, &error);
            }
        })
    }

    fn waits_for(&self) -> String {
        let shots = self.shots.lock();
        let open: Vec<_> = shots.iter().filter(|(_, shot)| shot.state != State::Kept).map(|(text, _)| text).collect();
        format!("phases {:?}; not settled: {open:?}", self.phases.lock())
    }

    fn check(&self, cluster: &Cluster) {
        if !self.clears {
            return;
        }
        for table in [Table::OldRows, Table::Chunks, Table::InlineSmall, Table::InlineLarge] {
            let left: Vec<_> = cluster.meta_store.durable_rows(table).into_iter().map(|(key, _)| key).collect();
            if !left.is_empty() {
                let text = format_args!("everything was removed, and {table:?} has {left:?}");
                cluster.around.failures.add(Invariant::RowsAgree, text);
            }
        }
    }
}
