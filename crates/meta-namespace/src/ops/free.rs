//! Letting go: truncation, and what happens to an inode that lost its last name.

use super::content::{chunk_refs, drop_inline, inline_bytes, newest_snapshot, policy_of, put_inline};
use crate::rows::{ChunkRow, IdRow, Inode, OrphanRow, ReclaimRow, flags, keys};
use crate::{OpContext, OpError, Unit};
use braid_api::{Code, Error};
use braid_types::{ChunkIndex, ContainerId, FILE_BYTES_MAX};

/// Cuts remembered in a row. A client applies each cut at once and says so with its next request, so more than
/// one stands there only while servers or clients are down.
const CUTS_MAX: usize = 16;

/// Rows moved in one transaction when many chunks are let go.
const ROWS_A_PAGE: usize = 1024;

/// Changes a file's size (design.md *Size and times*): whole chunks beyond it go, the generation rises, and the
/// cut inside the last chunk is remembered until its owner has made it. The caller sets the times and stores.
///
/// Also if the file grows by it or stays as long as it is: a client that died may have sent bytes beyond the size on
/// record. Without a cut they would be read as soon as the file is longer still, or raise its size when that
/// client's session ends.
pub async fn truncate(unit: &mut Unit<'_>, inode: &mut Inode, size: u64) -> Result<(), OpError> {
    if size > FILE_BYTES_MAX {
        return Err(Code::FileTooBig.into());
    }
    let is_chunked = inode.has(flags::CHUNKED);
    // What is empty and stays so is what most opens with O_TRUNC meet.
    if size == 0 && inode.size == 0 && !is_chunked {
        return Ok(());
    }
    inode.trunc_gen = inode.trunc_gen.next();
    if is_chunked {
        let chunk_bytes = policy_of(inode).chunk_bytes;
        expect_thawed(unit, inode, size).await?;
        drop_chunk_rows(unit, inode, ChunkIndex(size.div_ceil(chunk_bytes)), None).await?;
    } else if size < inode.size {
        let mut bytes = inline_bytes(unit, inode).await?;
        if bytes.len() as u64 > size {
            bytes.truncate(size as usize);
            put_inline(unit, inode, &bytes);
        }
    }
    if size == 0 {
        inode.set(flags::CHUNKED, false);
        inode.cuts.clear();
    } else {
        remember_cut(inode, size)?;
    }
    inode.size = size;
    // Whoever wrote beyond it, and writes on, asks again.
    inode.room = 0;
    Ok(())
}

/// A chunk that is cut in two is written.
async fn expect_thawed(unit: &mut Unit<'_>, inode: &Inode, size: u64) -> Result<(), OpError> {
    let chunk_bytes = policy_of(inode).chunk_bytes;
    let newest = newest_snapshot(unit, inode).await?;
    if newest == 0 || size.is_multiple_of(chunk_bytes) {
        return Ok(());
    }
    let index = ChunkIndex(size / chunk_bytes);
    match unit.get::<ChunkRow>(&keys::chunk(inode.id, index)).await? {
        Some(row) if row.is_older_than(newest) => {
            let cause = format_args!("chunk {} of inode {} is cut in two", index.0, inode.id);
            Err(Error::new(Code::Frozen, format_args!("chunk {}", row.chunk), cause).into())
        }
        _ => Ok(()),
    }
}

/// Keeps of `cuts` only what still matters: a cut at a larger size is contained in a later one at a smaller.
fn remember_cut(inode: &mut Inode, size: u64) -> Result<(), OpError> {
    inode.cuts.retain(|&(_, at)| at < size);
    if inode.cuts.len() >= CUTS_MAX {
        return Err(Error::new(
            Code::Busy,
            format_args!("inode {}", inode.id),
            "earlier truncations have not reached its data server yet",
        )
        .into());
    }
    inode.cuts.push((inode.trunc_gen, size));
    Ok(())
}

/// Forgets cuts that the owners are known to have made.
pub fn forget_cuts(inode: &mut Inode, applied: braid_types::TruncGen) {
    inode.cuts.retain(|&(generation, _)| generation > applied);
}

/// Removes chunk rows from `from` up to `until` and hands their chunks to reclaim.
pub async fn drop_chunk_rows(
    unit: &mut Unit<'_>,
    inode: &Inode,
    from: ChunkIndex,
    until: Option<ChunkIndex>,
) -> Result<(), OpError> {
    let prefix = keys::chunks(inode.id);
    let mut after = from.0.checked_sub(1).map(|i| keys::chunk(inode.id, ChunkIndex(i)));
    loop {
        let page = unit.scan(&prefix, after.as_ref(), ROWS_A_PAGE).await?;
        for chunk in chunk_refs(&page.rows, 0)? {
            if until.is_some_and(|end| chunk.index >= end) {
                return Ok(());
            }
            unit.delete(keys::chunk(inode.id, chunk.index));
            unit.put(keys::reclaim_chunk(chunk.chunk), &ReclaimRow { container: chunk.container });
        }
        match page.rows.into_iter().next_back() {
            Some((key, _)) if page.more => after = Some(key),
            _ => return Ok(()),
        }
    }
}

/// An inode whose last name has gone: it stays as an orphan while someone may have it open, else it is freed.
pub async fn let_go(unit: &mut Unit<'_>, cx: &OpContext, mut inode: Inode, open_here: bool) -> Result<Inode, OpError> {
    inode.nlink = 0;
    inode.change(cx.now);
    if inode.is_file() && (open_here || cx.others) {
        unit.put(keys::inode_id(inode.id), &IdRow::Attributes(inode.clone()));
        unit.put(keys::orphan(inode.id), &OrphanRow { session: cx.session, since: cx.now });
    } else {
        destroy(unit, &inode).await?;
    }
    Ok(inode)
}

/// Frees everything an inode has. Chunk rows of a file go later, in batches, by reclaim.
pub async fn destroy(unit: &mut Unit<'_>, inode: &Inode) -> Result<(), OpError> {
    let mut inode = inode.clone();
    drop_inline(unit, &mut inode);
    if inode.has(flags::SEALED) {
        // While it was open without a name.
        super::seal::count_sealed(unit, None, -1).await?;
    }
    if inode.has(flags::XATTRS) {
        let prefix = keys::xattrs(inode.id);
        // Bounded by the limit on attributes of one inode: see `xattr`.
        let page = unit.scan(&prefix, None, usize::MAX >> 1).await?;
        for (key, _) in page.rows {
            unit.delete(key);
        }
    }
    if inode.has(flags::CHUNKED) {
        unit.put(keys::reclaim_inode(inode.id), &ReclaimRow { container: ContainerId(0) });
    }
    if inode.is_quota_root() {
        unit.retire(inode.id);
    }
    if inode.is_dir() && inode.snapshot_root == inode.id {
        super::snapshot::retire_root(unit, inode.id).await?;
    }
    unit.delete(keys::inode_id(inode.id));
    Ok(())
}
