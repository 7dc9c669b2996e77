//! Files of this machine that the kernel reads and writes without asking (FUSE passthrough, Linux 6.9 and later).
//!
//! Needs the feature PASSTHROUGH and the right to administer the system. A `BackingFile` is the kernel's registration of an
//! open file; handles answered with it keep the file itself, so it may be dropped once the last of them is answered.

use crate::abi::{IOCTL_BACKING_CLOSE, IOCTL_BACKING_OPEN};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel's `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// A file registered with the session's device.
#[derive(Debug)]
pub struct BackingFile {
    device: Arc<OwnedFd>,
    id: i32,
}

impl BackingFile {
    pub(crate) fn open(device: &Arc<OwnedFd>, file: BorrowedFd<'_>) -> io::Result<Self> {
        let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the request takes a pointer to a `fuse_backing_map`, which `map` is and which it only reads.
        let id = unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_BACKING_OPEN as _, &map) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { device: device.clone(), id })
    }

    pub(crate) fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        let id = self.id as u32;
        // SAFETY: the request takes a pointer to a `u32`, which it only reads.
        if unsafe { libc::ioctl(self.device.as_raw_fd(), IOCTL_BACKING_CLOSE as _, &id) } < 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "a backing file could not be closed");
        }
    }
}
