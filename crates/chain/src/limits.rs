//! The one table of time limits and bounds of replication, and the inequalities between them.

use std::time::Duration;

/// The most a machine's clock may be wrong by, in percent of what passes.
pub const DRIFT_PERCENT: u32 = 1;

/// A moment on the machine's own monotonic clock, which counts suspension. Only the caller has one.
pub type Moment = Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// How long the leader holds itself to what it granted. The data server counts less, see [`Limits::held`].
    pub server_lease: Duration,
    pub renew: Duration,
    /// From a server's last sign of life to a successor for it.
    pub successor: Duration,
    pub session_lease: Duration,
    pub call_deadline: Duration,
    /// Changes are announced when nothing has changed for so long.
    pub quiet: Duration,
    /// The same, also if changes go on: bounds what an owner alone knows of.
    pub announce_age: Duration,
    /// Changed blocks that are announced without waiting for quiet.
    pub announce_blocks: u64,
    /// What was sent without an answer is sent again after this time.
    pub resend: Duration,
    /// A member that does not answer for so long is to be removed.
    pub silent: Duration,
    /// What is done to move ownership ends without it after this time: calls of the chunk are held for as long.
    pub move_wait: Duration,
    /// Whoever has just come to own a chunk keeps it for so long, doubled with each move up to 64 times.
    pub move_hold: Duration,
    /// Moves are forgotten when a chunk has kept its owner for so long.
    pub move_calm: Duration,
    /// A server that was removed because it did not answer is not taken back for so long.
    pub shun: Duration,
    /// Before what found no room is tried again; doubled up to eight times this while there is none.
    pub room_pause: Duration,
    /// A member that has had no room for so long gives its place to a server that has, if there is one.
    pub full: Duration,
    /// Copies are synced this often without being asked.
    pub sync_every: Duration,
    /// Blocks asked for in one message.
    pub pull_blocks: u64,
    /// What a copy lacks of what was there when its epoch began comes as repair: throttled, most endangered first.
    pub repair_bytes_per_s: u64,
    /// The part of it that may be for moves: a copy more than the chain should have, because another is to leave. As the leader says.
    pub move_bytes_per_s: u64,
    /// Messages of `pull_blocks`, or as many smaller ones as hold as much, asked for at once.
    pub repair_at_once: usize,
    /// Groups remembered of one chunk; older ones are merged.
    pub groups_max: usize,
    /// Starts of epochs remembered of one chunk; a copy that is older than all of them is copied whole.
    pub lineage_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let ms = Duration::from_millis;
        Limits {
            server_lease: ms(4_000),
            renew: ms(1_000),
            successor: ms(6_000),
            session_lease: ms(10_000),
            call_deadline: ms(60_000),
            quiet: ms(200),
            announce_age: ms(1_000),
            announce_blocks: (8 << 20) / 4096,
            resend: ms(300),
            silent: ms(2_000),
            move_wait: ms(1_000),
            move_hold: ms(250),
            move_calm: ms(32_000),
            shun: ms(30_000),
            room_pause: ms(1_000),
            full: ms(10_000),
            sync_every: ms(1_000),
            pull_blocks: 256,
            repair_bytes_per_s: 64 << 20,
            move_bytes_per_s: u64::MAX,
            repair_at_once: 4,
            groups_max: 64,
            lineage_max: 32,
        }
    }
}

/// How long a data server uses a lease, on its own clock, from the moment it *asked* for it. Its clock may be 1 %
/// slow and the other's 1 % fast: it holds while held / 0.99 <= lease / 1.01, that is up to 98.02 % of the lease.
pub fn held_of(lease: Duration) -> Duration {
    lease * (100 - 2 * DRIFT_PERCENT) / 100
}

impl Limits {
    /// Of its lease from the leader.
    pub fn held(&self) -> Duration {
        held_of(self.server_lease)
    }

    /// The sentences that do not hold.
    pub fn broken(&self) -> Vec<&'static str> {
        let rules = [
            (self.renew * 3 <= self.server_lease, "three renewals must fit into a server lease"),
            (self.server_lease < self.successor, "a server's lease must be over before it gets a successor"),
            (self.successor <= self.session_lease, "a successor must be there before a session's lease is over"),
            (self.session_lease < self.call_deadline, "a session's lease must be over before a call's deadline"),
            (self.resend * 3 <= self.silent, "three tries must fit before a member counts as silent"),
            (self.resend * 3 <= self.move_wait, "three tries must fit into a move of ownership"),
            (self.move_hold * 64 * 2 <= self.move_calm, "a contended chunk must not be taken for a calm one"),
            (self.room_pause * 8 <= self.full, "what finds no room must be tried a few times before a member is full"),
            (self.quiet <= self.announce_age, "quiet must not be longer than the age of an announcement"),
            (self.groups_max >= 4, "a chunk needs at least four groups"),
            (self.lineage_max >= 2, "a chunk needs at least two starts of epochs"),
            (self.pull_blocks > 0 && self.repair_at_once > 0, "repair must be able to go on"),
        ];
        rules.into_iter().filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_fit_together() {
        assert_eq!(Limits::default().broken(), Vec::<&str>::new());
        let bad = Limits { renew: Duration::from_secs(2), successor: Duration::from_secs(3), ..Limits::default() };
        assert_eq!(bad.broken().len(), 2);
    }

    /// The worst clocks: 1 % slow at the data server, 1 % fast at the leader, and a message that takes no time.
    #[test]
    fn a_lease_is_over_here_before_it_is_over_there() {
        let limits = Limits::default();
        let true_end_here = limits.held() * 100 / (100 - DRIFT_PERCENT);
        let true_end_there = limits.server_lease * 100 / (100 + DRIFT_PERCENT);
        assert!(true_end_here < true_end_there, "{true_end_here:?} {true_end_there:?}");
    }
}
