//! Bytes between this machine and the cluster, a piece at a time.

use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::{Code, HandleId, OpenFlags};
use braid_types::{InodeId, Mode, Name};
use bytes::{Bytes, BytesMut};
use std::io::{Read, Write};

/// Read or written at once; the client's own buffers do the rest.
const PIECE: usize = 1 << 20;

/// Of a file that is said to be empty there may be something all the same, as in /proc.
const PIECE_MIN: usize = 4096;

/// Room for what is read next of what is `expected` to be so long: for all that is left, and a byte more, which says whether it has become longer.
/// Most files are small, and to clear a whole piece takes longer than to copy one of those.
fn room(expected: Option<u64>, offset: u64) -> usize {
    match expected {
        Some(all) if offset == 0 || offset < all => {
            (all - offset).saturating_add(1).clamp(PIECE_MIN as u64, PIECE as u64) as usize
        }
        _ => PIECE,
    }
}

/// Blocks this thread, which the runtime replaces meanwhile.
pub fn write_all(out: &mut impl Write, pieces: &[Bytes]) -> std::io::Result<()> {
    tokio::task::block_in_place(|| {
        pieces.iter().try_for_each(|piece| out.write_all(piece))?;
        out.flush()
    })
}

/// A file from its beginning to its end. An error of `take` comes back as it is.
pub async fn read_pieces<F: Paths>(
    s: &Session<F>,
    path: &ClusterPath,
    id: InodeId,
    mut take: impl FnMut(&[Bytes]) -> std::io::Result<()>,
) -> Result<()> {
    let at = |e: braid_api::Error| anyhow!("{path}: {}", brief(&e));
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let opened = s.fs.open(&s.caller, id, flags).await.map_err(at)?;
    let mut offset = 0;
    let result = loop {
        match s.fs.read(opened.handle, offset, PIECE as u32).await {
            Err(e) => break Err(at(e)),
            Ok(pieces) => {
                let len: usize = pieces.iter().map(Bytes::len).sum();
                if len == 0 {
                    break Ok(());
                }
                offset += len as u64;
                if let Err(e) = take(&pieces) {
                    break Err(e.into());
                }
            }
        }
    };
    s.fs.release(opened.handle).await;
    result
}

/// Writes all of `from`, of which the length may be known, into the file `name`, which is made or cut to nothing first. `sent` hears of each
/// piece.
pub async fn write_file<F: Paths>(
    s: &Session<F>,
    path: &ClusterPath,
    place: (InodeId, &Name),
    mode: Mode,
    (from, len): (&mut impl Read, Option<u64>),
    mut sent: impl FnMut(u64),
) -> Result<()> {
    let at = |e: braid_api::Error| anyhow!("{path}: {}", brief(&e));
    let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    let (entry, opened) = s.fs.create(&s.caller, place.0, place.1, mode, flags).await.map_err(at)?;
    let result = async {
        if !entry.attr.is_file() {
            return Err(anyhow!(
                "{path}: {}",
                if entry.attr.is_dir() { Code::IsDirectory } else { Code::Invalid }.text()
            ));
        }
        copy(s, path, opened.handle, (from, len), &mut sent).await?;
        // Reports what failed after it was written.
        s.fs.flush(opened.handle).await.map_err(at)
    };
    let result = result.await;
    s.fs.release(opened.handle).await;
    result
}

async fn copy<F: Paths>(
    s: &Session<F>,
    path: &ClusterPath,
    handle: HandleId,
    (from, expected): (&mut impl Read, Option<u64>),
    sent: &mut impl FnMut(u64),
) -> Result<()> {
    let mut offset = 0;
    loop {
        let room = room(expected, offset);
        let mut piece = BytesMut::zeroed(room);
        let len = tokio::task::block_in_place(|| fill(from, &mut piece)).map_err(|e| anyhow!("cannot read: {e}"))?;
        if len > 0 {
            piece.truncate(len);
            s.fs.write(handle, offset, piece.freeze()).await.map_err(|e| anyhow!("{path}: {}", brief(&e)))?;
            offset += len as u64;
            sent(len as u64);
        }
        if len < room {
            return Ok(());
        }
    }
}

/// As much as there is, up to the whole of `buffer`: a pipe brings little at a time.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(len)
}
