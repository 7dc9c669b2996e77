//! Names are removed before that is answered, under fire: no seed may fail, together they must get everywhere, and planted bugs must be found.
//!
//! `SIM_REMOVAL_SEEDS` and `SIM_REMOVAL_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_BY_REMOVALS;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together; about 20 s on two free cores in the dev profile.
const SEEDS: u64 = 56;

#[test]
fn no_seed_with_removals_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("REMOVAL", SEEDS);
    let all = scenario::removals();
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::removals_of_seed, &all, MUST_BE_REACHED_BY_REMOVALS);
}

#[test]
fn the_same_seed_with_removals_gives_the_same_history() {
    for scenario in scenario::removals() {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
        assert_eq!(first.failures, second.failures);
    }
}

#[test]
fn who_works_alone_and_is_not_waited_for_is_found() {
    hunt(Bug::AloneNotWaitedFor, "removals-late", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn who_works_alone_while_others_show_what_is_there_is_found() {
    hunt(Bug::AloneTooEarly, "removals", 20, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn removals_that_are_not_sent_again_are_found() {
    // One seed of thirty: a server has to go in the milliseconds in which one is on its way, and somebody to look before it comes again.
    hunt(Bug::LostReplayOfUnanswered, "removals-evicted", 200, Invariant::NamesAreLinearizable, &[]);
}
