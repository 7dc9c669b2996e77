//! How often each fault and each state of a protocol was reached: a test that never gets somewhere proves nothing
//! about it.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;

/// States of the protocols of this version. Each of them must be reached by the seeds that CI runs, and every fault.
/// What only the table shows, and no test asks for, is that an owner refuses a stale truncate generation: file leases order truncates and writes, so that only what was late on its way meets that rule (the data server's own
/// tests do, and `an_ignored_truncate_generation_is_found`).
pub const MUST_BE_REACHED: &[&str] = &[
    "answer out of a mount's cache of names",
    "answered before it was durable",
    "call over two chunks that held both",
    "chunk reclaimed",
    "commit under a stale truncate generation refused",
    "data server registered again",
    "early answers lost by a crash of the metadata server",
    "fenced session refused by a data server",
    "file given up for another mount",
    "file lease kept through a start of the metadata server",
    "living client told that bytes went with its session",
    "living client went on in a new session",
    "chunk committed and known to be stable",
    "chunk marked as stable after its commit",
    "kept changes sent again to the metadata server",
    "late copy of a change refused",
    "lock lost with its server while a call was under way",
    "leases dropped for another mount's change",
    "leases given up after a start of the metadata server",
    "metadata transactions lost unanswered",
    "no data server for a new chunk",
    "orphan freed",
    "read of a server's files on its host",
    "request answered from its row",
    "request told to come again while kept changes are collected",
    "session fenced at a data server",
    "session registered again",
    "spare adopted from a lost client",
    "torn blocks sealed after a crash",
    "truncate applied by the owner",
    "unknown chunk asked for",
    "unknown session refused",
    "write repeated to a server that had lost it",
];

/// Where machines stop at messages: before and after each word of a chain.
pub const MUST_BE_REACHED_AT_MESSAGES: &[&str] = &[
    "chunk owned beside its writer",
    "chunk taken over by another member",
    "member removed from a chain",
    "newer blocks fetched by a successor",
    "stopped after Ack",
    "stopped after Blocks",
    "stopped after Fetch",
    "stopped after Fetched",
    "stopped after Grant",
    "stopped after Hand",
    "stopped after Hello",
    "stopped after Install",
    "stopped after Installed",
    "stopped after Open",
    "stopped after Opened",
    "stopped after Owns",
    "stopped after Prepare",
    "stopped after Prepared",
    "stopped after Pull",
    "stopped after Remove",
    "stopped after Renew",
    "stopped after Tell",
    "stopped after TellChains",
    "stopped after Want",
    "stopped after a read",
    "stopped after a write",
    "stopped after an fsync",
    "stopped after asking for a chunk",
    "stopped after the answer to a write",
    "stopped after the answer to an fsync",
    "stopped before Ack",
    "stopped before Blocks",
    "stopped before Fetch",
    "stopped before Fetched",
    "stopped before Grant",
    "stopped before Hand",
    "stopped before Hello",
    "stopped before Install",
    "stopped before Installed",
    "stopped before Open",
    "stopped before Opened",
    "stopped before Owns",
    "stopped before Prepare",
    "stopped before Prepared",
    "stopped before Pull",
    "stopped before Remove",
    "stopped before Renew",
    "stopped before Tell",
    "stopped before TellChains",
    "stopped before Want",
    "stopped before a read",
    "stopped before a write",
    "stopped before an fsync",
    "stopped before asking for a chunk",
    "stopped before the answer to a write",
    "stopped before the answer to an fsync",
];

/// Where who takes a chunk over stops before the others know.
pub const MUST_BE_REACHED_BY_QUEUES: &[&str] = &[
    "chunk handed over with who waits for its regions",
    "chunk owned beside its writer",
    "chunk taken over by another member",
    "member removed from a chain",
    "stopped after Owns",
    "stopped before Owns",
];

/// The same of chunks with several copies.
pub const MUST_BE_REACHED_WITH_COPIES: &[&str] = &[
    "bad block mended from another copy",
    "block rotted",
    "blocks that nobody had went back",
    "change answered in the order of terms",
    "change answered while all others were looked at",
    "chunk brought to who writes it",
    "chunk owned beside its writer",
    "chunk reclaimed",
    "chunk taken over by another member",
    "client sent on to another member",
    "copy outside its chain deleted",
    "kept changes sent again to the metadata server",
    "late word of a data server",
    "member came back through its prefix",
    "member removed from a chain",
    "new copy made whole",
    "newer blocks fetched by a successor",
    "owner asked to remove a silent member",
    "read of a server's files on its host",
    "second data server stopped before the first was made up for",
    "successor in a chain",
    "suspect blocks reported after a restart",
    "torn block reported after a restart",
    "torn block settled",
    "write repeated at another member",
];

/// The same where servers are drained and evened out meanwhile.
pub const MUST_BE_REACHED_GROWING: &[&str] = &[
    "chain with one member more",
    "chunk taken over by another member",
    "copy outside its chain deleted",
    "data server drained",
    "data servers evened out",
    "member removed from a chain",
    "replaced copy deleted",
    "second data server stopped before the first was made up for",
    "successor in a chain",
];

/// The same of programs on two mounts.
pub const MUST_BE_REACHED_BY_LITMUS: &[&str] = &[
    "answer out of a mount's cache of names",
    "append while its file was given up",
    "directory changed between two pages of its listing",
    "file given up for another mount",
    "file lease kept through a start of the metadata server",
    "file opened with one before it",
    "leases dropped for another mount's change",
    "living client told that locks went with its session",
    "lock granted by the metadata server",
    "lock in the way",
    "lock kept through a start of the metadata server",
    "lock recalled with its file",
    "lock taken by a message",
    "lock taken without a message",
    "lock waited for at the metadata server",
    "mapped page shown without asking the mount",
    "open file without a name looked at",
    "orphan freed",
    "session fenced at a data server",
    "truncate applied by the owner",
    "write repeated to a server that had lost it",
];

/// The same where several metadata servers serve at once.
pub const MUST_BE_REACHED_BY_SEVERAL: &[&str] = &[
    "file given up for another mount",
    "file opened with one before it",
    "leases dropped for another mount's change",
    "metadata server led several",
    "metadata server served beside the one that leads",
    "fault: kill of the metadata server",
    "fault: pause of the metadata server",
];

/// The same where names are removed before that is answered.
pub const MUST_BE_REACHED_BY_REMOVALS: &[&str] = &[
    "early answers lost by a crash of the metadata server",
    "kept changes sent again to the metadata server",
    "living client went on in a new session",
    "name removed before that was answered",
    "removal sent again unanswered",
];

/// The same where snapshots are made of what is being written.
pub const MUST_BE_REACHED_BY_SNAPSHOTS: &[&str] = &[
    "chunk of a snapshot made way for another",
    "chunk reclaimed",
    "chunk that begins as another",
    "file given up for another mount",
    "kept changes sent again to the metadata server",
    "late copy of a change refused",
    "orphan freed",
    "snapshot found to be made",
    "snapshot let go of",
    "snapshot made",
    "snapshot not made in time",
    "snapshot read",
    "snapshot read again",
    "truncate applied by the owner",
    "write repeated to a server that had lost it",
];

/// The same of files that are sealed and unsealed.
pub const MUST_BE_REACHED_BY_SEALS: &[&str] = &[
    "change of a sealed file refused",
    "chunk with one copy moved",
    "data server drained",
    "file given up for another mount",
    "file not sealed for who has it open",
    "file not unsealed for who reads it without asking",
    "file sealed",
    "file unsealed",
    "sealed file held through a start of the metadata server",
    "sealed file left for who unseals it",
    "sealed file opened to be read without asking",
    "sealed file read without asking",
    "spare adopted from a lost client",
];

/// Counts by name. The names are those of [`MUST_BE_REACHED`], and of the faults.
#[derive(Default)]
pub struct Coverage(Mutex<Counts>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn count(&self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn add(&self, what: &'static str, n: u64) {
        if n > 0 {
            *self.0.lock().0.entry(what).or_default() += n;
        }
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.lock().of(what)
    }

    pub fn counts(&self) -> Counts {
        self.0.lock().clone()
    }
}

impl Counts {
    pub fn merge(&mut self, other: &Counts) {
        for (name, n) in &other.0 {
            *self.0.entry(name).or_default() += n;
        }
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// What must be reached and was not.
    pub fn missing(&self, wanted: &[&'static str]) -> Vec<&'static str> {
        wanted.iter().copied().filter(|what| self.of(what) == 0).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, n)| writeln!(f, "{n:>9}  {what}"))
    }
}
