//! The same seed gives the same history.
#![allow(clippy::unwrap_used)]

use braid_sim::{Scenario, run};

#[test]
fn the_same_seed_gives_the_same_history() {
    for scenario in braid_sim::scenario::all() {
        for seed in 0..4 {
            let (first, second) = (run(seed, &scenario, false), run(seed, &scenario, false));
            let name = scenario.name;
            assert_eq!(
                (first.hash, first.events),
                (second.hash, second.events),
                "seed {seed} of {name} is not its own"
            );
            assert_eq!(first.failures, second.failures);
        }
    }
}

#[test]
fn other_seeds_give_other_histories() {
    let scenario = Scenario::named("names").unwrap();
    assert_ne!(run(1, &scenario, false).hash, run(2, &scenario, false).hash);
}
