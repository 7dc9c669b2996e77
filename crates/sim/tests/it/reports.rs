//! Rounds of block reports all the time, while servers are killed and cut off: nothing that lives is removed, no chain is disturbed, and
//! one that removes what it does not know yet is found.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::{Bug, Invariant, Scenario, scenario};

/// Of all scenarios together; about 40 s on two free cores in the dev profile.
const SEEDS: u64 = 60;

#[test]
fn no_seed_with_reports_fails_and_they_are_compared() {
    let reached = &["block report", "block report that differed"];
    crate::many::none_fails_and_all_is_reached(
        (0, SEEDS),
        Scenario::reporting_of_seed,
        &scenario::reporting(),
        reached,
    );
}

#[test]
fn reports_that_remove_what_they_do_not_know_yet_are_found() {
    let also = [
        Invariant::FsyncIsKept,
        Invariant::CloseToOpen,
        Invariant::RowsHaveChunks,
        Invariant::OperationsSurviveFaults,
        Invariant::ItComesBack,
    ];
    hunt(Bug::RemovesWhatIsNotKnownYet, "reports-close", 20, Invariant::CloseIsKept, &also);
}
