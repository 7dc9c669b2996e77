//! Ways to change a file, by the other mount. Each returns when its last call has, with what it has open.

use super::super::posix::Map;
use super::pair::{Kept, Pair};
use super::{LEN, SMALL};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

/// What is whole blocks, of whole pages: what O_DIRECT may be used for everywhere.
const BLOCK: usize = 4096;

fn write_by(p: &mut Pair<'_>, file: File) -> Kept {
    let part = p.part();
    let bytes = p.fresh(part.len());
    file.write_all_at(&bytes, part.start as u64).unwrap();
    p.put(part.start, &bytes);
    Box::new(file)
}

/// Neither synced nor closed.
pub fn write(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(0);
    write_by(p, file)
}

pub fn write_here(p: &mut Pair<'_>) -> Kept {
    let file = OpenOptions::new().write(true).open(p.here()).unwrap();
    write_by(p, file)
}

pub fn write_direct(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(libc::O_DIRECT);
    let part = p.part();
    let blocks = part.start.div_ceil(BLOCK)..part.end / BLOCK;
    let at = blocks.start * BLOCK;
    // Where the memory begins at a page, too.
    let mut room = vec![0; (blocks.len() + 1) * BLOCK];
    let skip = room.as_ptr().align_offset(BLOCK);
    let bytes = p.fresh(blocks.len() * BLOCK);
    room[skip..skip + bytes.len()].copy_from_slice(&bytes);
    file.write_all_at(&room[skip..skip + bytes.len()], at as u64).unwrap();
    p.put(at, &bytes);
    Box::new(file)
}

fn stored(p: &mut Pair<'_>) -> Map {
    let map = Map::shared(&p.open_there(0), p.bytes.len()).unwrap();
    let part = p.part();
    let bytes = p.fresh(part.len());
    map.write(part.start, &bytes);
    p.put(part.start, &bytes);
    map
}

/// `msync` with `MS_SYNC` returns when the file has what was stored, on stable storage: as a write with `fsync`, others see it.
pub fn store_and_msync(p: &mut Pair<'_>) -> Kept {
    let map = stored(p);
    map.sync();
    Box::new(map)
}

/// Of this only the kernel of the other mount knows: it is asked before anybody else reads.
pub fn store(p: &mut Pair<'_>) -> Kept {
    Box::new(stored(p))
}

pub fn append(p: &mut Pair<'_>) -> Kept {
    let mut file = OpenOptions::new().append(true).open(p.there()).unwrap();
    // Within the page at the end, and over it.
    let len = if p.bytes.len() < LEN { 300 } else { [100, 5_000][p.round % 2] };
    let bytes = p.fresh(len);
    file.write_all(&bytes).unwrap();
    p.put(p.bytes.len(), &bytes);
    Box::new(file)
}

pub fn cut(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(0);
    let len = p.bytes.len() - 10_001 * (p.round % 2 + 1);
    file.set_len(len as u64).unwrap();
    p.bytes.truncate(len);
    Box::new(file)
}

/// Its zeros are what is to be seen, also in the middle of a block.
pub fn cut_and_grown(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(0);
    let keep = LEN - 20_001 * (p.round + 1);
    file.set_len(keep as u64).unwrap();
    file.set_len(LEN as u64).unwrap();
    p.bytes[keep..].fill(0);
    Box::new(file)
}

pub fn written_anew(p: &mut Pair<'_>) -> Kept {
    let mut file = OpenOptions::new().write(true).truncate(true).open(p.there()).unwrap();
    let len = p.bytes.len();
    p.bytes = p.fresh(len - 10 * (p.round % 2));
    file.write_all(&p.bytes).unwrap();
    Box::new(file)
}

fn zeros(p: &mut Pair<'_>, flags: FallocateFlags) -> Kept {
    let file = p.open_there(0);
    // Not the same in any two rounds.
    let at = LEN / 3 + 7 + p.round * 30_000;
    fallocate(&file, flags, at as u64, 20_000).unwrap();
    p.bytes[at..at + 20_000].fill(0);
    Box::new(file)
}

pub fn hole(p: &mut Pair<'_>) -> Kept {
    zeros(p, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
}

pub fn zero_range(p: &mut Pair<'_>) -> Kept {
    zeros(p, FallocateFlags::ZERO_RANGE)
}

pub fn allocate(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(0);
    let len = p.bytes.len() + [100, 5_000][p.round % 2];
    fallocate(&file, FallocateFlags::empty(), 0, len as u64).unwrap();
    p.bytes.resize(len, 0);
    Box::new(file)
}

pub fn copy_range(p: &mut Pair<'_>) -> Kept {
    let part = p.part();
    let bytes = p.fresh(part.len());
    let from = p.there().with_extension("from");
    fs::write(&from, &bytes).unwrap();
    let (from, to) = (File::open(&from).unwrap(), p.open_there(0));
    let (mut from_at, mut to_at) = (0, part.start as u64);
    while from_at < bytes.len() as u64 {
        let left = bytes.len() - from_at as usize;
        assert!(copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), left).unwrap() > 0);
    }
    p.put(part.start, &bytes);
    Box::new((from, to))
}

/// By the command, which has no mount.
pub fn put(p: &mut Pair<'_>) -> Kept {
    p.bytes = p.fresh(LEN - 10 * p.round);
    let local = tempfile::NamedTempFile::new().unwrap();
    fs::write(local.path(), &p.bytes).unwrap();
    p.place.c.says(&format!("fs put {} /{}", local.path().display(), p.name));
    Box::new(())
}

/// From its row into a chunk, and back into its row.
pub fn grown_and_back(p: &mut Pair<'_>) -> Kept {
    let file = p.open_there(0);
    if p.round.is_multiple_of(2) {
        let bytes = p.fresh(LEN - SMALL);
        file.write_all_at(&bytes, SMALL as u64).unwrap();
        p.put(SMALL, &bytes);
    } else {
        file.set_len(0).unwrap();
        p.bytes = p.fresh(SMALL);
        file.write_all_at(&p.bytes, 0).unwrap();
    }
    Box::new(file)
}

pub fn rename_over(p: &mut Pair<'_>) -> Kept {
    let from = p.there().with_extension("from");
    let len = p.bytes.len() - 10;
    p.bytes = p.fresh(len);
    fs::write(&from, &p.bytes).unwrap();
    fs::rename(&from, p.there()).unwrap();
    Box::new(())
}
