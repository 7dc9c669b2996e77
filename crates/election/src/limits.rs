use std::time::Duration;

/// By this part one clock may be faster than another: a twentieth. Quartz is a thousand times better; a virtual machine whose clock is
/// being corrected is not.
pub const DRIFT: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a leader that is silent is believed to lead, while the database answers soon.
    pub lease_min: Duration,
    /// And when it does not.
    pub lease_max: Duration,
    /// Signs of life in one lease. Of four, three may be lost or late.
    pub beats: u32,
}

impl Default for Limits {
    fn default() -> Self {
        // A leader that is killed is succeeded within a lease and a round: 5 s. One commit of a loaded database takes up to a second. Of one
        // that takes 10 s for a row nobody is served anyway: whatever it was like before, nobody waits longer than 21 s and a round.
        Limits { lease_min: Duration::from_secs(4), lease_max: Duration::from_secs(20), beats: 4 }
    }
}

impl Limits {
    /// Between two signs of life, or two looks.
    pub fn round(&self, lease: Duration) -> Duration {
        lease / self.beats.max(1)
    }

    /// For a leader's last round of `took`: twice as long when half a lease went by before the row was written, a quarter shorter when it was
    /// an eighth or less. So it is twice as fast up as the database can become slow, and from the longest down to the shortest in six
    /// rounds, 17 s: a database that stood still once is no reason to wait for a dead leader a minute later.
    pub fn next_lease(&self, lease: Duration, took: Duration) -> Duration {
        let next = match took {
            took if took >= lease / 2 => lease * 2,
            took if took <= lease / 8 => lease - lease / 4,
            _ => lease,
        };
        next.clamp(self.lease_min, self.lease_max)
    }

    /// How long a record has to stand before its leader is surely silent.
    pub fn patience(lease: Duration) -> Duration {
        lease + lease / DRIFT
    }
}
