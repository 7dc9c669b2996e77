//! Without one of the rules: what the checker finds, and where it finds nothing.

use crate::{broken_within, told};
use braid_spec::Spec;
use braid_spec::invariants::ALWAYS;
use braid_spec::rules::Passing::{Fenced, Yields};
use braid_spec::rules::{Rule, Setup};
use stateright::{Checker, HasDiscoveries, Model};

const fn setup(servers: u8, writes: [u8; 2], words: u8) -> Setup {
    let mut setup = Setup::new(servers);
    setup.writes = writes;
    setup.words = words;
    setup
}

/// An invariant is broken, and in no fewer steps than these.
fn is_found(rules: &[Rule], setup: Setup, invariant: &str, steps: usize) {
    let setup = setup.without(rules);
    let Some((mut broken, mut path)) = broken_within(setup, None) else {
        panic!("without {rules:?} nothing is broken");
    };
    // The checker looks at many states at a time and tells the last: the shortest way is looked for with a bound.
    let (mut none, mut some) = (0, path.clone().into_actions().len());
    while some - none > 1 {
        let middle = none.midpoint(some);
        match broken_within(setup, Some(middle)) {
            Some((name, shorter)) => {
                some = shorter.clone().into_actions().len();
                (broken, path) = (name, shorter);
            }
            None => none = middle,
        }
    }
    println!("without {rules:?}: {broken}, in {some} steps\n{}", told(&path));
    assert_eq!((broken, some), (invariant, steps), "{rules:?}");
}

/// All states are looked at, and no invariant is broken.
fn is_not_found(rules: &[Rule], setup: Setup) {
    let found = Spec(setup.without(rules)).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let broken: Vec<_> =
        found.discoveries().into_iter().filter(|(name, _)| ALWAYS.iter().any(|(a, _)| a == name)).collect();
    println!("without {rules:?}: nothing in {} states", found.unique_state_count());
    if let Some((name, path)) = broken.first() {
        panic!("without {rules:?}: {name}\n{}", told(path));
    }
}

/// Something cannot happen any more. With the rule it does.
fn is_out_of_reach(rule: Rule, setup: Setup, what: &'static str) {
    for (setup, is_reached) in [(setup, true), (setup.without(&[rule]), false)] {
        let found = Spec(setup).checker().finish_when(HasDiscoveries::AllOf([what].into())).spawn_bfs().join();
        assert_eq!(found.discoveries().contains_key(what), is_reached, "{rule:?}");
    }
    println!("without {rule:?}: never {what}");
}

#[test]
fn of_hand() {
    is_found(&[Rule::StopsAtHand], setup(2, [1, 0], 1), "one owner", 10);
    is_found(&[Rule::HandInItsTerm], setup(2, [1, 0], 2), "one owner", 16);
    is_found(&[Rule::TakerHasAll], setup(3, [2, 0], 1), "the owner has what was answered", 11);
    is_found(&[Rule::NothingApplied], Setup { repeats: 1, slow_store: true, ..setup(2, [2, 0], 1) }, "one line", 16);
    is_found(
        &[Rule::NobodyWaits],
        Setup { fsyncs: 1, crashes: 1, ..setup(2, [1, 0], 1) },
        "nothing synced is lost",
        10,
    );
    is_out_of_reach(
        Rule::HandAgain,
        Setup { lost_hands: 1, stories: true, ..setup(2, [1, 0], 1) },
        "a lost Hand is said again, and heard",
    );
}

/// Each of the two closes its own hole, and the first only while the second is open.
#[test]
fn of_what_members_know() {
    let fenced = Setup { passing: Fenced, slow_readers: true, ..setup(3, [1, 0], 1) };
    is_found(&[Rule::AllAcknowledged], fenced, "nothing visible is missed", 14);
    let yields = Setup { passing: Yields, ..fenced };
    is_found(&[Rule::HelloSaysServed, Rule::AllAcknowledged], yields, "nothing visible is missed", 16);
    is_not_found(&[Rule::AllAcknowledged], yields);
    for setup in [fenced, yields, Setup { writes: [2, 0], shared: true, ..yields }] {
        is_not_found(&[Rule::HelloSaysServed], setup);
    }
}

#[test]
fn of_when_it_is_refused() {
    let spare = Setup { copies: 2, epochs: 2, chains: [0b101, 0b110], fsyncs: 1, ..setup(3, [1, 0], 1) };
    is_found(&[Rule::OpenEpoch], spare, "nothing synced is lost", 21);
    is_found(&[Rule::BesideStays], Setup { repeats: 1, beside: true, ..setup(2, [1, 1], 1) }, "nothing overtakes", 12);
    // For progress, not for safety.
    is_not_found(&[Rule::OwnerHasLease], Setup { epochs: 1, fsyncs: 1, crashes: 1, ..setup(2, [2, 0], 1) });
    is_not_found(&[Rule::OwnerHasLease], Setup { copies: 2, epochs: 1, fsyncs: 1, ..setup(3, [1, 0], 1) });
    let slow = Setup { slow_store: true, repeats: 1, lost_hands: 1, ..setup(2, [2, 0], 2) };
    is_not_found(&[Rule::NothingBegun], slow);
    is_not_found(&[Rule::NothingBegun], Setup { passing: Fenced, slow_readers: true, ..setup(3, [2, 0], 1) });
}

/// As it was before this specification: the word says the lease, and nothing else is said.
#[test]
fn of_what_comes_late() {
    let (again, passes) =
        (Setup { repeats: 1, ..setup(2, [3, 0], 1) }, Setup { repeats: 1, passing: Yields, ..setup(2, [1, 1], 1) });
    is_found(&[Rule::HandSaysLate, Rule::WordSaysPlace], Setup { writes: [2, 0], ..again }, "nothing overtakes", 15);
    is_found(&[Rule::HandSaysLate], again, "nothing overtakes", 15);
    is_found(&[Rule::HandSaysLate], Setup { writes: [2, 1], ..passes }, "nothing overtakes", 15);
    is_found(&[Rule::HandSaysLate, Rule::WordSaysLease], passes, "nothing overtakes", 14);
    // What `Hand` says is enough.
    is_not_found(&[Rule::WordSaysLease, Rule::WordSaysPlace], again);
    is_not_found(&[Rule::WordSaysLease, Rule::WordSaysPlace], Setup { words: 2, ..passes });
}

#[test]
fn of_epochs_and_fences() {
    is_found(&[Rule::LeaseWaitedOut], Setup { epochs: 1, ..setup(3, [1, 0], 0) }, "one owner", 9);
    is_found(&[Rule::Quorum], Setup { epochs: 1, fsyncs: 1, ..setup(3, [1, 0], 0) }, "nothing synced is lost", 11);
    let spare = Setup { copies: 2, epochs: 2, chains: [0b101, 0b110], fsyncs: 1, ..setup(3, [1, 0], 0) };
    is_found(&[Rule::OpenInRow], spare, "nothing synced is lost", 16);
    let fenced = Setup { passing: Fenced, ..setup(2, [1, 0], 0) };
    is_found(&[Rule::FenceFlushes], fenced, "nothing visible is missed", 7);
    is_found(&[Rule::FenceRefuses], fenced, "nothing of a fenced session is late", 7);
    is_out_of_reach(
        Rule::FetchInAskersTerm,
        Setup { copies: 2, epochs: 1, ..setup(3, [2, 0], 1) },
        "what a past owner holds is fetched",
    );
}
