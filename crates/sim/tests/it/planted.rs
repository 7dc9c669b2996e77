//! The alarm's test: each planted bug must be found, within so many seeds of the scenario that is made to see it, and as
//! what it breaks.

use crate::hunt::hunt;
use braid_sim::{Bug, Invariant};

#[test]
#[should_panic(expected = "TruncateIgnored breaks NamesAreLinearizable, and is reported as CloseIsKept")]
fn a_bug_that_is_reported_as_something_else_is_not_found() {
    hunt(Bug::TruncateIgnored, "close", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn a_skipped_sync_of_a_data_server_is_found() {
    // The store syncs files of its own too, and is no store without them: then its server does not start.
    hunt(Bug::SkippedDataSync, "fsync", 20, Invariant::FsyncIsKept, &[Invariant::NothingPanics]);
}

#[test]
fn a_skipped_sync_of_the_metadata_server_is_found() {
    // Rows are looked at where they are durable: if the server never crashes, what it cleared up stays there for ever.
    hunt(Bug::SkippedMetaSync, "names", 20, Invariant::NamesAreLinearizable, &[Invariant::ItComesBack]);
}

#[test]
fn a_lost_replay_is_found() {
    // What a server says is stable has the promise of fsync: a client that comes back to a server without the chunk is
    // told that it was lost. Where the chunk is there, in an older state, only a reader sees it.
    hunt(Bug::LostReplay, "close", 20, Invariant::CloseIsKept, &[Invariant::FsyncIsKept]);
}

#[test]
fn a_lost_replay_of_metadata_is_found() {
    hunt(Bug::LostReplayOfMetadata, "names", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn an_ignored_truncate_generation_is_found() {
    hunt(Bug::TruncateIgnored, "close", 20, Invariant::CloseIsKept, &[]);
}

#[test]
fn a_revocation_acknowledged_before_it_is_carried_out_is_found() {
    hunt(Bug::AcknowledgedBeforeDropped, "names-mounts", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn a_file_given_up_before_it_is_flushed_is_found() {
    hunt(Bug::GivenUpUnflushed, "bytes", 5, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_change_that_comes_late_and_is_carried_out_is_found() {
    hunt(Bug::StaleTokenAccepted, "bytes", 5, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_change_of_a_lost_session_that_comes_late_is_found() {
    hunt(Bug::StaleTokenAccepted, "evicted", 10, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_fence_that_is_skipped_is_found() {
    hunt(Bug::SkippedFence, "evicted", 60, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_fence_that_is_skipped_where_there_are_copies_is_found() {
    hunt(Bug::SkippedFence, "copies-evicted", 60, Invariant::BytesAreLinearizable, &[]);
}

#[test]
fn a_write_beside_others_that_is_carried_out_again_is_found() {
    // One that is repeated under a lease that is over is no repetition any more, and is refused until its deadline.
    let also = [Invariant::OperationsSurviveFaults];
    hunt(Bug::OnceIgnored, "bytes-sync", 20, Invariant::BytesAreLinearizable, &also);
}

#[test]
fn a_lock_that_is_freed_too_early_is_found() {
    // A write that is repeated after its lock was freed comes too late for its server, until its deadline.
    let also = [Invariant::OperationsSurviveFaults];
    hunt(Bug::LockFreedTooEarly, "bytes-sync", 20, Invariant::BytesAreLinearizable, &also);
}

#[test]
fn a_lock_that_is_freed_too_early_where_there_are_copies_is_found() {
    let also = [Invariant::OperationsSurviveFaults];
    hunt(Bug::LockFreedTooEarly, "copies-sync", 20, Invariant::BytesAreLinearizable, &also);
}

#[test]
fn a_chunk_marked_as_stable_too_early_is_found() {
    hunt(Bug::MarkedTooEarly, "fsync", 20, Invariant::FsyncIsKept, &[]);
}

#[test]
fn a_request_applied_twice_is_found() {
    hunt(Bug::RequestAppliedTwice, "names", 100, Invariant::NamesAreLinearizable, &[]);
}
