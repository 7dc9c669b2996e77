//! A chunk that this host goes on writing and of which it has no copy comes to be one that it has
//! (docs/design/0014-migration.md, *A chunk without a copy here*).
//!
//! Promises: the file is the same before and after, to everybody; the chunk's row names the new place only when that has on stable storage
//! all that was ever said to be, and what else was answered is kept here until it is there too; nothing is written to the old place from
//! then on. What was copied is read back where it lies. It is done under the lease under which the file is written. Its writer waits for what
//! is on its way and a transaction, its fsync for one of what was copied last: [`HELD`] and the transaction at most. What is written while it
//! is copied is copied again; if that comes to no end, or anything else is in the way, the chunk stays where it is.
//!
//! Of the owner of a chunk nothing is asked that it would not do for any reader, and where the new place is is chosen as for a chunk of a new
//! file that is made here.

mod copying;
mod here;
mod written;

pub use copying::Copying;
pub use written::Written;

use self::copying::{Begun, Speed, bytes_in, in_chunk};
use crate::body::ChunkSlot;
use crate::core::{Core, Op};
use crate::fetch::Order;
use crate::files::Pass;
use crate::inode::Inode;
use crate::lost::{over, still};
use crate::map::file_name;
use crate::moves::pieces;
use crate::ranges::RangeSet;
use crate::retain::ChunkKey;
use crate::truncate::Quiet;
use crate::wait::Deadline;
use braid_api::meta::{ChunkRef, MoveChunk, MoveKind, ReturnSpares, TakeSpares};
use braid_api::{Code, Error, Result, Retry, When};
use braid_lease::Want;
use braid_types::{ByteRange, ChunkId, ChunkIndex, ContainerId, LayoutGen, Policy};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// What a chunk costs at least, whatever it has: some ten messages, four syncs and a transaction, about 10 ms, in which 1 Gbit/s carries 1.25 MB.
const COSTS_AT_LEAST: u64 = 1 << 20;
/// So long a save or fsync of the file may wait for it, and who writes for the last part of that. An fsync would have as much to wait for: what
/// is on its way, of which 8 MiB take 0.7 s of 100 Mbit/s, and what was copied last.
const HELD: Duration = Duration::from_secs(10);
/// Copies may take longer than an operation to have a whole chunk, if others write over the same links.
const SLOWEST_PER_S: u64 = 1 << 20;
/// What was written meanwhile is copied so often while more is written. Each time it is less, if copying is faster than writing.
const ROUNDS: usize = 4;
/// And not again when it is less than this part of a chunk.
const LITTLE: u64 = 32;
/// For a chunk, of up to 1 TiB at 100 MB/s. Each piece has the deadline of an operation.
const CHUNK_DEADLINE: Duration = Duration::from_secs(4 * 3600);
/// Between two attempts to hear whether the row was changed.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Where it is copied to.
#[derive(Clone, Copy)]
struct Place {
    chunk: ChunkId,
    container: ContainerId,
}

/// With what nothing of the file is sent.
struct Held<'a> {
    pass: Pass<'a>,
    quiet: Quiet<'a>,
    layout_gen: LayoutGen,
    /// What is reserved for the chunk and for no byte that was written, if anything had to be at its new place.
    room: Option<u64>,
}

/// Why a chunk stays where it is, without anything being wrong.
fn stays(inode: &Inode, cause: &str) -> Error {
    Error::new(Code::Busy, format_args!("a chunk of {}", file_name(inode)), cause)
}

impl Core {
    /// Something was written to this chunk from here. If its copies are all elsewhere, and it has been written so much that sending it here
    /// would have cost less, it is brought here.
    pub fn wrote_chunk(self: &Arc<Self>, inode: &Arc<Inode>, key: &ChunkKey, policy: &Policy, bytes: u64) {
        let copies = policy.chain_len() as u64;
        if !self.config.local_write || copies == 1 {
            return;
        }
        let base = key.index.0 * key.chunk_bytes;
        let has = inode.state.lock().size.saturating_sub(base).min(key.chunk_bytes);
        // Each byte written elsewhere goes over one link more than it would have to; to bring the chunk takes one for each of its bytes, and
        // one more for each other copy.
        let enough = (has * copies).max(COSTS_AT_LEAST) * self.config.bring_after_percent / 100;
        if !self.written.adds(key.chunk, bytes, enough) {
            return;
        }
        if self.written.is_busy.swap(true, SeqCst) {
            return;
        }
        // Whatever comes of it: it is thought of again when as much has been written once more.
        self.written.forget(key.chunk);
        if self.servers.is_on(&self.config.host, key.container) || !self.servers.has_room_on(&self.config.host) {
            self.written.is_busy.store(false, SeqCst);
            return;
        }
        let (core, inode, stop) = (self.clone(), inode.clone(), self.stop.listen());
        let (index, chunk) = (key.index, key.chunk);
        self.spawn_for("bring a chunk", braid_api::trace::current(), async move {
            let brought = tokio::select! {
                biased;
                brought = core.bring(&inode, index, chunk) => brought,
                () = stop.wait() => Ok(()),
            };
            core.written.is_busy.store(false, SeqCst);
            match brought {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, chunk = chunk.0, "it stays where it is"),
            }
            core.forget_if_unused(inode.id);
        });
    }

    fn begin_to_copy<'a>(&self, inode: &'a Inode, index: ChunkIndex, chunk: ChunkId) -> Result<Begun<'a>> {
        let lease = || stays(inode, "its lease is not held for writing");
        let token = self.cache.may_send(inode.id, self.now()).ok_or_else(lease)?;
        let mut state = inode.state.lock();
        if state.copying.is_some() {
            return Err(stays(inode, "another one is copied"));
        }
        let (policy, trunc_gen, chunk_bytes) = (state.policy, state.attr.trunc_gen, state.policy.chunk_bytes);
        let range = ByteRange::at(index.0 * chunk_bytes, chunk_bytes);
        let container = state.body.slot(index).map(|slot| slot.container).unwrap_or_default();
        state.copying = Some(Copying { chunk, range, written: RangeSet::default() });
        let begun = Begun { inode, index, chunk, container, policy, trunc_gen, token };
        let is_same = begun.is_same(&state);
        drop(state);
        // From here on it is not forgotten, and not opened as another.
        let is_known = self.inodes.get(inode.id).is_some_and(|known| std::ptr::eq(&*known, inode));
        match is_known && is_same {
            true => Ok(begun),
            false => Err(stays(inode, "its file is being changed otherwise")),
        }
    }

    async fn bring(self: &Arc<Self>, inode: &Arc<Inode>, index: ChunkIndex, chunk: ChunkId) -> Result<()> {
        let op = Op { deadline: Deadline::after(&self.env, CHUNK_DEADLINE), ..self.own_op() };
        let begun = self.begin_to_copy(inode, index, chunk)?;
        let to = self.spare_here(&begun).await?;
        let mut is_placed = false;
        let brought = self.bring_to(inode, &begun, to, &mut is_placed, op).await;
        if !is_placed {
            self.servers.forget_copy(to.container, to.chunk);
            if let Err(error) = self.call(ReturnSpares { chunks: vec![to.chunk] }, self.own_op()).await {
                tracing::debug!(%error, "a spare is freed with the session");
            }
        }
        brought
    }

    /// A chunk with a copy on this host.
    async fn spare_here(&self, begun: &Begun<'_>) -> Result<Place> {
        let (policy, beside) = (begun.policy, self.servers.beside(&self.config.host));
        let answer = self.call(TakeSpares { policy, count: 1, beside, for_moves: true }, self.own_op()).await?;
        self.servers.learn(&answer.containers);
        let none = || stays(begun.inode, "the metadata server gave no other");
        let (chunk, container) = answer.spares.first().copied().ok_or_else(none)?;
        if !self.servers.is_on(&self.config.host, container) {
            self.call(ReturnSpares { chunks: vec![chunk] }, self.own_op()).await?;
            return Err(stays(begun.inode, "no server on this host takes it"));
        }
        Ok(Place { chunk, container })
    }

    async fn bring_to(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        is_placed: &mut bool,
        op: Op,
    ) -> Result<()> {
        let data = self.data_ranges_with(inode, begun.index, false, op).await?;
        self.make_here(begun, to, op).await?;
        let mut speed = Speed::default();
        self.follow(inode, begun, to, in_chunk(&data, begun.base()), &mut speed, op).await?;
        // All but the rest is on stable storage and read back before anybody has to wait.
        let long = self.config.deadline + Duration::from_secs(begun.policy.chunk_bytes / SLOWEST_PER_S);
        self.sync_here(begun, to, Op { deadline: Deadline::after(&self.env, long), ..op }).await?;
        self.read_back(begun, to, op).await?;
        self.place_here(inode, begun, to, speed, is_placed, op).await
    }

    /// Copies this, and what is written meanwhile, until that is little.
    async fn follow(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        mut left: RangeSet,
        speed: &mut Speed,
        op: Op,
    ) -> Result<()> {
        for round in 0..ROUNDS {
            let (begin, bytes) = (self.now(), bytes_in(&left));
            self.copy_here(inode, begun, to, &left, op).await?;
            speed.adds(bytes, self.now().since(begin));
            if round + 1 == ROUNDS || begun.has_written() * LITTLE <= begun.policy.chunk_bytes {
                return Ok(());
            }
            left = begun.take_written();
        }
        Ok(())
    }

    /// With all that is written held up.
    async fn place_here(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        mut speed: Speed,
        is_placed: &mut bool,
        op: Op,
    ) -> Result<()> {
        // Somebody may save all that is buffered of it, which takes its time and goes on meanwhile.
        let (_order, _) = self.in_order(inode, self.own_op()).await?;
        // Nobody is told from here on that anything is durable. What was said before is.
        let within = Op { deadline: Deadline::after(&self.env, HELD), ..op };
        let held = self.env.timeout(HELD, self.hold(inode, begun, to, &mut speed, within)).await;
        let late = |_| stays(inode, "it takes too long, and others wait for it");
        let Held { pass, quiet: _quiet, layout_gen, room } = held.map_err(late)??;
        let (index, from, spare) = (begun.index, begun.chunk, to.chunk);
        let trunc_gen = begun.trunc_gen;
        let inode_ref = self.cache.inode(inode.id);
        let message = MoveChunk { inode: inode_ref, index, from, to: spare, trunc_gen, why: MoveKind::Moved };
        let put = self.call_while(message, When::Marked, self.own_op(), still(inode, pass.lapses)).await;
        *is_placed = true;
        if !matches!(put, Ok(true)) {
            self.until_placed_or_not(inode, begun, &pass, spare).await?;
            if inode.state.lock().body.slot(index).is_none_or(|slot| slot.chunk != spare) {
                return put.and(Err(stays(inode, "another is in its place")));
            }
        }
        self.is_here(inode, begun, to, room, layout_gen);
        Ok(())
    }

    /// Until this is dropped nothing is sent, and nothing but [`MoveChunk`] is left to be done.
    async fn hold<'a>(
        self: &'a Arc<Self>,
        inode: &'a Arc<Inode>,
        begun: &Begun<'_>,
        to: Place,
        speed: &mut Speed,
        op: Op,
    ) -> Result<Held<'a>> {
        self.follow(inode, begun, to, begun.take_written(), speed, op).await?;
        self.sync_here(begun, to, op).await?;
        // Not asked for: whoever has it by now writes it.
        let pass = self.pass(inode, Want::Once, ByteRange::default());
        let pass = pass.filter(|pass| !pass.shared).ok_or_else(|| stays(inode, "others write it"))?;
        let quiet = self.quiet(inode, op).await?;
        self.goes_on(begun)?;
        // What was answered since the sync, and is not to be missed at the new place: it is written there like all else.
        let rest = self.take_back(inode, begun, speed, op).await?;
        let (now, index) = (self.now(), begun.index);
        let (layout_gen, room, wanted) = self.update(inode, |state| {
            pass.check(state)?;
            // Who has asked a server for them asks again.
            state.brought += 1;
            if !rest.is_empty() {
                state.unsaved = true;
                state.version += 1;
                state.dirty_since.get_or_insert(now);
            }
            rest.into_iter().for_each(|(offset, bytes)| state.dirty.insert_under(offset, bytes, ()));
            let room = state.body.slot(index).map_or(0, |slot| slot.room);
            Ok::<_, Error>((state.layout_gen, room, state.unanswered(index) + room))
        })?;
        self.wake.notify_one();
        if wanted > 0 {
            let route = self.route(&begun.policy, to.container, op).await?;
            self.ask_room(&route.lane, &[(to.chunk, to.container)], wanted, op).await?;
        }
        self.goes_on(begun)?;
        Ok(Held { pass, quiet, layout_gen, room: (wanted > 0).then_some(room) })
    }

    /// Under the right to write with which it began.
    fn goes_on(&self, begun: &Begun<'_>) -> Result<()> {
        let is_same = begun.is_same(&begun.inode.state.lock());
        match is_same && self.cache.may_send(begun.inode.id, self.now()) == Some(begun.token) {
            true => Ok(()),
            false => Err(stays(begun.inode, "its file was changed otherwise")),
        }
    }

    async fn take_back(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        begun: &Begun<'_>,
        speed: &Speed,
        op: Op,
    ) -> Result<Vec<(u64, Bytes)>> {
        let rest = begun.take_written();
        if !speed.is_soon(bytes_in(&rest)) {
            return Err(stays(inode, "it is written faster than it is copied"));
        }
        let rest: Vec<ByteRange> = rest.iter().collect();
        let mut taken = Vec::new();
        for piece in pieces(&rest) {
            let bytes = self.fetch_chunk(inode, begun.index, piece, Order::Any, op).await?;
            taken.push((begun.base() + piece.start, bytes));
        }
        Ok(taken)
    }

    /// The row names it.
    fn is_here(&self, inode: &Inode, begun: &Begun<'_>, to: Place, room: Option<u64>, layout_gen: LayoutGen) {
        let (index, from, Place { chunk: spare, container }) = (begun.index, begun.chunk, to);
        let before = self.update(inode, |state| {
            // Whatever was asked for before does not know of it.
            (state.brought, state.version) = (state.brought + 1, state.version + 1);
            match state.body.slot_mut(index) {
                Some(slot) if slot.chunk == from => {
                    let row = ChunkRef { index, chunk: spare, container, stable: true, frozen: false };
                    // What was used of it since is used there; and some of it is there in any case, to be given back.
                    let room = if room.is_some() { slot.room.min(room.unwrap_or(0)).max(1) } else { 0 };
                    let before = std::mem::replace(slot, ChunkSlot { room, ..ChunkSlot::committed(&row) });
                    // What was fetched meanwhile knows of it already.
                    if state.layout_gen == layout_gen {
                        state.layout_gen.0 = state.layout_gen.0.wrapping_add(1);
                    }
                    Some(before)
                }
                // Its lease is lost, or its map was fetched anew.
                found => {
                    if let Some(slot) = found.filter(|slot| slot.chunk == spare && room.is_some()) {
                        slot.room = slot.room.max(1);
                    }
                    state.stale = true;
                    None
                }
            }
        });
        self.cache.changed(inode.id);
        if let Some(before) = before.filter(|before| before.room > 0) {
            self.servers.release_room(from, before.container);
        }
        self.servers.forget_chunk(from);
        self.servers.forget_copy(begun.container, from);
        self.counters.chunks_brought.fetch_add(1, Relaxed);
        tracing::info!(
            inode = inode.id.0,
            chunk = from.0,
            to = spare.0,
            "a chunk that is written here was brought here"
        );
    }

    /// Whether the row was changed is not known, and nothing may be written before it is: to the old place it would be lost. Whichever of
    /// the change and of this comes first is the one that holds. Ends at the latest with the lease, and then nothing is written either.
    async fn until_placed_or_not(
        &self,
        inode: &Inode,
        begun: &Begun<'_>,
        pass: &Pass<'_>,
        spare: ChunkId,
    ) -> Result<()> {
        loop {
            let given = self.call(ReturnSpares { chunks: vec![spare] }, self.own_op()).await;
            let is_given = given.is_ok();
            let looked = match given {
                Ok(()) => {
                    // Maps that were asked for before are of before.
                    inode.state.lock().brought += 1;
                    self.refresh_chunk(inode, begun.index, self.own_op()).await
                }
                Err(error) => Err(error),
            };
            let Err(error) = looked else { return Ok(()) };
            if is_given && error.retry() == Retry::No {
                // The file is gone.
                inode.state.lock().stale = true;
                return Err(error);
            }
            if pass.is_over(&inode.state.lock()) {
                return Err(over(file_name(inode)));
            }
            tracing::debug!(%error, "whether a chunk has moved is not known yet");
            self.env.sleep(ASK_AGAIN).await;
        }
    }
}
