//! Copies that are deleted because their server is in the chain no more: what replaces them must be there, and have been read back.

use super::chains::chains;
use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_meta_engine::{Key, Table};
use braid_meta_namespace::rows::keys;
use braid_types::{ChainEpoch, ChunkId, ContainerId, ServerId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A server that did not answer is not taken back for 4 s, and then all that it missed is copied.
const QUIET: Duration = Duration::from_secs(8);

/// What was seen of chains that have a member more than copies, and of chunks that were read.
#[derive(Default)]
pub struct Moves(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// When it was found that all faults are over, and whether that is long enough ago.
    calm: Option<Duration>,
    is_quiet: bool,
    /// The last grown chain of each container that nothing disturbed, and the chunks that its members knew when it was first seen.
    grown: BTreeMap<ContainerId, (ChainEpoch, Vec<ServerId>, BTreeSet<ChunkId>)>,
    /// The members of each chain when it was last looked at; those that came to it since it was first seen, with the chunks that the others
    /// had then; and who was in it with a server when that was last in it.
    members: BTreeMap<ContainerId, Vec<ServerId>>,
    came: BTreeMap<(ContainerId, ServerId), BTreeSet<ChunkId>>,
    beside: BTreeMap<(ContainerId, ServerId), Vec<ServerId>>,
    /// Read whole by their servers since, and found good.
    read_back: BTreeSet<(ServerId, ChunkId)>,
    /// Copies outside their chains, of this epoch, of which no member knew anything once: there was nothing to wait for when they were told to
    /// go, and the word may come when a client has made the chunk anew.
    alone: BTreeSet<(ServerId, ChunkId, ChainEpoch)>,
}

fn chunks_at(cluster: &Cluster, container: ContainerId, members: &[ServerId]) -> BTreeSet<ChunkId> {
    let of_members = cluster.servers().into_iter().filter(|(_, server)| members.contains(&server.id()));
    let held = of_members.flat_map(|(_, server)| server.copies(ChunkId(0), usize::MAX));
    held.filter(|copy| copy.container == container).map(|copy| copy.chunk).collect()
}

impl Seen {
    fn follow(&mut self, cluster: &Cluster, container: ContainerId, chain: &[ServerId]) {
        let before = self.members.insert(container, chain.to_vec());
        if before.as_deref() == Some(chain) {
            return;
        }
        for member in chain {
            self.beside.insert((container, *member), chain.to_vec());
        }
        let Some(before) = before else { return };
        for new in chain.iter().filter(|member| !before.contains(member)) {
            let chunks = chunks_at(cluster, container, &before);
            self.read_back.retain(|(server, chunk)| server != new || !chunks.contains(chunk));
            self.came.insert((container, *new), chunks);
        }
    }

    fn follow_strays(&mut self, cluster: &Cluster, container: ContainerId, epoch: ChainEpoch, chain: &[ServerId]) {
        let known = chunks_at(cluster, container, chain);
        for (_, server) in cluster.servers().into_iter().filter(|(_, server)| !chain.contains(&server.id())) {
            let here = server.copies(ChunkId(0), usize::MAX).into_iter();
            let alone = here.filter(|copy| copy.container == container && !known.contains(&copy.chunk));
            self.alone.extend(alone.map(|copy| (server.id(), copy.chunk, epoch)));
        }
    }

    /// Members that came to the chain when this server was not in it any more, and have not read what they got of the chunk.
    fn unread(&self, at: ServerId, container: ContainerId, chunk: ChunkId, chain: &[ServerId]) -> Vec<ServerId> {
        let Some(beside) = self.beside.get(&(container, at)) else { return Vec::new() };
        let came = |member: &ServerId| {
            !beside.contains(member) && self.came.get(&(container, *member)).is_some_and(|had| had.contains(&chunk))
        };
        let unread = |member: &ServerId| came(member) && !self.read_back.contains(&(*member, chunk));
        chain.iter().copied().filter(unread).collect()
    }
}

impl Moves {
    /// Now and then.
    pub fn look(&self, cluster: &Cluster, now: Duration) {
        let mut seen = self.0.lock();
        if cluster.is_calm() {
            let since = *seen.calm.get_or_insert(now);
            seen.is_quiet = now >= since + QUIET;
        }
        for (id, row) in chains(cluster) {
            seen.follow(cluster, id, &row.chain);
            seen.follow_strays(cluster, id, row.epoch, &row.chain);
            let copies = row.copies.as_ref().map_or(0, |copies| usize::from(copies.copies));
            let is_known = seen.grown.get(&id).is_some_and(|(_, members, _)| *members == row.chain);
            if row.chain.len() <= copies || is_known {
                continue;
            }
            cluster.coverage.count("chain with one member more");
            let chunks = chunks_at(cluster, id, &row.chain);
            // A member that is lost is succeeded by the one that was to replace another, read back or not: that is repair.
            if !seen.is_quiet {
                continue;
            }
            seen.grown.insert(id, (row.epoch, row.chain, chunks));
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.0.lock().is_quiet
    }

    pub fn read_back(&self, server: ServerId, chunk: ChunkId) {
        self.0.lock().read_back.insert((server, chunk));
    }
}

/// A chunk with one copy has got another place.
pub fn check_moved(cluster: &Cluster, to: ChunkId) {
    cluster.coverage.count(match cluster.settings.has_copies() {
        true => "chunk brought to who writes it",
        false => "chunk with one copy moved",
    });
    if !cluster.moves.0.lock().read_back.iter().any(|(_, chunk)| *chunk == to) {
        let text = format!("chunk {to} takes the place of another, and no data server has read it back");
        cluster.around.failures.add(Invariant::UnlinkedAfterReplaced, text);
    }
}

/// A server is told to delete these, as one outside the chains of this epoch.
pub fn check(cluster: &Cluster, at: ServerId, outside: ChainEpoch, deleted: &[ChunkId]) {
    let servers = cluster.servers();
    let copies = |id: ServerId| {
        let found = servers.iter().find(|(_, server)| server.id() == id);
        found.map(|(_, server)| server.copies(ChunkId(0), usize::MAX))
    };
    let here = copies(at).unwrap_or_default();
    let rows: BTreeMap<ContainerId, _> = chains(cluster).into_iter().collect();
    let fail = |text: String| cluster.around.failures.add(Invariant::UnlinkedAfterReplaced, text);
    let freed = cluster.meta_store.durable_rows(Table::Reclaim);
    let freed: BTreeSet<Key> = freed.into_iter().map(|(key, _)| key).collect();
    let seen = cluster.moves.0.lock();
    for copy in here.iter().filter(|copy| deleted.contains(&copy.chunk)) {
        // Where the container is gone, or has another epoch by now, the server refuses or nobody needs it.
        let Some(row) = rows.get(&copy.container).filter(|row| row.epoch == outside) else { continue };
        let (chunk, chain) = (copy.chunk, &row.chain);
        if chain.contains(&at) {
            fail(format!("chunk {chunk} is deleted at data server {at}, which is in {chain:?}"));
        }
        // Those that do not run now had it when they were asked, or they would not have been believed.
        let held: Vec<_> = chain
            .iter()
            .filter_map(|id| Some((*id, copies(*id)?.into_iter().find(|copy| copy.chunk == chunk))))
            .collect();
        // Freed, and deleted at one member after the other, while it was read.
        let is_freed = freed.contains(&keys::reclaim_chunk(chunk));
        let is_alone = seen.alone.contains(&(at, chunk, outside)) || held.iter().all(|(_, copy)| copy.is_none());
        if is_freed || is_alone {
            continue;
        }
        for (id, copy) in &held {
            if copy.as_ref().is_none_or(|copy| copy.stable.chain_epoch < outside) {
                fail(format!("chunk {chunk} is deleted at {at}, and data server {id} of {chain:?} has {copy:?}"));
            }
        }
        let unread = seen.unread(at, copy.container, chunk, chain);
        if !unread.is_empty() {
            fail(format!(
                "chunk {chunk} is deleted at {at}, and {unread:?} of {chain:?} came when it had left and have not read it"
            ));
        }
        let Some((_, grown, known)) = seen.grown.get(&copy.container) else { continue };
        let newest = grown.last().copied().filter(|newest| *newest != at && chain.contains(newest));
        if let Some(newest) = newest.filter(|_| grown.contains(&at) && known.contains(&chunk)) {
            cluster.coverage.count("replaced copy deleted");
            if !seen.read_back.contains(&(newest, chunk)) {
                fail(format!("chunk {chunk} is deleted at {at}, and data server {newest} has not read it back"));
            }
        }
    }
}
