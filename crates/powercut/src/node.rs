//! A file, directory or other thing that names lead to.

use crate::content::Content;
use crate::image::PAGE_BYTES;
use crate::names::NodeId;
use braid_fuse_kernel::{Attr, SetAttr, SetTime, Timestamp};
use std::time::SystemTime;

/// Owner, permissions and times are not part of the model: they survive a cut as they were.
#[derive(Default)]
pub(crate) struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub links: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub content: Content,
    /// Of a symbolic link, whose creation carries it.
    pub target: Vec<u8>,
    /// Places in the journal of the last change of its metadata, and of the last that fdatasync cares for.
    pub last_change: u64,
    pub last_size_change: u64,
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nsecs: since.subsec_nanos() }
}

impl Node {
    pub fn new(mode: u32, uid: u32, gid: u32) -> Self {
        let time = now();
        Self { mode, uid, gid, atime: time, mtime: time, ctime: time, ..Self::default() }
    }

    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn attr(&self, id: NodeId) -> Attr {
        Attr {
            ino: id,
            size: if self.target.is_empty() { self.content.len() } else { self.target.len() as u64 },
            blocks: self.content.occupied_pages() * (PAGE_BYTES / 512),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        }
    }

    pub fn changed(&mut self) {
        self.ctime = now();
    }

    pub fn modified(&mut self) {
        self.mtime = now();
        self.ctime = self.mtime;
    }

    /// All but the size.
    pub fn set(&mut self, set: &SetAttr) {
        let time = |set: SetTime| match set {
            SetTime::Now => now(),
            SetTime::At(time) => time,
        };
        self.atime = set.atime.map_or(self.atime, time);
        self.mtime = set.mtime.map_or(self.mtime, time);
        self.mode = set.mode.map_or(self.mode, |mode| self.mode & libc::S_IFMT | mode & !libc::S_IFMT);
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        self.ctime = now();
    }
}
