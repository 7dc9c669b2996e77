//! Every time limit of the cluster in one table, with the inequalities between them (design.md §5 *Fencing*).
//!
//! A role checks the whole table when it starts: two roles that disagree about one limit are as wrong as one whose
//! limits contradict each other, so the table is what they compare.

use crate::time::usable;
use braid_types::{BrokenRule, Rule};
use std::time::Duration;

/// See the module. Defaults are the first values of design.md.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A data server answers reads and acknowledges writes for so long after the leader heard from it.
    pub server_lease: Duration,
    pub server_renew: Duration,
    /// A metadata server answers for so long after its copy set heard from it.
    pub copies_lease: Duration,
    /// A member of the copy set that is silent for so long is replaced.
    pub copies_silent: Duration,
    /// A data server silent for so long gets a successor in its chains.
    pub successor: Duration,
    /// What a session caches lives for so long after its last renewal was heard.
    pub session_lease: Duration,
    pub session_renew: Duration,
    /// A silent session that nobody waits for is ended after so long.
    pub session_expiry: Duration,
    /// A client drops what it caches so long before its lease is over: time to tell the kernel.
    pub drop_margin: Duration,
    /// An entry invalidation that the kernel has not answered by then is replaced by a new epoch of all entries.
    pub invalidation: Duration,
    /// A revocation that is not acknowledged is sent again after so long.
    pub resend: Duration,
    /// A session that renews but does not acknowledge a revocation for so long is renewed no more.
    pub acknowledge: Duration,
    /// An exclusive file lease is kept at least so long once granted, so that each turn moves some bytes.
    pub file_hold: Duration,
    /// A directory that two sessions changed within this time grants no listing until it has passed again.
    pub quiet: Duration,
    /// Written bytes, size and times stay only at the holder of an exclusive lease for so long.
    pub report: Duration,
    /// No snapshot of the metadata rows is read for longer.
    pub snapshot: Duration,
    /// Ends every wait of a file operation.
    pub call_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            server_lease: Duration::from_secs(4),
            server_renew: Duration::from_secs(1),
            copies_lease: Duration::from_secs(4),
            copies_silent: Duration::from_secs(2),
            successor: Duration::from_secs(6),
            session_lease: Duration::from_secs(10),
            session_renew: Duration::from_secs(3),
            session_expiry: Duration::from_secs(60),
            drop_margin: Duration::from_millis(200),
            invalidation: Duration::from_millis(20),
            resend: Duration::from_millis(500),
            acknowledge: Duration::from_secs(15),
            file_hold: Duration::from_millis(5),
            quiet: Duration::from_secs(1),
            report: Duration::from_secs(1),
            snapshot: Duration::from_secs(5),
            call_deadline: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// A live session that acknowledges nothing holds others up for at most this: it is renewed no more after
    /// `acknowledge`, its lease runs out, and each data server hears of its end or loses its own lease.
    pub fn longest_wait_for_a_session(&self) -> Duration {
        self.acknowledge + self.session_lease + self.server_lease
    }

    /// How long a session may take to answer a recall: as long as for names, and as long again for what it has to save. 30 s are
    /// 600 MB at 20 MB/s, more than a client buffers.
    pub fn flush(&self) -> Duration {
        self.acknowledge * 2
    }

    /// The same for who waits for a file.
    pub fn longest_wait_for_a_file(&self) -> Duration {
        self.longest_wait_for_a_session() - self.acknowledge + self.flush()
    }

    /// For how long a client may use what a renewal gives, counted on its clock from when it asked.
    pub fn client_term(&self) -> Duration {
        usable(self.session_lease).saturating_sub(self.drop_margin)
    }

    /// The first inequality that does not hold.
    pub fn check(&self) -> Result<(), BrokenRule> {
        let rules = [
            Rule::below("a renewal of a server lease takes some time", Duration::ZERO, self.server_renew),
            Rule::below("a renewal of a session takes some time", Duration::ZERO, self.session_renew),
            Rule::at_most("three renewals fit into a server lease", self.server_renew * 3, self.server_lease),
            Rule::at_most(
                "three session renewals fit into a session lease",
                self.session_renew * 3,
                self.session_lease,
            ),
            Rule::below("a copy is replaced while the metadata lease lasts", self.copies_silent, self.copies_lease),
            Rule::below(
                "a server is silent for its whole lease before it has a successor",
                self.server_lease,
                self.successor,
            ),
            Rule::at_most("a chain has its successor before sessions run out", self.successor, self.session_lease),
            Rule::below("a session lease ends before a call does", self.session_lease, self.call_deadline),
            Rule::at_most("a session is not ended before its lease is over", self.session_lease, self.session_expiry),
            Rule::below("two renewals fit into what a client may use", self.session_renew * 2, self.client_term()),
            Rule::at_most("the kernel is asked three times within the margin", self.invalidation * 3, self.drop_margin),
            Rule::below("a revocation is sent again after some time", Duration::ZERO, self.resend),
            Rule::at_most("a revocation is sent three times before patience ends", self.resend * 3, self.acknowledge),
            Rule::below("a file lease's hold is over before a revocation is repeated", self.file_hold, self.resend),
            Rule::below(
                "a session that does not answer ends before the calls that wait for it",
                self.longest_wait_for_a_file(),
                self.call_deadline,
            ),
            Rule::at_most("what a client alone has is reported within its lease", self.report, self.session_lease),
            Rule::below("a row is not read from a snapshot older than a lease", self.snapshot, self.session_lease),
        ];
        Rule::check(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_agree() {
        assert_eq!(Limits::default().check(), Ok(()));
        // 15 + 10 + 4 s: half of a call's time is left.
        assert_eq!(Limits::default().longest_wait_for_a_session(), Duration::from_secs(29));
        assert_eq!(Limits::default().longest_wait_for_a_file(), Duration::from_secs(44));
        assert_eq!(Limits::default().client_term(), Duration::from_millis(9_600));
    }

    /// Each limit has an inequality that notices when it is far off.
    #[test]
    fn every_limit_is_held_by_a_rule() {
        type Field = fn(&mut Limits) -> &mut Duration;
        let fields: [(&str, Field, u64); 16] = [
            ("server_lease", |l| &mut l.server_lease, 7_000),
            ("server_renew", |l| &mut l.server_renew, 1_400),
            ("copies_lease", |l| &mut l.copies_lease, 1_000),
            ("copies_silent", |l| &mut l.copies_silent, 5_000),
            ("successor", |l| &mut l.successor, 11_000),
            ("session_lease", |l| &mut l.session_lease, 5_000),
            ("session_renew", |l| &mut l.session_renew, 3_400),
            ("session_expiry", |l| &mut l.session_expiry, 9_000),
            ("drop_margin", |l| &mut l.drop_margin, 5_000),
            ("invalidation", |l| &mut l.invalidation, 100),
            ("resend", |l| &mut l.resend, 6_000),
            ("acknowledge", |l| &mut l.acknowledge, 50_000),
            ("file_hold", |l| &mut l.file_hold, 600),
            ("report", |l| &mut l.report, 11_000),
            ("snapshot", |l| &mut l.snapshot, 10_000),
            ("call_deadline", |l| &mut l.call_deadline, 20_000),
        ];
        for (name, field, ms) in fields {
            let mut limits = Limits::default();
            *field(&mut limits) = Duration::from_millis(ms);
            let broken = limits.check().expect_err(name);
            assert!(broken.to_string().contains(broken.rule), "{name}");
        }
    }
}
