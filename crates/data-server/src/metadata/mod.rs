//! The copy of the metadata's rows that this server keeps, beside its chunks: what it has promised, a base and groups.
//!
//! `braid-copyset` decides; here are files and the order of things. What was promised or recorded is stable before it is
//! answered; groups are written before they are answered, and synced when asked. The rows are bytes here. A copy that has rotted is never
//! given away, nor taken for the base of another: it is given up as soon as the metadata server can give a new one.

mod copy_file;
mod record;
mod rotate;
mod verify;
mod vow;

use braid_api::data::{
    AppendGroups, FetchRows, FetchedRows, KeeperReport, PromiseTerm, PutBase, RecordSet, SyncGroups,
};
use braid_api::{Code, Error, Result};
use braid_copyset::Keeper;
use braid_env::Env;
use braid_types::{MetaPosition, ServerId};
use bytes::Bytes;
use copy_file::CopyFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Mutex;

/// Groups beyond this are put into the base: what a start reads, and what is held in memory for it.
const LOG_BYTES_MAX: usize = 64 << 20;
/// What one piece of a fetch holds, about.
const PIECE_BYTES: usize = 2 << 20;

/// Exact counters since the start.
#[derive(Debug, Default)]
pub struct MetadataCounters {
    pub groups: AtomicU64,
    pub messages: AtomicU64,
    pub syncs: AtomicU64,
    pub bases: AtomicU64,
    /// Files written anew because their groups had become long.
    pub rotations: AtomicU64,
    /// Copies that were found damaged.
    pub damaged: AtomicU64,
}

struct State {
    keeper: Keeper,
    kept: Option<CopyFile>,
    forming: Option<CopyFile>,
    /// The kept one is; it stays until the metadata server speaks, which can give another: half a copy is better than none.
    is_damaged: bool,
    /// One that was given up, until another has taken its place.
    given_up: Option<CopyFile>,
    /// The last number the metadata server has told to be acknowledged: such groups are never dropped.
    durable: u64,
    /// Of the last file that was made.
    generation: u64,
    rotating: bool,
}

/// The keeper of a data server.
pub struct MetadataKeeper {
    env: Env,
    dir: PathBuf,
    server: ServerId,
    state: Arc<Mutex<State>>,
    log_bytes_max: usize,
    pub counters: Arc<MetadataCounters>,
}

impl MetadataKeeper {
    /// Opens what is in `dir`, and makes it if there is nothing. Blocks.
    pub fn open(env: Env, dir: &Path, server: ServerId) -> io::Result<MetadataKeeper> {
        env.disk.create_dir_all(dir)?;
        let (promised, set) = vow::read(&*env.disk, dir)?;
        let kept = CopyFile::find(&*env.disk, dir)?;
        let copy = kept.as_ref().map(CopyFile::positions);
        let keeper = Keeper::restarted(promised, set, copy);
        let generation = kept.as_ref().map_or(0, CopyFile::generation);
        let (is_damaged, given_up) = (false, None);
        let state =
            State { keeper, kept, forming: None, is_damaged, given_up, durable: 0, generation, rotating: false };
        let (state, counters) = (Arc::new(Mutex::new(state)), Arc::default());
        Ok(MetadataKeeper { env, dir: dir.to_owned(), server, state, log_bytes_max: LOG_BYTES_MAX, counters })
    }

    fn failed(&self, error: &io::Error) -> Error {
        let subject = format_args!("data server {}, copy of the metadata in {}", self.server, self.dir.display());
        match error.kind() {
            io::ErrorKind::StorageFull => Error::new(Code::DiskFull, subject, error),
            _ => Error::new(Code::DiskError, subject, error),
        }
    }

    /// Works on the state on a thread that may block; answers what the server says of itself then.
    async fn work(
        &self,
        work: impl FnOnce(&mut State, &Env, &Path) -> io::Result<()> + Send + 'static,
    ) -> Result<KeeperReport> {
        self.counters.messages.fetch_add(1, Relaxed);
        let mut state = self.state.clone().lock_owned().await;
        let (env, dir) = (self.env.clone(), self.dir.clone());
        let run = move || work(&mut state, &env, &dir).map(|()| state.keeper.report());
        self.env.blocking(run).await.map_err(|error| self.failed(&error))
    }

    pub async fn promise(&self, m: PromiseTerm) -> Result<KeeperReport> {
        self.work(move |state, env, dir| match m.term.map(|term| state.keeper.promise(term)) {
            Some(Ok(true)) => vow::write(&*env.disk, dir, &state.keeper),
            // What was refused shows in the report.
            _ => Ok(()),
        })
        .await
    }

    pub async fn record(&self, m: RecordSet) -> Result<KeeperReport> {
        self.work(move |state, env, dir| match state.keeper.record(&m.set) {
            Ok(true) => vow::write(&*env.disk, dir, &state.keeper),
            _ => Ok(()),
        })
        .await
    }

    pub async fn append(&self, m: AppendGroups, payload: Bytes) -> Result<KeeperReport> {
        let whole: usize = m.groups.iter().map(|(_, len)| *len as usize).sum();
        if whole != payload.len() {
            return Err(Error::new(Code::BadMessage, "AppendGroups", "the groups are not as long as they say"));
        }
        self.counters.groups.fetch_add(m.groups.len() as u64, Relaxed);
        let report = self.work(move |state, env, dir| state.append(&m, &payload, env, dir)).await?;
        self.rotate_if_long();
        Ok(report)
    }

    /// For tests: groups are put into the base when they have so many bytes.
    pub fn with_log_bytes_max(self, log_bytes_max: usize) -> Self {
        MetadataKeeper { log_bytes_max, ..self }
    }

    /// Writes the file anew, beside everything else, if its groups have become long.
    fn rotate_if_long(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.rotating || state.forming.is_some() {
            return;
        }
        let Some(work) = state.kept.as_ref().and_then(|kept| kept.rotation(state.durable, self.log_bytes_max)) else {
            return;
        };
        (state.rotating, state.generation) = (true, state.generation + 1);
        let (read, generation) = (work.generation, state.generation);
        drop(state);
        let (env, dir, state, counters) =
            (self.env.clone(), self.dir.clone(), self.state.clone(), self.counters.clone());
        self.env.spawn("metadata copy: a new base", async move {
            let (disk, at) = (env.disk.clone(), dir.clone());
            let made = env.blocking(move || rotate::rotate(&*disk, &at, &work, generation).map(|to| (work, to))).await;
            let mut state = state.lock_owned().await;
            let disk = env.disk.clone();
            let end = move || {
                state.rotating = false;
                let (work, mut to) = made.inspect_err(|error| state.look_at(error, read, &counters))?;
                let path = to.path(&dir);
                match &state.kept {
                    // Another one came from the metadata server meanwhile, or is coming: it is newer.
                    Some(kept) if kept.generation() == work.generation && state.forming.is_none() => {
                        kept.pass_on(&mut to)?;
                        disk.sync_dir(&dir)?;
                        let old = kept.path(&dir);
                        state.keeper.rotated(to.base());
                        state.kept = Some(to);
                        counters.rotations.fetch_add(1, Relaxed);
                        disk.remove(&old)
                    }
                    _ => disk.remove(&path),
                }
            };
            let ended: io::Result<()> = env.blocking(end).await;
            if let Err(error) = ended {
                tracing::warn!(%error, "a copy of the metadata cannot be written anew; it goes on growing");
            }
        });
    }

    pub async fn put_base(&self, m: PutBase, payload: Bytes) -> Result<KeeperReport> {
        if m.page == 0 {
            self.counters.bases.fetch_add(1, Relaxed);
        }
        self.work(move |state, env, dir| state.put_base(&m, &payload, env, dir)).await
    }

    /// The lock is not held while the disk syncs: groups go on coming.
    pub async fn sync(&self, m: SyncGroups) -> Result<KeeperReport> {
        let begun = {
            let state = self.state.lock().await;
            let file = state.forming.as_ref().or(state.kept.as_ref()).map(CopyFile::handle);
            file.zip(state.keeper.last()).filter(|_| m.term == state.keeper.promised())
        };
        if let Some((file, last)) = begun {
            self.counters.syncs.fetch_add(1, Relaxed);
            self.env.blocking(move || file.sync_data()).await.map_err(|error| self.failed(&error))?;
            self.state.lock().await.keeper.synced(last);
        }
        self.work(|_, _, _| Ok(())).await
    }

    pub async fn fetch(&self, m: FetchRows) -> Result<(FetchedRows, Bytes)> {
        let mut state = self.state.clone().lock_owned().await;
        if state.keeper.promised() != m.term {
            let cause = format!("it obeys term {}, not {}", state.keeper.promised(), m.term);
            return Err(Error::new(Code::StaleEpoch, format_args!("data server {}", self.server), cause));
        }
        let none = || Error::new(Code::NotFound, format_args!("data server {}", self.server), "it has no whole copy");
        let counters = self.counters.clone();
        let read = move || {
            let file = state.kept.as_ref()?;
            // Before anything of it is used: who asks can turn to another copy then.
            let all = if m.after == 0 { file.places() } else { Vec::new() };
            let handle = file.handle();
            let verified = all.iter().try_for_each(|place| place.read(&*handle).map(drop));
            let piece = verified.and_then(|()| file.piece(m.after, PIECE_BYTES));
            let generation = file.generation();
            let _ = piece.as_ref().inspect_err(|error| state.look_at(error, generation, &counters));
            Some(piece)
        };
        let (next, at, rows) = self.env.blocking(read).await.ok_or_else(none)?.map_err(|error| self.failed(&error))?;
        Ok((FetchedRows { next, at }, rows.into()))
    }

    /// For metrics: the last group here.
    pub fn last(&self) -> Option<MetaPosition> {
        self.state.try_lock().ok().and_then(|state| state.keeper.last())
    }
}

impl State {
    /// Reading the file of this generation failed.
    fn look_at(&mut self, error: &io::Error, generation: u64, counters: &MetadataCounters) {
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.generation() == generation);
        if error.kind() != io::ErrorKind::InvalidData || !is_kept || self.is_damaged {
            return;
        }
        tracing::error!(%error, "a copy of the metadata is damaged: the metadata server is asked for another");
        counters.damaged.fetch_add(1, Relaxed);
        self.is_damaged = true;
    }

    /// The metadata server of the present term speaks: it hears that there is no copy here, and gives one.
    fn give_up_damaged(&mut self) {
        if std::mem::take(&mut self.is_damaged) {
            self.given_up = self.kept.take();
            self.keeper = Keeper::restarted(self.keeper.promised(), self.keeper.set().cloned(), None);
        }
    }

    fn append(&mut self, m: &AppendGroups, payload: &[u8], env: &Env, dir: &Path) -> io::Result<()> {
        if m.term == self.keeper.promised() && self.forming.is_none() {
            self.give_up_damaged();
        }
        let positions: Vec<MetaPosition> = m.groups.iter().map(|(at, _)| *at).collect();
        // Decided on a copy of the reasoning, so that a disk that fails leaves it as it was.
        let mut next = self.keeper.clone();
        let Ok(room) = next.append(m.term, m.prev, &positions, m.durable) else { return Ok(()) };
        let file = if room.forming { self.forming.as_mut() } else { self.kept.as_mut() };
        let file = file.ok_or_else(|| io::Error::other("the copy has no file"))?;
        if let Some(number) = room.drop_after {
            file.drop_after(number)?;
        }
        let mut rest = payload;
        let groups = m.groups.iter().map(|(at, len)| {
            let (changes, after) = rest.split_at(*len as usize);
            rest = after;
            (*at, changes)
        });
        let groups: Vec<_> = groups.skip(room.skip).collect();
        file.append(&groups)?;
        self.keeper = next;
        self.durable = self.durable.max(m.durable);
        self.look_at_forming(m.durable, env, dir)
    }

    fn put_base(&mut self, m: &PutBase, payload: &[u8], env: &Env, dir: &Path) -> io::Result<()> {
        if m.page == 0 {
            match self.keeper.begin_base(m.term, m.from) {
                Ok(true) => {
                    self.generation += 1;
                    // One that was half here goes.
                    if let Some(half) = self.forming.take() {
                        env.disk.remove(&half.path(dir))?;
                    }
                    self.forming = Some(CopyFile::create(&*env.disk, dir, self.generation, m.from)?);
                }
                Ok(false) => {}
                Err(_) => return Ok(()),
            }
        }
        if self.keeper.page(m.term, m.from, m.page) != Ok(true) {
            return Ok(());
        }
        let file = self.forming.as_mut().ok_or_else(|| io::Error::other("the base has no file"))?;
        file.page(payload)?;
        if let Some(upto) = m.upto {
            file.end_base(upto)?;
        }
        self.keeper.paged(m.upto, m.durable);
        self.look_at_forming(m.durable, env, dir)
    }

    /// A copy that has become whole takes the place of the old one.
    fn look_at_forming(&mut self, durable: u64, env: &Env, dir: &Path) -> io::Result<()> {
        if !self.keeper.is_formed() {
            return Ok(());
        }
        let Some(file) = &self.forming else { return Ok(()) };
        file.handle().sync_data()?;
        env.disk.sync_dir(dir)?;
        let last = self.keeper.last();
        self.keeper.replace(durable);
        if let Some(last) = last {
            self.keeper.synced(last);
        }
        let old = std::mem::replace(&mut self.kept, self.forming.take());
        self.is_damaged = false;
        for old in old.into_iter().chain(self.given_up.take()) {
            env.disk.remove(&old.path(dir))?;
        }
        Ok(())
    }
}
