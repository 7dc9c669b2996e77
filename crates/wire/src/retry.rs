use braid_api::{Code, Error, Retry};
use braid_env::Random;
use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause after `failures` failures in a row: none, 10 ms, 20 ms, … 1 s, each between half and all of it, so that
/// clients that lost the same server do not come back at the same moment.
pub(crate) fn pause(failures: u32, random: &dyn Random) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let full = PAUSE_MIN.saturating_mul(1 << (failures - 1).min(16)).min(PAUSE_MAX);
    let half = full / 2;
    half + Duration::from_nanos(random.below(half.as_nanos() as u64 + 1))
}

/// May a call that ended so be sent again as it was? Every request can be repeated, by its request id or by
/// nature, so that an unknown outcome is no obstacle.
pub(crate) fn repeatable(error: &Error) -> bool {
    matches!(error.retry(), Retry::Yes | Retry::IfIdempotent)
}

/// The failures of one call so far.
#[derive(Debug, Default)]
pub(crate) struct Story {
    last: Option<Error>,
    /// Some attempt may have taken effect.
    maybe: bool,
    pub attempts: u32,
}

impl Story {
    pub fn add(&mut self, error: Error) {
        self.attempts += 1;
        self.maybe |= error.retry() == Retry::IfIdempotent;
        // The end of our own deadline tells less than what went wrong before it.
        if self.last.is_none() || error.code != Code::DeadlineExceeded {
            self.last = Some(error);
        }
    }

    /// What the caller is told when time is over: nothing happened only if that is so of every attempt.
    pub fn end(self, peer: &str, deadline: Duration) -> Error {
        let attempts = self.attempts;
        let Some(last) = self.last else {
            return Error::new(Code::DeadlineExceeded, peer, format!("no answer within {deadline:?}"));
        };
        let code = if self.maybe { Code::DeadlineExceeded } else { last.code };
        let tried = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
        let tried = format!("tried {tried} in {deadline:?}");
        // Nothing is said twice: who it was, and what it is called.
        let cause = match (last.code == code, last.cause()) {
            (true, "") => tried,
            (true, cause) => format!("{cause}; {tried}"),
            (false, "") => format!("{tried}; last: {}", last.code.text()),
            (false, cause) => format!("{tried}; last: {}: {cause}", last.code.text()),
        };
        Error::new(code, peer, cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u64);
    impl Random for Fixed {
        fn u64(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let pauses = |random| [0, 1, 2, 7, 8, 40].map(|n| pause(n, &Fixed(random)).as_millis());
        assert_eq!(pauses(0), [0, 5, 10, 320, 500, 500]);
        let most = pauses(u64::MAX / 3);
        assert!(most.iter().all(|&ms| ms <= 1000), "{most:?}");
    }

    #[test]
    fn an_unknown_outcome_is_not_forgotten() {
        let mut story = Story::default();
        story.add(Error::bare(Code::Unreachable));
        assert_eq!(story.last.as_ref().map(|e| e.code), Some(Code::Unreachable));
        story.add(Error::bare(Code::Disconnected));
        story.add(Error::new(Code::Unreachable, "a", "refused"));
        let error = story.end("data server 2", Duration::from_secs(1));
        assert_eq!(error.code, Code::DeadlineExceeded);
        let told = error.to_string();
        assert!(
            told.contains("data server 2") && told.ends_with("the server cannot be reached: refused (B301)"),
            "{told}"
        );
    }

    #[test]
    fn nothing_is_said_twice() {
        let mut story = Story::default();
        story.add(Error::new(Code::Unreachable, "metadata server at tcp:h:1", "connection refused"));
        let told = story.end("metadata server at tcp:h:1", Duration::from_secs(5)).to_string();
        let said =
            "metadata server at tcp:h:1: the server cannot be reached: connection refused; tried once in 5s (B300)";
        assert_eq!(told, said);
    }
}
