//! scratch
use crate::explore::run;
use braid_spec::rules::*;

#[test]
fn sizes() {
    let two = Setup::new(2);
    let three = Setup::new(3);
    use Passing::*;
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, setup) in [
        ("A", Setup { writes: [2, 1], words: 2, repeats: 1, passing: Yields, slow_store: true, lost_hands: 1, stories: true, ..two }),
        ("A2", Setup { writes: [2, 1], words: 2, repeats: 1, passing: Fenced, slow_readers: true, ..two }),
        ("B", Setup { writes: [1, 1], words: 1, epochs: 1, crashes: 1, fsyncs: 1, passing: Fenced, ..two }),
        ("C", Setup { writes: [2, 0], words: 1, epochs: 1, crashes: 1, fsyncs: 1, ..three }),
        ("C0", Setup { writes: [2, 0], words: 1, epochs: 1, crashes: 0, fsyncs: 1, ..three }),
        ("D", Setup { writes: [1, 1], words: 2, passing: Fenced, slow_readers: true, ..three }),
        ("D2", Setup { writes: [1, 1], words: 1, epochs: 1, passing: Fenced, slow_readers: true, ..three }),
        ("E", Setup { copies: 2, writes: [1, 0], words: 1, epochs: 2, fsyncs: 1, ..three }),
        ("E1", Setup { copies: 2, writes: [1, 0], words: 1, epochs: 1, crashes: 1, fsyncs: 1, ..three }),
        ("F", Setup { writes: [2, 2], words: 1, repeats: 1, beside: true, shared: true, ..three }),
        ("S", Setup { writes: [2, 0], words: 2, epochs: 1, shared: true, slow_readers: true, crashes: 1, ..two }),
    ] {
        if only.is_empty() || only.split(',').any(|o| o == name) { run(name, setup, 2); }
    }
}
