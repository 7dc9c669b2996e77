//! A chunk takes the place of another one with the same bytes, and spares that are not used go back
//! (docs/design/0016-growing-and-shrinking.md, *Chunks with one copy*).
//!
//! Promises: the file is the same to everybody who looks, times included; the old chunk is freed in the transaction that puts the new one
//! into its place, so that one of them is the file's at any time, and never both.

use super::open::expect_file;
use crate::rows::{ChunkRow, OldRow, ReclaimRow, RowFormat, SpareRow, flags, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{ListPlaced, MoveChunk, Placed, ReturnSpares};
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Table};
use braid_types::{ChunkId, ContainerId, InodeId, LayoutGen};
use std::collections::BTreeSet;

/// Rows of chunks that are looked at for one page: 64 bytes or so each.
const ROWS_A_PAGE: usize = 4096;

/// The transaction behind [`MoveChunk`].
pub struct PutInPlace {
    pub message: MoveChunk,
    /// The session may write the file, and nobody else may.
    pub alone: bool,
}

impl Mutation for PutInPlace {
    type Answer = bool;

    fn first_keys(&self) -> Vec<Key> {
        let mut first = super::keys_of(&self.message.inode);
        first.push(keys::chunk(self.message.inode.id, self.message.index));
        first
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<bool, OpError> {
        let MoveChunk { inode, index, from, to, trunc_gen, thaws } = &self.message;
        let mut located = unit.find(inode).await?;
        let inode = &mut located.inode;
        expect_file(inode)?;
        if !self.alone && !inode.has(flags::SEALED) {
            let cause = "its chunks are moved only by who may write it alone";
            return Err(Error::new(Code::StaleLease, format_args!("inode {}", inode.id), cause).into());
        }
        let key = keys::chunk(inode.id, *index);
        let spare_key = keys::spare(cx.session, *to);
        let Some(row) = unit.get::<ChunkRow>(&key).await?.filter(|row| row.chunk == *from) else { return Ok(false) };
        if inode.trunc_gen != *trunc_gen {
            return Ok(false);
        }
        let Some(spare) = unit.get::<SpareRow>(&spare_key).await?.filter(|spare| spare.for_moves) else {
            let cause = "it is not a spare of this session for moves (any more)";
            return Err(Error::new(Code::StaleLease, format_args!("chunk {to} of inode {}", inode.id), cause).into());
        };
        unit.delete(spare_key);
        unit.put(keys::reclaim_chunk(*from), &ReclaimRow { container: row.container });
        // One that thaws is new: snapshots keep the other. One that is moved takes the other's place wherever it was.
        let born = if *thaws { None } else { Some(row.born.unwrap_or(0)) };
        if !*thaws && inode.snapshot_root.0 != 0 {
            move_old(unit, inode.snapshot_root, &key, (*from, *to), spare.container).await?;
        }
        unit.put(key, &ChunkRow { chunk: *to, container: spare.container, stable: true, born });
        // Whoever has a map of before knows by it that there is another; the times are those of the bytes, which are the same.
        inode.layout_gen = LayoutGen(inode.layout_gen.0 + 1);
        unit.store(&located);
        Ok(true)
    }
}

/// Snapshots name the new one as well.
async fn move_old(
    unit: &mut Unit<'_>,
    root: InodeId,
    key: &Key,
    (from, to): (ChunkId, ChunkId),
    container: ContainerId,
) -> Result<(), OpError> {
    let page = unit.scan(&keys::old_rows_below(root, key), None, usize::MAX >> 1).await?;
    for (old_key, old) in page.rows {
        let old = OldRow::decode(&old_key, &old)?;
        let Some(bytes) = &old.row else { continue };
        let row = ChunkRow::decode(key, bytes)?;
        if row.chunk == from {
            let row = ChunkRow { chunk: to, container, stable: true, ..row }.encode();
            unit.put(old_key, &OldRow { row: Some(row.into()), ..old });
        }
    }
    Ok(())
}

impl Mutation for ReturnSpares {
    type Answer = ();

    fn first_keys(&self) -> Vec<Key> {
        Vec::new()
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<(), OpError> {
        if self.chunks.len() > ReturnSpares::MAX {
            return Err(Error::new(Code::Invalid, "ReturnSpares", format_args!("{} chunks", self.chunks.len())).into());
        }
        return_spares(unit, cx, &self.chunks).await
    }
}

impl Query for ListPlaced {
    type Answer = Placed;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Placed, OpError> {
        let wanted: BTreeSet<_> = self.containers.iter().collect();
        let after = self.after.map(|(inode, index)| keys::chunk(inode, index));
        let page = unit.scan_table(Table::Chunks, after.as_ref(), ROWS_A_PAGE).await?;
        let mut placed = Placed::default();
        for (key, row) in &page.rows {
            let (inode, row) = (InodeId(key.partition()), ChunkRow::decode(key, row)?);
            let Some(index) = keys::chunk_index(key) else { continue };
            if wanted.contains(&row.container) {
                placed.chunks.push((inode, row.at(index, 0)));
            }
            placed.next = page.more.then_some((inode, index));
        }
        Ok(placed)
    }
}

/// They are freed as chunks of files are.
pub(super) async fn return_spares(
    unit: &mut Unit<'_>,
    cx: &OpContext,
    chunks: &[braid_types::ChunkId],
) -> Result<(), OpError> {
    let spares: Vec<Key> = chunks.iter().map(|chunk| keys::spare(cx.session, *chunk)).collect();
    unit.load(&spares).await?;
    for (chunk, key) in chunks.iter().zip(spares) {
        if let Some(SpareRow { container, .. }) = unit.get::<SpareRow>(&key).await? {
            unit.delete(key);
            unit.put(keys::reclaim_chunk(*chunk), &ReclaimRow { container });
        }
    }
    Ok(())
}
