//! Spare chunks: given to a session in advance, so that a new file needs no message for its chunks.

use super::ids::{Counter, take};
use crate::rows::{ContainerRow, CopiesRow, RowFormat, SpareRow, keys};
use crate::{Mutation, OpContext, OpError, Unit};
use braid_api::meta::Spares;
use braid_api::{Code, Error};
use braid_meta_engine::{Key, Lock, Operation, Table, Tx};
use braid_types::{CONTAINER_CHUNKS_MAX, ChainEpoch, ChunkId, ContainerId, Layout, ServerId, SessionId};

/// What the server has chosen by placement: from which container, or on which new chain, to take each chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Container(ContainerId),
    /// However full it is: who thaws a chunk needs one where that is.
    Beside(ContainerId),
    NewContainer {
        chain: Vec<ServerId>,
    },
}

/// The transaction behind [`braid_api::meta::TakeSpares`].
pub struct GiveSpares {
    pub layout: Layout,
    pub chunk_bytes: u64,
    /// Copies that a promise needs.
    pub min_copies: u8,
    /// As in the message.
    pub for_moves: bool,
    /// Chunks to take from each source. A full container is passed over.
    pub sources: Vec<(Source, u32)>,
}

impl Mutation for GiveSpares {
    type Answer = Spares;

    fn first_keys(&self) -> Vec<Key> {
        self.sources
            .iter()
            .filter_map(|(source, _)| match source {
                Source::Container(id) | Source::Beside(id) => Some(keys::container(*id)),
                Source::NewContainer { .. } => None,
            })
            .collect()
    }

    async fn apply(&self, unit: &mut Unit<'_>, cx: &OpContext) -> Result<Spares, OpError> {
        let mut answer = Spares { spares: Vec::new(), containers: Vec::new() };
        let wanted: u64 = self.sources.iter().map(|(_, count)| u64::from(*count)).sum();
        let mut next_chunk = take(unit, Counter::Chunks, wanted).await?;
        for (source, count) in &self.sources {
            let (id, mut row) = match source {
                Source::Container(id) | Source::Beside(id) => {
                    match unit.get::<ContainerRow>(&keys::container(*id)).await? {
                        Some(row) => (*id, row),
                        None => continue,
                    }
                }
                Source::NewContainer { chain } => {
                    let epoch = ChainEpoch(1);
                    let copies = u8::try_from(chain.len()).ok().filter(|copies| *copies > 1).map(|copies| CopiesRow {
                        copies,
                        min_copies: self.min_copies.clamp(1, copies),
                        settled: true,
                        last_open: Vec::new(),
                        default_open: epoch,
                    });
                    let id = ContainerId(take(unit, Counter::Containers, 1).await?);
                    let row = ContainerRow {
                        epoch,
                        chain: chain.clone(),
                        layout: self.layout,
                        chunk_bytes: self.chunk_bytes,
                        given: 0,
                        freed: 0,
                        older: Vec::new(),
                        copies,
                    };
                    (id, row)
                }
            };
            let given = match source {
                Source::Beside(_) => *count,
                _ => (*count).min(CONTAINER_CHUNKS_MAX.saturating_sub(row.given)),
            };
            for _ in 0..given {
                let chunk = ChunkId(next_chunk);
                next_chunk += 1;
                unit.put(keys::spare(cx.session, chunk), &SpareRow { container: id, for_moves: self.for_moves });
                answer.spares.push((chunk, id));
            }
            row.given += given;
            answer.containers.push(row.info(id));
            unit.put(keys::container(id), &row);
        }
        if answer.spares.is_empty() {
            return Err(Error::new(Code::Busy, "containers", "those chosen were full").into());
        }
        Ok(answer)
    }
}

/// All containers: what a metadata server reads at its start.
pub struct ListContainers {
    pub after: Option<ContainerId>,
    pub limit: usize,
}

impl Operation for ListContainers {
    type Output = Vec<(ContainerId, ContainerRow)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let after = self.after.map(keys::container);
        let page = unit.scan_table(Table::Containers, after.as_ref(), self.limit).await?;
        page.rows.iter().map(|(key, row)| Ok((ContainerId(key.partition()), ContainerRow::decode(key, row)?))).collect()
    }
}

/// The rows of some containers.
pub struct ReadContainers(pub Vec<ContainerId>);

impl Operation for ReadContainers {
    type Output = Vec<(ContainerId, ContainerRow)>;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Self::Output, OpError> {
        let mut unit = Unit::new(tx, Lock::None);
        let wanted: Vec<Key> = self.0.iter().map(|id| keys::container(*id)).collect();
        unit.load(&wanted).await?;
        let mut found = Vec::with_capacity(wanted.len());
        for (id, key) in self.0.iter().zip(&wanted) {
            if let Some(row) = unit.get::<ContainerRow>(key).await? {
                found.push((*id, row));
            }
        }
        Ok(found)
    }
}

/// Puts a chunk that an ended session wrote, and had not committed, into its file, if the place is still free. It has been made stable.
/// Design.md §8: a write that reached its owner survives the loss of its client.
pub struct AdoptSpare {
    pub session: SessionId,
    pub chunk: braid_api::data::ChunkStatus,
    pub now: braid_types::Timestamp,
}

impl Operation for AdoptSpare {
    type Output = bool;
    type Error = OpError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<bool, OpError> {
        use crate::rows::{ChunkRow, flags};
        let mut unit = Unit::new(tx, Lock::Exclusive);
        let found = &self.chunk;
        let spare_key = keys::spare(self.session, found.chunk);
        // A copy of another chunk that was not put into its place: what the file has is newer.
        let spare = unit.get::<SpareRow>(&spare_key).await?.filter(|spare| !spare.for_moves);
        let Some(spare) = spare else { return Ok(false) };
        let mut located = match unit.find(&found.inode.into()).await {
            Ok(located) if located.inode.is_file() => located,
            Ok(_) => return Ok(false),
            Err(OpError(e)) if e.code == Code::Stale => return Ok(false),
            Err(e) => return Err(e),
        };
        let inode = &mut located.inode;
        let key = keys::chunk(inode.id, found.index);
        if found.trunc_gen < inode.trunc_gen || unit.get::<ChunkRow>(&key).await?.is_some() || inode.nlink == 0 {
            return Ok(false);
        }
        let policy = super::content::policy_of(inode);
        let end = found.index.0.saturating_mul(policy.chunk_bytes).saturating_add(found.len);
        if !inode.has(flags::CHUNKED) && inode.size > 0 && (found.index.0 != 0 || found.unsure) {
            // Chunk 0 with the former inline bytes did not make it, or a crash of its server may have taken them; they are still
            // inline, and stay the truth.
            return Ok(false);
        }
        super::content::drop_inline(&mut unit, inode);
        inode.set(flags::CHUNKED, true);
        inode.size = inode.size.max(end);
        inode.touch(self.now);
        unit.insert(key, &ChunkRow { chunk: found.chunk, container: spare.container, stable: true, born: None });
        unit.delete(spare_key);
        unit.store(&located);
        unit.charge_without_limits().await?;
        Ok(true)
    }
}
