//! Deliberate mistakes, so that the examination of engines and the tests can be seen to find them. Without the feature `planted`
//! there is no way to ask for one.

use crate::options::SqlOptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted"), allow(dead_code, reason = "named where they would be made"))]
pub enum PlantedBug {
    /// Reads lock nothing.
    NoLocks,
    /// What a transaction puts where it saw no row replaces what has come since.
    AbsenceForgotten,
    /// A commit whose answer was lost is made again, as if it had not been.
    LostMeansUndone,
    /// No fence rows are written, whatever the database's locks are worth.
    NoFences,
}

pub(crate) use PlantedBug as Plant;

/// The mistake of one engine, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted(Option<PlantedBug>);

impl Planted {
    #[cfg(feature = "planted")]
    pub fn of(options: &SqlOptions) -> Planted {
        Planted(options.planted)
    }

    #[cfg(feature = "planted")]
    pub fn has_snapshots(options: &SqlOptions) -> bool {
        !options.without_snapshots
    }

    #[cfg(not(feature = "planted"))]
    pub fn has_snapshots(_: &SqlOptions) -> bool {
        true
    }

    #[cfg(not(feature = "planted"))]
    pub fn of(_: &SqlOptions) -> Planted {
        Planted(None)
    }

    pub fn is(self, bug: PlantedBug) -> bool {
        self.0 == Some(bug)
    }
}
