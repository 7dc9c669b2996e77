//! A chunk takes the place of another one with the same bytes, and spares that are not used go back
//! (docs/design/0016-growing-and-shrinking.md, *Chunks with one copy*).
//!
//! Promises: the file is the same to everybody who looks, times included; the old chunk is freed in the transaction that puts the new one
//! into its place, so that one of them is the file's at any time, and never both.

use super::open::expect_file;
use crate::rows::{ChunkRow, ContainerRow, OldRow, ReclaimRow, RowFormat, SpareRow, flags, keys};
use crate::{Mutation, OpContext, OpError, Query, Unit};
use braid_api::meta::{FindKept, KeptChunk, ListPlaced, MoveChunk, MoveKept, MoveKind, Placed, ReturnSpares};
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
        let MoveChunk { inode, index, from, to, trunc_gen, why } = &self.message;
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
        if *why == MoveKind::Lost && row.stable {
            let cause = "it was on stable storage, and its data server does not have it any more";
            return Err(Error::new(Code::ChunkLost, format_args!("chunk {from} of inode {}", inode.id), cause).into());
        }
        let Some(spare) = unit.get::<SpareRow>(&spare_key).await?.filter(|spare| spare.for_moves) else {
            let cause = "it is not a spare of this session for moves (any more)";
            return Err(Error::new(Code::StaleLease, format_args!("chunk {to} of inode {}", inode.id), cause).into());
        };
        unit.delete(spare_key);
        unit.put(keys::reclaim_chunk(*from), &ReclaimRow { container: row.container });
        // One that thaws is new: snapshots keep the other. One that is moved takes the other's place wherever it was.
        let born = if *why == MoveKind::Moved { Some(row.born.unwrap_or(0)) } else { None };
        if *why == MoveKind::Moved && inode.snapshot_root.0 != 0 {
            move_old(unit, inode.snapshot_root, &key, (*from, *to), spare.container).await?;
        }
        unit.put(key, &ChunkRow { chunk: *to, container: spare.container, stable: *why != MoveKind::Lost, born });
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

/// The rows that snapshots have of a place in a file, which name this chunk, and that of a file that has gone. `None`: a file has it.
async fn kept_rows(
    unit: &mut Unit<'_>,
    of: &Key,
    inode: InodeId,
    chunk: ChunkId,
) -> Result<Option<Vec<(Key, OldRow)>>, OpError> {
    let live = unit.get::<ChunkRow>(of).await?.is_some_and(|row| row.chunk == chunk);
    let mut found = Vec::new();
    for (root, _) in super::snapshot::roots(unit).await? {
        if live && unit.get_raw(&keys::kept_inode(root, inode)).await?.is_none() {
            continue;
        }
        if live {
            // Under the key of the row itself.
            found.push((of.clone(), OldRow { born: 0, row: None }));
        }
        let page = unit.scan(&keys::old_rows_below(root, of), None, usize::MAX >> 1).await?;
        for (key, row) in page.rows {
            let old = OldRow::decode(&key, &row)?;
            if let Some(row) = &old.row
                && ChunkRow::decode(of, row)?.chunk == chunk
            {
                found.push((key, old));
            }
        }
    }
    Ok((!live || !found.is_empty()).then_some(found))
}

impl Query for FindKept {
    type Answer = Option<KeptChunk>;

    async fn ask(&self, unit: &mut Unit<'_>) -> Result<Option<KeptChunk>, OpError> {
        let of = keys::chunk(self.inode, self.index);
        let rows = kept_rows(unit, &of, self.inode, self.chunk).await?.unwrap_or_default();
        let Some((_, old)) = rows.first() else { return Ok(None) };
        let row = match &old.row {
            Some(row) => ChunkRow::decode(&of, row)?,
            None => match unit.get::<ChunkRow>(&of).await? {
                Some(row) => row,
                None => return Ok(None),
            },
        };
        let container = unit.get::<ContainerRow>(&keys::container(row.container)).await?;
        let kept =
            |found: ContainerRow| KeptChunk { container: found.info(row.container), chunk_bytes: found.chunk_bytes };
        Ok(container.map(kept))
    }
}

impl Mutation for MoveKept {
    type Answer = bool;

    fn first_keys(&self) -> Vec<Key> {
        vec![keys::chunk(self.inode, self.index)]
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<bool, OpError> {
        let MoveKept { inode, index, from, to } = *self;
        let of = keys::chunk(inode, index);
        let spare_key = keys::spare(cx.session, to);
        let rows = kept_rows(unit, &of, inode, from).await?.unwrap_or_default();
        if rows.is_empty() {
            return Ok(false);
        }
        let Some(spare) = unit.get::<SpareRow>(&spare_key).await?.filter(|spare| spare.for_moves) else {
            let cause = "it is not a spare of this session for moves (any more)";
            return Err(Error::new(Code::StaleLease, format_args!("chunk {to} of inode {inode}"), cause).into());
        };
        let moved = |row: ChunkRow| ChunkRow { chunk: to, container: spare.container, stable: true, ..row };
        let mut container = None;
        for (key, old) in rows {
            match &old.row {
                Some(bytes) => {
                    let row = ChunkRow::decode(&of, bytes)?;
                    container = Some(row.container);
                    unit.put(key, &OldRow { row: Some(moved(row).encode().into()), ..old });
                }
                None => {
                    let Some(row) = unit.get::<ChunkRow>(&of).await? else { continue };
                    container = Some(row.container);
                    // That it came then says that it is moved.
                    unit.put(of.clone(), &ChunkRow { born: Some(row.born.unwrap_or(0)), ..moved(row) });
                }
            }
        }
        unit.delete(spare_key);
        if let Some(container) = container {
            unit.put(keys::reclaim_chunk(from), &ReclaimRow { container });
        }
        Ok(true)
    }
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
