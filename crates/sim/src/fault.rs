//! What goes wrong, how often, and for how long.
//!
//! To add a fault: a line here, and what it does in `inject.rs`.

use crate::seed::Stream;
use rand::RngExt;
use std::time::Duration;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $from:literal..$to:literal ms;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// For the table of what was reached.
            pub fn text(self) -> &'static str {
                match self { $(Kind::$name => concat!("fault: ", $text),)* }
            }

            /// How long it lasts.
            pub fn lasts(self, random: &mut Stream) -> Duration {
                let ms = match self { $(Kind::$name => $from..$to,)* };
                Duration::from_millis(random.random_range(ms))
            }
        }
    };
}

kinds! {
    /// The process dies; what it wrote is in the kernel's page cache, and its connections are closed for it.
    KillMeta = "kill of the metadata server", 50..2500 ms;
    KillData = "kill of a data server", 50..2500 ms;
    KillClient = "kill of a client", 50..1500 ms;
    /// The machine is off: what was not synced is lost or torn, and nobody is told.
    PowerMeta = "power cut of the metadata server", 50..2500 ms;
    PowerData = "power cut of a data server", 50..2500 ms;
    PowerClient = "power cut of a client", 50..1500 ms;
    KillOwner = "kill of an owner of chunks", 50..3500 ms;
    PowerOwner = "power cut of an owner of chunks", 50..3500 ms;
    /// One is killed, cut off or stopped, and soon after it another, before or after the first is back.
    TwoData = "one data server and soon another", 300..5000 ms;
    PowerAllData = "power cut of all data servers", 50..2500 ms;
    PowerEverything = "power cut of everything", 50..2500 ms;
    /// At a message that a machine sends, most of them of a move: before or after it, and nothing it would do then is done.
    KillAtMessage = "kill at a message", 50..3500 ms;
    PowerAtMessage = "power cut at a message", 50..3500 ms;
    PauseAtMessage = "pause at a message", 50..5000 ms;
    /// The process is stopped, time goes on.
    PauseMeta = "pause of the metadata server", 50..3000 ms;
    PauseData = "pause of a data server", 50..3000 ms;
    PauseOwner = "pause of an owner of chunks", 50..5000 ms;
    PauseClient = "pause of a client", 50..3000 ms;
    /// Longer than a session is waited for where that is short.
    FreezeClient = "long pause of a client", 5000..9000 ms;
    /// Two machines do not hear each other; afterwards what was sent arrives, as TCP repeats it.
    Hold = "partition that TCP outlives", 50..3000 ms;
    /// The same, and connections break when it is over.
    Cut = "partition that breaks connections", 200..4000 ms;
    /// Connections between two machines are reset: answers under way are lost.
    Break = "connections reset", 1..2 ms;
    Slow = "slow link", 500..4000 ms;
}

/// How often each fault comes, relative to the others.
pub type Weights = &'static [(Kind, u32)];

/// One of `weights`; `None` if there are none.
pub fn pick(weights: Weights, random: &mut Stream) -> Option<Kind> {
    let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
    let mut point = random.random_range(0..total.max(1));
    for (kind, weight) in weights {
        if point < *weight {
            return Some(*kind);
        }
        point -= weight;
    }
    None
}

const NETWORK: [(Kind, u32); 4] = [(Kind::Hold, 4), (Kind::Cut, 3), (Kind::Break, 6), (Kind::Slow, 3)];

/// Mostly what delays.
pub const DELAYS: Weights = &[NETWORK[0], NETWORK[2], (Kind::Slow, 6), (Kind::PauseMeta, 2)];

/// The metadata server goes while messages are on their way to it.
pub const META_BEHIND_DELAYS: Weights = &[(Kind::KillMeta, 6), (Kind::PowerMeta, 4), (Kind::Hold, 8), (Kind::Slow, 4)];

/// Metadata servers go while a client is out of touch.
pub const META_BEHIND_CUTS: Weights = &[(Kind::KillMeta, 6), (Kind::Hold, 6), (Kind::Cut, 6), (Kind::PauseClient, 6)];

/// Of the metadata server and the network.
pub const META: Weights = &[
    (Kind::KillMeta, 4),
    (Kind::PowerMeta, 4),
    (Kind::PauseMeta, 2),
    (Kind::PauseClient, 1),
    NETWORK[0],
    NETWORK[1],
    NETWORK[2],
    NETWORK[3],
];

/// The same, and clients die.
pub const META_AND_CLIENTS: Weights =
    &[(Kind::KillMeta, 4), (Kind::PowerMeta, 4), (Kind::KillClient, 2), (Kind::PowerClient, 2), NETWORK[0], NETWORK[2]];

/// Servers of both kinds; no client is lost and no two data servers lose their power in one moment.
pub const SERVERS: Weights = &[
    (Kind::KillMeta, 2),
    (Kind::PowerMeta, 2),
    (Kind::KillData, 3),
    (Kind::PowerData, 5),
    (Kind::PowerAllData, 2),
    (Kind::PauseMeta, 1),
    (Kind::PauseData, 2),
    NETWORK[0],
    NETWORK[1],
    NETWORK[2],
    NETWORK[3],
];

/// Data servers with copies of each other's chunks. Faults of one after another: what was not synced is expected to
/// survive one of them.
pub const COPIES: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 1),
    (Kind::PauseMeta, 1),
    (Kind::KillData, 3),
    (Kind::PowerData, 3),
    (Kind::PauseData, 2),
    (Kind::KillOwner, 3),
    (Kind::PowerOwner, 4),
    (Kind::PauseOwner, 4),
    (Kind::TwoData, 3),
    (Kind::Hold, 4),
    (Kind::Cut, 5),
    (Kind::Break, 4),
    (Kind::Slow, 2),
];

/// The same without a second: see [`crate::Settings::one_at_a_time`].
pub const COPIES_IN_TURN: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 1),
    (Kind::PauseMeta, 1),
    (Kind::KillData, 3),
    (Kind::PowerData, 3),
    (Kind::PauseData, 2),
    (Kind::KillOwner, 3),
    (Kind::PowerOwner, 4),
    (Kind::PauseOwner, 4),
    (Kind::Hold, 4),
    (Kind::Cut, 5),
    (Kind::Break, 4),
    (Kind::Slow, 2),
];

/// The same, and data servers stop at messages and at no other time; so does whoever else says a word of a chain.
pub const COPIES_AT_MESSAGES: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 1),
    (Kind::PauseMeta, 1),
    (Kind::KillAtMessage, 6),
    (Kind::PowerAtMessage, 8),
    (Kind::PauseAtMessage, 6),
    (Kind::Hold, 2),
    (Kind::Cut, 3),
    (Kind::Break, 2),
];

/// Pauses most of all: of a word that is said again some have been heard when the machine goes on, within its lease or after that.
pub const PAUSES_AT_MESSAGES: Weights =
    &[(Kind::KillAtMessage, 2), (Kind::PowerAtMessage, 1), (Kind::PauseAtMessage, 6), (Kind::Cut, 1), (Kind::Break, 1)];

/// And two of them soon one after the other.
pub const TWO_COPIES_AT_MESSAGES: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 1),
    (Kind::TwoData, 8),
    (Kind::KillAtMessage, 4),
    (Kind::PowerAtMessage, 6),
    (Kind::PauseAtMessage, 4),
    (Kind::Cut, 3),
    (Kind::Break, 2),
];

/// The same, all at once too, and clients die: only what fsync returned for is sure.
pub const COPIES_AND_EVERYTHING: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 1),
    (Kind::PowerData, 3),
    (Kind::PowerOwner, 4),
    (Kind::PauseOwner, 2),
    (Kind::TwoData, 3),
    (Kind::PowerAllData, 3),
    (Kind::PowerEverything, 3),
    (Kind::KillClient, 2),
    (Kind::PowerClient, 2),
    (Kind::Hold, 3),
    (Kind::Cut, 4),
    (Kind::Break, 3),
];

/// Clients die, data servers do not lose their power.
pub const CLIENTS: Weights = &[
    (Kind::KillClient, 5),
    (Kind::PowerClient, 5),
    (Kind::KillMeta, 2),
    (Kind::PowerMeta, 2),
    (Kind::KillData, 2),
    (Kind::PauseData, 1),
    NETWORK[0],
    NETWORK[2],
];

/// Clients stand still until their sessions have ended, and go on.
pub const FREEZES: Weights =
    &[(Kind::FreezeClient, 4), (Kind::KillMeta, 1), (Kind::PowerMeta, 1), (Kind::KillData, 1), NETWORK[0], NETWORK[2]];

/// Everything at once: only what fsync returned for is sure.
pub const EVERYTHING: Weights = &[
    (Kind::KillMeta, 1),
    (Kind::PowerMeta, 2),
    (Kind::KillData, 1),
    (Kind::PowerData, 4),
    (Kind::PowerAllData, 3),
    (Kind::PowerEverything, 3),
    (Kind::KillClient, 2),
    (Kind::PowerClient, 2),
    (Kind::PauseData, 1),
    (Kind::PauseClient, 1),
    NETWORK[0],
    NETWORK[1],
    NETWORK[2],
];
