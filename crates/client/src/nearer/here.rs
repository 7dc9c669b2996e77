//! Copying a chunk to its new place, as this client's own reads and writes go.

use super::Place;
use super::copying::Begun;
use crate::core::{Core, Op};
use crate::fetch::Order;
use crate::inode::{FileState, Inode};
use crate::moves::pieces;
use crate::ranges::RangeSet;
use crate::servers::Route;
use crate::wait::{Attempts, Deadline, join_all};
use braid_api::data::{Make, SyncChunks, WriteChunk};
use braid_api::{Code, Error, Result};
use braid_types::{ByteRange, LeaseGen, Token};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Pieces copied at once: a piece is two messages, one after the other, on two different ways.
const AT_ONCE: usize = 4;
/// Attempts to make it, when others are deleted at the same time.
const MAKE_MAX: u32 = 8;
/// A disk that reads more slowly is not waited for.
const READ_BACK_PER_S: u64 = 16 << 20;

impl Core {
    /// Not by a message that is as good when it comes late: the spare may have been given back by then.
    pub(super) async fn make_here(&self, begun: &Begun<'_>, to: Place, op: Op) -> Result<()> {
        let mut tries = 0;
        loop {
            let route = self.route(&begun.policy, to.container, op).await?;
            let ask = SyncChunks::of(Vec::new());
            let (state, _) = self.ask(&route.lane, self.session.token(), ask, Bytes::new(), op).await?;
            let make = Make::Lost { incarnation: state.incarnation, deletions: state.deletions };
            match self.write_here(begun, to, (0, Bytes::new()), make, op).await {
                // Something else was deleted there in between.
                Err(error) if error.code == Code::ChunkUnknown && tries < MAKE_MAX => tries += 1,
                made => return made,
            }
        }
    }

    fn token_here(&self, begun: &Begun<'_>, state: &FileState, route: &Route) -> Token {
        Token { lease_gen: LeaseGen(begun.token.0), ..self.data_token(state, route) }
    }

    /// A part of it is given up as soon as an operation.
    fn soon(&self, op: Op) -> Op {
        Op { deadline: Deadline(op.deadline.0.min(self.own_op().deadline.0)), ..op }
    }

    /// Again where that may help. Not where something is gone: then all of it is to be begun anew.
    async fn try_here<T, F: Future<Output = Result<T>>>(
        &self,
        begun: &Begun<'_>,
        to: Place,
        op: Op,
        attempt: impl Fn(Route) -> F,
    ) -> Result<T> {
        let mut attempts = Attempts::until(op.deadline);
        loop {
            let route = self.route(&begun.policy, to.container, op).await?;
            // Without it the right to write is not asked for: another mount has it, or waits for it.
            self.goes_on(begun)?;
            match attempt(route).await {
                Err(error) if error.code != Code::ChunkUnknown => {
                    self.recover(&mut attempts, error, to.container, op).await?;
                }
                done => return done,
            }
        }
    }

    async fn write_here(
        &self,
        begun: &Begun<'_>,
        to: Place,
        (offset, data): (u64, Bytes),
        make: Make,
        op: Op,
    ) -> Result<()> {
        let write = async |route: Route| {
            let (token, cuts) = {
                let state = begun.inode.state.lock();
                (self.token_here(begun, &state, &route), state.chunk_cuts(begun.index))
            };
            let write = WriteChunk {
                chunk: to.chunk,
                container: to.container,
                offset,
                chunk_bytes: begun.policy.chunk_bytes,
                inode: begun.inode.id,
                index: begun.index,
                cuts,
                sync: false,
                make,
                kept_beside: false,
                // Nobody else knows the chunk, and what is lost before it is stable is found out by the sync.
                alone: true,
                once: None,
            };
            self.ask(&route.lane, token, write, data.clone(), op).await.map(drop)
        };
        self.try_here(begun, to, self.soon(op), write).await
    }

    pub(super) async fn copy_here(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        ranges: &RangeSet,
        op: Op,
    ) -> Result<()> {
        let ranges: Vec<ByteRange> = ranges.iter().collect();
        let pieces: Vec<ByteRange> = pieces(&ranges).collect();
        for group in pieces.chunks(AT_ONCE) {
            self.goes_on(begun)?;
            let copied = group.iter().map(|piece| self.copy_piece(inode, begun, to, *piece, self.soon(op))).collect();
            join_all(copied).await.into_iter().collect::<Result<()>>()?;
        }
        Ok(())
    }

    /// As the servers have it, with what they may have to be told again; not what is only here so far: that is written when it goes.
    async fn copy_piece(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        piece: ByteRange,
        op: Op,
    ) -> Result<()> {
        let data = self.fetch_chunk(inode, begun.index, piece, Order::Any, op).await?;
        self.write_here(begun, to, (piece.start, data), Make::No, op).await
    }

    /// An error if anything of it was lost on the way: the copies say so.
    pub(super) async fn sync_here(&self, begun: &Begun<'_>, to: Place, op: Op) -> Result<()> {
        let sync = async |route: Route| {
            let token = self.token_here(begun, &begun.inode.state.lock(), &route);
            self.ask(&route.lane, token, SyncChunks::of(vec![to.chunk]), Bytes::new(), op).await.map(drop)
        };
        self.try_here(begun, to, op, sync).await
    }

    /// At each copy, what it has matches its checksums.
    pub(super) async fn read_back(&self, begun: &Begun<'_>, to: Place, op: Op) -> Result<()> {
        let route = self.route(&begun.policy, to.container, self.soon(op)).await?;
        let copies = route.container.chain.len() as u64;
        let takes = Duration::from_secs(copies * begun.policy.chunk_bytes / READ_BACK_PER_S);
        let op = Op { deadline: Deadline::after(&self.env, self.config.deadline + takes), ..op };
        for server in &route.container.chain {
            let lane = self.lane_of(*server, op).await?;
            if let Some(first) = self.scrub(&lane, to.chunk, op).await?.first() {
                let cause = format!("a block does not read back as written, at {first}");
                return Err(Error::new(Code::BadBlock, format!("chunk {} at {}", to.chunk, lane.name()), cause));
            }
        }
        Ok(())
    }
}
