//! The examination of every engine: each promise of the crate's documentation as a case that panics when it
//! is broken. An engine is finished when it passes; a doubtful meaning is settled by adding a case here.
//!
//! [`test_all`] makes an empty engine for each case; it needs a tokio runtime, better one of several threads.
//! [`test_durable`] is for engines that can be closed and opened again. What a *crash* leaves is for each
//! engine's own tests, as only they can make one; [`Ledger`] says what to look for.

mod adds;
mod counts;
mod early;
mod epochs;
mod isolation;
mod ledger;
mod limits;
mod model;
mod reopen;
mod scans;
mod script;
mod snapshots;
mod writes;

pub use ledger::Ledger;
pub use reopen::test_durable;
pub use script::{Script, ScriptError, Seen, Step};

use crate::Engine;
use std::future::Future;

/// Runs every case on a fresh, empty engine of `make`.
pub async fn test_all<E, F, Fut>(make: F)
where
    E: Engine,
    F: Fn() -> Fut,
    Fut: Future<Output = E>,
{
    writes::reads_see_own_writes(&make().await).await;
    writes::get_keeps_order_and_shows_absence(&make().await).await;
    writes::last_write_of_a_row_counts(&make().await).await;
    writes::insert_over_a_row_is_refused(&make().await).await;
    writes::insert_after_own_delete_is_allowed(&make().await).await;
    writes::an_error_leaves_no_trace(&make().await).await;
    adds::numbers_are_added(&make().await).await;
    adds::what_is_added_keeps_nobody_waiting(&make().await).await;
    adds::nothing_is_added_by_an_error(&make().await).await;
    adds::all_that_add_at_once_are_counted(make().await).await;
    writes::a_read_may_not_write(&make().await).await;
    writes::tables_and_partitions_are_apart(&make().await).await;
    scans::a_scan_keeps_to_its_prefix(&make().await).await;
    scans::pages_follow_each_other(&make().await).await;
    scans::scans_merge_own_writes(&make().await).await;
    scans::a_table_is_scanned_whole(&make().await).await;
    limits::keys_and_rows_of_every_size(&make().await).await;
    limits::a_large_transaction(&make().await).await;
    counts::round_trips_are_exact(&make().await).await;
    isolation::no_update_is_lost(make().await).await;
    isolation::no_update_of_a_new_row_is_lost(make().await).await;
    isolation::one_of_many_inserts_wins(make().await).await;
    isolation::snapshots_are_of_one_moment(make().await).await;
    isolation::a_cancelled_transaction_is_whole_or_nothing(make().await).await;
    early::numbers_follow_the_order_and_become_durable(&make().await).await;
    early::an_owner_sees_what_it_was_answered_for(&make().await).await;
    early::others_are_shown_only_what_is_durable(&make().await).await;
    early::what_is_apart_waits_for_nothing(&make().await).await;
    early::failures_leave_no_trace_early_either(&make().await).await;
    early::reads_see_what_was_answered_before(make().await).await;
    epochs::who_is_in_the_present_epoch_goes_on(&make().await).await;
    epochs::only_the_present_epoch_is_joined(&make().await).await;
    epochs::what_was_begun_in_an_older_epoch_does_not_commit(make().await).await;
    snapshots::a_snapshot_is_of_one_moment(make().await).await;
    snapshots::a_snapshot_shows_what_was_answered_before(&make().await).await;
    snapshots::a_snapshot_has_the_tables_it_was_asked_for(&make().await).await;
    for seed in 1..=3 {
        model::random_scripts_agree_with_the_model(&make().await, seed).await;
    }
}
