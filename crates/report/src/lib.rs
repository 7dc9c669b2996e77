//! Block reports by hash: what a data server has against what rows name, without a list (docs/design/0025-block-reports.md).
//!
//! ```text
//! all ── equal: done
//!  └► shelves that differ ► containers that differ ► buckets that differ ► their ids
//! ```
//! Promises: equal states compare equal, in whatever order they came about; a single chunk that is lost, too many, or in the place of
//! another is found; what differs otherwise is missed with a probability of 2^-64; nothing is called lost or too many that
//! was seen so once only.

mod doubts;
mod expected;
mod holdings;
mod mixer;
mod view;

pub use doubts::{Doubt, Doubts, Wrong};
pub use expected::{Compared, Expected, Strange};
pub use holdings::Holdings;
pub use mixer::{Mixer, buckets_for, shelves_for};
pub use view::{Named, View};
