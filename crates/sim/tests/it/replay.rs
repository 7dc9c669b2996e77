//! The same seed gives the same history, and the same failures, in the same process and in another.
#![allow(clippy::unwrap_used)]

use crate::hunt::hunt;
use braid_sim::{Bug, Invariant, Outcome, Scenario, run};
use std::path::Path;
use std::process::Command;

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

/// One that fails for a file's bytes and one that fails for its name. They are looked for, because they are others whenever
/// the product changes.
fn failing() -> [Outcome; 2] {
    [
        hunt(Bug::TruncateIgnored, "close", 20, Invariant::CloseIsKept, &[]),
        hunt(Bug::LostReplayOfMetadata, "names", 20, Invariant::NamesAreLinearizable, &[]),
    ]
}

#[test]
fn a_failing_seed_fails_again_in_the_same_way() {
    for first in failing() {
        let scenario = Scenario::named(first.scenario).unwrap().with_bug(first.bug.unwrap());
        let second = run(first.seed, &scenario, false);
        assert!(!first.failures.is_empty() && first.failures.iter().all(|failure| !failure.text.is_empty()));
        assert_eq!(first.failures, second.failures, "{}", first.command());
        assert_eq!((first.hash, first.events), (second.hash, second.events), "{}", first.command());
        assert_eq!(first.coverage, second.coverage, "{}", first.command());
    }
}

/// What the binary of this build says when it is called as `command` says.
fn said(command: &str) -> (Option<i32>, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_braid-sim"));
    let (cargo, arguments) = command.split_once(" -- ").unwrap();
    // Where cargo put the binary is the profile it was built in.
    let is_release = binary.parent().unwrap().ends_with("release");
    assert_eq!(cargo, if is_release { "cargo run -p braid-sim --release" } else { "cargo run -p braid-sim" });
    let output = Command::new(binary).args(arguments.split(' ')).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_printed_command_shows_a_failing_seed_again() {
    for first in failing() {
        let (code, text) = said(&first.command());
        assert_eq!(code, Some(1));
        let (seed, name) = (first.seed, first.scenario);
        let start = text.find(&format!("\nseed {seed} {name}: {} events in ", first.events)).expect(&text);
        let (history, (line, rest)) = (&text[..start], text[start + 1..].split_once('\n').unwrap());
        assert!(line.ends_with(&format!(", hash {:016x}", first.hash)), "{line}");
        let failures: String = first.failures.iter().map(|failure| format!("  FAILED {failure}\n")).collect();
        assert_eq!(rest, format!("{failures}{}", first.coverage));
        assert!(history.lines().count() > 100, "--trace shows the history:\n{history}");
    }
}

#[test]
fn the_command_knows_every_bug_and_no_other() {
    assert!(Bug::ALL.iter().all(|bug| Bug::named(bug.text()) == Some(*bug)));
    let output = Command::new(env!("CARGO_BIN_EXE_braid-sim")).args(["--bug", "no-such-bug"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(Bug::ALL.iter().all(|bug| text.contains(bug.text())), "{text}");
}
