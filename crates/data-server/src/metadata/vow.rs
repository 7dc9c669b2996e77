//! The file of what a server has promised and recorded: replaced whole, by rename.

use braid_copyset::Keeper;
use braid_env::{Disk, OpenMode};
use braid_types::{CopySet, MetaTerm};
use std::io;
use std::path::Path;

const FILE: &str = "promised";
const NEW: &str = "promised.new";
/// And the version of the format.
const MAGIC: &[u8; 8] = b"brdvow\0\x01";
const HEAD_BYTES: usize = 12;

pub fn write(disk: &dyn Disk, dir: &Path, keeper: &Keeper) -> io::Result<()> {
    let body = postcard::to_stdvec(&(keeper.promised(), keeper.set())).map_err(io::Error::other)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&braid_data_store::record_sum(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    let new = dir.join(NEW);
    let file = disk.open(&new, OpenMode::OrCreate)?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync_data()?;
    disk.rename(&new, &dir.join(FILE))?;
    disk.sync_dir(dir)
}

pub fn read(disk: &dyn Disk, dir: &Path) -> io::Result<(MetaTerm, Option<CopySet>)> {
    let path = dir.join(FILE);
    let file = match disk.open(&path, OpenMode::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
    let len = file.read_at(&mut bytes, 0)?;
    bytes.truncate(len);
    let spoilt = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{} {why}", path.display()));
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(|| spoilt("is cut off"))?;
    if head[..7] != MAGIC[..7] {
        return Err(spoilt("is none of BraidFS"));
    }
    if head[7] != MAGIC[7] {
        return Err(spoilt("was written by a newer version"));
    }
    if head[8..] != braid_data_store::record_sum(body).to_le_bytes() {
        // It is replaced whole, so this is no crash. Without it the server might promise what it has refused.
        return Err(spoilt("does not match its checksum"));
    }
    postcard::from_bytes(body).map_err(|_| spoilt("makes no sense"))
}
