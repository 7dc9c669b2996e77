//! A session that works alone in a slot, and what it may then do before it is answered (docs/design/0029-removals-behind.md).

use braid_types::{MembershipEpoch, Slot};
use serde::{Deserialize, Serialize};

/// The session wants a slot to itself: while it has it nobody else reads or changes anything there. The answer has the server's
/// epoch; `None`: not now.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TakeSlot {
    pub slot: Slot,
    /// Rises with each slot that the session asks for.
    pub number: u64,
}

/// Nothing of this session is on its way in these slots, as far as they were taken under a number up to this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveSlots {
    pub epoch: MembershipEpoch,
    pub slots: Vec<(Slot, u64)>,
}
