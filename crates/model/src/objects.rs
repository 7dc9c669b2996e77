//! Sequential objects for [`crate::linear`]: what programs of several mounts do to each other must look like one of these.

mod bytes;
mod locks;
mod names;
mod nest;
mod nest_play;
mod open;
mod play;
mod sealed;
mod shared;

use crate::linear::{End, Linear};

pub use bytes::{SlotOp, Slots};
pub use locks::{Lock, LockAnswer, LockOp};
pub use names::{ModeOp, Modes, NAMES};
pub use nest::{DirNumber, Nest, NestAnswer, NestOp};
pub use nest_play::NestPlay;
pub use open::{Open, OpenOp};
pub use play::{Play, Plays};
pub use sealed::{Sealed, SealedAnswer, SealedOp, TASKS_OF_A_MOUNT};
pub use shared::{Named, Place, Shared, SharedAnswer, SharedOp};

/// What searches the orders of each of these is generated in this crate, because it computes for minutes and this crate is optimized where
/// those that test are not.
#[allow(clippy::type_complexity)]
pub static SEARCHES: (End<Slots>, End<Lock>, End<Modes>, End<Open>, End<Sealed>, End<Shared>, End<Nest>) = (
    Linear::try_end,
    Linear::try_end,
    Linear::try_end,
    Linear::try_end,
    Linear::try_end,
    Linear::try_end,
    Linear::try_end,
);
