//! What the store is put back to before the log is applied: LMDB's two meta pages as they were at a commit whose pages are all on the
//! disk, and the number of the last group in it. In two places in turn, so that one is always whole.

use crate::error::disk_error;
use braid_meta_engine::EngineError;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Beside the store. It is there while the store is open, and after a crash.
pub const FILE: &str = "data.checkpoint";
const PART: &str = "data.checkpoint.part";

const MAGIC: [u8; 8] = *b"BRAIDCKP";
const VERSION: u32 = 1;
/// Magic (8), version (4), bytes of the meta pages (4), sequence (8), number (8), LMDB's transaction (8), checksum (4); little-endian.
const HEAD_BYTES: usize = 44;
const SUM_AT: usize = 40;
/// LMDB's pages are at most so large.
const METAS_BYTES_MAX: usize = 2 * (64 << 10);
const SLOT_BYTES: u64 = (HEAD_BYTES + METAS_BYTES_MAX).next_multiple_of(4096) as u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub sequence: u64,
    /// Of the last group that is in the store.
    pub number: u64,
    /// LMDB's number of that commit.
    pub transaction: u64,
    /// As they are in the store's file, at its beginning.
    pub metas: Vec<u8>,
}

impl Checkpoint {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.metas.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.metas.len() as u32).to_le_bytes());
        for word in [self.sequence, self.number, self.transaction] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.metas);
        let sum = crc_fast::crc32_iscsi(&bytes);
        bytes[SUM_AT..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if it is torn.
    fn decode(mut bytes: Vec<u8>) -> Result<Option<Checkpoint>, EngineError> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>().copied() else { return Ok(None) };
        let half = |at: usize| head[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let len = half(12) as usize;
        if head[..8] != MAGIC || len > METAS_BYTES_MAX || bytes.len() < HEAD_BYTES + len {
            return Ok(None);
        }
        bytes.truncate(HEAD_BYTES + len);
        bytes[SUM_AT..HEAD_BYTES].fill(0);
        if crc_fast::crc32_iscsi(&bytes) != half(SUM_AT) {
            return Ok(None);
        }
        if half(8) != VERSION {
            return Err(EngineError::Newer(format!(
                "its checkpoint is of version {}, this program knows {VERSION}",
                half(8)
            )));
        }
        let metas = bytes.split_off(HEAD_BYTES);
        Ok(Some(Checkpoint { sequence: word(16), number: word(24), transaction: word(32), metas }))
    }
}

/// The newest that is whole; `None` if the store was closed in order, or is new.
pub fn read(dir: &Path) -> Result<Option<Checkpoint>, EngineError> {
    let path = dir.join(FILE);
    let failed = |error| disk_error(&format!("reading {}", path.display()), error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut newest: Option<Checkpoint> = None;
    for slot in 0..2 {
        let mut bytes = vec![0; HEAD_BYTES + METAS_BYTES_MAX];
        let len = read_up_to(&file, &mut bytes, slot * SLOT_BYTES).map_err(failed)?;
        bytes.truncate(len);
        if let Some(found) = Checkpoint::decode(bytes)?
            && newest.as_ref().is_none_or(|newest| newest.sequence < found.sequence)
        {
            newest = Some(found);
        }
    }
    let damaged = || {
        let cause =
            "neither of the two checkpoints in it is whole: the metadata has to be taken from its copies or a backup";
        EngineError::Storage(format!("{}: {cause}", path.display()))
    };
    newest.ok_or_else(damaged).map(Some)
}

fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], offset + len as u64)? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// The file they are written to.
pub struct Slots {
    file: Option<File>,
    dir: PathBuf,
    sync: bool,
}

impl Slots {
    pub fn new(dir: &Path, sync: bool) -> Slots {
        Slots { file: None, dir: dir.to_owned(), sync }
    }

    /// Durable when it returns. The one before stays where it is.
    pub fn write(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        let bytes = checkpoint.encode();
        if let Some(file) = &self.file {
            file.write_all_at(&bytes, checkpoint.sequence % 2 * SLOT_BYTES)?;
            return if self.sync { file.sync_data() } else { Ok(()) };
        }
        // Under its name only when it is whole: before, the store is as it was, and afterwards both places are.
        let part = self.dir.join(PART);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&part)?;
        file.set_len(2 * SLOT_BYTES)?;
        for slot in 0..2 {
            file.write_all_at(&bytes, slot * SLOT_BYTES)?;
        }
        if self.sync {
            file.sync_all()?;
        }
        std::fs::rename(&part, self.dir.join(FILE))?;
        if self.sync {
            File::open(&self.dir)?.sync_all()?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// The store's own file is whole, and needs none.
    pub fn remove(&mut self) -> io::Result<()> {
        self.file = None;
        std::fs::remove_file(self.dir.join(FILE))?;
        File::open(&self.dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn checkpoint(sequence: u64) -> Checkpoint {
        Checkpoint { sequence, number: 10 * sequence, transaction: 100 * sequence, metas: vec![sequence as u8; 8192] }
    }

    #[test]
    fn of_two_one_is_always_whole() {
        let dir = TempDir::new().expect("a directory");
        assert_eq!(read(dir.path()).expect("it reads"), None);
        let mut slots = Slots::new(dir.path(), true);
        for sequence in 1..=5 {
            slots.write(&checkpoint(sequence)).expect("it is written");
            assert_eq!(read(dir.path()).expect("it reads"), Some(checkpoint(sequence)));
        }
        let file = File::options().write(true).open(dir.path().join(FILE)).expect("it is there");
        // The fifth lies in the second place, and is torn.
        file.write_all_at(&[0xff], SLOT_BYTES + 5000).expect("it is written");
        assert_eq!(read(dir.path()).expect("it reads"), Some(checkpoint(4)));
        file.write_all_at(&[0xff], 20).expect("it is written");
        let refused = read(dir.path()).expect_err("nothing is left");
        assert!(refused.to_string().contains(FILE), "{refused}");
        slots.remove().expect("it goes");
        assert_eq!(read(dir.path()).expect("it reads"), None);
    }
}
