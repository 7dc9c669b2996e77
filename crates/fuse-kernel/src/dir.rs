//! Pages of a directory listing, never larger than the kernel asked for.
//!
//! The offset given with an entry is the one the kernel sends to continue *behind* it.

use crate::attr::EntryOut;
use crate::fields::Record;

/// The fixed part before a name.
const DIRENT_BYTES: usize = 24;

/// The answer to READDIR.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirBuffer {
    /// `size` as the request has it.
    pub fn new(size: u32) -> Self {
        Self { bytes: Vec::new(), size: size as usize }
    }

    /// Adds an entry; `mode` gives the type. False, and nothing is added, when it does not fit: answer with what there is.
    pub fn push(&mut self, ino: u64, next_offset: u64, mode: u32, name: &[u8]) -> bool {
        if self.bytes.len() + dirent_bytes(name) > self.size {
            return false;
        }
        push_dirent(&mut self.bytes, ino, next_offset, mode, name);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

/// The answer to READDIRPLUS.
#[derive(Debug)]
pub struct DirPlusBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirPlusBuffer {
    /// `size` as the request has it.
    pub fn new(size: u32) -> Self {
        Self { bytes: Vec::new(), size: size as usize }
    }

    /// Adds an entry, which counts one lookup of its node; with `nodeid` 0 (as `.` and `..` must have) only `attr.ino` and the
    /// type are told and nothing is counted. False, and nothing is added, when it does not fit.
    pub fn push(&mut self, entry: &EntryOut, next_offset: u64, name: &[u8]) -> bool {
        if self.bytes.len() + EntryOut::BYTES + dirent_bytes(name) > self.size {
            return false;
        }
        let mut record = Record::new();
        entry.encode(&mut record);
        self.bytes.extend_from_slice(record.as_slice());
        push_dirent(&mut self.bytes, entry.attr.ino, next_offset, entry.attr.mode, name);
        true
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

fn dirent_bytes(name: &[u8]) -> usize {
    (DIRENT_BYTES + name.len()).next_multiple_of(8)
}

fn push_dirent(bytes: &mut Vec<u8>, ino: u64, next_offset: u64, mode: u32, name: &[u8]) {
    let end = bytes.len() + dirent_bytes(name);
    bytes.extend_from_slice(&ino.to_ne_bytes());
    bytes.extend_from_slice(&next_offset.to_ne_bytes());
    bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
    // The DT_ types are the type bits of the mode.
    bytes.extend_from_slice(&((mode & libc::S_IFMT) >> 12).to_ne_bytes());
    bytes.extend_from_slice(name);
    bytes.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;

    #[test]
    fn entries_are_aligned_and_stop_at_the_size() {
        let mut page = DirBuffer::new(32 + 40);
        assert!(page.push(2, 1, libc::S_IFDIR | 0o755, b"sub"));
        assert!(!page.push(3, 2, libc::S_IFREG, b"a name of seventeen"));
        assert!(page.push(3, 2, libc::S_IFREG, b"sixteen bytes ok"));
        assert!(!page.push(4, 3, libc::S_IFREG, b""));
        let bytes = page.as_slice();
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[16..24], [3, 0, 0, 0, libc::DT_DIR, 0, 0, 0]);
        assert_eq!(&bytes[24..32], b"sub\0\0\0\0\0");
        assert_eq!(bytes[32..40], 3u64.to_ne_bytes());
    }

    #[test]
    fn plus_entries_carry_the_whole_entry() {
        let entry = EntryOut {
            nodeid: 9,
            attr: Attr { ino: 9, mode: libc::S_IFREG, ..Attr::default() },
            ..EntryOut::default()
        };
        let mut page = DirPlusBuffer::new(300);
        assert!(page.is_empty());
        assert!(page.push(&entry, 1, b"f"));
        assert!(!page.push(&entry, 2, b"g"));
        assert_eq!(page.as_slice().len(), 160);
        assert_eq!(page.as_slice()[128..136], 9u64.to_ne_bytes());
    }
}
