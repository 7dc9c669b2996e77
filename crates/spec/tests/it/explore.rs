//! scratch
use braid_spec::Spec;
use braid_spec::rules::*;
use stateright::{Checker, Model};
use std::time::Instant;

pub fn run(name: &str, setup: Setup) {
    let begun = Instant::now();
    let checker = Spec(setup).checker().threads(2).spawn_bfs().join();
    let found = checker.discoveries();
    let mut names: Vec<_> = found.keys().collect();
    names.sort();
    println!("{name}: {} unique, {} all, depth {}, {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), begun.elapsed());
    println!("   {names:?}");
    for (bad, path) in &found {
        if braid_spec::invariants::ALWAYS.iter().any(|(n, _)| n == bad) {
            println!("VIOLATED {bad}:");
            let states = path.clone().into_states();
            for action in path.clone().into_actions() {
                println!("     {action:?}");
            }
            println!("{:#?}", states.last().unwrap());
        }
    }
}

#[test]
fn scratch() {
    let base = Setup::new(2);
    run("w1", Setup { writes: [2, 0], words: 2, ..base });
    run("w1 e1", Setup { writes: [2, 0], words: 1, epochs: 1, ..base });
}
