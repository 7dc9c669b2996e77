//! Mounting as an ordinary user, through the set-uid helper `fusermount3`.
//!
//! The helper opens the device, mounts, and passes the descriptor back over the socket whose number `_FUSE_COMMFD` names.

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HELPER: &str = "fusermount3";

pub(crate) fn mount(point: &Path, options: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The helper inherits its end by number.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let output = Command::new(HELPER)
        .args(["-o", options, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(not_started)?;
    drop(theirs);
    check(&output)?;
    receive(&ours)
}

pub(crate) fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let lazily: &[&str] = if lazy { &["-z"] } else { &[] };
    let output = Command::new(HELPER).arg("-u").args(lazily).arg("--").arg(point).output().map_err(not_started)?;
    check(&output)
}

fn not_started(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{HELPER}, needed to mount without being root: {error}"))
}

fn check(output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, said.trim().to_owned()))
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other(format!("{HELPER} passed no descriptor")))
}
