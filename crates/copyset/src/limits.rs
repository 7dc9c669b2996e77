use std::time::Duration;

/// Times of the copy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a member's word that it obeys this term lets the metadata server answer.
    pub lease: Duration,
    /// Between two questions for it.
    pub renew: Duration,
    /// A member silent for so long is replaced.
    pub silent: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { lease: Duration::from_secs(4), renew: Duration::from_millis(500), silent: Duration::from_secs(2) }
    }
}

impl Limits {
    /// What the metadata server believes of the lease, from the moment it asked: clocks may drift by 1 % each way.
    pub fn held(&self) -> Duration {
        self.lease * 98 / 100
    }

    /// What a recovery waits after the last word it needed.
    pub fn waited_out(&self) -> Duration {
        self.lease * 102 / 100
    }

    /// A member must be replaceable before the lease it gave is over, or a silent one stops the metadata.
    pub fn check(&self) -> Result<(), String> {
        if self.renew * 3 > self.silent || self.silent + self.renew * 2 >= self.held() {
            return Err(format!(
                "copies of the metadata: 3 x {:?} <= {:?} < {:?}",
                self.renew, self.silent, self.lease
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_over_before_it_is_waited_out() {
        let limits = Limits::default();
        limits.check().unwrap();
        assert!(limits.held().as_secs_f64() / 0.99 < limits.waited_out().as_secs_f64() / 1.01 * 1.0001);
        assert!(Limits { silent: Duration::from_secs(4), ..limits }.check().is_err());
    }
}
