//! Spare chunks for sessions: where they are chosen, and which containers they are of.

use crate::call::Call;
use crate::containers::Kind;
use crate::server::MetaServer;
use braid_api::meta::{MetaAnswer, TakeBeside, TakeSpares};
use braid_api::{Code, Error, Result};
use braid_meta_namespace::OpContext;
use braid_meta_namespace::ops::spares;
use braid_placement::{Candidate, Want};
use braid_types::{CONTAINER_CHUNKS_MAX, ChunkId, ContainerId, InodeId, Layout};
use std::collections::HashMap;

/// Spares in one message at the most.
const SPARES_MAX: u32 = 64;

impl MetaServer {
    pub(crate) async fn take_spares(
        &self,
        call: &mut Call,
        op: OpContext,
        number: u8,
        m: TakeSpares,
    ) -> Result<MetaAnswer> {
        let want = Want {
            chain_len: m.policy.chain_len(),
            count: m.count.clamp(1, SPARES_MAX) as usize,
            bytes_needed: self.config.chunk_reserve_bytes,
            // One copy is spread over all servers: beside the writer it would fill one disk and use one. Copies begin
            // there, because the owner's is the one that is written (design.md §5, *Who owns*).
            beside: m.beside.filter(|_| m.policy.chain_len() > 1),
        };
        let mut candidates = self.servers.places();
        if let Some(to) = m.beside.filter(|_| m.for_moves && m.policy.chain_len() == 1) {
            // Of a chunk that is moved it is said where it is to go.
            candidates.retain(|candidate| candidate.id == to);
        }
        let chains = self.placement.lock().choose(want, &candidates).map_err(|short| {
            // Whoever asks waits for servers that are down. Full disks stay full until somebody removes something.
            let waits = come_back(&candidates, short.wanted);
            Error::new(
                if waits { Code::NoServers } else { Code::NoSpace },
                format_args!("a new chunk under policy {}", m.policy),
                format_args!(
                    "it needs {} data servers that are up and have {} MiB free; there are {} of {}",
                    short.wanted,
                    want.bytes_needed >> 20,
                    short.usable,
                    candidates.len()
                ),
            )
        })?;
        let (layout, chunk_bytes, min_copies) = (m.policy.layout, m.policy.chunk_bytes, m.policy.min_copies() as u8);
        let kind = Kind { layout, chunk_bytes, min_copies };
        let mut sources: Vec<(spares::Source, u32)> = Vec::new();
        let mut fresh: Vec<(Vec<braid_types::ServerId>, u32)> = Vec::new();
        for chain in chains {
            if let Some((id, count)) = self.containers.take_room(kind, &chain, 1) {
                match sources.iter_mut().find(|(s, _)| *s == spares::Source::Container(id)) {
                    Some((_, n)) => *n += count,
                    None => sources.push((spares::Source::Container(id), count)),
                }
            } else {
                match fresh.iter_mut().find(|(c, _)| *c == chain) {
                    Some((_, n)) => *n += 1,
                    None => fresh.push((chain, 1)),
                }
            }
        }
        let new: Vec<u32> = fresh.iter().map(|(_, n)| *n).collect();
        sources.extend(fresh.into_iter().map(|(chain, n)| (spares::Source::NewContainer { chain }, n)));
        let old = sources.len() - new.len();
        let give = spares::GiveSpares { layout, chunk_bytes, min_copies, for_moves: m.for_moves, sources };
        let mut answer = self.record(call, InodeId(0), op, number, give, MetaAnswer::TakeSpares).await?;
        if let MetaAnswer::TakeSpares(given) = &mut answer {
            take_turns(&mut given.spares);
            // New containers stand behind the old ones, in order; a repeated request may have been answered from
            // rows with fewer, whose room is then simply not known here until the next start.
            for (info, used) in given.containers.iter().skip(old).zip(new) {
                if self.containers.get(info.id).is_none() {
                    self.containers.opened(kind, info, CONTAINER_CHUNKS_MAX - used);
                }
            }
            for info in &given.containers {
                self.containers.learn_chain(info.clone());
            }
            self.lead_new(&given.containers).await?;
        }
        Ok(answer)
    }

    /// One where a chunk is that a snapshot has: it begins as that one.
    pub(crate) async fn take_beside(
        &self,
        call: &mut Call,
        op: OpContext,
        number: u8,
        m: TakeBeside,
    ) -> Result<MetaAnswer> {
        let sources = vec![(spares::Source::Beside(m.container), 1)];
        // Of a container that is there these say nothing.
        let (layout, chunk_bytes, min_copies) = (Layout::Replica { copies: 1 }, 0, 1);
        let give = spares::GiveSpares { layout, chunk_bytes, min_copies, for_moves: true, sources };
        self.record(call, InodeId(0), op, number, give, MetaAnswer::TakeBeside).await
    }
}

/// Servers that are down may make the difference. One that is drained does not, whether or not it is up.
fn come_back(candidates: &[Candidate], wanted: usize) -> bool {
    let count = |is: fn(&Candidate) -> bool| candidates.iter().filter(|c| is(c)).count();
    match count(|c| c.takes_new) >= wanted {
        true => count(|c| c.takes_new && c.up) < wanted,
        // There are too few without those that are drained: full of what is to go, or away.
        false => count(|c| c.up) < wanted,
    }
}

/// Chunks come grouped by container; in turns, the next chunks of a file lie on different servers.
fn take_turns(spares: &mut [(ChunkId, ContainerId)]) {
    let mut seen: HashMap<ContainerId, usize> = HashMap::new();
    spares.sort_by_cached_key(|(_, container)| {
        let turn = seen.entry(*container).or_default();
        *turn += 1;
        *turn
    });
}
