use super::RowFormat;
use braid_api::admin::{Moves, RebalanceState};
use braid_types::{ContainerId, ServerId};
use serde::{Deserialize, Serialize};

/// The row of `globals` that says whether data servers are being evened out, and which places change hands for it now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceRow {
    pub state: RebalanceState,
    pub within_permille: u32,
    /// Begun and not ended: a container is here before its chain gets a member for it. At most as many as move at once.
    pub moves: Vec<MoveRow>,
    /// What has ended since it began.
    pub moved: Moves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    pub container: ContainerId,
    pub from: ServerId,
    pub to: ServerId,
    /// As planned.
    pub bytes: u64,
    pub spreads: bool,
}

impl RowFormat for RebalanceRow {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::keys;

    #[test]
    fn a_rebalance_is_these_bytes() {
        let it = MoveRow { container: ContainerId(5), from: ServerId(1), to: ServerId(4), bytes: 9, spreads: true };
        let moved = Moves { copies: 2, bytes: 7 };
        let row = RebalanceRow { state: RebalanceState::Paused, within_permille: 50, moves: vec![it], moved };
        assert_eq!(row.encode(), [1, 2, 50, 1, 5, 1, 4, 9, 1, 2, 7]);
        assert_eq!(RebalanceRow::decode(&keys::global("rebalance"), &row.encode()).unwrap(), row);
    }
}
