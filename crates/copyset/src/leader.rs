//! The metadata server's part: which servers keep copies, what counts as kept, until when it may answer.

use crate::limits::Limits;
use crate::quorum::quorum;
use crate::report::Report;
use braid_types::{CopySet, MetaPosition, MetaTerm, ServerId, Voter};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A loaded disk may take its time for a sync; one that takes ten seconds keeps every fsync waiting.
const STUCK_TIMES: u32 = 5;

/// For so many times the silence that is too long a disk that refused is left alone: 30 s.
const FAILED_TIMES: u32 = 15;

/// With two voters one of them may be away (`quorum.rs`).
const SERVERS_TO_BEGIN: usize = 2;

/// What a copy is to be sent next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub prev: MetaPosition,
    /// These, of the groups that are remembered.
    pub groups: Vec<MetaPosition>,
    /// The last number that was acknowledged.
    pub durable: u64,
}

/// How far everything is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Received by every member up to this number.
    pub received: u64,
    /// On the stable storage of every member up to this number.
    pub synced: u64,
    /// May answer before this moment.
    pub lease: Duration,
}

/// One data server, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub id: ServerId,
    pub host: String,
    pub is_member: bool,
    /// Groups that it has not received; `None` if it has no copy that follows.
    pub lag: Option<u64>,
    pub silent: Duration,
}

#[derive(Clone, Debug)]
struct Peer {
    voter: Voter,
    /// When it answered last.
    heard: Option<Duration>,
    /// Until when it has granted the lease.
    granted: Duration,
    place: Place,
    /// It is to get a copy.
    learns: bool,
    /// When its copy got on, or had nothing to do.
    moved: Duration,
    /// When its disk last refused to take what it was sent.
    failed: Option<Duration>,
}

/// What is known of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unknown,
    /// It has groups that this term does not have, or has not said that it dropped them.
    Apart,
    Follows {
        received: u64,
        synced: u64,
    },
    /// Nothing that is remembered joins what it has: it needs a base.
    Lost,
    /// A base is on its way; received so far.
    Forms {
        received: u64,
    },
}

/// The metadata server of a term. It leads once [`Leader::is_settled`].
#[derive(Clone, Debug)]
pub struct Leader {
    limits: Limits,
    term: MetaTerm,
    /// How many copies are wanted.
    wanted: usize,
    /// Of the metadata server: a copy there is the last choice.
    host: String,
    /// The set that counts.
    counting: CopySet,
    /// The one to come, and who has recorded it.
    proposed: Option<(CopySet, BTreeSet<ServerId>)>,
    /// All data servers that are known, voters or not yet.
    peers: BTreeMap<ServerId, Peer>,
    /// Before the first group that is remembered.
    start: MetaPosition,
    history: VecDeque<MetaPosition>,
    /// What was on this server's disk when it began. Nobody may have been told of the last of it, and whoever reads now sees
    /// it: so it counts, and nobody is answered, when the members have it too.
    began: u64,
    /// The last number that every member has, and the one they have on stable storage.
    durable: u64,
    durable_synced: u64,
    since: Duration,
    fenced: Option<MetaTerm>,
    /// They are to keep no copy.
    leaving: BTreeSet<ServerId>,
    /// They are to have no vote.
    gone: BTreeSet<ServerId>,
}

impl Leader {
    /// As a candidate was told: from `set`, whose members still count until the first set of this term does.
    pub fn new(
        term: MetaTerm,
        set: CopySet,
        at: MetaPosition,
        wanted: usize,
        host: String,
        limits: Limits,
        now: Duration,
    ) -> Leader {
        let first = CopySet { term, number: 1, ..set.clone() };
        let mut leader = Leader {
            limits,
            term,
            wanted,
            host,
            counting: set,
            proposed: Some((first, BTreeSet::new())),
            peers: BTreeMap::new(),
            start: at,
            history: VecDeque::new(),
            began: at.number,
            durable: 0,
            durable_synced: 0,
            since: now,
            fenced: None,
            leaving: BTreeSet::new(),
            gone: BTreeSet::new(),
        };
        let voters = leader.counting.voters.clone();
        voters.into_iter().for_each(|voter| leader.learn(voter));
        leader.count_votes();
        leader
    }

    /// A data server and where it is.
    pub fn learn(&mut self, voter: Voter) {
        match self.peers.get_mut(&voter.id) {
            // Who registers anew may have another disk.
            Some(peer) => (peer.voter, peer.failed) = (voter, None),
            None => {
                let (heard, granted, moved) = (None, Duration::ZERO, self.since);
                let new = Peer { voter, heard, granted, place: Place::Unknown, learns: false, moved, failed: None };
                self.peers.insert(new.voter.id, new);
            }
        }
    }

    /// Those that are to keep no copy, and of those that are to have no vote any more: another has the copy first, and then a set
    /// without the vote is recorded by a majority of both, as any other.
    pub fn leaves(&mut self, leaving: BTreeSet<ServerId>, gone: BTreeSet<ServerId>) {
        (self.leaving, self.gone) = (leaving, gone);
    }

    fn may_keep(&self, id: ServerId) -> bool {
        !self.leaving.contains(&id) && !self.gone.contains(&id)
    }

    pub fn term(&self) -> MetaTerm {
        self.term
    }

    pub fn last(&self) -> MetaPosition {
        self.history.back().copied().unwrap_or(self.start)
    }

    /// To be recorded by every data server, and by the metadata server's own disk before it is sent to any.
    pub fn set(&self) -> &CopySet {
        self.proposed.as_ref().map_or(&self.counting, |(set, _)| set)
    }

    /// The one that counts.
    pub fn counting(&self) -> &CopySet {
        &self.counting
    }

    /// A set of this term counts.
    pub fn is_settled(&self) -> bool {
        self.counting.term == self.term
    }

    /// A newer term was met: this server must not go on.
    pub fn fenced(&self) -> Option<MetaTerm> {
        self.fenced
    }

    pub fn peers(&self) -> impl Iterator<Item = &Voter> {
        self.peers.values().map(|peer| &peer.voter)
    }

    /// Who must have a group before it counts. While a set is to come these are the members of both: a recovery may find either.
    fn required(&self) -> BTreeSet<ServerId> {
        let next = self.proposed.iter().flat_map(|(set, _)| &set.members);
        self.counting.members.iter().chain(next).copied().collect()
    }

    fn is_required(&self, id: ServerId) -> bool {
        self.counting.members.contains(&id) || self.proposed.as_ref().is_some_and(|(set, _)| set.members.contains(&id))
    }

    /// A group was executed and goes out.
    pub fn push(&mut self, number: u64) -> MetaPosition {
        let at = MetaPosition { term: self.term, number };
        self.history.push_back(at);
        at
    }

    /// The last group failed on this server's own disk: there never was one of this number.
    pub fn retract(&mut self, number: u64) {
        if self.history.back().is_some_and(|at| at.number == number) {
            self.history.pop_back();
        }
        for peer in self.peers.values_mut() {
            if let Place::Follows { received, .. } | Place::Forms { received } = &mut peer.place {
                *received = (*received).min(number - 1);
            }
        }
    }

    /// Forgets groups up to this number if all members have them; true if they are forgotten.
    pub fn forget(&mut self, number: u64) -> bool {
        if number > self.durable {
            return false;
        }
        while let Some(at) = self.history.front().copied().filter(|at| at.number <= number) {
            self.start = at;
            self.history.pop_front();
        }
        true
    }

    /// What the server said, having been asked at `asked`. `appended` if it was asked to take groups.
    pub fn answered(&mut self, id: ServerId, asked: Duration, now: Duration, report: &Report, appended: bool) {
        if report.promised > self.term {
            self.fenced = Some(report.promised);
            return;
        }
        let (place, last) = (self.place(report, appended), self.last().number);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.heard = Some(now);
        if report.promised == self.term {
            peer.granted = peer.granted.max(asked + self.limits.held());
            let before = std::mem::replace(&mut peer.place, place);
            let is_idle = matches!(place, Place::Follows { synced, .. } if synced >= last);
            if before != place || is_idle {
                peer.moved = now;
            }
        }
        if let (Some((set, recorded)), Some(told)) = (&mut self.proposed, &report.set)
            && told.order() == set.order()
        {
            recorded.insert(id);
        }
        self.count_votes();
        self.look_at_progress();
    }

    fn place(&self, report: &Report, appended: bool) -> Place {
        if let Some((forming, _)) = report.forming {
            return match self.known(forming.last) {
                Some(received) => Place::Forms { received },
                None => Place::Lost,
            };
        }
        let Some(copy) = report.copy else { return Place::Lost };
        match self.known(copy.last) {
            Some(received) => Place::Follows { received, synced: copy.synced.min(received) },
            None if copy.last.number >= self.start.number && !appended => Place::Apart,
            None => Place::Lost,
        }
    }

    /// Up to which number one has everything whose last group is this.
    fn known(&self, last: MetaPosition) -> Option<u64> {
        let mut back = self.history.iter().rev().chain([&self.start]);
        match last.term == self.term {
            // A group that was taken back may follow what counts.
            true => back.find(|at| at.number <= last.number).map(|at| at.number),
            false => back.find(|at| **at == last).map(|at| at.number),
        }
    }

    fn count_votes(&mut self) {
        let Some((set, recorded)) = &self.proposed else { return };
        let enough = |voters: &[Voter]| {
            let have = voters.iter().filter(|voter| recorded.contains(&voter.id)).count();
            have >= quorum(voters.len(), true)
        };
        if enough(&set.voters) && enough(&self.counting.voters) {
            self.counting = set.clone();
            self.proposed = None;
        }
    }

    fn look_at_progress(&mut self) {
        let progress = self.least();
        self.durable = self.durable.max(progress.0);
        self.durable_synced = self.durable_synced.max(progress.1);
    }

    /// Received and synced by all that are required.
    fn least(&self) -> (u64, u64) {
        let mut least = (self.last().number, self.last().number);
        for id in self.required() {
            match self.peers.get(&id).map(|peer| peer.place) {
                Some(Place::Follows { received, synced }) => least = (least.0.min(received), least.1.min(synced)),
                _ => return (0, 0),
            }
        }
        least
    }

    pub fn progress(&mut self) -> Progress {
        self.look_at_progress();
        let lease = match self.is_settled() && self.fenced.is_none() && self.durable >= self.began {
            true => self.lease(),
            false => Duration::ZERO,
        };
        // A group that never was sent anywhere counts when there is nobody to have it.
        Progress { received: self.durable, synced: self.durable_synced, lease }
    }

    fn lease(&self) -> Duration {
        let granted = |id: &ServerId| self.peers.get(id).map_or(Duration::ZERO, |peer| peer.granted);
        let required = self.required();
        if let Some(least) = required.iter().map(granted).min() {
            return least;
        }
        // Without members, from as many as could be asked to follow somebody else.
        let mut all: Vec<Duration> = self.counting.voters.iter().map(|voter| granted(&voter.id)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        match quorum(all.len(), true) {
            0 => Duration::MAX,
            need => all.get(need - 1).copied().unwrap_or_default(),
        }
    }

    /// Looks at who is silent, who is missing, who may join; true if there is a new set to be recorded.
    pub fn tick(&mut self, now: Duration) -> bool {
        self.choose_learners(now);
        self.look_at_progress();
        if self.proposed.is_some() {
            return false;
        }
        let Some(next) = self.next_set(now) else { return false };
        self.proposed = Some((next, BTreeSet::new()));
        // With one disk and no data server there is nobody to be asked.
        self.count_votes();
        true
    }

    /// A single voter stops the metadata whenever it is away, so copies begin with the second data server: one is no gain where
    /// chunks lie on that server alone. Who wants exactly one copy says so, and it begins with the first.
    fn may_begin(&self) -> bool {
        let heard = self.peers.values().filter(|peer| peer.heard.is_some()).count();
        !self.counting.voters.is_empty() || heard >= self.wanted.min(SERVERS_TO_BEGIN)
    }

    /// Members that have every group that counts: while a set is to come, as many as the smaller of both has.
    pub fn kept_by(&self) -> usize {
        let next = self.proposed.as_ref().map_or(usize::MAX, |(set, _)| set.members.len());
        self.counting.members.len().min(next)
    }

    fn is_silent(&self, id: ServerId, now: Duration) -> bool {
        let heard = self.peers.get(&id).and_then(|peer| peer.heard).unwrap_or(self.since);
        now.saturating_sub(heard) >= self.limits.silent
    }

    /// Its disk took nothing a while ago. It is as good as silent, and not tried again at once.
    fn is_failing(&self, id: ServerId, now: Duration) -> bool {
        let failed = self.peers.get(&id).and_then(|peer| peer.failed);
        failed.is_some_and(|at| now.saturating_sub(at) < FAILED_TIMES * self.limits.silent)
    }

    /// The disk of this data server is full, or broken: it did not take what it was sent.
    pub fn refused(&mut self, id: ServerId, now: Duration) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.failed = Some(now);
        }
    }

    /// It answers, and its copy stands still although there is something to do: its disk hangs.
    fn is_stuck(&self, id: ServerId, now: Duration) -> bool {
        let moved = self.peers.get(&id).map_or(self.since, |peer| peer.moved);
        now.saturating_sub(moved) >= STUCK_TIMES * self.limits.silent
    }

    /// One change at a time: who is silent goes, then a data server gets its vote, then one that has everything joins.
    fn next_set(&self, now: Duration) -> Option<CopySet> {
        let set = &self.counting;
        let next = |members: Vec<ServerId>, voters: Vec<Voter>| {
            Some(CopySet { term: self.term, number: set.number + 1, members, voters })
        };
        let silent = |id: &ServerId| self.is_silent(*id, now) || self.is_stuck(*id, now) || self.is_failing(*id, now);
        // A member whose copy broke off is as good as silent; one that only reads its groups is not.
        let broken = |id: &ServerId| {
            matches!(self.peers.get(id).map(|peer| peer.place), None | Some(Place::Lost | Place::Forms { .. }))
        };
        let (stay, go): (Vec<ServerId>, Vec<ServerId>) = set.members.iter().partition(|id| !silent(id) && !broken(id));
        if !go.is_empty() {
            return next(stay, set.voters.clone());
        }
        let voters = || set.voters.clone();
        // Not the last: without any, nobody could be asked who leads.
        let gone = |voter: &&Voter| self.gone.contains(&voter.id) && !set.members.contains(&voter.id);
        if let Some(gone) = set.voters.iter().find(gone).filter(|_| set.voters.len() > 1) {
            return next(set.members.clone(), set.voters.iter().filter(|voter| *voter != gone).cloned().collect());
        }
        let is_new = |peer: &&Peer| set.voter(peer.voter.id).is_none() && !self.gone.contains(&peer.voter.id);
        let new = self.peers.values().find(|peer| peer.heard.is_some() && is_new(peer));
        if let Some(peer) = new.filter(|_| self.may_begin()) {
            let mut voters = voters();
            voters.push(peer.voter.clone());
            return next(set.members.clone(), voters);
        }
        // Their addresses may have changed: recoveries begin with these.
        let moved = |voter: &Voter| self.peers.get(&voter.id).is_some_and(|peer| peer.voter != *voter);
        if set.voters.iter().any(moved) {
            let now_at = |voter: Voter| self.peers.get(&voter.id).map_or(voter.clone(), |peer| peer.voter.clone());
            return next(set.members.clone(), voters().into_iter().map(now_at).collect());
        }
        // Who leaves goes first, and before there are too many only if nobody could come.
        let (mut kept, leaving): (Vec<ServerId>, Vec<ServerId>) =
            set.members.iter().partition(|member| self.may_keep(**member));
        if set.members.len() > self.wanted && leaving.is_empty() {
            return next(set.members[..self.wanted].to_vec(), voters());
        }
        let could_come = |peer: &Peer| self.could_learn(peer, now) && !set.members.contains(&peer.voter.id);
        let is_enough = kept.len() >= self.wanted || (!kept.is_empty() && !self.peers.values().any(could_come));
        if !leaving.is_empty() && is_enough {
            kept.truncate(self.wanted);
            return next(kept, voters());
        }
        let is_ready = |peer: &&Peer| {
            let id = peer.voter.id;
            let has_all = matches!(peer.place, Place::Follows { received, .. } if received >= self.durable());
            has_all
                && peer.learns
                && self.may_keep(id)
                && !silent(&id)
                && set.voter(id).is_some()
                && !set.members.contains(&id)
        };
        if kept.len() < self.wanted
            && let Some(peer) = self.peers.values().find(is_ready)
        {
            let mut members = set.members.clone();
            members.push(peer.voter.id);
            return next(members, voters());
        }
        None
    }

    /// A copy could begin there.
    fn could_learn(&self, peer: &Peer, now: Duration) -> bool {
        let is_heard = peer.heard.is_some_and(|heard| now.saturating_sub(heard) < self.limits.silent);
        is_heard && self.may_keep(peer.voter.id) && !self.is_failing(peer.voter.id, now)
    }

    /// Others are given a copy while members are missing: first on hosts that have none, last on the metadata server's.
    fn choose_learners(&mut self, now: Duration) {
        let members = self.required();
        let staying = members.iter().filter(|member| self.may_keep(**member)).count();
        let missing = if self.may_begin() { self.wanted.saturating_sub(staying) } else { 0 };
        let mut hosts: Vec<&str> =
            members.iter().filter_map(|id| Some(self.peers.get(id)?.voter.host.as_str())).collect();
        let mut chosen = BTreeSet::new();
        for _ in 0..missing {
            let free = self.peers.values().filter(|peer| {
                self.could_learn(peer, now) && !members.contains(&peer.voter.id) && !chosen.contains(&peer.voter.id)
            });
            let place = |peer: &&Peer| {
                let host = peer.voter.host.as_str();
                // Who has begun goes on.
                (hosts.contains(&host), host == self.host, !peer.learns, peer.voter.id)
            };
            let Some(best) = free.min_by_key(place) else { break };
            hosts.push(best.voter.host.as_str());
            chosen.insert(best.voter.id);
        }
        for (id, peer) in &mut self.peers {
            peer.learns = chosen.contains(id);
        }
    }

    /// Whether this server is to have a copy.
    pub fn is_kept_at(&self, id: ServerId) -> bool {
        self.is_required(id) || self.peers.get(&id).is_some_and(|peer| peer.learns)
    }

    /// What this server is to be sent now, up to `most` groups.
    pub fn append(&self, id: ServerId, most: usize) -> Option<Append> {
        let peer = self.peers.get(&id).filter(|_| self.is_kept_at(id))?;
        let received = match peer.place {
            Place::Apart => return Some(Append { prev: self.start, groups: Vec::new(), durable: self.durable() }),
            Place::Follows { received, .. } | Place::Forms { received } if received < self.last().number => received,
            _ => return None,
        };
        let prev = [self.start].into_iter().chain(self.history.iter().copied()).take_while(|at| at.number <= received);
        let groups = self.history.iter().skip_while(|at| at.number <= received).take(most).copied().collect();
        Some(Append { prev: prev.last()?, groups, durable: self.durable() })
    }

    /// A copy that has everything up to this number has all that may have been acknowledged.
    pub fn durable(&self) -> u64 {
        self.durable.max(self.began)
    }

    /// This server needs the rows themselves.
    pub fn needs_base(&self, id: ServerId) -> bool {
        self.is_kept_at(id) && self.peers.get(&id).is_some_and(|peer| peer.place == Place::Lost)
    }

    /// It has groups that are not on its stable storage yet.
    pub fn is_unsynced(&self, id: ServerId) -> bool {
        let place = self.peers.get(&id).map(|peer| peer.place);
        matches!(place, Some(Place::Follows { received, synced }) if synced < received)
    }

    pub fn health(&self, now: Duration) -> Vec<Health> {
        let one = |peer: &Peer| {
            let lag = match peer.place {
                Place::Follows { received, .. } => Some(self.last().number.saturating_sub(received)),
                _ => None,
            };
            let is_member = self.counting.members.contains(&peer.voter.id);
            let silent = now.saturating_sub(peer.heard.unwrap_or(self.since));
            Health { id: peer.voter.id, host: peer.voter.host.clone(), is_member, lag, silent }
        };
        self.peers.values().map(one).collect()
    }
}
