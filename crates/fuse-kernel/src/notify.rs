//! Messages to the kernel that answer nothing: drop what you cached.
//!
//! Entry notifications wait inside the kernel for the lock of the parent directory, which the caller of a create, rename or
//! unlink in that directory holds until its request is answered: never send them from a thread that has to answer it.

use crate::abi::notify as code;
use crate::device::write_message;
use crate::fields::Record;
use crate::passthrough::BackingFile;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Sends notifications as long as the session lives, then gives `NotConnected`.
#[derive(Debug, Clone)]
pub struct Notifier {
    device: Weak<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Self {
        Self { device: Arc::downgrade(device) }
    }

    /// Drops the cached attributes of a file and its pages from `offset` on, `len` bytes or with 0 all; dirty pages are written
    /// back first. A negative offset drops the attributes alone. False: the kernel does not know the file.
    pub fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> io::Result<bool> {
        let sent = self.send(code::INVAL_INODE, &[], |out| {
            out.u64(nodeid);
            out.i64(offset);
            out.i64(len);
        });
        match sent {
            Err(Errno::NOENT) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    /// Forgets a name, with what lies below it.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Lets the time of a name run out, so that its next use asks; mounts below it stay. Needs HAS_EXPIRE_ONLY.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.entry(parent, name, code::EXPIRE_ONLY)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<()> {
        let len = name_len(name)?;
        self.cached(code::INVAL_ENTRY, &[name, b"\0"], |out| {
            out.u64(parent);
            out.u32(len);
            out.u32(flags);
        })
    }

    /// Forgets a name of `child` that was removed; watchers (inotify) are told.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<()> {
        let len = name_len(name)?;
        self.cached(code::DELETE, &[name, b"\0"], |out| {
            out.u64(parent);
            out.u64(child);
            out.u32(len);
            out.u32(0);
        })
    }

    /// Puts bytes into the page cache of a file.
    pub fn store(&self, nodeid: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.cached(code::STORE, &[data], |out| {
            out.u64(nodeid);
            out.u64(offset);
            out.u32(size);
            out.u32(0);
        })
    }

    /// Makes every name cached so far ask again at its next use. Waits for no lock. `Unsupported` before Linux 6.16.
    pub fn inc_epoch(&self) -> io::Result<()> {
        match self.send(code::INC_EPOCH, &[], |_| {}) {
            Err(Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
            other => Ok(other?),
        }
    }

    /// Forgets a file, with all its names, unless somebody uses it. `Unsupported` before Linux 6.18.
    pub fn prune(&self, nodeid: u64) -> io::Result<()> {
        let sent = self.send(code::PRUNE, &[], |out| {
            // How many nodes follow.
            out.u32(1);
            out.u32(0);
            out.u64(0);
            out.u64(nodeid);
        });
        match sent {
            Err(Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Registers an open file for passthrough, as [`crate::Session::backing_file`].
    pub fn backing_file(&self, file: impl AsFd) -> io::Result<BackingFile> {
        let device = self.device.upgrade().ok_or(Errno::NOTCONN)?;
        BackingFile::open(&device, file.as_fd())
    }

    /// Wakes who polls the handle that POLL named `kh`.
    pub fn poll_wakeup(&self, kh: u64) -> io::Result<()> {
        Ok(self.send(code::POLL, &[], |out| out.u64(kh))?)
    }

    /// Sends what concerns cached things: that there is none of it is success.
    fn cached(&self, code: i32, tail: &[&[u8]], encode: impl FnOnce(&mut Record)) -> io::Result<()> {
        match self.send(code, tail, encode) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn send(&self, code: i32, tail: &[&[u8]], encode: impl FnOnce(&mut Record)) -> Result<(), Errno> {
        let device = self.device.upgrade().ok_or(Errno::NOTCONN)?;
        let mut fixed = Record::new();
        encode(&mut fixed);
        let mut body = [IoSlice::new(fixed.as_slice()), IoSlice::new(&[]), IoSlice::new(&[])];
        for (slice, bytes) in body[1..].iter_mut().zip(tail) {
            *slice = IoSlice::new(bytes);
        }
        write_message(&device, code, 0, &body)
    }
}

fn name_len(name: &[u8]) -> io::Result<u32> {
    if name.is_empty() || name.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
