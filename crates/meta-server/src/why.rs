//! What waits at this server, for `braid admin why`.

use crate::leases::Leases;
use crate::mailbox::told;
use crate::server::MetaServer;
use braid_api::admin::{HeldAs, Waiting};
use braid_api::lease::LeaseKey;
use braid_chain::LeaderWaits;
use braid_env::Monotonic;
use braid_lease::{Key, Mode, Waits};
use braid_types::{ContainerId, InodeId, MembershipEpoch, ServerId, SessionId, TraceId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A change of a directory that another mount has listed names everything in it.
const KEYS_MAX: usize = 8;

impl MetaServer {
    pub(crate) fn why(&self) -> Vec<Waiting> {
        let now = self.env.clock.now();
        let mut all = self.recovery.waiting(now);
        all.extend(self.waiting.lock().list(now));
        all.extend(self.leases.why());
        all.extend(self.chains.waits(now.0).iter().map(|waits| of_chain(waits, now)));
        all
    }
}

/// What the rounds of freeing found waiting, each since the round that first found it.
#[derive(Default)]
pub(crate) struct Rounds {
    now: Vec<(Waiting, Monotonic)>,
    before: Vec<(Waiting, Monotonic)>,
}

/// For whom something waits says whether it is the same as a moment ago: how much it is may have changed, and the words of an error.
fn place(waiting: &Waiting) -> (Option<ContainerId>, &[ServerId]) {
    (waiting.container, &waiting.servers)
}

impl Rounds {
    /// Another round begins.
    pub fn begin(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    pub fn add(&mut self, waiting: Waiting, now: Monotonic) {
        let all = self.now.iter().chain(&self.before);
        let known = all.filter(|(other, _)| place(other) == place(&waiting)).map(|(_, since)| *since).min();
        self.now.push((waiting, known.unwrap_or(now)));
    }

    fn list(&self, now: Monotonic) -> Vec<Waiting> {
        let one = |(waiting, since): &(Waiting, Monotonic)| Waiting {
            since_ms: now.since(*since).as_millis() as u64,
            ..waiting.clone()
        };
        // While a round is under way it may not have come to everything.
        match self.now.is_empty() {
            true => self.before.iter().map(one).collect(),
            false => self.now.iter().map(one).collect(),
        }
    }
}

fn of_chain(waits: &LeaderWaits, now: Monotonic) -> Waiting {
    let LeaderWaits { container, epoch, step, servers, since } = waits;
    let names: Vec<String> = servers.iter().map(|server| format!("data server {server}")).collect();
    let who = if names.is_empty() { String::new() } else { format!("{} ", names.join(", ")) };
    Waiting {
        since_ms: now.0.saturating_sub(*since).as_millis() as u64,
        servers: servers.clone(),
        container: Some(*container),
        epoch: Some(epoch.0.into()),
        ..Waiting::new(format!("writes to container {container}, epoch {epoch}"), format!("{who}{step}"))
    }
}

impl Leases {
    /// What waits for sessions to drop what they cache, to give up a file or a lock, or to leave what they work on alone.
    pub(crate) fn why(&self) -> Vec<Waiting> {
        let (state, now) = (self.state.lock(), self.now());
        let (epoch, lease) = (state.holder.epoch(), self.limits.session_lease);
        let mut all = Vec::new();
        for wait in state.holder.waits() {
            let (since, number) = match &wait {
                Waits::Change { since, announcement, .. } => (now.since(*since), announcement.number),
                Waits::File { since, ask, .. } | Waits::Lock { since, ask, .. } => (now.since(*since), ask.0),
                Waits::Settling { until, .. } => (now.since(*until - lease), 0),
            };
            let trace = state.traces.get(&number).copied().unwrap_or_default();
            all.extend(waiting_of(&wait).into_iter().map(|waiting| common(waiting, since, trace, epoch)));
        }
        for outside in state.outside.values() {
            let (since, by) = (now.since(outside.since), outside.session);
            for other in &outside.others {
                let who =
                    if by.0 == 0 { "a change of names or attributes".to_owned() } else { format!("session {by}") };
                let session = (by.0 != 0).then_some(by);
                let waiting = Waiting { who, session, ..from(*other, "to send what it has removed".to_owned()) };
                all.push(common(waiting, since, outside.trace, epoch));
            }
        }
        all
    }
}

fn common(waiting: Waiting, since: Duration, trace: TraceId, epoch: MembershipEpoch) -> Waiting {
    Waiting { since_ms: since.as_millis() as u64, trace, epoch: Some(epoch.0), ..waiting }
}

/// A wait for leases, one for each session that is waited for.
fn waiting_of(wait: &Waits) -> Vec<Waiting> {
    match wait {
        Waits::File { session, inode, sessions, attributes, .. } => {
            let who = format!("session {session}, for inode {inode}");
            let gives_up = |(holder, mode): &(SessionId, Mode)| {
                let lease = held_as(*mode);
                let what = lease.map_or("its".to_owned(), |lease| format!("the {lease}"));
                Waiting { lease, ..from(*holder, format!("to give up {what} lease of inode {inode}")) }
            };
            let drops = |holder: &SessionId| Waiting {
                lease: Some(HeldAs::Cached),
                keys: vec![LeaseKey::Attr(*inode)],
                ..from(*holder, format!("to drop what it caches: the attributes of inode {inode}"))
            };
            let mut all: Vec<Waiting> = sessions.iter().map(gives_up).chain(attributes.iter().map(drops)).collect();
            if all.is_empty() {
                all.push(Waiting::new("", "its turn, or sessions of before this server's start"));
            }
            of_file(all, &who, *session, *inode)
        }
        Waits::Change { by, session, keys, .. } => {
            let first: Vec<LeaseKey> = keys.iter().take(KEYS_MAX).map(told).collect();
            let more = if keys.len() > KEYS_MAX { ", …" } else { "" };
            let what = first.iter().map(words).collect::<Vec<_>>().join(", ") + more;
            let waiting = match session {
                Some(session) => from(*session, format!("to drop what it caches: {what}")),
                None => Waiting::new("", format!("what sessions were granted before this server's start: {what}")),
            };
            let inodes = keys.iter().map(inode_of).collect::<BTreeSet<_>>().into_iter().take(KEYS_MAX).collect();
            let who = match by.0 {
                0 => "a change of names or attributes".to_owned(),
                by => format!("a change by session {by}"),
            };
            let session = (by.0 != 0).then_some(*by);
            vec![Waiting { who, session, inodes, lease: Some(HeldAs::Cached), keys: first, ..waiting }]
        }
        Waits::Lock { session, inode, sessions, .. } => {
            let who = format!("session {session}, for a lock on inode {inode}");
            let unlocks = |holder: SessionId| Waiting {
                lease: Some(HeldAs::Lock),
                ..from(holder, format!("to unlock inode {inode}"))
            };
            let holders: BTreeSet<SessionId> = sessions.iter().copied().collect();
            let mut all: Vec<Waiting> = holders.into_iter().map(unlocks).collect();
            if all.is_empty() {
                all.push(Waiting::new("", "its turn"));
            }
            of_file(all, &who, *session, *inode)
        }
        Waits::Settling { session, .. } => {
            let waiting = from(*session, "to say what it held before this server's start".to_owned());
            vec![Waiting { who: "file leases, and looks at files".to_owned(), ..waiting }]
        }
    }
}

fn from(holder: SessionId, what: String) -> Waiting {
    Waiting { holder: Some(holder), ..Waiting::new("", format!("session {holder}, {what}")) }
}

fn of_file(mut all: Vec<Waiting>, who: &str, session: SessionId, inode: InodeId) -> Vec<Waiting> {
    for waiting in &mut all {
        who.clone_into(&mut waiting.who);
        (waiting.session, waiting.inodes) = (Some(session), vec![inode]);
    }
    all
}

fn held_as(mode: Mode) -> Option<HeldAs> {
    match mode {
        Mode::None => None,
        Mode::Shared => Some(HeldAs::Shared),
        Mode::Sync => Some(HeldAs::Sync),
        Mode::Exclusive => Some(HeldAs::Exclusive),
    }
}

fn inode_of(key: &Key) -> InodeId {
    match key {
        Key::Dir(id) | Key::Name(id, _) | Key::Attr(id) => *id,
    }
}

fn words(key: &LeaseKey) -> String {
    match key {
        LeaseKey::Dir(id) => format!("the listing of inode {id}"),
        LeaseKey::Name(id, name) => format!("the name {name} in inode {id}"),
        LeaseKey::Attr(id) => format!("the attributes of inode {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_lease::{AnnouncementId, AskId, Moment};
    use braid_types::MemberId;
    use std::collections::BTreeSet;

    const A: SessionId = SessionId(3);
    const B: SessionId = SessionId(4);
    const FILE: InodeId = InodeId(7);

    #[test]
    fn a_wait_for_a_file_names_each_holder_and_how_it_holds_it() {
        let (ask, since) = (AskId(1), Moment::default());
        let sessions = vec![(A, Mode::Exclusive)];
        let wait = Waits::File { ask, session: B, inode: FILE, since, sessions, attributes: vec![SessionId(5)] };
        let all = waiting_of(&wait);
        let seen: Vec<_> = all.iter().map(|w| (w.for_what.as_str(), w.holder, w.lease)).collect();
        assert_eq!(
            seen,
            [
                ("session 3, to give up the exclusive lease of inode 7", Some(A), Some(HeldAs::Exclusive)),
                (
                    "session 5, to drop what it caches: the attributes of inode 7",
                    Some(SessionId(5)),
                    Some(HeldAs::Cached)
                )
            ]
        );
        assert!(all.iter().all(|w| w.session == Some(B) && w.inodes == [FILE] && w.who == "session 4, for inode 7"));
    }

    #[test]
    fn a_change_names_what_is_cached_and_on_which_inodes() {
        let announcement = AnnouncementId { server: MemberId(0), number: 1 };
        let keys = vec![Key::Name(InodeId(2), "x".parse().unwrap()), Key::Attr(FILE)];
        let since = Moment::default();
        let all = waiting_of(&Waits::Change { announcement, by: B, since, session: Some(A), keys });
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!(one.who, "a change by session 4");
        assert_eq!(one.for_what, "session 3, to drop what it caches: the name x in inode 2, the attributes of inode 7");
        assert_eq!((one.session, one.holder, one.lease), (Some(B), Some(A), Some(HeldAs::Cached)));
        assert_eq!(one.inodes, [InodeId(2), FILE]);
        // Of a large directory the first few.
        let keys = (10..100).map(|id| Key::Attr(InodeId(id))).collect();
        let all = waiting_of(&Waits::Change { announcement, by: B, since, session: None, keys });
        assert_eq!((all[0].keys.len(), all[0].inodes.len()), (KEYS_MAX, KEYS_MAX));
        assert!(all[0].for_what.ends_with(", …"), "{}", all[0].for_what);
    }

    #[test]
    fn freeing_waits_since_the_round_that_found_it_first() {
        let at = |secs| Monotonic(Duration::from_secs(secs));
        let waiting =
            |server, count| Waiting { servers: vec![ServerId(server)], ..Waiting::new(format!("{count}"), "down") };
        let mut rounds = Rounds::default();
        rounds.add(waiting(1, 5), at(10));
        rounds.begin();
        rounds.add(waiting(1, 4), at(15));
        rounds.add(waiting(2, 9), at(15));
        let since = |rounds: &Rounds| rounds.list(at(20)).iter().map(|w| w.since_ms / 1000).collect::<BTreeSet<_>>();
        assert_eq!(since(&rounds), BTreeSet::from([5, 10]));
        rounds.begin();
        assert_eq!(since(&rounds), BTreeSet::from([5, 10]), "until the round has been there");
        rounds.add(waiting(2, 9), at(20));
        assert_eq!(since(&rounds), BTreeSet::from([5]));
    }
}
