//! Makes groups durable with one sync of a log, while LMDB's own pages reach the disk behind them
//! (docs/design/0030-the-log-of-the-embedded-engine.md).
//!
//! LMDB runs without syncs, which alone would let a power cut destroy it: the kernel writes its pages in any order. Two things keep the
//! pages of one commit, the *checkpoint*, as they were: a read transaction is held at it, so LMDB uses none of its pages for anything else,
//! and its two meta pages are kept in a file of their own. After a crash they are put back, and what the log has of later groups is done
//! again. While it is open the store is that, whatever of its file has been written.

use crate::checkpoint::{self, Checkpoint, Slots};
use crate::error::{disk_error, store_error};
use crate::log::{Found, Segment};
use crate::options::EmbeddedOptions;
use braid_meta_engine::EngineError;
use braid_types::MetaPosition;
use heed::{Env, RoTxn, WithoutTls};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const LOGS: [&str; 2] = ["data.log.0", "data.log.1"];

pub struct Journal {
    dir: PathBuf,
    data: File,
    metas_bytes: usize,
    page_bytes: u64,
    log: Mutex<Log>,
    /// Held by who makes a checkpoint.
    made: Mutex<Made>,
    /// Something was committed since the last one; the thread is to look; all is over.
    wanted: Mutex<Wanted>,
    bell: Condvar,
    /// Where the store ended at the last checkpoint.
    end_page: AtomicU64,
    /// What is on the disk is not known any more: nothing is written before the store is opened again.
    failed: AtomicBool,
    sync: bool,
    every: Duration,
    growth_bytes: u64,
    log_bytes: u64,
}

struct Log {
    segments: [Segment; 2],
    active: usize,
    /// Of the last group.
    number: u64,
    /// The active one was begun by this process: what is in it from before counts no more.
    begun: bool,
}

impl Log {
    /// Later groups go to the other file, in which nothing counts any more since the last checkpoint.
    fn switch(&mut self) -> io::Result<u64> {
        let series = self.segments[self.active].series() + 1;
        self.active = 1 - self.active;
        self.segments[self.active].begin(series)?;
        self.begun = true;
        Ok(self.number)
    }
}

struct Made {
    slots: Slots,
    last: Checkpoint,
    /// Keeps the checkpoint's pages.
    pin: RoTxn<'static, WithoutTls>,
}

#[derive(Default)]
struct Wanted {
    changed: bool,
    now: bool,
    over: bool,
}

/// Puts the store's file back to its last checkpoint, if it was not closed in order. To be called before LMDB opens it.
pub fn put_back(dir: &Path, data_file: &str) -> Result<Option<Checkpoint>, EngineError> {
    let Some(last) = checkpoint::read(dir)? else { return Ok(None) };
    let path = dir.join(data_file);
    let failed = |error| disk_error(&format!("putting {} back to its checkpoint", path.display()), error);
    let data = File::options().write(true).open(&path).map_err(failed)?;
    data.write_all_at(&last.metas, 0).and_then(|()| data.sync_data()).map_err(failed)?;
    Ok(Some(last))
}

impl Journal {
    /// Of a store that was just opened and that nobody has written to since; from now on it may be, by this process alone.
    pub fn open(
        dir: &Path,
        data: File,
        env: &Env<WithoutTls>,
        last: Option<Checkpoint>,
        options: &EmbeddedOptions,
    ) -> Result<Journal, EngineError> {
        let opened = Journal::begin(dir, &data, env, last.clone(), options);
        match opened {
            // What is kept for removing files is room for the log too, without which nothing is removed.
            Err(EngineError::Full(_)) => {
                let failed = |error| disk_error("making room for the log of the metadata", error);
                data.set_len(data.metadata().map_err(failed)?.len()).map_err(failed)?;
                Journal::begin(dir, &data, env, last, options)
            }
            opened => opened,
        }
    }

    fn begin(
        dir: &Path,
        data: &File,
        env: &Env<WithoutTls>,
        last: Option<Checkpoint>,
        options: &EmbeddedOptions,
    ) -> Result<Journal, EngineError> {
        let failed = |error| disk_error(&format!("opening the log of the metadata in {}", dir.display()), error);
        let data = data.try_clone().map_err(failed)?;
        let pin = pin(env)?;
        let page_bytes = u64::from(env.unnamed_database_stat().page_size);
        let metas_bytes = 2 * page_bytes as usize;
        let mut slots = Slots::new(dir, options.syncs());
        if last.is_none() {
            // It was closed in order, or is new: nothing that was logged counts, and nothing of it may be taken for what comes.
            remove_logs(dir).map_err(failed)?;
        }
        let mut segments = [open_segment(dir, 0)?, open_segment(dir, 1)?];
        let begun = last.is_none();
        let last = match last {
            Some(last) if last.transaction != pin.id() as u64 || last.metas.len() != metas_bytes => {
                let (found, wanted) = (pin.id(), last.transaction);
                let cause = format!(
                    "the store is at transaction {found} and not {wanted}: {} is of another store",
                    checkpoint::FILE
                );
                return Err(EngineError::Storage(format!("{}: {cause}", dir.display())));
            }
            Some(last) => last,
            None => {
                // What is in the store's file is meant to be on the disk.
                data.sync_all().map_err(failed)?;
                for (segment, series) in segments.iter_mut().zip(1..) {
                    segment.begin(series).map_err(failed)?;
                }
                let metas = read_metas(&data, metas_bytes).map_err(failed)?;
                Checkpoint { sequence: 0, number: 0, transaction: pin.id() as u64, metas }
            }
        };
        slots.write(&last).map_err(failed)?;
        let active = usize::from(segments[1].series() > segments[0].series());
        let number = last.number;
        Ok(Journal {
            dir: dir.to_owned(),
            data,
            metas_bytes,
            page_bytes,
            log: Mutex::new(Log { segments, active, number, begun }),
            made: Mutex::new(Made { slots, last, pin }),
            wanted: Mutex::default(),
            bell: Condvar::new(),
            end_page: AtomicU64::new(env.info().last_page_number as u64),
            failed: AtomicBool::new(false),
            sync: options.syncs(),
            every: options.checkpoint_every,
            growth_bytes: options.checkpoint_growth_bytes,
            log_bytes: options.checkpoint_log_bytes,
        })
    }

    /// Gives what the log has more than the checkpoint to `apply`, in order, and goes on behind it. Once, before anything is appended;
    /// then a checkpoint has to be made, because this process appends to a file of its own.
    pub fn replay(
        &self,
        mut apply: impl FnMut(MetaPosition, &[u8]) -> Result<(), EngineError>,
    ) -> Result<u64, EngineError> {
        let failed = |error| disk_error("reading the log of the metadata", error);
        let mut log = self.log.lock();
        let mut groups = 0;
        // A group counts when it is known not to have been taken back.
        let mut pending: Option<(MetaPosition, Vec<u8>)> = None;
        for which in [1 - log.active, log.active] {
            // Two that are of the same use are none of any.
            if log.segments[which].series() == 0 {
                continue;
            }
            let mut number = log.number;
            for found in log.segments[which].read() {
                match found.map_err(failed)? {
                    Found::Group { number: found, .. } if found <= number => {}
                    Found::Group { number: found, position, changes } => {
                        if found != number + 1 {
                            let cause = format!("the log of the metadata has group {found} after {number}");
                            return Err(EngineError::Storage(cause));
                        }
                        if let Some((position, changes)) = pending.replace((position, changes)) {
                            apply(position, &changes)?;
                            groups += 1;
                        }
                        number = found;
                    }
                    Found::Retracted { number: found } if found == number => pending = None,
                    Found::Retracted { .. } => {}
                }
            }
            log.number = number;
        }
        if let Some((position, changes)) = pending {
            apply(position, &changes)?;
            groups += 1;
        }
        Ok(groups)
    }

    /// Makes a group durable before it is committed, by who is in LMDB's write transaction. When this fails nobody knows whether it is.
    pub fn append(&self, position: MetaPosition, changes: &[u8]) -> Result<(), EngineError> {
        self.expect_whole()?;
        let mut log = self.log.lock();
        if !log.begun {
            return Err(EngineError::Storage("no checkpoint was made since the log was read".into()));
        }
        let number = log.number + 1;
        let active = log.active;
        let segment = &mut log.segments[active];
        // Nothing of it counts before all does, so that a full disk has done no harm.
        let written = segment.append_group(number, position, changes);
        written.map_err(|error| disk_error("writing to the log of the metadata", error))?;
        if self.sync
            && let Err(error) = segment.sync()
        {
            return Err(self.fail("syncing the log of the metadata", error));
        }
        log.number = number;
        Ok(())
    }

    /// The last group was refused by the store after it was made durable; by who is in a write transaction.
    pub fn retract(&self) -> Result<(), EngineError> {
        let mut log = self.log.lock();
        let (number, active) = (log.number, log.active);
        let segment = &mut log.segments[active];
        let written = segment.append_retracted(number).and_then(|()| if self.sync { segment.sync() } else { Ok(()) });
        written.map_err(|error| self.fail("taking a group back from the log of the metadata", error))
    }

    /// A group is in the store.
    pub fn committed(&self, env: &Env<WithoutTls>) {
        let grown = (env.info().last_page_number as u64).saturating_sub(self.end_page.load(SeqCst)) * self.page_bytes;
        let (logged, mut wanted) = (self.logged_bytes(), self.wanted.lock());
        let first = !std::mem::replace(&mut wanted.changed, true);
        let now = grown >= self.growth_bytes || logged >= self.log_bytes;
        let ring = first || (now && !wanted.now);
        wanted.now |= now;
        drop(wanted);
        if ring {
            self.bell.notify_one();
        }
    }

    fn logged_bytes(&self) -> u64 {
        let log = self.log.lock();
        log.segments[log.active].bytes()
    }

    /// What the log takes.
    pub fn disk_bytes(&self) -> u64 {
        self.log.lock().segments.iter().map(Segment::disk_bytes).sum()
    }

    /// What is committed now is on the disk when this returns, without the log.
    pub fn checkpoint(&self, env: &Env<WithoutTls>) -> Result<(), EngineError> {
        self.expect_whole()?;
        let mut made = self.made.lock();
        // Between two groups.
        let txn = env.write_txn().map_err(|error| store_error("beginning a checkpoint", error))?;
        let pin = pin(env)?;
        if pin.id() == made.pin.id() && self.log.lock().begun {
            return Ok(());
        }
        let failed = |error| self.fail("making a checkpoint of the metadata", error);
        let metas = read_metas(&self.data, self.metas_bytes).map_err(failed)?;
        let number = self.log.lock().switch().map_err(failed)?;
        txn.abort();
        if self.sync {
            self.data.sync_data().map_err(failed)?;
        }
        let next = Checkpoint { sequence: made.last.sequence + 1, number, transaction: pin.id() as u64, metas };
        made.slots.write(&next).map_err(failed)?;
        self.end_page.store(env.info().last_page_number as u64, SeqCst);
        (made.last, made.pin) = (next, pin);
        Ok(())
    }

    /// Makes checkpoints until [`Journal::end`], or one fails.
    pub fn keep(&self, env: &Env<WithoutTls>) -> Result<(), EngineError> {
        loop {
            {
                let mut wanted = self.wanted.lock();
                while !wanted.changed && !wanted.over {
                    self.bell.wait(&mut wanted);
                }
                let end = std::time::Instant::now() + self.every;
                while !wanted.now && !wanted.over && !self.bell.wait_until(&mut wanted, end).timed_out() {}
                if wanted.over {
                    return Ok(());
                }
                (wanted.changed, wanted.now) = (false, false);
            }
            self.checkpoint(env)?;
        }
    }

    pub fn end(&self) {
        self.wanted.lock().over = true;
        self.bell.notify_all();
    }

    /// Nobody writes any more: the store's own file becomes all there is.
    pub fn close(&self, env: &Env<WithoutTls>) -> Result<(), EngineError> {
        self.checkpoint(env)?;
        // From here on nothing may be written: it would not be protected.
        self.failed.store(true, SeqCst);
        let failed = |error| disk_error("removing the checkpoint and the log of the metadata", error);
        self.made.lock().slots.remove().map_err(failed)?;
        remove_logs(&self.dir).map_err(failed)
    }

    fn expect_whole(&self) -> Result<(), EngineError> {
        match self.failed.load(SeqCst) {
            false => Ok(()),
            true => Err(EngineError::Storage("the metadata store must be opened again: a disk had failed it".into())),
        }
    }

    /// After a sync that failed nobody knows what is on the disk, and the kernel does not try again.
    fn fail(&self, what: &str, error: io::Error) -> EngineError {
        self.failed.store(true, SeqCst);
        tracing::error!(%error, what, "the metadata store must be opened again");
        EngineError::MaybeCommitted(format!("{what}: {error}"))
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }
}

fn pin(env: &Env<WithoutTls>) -> Result<RoTxn<'static, WithoutTls>, EngineError> {
    env.clone().static_read_txn().map_err(|error| store_error("holding a checkpoint", error))
}

fn read_metas(data: &File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut metas = vec![0; bytes];
    data.read_exact_at(&mut metas, 0)?;
    Ok(metas)
}

fn open_segment(dir: &Path, which: usize) -> Result<Segment, EngineError> {
    let path = dir.join(LOGS[which]);
    Segment::open(&path).map_err(|error| disk_error(&format!("opening {}", path.display()), error))
}

fn remove_logs(dir: &Path) -> io::Result<()> {
    for name in LOGS {
        match std::fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heed::EnvOpenOptions;
    use tempfile::TempDir;

    fn open(dir: &Path) -> (Env<WithoutTls>, Journal, Vec<Vec<u8>>) {
        let last = put_back(dir, "data.mdb").expect("it is put back");
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(1 << 20).max_dbs(1);
        // SAFETY: nobody else has the directory.
        let env = unsafe { options.open(dir) }.expect("LMDB opens");
        let data = env.try_clone_inner_file().expect("its file");
        let journal = Journal::open(dir, data, &env, last, &EmbeddedOptions::default()).expect("it opens");
        let mut found = Vec::new();
        let replayed = journal.replay(|_, changes| {
            found.push(changes.to_vec());
            Ok(())
        });
        assert_eq!(replayed.expect("it is read"), found.len() as u64);
        if journal.log.lock().begun {
            return (env, journal, found);
        }
        let early = journal.append(MetaPosition::default(), b"too early");
        assert!(matches!(early, Err(EngineError::Storage(_))), "{early:?}");
        (env, journal, found)
    }

    fn append(journal: &Journal, what: &str) {
        journal.append(MetaPosition::default(), what.as_bytes()).expect("it is written");
    }

    /// A commit, so that there is something to make a checkpoint of.
    fn commit(env: &Env<WithoutTls>) {
        let txn = env.write_txn().expect("a transaction");
        let put = env.create_databases_and_commit(txn, |opener, txn| {
            let rows = opener.create_database::<heed::types::Bytes, heed::types::Bytes>(txn, None)?;
            let count = rows.len(txn)?;
            rows.put(txn, &count.to_be_bytes(), b"row")?;
            Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
        });
        put.expect("it commits");
    }

    #[test]
    fn what_was_logged_since_the_checkpoint_is_done_again_but_for_what_was_taken_back() {
        let dir = TempDir::new().expect("a directory");
        let found = |dir: &Path| open(dir).2;
        {
            let (env, journal, found) = open(dir.path());
            assert!(found.is_empty());
            append(&journal, "a");
            append(&journal, "taken back");
            journal.retract().expect("it is taken back");
            append(&journal, "b");
            commit(&env);
            assert_eq!(journal.log.lock().number, 3);
        }
        assert_eq!(found(dir.path()), [b"a", b"b"]);
        {
            let (env, journal, _) = open(dir.path());
            // Groups that were done again go on where they were, in the other file.
            commit(&env);
            journal.checkpoint(&env).expect("it is made");
            assert_eq!(found_beside(&journal), Vec::<Vec<u8>>::new());
            append(&journal, "c");
            commit(&env);
            append(&journal, "last, and taken back");
            journal.retract().expect("it is taken back");
        }
        assert_eq!(found(dir.path()), [b"c"]);
        {
            let (env, journal, _) = open(dir.path());
            for n in 0..5 {
                commit(&env);
                journal.checkpoint(&env).expect("it is made");
                append(&journal, &n.to_string());
            }
            commit(&env);
        }
        assert_eq!(found(dir.path()), [b"4"]);
        let (env, journal, _) = open(dir.path());
        commit(&env);
        journal.close(&env).expect("it closes");
        let refused = journal.append(MetaPosition::default(), b"too late");
        assert!(matches!(refused, Err(EngineError::Storage(_))), "{refused:?}");
        drop((journal, env));
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("it is there").map(|e| e.expect("a file").file_name()).collect();
        left.sort();
        assert_eq!(left, ["data.mdb", "lock.mdb"], "a store that is closed is one file");
        assert!(found(dir.path()).is_empty());
    }

    /// What a start would find in the files now.
    fn found_beside(journal: &Journal) -> Vec<Vec<u8>> {
        let (log, number) = (journal.log.lock(), journal.made.lock().last.number);
        let all = log.segments.iter().flat_map(Segment::read).map(|found| found.expect("it reads"));
        let newer = all.filter_map(|found| match found {
            Found::Group { number: found, changes, .. } if found > number => Some(changes),
            _ => None,
        });
        newer.collect()
    }

    #[test]
    fn a_gap_in_the_log_is_told() {
        let dir = TempDir::new().expect("a directory");
        {
            let (env, journal, _) = open(dir.path());
            append(&journal, "a");
            append(&journal, "b");
            commit(&env);
            // As if the checkpoint had been of an earlier time than the log's beginning.
            journal.log.lock().number += 1;
            append(&journal, "d");
        }
        let last = put_back(dir.path(), "data.mdb").expect("it is put back");
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(1 << 20).max_dbs(1);
        // SAFETY: nobody else has the directory.
        let env = unsafe { options.open(dir.path()) }.expect("LMDB opens");
        let data = env.try_clone_inner_file().expect("its file");
        let journal = Journal::open(dir.path(), data, &env, last, &EmbeddedOptions::default()).expect("it opens");
        let refused = journal.replay(|_, _| Ok(())).expect_err("a group is missing");
        assert!(refused.to_string().contains("group 4 after 2"), "{refused}");
    }
}
