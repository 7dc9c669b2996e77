use braid_types::{ChainEpoch, ChunkId, ContainerId, InodeId, MembershipEpoch, RequestId, Token, TraceId};
use std::time::Duration;

/// A message and the answer that belongs to it, as variants of the enums `Q` and `A` that go over the wire.
pub trait Carries<Q, A>: Sized {
    type Answer;
    fn wrap(self) -> Q;
    /// `None` if the answer is of another kind, which is a broken peer.
    fn unwrap(answer: A) -> Option<Self::Answer>;
    /// The other way: how the serving side wraps its answer.
    fn answer(reply: Self::Answer) -> A;
}

/// What goes with every request, in the frame's header: who asks, under which epochs, for how long, and the
/// trace of the file operation it serves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    pub token: Token,
    /// Of a mutating request; 0 for one that may simply be repeated. The same id always brings the same outcome.
    ///
    /// Of a change at a data server: its place among those of the session there, or to the copies of its container; of what waits for
    /// changes, the place of the next. 0 is not used.
    pub request: RequestId,
    /// At a data server: so many places back is the first change that is still waited for. Those before are not carried out any more.
    ///
    /// Of a change at a metadata server: under which roster it was sent, see [`Context::under`].
    pub behind: u16,
    pub trace: TraceId,
    /// When the answer of a metadata server may come.
    pub when: When,
    /// The answer is worthless after this time. The server gives up then too. Zero means the default of 60 s.
    pub deadline: Duration,
    /// How the caller's side goes about it; not sent.
    pub manner: Manner,
    /// For whoever asks what waits; not sent.
    pub about: About,
}

impl Context {
    /// Sent by who knows this roster of the metadata servers, and no newer one. A server that follows a newer one does not begin a change
    /// then: whoever hears of the newer roster asks another when this server is none of it, or another start of it than the one it had
    /// asked, and what is refused there must not be made here.
    pub fn under(self, roster: MembershipEpoch) -> Self {
        Context { behind: stamp(roster), ..self }
    }

    /// Whether the sender did not know this roster. Of one that says nothing it is not known.
    pub fn is_under_older_than(&self, roster: MembershipEpoch) -> bool {
        let (sent, now) = (u32::from(self.behind), u32::from(stamp(roster)));
        let later = (now + STAMPS - sent) % STAMPS;
        sent != 0 && now != 0 && (1..=STAMPS / 2).contains(&later)
    }
}

/// Two bytes are enough: nobody is 32,767 rosters behind whose session lives.
const STAMPS: u32 = u16::MAX as u32;

/// 0 is of nobody who knows one.
fn stamp(roster: MembershipEpoch) -> u16 {
    roster.0.checked_sub(1).map_or(0, |before| 1 + (before % u64::from(STAMPS)) as u16)
}

/// What a request is about; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub inode: InodeId,
    pub container: ContainerId,
    pub chunk: ChunkId,
    /// Of the container's chain, as the caller knows it.
    pub epoch: ChainEpoch,
}

/// How the caller's side goes about a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Again and again until the deadline, as far as its errors allow.
    #[default]
    Persistent,
    /// One attempt, and none while a server that could not be reached is given time: whoever asks has others to ask.
    Once,
    /// As [`Manner::Persistent`], and it is the call's purpose to wait: it is not shown among what waits.
    Standing,
}

/// When a metadata server may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// When what the answer tells of is durable.
    #[default]
    Durable,
    /// The same, and the answer comes with a [`Mark`](crate::meta::Mark).
    Marked,
    /// Before: the caller keeps what it asks until a mark says that it is durable.
    Early,
}

/// Makes the request and answer enums of a protocol from its list of messages, in wire order: append only.
#[macro_export]
macro_rules! messages {
    ($request:ident, $answer:ident: $($(#[$doc:meta])* $name:ident -> $reply:ty;)*) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $request { $($(#[$doc])* $name($name),)* }

        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $answer { $($name($reply),)* }

        impl $request {
            /// The message's name, for logs, metrics and counters.
            pub fn name(&self) -> &'static str {
                match self { $($request::$name(_) => stringify!($name),)* }
            }

            /// Every message's name in wire order.
            pub const NAMES: &[&'static str] = &[$(stringify!($name)),*];
        }

        $(impl $crate::Carries<$request, $answer> for $name {
            type Answer = $reply;
            fn wrap(self) -> $request { $request::$name(self) }
            fn unwrap(answer: $answer) -> Option<$reply> {
                match answer { $answer::$name(reply) => Some(reply), #[allow(unreachable_patterns)] _ => None }
            }
            fn answer(reply: $reply) -> $answer { $answer::$name(reply) }
        })*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_an_older_roster_is_told_from_who_knows_this_or_a_newer_one() {
        let sent = |under| Context::default().under(MembershipEpoch(under));
        let is_older = |under, roster| sent(under).is_under_older_than(MembershipEpoch(roster));
        for roster in [2, 700, 65_534, 65_535, 65_536, 65_537, 131_070, 131_071, 1 << 40] {
            for behind in [1, 2, 300, 32_767] {
                let older = roster - behind.min(roster - 1);
                assert!(is_older(older, roster) && !is_older(roster, older), "{older} and {roster}");
            }
            assert!(!is_older(roster, roster) && !is_older(0, roster) && !is_older(roster, 0), "{roster}");
        }
    }
}
