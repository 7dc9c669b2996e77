use std::io;

/// How a sync goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// It says it succeeded and did nothing.
    Lost,
    /// It fails with EIO, and what was not synced is as on Linux: no longer waiting to be written, so that a later
    /// sync succeeds without it.
    Error,
}

/// What is wrong with the disk now.
#[derive(Default)]
pub(super) struct Faults {
    pub stop_after: Option<u64>,
    pub next_sync: Option<SyncFault>,
    pub skip_syncs: bool,
    pub keep_words: bool,
    pub keep_times: bool,
    pub failing_writes: u64,
    pub shares_ranges: bool,
    pub read_only: bool,
    pub capacity: Option<u64>,
    stopped: bool,
}

impl Faults {
    pub fn check_alive(&self) -> io::Result<()> {
        if self.stopped { Err(dead()) } else { Ok(()) }
    }

    pub fn count_change(&mut self) -> io::Result<()> {
        match self.stop_after {
            Some(0) => {
                self.stopped = true;
                Err(dead())
            }
            Some(n) => {
                self.stop_after = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub fn power_is_back(&mut self) {
        self.stop_after = None;
        self.stopped = false;
    }
}

pub(super) fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the machine of this handle has crashed")
}

/// EROFS, with the kind that the operating system's error has.
pub(super) fn denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EROFS)
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

pub(super) fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}
