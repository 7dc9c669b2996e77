//! Chunks that their server does not know.
//!
//! A data server answers for the store that bears its id, and only once that is open: what it does not know was never
//! written, was deleted, or was lost: with its power before it was synced, or from its disk. The metadata server tells which: a
//! chunk that a row names was lost, and if the row says that it was on stable storage, nothing is made up for it: reads and
//! writes fail.

use crate::core::{Core, Op};
use crate::retain::ChunkKey;
use crate::servers::Lane;
use braid_api::data::{Make, SyncChunks};
use braid_api::meta::{Content, GetMap};
use braid_api::{Code, Error, Result};
use braid_types::{ByteRange, ChunkId};
use bytes::Bytes;
use std::sync::atomic::Ordering::Relaxed;

/// Lost chunks remembered: a read of one of these does not wait for it again.
pub const LOST_MAX: usize = 4096;

impl Core {
    /// Whether a write to the chunk may make it: only a spare of this session that is in no file yet.
    pub fn make_of(&self, key: &ChunkKey) -> Make {
        // What has been on stable storage is not made anew, whether a row says so yet or not.
        if self.is_fresh(key) && !self.is_proven(key.chunk) { Make::Yes } else { Make::No }
    }

    /// It is a spare of this session that no row names.
    fn is_fresh(&self, key: &ChunkKey) -> bool {
        let session = self.session.id();
        self.inodes.get(key.inode).is_some_and(|inode| {
            let state = inode.state.lock();
            state.body.slot(key.index).is_some_and(|slot| slot.chunk == key.chunk && slot.fresh == Some(session))
        })
    }

    /// The server does not know a chunk that is to be written: may it be made again? Not if no row names it any more.
    pub async fn make_again(&self, lane: &Lane, key: &ChunkKey, op: Op) -> Result<Option<Make>> {
        match (self.is_fresh(key), self.is_proven(key.chunk)) {
            (true, true) => return Err(self.lost_from_disk(key)),
            (true, false) => return Ok(Some(Make::Yes)),
            (false, _) => {}
        }
        // Before the look at the row: what is deleted from now on the server refuses to make.
        let message = SyncChunks::of(Vec::new());
        let (state, _) = self.ask(lane, self.session.token(), message, Bytes::new(), op).await?;
        let named = match self.call(GetMap { inode: self.cache.inode(key.inode), first: key.index }, op).await {
            Ok(answer) => match answer.map.content {
                Content::Chunked(page) => {
                    let at = page.chunks.iter().find(|at| at.index == key.index && at.chunk == key.chunk);
                    // It may have been given another place, by who moves chunks: then no row names it.
                    if at.is_some_and(|at| at.stable || self.is_proven(key.chunk)) {
                        return Err(self.lost_from_disk(key));
                    }
                    at.is_some()
                }
                Content::Inline(_) => false,
            },
            Err(error) if matches!(error.code, Code::NotFound | Code::Stale) => false,
            Err(error) => return Err(error),
        };
        Ok(named.then_some(Make::Lost { incarnation: state.incarnation, deletions: state.deletions }))
    }

    /// No row names the chunk: what is retained for it is repeated no more.
    pub fn give_up_chunk(&self, lane: &Lane, key: &ChunkKey) {
        tracing::info!(chunk = key.chunk.0, inode = key.inode.0, "a chunk was deleted, its writes are not repeated");
        lane.retained(|retain| retain.forget(key.chunk));
    }

    /// What was written to the chunk here is not stable and can be nowhere else: the chunk itself is gone.
    pub fn lose_with_chunk(&self, lane: &Lane, key: &ChunkKey, error: Error) {
        let whole = ByteRange::new(0, u64::MAX);
        let bytes = lane.retained(|retain| {
            let bytes = retain.overlay(key.chunk, whole).iter().map(|(_, bytes)| bytes.len() as u64).sum();
            retain.forget(key.chunk);
            bytes
        });
        tracing::error!(%error, bytes, "written bytes are lost with their chunk");
        self.counters.bytes_lost.fetch_add(bytes, Relaxed);
        if let Some(inode) = self.inodes.get(key.inode) {
            self.update(&inode, |state| state.lose(error));
        }
    }

    /// The server has known nothing of a chunk of a file for as long as its writer may take to repeat it. An error if its row
    /// says that it was on stable storage; else it reads as a hole.
    pub fn chunk_is_lost(&self, key: &ChunkKey) -> Result<()> {
        if key.stable {
            return Err(self.lost_from_disk(key));
        }
        if self.is_news(key.chunk) {
            tracing::warn!(
                chunk = key.chunk.0,
                inode = key.inode.0,
                "the file's data server does not have this chunk, which reads as a hole: it was lost unsynced with the server's power"
            );
        }
        Ok(())
    }

    pub fn lost_from_disk(&self, key: &ChunkKey) -> Error {
        let about = format!("chunk {} of inode {}", key.chunk, key.inode);
        let cause = "its data server had it on stable storage and does not have it any more; braid admin fsck names what is \
                     missing, and the file is readable when its files are put back, or another copy of it";
        let error = Error::new(Code::ChunkLost, about, cause);
        if self.is_news(key.chunk) {
            tracing::error!(%error, "bytes of a file are lost");
        }
        error
    }

    fn is_news(&self, chunk: ChunkId) -> bool {
        let mut lost = self.lost.lock();
        let is_news = lost.get(&chunk).is_none();
        if is_news {
            lost.insert(chunk, ());
            self.counters.chunks_lost.fetch_add(1, Relaxed);
        }
        is_news
    }
}
