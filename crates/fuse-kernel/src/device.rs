//! `/dev/fuse`: reading requests, writing messages, further descriptors of one connection.

use crate::abi::{IOCTL_CLONE, OUT_HEADER_BYTES};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, writev};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};

/// How many pieces of a message find room on the stack.
const FEW: usize = 8;

pub(crate) fn open_device() -> io::Result<OwnedFd> {
    Ok(open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Another descriptor of the same connection, with a queue of its own for requests that are being served.
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = open_device()?;
    let source = device.as_raw_fd() as u32;
    // SAFETY: the request takes a pointer to a `u32`, which it only reads.
    if unsafe { libc::ioctl(clone.as_raw_fd(), IOCTL_CLONE as _, &source) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(clone)
}

/// Waits for the next request; `None` when the session is over.
pub(crate) fn read_request(device: &OwnedFd, space: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match read(device, &mut *space) {
            Ok(bytes) => return Ok(Some(bytes)),
            // NOENT: the request was taken back while it was being read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            // Unmounted; aborted.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What stands before a message whose body has so many bytes.
pub(crate) fn out_header(error: i32, unique: u64, body_bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    let mut header = [0; OUT_HEADER_BYTES];
    header[0..4].copy_from_slice(&((OUT_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// Writes one message: the answer to `unique`, or with 0 a notification whose code stands in the place of the error.
pub(crate) fn write_message(device: &OwnedFd, error: i32, unique: u64, body: &[IoSlice<'_>]) -> Result<(), Errno> {
    let header = out_header(error, unique, body.iter().map(|slice| slice.len()).sum());
    if body.len() < FEW {
        let mut few = [IoSlice::new(&[]); FEW];
        few[0] = IoSlice::new(&header);
        few[1..=body.len()].copy_from_slice(body);
        write_whole(device, &few[..=body.len()])
    } else {
        let mut many = Vec::with_capacity(body.len() + 1);
        many.push(IoSlice::new(&header));
        many.extend_from_slice(body);
        write_whole(device, &many)
    }
}

/// The device takes a message whole or not at all.
fn write_whole(device: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
    loop {
        match writev(device, slices) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}
