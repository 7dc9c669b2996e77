//! Chunks with several copies.

use super::Scenario;
use crate::env::Word;
use crate::fault;
use crate::settings::Settings;
use crate::work::{Bytes, Durable, Evicted, Handover, Queued, Sure};
use std::time::Duration;

/// One data server after the other stops, and what is late is late between them too.
pub(super) fn in_turn(settings: Settings) -> Settings {
    Settings { late_copies: true, late_words: true, one_at_a_time: true, ..settings }
}

/// Chunks with several copies; seed n of theirs runs the (n mod their number)th.
pub fn with_copies() -> Vec<Scenario> {
    let base = Scenario {
        name: "copies",
        faults: fault::COPIES,
        fault_every: Duration::from_millis(900),
        stormy: Duration::from_secs(12),
        settings: Settings::with_copies(3),
        lossy: false,
        make: |_| Durable::new(Sure::BytesAtFsync),
    };
    vec![
        base.clone(),
        Scenario { name: "copies-2", settings: Settings::with_copies(2), ..base.clone() },
        // In odd numbers it syncs; here nothing depends on it.
        Scenario {
            name: "copies-handover",
            settings: Settings { late_copies: true, ..Settings::with_copies(3) },
            make: |seed| Handover::new(seed | 1),
            ..base.clone()
        },
        Scenario {
            name: "copies-sync",
            settings: Settings { late_copies: true, ..Settings::with_copies_and_long_sessions(3) },
            make: |_| Bytes::new(true),
            ..base.clone()
        },
        Scenario {
            name: "copies-fsync",
            faults: fault::COPIES_AND_EVERYTHING,
            lossy: true,
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        // Nobody syncs: whatever was answered must be there, so no two servers may forget it at once.
        Scenario {
            name: "copies-handover-close",
            faults: fault::COPIES_IN_TURN,
            settings: in_turn(Settings::with_copies(3)),
            make: |seed| Handover::new(seed & !1),
            ..base.clone()
        },
        Scenario {
            name: "copies-bytes",
            faults: fault::COPIES_IN_TURN,
            settings: in_turn(Settings::with_copies_and_long_sessions(3)),
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "copies-bytes-local",
            faults: fault::COPIES_IN_TURN,
            settings: Settings { local_reads: true, ..in_turn(Settings::with_copies_and_long_sessions(3)) },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        // Three that write the same places, each of whom would own them beside it.
        Scenario {
            name: "copies-bytes-three",
            faults: fault::COPIES_IN_TURN,
            settings: Settings {
                beside: true,
                third_client: true,
                ..in_turn(Settings::with_copies_and_long_sessions(3))
            },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        // Each writer has what it writes owned beside it, and the other reads it.
        Scenario {
            name: "copies-moves",
            faults: fault::COPIES_IN_TURN,
            settings: Settings { beside: true, ..in_turn(Settings::with_copies(3)) },
            make: |seed| Handover::new(seed),
            ..base.clone()
        },
        Scenario {
            name: "copies-moves-fsync",
            faults: fault::COPIES_AND_EVERYTHING,
            lossy: true,
            settings: Settings { beside: true, late_words: true, ..Settings::with_copies(3) },
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        // And where it has no copy beside it one is made there.
        Scenario {
            name: "copies-brought",
            faults: fault::COPIES_IN_TURN,
            settings: in_turn(Settings::with_copies_beside(2)),
            make: |seed| Handover::new(seed),
            ..base.clone()
        },
        Scenario {
            name: "copies-brought-fsync",
            faults: fault::COPIES_AND_EVERYTHING,
            lossy: true,
            settings: Settings { late_words: true, ..Settings::with_copies_beside(2) },
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        // Mounts stand still until their sessions have ended, and what they sent comes after that.
        Scenario {
            name: "copies-evicted",
            faults: fault::FREEZES,
            stormy: Duration::from_secs(20),
            settings: Settings { late_copies: true, very_late: true, ..Settings::with_copies(3).and_short_sessions() },
            make: |_| Evicted::new(),
            ..base
        },
    ]
}

/// Those in which chunks are moved, and data servers stop at messages; seed n runs the (n mod their number)th.
pub fn at_messages() -> Vec<Scenario> {
    // With short ones a client that was cut off for long loses what its owner has forgotten: two faults, which are more than one.
    let in_turn = in_turn(Settings::with_copies_and_long_sessions(3));
    let base = Scenario {
        name: "messages-moves",
        faults: fault::COPIES_AT_MESSAGES,
        fault_every: Duration::from_millis(500),
        stormy: Duration::from_secs(12),
        settings: Settings { beside: true, ..in_turn.clone() },
        lossy: false,
        make: |seed| Handover::new(seed),
    };
    vec![
        base.clone(),
        // Three that write the same places, each of whom would own them beside it.
        Scenario {
            name: "messages-bytes-three",
            settings: Settings { beside: true, third_client: true, ..in_turn },
            make: |_| Bytes::new(false),
            ..base.clone()
        },
        Scenario {
            name: "messages-moves-fsync",
            settings: Settings { beside: true, late_words: true, ..Settings::with_copies_and_long_sessions(3) },
            lossy: true,
            make: |_| Durable::new(Sure::AtFsync),
            ..base.clone()
        },
        // Where one goes while another is away, what its successor knows is not all.
        Scenario {
            name: "messages-fetch",
            faults: fault::TWO_COPIES_AT_MESSAGES,
            settings: Settings::with_copies_and_long_sessions(2),
            make: |_| Durable::new(Sure::BytesAtFsync),
            ..base
        },
    ]
}

/// Who waits for a region of a chunk that is handed over goes along with it: taken over by one that stops before the others know.
pub fn queued() -> Vec<Scenario> {
    vec![Scenario {
        name: "messages-queued",
        faults: fault::PAUSES_AT_MESSAGES,
        fault_every: Duration::from_millis(1000),
        stormy: Duration::from_secs(12),
        // Each of three hosts has a copy.
        settings: Settings {
            beside: true,
            third_client: true,
            machines: 6,
            stops_at: Some(Word::Owns),
            ..in_turn(Settings::with_copies_and_long_sessions(3))
        },
        lossy: false,
        make: |_| Queued::new(),
    }]
}
