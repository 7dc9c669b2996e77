//! Files that are sealed, unsealed and read without asking, under fire: no seed may fail, together they must get everywhere, and planted bugs
//! must be found.
//!
//! `SIM_SEALED_SEEDS` and `SIM_SEALED_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::coverage::MUST_BE_REACHED_BY_SEALS;
use braid_sim::{Bug, Invariant, Scenario, run, scenario};

/// Of all scenarios together; about 9 s on two free cores in the dev profile.
const SEEDS: u64 = 20;

#[test]
fn no_seed_in_which_files_are_sealed_fails_and_every_state_is_reached() {
    let seeds = crate::many::seeds("SEALED", SEEDS);
    // Which faults there are is the matter of others.
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::sealed_of_seed, &[], MUST_BE_REACHED_BY_SEALS);
}

#[test]
fn the_same_seed_of_sealed_files_gives_the_same_history() {
    for scenario in scenario::sealed().into_iter().skip(1).take(2) {
        let (first, second) = (run(1, &scenario, false), run(1, &scenario, false));
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", scenario.name);
        assert_eq!(first.failures, second.failures);
    }
}

/// Each of these failed once, as few others do: a file that a mount unsealed which held it and had not said so since the metadata server began
/// (118); one that was opened while it lost its last name, and its bytes with a data server's power (102, 105); programs that only read and
/// were refused, as a handle of their mount wrote when they asked (114, 115); a deleted chunk that was back (0).
#[test]
fn seeds_that_found_something_do_not_fail() {
    for (scenario, seed) in [
        ("sealed", 118),
        ("sealed", 102),
        ("sealed-copies", 0),
        ("sealed-copies", 105),
        ("sealed-clients-die", 114),
        ("sealed-clients-die", 115),
    ] {
        let outcome = run(seed, &Scenario::named(scenario).unwrap(), false);
        assert!(outcome.failures.is_empty(), "seed {seed} of {scenario}: {:?}", outcome.failures);
    }
}

#[test]
fn a_file_that_is_unsealed_while_it_is_read_without_asking_is_found() {
    hunt(Bug::UnsealedUnderReaders, "sealed-copies", 10, Invariant::SealedFilesStay, &[]);
}

#[test]
fn holds_that_a_start_of_the_metadata_server_forgets_are_found() {
    hunt(Bug::HoldsForgotten, "sealed-copies", 40, Invariant::SealedFilesStay, &[]);
}
