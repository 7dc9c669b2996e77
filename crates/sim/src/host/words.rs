//! What the doors see of chains: states of their protocol are counted, and mistakes are planted.

use crate::bug::Bug;
use crate::cluster::Cluster;
use crate::machine::Machine;
use braid_api::copies::ServerSays;
use braid_api::data::{DataRequest, PeerSays};
use braid_api::{Code, Result};
use braid_chain::{Body, Envelope, FromLeader, Install, Message, ToLeader};
use braid_types::{ChainEpoch, ChunkId, ContainerId, OwnerTerm, ServerId, SessionId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What was said so far; survives the servers.
#[derive(Default)]
pub struct Words(Mutex<Said>);

#[derive(Default)]
struct Said {
    /// The newest chain of each container that somebody was told of.
    chains: BTreeMap<ContainerId, Chain>,
    /// With blocks that did not verify after a crash.
    torn: BTreeSet<ChunkId>,
    /// In which life a server spoke to an owner of its chunk last.
    greeted: BTreeMap<(ServerId, ChunkId), u64>,
    /// Terms that began with a move.
    moved: BTreeSet<(ChunkId, ChainEpoch, OwnerTerm)>,
    /// Writes of clients, and where they were asked for first.
    asked: BTreeMap<(SessionId, ChunkId, u64, u64), ServerId>,
}

#[derive(Default)]
struct Chain {
    epoch: ChainEpoch,
    members: Vec<ServerId>,
    owners: BTreeMap<ChunkId, ServerId>,
}

impl Words {
    /// From a data server to the leader.
    pub fn to_leader(&self, cluster: &Cluster, piece: &ServerSays) {
        // Reports here are small; one in pieces would only be missing from the table.
        let message = (piece.parts == 1).then(|| ToLeader::decode(&piece.bytes));
        if !matches!(message, Some(Ok(ToLeader::Renew { .. }))) {
            cluster.around.history.detail("meta", || format!("{} says {message:?}", piece.server));
        }
        match message {
            Some(Ok(ToLeader::Prepared { reports, .. } | ToLeader::PreparedWithout { reports, .. })) => {
                for report in reports {
                    // Block 0 is the head, which is suspect after every restart.
                    if report.claims.suspect.len() > u64::from(report.claims.suspect.contains(0)) {
                        cluster.coverage.count("suspect blocks reported after a restart");
                    }
                    if !report.claims.bad.is_empty() {
                        cluster.coverage.count("torn block reported after a restart");
                        self.0.lock().torn.insert(report.chunk);
                    }
                }
            }
            Some(Ok(ToLeader::Remove { .. })) => cluster.coverage.count("owner asked to remove a silent member"),
            _ => {}
        }
    }

    /// From the leader to a data server.
    pub fn of_leader(&self, cluster: &Cluster, payload: &[u8]) {
        if let Ok(FromLeader::Install { container, install }) = FromLeader::decode(payload) {
            self.installed(cluster, container, install);
        }
    }

    fn installed(&self, cluster: &Cluster, container: ContainerId, install: Install) {
        let count = |what| cluster.coverage.count(what);
        let mut said = self.0.lock();
        let Said { chains, torn, .. } = &mut *said;
        let known = chains.entry(container).or_default();
        if known.epoch >= install.epoch {
            return;
        }
        let was = std::mem::replace(known, Chain { epoch: install.epoch, ..Chain::default() });
        known.members = install.members;
        known.owners = install.decisions.iter().map(|decision| (decision.chunk, decision.owner)).collect();
        if was.epoch == ChainEpoch(0) {
            return;
        }
        if was.members.iter().any(|member| !known.members.contains(member)) {
            count("member removed from a chain");
        }
        if known.members.iter().any(|member| !was.members.contains(member)) {
            count("successor in a chain");
        }
        for decision in &install.decisions {
            let before = was.owners.get(&decision.chunk).or(was.members.first());
            if before.is_some_and(|before| *before != decision.owner) {
                count("chunk taken over by another member");
            }
            if !decision.fetch.is_empty() {
                count("newer blocks fetched by a successor");
            }
            if decision.lost > 0 {
                count("blocks that nobody had went back");
            }
            if torn.remove(&decision.chunk) {
                count("torn block settled");
            }
        }
    }

    /// From another data server.
    pub fn of_peer(&self, cluster: &Cluster, to: ServerId, says: &PeerSays) {
        let Ok((Envelope { chunk, epoch, term, body, .. }, _)) = Envelope::decode_first(&says.message) else { return };
        if matches!(body, Body::HandQueue { .. }) {
            cluster.coverage.count("chunk handed over with who waits for its regions");
        }
        if matches!(body, Body::Want) {
            let name = |server| cluster.machine_of(server).map(Machine::name);
            if let (Some(owner), Some(taker)) = (name(to), name(says.from)) {
                cluster.around.trap.move_begins(owner, taker);
            }
        }
        if matches!(body, Body::Owns) && self.0.lock().moved.insert((chunk, epoch, term)) {
            cluster.coverage.count("chunk owned beside its writer");
        }
        let Body::Hello { told } = body else { return };
        let life = cluster.lives(says.from);
        let before = self.0.lock().greeted.insert((says.from, chunk), life);
        match before {
            None if told == Version::default() => cluster.coverage.count("new copy made whole"),
            Some(before) if before != life && told > Version::default() => {
                cluster.coverage.count("member came back through its prefix");
            }
            _ => {}
        }
    }

    /// What a client asked of a data server, and what it was answered.
    pub fn of_client<T>(
        &self,
        cluster: &Cluster,
        server: ServerId,
        session: SessionId,
        request: &DataRequest,
        payload: &Bytes,
        result: &Result<T>,
    ) {
        let is_call = match request {
            DataRequest::WriteCopies(m) => {
                let mut hasher = DefaultHasher::new();
                payload.hash(&mut hasher);
                let key = (session, m.write.chunk, m.write.offset, hasher.finish());
                if *self.0.lock().asked.entry(key).or_insert(server) != server {
                    cluster.coverage.count("write repeated at another member");
                }
                true
            }
            DataRequest::WaitCopies(_) | DataRequest::ReadCopy(_) | DataRequest::CutCopies(_) => true,
            _ => false,
        };
        if let (true, Err(error)) = (is_call, result)
            && matches!(error.code, Code::NotOwner | Code::StaleEpoch | Code::NotServing)
        {
            cluster.coverage.count("client sent on to another member");
        }
    }
}

/// Changes what another data server says, if that is the bug.
pub fn spoil(bug: Option<Bug>, says: &mut PeerSays) {
    let Ok(mut envelope) = Envelope::decode(&says.message) else { return };
    match (bug, &mut envelope.body) {
        (Some(Bug::CopyAcknowledgedTooEarly), Body::Ack { told, complete, stable, .. }) => {
            (*complete, *stable) = (*told, *told);
        }
        // It takes everybody to have been told of whatever comes, and to have it, and so it says nothing. (To only believe it is seen when what
        // it says is slower than the next reader: by 3 of 400 seeds.)
        (Some(Bug::NextOwnerTellsNothing), Body::Tell { groups, .. }) if envelope.term.0 > 1 => groups.clear(),
        (Some(Bug::NextOwnerTellsNothing), Body::Hello { told }) if envelope.term.0 > 1 => {
            *told = Version { chain_epoch: envelope.epoch, owner_term: envelope.term, counter: 1 << 40 };
        }
        (Some(Bug::NextOwnerTellsNothing), Body::Ack { told, complete, .. }) if envelope.term.0 > 1 => {
            *told = Version { chain_epoch: envelope.epoch, owner_term: envelope.term, counter: 1 << 40 };
            *complete = *told;
        }
        (Some(Bug::PrefixOverGap), Body::Tell { groups, .. }) => {
            // What lies before the last group was told, or so it says.
            if let Some(last) = groups.pop() {
                let base = groups.first().map_or(last.base, |first| first.base);
                *groups = vec![braid_chain::Told { base, ..last }];
            }
        }
        _ => return,
    }
    says.message = envelope.encode();
}

/// The same of what the leader says.
pub fn spoil_of_leader(bug: Option<Bug>, payload: Bytes) -> Bytes {
    match FromLeader::decode(&payload) {
        Ok(FromLeader::Grant { asked, leader, raised }) if bug == Some(Bug::LeaseTooLong) => {
            FromLeader::Grant { asked: asked + Duration::from_secs(60), leader, raised }.encode().into()
        }
        _ => payload,
    }
}

/// Does it say that something has changed?
pub fn tells(says: &PeerSays) -> bool {
    let body = Envelope::decode(&says.message).map(|envelope| envelope.body);
    matches!(body, Ok(Body::Tell { groups, .. }) if !groups.is_empty())
}

/// The chains that one data server was told to act in, with the owners of their chunks.
#[derive(Default)]
pub struct Epochs(BTreeMap<ContainerId, (ChainEpoch, Owners)>);

type Owners = BTreeMap<ChunkId, (ServerId, OwnerTerm)>;

impl Epochs {
    pub fn of_leader(&mut self, payload: &[u8]) {
        if let Ok(FromLeader::Install { container, install }) = FromLeader::decode(payload) {
            let owners = install.decisions.iter().map(|made| (made.chunk, (made.owner, made.term)));
            self.0.insert(container, (install.epoch, owners.collect()));
        }
    }

    /// What is said in an older epoch is taken for a word of this one, if that is the bug.
    pub fn spoiled(&self, bug: Option<Bug>, mut request: DataRequest) -> DataRequest {
        let DataRequest::PeerSays(says) = &mut request else { return request };
        let Ok(mut envelope) = Envelope::decode(&says.message) else { return request };
        let Some((epoch, owners)) = self.0.get(&envelope.container) else { return request };
        if let (Some(Bug::StaleEpochAccepted), Some((owner, term)), Body::Tell { groups, .. }) =
            (bug, owners.get(&envelope.chunk), &mut envelope.body)
            && envelope.epoch < *epoch
        {
            (envelope.epoch, envelope.term, says.from) = (*epoch, *term, *owner);
            for group in groups {
                (group.upto.chain_epoch, group.upto.owner_term) = (*epoch, *term);
            }
            says.message = envelope.encode();
        }
        request
    }
}

/// A word as a reader of a history wants to see it.
pub fn shown(request: &DataRequest, payload: &[u8]) -> String {
    match request {
        DataRequest::PeerSays(says) => format!("{} says {:?}", says.from, Envelope::decode(&says.message)),
        DataRequest::LeaderSays(_) => format!("leader says {:?}", FromLeader::decode(payload)),
        other => format!("{other:?}"),
    }
}
