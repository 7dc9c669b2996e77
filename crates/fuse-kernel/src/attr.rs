//! What an answer says about a file: attributes, entries, extended attributes of `statx`, file system totals.
//!
//! Plain values with the kernel's field meanings. Their `encode` writes the kernel's layout.

use crate::fields::Record;
use std::time::Duration;

/// A point in time as the kernel counts it; `secs` may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    pub secs: i64,
    pub nsecs: u32,
}

/// The attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Permission bits and the bits of the type (`S_IFREG` and so on).
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// In the 32-bit form of `makedev` that the kernel uses inside: minor in bits 0 to 7 and 20 to 31, major in 8 to 19.
    pub rdev: u32,
    pub blksize: u32,
    /// 0, or the kernel's FUSE_ATTR_ bits.
    pub flags: u32,
}

impl Attr {
    fn encode(&self, out: &mut Record) {
        for value in [self.ino, self.size, self.blocks] {
            out.u64(value);
        }
        for time in [self.atime, self.mtime, self.ctime] {
            out.i64(time.secs);
        }
        for time in [self.atime, self.mtime, self.ctime] {
            out.u32(time.nsecs);
        }
        for value in [self.mode, self.nlink, self.uid, self.gid, self.rdev, self.blksize, self.flags] {
            out.u32(value);
        }
    }
}

/// The answer to GETATTR and SETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttrOut {
    pub attr: Attr,
    /// How long the kernel may believe `attr`.
    pub attr_valid: Duration,
}

impl AttrOut {
    pub(crate) fn encode(&self, out: &mut Record) {
        out.u64(self.attr_valid.as_secs());
        out.u32(self.attr_valid.subsec_nanos());
        out.u32(0);
        self.attr.encode(out);
    }
}

/// The answer to LOOKUP and to what makes a file; each one given out counts as one lookup of `nodeid` until a FORGET.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryOut {
    /// 0 says that the name is absent, for `entry_valid`.
    pub nodeid: u64,
    /// Tells two lives of one node id apart.
    pub generation: u64,
    /// How long the kernel may believe the name.
    pub entry_valid: Duration,
    pub attr_valid: Duration,
    pub attr: Attr,
}

impl EntryOut {
    pub(crate) const BYTES: usize = 128;

    /// The cached absence of a name.
    pub fn absent(entry_valid: Duration) -> Self {
        Self { entry_valid, ..Self::default() }
    }

    pub(crate) fn encode(&self, out: &mut Record) {
        out.u64(self.nodeid);
        out.u64(self.generation);
        out.u64(self.entry_valid.as_secs());
        out.u64(self.attr_valid.as_secs());
        out.u32(self.entry_valid.subsec_nanos());
        out.u32(self.attr_valid.subsec_nanos());
        self.attr.encode(out);
    }
}

/// The answer to STATX: the attributes and what `stat` has no field for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatxOut {
    pub attr: Attr,
    pub attr_valid: Duration,
    /// The time of creation, where it is known.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_` bits, and which of them have a meaning here.
    pub attributes: u64,
    pub attributes_mask: u64,
}

impl StatxOut {
    pub(crate) fn encode(&self, out: &mut Record) {
        let attr = &self.attr;
        out.u64(self.attr_valid.as_secs());
        out.u32(self.attr_valid.subsec_nanos());
        out.zeros(4 + 16); // flags, spare
        let btime_bit = if self.btime.is_some() { libc::STATX_BTIME } else { 0 };
        out.u32(libc::STATX_BASIC_STATS | btime_bit);
        out.u32(attr.blksize);
        out.u64(self.attributes);
        out.u32(attr.nlink);
        out.u32(attr.uid);
        out.u32(attr.gid);
        out.u16((attr.mode & 0xffff) as u16);
        out.zeros(2);
        out.u64(attr.ino);
        out.u64(attr.size);
        out.u64(attr.blocks);
        out.u64(self.attributes_mask);
        for time in [attr.atime, self.btime.unwrap_or_default(), attr.ctime, attr.mtime] {
            out.i64(time.secs);
            out.u32(time.nsecs);
            out.u32(0);
        }
        let rdev = attr.rdev;
        out.u32((rdev >> 8) & 0xfff);
        out.u32((rdev & 0xff) | ((rdev >> 12) & 0xfff00));
        out.zeros(8 + 14 * 8); // the device the kernel fills in itself, spare
    }
}

/// The answer to STATFS; `blocks`, `bfree` and `bavail` count in `frsize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
}

impl StatfsOut {
    pub(crate) fn encode(&self, out: &mut Record) {
        for value in [self.blocks, self.bfree, self.bavail, self.files, self.ffree] {
            out.u64(value);
        }
        for value in [self.bsize, self.namelen, self.frsize] {
            out.u32(value);
        }
        out.zeros(4 + 6 * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_have_the_kernels_sizes() {
        let sized = |encode: &dyn Fn(&mut Record)| {
            let mut out = Record::new();
            encode(&mut out);
            out.as_slice().len()
        };
        assert_eq!(sized(&|out| AttrOut::default().encode(out)), 104);
        assert_eq!(sized(&|out| EntryOut::default().encode(out)), EntryOut::BYTES);
        assert_eq!(sized(&|out| StatxOut::default().encode(out)), 288);
        assert_eq!(sized(&|out| StatfsOut::default().encode(out)), 80);
    }

    #[test]
    fn fields_stand_where_the_kernel_looks() {
        let attr = Attr { ino: 7, size: 9, mode: 0o100_644, blksize: 4096, ..Attr::default() };
        let mut out = Record::new();
        EntryOut { nodeid: 5, attr, entry_valid: Duration::new(3, 4), ..EntryOut::default() }.encode(&mut out);
        let bytes = out.as_slice();
        assert_eq!(bytes[0..8], 5u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 3u64.to_ne_bytes());
        assert_eq!(bytes[32..36], 4u32.to_ne_bytes());
        assert_eq!(bytes[40..48], 7u64.to_ne_bytes());
        assert_eq!(bytes[100..104], 0o100_644u32.to_ne_bytes());
        assert_eq!(bytes[120..124], 4096u32.to_ne_bytes());
    }
}
