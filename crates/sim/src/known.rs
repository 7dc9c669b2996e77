//! Holes of the present version that the simulator found: counted, so that they are seen, and not failed on, so that
//! what is new is seen too. Each goes away with its cause; none may be added without an issue.

/// A data server that lost its power serves what it has before the clients that retain newer bytes have repeated them:
/// another client reads what was before (design.md §5 asks for the owner's confirmation first).
pub const STALE_UNTIL_REPEATED: &str = "known hole: stale read until the writer had repeated its write";

/// Two clients that retain writes of one range repeat them after a restart of the server in any order: the older may
/// end on top of the newer, though each was complete and the file closed before the other opened it (client
/// `retain.rs`; nothing in a repeated write says how old it is).
pub const OLDER_WRITE_ON_TOP: &str = "known hole: older write of another client repeated over a newer one";
