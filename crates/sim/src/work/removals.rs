//! Mounts that make files and remove them again in rows, so that names are removed before that is answered, and look for each other's names
//! meanwhile (docs/design/0029-removals-behind.md). Whoever looks after a removal has returned must not find the name, and whoever looks
//! before it has begun must. What a client that is lost was told of its own removals may be lost with it, but not what it has synced.

use super::durable::fail;
use super::{Task, Work};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::{Mount, mount};
use crate::machine::Machine;
use crate::seed::Stream;
use braid_api::{Caller, Code, FileSystem, NewNode, NodeKind, OpenFlags, Result};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const DIRS: usize = 2;
const ROW_MIN: usize = 7;
const ROW_MAX: usize = 20;
/// Between two rows, and between two looks.
const PAUSE_MS_MAX: u64 = 250;
const LOOK_MS_MAX: u64 = 30;
/// Between two removals of a row: mostly none.
const STEP_MS_MAX: u64 = 4;

type Place = (usize, String);

/// What became of a name, by moments of one counter.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    made: u64,
    removing: Option<u64>,
    told: Option<u64>,
    /// An fsync has returned since it was made, and since that was told.
    kept: bool,
    synced: bool,
    /// Whose it is.
    by: Option<(Machine, u64)>,
}

/// What is wrong if its remover has not lost what it was told: known when that syncs.
type Suspects = BTreeMap<Place, String>;

#[derive(Default)]
struct State {
    moment: u64,
    next: u64,
    files: BTreeMap<Place, File>,
    /// That its remover was told of last.
    last_told: Option<Place>,
    suspects: Suspects,
}

pub struct Removals {
    /// No client is lost, and no session of one.
    strict: bool,
    state: Mutex<State>,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

/// What is wrong with a look at the file that began and ended then.
fn wrong(file: &File, found: bool, (begun, ended): (u64, u64), strict: bool) -> Option<&'static str> {
    let was_gone = file.told.is_some_and(|told| told < begun);
    let must_be_gone = was_gone && (strict || file.synced);
    let was_there = (strict || file.kept) && file.made < begun && file.removing.is_none_or(|removing| ended < removing);
    match found {
        true if must_be_gone => Some("is found after its removal had returned"),
        false if was_there => Some("is not found although nobody has removed it"),
        _ => None,
    }
}

impl Removals {
    pub fn work(strict: bool) -> Arc<dyn Work> {
        Arc::new(Removals { strict, state: Mutex::default() })
    }

    async fn removes(self: Arc<Self>, process: Process, fs: Arc<Mount>, dirs: [InodeId; DIRS]) {
        let mut random = process.stream("removals");
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            if let Err(error) = self.row(&process, &fs, &dirs, &mut random).await {
                if self.strict || error.code != Code::SessionUnknown {
                    return fail(&process, &error);
                }
                process.cluster.coverage.count("client told that removals are lost");
            }
        }
    }

    /// Makes a row of files and removes them.
    async fn row(&self, process: &Process, fs: &Mount, dirs: &[InodeId; DIRS], random: &mut Stream) -> Result<()> {
        let cx = Caller::default();
        let (dir, count) = (random.random_range(0..DIRS), random.random_range(ROW_MIN..=ROW_MAX));
        let mut places = Vec::new();
        for _ in 0..count {
            let place = {
                let mut state = self.state.lock();
                state.next += 1;
                (dir, format!("n{}", state.next))
            };
            let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
            let (_, opened) = fs.create(&cx, dirs[dir], &name(&place.1), Mode(0o644), flags).await?;
            fs.release(opened.handle).await;
            let mut state = self.state.lock();
            let file = File { made: state.tick(), by: Some((process.machine, process.life)), ..File::default() };
            state.files.insert(place.clone(), file);
            places.push(place);
        }
        process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
        for place in &places {
            self.change(place, |file, now| file.removing = Some(now));
            process.note(format_args!("removes {place:?}"));
            match fs.unlink(&cx, dirs[dir], &name(&place.1)).await {
                // What made it was lost.
                Err(error) if !self.strict && error.code == Code::NotFound => {}
                done => done?,
            }
            process.note(format_args!("removed {place:?}"));
            self.change(place, |file, now| file.told = Some(now));
            self.state.lock().last_told = Some(place.clone());
            process.env.sleep(Duration::from_millis(random.random_range(0..STEP_MS_MAX))).await;
        }
        if random.random_range(0..3) == 0 {
            self.sync(process, fs).await?;
        }
        Ok(())
    }

    /// What was told before is there for good.
    async fn sync(&self, process: &Process, fs: &Mount) -> Result<()> {
        let mine: Vec<(Place, bool)> = {
            let state = self.state.lock();
            let mine = state.files.iter().filter(|(_, file)| file.by == Some((process.machine, process.life)));
            mine.map(|(place, file)| (place.clone(), file.told.is_some())).collect()
        };
        let synced = fs.sync_fs().await;
        for (place, told) in mine {
            self.change(&place, |file, _| match synced {
                Ok(()) => (file.kept, file.synced) = (true, file.synced || told),
                // Of all that it did not sync before, this client knows nothing any more.
                Err(_) => file.by = file.by.filter(|_| file.synced),
            });
            let suspect = if told { self.state.lock().suspects.remove(&place) } else { None };
            if let (Some(text), Ok(())) = (suspect, &synced) {
                process.cluster.around.failures.add(Invariant::NamesAreLinearizable, text);
            }
        }
        synced
    }

    fn change(&self, place: &Place, change: impl FnOnce(&mut File, u64)) {
        let mut state = self.state.lock();
        let now = state.tick();
        if let Some(file) = state.files.get_mut(place) {
            change(file, now);
        }
    }

    async fn looks(self: Arc<Self>, process: Process, fs: Arc<Mount>, dirs: [InodeId; DIRS]) {
        let mut random = process.stream("looks");
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..LOOK_MS_MAX))).await;
            let done = match random.random_range(0..4) {
                0 => self.list(&process, &fs, &dirs, random.random_range(0..DIRS)).await,
                _ => self.look(&process, &fs, &dirs, &mut random).await,
            };
            if let Err(error) = done {
                return fail(&process, &error);
            }
        }
    }

    /// At one name, of those that were made last or the one that was removed last.
    async fn look(&self, process: &Process, fs: &Mount, dirs: &[InodeId; DIRS], random: &mut Stream) -> Result<()> {
        let (place, begun) = {
            let mut state = self.state.lock();
            let newest = state.next.saturating_sub(random.random_range(0..24));
            let found = match random.random_range(0..2) {
                0 => state.files.keys().find(|(_, text)| *text == format!("n{newest}")).cloned(),
                _ => state.last_told.clone(),
            };
            (found, state.tick())
        };
        let Some(place) = place else { return Ok(()) };
        let found = fs.lookup(&Caller::default(), dirs[place.0], &name(&place.1)).await?.attr.is_some();
        let ended = self.state.lock().tick();
        self.judge(process, &place, found, (begun, ended));
        Ok(())
    }

    async fn list(&self, process: &Process, fs: &Mount, dirs: &[InodeId; DIRS], dir: usize) -> Result<()> {
        let begun = self.state.lock().tick();
        let handle = fs.open_dir(&Caller::default(), dirs[dir]).await?.handle;
        let (mut listed, mut at) = (BTreeSet::new(), 0);
        loop {
            let page = fs.read_dir(&Caller::default(), handle, at, 100, true).await?;
            let Some(last) = page.last() else { break };
            at = last.offset;
            listed.extend(page.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()));
        }
        fs.release(handle).await;
        let ended = self.state.lock().tick();
        let places: Vec<Place> = self.state.lock().files.keys().filter(|(of, _)| *of == dir).cloned().collect();
        for place in places {
            let found = listed.contains(&place.1);
            self.judge(process, &place, found, (begun, ended));
        }
        Ok(())
    }

    fn judge(&self, process: &Process, place: &Place, found: bool, when: (u64, u64)) {
        let Some(file) = self.state.lock().files.get(place).copied() else { return };
        if let Some(what) = wrong(&file, found, when, self.strict) {
            let who = process.machine.name();
            let text = format_args!("{place:?} {what}, by {who}: {file:?}, looked at {when:?}");
            process.cluster.around.failures.add(Invariant::NamesAreLinearizable, text);
        } else if let Some(what) = wrong(&file, found, when, true).filter(|_| found && file.by.is_some()) {
            let text = format!("{place:?} {what}, by {}, and was not lost: {file:?}, {when:?}", process.machine.name());
            self.state.lock().suspects.insert(place.clone(), text);
        }
    }

    async fn work_on(self: &Arc<Self>, process: &Process, fs: &Arc<Mount>) -> Result<()> {
        let dirs = dirs(fs).await?;
        let spawn = |task: Task| tokio::task::spawn_local(process.spawner.guard("removals", task));
        let tasks = [
            spawn(Box::pin(self.clone().removes(process.clone(), fs.clone(), dirs))),
            spawn(Box::pin(self.clone().looks(process.clone(), fs.clone(), dirs))),
        ];
        for task in tasks {
            let _ = task.await;
        }
        for dir in 0..DIRS {
            self.list(process, fs, &dirs, dir).await?;
        }
        process.cluster.coverage.add("name removed before that was answered", fs.stats().removed_behind);
        match fs.shutdown().await {
            Err(error) if self.strict || error.code != Code::SessionUnknown => Err(error),
            _ => Ok(()),
        }
    }
}

fn name(text: &str) -> Name {
    text.parse().expect("a short name")
}

async fn dirs(fs: &Mount) -> Result<[InodeId; DIRS]> {
    let mut dirs = [InodeId::ROOT; DIRS];
    for (number, dir) in dirs.iter_mut().enumerate() {
        let text = name(&format!("d{number}"));
        let node = NewNode { kind: NodeKind::Directory, mode: Mode(0o755) };
        *dir = match fs.make_node(&Caller::default(), InodeId::ROOT, &text, node).await {
            Ok(made) => made.attr.id,
            Err(error) if error.code == Code::Exists => {
                let found = fs.lookup(&Caller::default(), InodeId::ROOT, &text).await?.attr;
                found.ok_or(braid_api::Error::bare(Code::NotFound))?.id
            }
            Err(error) => return Err(error),
        };
    }
    Ok(dirs)
}

impl Work for Removals {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            let fs = mount(&process).await;
            if let Err(error) = self.work_on(&process, &fs).await {
                fail(&process, &error);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_after_a_removal_has_returned_is_wrong() {
        let file = File { made: 1, removing: Some(5), told: Some(6), ..File::default() };
        assert!(wrong(&file, true, (7, 8), true).is_some());
        assert!(wrong(&file, true, (5, 8), true).is_none(), "it began before");
        assert!(wrong(&file, false, (5, 8), true).is_none());
        assert!(wrong(&file, false, (2, 4), true).is_some(), "nobody had begun to remove it");
        assert!(wrong(&file, true, (7, 8), false).is_none(), "its client may be lost");
        let synced = File { synced: true, ..file };
        assert!(wrong(&synced, true, (7, 8), false).is_some(), "and what it has synced stays");
    }
}
