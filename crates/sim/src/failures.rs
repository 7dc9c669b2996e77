//! Promises that were broken.

use parking_lot::Mutex;
use std::fmt;

/// What is checked; the names are for people, logs and counters. Each is a promise of design.md §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Creations, removals, renames and lookups have one order that explains every answer.
    NamesAreLinearizable,
    /// Reads and writes of mounts that have a file open have one order that explains every answer.
    BytesAreLinearizable,
    /// Locks are granted and refused in one order that explains every answer.
    LocksExclude,
    /// What stays in a directory is listed once, and what is not there is not.
    ListingsAreWhole,
    /// A snapshot is the state of one moment between its request and its answer.
    SnapshotsAreOfOneMoment,
    /// And it is that whenever it is looked at, until it is let go of.
    SnapshotsStay,
    /// Nothing of a sealed file changes, and it is not unsealed while somebody reads it without asking.
    SealedFilesStay,
    /// An operation gives what the model gives.
    SameAsModel,
    /// No operation fails because of a fault that ended before its deadline.
    OperationsSurviveFaults,
    /// No session of a client that lives and can be reached ends.
    SessionsLast,
    /// A byte that fsync returned for is there after any crash.
    FsyncIsKept,
    /// A write whose close returned survives the loss of the owner's power or of its client, not of both.
    CloseIsKept,
    /// Who opens after a close sees what was written before it.
    CloseToOpen,
    /// What was answered before it was durable can be repeated after a crash, as long as its client lives.
    EarlyAnswersAreKept,
    /// When faults stop, everything ends.
    ItComesBack,
    /// Every name leads to an inode, every inode to its name; counts are what the rows say.
    RowsAgree,
    /// Every chunk row has its chunk where its container says.
    RowsHaveChunks,
    /// Every chunk on a server belongs to a file, a spare, or is about to be freed.
    ChunksHaveRows,
    /// Every chain has its members again, each chunk is open, and every copy has all there is on stable storage.
    CopiesAreWhole,
    /// No copy is deleted before every member of its chain has all of it, and it can be read.
    UnlinkedAfterReplaced,
    /// At no instant two servers answer writes to one chunk, or one answers a write while another serves what was before it.
    OneOwnerAtAnInstant,
    /// Copies are the same, byte for byte.
    CopiesAreEqual,
    /// No task panics or stands still, no server fails to start.
    NothingPanics,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub invariant: Invariant,
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

/// Those of one world, oldest first.
#[derive(Default)]
pub struct Failures(Mutex<Vec<Failure>>);

impl Failures {
    pub fn add(&self, invariant: Invariant, text: impl fmt::Display) {
        self.0.lock().push(Failure { invariant, text: text.to_string() });
    }

    pub fn any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    pub fn take(&self) -> Vec<Failure> {
        std::mem::take(&mut self.0.lock())
    }
}
