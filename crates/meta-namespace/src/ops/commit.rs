//! What a client did to a file's bytes: size, times, inline content or new chunks.

use super::content::{drop_inline, newest_snapshot, policy_of, put_inline};
use super::free::{drop_chunk_rows, forget_cuts};
use super::move_chunk::return_spares;
use super::open::expect_file;
use super::seal::expect_unsealed;
use crate::rows::{ChunkRow, Inode, ReclaimRow, SpareRow, flags, keys};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::meta::{ChunkPage, ChunkRef, CommitAnswer, CommitContent, CommitFile, Grant};
use braid_api::{Code, Error};
use braid_meta_engine::Key;
use braid_types::{ChunkIndex, FILE_BYTES_MAX, INLINE_BYTES_MAX, Timestamp};

impl Mutation for CommitFile {
    type Answer = CommitAnswer;

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.inode);
        if let CommitContent::Chunks(chunks) = &self.content {
            first.extend(chunks.iter().map(|c| keys::chunk(self.inode.id, c.index)));
        }
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<CommitAnswer, OpError> {
        // It was granted before the bytes were written, if they are charged to who has a quota.
        unit.exempt();
        let mut located = unit.find(&self.inode).await?;
        let inode = &mut located.inode;
        expect_file(inode)?;
        if self.changes(inode) {
            expect_unsealed(inode)?;
        }
        if self.trunc_gen < inode.trunc_gen {
            return Err(Error::new(
                Code::StaleTruncGen,
                format_args!("inode {}", inode.id),
                format_args!("committed under generation {}, now {}", self.trunc_gen, inode.trunc_gen),
            )
            .into());
        }
        if self.size > FILE_BYTES_MAX {
            return Err(Code::FileTooBig.into());
        }
        forget_cuts(inode, self.cuts_applied);
        let mut instead = Vec::new();
        let mut changed = true;
        match &self.content {
            CommitContent::Unchanged => changed = self.mtime.is_some() || self.size > inode.size,
            CommitContent::Inline(bytes) => {
                if bytes.len() > INLINE_BYTES_MAX as usize || bytes.len() as u64 > self.size {
                    return Err(Code::Invalid.into());
                }
                if self.content.is_in_row() {
                    cx.expect_copies(inode.id, &policy_of(inode))?;
                }
                if inode.has(flags::CHUNKED) {
                    drop_chunk_rows(unit, inode, ChunkIndex(0), None).await?;
                    inode.set(flags::CHUNKED, false);
                    inode.cuts.clear();
                }
                put_inline(unit, inode, bytes);
            }
            CommitContent::Chunks(chunks) => {
                let spares: Vec<Key> = chunks.iter().map(|c| keys::spare(cx.session, c.chunk)).collect();
                unit.load(&spares).await?;
                for chunk in chunks {
                    if let Some(other) = add_chunk(unit, cx, inode, chunk).await? {
                        instead.push(other);
                    }
                }
                drop_inline(unit, inode);
                inode.set(flags::CHUNKED, true);
            }
        }
        return_spares(unit, cx, &self.unused).await?;
        inode.size = inode.size.max(self.size);
        // Times never go back, whatever the clocks of client and server say of each other.
        if let Some(mtime) = self.mtime {
            inode.mtime = inode.mtime.max(mtime);
        }
        if let Some(atime) = self.atime {
            inode.atime = atime;
        }
        if self.kill_privileges {
            inode.kill_privileges();
        }
        if changed {
            // Later than before, so that whoever cached the bytes sees that there are others; a client whose clock is
            // ahead has shown its own time already.
            let later = Timestamp(inode.ctime.0.saturating_add(1));
            inode.change(cx.now.max(later).max(self.mtime.unwrap_or(later)));
        }
        unit.store(&located);
        Ok(CommitAnswer {
            attr: located.inode.attr(),
            cuts: located.inode.cuts,
            grant: Grant::default(),
            instead: ChunkPage { chunks: instead, ..ChunkPage::default() },
        })
    }
}

trait Changes {
    /// More than the time of the last read.
    fn changes(&self, inode: &Inode) -> bool;
}

impl Changes for CommitFile {
    fn changes(&self, inode: &Inode) -> bool {
        let same_bytes = matches!(self.content, CommitContent::Unchanged) && self.size <= inode.size;
        !same_bytes || self.mtime.is_some() || self.kill_privileges
    }
}

/// Puts a spare of the session into the file. If there is another chunk at that index, that one stays, the spare
/// is freed, and the answer says so.
async fn add_chunk(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    inode: &Inode,
    new: &ChunkRef,
) -> Result<Option<ChunkRef>, OpError> {
    let key = keys::chunk(inode.id, new.index);
    let spare_key = keys::spare(cx.session, new.chunk);
    let there = unit.get::<ChunkRow>(&key).await?;
    if let Some(row) = there.filter(|row| row.chunk == new.chunk) {
        if new.stable && !row.stable {
            unit.put(key, &ChunkRow { stable: true, ..row });
        }
        return Ok(None);
    }
    let Some(spare) = unit.get::<SpareRow>(&spare_key).await? else {
        return Err(Error::new(
            Code::StaleLease,
            format_args!("chunk {} of inode {}", new.chunk, inode.id),
            "it is not a spare of this session (any more)",
        )
        .into());
    };
    unit.delete(spare_key);
    match there {
        Some(row) => {
            unit.put(keys::reclaim_chunk(new.chunk), &ReclaimRow { container: spare.container });
            let newest = newest_snapshot(unit, inode).await?;
            Ok(Some(row.at(new.index, newest)))
        }
        None => {
            unit.insert(
                key,
                &ChunkRow { chunk: new.chunk, container: spare.container, stable: new.stable, born: None },
            );
            Ok(None)
        }
    }
}
