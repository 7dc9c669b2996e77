//! Who would answer at the instant at which a change is answered, and who has answered before.
//!
//! That the bytes have one order is found by who reads and writes them, which may be nobody while two servers would answer. This asks all
//! servers that run, each by its own clock, with every write, cut and hole that is answered. A server that has stood still since it carried
//! one out, or handed the chunk over, has answered it then, and the others are not asked; so that nothing hides there, the order is looked at
//! without any clock, too: an owner's changes of one term are one server's alone, and what is asked for when a later term has answered is not
//! answered in an earlier.

use crate::cluster::Cluster;
use crate::failures::Invariant;
use braid_api::Result;
use braid_api::data::{DataAnswer, DataRequest, Held};
use braid_types::{ByteRange, ChainEpoch, ChunkId, ContainerId, OwnerTerm, ServerId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Of an owner's changes.
type Term = (ChainEpoch, OwnerTerm);

/// Survives the servers.
#[derive(Default)]
pub struct Answered(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    terms: BTreeMap<ChunkId, BTreeMap<Term, ServerId>>,
    /// Files have others in the places of these.
    replaced: BTreeSet<ChunkId>,
}

impl Answered {
    /// A chunk with one copy has got another place, under another id.
    pub fn moved(&self, from: ChunkId) {
        self.0.lock().replaced.insert(from);
    }

    fn newest(&self, chunk: ChunkId) -> Option<(Term, ServerId)> {
        self.0.lock().terms.get(&chunk).and_then(|terms| terms.last_key_value()).map(|(term, by)| (*term, *by))
    }

    /// The last that this server has answered in, for a planted bug.
    pub fn last_of(&self, chunk: ChunkId, by: ServerId) -> Option<Version> {
        let answered = self.0.lock();
        let ((chain_epoch, owner_term), _) = answered.terms.get(&chunk)?.iter().rfind(|(_, of)| **of == by)?;
        Some(Version { chain_epoch: *chain_epoch, owner_term: *owner_term, counter: u64::MAX })
    }

    /// Who has answered in this term first.
    fn first(&self, chunk: ChunkId, term: Term, by: ServerId) -> ServerId {
        *self.0.lock().terms.entry(chunk).or_default().entry(term).or_insert(by)
    }
}

/// A change of a chunk, as it is asked for.
pub struct Change {
    chunk: ChunkId,
    /// Its file had another in its place by then.
    is_replaced: bool,
    /// The last term that had answered by then.
    before: Option<(Term, ServerId)>,
    /// Where it has several.
    copies: Option<Copies>,
}

struct Copies {
    container: ContainerId,
    bytes: ByteRange,
    /// Nobody else reads meanwhile, and the others hear of it later.
    alone: bool,
}

impl Change {
    pub fn asked(cluster: &Cluster, request: &DataRequest, len: usize) -> Option<Change> {
        let (chunk, copies) = match request {
            DataRequest::WriteChunk(m) => (m.chunk, None),
            DataRequest::PunchChunk(m) => (m.chunk, None),
            DataRequest::CutChunk(m) => (m.chunk, None),
            DataRequest::WriteCopies(m) => {
                let bytes = ByteRange::at(m.write.offset, len as u64);
                (m.write.chunk, Some(Copies { container: m.write.container, bytes, alone: m.write.alone }))
            }
            DataRequest::PunchCopies(m) => {
                let alone = m.held == Held::Exclusive;
                (m.chunk, Some(Copies { container: m.container, bytes: m.range, alone }))
            }
            DataRequest::CutCopies(m) => {
                let from = m.cuts.iter().map(|(_, to)| *to).min()?;
                let bytes = ByteRange::new(from, u64::MAX);
                (m.chunk, Some(Copies { container: m.container, bytes, alone: false }))
            }
            _ => return None,
        };
        let is_replaced = cluster.answered.0.lock().replaced.contains(&chunk);
        Some(Change { chunk, is_replaced, before: cluster.answered.newest(chunk), copies })
    }

    /// One that was on its way may make a chunk again whose file has another in its place: a block report removes that.
    pub fn comes_late(self) -> Change {
        Change { is_replaced: false, ..self }
    }

    /// To be called when server `at` answers it.
    pub fn answered(self, cluster: &Cluster, at: ServerId, result: &Result<(DataAnswer, Bytes)>) {
        // A cut says no version: it is in the order by what it keeps from others alone.
        let version = match result {
            Ok((DataAnswer::WriteCopies(answer) | DataAnswer::PunchCopies(answer), _)) => Some(answer.version),
            Ok(_) => None,
            Err(_) => return,
        };
        let chunk = self.chunk;
        if self.is_replaced {
            fail(cluster, format!("chunk {chunk}: data server {at} changes it, and its file had another in its place"));
        }
        if let Some(version) = version {
            self.is_in_order(cluster, at, version);
        }
        if let Some(copies) = &self.copies {
            copies.others_do_not(cluster, chunk, at, version);
        }
    }

    fn is_in_order(&self, cluster: &Cluster, at: ServerId, version: Version) {
        let Change { chunk, before, .. } = self;
        let term = (version.chain_epoch, version.owner_term);
        cluster.coverage.count("change answered in the order of terms");
        if let Some((newest, by)) = before.filter(|(newest, _)| *newest > term) {
            fail(
                cluster,
                format!(
                    "chunk {chunk}: data server {at} answers {version:?} though {by} had answered in {newest:?} when it was asked"
                ),
            );
        }
        let first = cluster.answered.first(*chunk, term, at);
        if first != at {
            fail(
                cluster,
                format!("chunk {chunk}: data servers {first} and {at} both answer in the term of {version:?}"),
            );
        }
    }
}

impl Copies {
    fn others_do_not(&self, cluster: &Cluster, chunk: ChunkId, at: ServerId, version: Option<Version>) {
        let Copies { container, bytes, alone } = *self;
        let servers = cluster.servers();
        let stands =
            |id| servers.iter().find(|(_, server)| server.id() == id).map(|(_, s)| s.stands(container, chunk, bytes));
        if !stands(at).is_some_and(|here| here.acknowledges) {
            cluster.coverage.count("change answered by who has handed its chunk over since");
            return;
        }
        cluster.coverage.count("change answered while all others were looked at");
        for other in servers.iter().map(|(_, server)| server.id()).filter(|other| *other != at) {
            let Some(there) = stands(other) else { continue };
            if there.acknowledges {
                fail(
                    cluster,
                    format!("chunk {chunk}: data server {at} answers {version:?} while {other} would answer some"),
                );
            }
            if let Some(told) = there.serves.filter(|told| !alone && version.is_some_and(|version| *told < version)) {
                fail(
                    cluster,
                    format!("chunk {chunk}: data server {at} answers {version:?} while {other} serves {told:?}"),
                );
            }
        }
    }
}

fn fail(cluster: &Cluster, text: String) {
    cluster.around.failures.add(Invariant::OneOwnerAtAnInstant, text);
}
