//! What a data server says of itself, with every answer: under the names this crate reasons with.

pub use braid_types::{CopyStanding as Standing, KeeperReport as Report};
