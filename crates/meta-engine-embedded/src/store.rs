use crate::error::{disk_error, store_error};
use crate::format;
use crate::frozen;
use crate::journal::{Journal, put_back};
use crate::lock::DirLock;
use crate::options::EmbeddedOptions;
use crate::ordered::Ordered;
use crate::rows::{Rows, Tables};
use braid_meta_engine::{EngineError, EngineStats, Table};
use braid_types::MetaPosition;
use heed::{CommitOrAbort, CompactionOption, Env, EnvOpenOptions, RoTxn, WithoutTls};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open directory. The order of the fields is the order they are closed in: the lock last.
pub struct Store {
    /// What makes commits durable. It holds a transaction of `env`.
    pub journal: Journal,
    pub tables: Tables,
    /// The version, and how far copies elsewhere are.
    pub format: Rows<'static>,
    pub env: Env<WithoutTls>,
    pub options: EmbeddedOptions,
    pub stats: EngineStats,
    pub ordered: Ordered,
    pub dir: PathBuf,
    _lock: DirLock,
}

/// What LMDB calls its file.
const DATA_FILE: &str = "data.mdb";

impl Store {
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self, EngineError> {
        let making = |error| disk_error(&format!("making the metadata directory {}", dir.display()), error);
        std::fs::create_dir_all(dir).map_err(making)?;
        let lock = DirLock::take(dir)?;
        remove_frozen(dir)?;
        let last = put_back(dir, DATA_FILE)?;
        let env = open_env(dir, &options).map_err(|error| store_error(&format!("opening {}", dir.display()), error))?;
        let file = env.try_clone_inner_file().map_err(|error| store_error("opening the metadata file", error))?;
        let journal = Journal::open(dir, file, &env, last, &options)?;
        let (tables, format) = open_tables(&env)?;
        env.clear_stale_readers().map_err(|error| store_error("clearing stale readers", error))?;
        // The names of what was just made must be as durable as the first commit.
        sync_dir(dir)?;
        if let Some(parent) = dir.canonicalize().map_err(making)?.parent() {
            sync_dir(parent)?;
        }
        let stats = EngineStats::default();
        let ordered = Ordered::default();
        let store = Store { journal, tables, format, env, options, stats, ordered, dir: dir.to_owned(), _lock: lock };
        store.redo()?;
        store.journal.checkpoint(&store.env)?;
        Ok(store)
    }

    /// What was in the log and not in the file when a crash came.
    fn redo(&self) -> Result<(), EngineError> {
        let failed = |error| store_error("doing again what the log has", error);
        let begin = || self.env.write_txn().map_err(failed);
        let (mut txn, mut bytes) = (begin()?, 0);
        let groups = self.journal.replay(|position, changes| {
            self.load_changes(&mut txn, changes)?;
            if position != MetaPosition::default() {
                self.put_position(&mut txn, position)?;
            }
            bytes += changes.len();
            if bytes >= self.options.group_bytes_max {
                // A transaction holds in memory what it changes.
                std::mem::replace(&mut txn, begin()?).commit().map_err(failed)?;
                bytes = 0;
            }
            Ok(())
        })?;
        txn.commit().map_err(failed)?;
        if groups > 0 {
            tracing::info!(groups, dir = %self.dir.display(), "the metadata was not closed in order: its log was applied");
        }
        Ok(())
    }

    /// What is committed now. Beginning one costs a lock and an allocation; keeping them for the next read,
    /// while nothing newer is committed, was measured and is not faster.
    pub fn snapshot(&self) -> Result<RoTxn<'_, WithoutTls>, EngineError> {
        self.env.read_txn().map_err(|error| store_error("beginning a read", error))
    }

    /// The file itself, for allocating ahead.
    pub fn file(&self) -> Result<File, EngineError> {
        self.env.try_clone_inner_file().map_err(|error| store_error("opening the metadata file", error))
    }

    pub fn disk_bytes(&self) -> Result<u64, EngineError> {
        let failed = |error| disk_error("measuring the metadata file", error);
        Ok(self.file()?.metadata().map_err(failed)?.blocks() * 512 + self.journal.disk_bytes())
    }

    /// The same without the reserve, which lies behind the end of the file.
    pub fn held_bytes(&self) -> Result<u64, EngineError> {
        let file = self.file()?.metadata().map_err(|error| disk_error("measuring the metadata file", error))?;
        Ok((file.blocks() * 512).min(file.len()) + self.journal.disk_bytes())
    }

    pub fn snapshot_copy(&self, dir: &Path) -> Result<(), EngineError> {
        let failed = |error| disk_error(&format!("copying the metadata to {}", dir.display()), error);
        std::fs::create_dir_all(dir).map_err(failed)?;
        let target = dir.join(DATA_FILE);
        if target.try_exists().map_err(failed)? {
            return Err(EngineError::Storage(format!("{} holds a metadata store already", dir.display())));
        }
        // Under another name until it is whole.
        let part = dir.join("data.mdb.part");
        let mut file = File::create(&part).map_err(failed)?;
        let copied = self.env.copy_to_file(&mut file, CompactionOption::Enabled);
        copied.map_err(|error| store_error(&format!("copying the metadata to {}", dir.display()), error))?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&part, &target).map_err(failed)?;
        sync_dir(dir)
    }
}

fn open_env(dir: &Path, options: &EmbeddedOptions) -> heed::Result<Env<WithoutTls>> {
    let page = rustix::param::page_size() as u64;
    let map_bytes = usize::try_from(options.map_bytes.next_multiple_of(page)).unwrap_or(usize::MAX - page as usize + 1);
    let mut open = EnvOpenOptions::new().read_txn_without_tls();
    open.map_size(map_bytes).max_dbs(Table::ALL.len() as u32 + 1).max_readers(options.readers_max);
    // Whether NO_READ_AHEAD helps stores larger than memory is not measured.
    // SAFETY: what a crash leaves of the file may be corrupt, but for the pages of the last checkpoint, which are put back; all that came
    // later is in the log (`journal.rs`).
    unsafe { open.flags(heed::EnvFlags::NO_SYNC) };
    // SAFETY: nobody else changes or truncates the mapped file: `DirLock` keeps this directory to one process,
    // and heed keeps it to one environment in it.
    unsafe { open.open(dir) }
}

/// What a process left that was killed while it made a copy.
fn remove_frozen(dir: &Path) -> Result<(), EngineError> {
    match std::fs::remove_dir_all(dir.join(frozen::DIR)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(disk_error("removing an old copy of the metadata", error))
        }
        _ => Ok(()),
    }
}

/// [`EngineError`] where heed wants an error that can hold its own.
struct OpenError(EngineError);

impl From<heed::Error> for OpenError {
    fn from(error: heed::Error) -> Self {
        OpenError(store_error("opening the tables", error))
    }
}

fn open_tables(env: &Env<WithoutTls>) -> Result<(Tables, Rows<'static>), EngineError> {
    let txn = env.write_txn().map_err(|error| OpenError::from(error).0)?;
    let opened = env.create_databases_and_commit(txn, |opener, txn| {
        let format = opener.create_database(txn, Some(format::DATABASE))?;
        format::check(&format, txn).map_err(|error| match error {
            Ok(refused) => OpenError(refused),
            Err(error) => error.into(),
        })?;
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            tables.push(opener.create_database(txn, Some(&Tables::name(table)))?);
        }
        let tables: [_; Table::ALL.len()] =
            tables.try_into().map_err(|_| OpenError(EngineError::Storage("a table is missing".into())))?;
        Ok(CommitOrAbort::<_, OpenError>::Commit((tables, format)))
    });
    match opened {
        Ok(CommitOrAbort::Commit((tables, format))) => Ok((Tables(tables), format)),
        Ok(CommitOrAbort::Abort(error)) | Err(error) => Err(error.0),
    }
}

fn sync_dir(dir: &Path) -> Result<(), EngineError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| disk_error(&format!("syncing {}", dir.display()), error))
}
