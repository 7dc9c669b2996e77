use std::time::Duration;

/// What two time limits have to be to each other.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    holds: bool,
    broken: BrokenRule,
}

/// An inequality that does not hold, in words and with the values.
#[derive(Clone, Debug, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {left:?} against {right:?}")]
pub struct BrokenRule {
    pub rule: &'static str,
    pub left: Duration,
    pub right: Duration,
}

impl Rule {
    pub fn at_most(rule: &'static str, left: Duration, right: Duration) -> Rule {
        Rule { holds: left <= right, broken: BrokenRule { rule, left, right } }
    }

    pub fn below(rule: &'static str, left: Duration, right: Duration) -> Rule {
        Rule { holds: left < right, broken: BrokenRule { rule, left, right } }
    }

    /// The first that does not hold.
    pub fn check(rules: impl IntoIterator<Item = Rule>) -> Result<(), BrokenRule> {
        rules.into_iter().find(|rule| !rule.holds).map_or(Ok(()), |rule| Err(rule.broken))
    }
}
