//! The alarm's test: each of these mistakes, made at a door of the machines, is found within so many seeds.
#![allow(clippy::unwrap_used)]

use crate::world::*;
use braid_chain::Limits;

const LATE: (u64, Us) = (10, 8 * S);
const VERY_LATE: (u64, Us) = (30, 10 * S);

/// What is of an older epoch must still be on its way when there is a new one.
fn late_for(bug: Bug) -> (u64, Us) {
    if bug == Bug::StaleEpochAccepted { VERY_LATE } else { LATE }
}

/// Of a move of ownership.
fn is_of_moves(bug: Bug) -> bool {
    use Bug::*;
    matches!(bug, PastOwnerAnswers | TakenWithoutAll | MembersNotToldByTheNextOwner)
}

/// A small cluster with a lot going wrong.
fn run(seed: u64, bug: Option<Bug>, late: (u64, Us), moves: bool) -> Option<String> {
    let mut rng = Rng(seed ^ 0xb06);
    let setup = Setup {
        servers: 4,
        copies: 3,
        min_copies: 2,
        chunks: 1,
        blocks: rng.between(1, 4),
        clients: 3,
        limits: Limits::default(),
        bug,
        moves_percent: if moves { 30 } else { 0 },
        loss_percent: rng.pick(&[1, 5, 10]),
        late,
        storm: 12 * S,
        trace: std::env::var("SEED").is_ok(),
    };
    let mut world = World::new(seed, setup);
    let faults = world.rng.between(3, 10);
    world.plan_faults(faults, true);
    let outcome = world.run();
    outcome.log.iter().for_each(|line| println!("{line}"));
    outcome.failure
}

fn found_within(bug: Bug, seeds: u64) {
    let found = (1..=seeds)
        .find_map(|seed| run(seed, Some(bug), late_for(bug), is_of_moves(bug)).map(|failure| (seed, failure)));
    let (seed, failure) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {seeds} seeds"));
    println!("{bug:?}: seed {seed}: {}", &failure[..failure.len().min(200)]);
}

/// Without a bug the same seeds find nothing: what is found below is the bug.
#[test]
fn the_alarm_is_silent_without_a_bug() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|text| text.parse().ok()) {
        return assert_eq!(run(seed, None, LATE, true), None, "seed {seed}");
    }
    let seeds = std::env::var("CHAIN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    for seed in 1..=seeds {
        assert_eq!(run(seed, None, LATE, false), None, "seed {seed}");
        assert_eq!(run(seed, None, LATE, true), None, "seed {seed}, with moves");
        assert_eq!(run(seed, None, VERY_LATE, false), None, "seed {seed}, very late");
    }
}

#[test]
fn a_stale_epoch_that_is_accepted_is_found() {
    found_within(Bug::StaleEpochAccepted, 4000);
}

#[test]
fn an_acknowledgement_before_the_member_has_it_is_found() {
    found_within(Bug::AckBeforeTheMemberHasIt, 400);
}

#[test]
fn a_prefix_advanced_over_a_gap_is_found() {
    found_within(Bug::PrefixAdvancedOverAGap, 200);
}

#[test]
fn a_take_over_with_too_few_answers_is_found() {
    found_within(Bug::TakeOverWithTooFewAnswers, 200);
}

#[test]
fn an_invalidation_acknowledged_before_it_is_applied_is_found() {
    found_within(Bug::InvalidationAcknowledgedBeforeApplied, 100);
}

#[test]
fn a_lease_that_suspension_does_not_end_is_found() {
    found_within(Bug::LeaseThatSuspensionDoesNotEnd, 100);
}

#[test]
fn a_skipped_sync_is_found() {
    found_within(Bug::SkippedSync, 50);
}

#[test]
fn a_past_owner_that_answers_is_found() {
    found_within(Bug::PastOwnerAnswers, 400);
}

#[test]
fn ownership_taken_without_all_is_found() {
    found_within(Bug::TakenWithoutAll, 400);
}

#[test]
fn members_that_the_next_owner_does_not_tell_are_found() {
    found_within(Bug::MembersNotToldByTheNextOwner, 400);
}
