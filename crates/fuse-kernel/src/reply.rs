//! The answer to a request.
//!
//! A `Reply` may go to any thread and is answered once, by the call that consumes it. One that is dropped answers EIO, so that
//! no caller waits for ever. Answers go to the descriptor the request came from, because the kernel looks for it only there.

use crate::abi::{opcode, open_flags};
use crate::attr::{AttrOut, EntryOut, StatfsOut, StatxOut};
use crate::device::write_message;
use crate::dir::{DirBuffer, DirPlusBuffer};
use crate::fields::Record;
use crate::passthrough::BackingFile;
use crate::request::Lock;
use crate::ring::{Asked, Kept};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The kernel takes error numbers below this; above are its own that no caller may see.
const ERRNO_MAX: i32 = 511;

/// What an opened file is to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOut {
    pub fh: u64,
    /// Of `open_flags`.
    pub flags: u32,
    backing_id: i32,
}

impl OpenOut {
    pub fn new(fh: u64, flags: u32) -> Self {
        Self { fh, flags, backing_id: 0 }
    }

    /// Reads, writes and maps go to `file` without asking. It must stay open until the handle is released.
    pub fn passthrough(fh: u64, flags: u32, file: &BackingFile) -> Self {
        Self { fh, flags: flags | open_flags::PASSTHROUGH, backing_id: file.id() }
    }

    fn encode(&self, out: &mut Record) {
        out.u64(self.fh);
        out.u32(self.flags);
        out.i32(self.backing_id);
    }
}

/// The obligation to answer one request.
#[must_use = "dropping a reply answers EIO"]
pub struct Reply {
    /// Taken by the answer.
    way: Option<Way>,
    unique: u64,
    opcode: u32,
    if_lost: Option<Box<dyn FnOnce() + Send>>,
    kept: Option<Kept>,
}

/// How a request came.
pub(crate) enum Way {
    Device(Arc<OwnedFd>),
    Ring(Asked),
}

impl Reply {
    pub(crate) fn new(way: Way, unique: u64, opcode: u32) -> Self {
        Self { way: Some(way), unique, opcode, if_lost: None, kept: None }
    }

    /// What is dropped when the kernel has the answer, which may be later than the call that gives it.
    pub fn holding(mut self, kept: impl Send + 'static) -> Self {
        self.kept = Some(match self.kept.take() {
            Some(others) => Box::new((others, kept)),
            None => Box::new(kept),
        });
        self
    }

    /// To be called if the kernel does not get the answer: what an entry counts has not been counted then.
    pub fn if_lost(mut self, undo: impl FnOnce() + Send + 'static) -> Self {
        self.if_lost = Some(Box::new(undo));
        self
    }

    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// `errno` is a positive number of `errno.h`.
    pub fn error(self, errno: i32) {
        if matches!(self.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            return self.none();
        }
        let errno = if (1..=ERRNO_MAX).contains(&errno) { errno } else { libc::EIO };
        self.send(-errno, &[]);
    }

    /// Success with nothing to say.
    pub fn ok(self) {
        self.send(0, &[]);
    }

    /// For FORGET, BATCH_FORGET and INTERRUPT: nothing is sent.
    pub fn none(mut self) {
        if let Some(Way::Ring(_)) = self.way {
            // None of them comes so; its slot has to go back.
            return self.ok();
        }
        self.way = None;
    }

    pub fn entry(self, entry: &EntryOut) {
        self.record(|out| entry.encode(out));
    }

    pub fn attr(self, attr: &AttrOut) {
        self.record(|out| attr.encode(out));
    }

    pub fn statx(self, statx: &StatxOut) {
        self.record(|out| statx.encode(out));
    }

    /// For OPEN and OPENDIR.
    pub fn open(self, open: OpenOut) {
        self.record(|out| open.encode(out));
    }

    /// For CREATE and TMPFILE.
    pub fn create(self, entry: &EntryOut, open: OpenOut) {
        self.record(|out| {
            entry.encode(out);
            open.encode(out);
        });
    }

    /// The bytes of READ, READLINK, GETXATTR or LISTXATTR: at most as many as were asked for.
    pub fn data(self, data: &[u8]) {
        self.send(0, &[IoSlice::new(data)]);
    }

    /// As `data`, gathered from up to 1,023 pieces.
    pub fn data_vectored(self, pieces: &[IoSlice<'_>]) {
        self.send(0, pieces);
    }

    pub fn directory(self, entries: &DirBuffer) {
        self.data(entries.as_slice());
    }

    pub fn directory_plus(self, entries: &DirPlusBuffer) {
        self.data(entries.as_slice());
    }

    /// For WRITE and COPY_FILE_RANGE: how many bytes were taken.
    pub fn write(self, bytes: u64) {
        let wide = self.opcode == opcode::COPY_FILE_RANGE_64;
        self.record(|out| if wide { out.u64(bytes) } else { low_and_zero(out, bytes.min(u64::from(u32::MAX)) as u32) });
    }

    pub fn statfs(self, statfs: &StatfsOut) {
        self.record(|out| statfs.encode(out));
    }

    /// The length of the value or list, when `size` was 0.
    pub fn xattr_size(self, bytes: u32) {
        self.record(|out| low_and_zero(out, bytes));
    }

    /// For GETLK: a lock in the way, or one of kind F_UNLCK.
    pub fn lock(self, lock: &Lock) {
        self.record(|out| {
            out.u64(lock.start);
            out.u64(lock.end);
            out.u32(lock.kind);
            out.u32(lock.pid);
        });
    }

    pub fn lseek(self, offset: u64) {
        self.record(|out| out.u64(offset));
    }

    pub fn bmap(self, block: u64) {
        self.record(|out| out.u64(block));
    }

    pub fn poll(self, events: u32) {
        self.record(|out| low_and_zero(out, events));
    }

    /// For IOCTL: what the system call returns, and at most `out_size` bytes.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let mut out = Record::new();
        out.i32(result);
        out.zeros(12);
        self.send(0, &[IoSlice::new(out.as_slice()), IoSlice::new(data)]);
    }

    pub(crate) fn record(self, encode: impl FnOnce(&mut Record)) {
        let mut out = Record::new();
        encode(&mut out);
        self.send(0, &[IoSlice::new(out.as_slice())]);
    }

    fn send(mut self, error: i32, body: &[IoSlice<'_>]) {
        let Some(way) = self.way.take() else { return };
        if let Err(failure) = self.send_by(way, error, body) {
            self.after_failure(failure);
            self.lost();
        }
    }

    fn send_by(&mut self, way: Way, error: i32, body: &[IoSlice<'_>]) -> Result<(), Errno> {
        match way {
            Way::Device(device) => {
                let sent = write_message(&device, error, self.unique, body);
                if sent.is_err_and(|failure| !is_over(failure)) {
                    let _ = write_message(&device, -libc::EIO, self.unique, &[]);
                }
                sent
            }
            Way::Ring(asked) => {
                let fits = asked.slot().put_answer(error, self.unique, body);
                if !fits {
                    asked.slot().put_answer(-libc::EIO, self.unique, &[]);
                }
                match asked.answered(self.kept.take()) {
                    true if fits => Ok(()),
                    true => Err(Errno::INVAL),
                    false => Err(Errno::NOTCONN),
                }
            }
        }
    }

    fn lost(&mut self) {
        if let Some(undo) = self.if_lost.take() {
            undo();
        }
    }

    fn after_failure(&self, failure: Errno) {
        match is_over(failure) {
            true => tracing::debug!(opcode = self.opcode, "nobody waits for this FUSE answer"),
            false => tracing::error!(opcode = self.opcode, %failure, "the kernel refused a FUSE answer"),
        }
    }
}

/// The request was aborted, or the session is over: nobody waits.
fn is_over(failure: Errno) -> bool {
    matches!(failure, Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN)
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Some(way) = self.way.take() else { return };
        let expects = !matches!(self.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT);
        if expects {
            tracing::error!(opcode = self.opcode, "a FUSE request was dropped without an answer");
        }
        if expects || matches!(way, Way::Ring(_)) {
            let _ = self.send_by(way, -libc::EIO, &[]);
        }
        self.lost();
    }
}

fn low_and_zero(out: &mut Record, value: u32) {
    out.u32(value);
    out.u32(0);
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
