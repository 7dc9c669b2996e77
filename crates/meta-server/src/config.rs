use braid_chain::Limits;
use braid_lease::Limits as LeaseLimits;
use std::time::Duration;

/// Times and bounds of a metadata server. The inequalities between them are checked by [`MetaConfig::check`].
#[derive(Clone, Debug)]
pub struct MetaConfig {
    /// A session keeps what it caches for this long after its last renewal.
    pub session_lease: Duration,
    /// How often clients renew; three tries fit into a lease.
    pub session_renew: Duration,
    /// A silent session is ended after this time. Longer than the lease, because ending it frees what it had
    /// open and nothing asks for that sooner.
    pub session_expiry: Duration,
    /// A session that renews but does not drop what was revoked for so long is renewed no more.
    pub acknowledge: Duration,
    /// Leases on names and attributes, of all sessions, at about 250 bytes each, and as many on files, at about 450 each:
    /// 384 Ki of both are 270 MiB. Beyond them the oldest are revoked. `find` reads 100,000 names before it looks at the first of
    /// them again: those take 200,000.
    pub leases_max: usize,
    /// How often data servers say that they live.
    pub heartbeat: Duration,
    /// A data server that is silent for this long is down: nothing new is placed there.
    pub server_lease: Duration,
    /// How often the house is kept.
    pub housekeeping: Duration,
    /// Places of inodes remembered, and as many names of directories, of files that were opened by path, and policies of directories; about
    /// 100 bytes each: 256 Ki are 25 MiB of each kind.
    pub hints_max: usize,
    /// What a data server must have free to be given a new chunk.
    pub chunk_reserve_bytes: u64,
    /// Changes are answered when they are ordered, to clients that keep them until they are durable.
    pub early_reply: bool,
    /// For so long a start waits for what a client may keep of the predecessor's early answers, but at least a session's
    /// lease and at most its expiry; then the client's session ends.
    pub gather: Duration,
    /// Bytes a second that may be moved between data servers in all, until an administrator says another number.
    pub move_bytes_per_s: u64,
    /// Containers of which a place is moved at once. Each has up to 256 chunks, so that four are enough to keep every disk at work.
    pub moves_at_once: usize,
    /// How far from its fair share a data server may be whatever that share is: a change of a chain stops a container for some round
    /// trips, which less than that is not worth.
    pub rebalance_least_bytes: u64,
    /// For so long things stay in the trash; zero: until somebody removes them.
    pub trash_keep: Duration,
    /// How often what data servers have is compared with what rows name; zero: never.
    pub report_every: Duration,
    /// For so long a server that sets no quotas believes, from when it asked, that there are none. Who sets the first waits for a quarter longer;
    /// the same at every metadata server.
    pub limits_known: Duration,
    /// How long a call to a data server may take when the house is kept.
    pub data_deadline: Duration,
    /// Times of chunks with several copies; the same at every data server.
    pub chain_limits: Limits,
    /// For tests of the tests.
    #[doc(hidden)]
    pub planted: Option<PlantedBug>,
}

/// A mistake that is made on purpose, for tests of the tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A snapshot is made whoever writes.
    NotStill,
    /// What changes is not kept for snapshots.
    NotKept,
    /// Nobody waits for who works alone in a slot.
    AloneNotWaitedFor,
    /// A change of slots of several holders is made without asking the others.
    OthersNotAsked,
    /// Who comes to hold a slot takes it that nobody holds anything there.
    GainedAtOnce,
    /// Who is to work alone in a slot is told so while others still show what is in it.
    AloneTooEarly,
}

impl Default for MetaConfig {
    fn default() -> Self {
        MetaConfig {
            session_lease: Duration::from_secs(10),
            session_renew: Duration::from_secs(3),
            session_expiry: Duration::from_secs(60),
            acknowledge: Duration::from_secs(15),
            leases_max: 384 << 10,
            heartbeat: Duration::from_secs(1),
            server_lease: Duration::from_secs(4),
            housekeeping: Duration::from_millis(500),
            hints_max: 256 << 10,
            chunk_reserve_bytes: 256 << 20,
            early_reply: true,
            gather: Duration::from_secs(20),
            move_bytes_per_s: 64 << 20,
            moves_at_once: 4,
            rebalance_least_bytes: 1 << 20,
            trash_keep: Duration::from_secs(7 * 24 * 3600),
            report_every: Duration::from_secs(300),
            limits_known: Duration::from_secs(2),
            data_deadline: Duration::from_secs(5),
            chain_limits: Limits::default(),
            planted: None,
        }
    }
}

impl MetaConfig {
    /// The times of leases among them.
    pub(crate) fn limits(&self) -> LeaseLimits {
        LeaseLimits {
            session_lease: self.session_lease,
            session_renew: self.session_renew,
            session_expiry: self.session_expiry,
            server_lease: self.server_lease,
            acknowledge: self.acknowledge,
            ..LeaseLimits::default()
        }
    }

    /// design.md §5 *Fencing*: renewal × 3 ≤ lease; server lease ≤ session lease ≤ session expiry.
    pub fn check(&self) -> Result<(), String> {
        let rules = [
            (self.session_renew * 3 <= self.session_lease, "three session renewals must fit into a session lease"),
            (
                self.server_lease <= self.chain_limits.server_lease,
                "a data server must be taken for down no later than its lease is over, which is 4 s",
            ),
            (self.heartbeat * 3 <= self.server_lease, "three heartbeats must fit into a server lease"),
            (self.server_lease <= self.session_lease, "a server lease must not be longer than a session lease"),
            (self.session_lease <= self.session_expiry, "a session cannot expire before its lease is over"),
            (!self.housekeeping.is_zero(), "housekeeping needs an interval above zero"),
            (self.moves_at_once > 0, "at least one container must be moved at once"),
        ];
        let broken = rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule);
        match broken.or(self.chain_limits.broken().first().copied()) {
            Some(rule) => Err(rule.to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_obey_the_rules_and_a_bad_setting_names_the_rule() {
        assert_eq!(MetaConfig::default().check(), Ok(()));
        let bad = MetaConfig { session_renew: Duration::from_secs(4), ..MetaConfig::default() };
        assert!(bad.check().unwrap_err().contains("renewals"));
    }
}
