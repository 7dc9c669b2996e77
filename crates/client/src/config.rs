use std::time::Duration;

/// Whom a question is asked first, where several metadata servers serve. Changes, and all that is leased, go to the holder of the slot
/// whatever this says, and so does a question that another cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// The holder of the slot, which leases what it answers.
    #[default]
    BySlot,
    /// The others are there to be compared with. Always the same one.
    Sticky,
    /// Each in turn.
    InTurn,
    AtRandom,
}

/// Bounds and times of a client. The defaults suit one mount on a desktop machine: at most 128 MiB of writes
/// on their way, 128 MiB kept for repetition, 64 MiB read ahead.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// For `status`: what this client is.
    pub description: String,
    /// The machine, so that the data server beside the client is known.
    pub host: String,
    /// Whoever is above keeps the pages it has read, as the kernel of a mount does: a server on this machine need not keep them
    /// in its memory, which is the same. And it opens a path in two steps, and once more if it was too late for the second (`reopens`).
    pub pages_above: bool,
    /// Chunks of a data server on this machine are read from its files, where it hands them out.
    pub local_reads: bool,
    /// The server on this machine comes to own what is written here, if it has a copy.
    pub local_write: bool,
    /// A chunk without a copy on this machine is brought here when this much of what that costs has been written to it. Less than 100 moves more
    /// than it saves.
    pub bring_after_percent: u64,
    /// Bytes written and not yet answered by a server, of all files. A write waits while they are full.
    pub write_buffer_bytes: u64,
    pub file_buffer_bytes: u64,
    /// Bytes that servers have answered but not made stable. Nothing is sent while they are full.
    pub retained_bytes: u64,
    /// Bytes of changes of names and attributes that were answered and are not durable. Beyond them answers wait.
    pub kept_bytes: usize,
    /// Bytes read ahead of all readers.
    pub prefetch_bytes: u64,
    pub prefetch_window_min: u64,
    pub prefetch_window_max: u64,
    /// Attributes, names and places remembered, each; between half and all of them. `find` looks at names 100,000 after it has
    /// read them.
    pub cache_entries: usize,
    /// How long written bytes and size stay only here while a file is open.
    pub write_back_after: Duration,
    /// How long a server may have an answered write unstable before it is told to sync.
    pub stabilise_after: Duration,
    /// A chunk of a file that its server does not know, and of which nothing is retained here, reads as a hole after so
    /// long. Until then whoever wrote it may be about to repeat it: that takes `stabilise_after` and two messages.
    pub lost_after: Duration,
    pub routing: Routing,
    /// Ends every wait of an operation. Who waits for bytes of a file waits on as long as their servers take some: it counts from the last.
    pub deadline: Duration,
    /// After so long an unanswered data request is asked again, of where the chunk is by then.
    pub attempt: Duration,
    /// Spare chunks asked for at once, for each policy files are written under.
    pub spares_ahead: u32,
    /// Writes on their way of one file, and to one server.
    pub file_writes_max: usize,
    pub server_writes_max: usize,
    pub statfs_valid: Duration,
    /// Record reads (relatime); reported so long after the last close, if nothing else is.
    pub atime: bool,
    pub atime_after: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            description: String::new(),
            host: String::new(),
            pages_above: false,
            local_reads: true,
            local_write: true,
            bring_after_percent: 100,
            write_buffer_bytes: 128 << 20,
            file_buffer_bytes: 64 << 20,
            retained_bytes: 128 << 20,
            kept_bytes: 4 << 20,
            prefetch_bytes: 64 << 20,
            prefetch_window_min: 256 << 10,
            prefetch_window_max: 8 << 20,
            cache_entries: 256 << 10,
            write_back_after: Duration::from_secs(1),
            stabilise_after: Duration::from_secs(1),
            lost_after: Duration::from_secs(3),
            routing: Routing::BySlot,
            deadline: Duration::from_secs(60),
            attempt: Duration::from_secs(10),
            spares_ahead: 8,
            file_writes_max: 8,
            server_writes_max: 16,
            statfs_valid: Duration::from_secs(1),
            atime: true,
            atime_after: Duration::from_secs(10),
        }
    }
}
