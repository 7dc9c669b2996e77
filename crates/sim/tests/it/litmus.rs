//! What programs on two mounts do to each other under fire: no seed may fail, together they must get everywhere, and planted bugs must
//! be found.
//!
//! `SIM_LITMUS_SEEDS` and `SIM_LITMUS_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_BY_LITMUS;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together, 15 of each; about 30 s on two free cores in the dev profile.
const SEEDS: u64 = 120;

#[test]
fn no_seed_of_two_mounts_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("LITMUS", SEEDS);
    let all = scenario::litmus();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::litmus_of_seed, &all, MUST_BE_REACHED_BY_LITMUS);
}

#[test]
fn the_same_seed_of_two_mounts_gives_the_same_history() {
    for scenario in scenario::litmus() {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
        assert_eq!(first.failures, second.failures);
    }
}

#[test]
fn a_lease_granted_during_a_commit_is_found() {
    hunt(Bug::GrantedDuringACommit, "rights", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn locks_that_are_not_said_when_a_file_is_given_up_are_found() {
    hunt(Bug::LocksNotSaid, "locks", 20, Invariant::LocksExclude, &[]);
}

/// In which locks of a mount waited for ever, as a recall was not to be answered any more (docs/design/0012-locks.md, *Only while it is said*). That
/// takes four steps in one moment: one seed of two hundred gets there.
#[test]
fn seeds_in_which_locks_stood_still_do_not_fail() {
    for seed in [3062, 4039, 4147] {
        let outcome = run(seed, &Scenario::named("locks-lost").unwrap(), false);
        assert!(outcome.failures.is_empty(), "seed {seed}: {:?}", outcome.failures);
    }
}

/// In which a mount carried out two recalls of one file at once, and nobody could read or write it any more (docs/design/0005-leases.md, *Files
/// at the client*). One seed of four hundred gets there.
#[test]
fn seeds_in_which_a_file_was_given_up_twice_at_once_do_not_fail() {
    for seed in [1140, 1201, 1293, 1993] {
        let outcome = run(seed, &Scenario::named("mapped").unwrap(), false);
        assert!(outcome.failures.is_empty(), "seed {seed}: {:?}", outcome.failures);
    }
}

#[test]
fn pages_that_a_kernel_keeps_are_found() {
    hunt(Bug::PagesKept, "mapped", 5, Invariant::BytesAreLinearizable, &[]);
}
