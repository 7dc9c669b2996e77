//! A chunk with one copy gets another place, while its file is in use (docs/design/0016-growing-and-shrinking.md, *Chunks with one copy*).
//!
//! Promises: the file is the same before and after to everybody who reads or writes it; the old chunk is freed only by the transaction
//! that puts the new one into its place, and by then that one was read back, matches its checksums and is on stable storage. Who wants to
//! write the file waits for a few messages, or, if it was being written all the while, for a copy of at most [`COPY_ALONE`].
//!
//! Copied it is while others write. Then the file is taken as by any writer, so that all the others know is stored; the chunk's version
//! says whether anything was written since.

use crate::commit::Reach;
use crate::core::{Core, Op};
use crate::inode::Inode;
use crate::lost::still;
use crate::servers::{Lane, Route};
use crate::wait::Deadline;
use braid_api::data::{
    ChunkStatus, DataAnswer, DataRequest, Make, ReadChunk, ReserveChunk, ScrubChunk, StatChunk, SyncChunks, WriteChunk,
};
use braid_api::meta::{Content, Cuts, FindKept, GetMap, MoveChunk, MoveKept, MoveKind, ReturnSpares, TakeSpares};
use braid_api::{Carries, Code, Context, Error, Result, When};
use braid_env::{Env, Monotonic};
use braid_lease::Want;
use braid_types::{
    BLOCK_BYTES, ByteRange, ChainEpoch, ChunkId, ChunkIndex, ContainerId, InodeId, OwnerTerm, Policy, ServerId, Token,
    TruncGen, Version,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Read and written at once: a whole number of blocks, and what servers take in one message.
const PIECE: u64 = 1 << 20;
/// So long others may wait for a chunk that is copied once more under its file's lease: at 100 MB/s enough for three of 64 MiB.
pub const COPY_ALONE: Duration = Duration::from_secs(2);
/// A cluster without room for it is said soon; it may have some later.
const ASK_FOR_ROOM: Duration = Duration::from_secs(5);
/// For a whole chunk of up to 1 TiB at 100 MB/s.
const CHUNK_DEADLINE: Duration = Duration::from_secs(4 * 3600);

/// What became of a chunk that was to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Done,
    /// No file has it there: a spare, or one that is being freed.
    InNoFile,
    /// It was written all the while.
    Later,
}

/// How fast bytes are copied, all chunks together.
pub struct Pace {
    state: Mutex<(u64, Monotonic)>,
}

impl Pace {
    pub fn new(bytes_per_s: u64) -> Pace {
        Pace { state: Mutex::new((bytes_per_s.max(1), Monotonic::default())) }
    }

    pub fn set(&self, bytes_per_s: u64) {
        let mut state = self.state.lock();
        if state.0 != bytes_per_s.max(1) {
            // What waits by the former one waits; what comes now does not wait for that.
            *state = (bytes_per_s.max(1), Monotonic::default());
        }
    }

    /// When these bytes may be copied. Nothing is saved up while nothing is copied.
    fn turn(&self, bytes: u64, now: Monotonic) -> Duration {
        let mut state = self.state.lock();
        let (rate, next) = *state;
        let begin = next.max(now);
        let takes = Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64);
        state.1 = begin + takes;
        begin.since(now)
    }

    async fn take(&self, env: &Env, bytes: u64) {
        let waits = self.turn(bytes, env.clock.now());
        if !waits.is_zero() {
            env.sleep(waits).await;
        }
    }
}

/// A chunk in its file, as the metadata server says.
struct Place {
    inode: InodeId,
    index: ChunkIndex,
    chunk: ChunkId,
    container: ContainerId,
    policy: Policy,
    cuts: Cuts,
    trunc_gen: TruncGen,
    /// Its row says that it is on stable storage.
    stable: bool,
    route: Route,
    /// Only snapshots have it: it may have seen any generation.
    of_snapshot: bool,
    /// Where it is to go; anywhere else otherwise.
    to: Option<ServerId>,
}

/// What says whether anything was written to a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Of the server. A version that was not stable when it restarted may be given again, to something else.
    incarnation: u64,
    version: Version,
    trunc_gen: TruncGen,
}

impl Seen {
    /// Of a chunk that its server does not know.
    const NOTHING: Seen = Seen {
        incarnation: 0,
        version: Version { chain_epoch: ChainEpoch(0), owner_term: OwnerTerm(0), counter: 0 },
        trunc_gen: TruncGen(0),
    };
}

/// A spare that has the bytes which a chunk had.
struct Copied {
    spare: ChunkId,
    of: Seen,
}

/// An inode that is open here for a move, until dropped.
struct Opened<'a>(&'a Arc<Core>, Arc<Inode>);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.close_inode(&self.1);
    }
}

impl Core {
    /// Moves a chunk of which its data server says this. An error: it stays where it is.
    pub async fn move_chunk(self: &Arc<Self>, found: &ChunkStatus, to: Option<ServerId>, pace: &Pace) -> Result<Moved> {
        let op = Op { deadline: Deadline::after(&self.env, CHUNK_DEADLINE), ..self.own_op() };
        let Some(place) = self.place_of(found, to).await? else { return self.move_kept(found, to, pace, op).await };
        let copied = self.copy_out(&place, Some(pace), op).await?;
        let mut left = vec![copied.spare];
        let moved = self.move_alone(found, &place, copied, &mut left, op).await;
        if !left.is_empty()
            && let Err(error) = self.call(ReturnSpares { chunks: left }, self.own_op()).await
        {
            tracing::debug!(%error, "spares are freed with the session");
        }
        moved
    }

    /// One that only snapshots have: nothing of it changes, so nobody is asked for anything.
    async fn move_kept(
        self: &Arc<Self>,
        found: &ChunkStatus,
        to: Option<ServerId>,
        pace: &Pace,
        op: Op,
    ) -> Result<Moved> {
        let ChunkStatus { inode, index, chunk, .. } = *found;
        let Some(kept) = self.call(FindKept { inode, index, chunk }, self.own_op()).await? else {
            return Ok(Moved::InNoFile);
        };
        self.servers.learn(std::slice::from_ref(&kept.container));
        let policy = Policy { chunk_bytes: kept.chunk_bytes, ..Policy::PLAIN };
        let route = self.route(&policy, kept.container.id, op).await?;
        if route.container.chain.len() != 1 {
            return Ok(Moved::InNoFile);
        }
        let mut place = Place {
            inode,
            index,
            chunk,
            container: kept.container.id,
            policy,
            cuts: Vec::new(),
            trunc_gen: TruncGen(0),
            stable: true,
            route,
            of_snapshot: true,
            to,
        };
        // Whoever reads it afterwards cuts no more than before.
        place.trunc_gen = self.look(&place, op).await?.trunc_gen;
        let copied = self.copy_out(&place, Some(pace), op).await?;
        let message = MoveKept { inode, index, from: chunk, to: copied.spare };
        let put = self.call(message, self.own_op()).await;
        if !matches!(put, Ok(true)) {
            self.call(ReturnSpares { chunks: vec![copied.spare] }, self.own_op()).await?;
        }
        Ok(if put? { Moved::Done } else { Moved::InNoFile })
    }

    /// With the file's lease. `left`: spares that have not come into the file.
    async fn move_alone(
        self: &Arc<Self>,
        found: &ChunkStatus,
        before: &Place,
        mut copied: Copied,
        left: &mut Vec<ChunkId>,
        op: Op,
    ) -> Result<Moved> {
        // Whatever is asked of the metadata server is answered soon, or it is tried again another time.
        let soon = self.own_op();
        // Of a sealed file there is no writer, and nobody becomes one while it is open for reading here.
        let (opened, want) = match self.open_inode(found.inode, Want::Once, false, soon).await {
            Ok((inode, _)) => (Opened(self, inode), Want::Once),
            Err(error) if error.code == Code::Sealed => {
                let (inode, _) = self.open_inode(found.inode, Want::Read, false, soon).await?;
                (Opened(self, inode), Want::Read)
            }
            Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => return Ok(Moved::InNoFile),
            Err(error) => return Err(error),
        };
        let inode = &opened.1;
        let pass = self.enter(inode, want, ByteRange::new(0, u64::MAX), soon).await?;
        // What this client itself may have of it.
        self.commit(inode, Reach::Stable, soon).await?;
        let Some(place) = self.place_of(found, before.to).await? else { return Ok(Moved::InNoFile) };
        let is_same = place.trunc_gen == before.trunc_gen && self.look(&place, op).await? == copied.of;
        if !is_same {
            let until = Deadline(op.deadline.0.min(self.now() + COPY_ALONE));
            copied = match self.copy_out(&place, None, Op { deadline: until, ..op }).await {
                Ok(copied) => copied,
                Err(_) if until.left(&self.env).is_zero() => return Ok(Moved::Later),
                Err(error) => return Err(error),
            };
            left.push(copied.spare);
        }
        let inode_ref = self.cache.inode(place.inode);
        let (index, from, to) = (place.index, place.chunk, copied.spare);
        let message = MoveChunk { inode: inode_ref, index, from, to, trunc_gen: place.trunc_gen, why: MoveKind::Moved };
        let put = self.call_while(message, When::Marked, self.own_op(), still(inode, pass.lapses)).await;
        if put.is_err() {
            // It may still be carried out, and must not be when others have the file: whichever of the two comes first is the one that holds.
            self.call(ReturnSpares { chunks: vec![to] }, self.own_op()).await?;
        }
        let put = put?;
        inode.state.lock().stale = true;
        if !put {
            return Ok(Moved::InNoFile);
        }
        left.retain(|spare| *spare != to);
        Ok(Moved::Done)
    }

    /// Where the chunk is in its file; none if it is not there.
    async fn place_of(&self, found: &ChunkStatus, to: Option<ServerId>) -> Result<Option<Place>> {
        let op = self.own_op();
        let (id, index) = (found.inode, found.index);
        let answer = match self.call(GetMap { inode: self.cache.inode(id), first: index }, op).await {
            Ok(answer) => answer,
            Err(error) if matches!(error.code, Code::Stale | Code::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Content::Chunked(page) = &answer.map.content else { return Ok(None) };
        self.servers.learn(&page.containers);
        let Some(row) = page.chunks.first().filter(|row| (row.index, row.chunk) == (index, found.chunk)) else {
            return Ok(None);
        };
        let policy = answer.map.policy;
        let route = self.route(&policy, row.container, op).await?;
        if route.container.chain.len() != 1 || policy.chain_len() != 1 {
            let cause = format!("its file has the policy {policy}, and the chunk one copy");
            return Err(Error::new(Code::Internal, format!("chunk {} of inode {id}", found.chunk), cause));
        }
        Ok(Some(Place {
            inode: id,
            index,
            chunk: row.chunk,
            container: row.container,
            policy,
            cuts: crate::cuts::in_chunk(&answer.map.cuts, index, policy.chunk_bytes),
            trunc_gen: answer.attr.trunc_gen,
            stable: row.stable,
            route,
            of_snapshot: false,
            to,
        }))
    }

    fn token_to_read(&self, place: &Place) -> Token {
        Token { snapshot: place.of_snapshot.into(), ..self.token_at(place, &place.route) }
    }

    fn token_at(&self, place: &Place, route: &Route) -> Token {
        Token { trunc_gen: place.trunc_gen, chain_epoch: route.container.epoch, ..self.session.token() }
    }

    /// Makes what the chunk has stable, and says what that is.
    async fn look(&self, place: &Place, op: Op) -> Result<Seen> {
        self.look_at(place, ByteRange::default(), op).await.map(|(seen, _)| seen)
    }

    async fn look_at(&self, place: &Place, extents_in: ByteRange, op: Op) -> Result<(Seen, Vec<ByteRange>)> {
        let (lane, token) = (&place.route.lane, self.token_to_read(place));
        let sync = SyncChunks::of(vec![place.chunk]);
        let synced = match self.ask(lane, token, sync, Bytes::new(), op).await {
            // It went unsynced with its server's power, and reads as a hole unless its writer repeats it.
            Err(error) if error.code == Code::ChunkUnknown && !place.stable => return Ok((Seen::NOTHING, Vec::new())),
            Err(error) if error.code == Code::ChunkUnknown => {
                let cause = "its server had it on stable storage and does not have it any more: braid admin fsck --data names what is \
                             missing; remove the file, or put the chunk's files back";
                return Err(Error::new(Code::ChunkLost, format!("chunk {}", place.chunk), cause));
            }
            synced => synced?.0,
        };
        let stat = StatChunk { chunk: place.chunk, container: place.container, extents_in, cuts: place.cuts.clone() };
        let status = self.ask(lane, token, stat, Bytes::new(), op).await?.0;
        // Where its server has lost its power (`unsure`) something may be missing that its writer repeats: by then under its lease, or before
        // it gives that up, and then this changes.
        let seen = Seen { incarnation: synced.incarnation, version: status.version, trunc_gen: status.trunc_gen };
        Ok((seen, status.extents))
    }

    /// Copies what the chunk has now, reads it back, and makes it stable.
    async fn copy_out(self: &Arc<Self>, place: &Place, pace: Option<&Pace>, op: Op) -> Result<Copied> {
        let (of, extents) = self.look_at(place, ByteRange::new(0, u64::MAX), op).await?;
        let (spare, route) = self.spare_for_move(place).await?;
        match self.fill(place, (spare, &route), &extents, pace, op).await {
            Ok(()) => Ok(Copied { spare, of }),
            Err(error) => {
                let _ = self.call(ReturnSpares { chunks: vec![spare] }, self.own_op()).await;
                Err(error)
            }
        }
    }

    async fn spare_for_move(&self, place: &Place) -> Result<(ChunkId, Route)> {
        let op = Op { deadline: Deadline::after(&self.env, ASK_FOR_ROOM), ..self.own_op() };
        let message = TakeSpares { policy: place.policy, count: 1, beside: place.to, for_moves: true };
        let answer = self.call(message, op).await?;
        self.servers.learn(&answer.containers);
        let none = || Error::new(Code::NoSpace, "a chunk to move to", "the metadata server gave none");
        let (spare, container) = answer.spares.first().copied().ok_or_else(none)?;
        let route = self.route(&place.policy, container, op).await?;
        Ok((spare, route))
    }

    async fn fill(
        &self,
        place: &Place,
        (spare, route): (ChunkId, &Route),
        extents: &[ByteRange],
        pace: Option<&Pace>,
        op: Op,
    ) -> Result<()> {
        let (token, container) = (self.token_at(place, route), route.container.id);
        let chunk_bytes = place.policy.chunk_bytes;
        // It exists from here on, also if there is nothing to be written to it.
        let make = ReserveChunk { chunk: spare, container, chunk_bytes, bytes: 0, make: Make::Yes };
        self.ask(&route.lane, token, make, Bytes::new(), op).await?;
        let mut incarnation = None;
        for piece in pieces(extents) {
            if let Some(pace) = pace {
                pace.take(&self.env, piece.len()).await;
            }
            let data = self.read_piece(place, piece, op).await?;
            let write = WriteChunk {
                chunk: spare,
                container,
                offset: piece.start,
                chunk_bytes,
                inode: place.inode,
                index: place.index,
                cuts: place.cuts.clone(),
                sync: false,
                make: Make::No,
                kept_beside: false,
                alone: false,
                once: None,
            };
            let written = self.ask(&route.lane, token, write, data, op).await?.0;
            same_start(&mut incarnation, written.incarnation, route)?;
        }
        let synced = self.ask(&route.lane, token, SyncChunks::of(vec![spare]), Bytes::new(), op).await?.0;
        same_start(&mut incarnation, synced.incarnation, route)?;
        let checked = self.scrub(&route.lane, spare, op).await?;
        match checked.as_slice() {
            [] => Ok(()),
            [first, ..] => {
                let cause = format!("{} blocks do not read back as written, the first at {first}", checked.len());
                Err(Error::new(
                    Code::BadBlock,
                    format!("copy of chunk {} at {}", place.chunk, route.lane.name()),
                    cause,
                ))
            }
        }
    }

    async fn read_piece(&self, place: &Place, piece: ByteRange, op: Op) -> Result<Bytes> {
        let message = ReadChunk {
            chunk: place.chunk,
            container: place.container,
            offset: piece.start,
            len: piece.len() as u32,
            cuts: place.cuts.clone(),
            kept_beside: false,
            ordered: false,
            hold: None,
        };
        let token = self.token_to_read(place);
        let (_, data) = self.ask(&place.route.lane, token, message, Bytes::new(), op).await?;
        if data.len() as u64 != piece.len() {
            let cause = format!("{} bytes instead of {}", data.len(), piece.len());
            return Err(Error::new(Code::BadMessage, format!("ReadChunk at {}", place.route.lane.name()), cause));
        }
        Ok(data)
    }

    /// Reads the whole chunk back where it lies: offsets of blocks that do not match their checksums. Takes as long as it takes.
    pub async fn scrub(&self, lane: &Lane, chunk: ChunkId, op: Op) -> Result<Vec<u64>> {
        let message = ScrubChunk { chunk };
        self.counters.message("ScrubChunk");
        let left = op.deadline.left(&self.env);
        let cx = Context { token: self.session.token(), deadline: left, trace: op.trace, ..Context::default() };
        let request: DataRequest = message.wrap();
        let (answer, _): (DataAnswer, Bytes) = lane.node().execute(cx, request, Bytes::new()).await?;
        Ok(ScrubChunk::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?.bad)
    }
}

/// Nothing of the new chunk may have gone with a restart of its server before it was stable.
fn same_start(first: &mut Option<u64>, now: u64, route: &Route) -> Result<()> {
    if *first.get_or_insert(now) != now {
        return Err(Error::new(Code::Disconnected, route.lane.name(), "it has restarted while it was copied to"));
    }
    Ok(())
}

/// What has data, in parts of at most [`PIECE`].
pub fn pieces(extents: &[ByteRange]) -> impl Iterator<Item = ByteRange> + '_ {
    const { assert!(PIECE.is_multiple_of(BLOCK_BYTES)) };
    extents.iter().flat_map(|extent| {
        extent.split_by(PIECE).map(|(unit, part)| ByteRange::new(unit * PIECE + part.start, unit * PIECE + part.end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_copied_in_pieces_and_holes_are_not() {
        let extents = [ByteRange::new(4096, 8192), ByteRange::new(PIECE - 4096, 2 * PIECE + 10)];
        let all: Vec<ByteRange> = pieces(&extents).collect();
        let piece = ByteRange::new;
        assert_eq!(
            all,
            [piece(4096, 8192), piece(PIECE - 4096, PIECE), piece(PIECE, 2 * PIECE), piece(2 * PIECE, 2 * PIECE + 10)]
        );
    }

    #[test]
    fn a_pace_is_kept_by_all_together_and_saves_nothing_up() {
        let (pace, at) = (Pace::new(1 << 20), |ms| Monotonic::default() + Duration::from_millis(ms));
        assert_eq!(pace.turn(1 << 20, at(1000)), Duration::ZERO);
        assert_eq!(pace.turn(1 << 19, at(1000)), Duration::from_secs(1));
        assert_eq!(pace.turn(1 << 19, at(1000)), Duration::from_millis(1500));
        assert_eq!(pace.turn(1, at(60_000)), Duration::ZERO, "after a long pause one piece goes at once");
        pace.set(2 << 20);
        assert_eq!(pace.turn(4 << 20, at(61_000)), Duration::ZERO);
        assert_eq!(pace.turn(1, at(61_000)), Duration::from_secs(2));
    }
}
