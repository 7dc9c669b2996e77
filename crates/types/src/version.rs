use crate::SessionId;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);
        impl $name {
            /// The next one. Saturates: an exhausted counter refuses everything rather than starting again.
            #[must_use]
            pub fn next(self) -> Self {
                $name(self.0.saturating_add(1))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

counter!(
    /// Epoch of a chain, in the `containers` row, raised by the leader alone.
    ChainEpoch, u32
);
counter!(
    /// Ownership of one chunk inside a chain epoch; raised by migration.
    OwnerTerm, u32
);
counter!(
    /// Epoch of a session: what carries an older one is refused.
    SessionEpoch, u32
);
counter!(
    /// Epoch of the set of live metadata servers.
    MembershipEpoch, u64
);
counter!(
    /// Epoch of the leader.
    LeaderEpoch, u64
);
counter!(
    /// Generation of a file lease.
    LeaseGen, u64
);
counter!(
    /// Generation of a file's layout.
    LayoutGen, u32
);
counter!(
    /// Truncate generation of a file: an owner first cuts when it sees a newer one, refuses an older one.
    TruncGen, u32
);

/// Version of a chunk. Ordered by chain epoch, then owner term, then counter, so that versions made by two
/// owners never collide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    pub chain_epoch: ChainEpoch,
    pub owner_term: OwnerTerm,
    pub counter: u64,
}

/// What every data request carries (design.md §5 *Fencing*). A data server refuses what is older than it has
/// seen. A field that does not apply yet is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token {
    pub session: SessionId,
    pub session_epoch: SessionEpoch,
    pub lease_gen: LeaseGen,
    pub layout_gen: LayoutGen,
    pub trunc_gen: TruncGen,
    pub chain_epoch: ChainEpoch,
    pub owner_term: OwnerTerm,
    pub snapshot: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_owner_beats_a_longer_count() {
        let old = Version { chain_epoch: ChainEpoch(1), owner_term: OwnerTerm(1), counter: 900 };
        let new = Version { owner_term: OwnerTerm(2), counter: 0, ..old };
        let newest = Version { chain_epoch: ChainEpoch(2), ..Version::default() };
        assert!(old < new && new < newest);
    }
}
