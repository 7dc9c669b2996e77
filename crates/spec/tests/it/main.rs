//! The specification, explored (docs/design/0017-migration-specification.md).
//!
//! `cargo test -p braid-spec -- --nocapture` prints how many states each configuration has, and a shortest way to each planted bug.
//! `cargo test -p braid-spec --test it large -- --ignored --nocapture` looks at those that are too large for CI.

mod kept;
mod left_out;

use braid_spec::Spec;
use braid_spec::invariants::ALWAYS;
use braid_spec::rules::Setup;
use stateright::{Checker, HasDiscoveries, Model, Path};
use std::collections::BTreeSet;
use std::time::Instant;

/// Every state of a configuration: no invariant is broken, and all of these are reached, so that this says something.
fn explore(name: &str, setup: Setup, reached: &[&str], threads: usize) {
    let begun = Instant::now();
    let checker = Spec(setup).checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let (unique, all, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    println!("{name}: {unique} states, {all} steps, {depth} deep, {:.1} s", begun.elapsed().as_secs_f32());
    if let Some((broken, path)) = ALWAYS.iter().find_map(|(name, _)| found.get_key_value(name)) {
        panic!("{name}: {broken}\n{}", told(path));
    }
    let found: BTreeSet<&str> = found.keys().copied().collect();
    let missing: Vec<&str> = reached.iter().copied().filter(|name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "{name} never comes to {missing:?}, only to {found:?}");
}

/// Is there a broken invariant so many steps away, and which?
fn broken_within(
    setup: Setup,
    steps: Option<usize>,
) -> Option<(&'static str, Path<braid_spec::states::State, braid_spec::steps::Action>)> {
    let checker = Spec(setup).checker().finish_when(HasDiscoveries::AnyFailures);
    // The checker counts states, and does not look at the one so far away.
    let checker = match steps {
        Some(steps) => checker.target_max_depth(steps + 2),
        None => checker,
    };
    let found = checker.spawn_bfs().join().discoveries();
    let broken = found.into_iter().filter(|(name, _)| ALWAYS.iter().any(|(always, _)| always == name));
    broken.min_by_key(|(name, path)| (path.clone().into_actions().len(), *name))
}

fn told(path: &Path<braid_spec::states::State, braid_spec::steps::Action>) -> String {
    let steps = path.clone().into_actions().into_iter().enumerate();
    steps.map(|(at, action)| format!("{:>5} {action:?}\n", at + 1)).collect()
}
