use crate::{Result, StoreError};
use braid_local::LocalChunk;
use braid_types::{BLOCK_BYTES, ByteRange, ChunkId, ChunkIndex, ContainerId, InodeId, TruncGen, Version};
use std::ops::Range;

/// The truncations of a file as one chunk sees them: the newest generation and, for each that may be unknown to
/// the chunk, the length it left to this chunk. Generations the chunk has seen are skipped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuts<'a> {
    pub trunc_gen: TruncGen,
    pub list: &'a [(TruncGen, u64)],
}

impl Cuts<'_> {
    /// The shortest length that a generation newer than `seen` left; bytes beyond read as zeros afterwards.
    pub(crate) fn shortest_since(&self, seen: TruncGen) -> Option<u64> {
        self.list.iter().filter(|(trunc_gen, _)| *trunc_gen > seen).map(|(_, len)| *len).min()
    }
}

/// What a write says beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteInfo<'a> {
    /// For the first write, which makes the chunk.
    pub container: ContainerId,
    pub chunk_bytes: u64,
    /// The chunk keeps the highest it has seen.
    pub version: Version,
    /// Whose data this is, which the chunk keeps, so that it is found again without its row; inode 0 says nothing
    /// and changes nothing.
    pub inode: InodeId,
    pub index: ChunkIndex,
    pub cuts: Cuts<'a>,
    /// The writer keeps the bytes in this machine's memory: the store need not.
    pub kept_beside: bool,
}

impl WriteInfo<'_> {
    /// The file this is written for, if the request says.
    pub(crate) fn file(&self) -> Option<(InodeId, ChunkIndex)> {
        (self.inode.0 != 0).then_some((self.inode, self.index))
    }
}

/// Answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The chunk's highest version now.
    pub version: Version,
    /// The write's number in the store; it is on stable storage when [`ChunkStore::stable_seq`] reaches it.
    pub seq: u64,
    /// The chunk's content ends later than before.
    pub grew: bool,
}

/// Answer to a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    pub chunk: ChunkId,
    /// Everything up to this version is on stable storage.
    pub version: Version,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStat {
    pub container: ContainerId,
    pub chunk_bytes: u64,
    /// End of the last byte written and not cut.
    pub length: u64,
    /// Bytes occupied on the disk or in memory.
    pub occupied: u64,
    pub version: Version,
    pub trunc_gen: TruncGen,
    /// Of the file it was last written for; 0 if no write has said.
    pub inode: InodeId,
    pub index: ChunkIndex,
    /// It had not been synced, or only once, when the store was opened after a crash: any part of what had been written to it
    /// may be missing. (That a sync has returned is stable with the next.) Nothing takes it back.
    pub unsure: bool,
}

/// A part of a chunk that cannot be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedPart {
    /// What says what the chunk is: nothing of it can be read.
    Header,
    /// Bytes are missing, or do not match their checksums; what else there is can be read.
    Data,
}

/// What is wrong with a chunk, in words that name the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub part: DamagedPart,
    pub cause: String,
}

/// A chunk as [`ChunkStore::examine`] found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// `None` if what says so cannot be used.
    pub stat: Option<ChunkStat>,
    pub damage: Option<Damage>,
}

/// What a chunk is beside its bytes: what copies of it have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHead {
    pub chunk_bytes: u64,
    pub length: u64,
    pub trunc_gen: TruncGen,
    pub inode: InodeId,
    pub index: ChunkIndex,
}

/// What a sync of a copy covered; to be given back with the record that speaks of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordMark {
    /// In the activity log.
    pub(crate) uses: u64,
    pub(crate) length: u64,
}

/// A copy that was here when the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundCopy {
    pub chunk: ChunkId,
    pub container: ContainerId,
    /// The newest that was kept; `None` if none ever was, or none is whole.
    pub record: Option<Vec<u8>>,
    /// Blocks that may have changed since the sync the record speaks of began; all others are as they were then.
    pub suspect: Vec<Range<u64>>,
    /// Of these, what does not match its checksum.
    pub bad: Vec<u64>,
}

/// A piece of a chunk that is all data or all hole, at the grain of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub range: ByteRange,
    pub data: bool,
}

/// Where a scrub goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCursor {
    pub chunk: ChunkId,
    pub block: u64,
}

/// What a step of scrubbing found.
#[derive(Clone, Debug, Default)]
pub struct ScrubStep {
    /// `None` at the end of the store.
    pub next: Option<ScrubCursor>,
    pub checked_bytes: u64,
    pub bad: Vec<(ChunkId, u64)>,
    /// A chunk that could not be verified to its end, with which the step ended; `next` is behind it.
    pub failed: Option<(ChunkId, StoreError)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    pub chunks: u64,
    pub total_bytes: u64,
    /// Bytes that can still be reserved.
    pub free_bytes: u64,
    pub reserved_bytes: u64,
    /// As [`braid_env::DiskSpace::disk`].
    pub disk: u64,
    /// Blocks taken as they were after a crash, since this store was opened.
    pub sealed_blocks: u64,
    /// Blocks known to be bad now.
    pub bad_blocks: u64,
}

/// A store of chunks. Calls for different chunks run at once; calls for one chunk are ordered.
pub trait ChunkStore: Send + Sync {
    /// Makes an empty chunk; does nothing if it exists.
    fn create(&self, chunk: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()>;

    /// Cuts as `info.cuts` says, then writes, making the chunk if it does not exist. When this returns, the bytes
    /// survive the death of the process; of the machine only after a sync.
    fn write(&self, chunk: ChunkId, offset: u64, bytes: &[u8], info: &WriteInfo) -> Result<Written>;

    /// Makes an empty chunk that is a copy among others; does nothing if it exists. A copy has a record, which says
    /// what of its content counts: so nothing of it is sealed after a crash, and what changed since the sync its last
    /// record speaks of stays known until the next record is kept.
    fn create_copy(&self, chunk: ChunkId, container: ContainerId, chunk_bytes: u64) -> Result<()>;

    /// Makes these blocks of `to`, which exists, what they are in `from`: bytes and holes; what lies behind the end of `from` is
    /// a hole. `to` is at least as long as what it has from there. Space is shared where that is possible, until one of the
    /// two changes: then what was shared is copied first, so that `to` keeps what it has whatever becomes of `from`, its
    /// deletion included. That is slow for `from`: it is for chunks that are not written any more.
    ///
    /// `from` is on stable storage when this returns; `to` as after a write. A block of `from` that is bad is bad in `to`, or this
    /// fails.
    fn clone_blocks(&self, to: ChunkId, from: ChunkId, blocks: Range<u64>, info: &WriteInfo) -> Result<Written>;

    /// Makes the chunk `to` one that begins as `from` is, on stable storage: whole or not at all, whatever happens meanwhile. Does nothing
    /// if `to` has been written already.
    fn clone_chunk(&self, to: ChunkId, from: ChunkId, info: &WriteInfo) -> Result<Written> {
        let source = self.stat(from)?;
        if source.length > info.chunk_bytes {
            let (end, chunk_bytes) = (source.length, info.chunk_bytes);
            return Err(StoreError::BeyondChunk { chunk: to, end, chunk_bytes });
        }
        self.create(to, info.container, info.chunk_bytes)?;
        let found = self.stat(to)?;
        if found.version != Version::default() {
            self.apply_cuts(to, &info.cuts)?;
            self.sync(&[to])?;
            return Ok(Written { version: found.version, seq: self.write_seq(), grew: false });
        }
        if found.length > source.length {
            // What an attempt with another chunk has left.
            self.delete(&[to])?;
            self.create(to, info.container, info.chunk_bytes)?;
        }
        // Its version says that all of it is there, so it comes when that is stable. An attempt that was interrupted is made again.
        let cuts = Cuts { trunc_gen: source.trunc_gen, list: &[] };
        let unversioned = WriteInfo { version: Version::default(), cuts, ..*info };
        self.clone_blocks(to, from, 0..source.length.div_ceil(BLOCK_BYTES), &unversioned)?;
        self.sync(&[to])?;
        let written = self.write(to, 0, &[], info)?;
        self.sync(&[to])?;
        Ok(Written { grew: source.length > 0, ..written })
    }

    /// As [`ChunkStore::sync`] of one copy.
    fn sync_copy(&self, chunk: ChunkId) -> Result<RecordMark>;

    /// Keeps the record in the place of the last one, durably. What it says must be true of what the sync of `mark`
    /// covered, or name it as possibly changed.
    fn put_record(&self, chunk: ChunkId, mark: &RecordMark, record: &[u8]) -> Result<()>;

    /// The copies that were here when the store was opened, as they were then. To be asked once, by who opens it.
    fn copies(&self) -> Vec<FoundCopy>;

    /// Makes a copy what another is. A shorter length cuts, durably.
    fn set_head(&self, chunk: ChunkId, head: &ChunkHead) -> Result<()>;

    /// Takes blocks as they are, whatever their checksum; returns how many did not match.
    fn seal(&self, chunk: ChunkId, blocks: Range<u64>) -> Result<u64>;

    /// Fills `buf`; holes and what is past the length are zeros. Every block touched is verified.
    fn read(&self, chunk: ChunkId, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// As [`ChunkStore::read`], of bytes that the reader keeps in this machine's memory: the store need not.
    fn read_kept_beside(&self, chunk: ChunkId, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(chunk, offset, buf)
    }

    /// As [`ChunkStore::read`] if that waits for neither the disk nor a writer; else false, and `buf` is undefined.
    fn read_cached(&self, chunk: ChunkId, offset: u64, buf: &mut [u8]) -> Result<bool>;

    /// The chunk's files, for a reader on this machine; `None` where there are none. What is written from now on is in them as soon
    /// as the write has returned; what takes the chunk's place under its names is not.
    fn local(&self, _chunk: ChunkId) -> Result<Option<LocalChunk>> {
        Ok(None)
    }

    /// Calls `tell` from now on before other files take the place of a chunk's that were handed out by [`ChunkStore::local`]: what had been
    /// handed out is not to be used any more. To be called once.
    fn tell_of_renewals(&self, _tell: Box<dyn Fn(ChunkId) + Send + Sync>) {}

    /// Refuses an older truncate generation than the chunk has seen; applies a newer one's cuts and keeps it. A
    /// request passes here before it reads.
    fn apply_cuts(&self, chunk: ChunkId, cuts: &Cuts) -> Result<()>;

    /// Makes the range a hole; the length stays.
    fn punch(&self, chunk: ChunkId, range: ByteRange, info: &WriteInfo) -> Result<Written>;

    /// Makes everything written to the chunks stable.
    fn sync(&self, chunks: &[ChunkId]) -> Result<Vec<Synced>>;

    /// Makes everything written so far stable and returns [`ChunkStore::stable_seq`]. If some chunk cannot be
    /// synced, the others are, and its error is returned.
    fn sync_all(&self) -> Result<u64>;

    /// Nothing has been written for a moment: tidies up so that a crash finds less to verify.
    fn rest(&self) -> Result<()> {
        Ok(())
    }

    /// The number of the last change. Counts from 1 at every opening of the store.
    fn write_seq(&self) -> u64;

    /// All changes up to this number are on stable storage (of a memory store: in memory).
    fn stable_seq(&self) -> u64;

    /// Sets space aside for new blocks of a chunk, which need not exist yet, so that writes up to this amount do
    /// not fail for want of space.
    fn reserve(&self, chunk: ChunkId, bytes: u64) -> Result<()>;

    /// Sees that at least so much is set aside for the chunk, whatever was before.
    fn reserve_at_least(&self, chunk: ChunkId, bytes: u64) -> Result<()>;

    /// Gives back what is still reserved, at most `bytes`.
    fn unreserve(&self, chunk: ChunkId, bytes: u64);

    /// Removes the chunks, durably; those that do not exist are skipped.
    fn delete(&self, chunks: &[ChunkId]) -> Result<()>;

    fn stat(&self, chunk: ChunkId) -> Result<ChunkStat>;

    /// As [`ChunkStore::stat`], and looks whether its files are there, as long as they must be, and free of blocks that are
    /// known to be bad. Damage is an answer, no error; blocks that nobody has read since they rotted are left to a scrub.
    fn examine(&self, chunk: ChunkId) -> Result<Examined> {
        Ok(Examined { stat: Some(self.stat(chunk)?), damage: None })
    }

    /// Takes the files of a damaged chunk out of the store, durably, and keeps them beside it; answers where. Nothing of a
    /// chunk that is sound is touched: then the answer is `None`.
    fn set_aside(&self, chunk: ChunkId) -> Result<Option<std::path::PathBuf>> {
        self.stat(chunk).map(|_| None)
    }

    /// The range as data and holes in turn; past the length all is a hole.
    fn extents(&self, chunk: ChunkId, range: ByteRange) -> Result<Vec<Extent>>;

    /// Up to `limit` chunks after `after`, by id.
    fn list(&self, after: ChunkId, limit: usize) -> Vec<ChunkId>;

    /// Those of the chunks that are listed whose files are gone, whatever this process has open of them.
    fn missing(&self) -> Result<Vec<ChunkId>> {
        Ok(Vec::new())
    }

    /// Is it not listed, or are files of it gone?
    fn is_missing(&self, chunk: ChunkId) -> Result<bool> {
        match self.stat(chunk) {
            Ok(_) => Ok(false),
            Err(StoreError::NoSuchChunk(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Verifies about `bytes` (at least a block) from the cursor on.
    fn scrub_step(&self, from: ScrubCursor, bytes: u64) -> Result<ScrubStep>;

    /// Where a scrub was that an earlier process began, as far as that is known.
    fn scrub_cursor(&self) -> ScrubCursor {
        ScrubCursor::default()
    }

    /// Remembers where a scrub is, for the next process. What of it is lost is verified twice.
    fn keep_scrub_cursor(&self, _at: ScrubCursor) -> Result<()> {
        Ok(())
    }

    fn usage(&self) -> Result<StoreUsage>;

    /// Makes everything stable, and the next start has nothing to verify.
    fn close(&self) -> Result<()> {
        self.sync_all().map(drop)
    }
}

/// Data and holes of a range, from what each block is.
pub(crate) fn extents_of(range: ByteRange, block_bytes: u64, is_data: impl Fn(u64) -> bool) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    for (block, piece) in range.split_by(block_bytes) {
        let range = ByteRange::new(block * block_bytes + piece.start, block * block_bytes + piece.end);
        let data = is_data(block);
        match found.last_mut() {
            Some(last) if last.data == data => last.range.end = range.end,
            _ => found.push(Extent { range, data }),
        }
    }
    found
}
