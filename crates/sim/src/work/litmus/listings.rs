//! A directory is listed, in pages of one name or of many, while names in it come and go. POSIX leaves open whether what changes meanwhile is
//! listed. What is there from before a listing begins until it has ended is listed once, and what is not there all the time is not.

use super::{PAUSE_MS_MAX, TASKS, name, number_of, on_mount};
use crate::cluster::Process;
use crate::failures::Invariant;
use crate::host::Mount;
use crate::seed::Stream;
use crate::work::durable::fail;
use crate::work::{Task, Work};
use braid_api::{Caller, DirEntry, FileSystem, OpenFlags, Result};
use braid_types::{InodeId, Mode, Name};
use parking_lot::Mutex;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Of each task: nobody else makes or removes them, so that it is known when they are there.
const NAMES: usize = 7;
const PAGES: [usize; 4] = [1, 3, 10, 100];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    file: Option<InodeId>,
    /// It is being made or removed.
    changes: bool,
    /// So often so far.
    changed: u64,
}

type Names = BTreeMap<Name, State>;

#[derive(Default)]
pub struct Listings {
    names: Mutex<Names>,
}

/// What is wrong with a listing, before and after which the names were these.
fn wrong(before: &Names, after: &Names, listed: &[(Name, InodeId)]) -> Option<String> {
    for (name, state) in after {
        let has_stayed = !state.changes && before.get(name).copied().unwrap_or_default() == *state;
        let found: Vec<InodeId> = listed.iter().filter(|(other, _)| other == name).map(|(_, id)| *id).collect();
        let expected: Vec<InodeId> = state.file.into_iter().collect();
        if has_stayed && found != expected {
            return Some(format!("{name:?} is {expected:?} and is listed as {found:?}"));
        }
    }
    let unknown = listed.iter().find(|(name, _)| !after.contains_key(name));
    unknown.map(|(name, id)| format!("{name:?} is listed as {id:?}, and was never there"))
}

impl Listings {
    pub fn work() -> Arc<dyn Work> {
        Arc::new(Listings::default())
    }

    /// Makes the name, or removes it.
    async fn change(&self, process: &Process, fs: &Mount, name: &Name) -> Result<()> {
        let cx = Caller::default();
        let file = {
            let mut names = self.names.lock();
            let state = names.entry(name.clone()).or_default();
            (state.changes, state.changed) = (true, state.changed + 1);
            state.file
        };
        process.note(format_args!("changes {name:?}, which is {file:?}"));
        let file = match file {
            Some(_) => {
                fs.unlink(&cx, InodeId::ROOT, name).await?;
                None
            }
            None => {
                let flags = OpenFlags { write: true, exclusive: true, ..OpenFlags::default() };
                let (entry, opened) = fs.create(&cx, InodeId::ROOT, name, Mode(0o644), flags).await?;
                fs.release(opened.handle).await;
                Some(entry.attr.id)
            }
        };
        process.note(format_args!("{name:?} is {file:?}"));
        let changed = self.names.lock().get(name).map_or(0, |state| state.changed);
        self.names.lock().insert(name.clone(), State { file, changes: false, changed });
        Ok(())
    }

    async fn list(&self, process: &Process, fs: &Mount, random: &mut Stream) -> Result<()> {
        let (limit, plus) = (PAGES[random.random_range(0..PAGES.len())], random.random_bool(0.5));
        let cx = Caller::default();
        let before = self.names.lock().clone();
        process.note(format_args!("lists, {limit} at once"));
        let handle = fs.open_dir(&cx, InodeId::ROOT).await?.handle;
        let (mut listed, mut offset, mut changed_between) = (Vec::new(), 0, false);
        loop {
            let page: Vec<DirEntry> = fs.read_dir(&cx, handle, offset, limit, plus).await?;
            let Some(last) = page.last() else { break };
            offset = last.offset;
            listed.extend(page.into_iter().map(|entry| (entry.name, entry.id)));
            changed_between |= *self.names.lock() != before;
        }
        fs.release(handle).await;
        process.note(format_args!("listed {listed:?}"));
        let after = self.names.lock().clone();
        if changed_between {
            process.cluster.coverage.count("directory changed between two pages of its listing");
        }
        if let Some(wrong) = wrong(&before, &after, &listed) {
            let text = format_args!("{}, {limit} at once: {wrong}", process.machine.name());
            process.cluster.around.failures.add(Invariant::ListingsAreWhole, text);
        }
        Ok(())
    }

    async fn play(&self, process: &Process, fs: &Mount, number: usize) -> Result<()> {
        let (who, mut random) = (number_of(process, number), process.stream(&format!("listings {number}")));
        while !process.cluster.is_calm() {
            process.env.sleep(Duration::from_millis(random.random_range(0..PAUSE_MS_MAX))).await;
            match random.random_range(0..3) {
                0 => self.list(process, fs, &mut random).await?,
                _ => {
                    let at = random.random_range(0..NAMES);
                    self.change(process, fs, &name(&format!("w{who}-{at}"))).await?;
                }
            }
        }
        self.list(process, fs, &mut random).await
    }

    async fn task(self: Arc<Self>, process: Process, fs: Arc<Mount>, number: usize) {
        if let Err(error) = self.play(&process, &fs, number).await {
            fail(&process, &error);
        }
    }
}

impl Work for Listings {
    fn run(self: Arc<Self>, process: Process) -> Task {
        Box::pin(async move {
            on_mount(&process, TASKS, |fs, number| self.clone().task(process.clone(), fs, number)).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_listed_once_and_what_changes_may_be() {
        let there = |file: u64, changed| State { file: Some(InodeId(file)), changes: false, changed };
        let gone = |changed| State { file: None, changes: false, changed };
        let before: Names = [("a", there(1, 1)), ("b", gone(2)), ("c", there(3, 1))].map(|(n, s)| (name(n), s)).into();
        let mut after = before.clone();
        after.insert(name("c"), gone(2));
        after.insert(name("d"), State { changes: true, ..gone(1) });
        let wrong = |listed: &[(&str, u64)]| {
            let listed: Vec<_> = listed.iter().map(|(text, id)| (name(text), InodeId(*id))).collect();
            wrong(&before, &after, &listed).is_some()
        };
        for good in [&[("a", 1)][..], &[("a", 1), ("c", 3)], &[("d", 4), ("a", 1)]] {
            assert!(!wrong(good), "{good:?}");
        }
        for bad in [&[][..], &[("a", 2)], &[("a", 1), ("a", 1)], &[("a", 1), ("b", 2)], &[("a", 1), ("e", 5)]] {
            assert!(wrong(bad), "{bad:?}");
        }
    }
}
