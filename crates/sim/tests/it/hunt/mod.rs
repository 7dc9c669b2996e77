//! Looks for a planted bug.
#![allow(clippy::unwrap_used)]

use braid_sim::{Bug, Invariant, Outcome, Scenario, run};

/// The first of so many seeds of the scenario in which `bug` is reported as what it breaks. Until then it may be reported as
/// one of `also`, and never as anything else. Without the bug the very same seed must be clean.
pub fn hunt(bug: Bug, scenario: &str, seeds: u64, breaks: Invariant, also: &[Invariant]) -> Outcome {
    let sound = Scenario::named(scenario).unwrap();
    let ill = sound.clone().with_bug(bug);
    for seed in 0..seeds {
        let outcome = run(seed, &ill, false);
        let other = outcome.failures.iter().find(|f| f.invariant != breaks && !also.contains(&f.invariant));
        if let Some(other) = other {
            panic!("{bug:?} breaks {breaks:?}, and is reported as {other}\n    {}", outcome.command());
        }
        let Some(found) = outcome.failures.iter().find(|failure| failure.invariant == breaks) else { continue };
        println!("{bug:?} found by seed {seed} of {scenario}: {found}\n    {}", outcome.command());
        let clean = run(seed, &sound, false);
        assert_eq!(clean.failures, [], "seed {seed} of {scenario} fails without {bug:?}:\n    {}", clean.command());
        return outcome;
    }
    panic!("{bug:?} was not found as {breaks:?} by {seeds} seeds of {scenario}");
}
