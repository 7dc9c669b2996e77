use braid_types::{ChunkId, ClusterId, TruncGen};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, StoreError>;

/// Why a block cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlockCause {
    #[error("its checksum is wrong")]
    Checksum,
    #[error("the disk cannot read it: {0}")]
    Unreadable(String),
}

/// Why the store refuses. Every message names its subject.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("chunk {0} does not exist here")]
    NoSuchChunk(ChunkId),
    #[error("chunk {0} is no copy in a chain: it has no record")]
    NotACopy(ChunkId),
    #[error("chunk {chunk}, block {block} in {}: {cause}", file.display())]
    BadBlock { chunk: ChunkId, block: u64, file: PathBuf, cause: BadBlockCause },
    #[error("chunk {chunk}: {} is damaged: {cause}", file.display())]
    BadHeader { chunk: ChunkId, file: PathBuf, cause: &'static str },
    #[error("chunk {chunk}: {} is missing", file.display())]
    Missing { chunk: ChunkId, file: PathBuf },
    #[error("chunk {chunk} has seen truncate generation {seen}, the request carries {got}")]
    StaleTruncGen { chunk: ChunkId, seen: TruncGen, got: TruncGen },
    #[error("chunk {chunk} has {chunk_bytes} bytes at most, the request ends at {end}")]
    BeyondChunk { chunk: ChunkId, end: u64, chunk_bytes: u64 },
    #[error("no space for {needed} bytes of {subject}: {free} are free")]
    NoSpace { subject: String, needed: u64, free: u64 },
    /// The disk refused bytes that the accounting thought would fit: others fill it as well.
    #[error("the disk is full: {subject}")]
    Full { subject: String },
    /// A write or sync failed in a way that leaves unknown what the disk has. The chunk can be read, whose
    /// checksums tell what is right; it takes no writes until the store is opened again.
    #[error("chunk {chunk} takes no more writes since {cause}")]
    Failed { chunk: ChunkId, cause: String },
    #[error("{subject}: {source}")]
    Io { subject: String, source: Arc<io::Error> },
    #[error("{} is in use by another process", .0.display())]
    Locked(PathBuf),
    #[error("{} belongs to cluster {found}, not to {expected}", dir.display())]
    OtherCluster { dir: PathBuf, found: ClusterId, expected: ClusterId },
    #[error("{} belongs to data server {found}, not to {expected}", dir.display())]
    OtherServer { dir: PathBuf, found: u64, expected: u64 },
    #[error("{} has format {found}, this program knows {known}: upgrade it first", file.display())]
    NewerFormat { file: PathBuf, found: u32, known: u32 },
    #[error("{} is not a BraidFS data directory: {cause}", dir.display())]
    NotAStore { dir: PathBuf, cause: String },
    #[error("{} is on a read-only disk", .0.display())]
    ReadOnly(PathBuf),
}

impl StoreError {
    /// `doing` and the file, in front of the system's words.
    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::Full { subject: format!("{doing} {}", path.display()) }
            }
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(path.to_owned()),
            _ => StoreError::Io { subject: format!("{doing} {}", path.display()), source: Arc::new(source) },
        }
    }

    pub fn is_no_space(&self) -> bool {
        matches!(self, StoreError::NoSpace { .. } | StoreError::Full { .. })
    }
}
