//! Sequential objects for [`crate::linear`]: what programs of several mounts do to each other must look like one of these.

mod bytes;
mod locks;
mod names;
mod open;
mod shared;

pub use bytes::{SlotOp, Slots};
pub use locks::{Lock, LockAnswer, LockOp};
pub use names::{ModeOp, Modes, NAMES};
pub use open::{Open, OpenOp};
pub use shared::{Named, Place, Shared, SharedAnswer, SharedOp};
