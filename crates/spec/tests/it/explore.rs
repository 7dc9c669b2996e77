//! scratch
use braid_spec::Spec;
use braid_spec::rules::*;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

pub fn run(name: &str, setup: Setup, threads: usize) {
    let begun = Instant::now();
    let max: usize = std::env::var("MAX").ok().and_then(|t| t.parse().ok()).unwrap_or(6_000_000);
    let checker = Spec(setup).checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).target_state_count(max).spawn_bfs().join();
    let found = checker.discoveries();
    let mut names: Vec<_> = found.keys().collect();
    names.sort();
    println!("{name}: {} unique, {} all, depth {}, {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), begun.elapsed());
    println!("   {names:?}");
    for (bad, path) in &found {
        if braid_spec::invariants::ALWAYS.iter().any(|(n, _)| n == bad) {
            println!("VIOLATED {bad}: in {}", path.clone().into_actions().len());
            for action in path.clone().into_actions() {
                if std::env::var("TRACE").is_ok() { println!("     {action:?}"); }
            }
            if std::env::var("STATE").is_ok() { println!("{:#?}", path.clone().into_states().last().unwrap()); }
        }
    }
}

#[test]
fn planted() {
    let two = Setup::new(2);
    let three = Setup::new(3);
    let w = |n| [n, 0];
    let only = std::env::var("ONLY").unwrap_or_default();
    let cases: Vec<(Rule, Setup)> = vec![
        (Rule::StopsAtHand, Setup { writes: w(1), words: 1, ..two }),
        (Rule::HandInItsTerm, Setup { writes: w(1), words: 2, ..two }),
        (Rule::TakerHasAll, Setup { writes: w(2), words: 1, ..three }),
        (Rule::NothingApplied, Setup { writes: w(2), words: 1, repeats: 1, slow_store: true, ..two }),
        (Rule::NobodyWaits, Setup { writes: w(1), words: 1, fsyncs: 1, crashes: 1, ..two }),
        (Rule::HelloSaysServed, Setup { writes: w(2), words: 1, shared: true, slow_readers: true, ..three }),
        (Rule::AllAcknowledged, Setup { writes: w(2), words: 1, passing: Passing::Fenced, slow_readers: true, ..three }),
        (Rule::NothingBegun, Setup { writes: w(3), words: 1, slow_store: true, ..two }),
        (Rule::OpenEpoch, Setup { copies: 2, writes: w(1), words: 1, epochs: 2, chains: [0b101, 0b110], fsyncs: 1, ..three }),
        (Rule::OwnerHasLease, Setup { writes: w(2), words: 1, epochs: 1, ..two }),
        (Rule::WordSaysLease, Setup { writes: [1, 1], words: 1, repeats: 1, passing: Passing::Yields, ..two }),
        (Rule::WordSaysPlace, Setup { writes: w(2), words: 1, repeats: 1, ..two }),
        (Rule::HandSaysLate, Setup { writes: w(3), words: 1, repeats: 1, ..two }),
        (Rule::BesideStays, Setup { writes: [1, 1], words: 1, repeats: 1, beside: true, ..two }),
        (Rule::LeaseWaitedOut, Setup { writes: w(1), words: 0, epochs: 1, ..three }),
        (Rule::Quorum, Setup { writes: w(1), words: 0, epochs: 1, fsyncs: 1, ..three }),
        (Rule::OpenInRow, Setup { copies: 2, writes: w(1), words: 0, epochs: 2, fsyncs: 1, ..three }),
        (Rule::FenceFlushes, Setup { writes: w(1), words: 0, passing: Passing::Fenced, ..two }),
        (Rule::FenceRefuses, Setup { writes: w(2), words: 0, passing: Passing::Fenced, ..two }),
    ];
    for (rule, setup) in cases {
        let name = format!("{rule:?}");
        if !only.is_empty() && only != name { continue; }
        if std::env::var("GOOD").is_ok() {
            run(&format!("{name} kept"), setup, 2);
        } else {
            run(&name, setup.without(&[rule]), 1);
            match rule {
                Rule::HelloSaysServed => { run("+ all", setup.without(&[rule, Rule::AllAcknowledged]), 1); run(" only all", setup.without(&[Rule::AllAcknowledged]), 1) },
                Rule::WordSaysLease | Rule::WordSaysPlace => run("+ hand", setup.without(&[rule, Rule::HandSaysLate]), 1),
                Rule::NothingBegun => run("+ applied", setup.without(&[rule, Rule::NothingApplied]), 1),
                _ => {}
            }
        }
    }
}

#[test]
fn by_hand() {
    use braid_spec::steps::{Action, step};
    let setup = Setup { writes: [2, 0], passing: Passing::Fenced, ..Setup::new(2) }.without(&[Rule::FenceRefuses]);
    let mut s = braid_spec::states::State::first(&setup);
    let mut go = |a: Action| { let ok = step(&setup, &mut s, &a); println!("{ok} {a:?}"); };
    go(Action::Send { client: 0, to: 0 });
    go(Action::Fence);
    go(Action::FenceAt { at: 0 });
    go(Action::Answer { at: 0, call: 0, heard: true });
    go(Action::FenceAt { at: 1 });
    go(Action::FenceEnds);
    println!("{:?}", s.clients);
    println!("{:?}", s.servers[0].owning);
}
