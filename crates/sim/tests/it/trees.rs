//! Files and directories that all clients make, link, rename, remove, look up and list, and directories that they move into each other:
//! their answers have one order, and planted bugs are found.
//!
//! `SIM_TREES_SEEDS` and `SIM_TREES_FIRST_SEED` run others than the default ones.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::{Bug, Invariant, Scenario, scenario};

const SEEDS: u64 = 80;

#[test]
fn what_is_done_to_trees_has_one_order_through_faults() {
    let seeds = crate::many::seeds("TREES", SEEDS);
    let reached = ["answer about a tree explained", "move of a directory into itself refused"];
    crate::many::none_fails_and_all_is_reached(seeds, Scenario::trees_of_seed, &scenario::trees(), &reached);
}

#[test]
fn a_request_about_a_tree_that_is_applied_twice_is_found() {
    hunt(Bug::RequestAppliedTwice, "tree", 60, Invariant::NamesAreLinearizable, &[]);
    hunt(Bug::RequestAppliedTwice, "nest", 60, Invariant::NamesAreLinearizable, &[]);
}

#[test]
fn holders_that_are_not_asked_about_a_tree_are_found() {
    hunt(Bug::OthersNotAsked, "several-tree", 60, Invariant::NamesAreLinearizable, &[]);
    hunt(Bug::OthersNotAsked, "several-nest", 60, Invariant::NamesAreLinearizable, &[]);
}
