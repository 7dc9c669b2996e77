//! One open chunk: its two files, its header and its table.

use super::header::{HEADER_BYTES, Header, SLOT_BYTES, SLOTS, Slot};
use super::read::Fetch;
use super::table::Table;
use crate::checksum::{BASE, BLOCK, Block, HOLE, block_sum, blocks};
use crate::{BadBlockCause, Result, StoreError};
use braid_env::{Disk, DiskFile, OpenMode};
use braid_types::{BLOCK_BYTES, ChunkId};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Shards by the low bits of the id, which is a counter: 256 directories with a few thousand files each.
pub(crate) const SHARDS: u64 = 256;

/// Of the file with a copy's record.
pub(crate) const RECORD_SUFFIX: &str = "chain";

pub(crate) fn shard_dir(dir: &Path, shard: u64) -> PathBuf {
    dir.join("chunks").join(format!("{shard:02x}"))
}

pub(crate) fn shard_of(dir: &Path, chunk: ChunkId) -> PathBuf {
    shard_dir(dir, chunk.0 % SHARDS)
}

pub(crate) fn file_path(dir: &Path, chunk: ChunkId, suffix: &str) -> PathBuf {
    shard_of(dir, chunk).join(format!("{:016x}.{suffix}", chunk.0))
}

pub(crate) struct Chunk {
    pub id: ChunkId,
    pub data: Arc<dyn DiskFile>,
    pub meta: Arc<dyn DiskFile>,
    pub data_path: PathBuf,
    pub meta_path: PathBuf,
    /// It has a record.
    pub is_copy: bool,
    /// Orders changes of the chunk; readers share it. Taken after `sync`, before the store's own locks.
    pub state: RwLock<State>,
    /// Held by the one sync of the chunk that runs.
    pub sync: Mutex<()>,
    pub used: AtomicU64,
    /// Whose blocks it has, until that chunk was looked for; 0: nobody's.
    pub base_wanted: AtomicU64,
}

pub(crate) struct State {
    pub header: Header,
    pub table: Table,
    /// Whose blocks those are that the table has as the base's; open as long as this chunk is.
    pub base: Option<Arc<Chunk>>,
    /// Number of the first change that no finished or running sync covers.
    pub first_dirty: Option<u64>,
    /// The same for the running sync.
    pub syncing_first: Option<u64>,
    /// Blocks below this length may be counted as synced: their extents are logged before they change.
    pub synced_floor: u64,
    /// The files' names are not known to be on stable storage.
    pub new_names: bool,
    /// Why the chunk takes no more writes.
    pub failed: Option<String>,
    pub deleted: bool,
}

impl State {
    /// Every entry of a block beyond is a hole.
    pub fn blocks(&self) -> u64 {
        blocks(self.header.length)
    }
}

impl Chunk {
    fn new(
        dir: &Path,
        id: ChunkId,
        files: (Arc<dyn DiskFile>, Arc<dyn DiskFile>),
        header: Header,
        is_copy: bool,
    ) -> Chunk {
        let base_wanted = AtomicU64::new(header.base.0);
        let state = State {
            table: Table::new(header.base.0 != 0),
            base: None,
            first_dirty: None,
            syncing_first: None,
            synced_floor: header.synced_len,
            new_names: !header.names_are_stable(),
            failed: None,
            deleted: false,
            header,
        };
        Chunk {
            id,
            data: files.0,
            meta: files.1,
            data_path: file_path(dir, id, "data"),
            meta_path: file_path(dir, id, "meta"),
            is_copy,
            state: RwLock::new(state),
            sync: Mutex::new(()),
            used: AtomicU64::new(0),
            base_wanted,
        }
    }

    /// Makes the files of a chunk that does not exist. What a crash left of an earlier attempt goes.
    pub fn create(disk: &dyn Disk, dir: &Path, header: Header, is_copy: bool) -> Result<Chunk> {
        let id = header.chunk;
        let (data_path, meta_path) = (file_path(dir, id, "data"), file_path(dir, id, "meta"));
        let fail = |e| StoreError::io("create", &meta_path, e);
        let open = |path: &Path| -> io::Result<Arc<dyn DiskFile>> {
            let file = disk.open(path, OpenMode::OrCreate)?;
            if file.len()? > 0 {
                // Durably: a crash that undid this but kept what is written next would mix the two.
                file.set_len(0)?;
                file.sync_data()?;
            }
            Ok(file)
        };
        // First, so that a copy is known as one whenever only the process dies.
        if is_copy {
            open(&file_path(dir, id, RECORD_SUFFIX)).map_err(fail)?;
        }
        let files = (open(&data_path).map_err(fail)?, open(&meta_path).map_err(fail)?);
        let chunk = Chunk::new(dir, id, files, header, is_copy);
        chunk.write_header(&chunk.state.read().header).map_err(fail)?;
        Ok(chunk)
    }

    /// `None` if the chunk does not exist; it does from the first sync or, if only the process died, from `create`. On a
    /// disk that has become read-only the chunk can be read, and takes no writes for as long as it is open.
    pub fn open(disk: &dyn Disk, dir: &Path, id: ChunkId, is_copy: bool) -> Result<Option<Chunk>> {
        let meta_path = file_path(dir, id, "meta");
        let (meta, mut writable) = match open_file(disk, &meta_path, OpenMode::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(|e| StoreError::io("open", &meta_path, e))?,
        };
        let Some(header) = read_header(meta.as_ref(), &meta_path, id)? else { return Ok(None) };
        let data_path = file_path(dir, id, "data");
        // A chunk that was never synced may have lost one of its names.
        let mode = if header.names_are_stable() { OpenMode::Existing } else { OpenMode::OrCreate };
        let data = match open_file(disk, &data_path, mode) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing { chunk: id, file: data_path });
            }
            Err(error) => return Err(StoreError::io("open", &data_path, error)),
            Ok((data, data_writable)) => {
                writable &= data_writable;
                data
            }
        };
        let mut chunk = Chunk::new(dir, id, (data, meta), header, is_copy);
        if !writable {
            chunk.state.get_mut().failed = Some(StoreError::ReadOnly(data_path).to_string());
        }
        Ok(Some(chunk))
    }

    pub fn write_header(&self, header: &Header) -> io::Result<()> {
        self.meta.write_at(&header.encode(), header.slot_offset())
    }

    pub fn is_clean(&self) -> bool {
        self.state.try_read().is_some_and(|s| s.first_dirty.is_none() && s.syncing_first.is_none())
    }

    pub fn load(&self, state: &mut State, blocks: &Range<u64>) -> Result<()> {
        state.table.load(self.meta.as_ref(), blocks).map_err(|e| self.meta_error(e))
    }

    pub fn meta_error(&self, error: io::Error) -> StoreError {
        StoreError::io("use", &self.meta_path, error)
    }

    pub fn data_error(&self, error: io::Error) -> StoreError {
        StoreError::io("write", &self.data_path, error)
    }

    pub fn bad_block(&self, block: u64, cause: BadBlockCause) -> StoreError {
        StoreError::BadBlock { chunk: self.id, block, file: self.data_path.clone(), cause }
    }

    /// The block as it is: what the disk has inside the length, zeros beyond.
    pub fn raw_block(&self, length: u64, block: u64, buf: &mut Block) -> io::Result<()> {
        let start = block * BLOCK_BYTES;
        let inside = length.saturating_sub(start).min(BLOCK_BYTES) as usize;
        let n = self.data.read_at(&mut buf[..inside], start)?;
        buf[n..].fill(0);
        Ok(())
    }

    /// The block, verified; a hole is zeros. Its entry must be loaded.
    pub fn block(&self, state: &State, block: u64, buf: &mut Block) -> Result<()> {
        let sum = state.table.get(block);
        if sum == HOLE {
            buf.fill(0);
            return Ok(());
        }
        if sum == BASE {
            return self.read_base(state, block * BLOCK_BYTES, buf, Fetch::Waiting).map(drop);
        }
        self.raw_block(state.header.length, block, buf)
            .map_err(|e| self.bad_block(block, BadBlockCause::Unreadable(e.to_string())))?;
        if block_sum(buf) != sum {
            return Err(self.bad_block(block, BadBlockCause::Checksum));
        }
        Ok(())
    }
}

/// The file, and whether it can be written.
fn open_file(disk: &dyn Disk, path: &Path, mode: OpenMode) -> io::Result<(Arc<dyn DiskFile>, bool)> {
    match disk.open(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok((disk.open(path, OpenMode::ReadOnly)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

pub(crate) const ZERO_BLOCK: Block = [0; BLOCK];

/// The valid header with the highest sequence; `None` if none was ever written.
fn read_header(meta: &dyn DiskFile, path: &Path, id: ChunkId) -> Result<Option<Header>> {
    let mut best: Option<Header> = None;
    let mut damaged = false;
    for slot in 0..SLOTS {
        let mut bytes = [0; HEADER_BYTES];
        let n = meta.read_at(&mut bytes, slot * SLOT_BYTES).map_err(|e| StoreError::io("read", path, e))?;
        bytes[n..].fill(0);
        match Header::decode(&bytes) {
            Slot::Empty => {}
            Slot::Damaged => damaged = true,
            Slot::Newer(found) => {
                let known = super::header::FORMAT;
                return Err(StoreError::NewerFormat { file: path.to_owned(), found, known });
            }
            Slot::Valid(header) if best.as_ref().is_none_or(|b| b.slot_seq < header.slot_seq) => best = Some(header),
            Slot::Valid(_) => {}
        }
    }
    let bad = |cause| StoreError::BadHeader { chunk: id, file: path.to_owned(), cause };
    match best {
        Some(header) if header.chunk != id => Err(bad("it is another chunk's")),
        Some(header) => Ok(Some(header)),
        None if damaged => Err(bad("no header is whole")),
        None => Ok(None),
    }
}
