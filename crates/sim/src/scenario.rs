//! A scenario: a workload, a table of faults, settings, and how long.

mod copies;

use crate::bug::Bug;
use crate::fault::{self, Weights};
use crate::settings::Settings;
use crate::work::{
    Ahead, Bytes, Durable, Evicted, Handover, Listings, Locks, Mapped, Modelled, Names, OpenFiles, Removals, Rights,
    Sealed, Shared, Sizes, Snapshots, Sure, Tree, Work,
};
use braid_model::objects::{NestPlay, Play};
use copies::in_turn;
pub use copies::{at_messages, queued, with_copies};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Scenario {
    pub name: &'static str,
    pub faults: Weights,
    /// On average between two faults.
    pub fault_every: Duration,
    /// Faults come for so long.
    pub stormy: Duration,
    pub settings: Settings,
    /// Chunks may be lost with their client and their server.
    pub lossy: bool,
    make: fn(u64) -> Arc<dyn Work>,
}

/// All scenarios; seed n runs the (n mod their number)th unless one is named.
pub fn all() -> Vec<Scenario> {
    let base = Scenario {
        name: "names",
        faults: fault::META,
        fault_every: Duration::from_millis(700),
        stormy: Duration::from_secs(8),
        settings: Settings::default(),
        lossy: false,
        make: |_| Names::new(false),
    };
    vec![
        base.clone(),
        Scenario { name: "names-mounts", make: |_| Names::new(true), ..base.clone() },
        Scenario {
            name: "names-clients-die",
            faults: fault::META_AND_CLIENTS,
            settings: Settings { native_early: false, ..Settings::default() },
            ..base.clone()
        },
        Scenario {
            name: "handover",
            faults: fault::SERVERS,
            settings: Settings::with_long_sessions(),
            make: |seed| Handover::new(seed),
            ..base.clone()
        },
        Scenario {
            name: "bytes",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, ..Settings::with_long_sessions() },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "bytes-local",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, local_reads: true, ..Settings::with_long_sessions() },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "bytes-sync",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, ..Settings::with_long_sessions() },
            make: |_| Bytes::new(true),
            ..base.clone()
        },
        Scenario {
            name: "shared",
            faults: fault::META,
            settings: Settings::with_long_sessions(),
            make: |_| Shared::new(),
            ..base.clone()
        },
        Scenario {
            name: "close",
            faults: fault::SERVERS,
            settings: Settings::with_long_sessions(),
            make: |_| Durable::new(Sure::AtClose),
            ..base.clone()
        },
        Scenario {
            name: "client-loss",
            faults: fault::CLIENTS,
            make: |_| Durable::new(Sure::AtCloseAndSync),
            ..base.clone()
        },
        Scenario {
            name: "fsync",
            faults: fault::EVERYTHING,
            lossy: true,
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        Scenario {
            name: "session-loss",
            faults: fault::FREEZES,
            stormy: Duration::from_secs(20),
            settings: Settings::with_short_sessions(),
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        Scenario {
            name: "evicted",
            faults: fault::FREEZES,
            stormy: Duration::from_secs(20),
            settings: Settings { late_copies: true, very_late: true, ..Settings::with_short_sessions() },
            make: |_| Evicted::new(),
            ..base
        },
    ]
}

/// The same while servers are drained and evened out; seed n of theirs runs the (n mod their number)th.
pub fn growing() -> Vec<Scenario> {
    let base = Scenario {
        name: "copies-grow",
        settings: Settings::with_operator(3),
        make: |_| Durable::new(Sure::BytesAtFsync),
        ..with_copies().swap_remove(0)
    };
    vec![
        base.clone(),
        Scenario { name: "copies-grow-2", settings: Settings::with_operator(2), ..base.clone() },
        Scenario {
            name: "copies-grow-fsync",
            faults: fault::COPIES_AND_EVERYTHING,
            lossy: true,
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        Scenario {
            name: "copies-grow-bytes",
            faults: fault::COPIES_IN_TURN,
            settings: in_turn(Settings::with_operator(3)).and_long_sessions(),
            make: |_| Bytes::new(false),
            ..base
        },
    ]
}

/// The same of chunks with one copy.
pub fn growing_plain() -> Vec<Scenario> {
    let base = growing().swap_remove(0);
    vec![
        Scenario {
            name: "plain-grow",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, ..Settings::with_operator_and_one_copy() }.and_long_sessions(),
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "plain-grow-fsync",
            faults: fault::EVERYTHING,
            lossy: true,
            settings: Settings::with_operator_and_one_copy(),
            make: |_| Durable::new(Sure::AtFsync),
            ..base
        },
    ]
}

/// What programs on two mounts do to each other; seed n of theirs runs the (n mod their number)th.
pub fn litmus() -> Vec<Scenario> {
    let base = Scenario {
        name: "rights",
        settings: Settings::with_long_sessions(),
        make: |_| Rights::work(),
        ..all().swap_remove(0)
    };
    let with_servers = Scenario {
        faults: fault::SERVERS,
        settings: Settings { late_copies: true, ..base.settings.clone() },
        ..base.clone()
    };
    vec![
        base.clone(),
        Scenario { name: "listings", make: |_| Listings::work(), ..base.clone() },
        Scenario { name: "sizes", make: Sizes::work, ..with_servers.clone() },
        Scenario { name: "open-files", make: |_| OpenFiles::work(false), ..with_servers.clone() },
        Scenario { name: "mapped", make: Mapped::work, ..with_servers.clone() },
        Scenario { name: "locks", make: |_| Locks::work(), ..base.clone() },
        Scenario {
            name: "locks-lost",
            faults: fault::FREEZES,
            stormy: Duration::from_secs(20),
            settings: Settings::with_short_sessions(),
            make: |_| Locks::work(),
            ..base
        },
        Scenario { name: "open-by-path", make: |_| OpenFiles::work(true), ..with_servers.clone() },
        // With a third mount, so that what the second has taken from the first is nobody's alone.
        Scenario {
            name: "ahead",
            settings: Settings { third_client: true, ..with_servers.settings.clone() },
            make: |_| Ahead::work(),
            ..with_servers
        },
    ]
}

/// Three metadata servers serve at once, each for its part, and come and go; seed n of theirs runs the (n mod their number)th.
pub fn several() -> Vec<Scenario> {
    let base = Scenario {
        name: "several-names",
        settings: Settings::with_long_sessions().with_several(),
        make: |_| Names::new(true),
        ..all().swap_remove(0)
    };
    vec![
        base.clone(),
        Scenario { name: "several-calm", faults: fault::DELAYS, ..base.clone() },
        Scenario { name: "several-cut", faults: fault::META_BEHIND_CUTS, make: |_| Rights::work(), ..base.clone() },
        Scenario { name: "several-shared", make: |_| Shared::new(), ..base.clone() },
        Scenario {
            name: "several-bytes",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, ..base.settings.clone() },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "several-bytes-sync",
            faults: fault::SERVERS,
            settings: Settings { late_copies: true, ..base.settings.clone() },
            make: |_| Bytes::new(true),
            ..base.clone()
        },
        Scenario { name: "several-handover", faults: fault::SERVERS, make: |seed| Handover::new(seed), ..base.clone() },
        Scenario { name: "several-rights", make: |_| Rights::work(), ..base.clone() },
        Scenario { name: "several-listings", make: |_| Listings::work(), ..base.clone() },
        Scenario {
            name: "several-ahead",
            settings: Settings { third_client: true, ..base.settings.clone() },
            make: |_| Ahead::work(),
            ..base.clone()
        },
        Scenario { name: "several-open-files", make: |_| OpenFiles::work(false), ..base.clone() },
        Scenario {
            name: "several-client-loss",
            faults: fault::CLIENTS,
            settings: Settings::default().with_several(),
            make: |_| Durable::new(Sure::AtCloseAndSync),
            ..base.clone()
        },
        Scenario {
            name: "several-snapshots",
            faults: fault::SERVERS,
            stormy: Duration::from_secs(10),
            settings: Settings { late_copies: true, ..base.settings.clone() },
            make: |seed| Snapshots::new(false, seed),
            ..base
        },
    ]
}

/// Names are removed before that is answered; seed n of theirs runs the (n mod their number)th.
pub fn removals() -> Vec<Scenario> {
    let base = Scenario {
        name: "removals",
        settings: Settings::with_long_sessions(),
        make: |_| Removals::work(true),
        ..all().swap_remove(0)
    };
    vec![
        base.clone(),
        Scenario {
            name: "removals-late",
            faults: fault::DELAYS,
            fault_every: Duration::from_millis(250),
            make: |_| Removals::work(true),
            ..base.clone()
        },
        Scenario {
            name: "removals-crashes",
            faults: fault::META_BEHIND_DELAYS,
            fault_every: Duration::from_millis(300),
            make: |_| Removals::work(true),
            ..base.clone()
        },
        Scenario {
            name: "removals-clients-die",
            faults: fault::META_AND_CLIENTS,
            settings: Settings::default(),
            make: |_| Removals::work(false),
            ..base.clone()
        },
        Scenario {
            name: "removals-evicted",
            faults: fault::FREEZES,
            stormy: Duration::from_secs(20),
            settings: Settings::with_short_sessions(),
            make: |_| Removals::work(false),
            ..base
        },
    ]
}

/// Files are sealed, unsealed and read without asking; seed n of theirs runs the (n mod their number)th.
pub fn sealed() -> Vec<Scenario> {
    let base = Scenario {
        name: "sealed",
        faults: fault::SERVERS,
        settings: Settings { late_copies: true, local_reads: true, ..Settings::with_long_sessions() },
        make: |_| Sealed::work(false),
        ..all().swap_remove(0)
    };
    vec![
        base.clone(),
        Scenario {
            name: "sealed-copies",
            faults: fault::COPIES_IN_TURN,
            fault_every: Duration::from_millis(900),
            settings: Settings { local_reads: true, ..in_turn(Settings::with_copies_and_long_sessions(3)) },
            ..base.clone()
        },
        Scenario {
            name: "sealed-clients-die",
            faults: fault::EVERYTHING,
            lossy: true,
            settings: Settings { local_reads: true, ..Settings::with_long_sessions() },
            make: |_| Sealed::work(true),
            ..base.clone()
        },
        // Who reads a file without asking reads on while its chunk is moved.
        Scenario {
            name: "sealed-grow",
            settings: Settings { local_reads: true, ..Settings::with_operator_and_one_copy() }.and_long_sessions(),
            stormy: Duration::from_secs(12),
            ..base
        },
    ]
}

/// Snapshots are made of what is being written; seed n of theirs runs the (n mod their number)th.
pub fn snapshots() -> Vec<Scenario> {
    let base = Scenario {
        name: "snapshots",
        faults: fault::SERVERS,
        stormy: Duration::from_secs(10),
        settings: Settings { late_copies: true, ..Settings::with_long_sessions() },
        make: |seed| Snapshots::new(false, seed),
        ..all().swap_remove(0)
    };
    let mut scenarios = vec![
        base.clone(),
        Scenario {
            name: "snapshots-copies",
            faults: fault::COPIES_IN_TURN,
            fault_every: Duration::from_millis(900),
            settings: in_turn(Settings::with_copies_and_long_sessions(3)),
            ..base.clone()
        },
        Scenario {
            name: "snapshots-fsync",
            faults: fault::EVERYTHING,
            lossy: true,
            settings: Settings::default(),
            make: |seed| Snapshots::new(true, seed),
            ..base.clone()
        },
        Scenario {
            name: "snapshots-copies-fsync",
            faults: fault::COPIES_AND_EVERYTHING,
            fault_every: Duration::from_millis(900),
            lossy: true,
            settings: Settings::with_copies(3),
            make: |seed| Snapshots::new(true, seed),
            ..base
        },
        // What others do is as it is without.
        beside_snapshots(model(), "snapshots-model"),
    ];
    let others = [
        (all(), "fsync", "snapshots-ledger"),
        (with_copies(), "copies", "snapshots-copies-ledger"),
        (litmus(), "open-files", "snapshots-open-files"),
    ];
    for (of, name, beside) in others {
        scenarios.extend(of.into_iter().find(|it| it.name == name).map(|it| beside_snapshots(it, beside)));
    }
    // Who makes a snapshot waits for who writes, and one that is silent for its lease is not waited for longer: what it had not synced is lost,
    // which this ledger does not know.
    for scenario in scenarios.iter_mut().filter(|scenario| scenario.name == "snapshots-copies-ledger") {
        scenario.settings = scenario.settings.clone().and_long_sessions();
    }
    scenarios
}

fn beside_snapshots(scenario: Scenario, name: &'static str) -> Scenario {
    Scenario { name, settings: Settings { snapshots: true, ..scenario.settings.clone() }, ..scenario }
}

/// The same without faults, by name only.
fn snapshots_quiet() -> Scenario {
    Scenario { name: "snapshots-quiet", faults: &[], ..snapshots().swap_remove(0) }
}

/// Files and directories of two directories, by every call that changes or shows names, and directories that are moved into each other.
pub fn trees() -> Vec<Scenario> {
    let of = |base: Vec<Scenario>, [tree, nest]: [&'static str; 2]| {
        let base = base.into_iter().take(1);
        base.flat_map(move |it| {
            let nest = Scenario { name: nest, make: |_| Tree::<NestPlay>::new(), ..it.clone() };
            [Scenario { name: tree, make: |_| Tree::<Play>::new(), ..it }, nest]
        })
    };
    of(all(), ["tree", "nest"]).chain(of(several(), ["several-tree", "several-nest"])).collect()
}

/// Whatever a program may call, compared with the model.
pub fn model() -> Scenario {
    let settings = Settings::with_long_sessions();
    let make: fn(u64) -> Arc<dyn Work> = |seed| Modelled::new(seed, 250);
    Scenario { name: "model", faults: fault::SERVERS, settings, make, ..all().remove(0) }
}

/// The same without faults, by name only: the client's own tests compare such streams in every run.
fn model_quiet() -> Scenario {
    Scenario { name: "model-quiet", faults: &[], make: |seed| Modelled::new(seed, 600), ..model() }
}

/// Rounds of block reports all the time.
pub fn reporting() -> Vec<Scenario> {
    let often = |mut scenario: Scenario, name| {
        scenario.settings.meta.report_every = Duration::from_millis(400);
        Scenario { name, ..scenario }
    };
    let of = |all: Vec<Scenario>, name: &str| all.into_iter().find(|scenario| scenario.name == name);
    let scenarios = [
        of(all(), "close").map(|it| often(it, "reports-close")),
        of(all(), "bytes").map(|it| often(it, "reports-bytes")),
        of(with_copies(), "copies").map(|it| often(it, "reports-copies")),
        of(with_copies(), "copies-handover").map(|it| often(it, "reports-copies-handover")),
        of(snapshots(), "snapshots").map(|it| often(it, "reports-snapshots")),
        of(snapshots(), "snapshots-copies").map(|it| often(it, "reports-snapshots-copies")),
    ];
    scenarios.into_iter().flatten().collect()
}

fn of_seed(mut all: Vec<Scenario>, seed: u64) -> Scenario {
    let n = seed as usize % all.len();
    all.swap_remove(n)
}

impl Scenario {
    pub fn named(name: &str) -> Option<Scenario> {
        all()
            .into_iter()
            .chain(with_copies())
            .chain(at_messages())
            .chain(queued())
            .chain(trees())
            .chain(reporting())
            .chain(growing())
            .chain(growing_plain())
            .chain(litmus())
            .chain(removals())
            .chain(several())
            .chain(snapshots())
            .chain(sealed())
            .chain([model(), model_quiet(), snapshots_quiet()])
            .find(|scenario| scenario.name == name)
    }

    pub fn of_seed(seed: u64) -> Scenario {
        of_seed(all(), seed)
    }

    pub fn litmus_of_seed(seed: u64) -> Scenario {
        of_seed(litmus(), seed)
    }

    pub fn trees_of_seed(seed: u64) -> Scenario {
        of_seed(trees(), seed)
    }

    pub fn several_of_seed(seed: u64) -> Scenario {
        of_seed(several(), seed)
    }

    pub fn removals_of_seed(seed: u64) -> Scenario {
        of_seed(removals(), seed)
    }

    pub fn growing_of_seed(seed: u64) -> Scenario {
        of_seed(growing(), seed)
    }

    pub fn growing_plain_of_seed(seed: u64) -> Scenario {
        of_seed(growing_plain(), seed)
    }

    pub fn reporting_of_seed(seed: u64) -> Scenario {
        of_seed(reporting(), seed)
    }

    pub fn sealed_of_seed(seed: u64) -> Scenario {
        of_seed(sealed(), seed)
    }

    pub fn snapshots_of_seed(seed: u64) -> Scenario {
        of_seed(snapshots(), seed)
    }

    pub fn with_copies_of_seed(seed: u64) -> Scenario {
        of_seed(with_copies(), seed)
    }

    pub fn at_messages_of_seed(seed: u64) -> Scenario {
        of_seed(at_messages(), seed)
    }

    pub fn queued_of_seed(seed: u64) -> Scenario {
        of_seed(queued(), seed)
    }

    pub fn with_bug(mut self, bug: Bug) -> Scenario {
        self.settings.bug = Some(bug);
        self
    }

    pub fn work(&self, seed: u64) -> Arc<dyn Work> {
        (self.make)(seed)
    }
}
