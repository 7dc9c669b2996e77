//! Holes of the present version that the simulator found: counted, so that they are seen, and not failed on, so that
//! what is new is seen too. Each goes away with its cause; none may be added without an issue.

/// A client that retains a write repeats it when its server does not know the chunk, also when the chunk was deleted
/// with its file by another client: it is made again and belongs to nobody (client `stabilise.rs`).
pub const DELETED_CHUNK_CAME_BACK: &str = "known hole: deleted chunk came back by a repeated write";

/// A data server that lost its power serves what it has before the clients that retain newer bytes have repeated them:
/// another client reads what was before (design.md §5 asks for the owner's confirmation first).
pub const STALE_UNTIL_REPEATED: &str = "known hole: stale read until the writer had repeated its write";

/// wire ends the handler of a request whose client is gone, perhaps between the commit and the note that there is a
/// new orphan: the row waits for the next start of the metadata server (meta-server `dispatch.rs`).
pub const ORPHAN_NOT_LISTED: &str = "known hole: orphan not listed until the metadata server restarted";

/// The same happens to the handler of CloseSession: the session stays marked as ending, the repeated CloseSession is
/// told that all is well, and nobody ends it before the next start (meta-server `background.rs`).
pub const SESSION_HALF_ENDED: &str = "known hole: session half ended until the metadata server restarted";

/// Bytes that nobody synced are gone with their client and their server; where they were all of a chunk, reading it
/// fails after the whole deadline instead of showing a hole (client `fetch.rs`).
pub const LOST_CHUNK_CANNOT_BE_READ: &str = "known hole: chunk lost unsynced cannot be read";

/// Two clients that retain writes of one range repeat them after a restart of the server in any order: the older may end on top of
/// the newer, though each was complete and the file closed before the other opened it (client `retain.rs`; nothing in a
/// repeated write says how old it is).
pub const OLDER_WRITE_ON_TOP: &str = "known hole: older write of another client repeated over a newer one";

/// Bytes that were inline, and by that durable, are moved to a chunk when the file grows; the commit that drops them
/// inline does not wait until the chunk is on stable storage, so client and server together can lose what fsync had
/// returned for (client `commit.rs`).
pub const INLINE_MOVED_UNSYNCED: &str = "known hole: synced inline bytes lost on their way into a chunk";
