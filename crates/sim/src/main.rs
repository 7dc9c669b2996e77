//! Replays seeds: `cargo run -p braid-sim --release -- --seed N [--scenario NAME] [--bug NAME] [--count N] [--trace]`.

use braid_sim::coverage::Counts;
use braid_sim::{Bug, Scenario, run, scenario};
use std::process::ExitCode;

const HELP: &str = "usage: braid-sim [--seed N] [--count N] [--scenario NAME] [--bug NAME] [--trace]
  --seed N         the first seed (0)
  --count N        how many, one after the other (1)
  --scenario NAME  this one instead of the seed's own
  --bug NAME       with this bug planted, which the run should find
  --trace          print the history; logs of the servers go where RUST_LOG says";

struct Arguments {
    seed: u64,
    count: u64,
    scenario: Option<String>,
    bug: Option<String>,
    trace: bool,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments { seed: 0, count: 1, scenario: None, bug: None, trace: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => found.seed = words.next()?.parse().ok()?,
            "--count" => found.count = words.next()?.parse().ok()?,
            "--scenario" => found.scenario = Some(words.next()?),
            "--bug" => found.bug = Some(words.next()?),
            "--trace" => found.trace = true,
            _ => return None,
        }
    }
    Some(found)
}

/// What to run `seed` in; an error is for people.
fn scenario(arguments: &Arguments, seed: u64) -> Result<Scenario, String> {
    let scenario = match &arguments.scenario {
        None => Scenario::of_seed(seed),
        Some(name) => Scenario::named(name).ok_or_else(|| {
            let all = [
                scenario::all(),
                scenario::with_copies(),
                scenario::at_messages(),
                scenario::queued(),
                scenario::growing(),
                scenario::growing_plain(),
                scenario::litmus(),
                scenario::removals(),
                scenario::several(),
                scenario::trees(),
                scenario::snapshots(),
                scenario::sealed(),
            ]
            .concat();
            let names: Vec<_> = all.iter().map(|scenario| scenario.name).collect();
            format!("there is no scenario {name}; there are {}", names.join(", "))
        })?,
    };
    let Some(name) = &arguments.bug else { return Ok(scenario) };
    let bug = Bug::named(name).ok_or_else(|| {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.text()).collect();
        format!("there is no bug {name}; there are {}", names.join(", "))
    })?;
    Ok(scenario.with_bug(bug))
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{HELP}");
        return ExitCode::from(2);
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .without_time()
        .with_writer(std::io::stderr)
        .init();
    let (mut coverage, mut failed) = (Counts::default(), 0);
    for seed in arguments.seed..arguments.seed + arguments.count {
        let scenario = match scenario(&arguments, seed) {
            Ok(scenario) => scenario,
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::from(2);
            }
        };
        let begun = std::time::Instant::now();
        let outcome = run(seed, &scenario, arguments.trace);
        println!(
            "seed {seed} {}: {} events in {:.1} s, {:.1} s here, hash {:016x}",
            outcome.scenario,
            outcome.events,
            outcome.simulated.as_secs_f64(),
            begun.elapsed().as_secs_f64(),
            outcome.hash
        );
        outcome.failures.iter().for_each(|failure| println!("  FAILED {failure}"));
        failed += u64::from(!outcome.failures.is_empty());
        coverage.merge(&outcome.coverage);
    }
    print!("{coverage}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
