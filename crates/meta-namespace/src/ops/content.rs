//! Where a file's bytes are: inline rows or a page of chunk rows. Containers are filled in by the server, which
//! keeps them in memory.

use crate::rows::{ChunkRow, InlineState, Inode, RowFormat, SnapshotsRow, flags, keys};
use crate::{OpError, Unit};
use braid_api::meta::{ChunkPage, ChunkRef, Content, FileMap};
use braid_meta_engine::Key;
use braid_types::{ChunkIndex, InodeId, LayoutGen, Policy};
use bytes::Bytes;

/// Chunks in one answer: 256 × about 20 bytes are 5 KiB, and cover 16 GiB of a file.
pub const CHUNKS_A_PAGE: usize = 256;

/// Chunk rows read together with the inode's own row on the chance that it is a chunked file, so that opening
/// a file up to 256 MiB is one round trip.
const CHUNKS_AHEAD: u64 = 4;

/// What may hold the content of a file that is about to be opened.
pub fn keys_ahead(id: InodeId) -> Vec<Key> {
    let mut wanted = vec![keys::inline_small(id), keys::inline_large(id)];
    wanted.extend((0..CHUNKS_AHEAD).map(|i| keys::chunk(id, ChunkIndex(i))));
    wanted
}

/// The policy a file was made under.
pub fn policy_of(inode: &Inode) -> Policy {
    inode.policy.unwrap_or_default()
}

pub async fn file_map(unit: &mut Unit<'_>, inode: &Inode, first: ChunkIndex) -> Result<FileMap, OpError> {
    let content = if inode.has(flags::CHUNKED) {
        Content::Chunked(chunk_page(unit, inode, first).await?)
    } else {
        Content::Inline(inline_bytes(unit, inode).await?)
    };
    // Whoever has a map of before the newest snapshot knows by it that there is another: one that says what is frozen.
    let layout_gen = LayoutGen(inode.layout_gen.0.wrapping_add(newest_snapshot(unit, inode).await? as u32));
    Ok(FileMap { policy: policy_of(inode), layout_gen, cuts: inode.cuts.clone(), content })
}

/// The newest snapshot of its root; 0 if there is none.
pub async fn newest_snapshot(unit: &mut Unit<'_>, inode: &Inode) -> Result<u64, OpError> {
    if inode.snapshot_root.0 == 0 {
        return Ok(0);
    }
    Ok(unit.get_shared::<SnapshotsRow>(&keys::snapshots(inode.snapshot_root)).await?.unwrap_or_default().newest())
}

pub async fn inline_bytes(unit: &mut Unit<'_>, inode: &Inode) -> Result<Bytes, OpError> {
    let key = match inode.inline {
        InlineState::None => return Ok(Bytes::new()),
        InlineState::Small => keys::inline_small(inode.id),
        InlineState::Large => keys::inline_large(inode.id),
    };
    Ok(unit.get_raw(&key).await?.map(Bytes::from).unwrap_or_default())
}

/// Writes `bytes` as all of the file's inline content: up to what its policy says in `inline_small`, which databases keep in memory (HopsFS),
/// else in `inline_large`.
pub fn put_inline(unit: &mut Unit<'_>, inode: &mut Inode, bytes: &[u8]) {
    let state = match bytes.len() {
        0 => InlineState::None,
        n if n <= usize::from(policy_of(inode).inline_small_bytes) => InlineState::Small,
        _ => InlineState::Large,
    };
    if inode.inline != state {
        drop_inline(unit, inode);
    }
    match state {
        InlineState::None => {}
        InlineState::Small => unit.put_raw(keys::inline_small(inode.id), bytes.to_vec()),
        InlineState::Large => unit.put_raw(keys::inline_large(inode.id), bytes.to_vec()),
    }
    inode.inline = state;
}

pub fn drop_inline(unit: &mut Unit<'_>, inode: &mut Inode) {
    match inode.inline {
        InlineState::None => {}
        InlineState::Small => unit.delete(keys::inline_small(inode.id)),
        InlineState::Large => unit.delete(keys::inline_large(inode.id)),
    }
    inode.inline = InlineState::None;
}

async fn chunk_page(unit: &mut Unit<'_>, inode: &Inode, first: ChunkIndex) -> Result<ChunkPage, OpError> {
    // A short file without holes has all its chunks among those read ahead.
    let chunk_bytes = policy_of(inode).chunk_bytes;
    let chunks = inode.size.div_ceil(chunk_bytes);
    let newest = newest_snapshot(unit, inode).await?;
    if first.0 == 0 && chunks <= CHUNKS_AHEAD {
        let mut page = ChunkPage::default();
        let wanted: Vec<Key> = (0..CHUNKS_AHEAD).map(|i| keys::chunk(inode.id, ChunkIndex(i))).collect();
        unit.load(&wanted).await?;
        for (i, key) in (0..).zip(&wanted) {
            if let Some(row) = unit.get::<ChunkRow>(key).await? {
                page.chunks.push(row.at(ChunkIndex(i), newest));
            }
        }
        return Ok(page);
    }
    let after = first.0.checked_sub(1).map(|i| keys::chunk(inode.id, ChunkIndex(i)));
    let rows = unit.scan(&keys::chunks(inode.id), after.as_ref(), CHUNKS_A_PAGE).await?;
    Ok(ChunkPage { chunks: chunk_refs(&rows.rows, newest)?, containers: Vec::new(), more: rows.more })
}

/// Chunks of a file whose root has this snapshot as its newest.
pub(super) fn chunk_refs(rows: &[(Key, Vec<u8>)], newest: u64) -> Result<Vec<ChunkRef>, OpError> {
    rows.iter()
        .map(|(key, row)| {
            let value = ChunkRow::decode(key, row)?;
            let index = keys::chunk_index(key).ok_or_else(|| damaged(key))?;
            Ok(value.at(index, newest))
        })
        .collect()
}

pub(super) fn damaged(key: &Key) -> OpError {
    braid_api::Error::new(braid_api::Code::Internal, format_args!("{key:?}"), "damaged key").into()
}
