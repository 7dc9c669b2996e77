//! Reads of chunks whose server is on this host, without asking it (docs/design/0013-local-reads.md).
//!
//! The first read of a chunk asks as any other and has its files asked for beside it. What was handed out is believed as long as its
//! server's board says so, looked at before and after each read; what is not believed any more is given up, and that read asks.

use crate::core::{Core, Op};
use crate::lru::Lru;
use crate::servers::Lane;
use braid_api::data::{LocalOpened, OpenLocal};
use braid_api::meta::Cuts;
use braid_api::{Code, Error, Result};
use braid_env::{Monotonic, WaitPlace};
use braid_local::{HandOut, LocalFetch, LocalRead};
use braid_types::{ByteRange, ChunkId, ContainerId, Token, TruncGen};
use braid_wire::BufferPool;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;

/// With three descriptors each, well below the 1,024 that a process has at least: 8 GiB of chunks of 64 MiB.
const CHUNKS_MAX: usize = 128;
/// A server that refused is not asked again for this long: it hands out nothing, or the chunk is changing.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Two clocks that differ by more are not the same one, read one after the other.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(60);

/// Buffers that are kept for the next reads: as many as there are threads of a kernel's requests, of the largest they ask for.
const POOL_BYTES: usize = 8 << 20;

/// Reads ahead that wait for a disk at once: one of the four I/O threads is left for others.
const AHEAD_AT_ONCE: usize = 3;
/// As with a server that does not answer: after that another copy may be asked.
const AHEAD_PATIENCE: Duration = Duration::from_secs(1);

pub struct LocalReads {
    chunks: Mutex<Lru<ChunkId, Held>>,
    pool: Arc<BufferPool>,
    ahead: Arc<Semaphore>,
}

enum Held {
    /// Its files are being asked for.
    Asked,
    Open(Arc<HandOut>, TruncGen),
    Refused(Monotonic),
}

impl Default for LocalReads {
    fn default() -> Self {
        let ahead = Arc::new(Semaphore::new(AHEAD_AT_ONCE));
        LocalReads { chunks: Mutex::new(Lru::new(CHUNKS_MAX)), pool: BufferPool::new(POOL_BYTES), ahead }
    }
}

impl LocalReads {
    /// Gives back files that are not to be read any more, of chunks that nobody asks for: what was deleted occupies its disk as long as
    /// somebody has it open.
    pub fn let_go(&self, now: Monotonic) {
        self.chunks.lock().retain(|_, held| match held {
            Held::Open(hand_out, _) => hand_out.holds(|| now),
            Held::Asked | Held::Refused(_) => true,
        });
    }
}

fn buffer_len(range: ByteRange) -> Option<usize> {
    usize::try_from(range.len()).ok().filter(|len| *len <= BufferPool::BUFFER_BYTES_MAX)
}

/// A chunk to be read, and how that is asked for.
pub struct LocalAsk<'a> {
    pub chunk: ChunkId,
    pub container: ContainerId,
    pub range: ByteRange,
    pub cuts: &'a Cuts,
    pub token: Token,
}

pub enum Local {
    Read(Bytes),
    /// It would have had to wait for the disk, which this thread must not.
    Waits(Arc<HandOut>),
    /// The server is to be asked.
    No,
}

impl Core {
    /// The bytes, if they can be had so.
    pub fn read_local(self: &Arc<Self>, lane: &Arc<Lane>, ask: &LocalAsk<'_>) -> Local {
        if !self.config.local_reads || !lane.may_be_beside(&self.config.host) {
            return Local::No;
        }
        let now = || self.env.clock.now();
        let hand_out = {
            let mut chunks = self.local.chunks.lock();
            match chunks.get(&ask.chunk) {
                Some(Held::Open(hand_out, trunc_gen)) if *trunc_gen == ask.token.trunc_gen => Some(hand_out.clone()),
                Some(Held::Asked) => return Local::No,
                Some(Held::Refused(until)) if now() < *until => return Local::No,
                _ => {
                    chunks.insert(ask.chunk, Held::Asked);
                    None
                }
            }
        };
        let Some(hand_out) = hand_out else {
            self.ask_for_local(lane.clone(), ask);
            return Local::No;
        };
        let place = WaitPlace::take();
        let fetch = if place.is_some() { LocalFetch::Waiting } else { LocalFetch::Cached };
        let Some(len) = buffer_len(ask.range) else { return Local::No };
        let mut buffer = self.local.pool.take(len);
        match hand_out.read(ask.range.start, &mut buffer.room()[..len], fetch, now) {
            Some(LocalRead::Done) => {
                self.counters.local_reads.fetch_add(1, Relaxed);
                buffer.set_len(len);
                Local::Read(buffer.freeze())
            }
            Some(LocalRead::Waits) => Local::Waits(hand_out),
            // The server knows more; what was handed out may be good for other blocks.
            Some(LocalRead::Doubt) => Local::No,
            None => {
                let mut chunks = self.local.chunks.lock();
                // Unless it was handed out anew meanwhile.
                let is_it = |held: &Held| matches!(held, Held::Open(other, _) if Arc::ptr_eq(other, &hand_out));
                if chunks.get(&ask.chunk).is_some_and(|held| is_it(held)) {
                    chunks.insert(ask.chunk, Held::Asked);
                    drop(chunks);
                    self.ask_for_local(lane.clone(), ask);
                }
                Local::No
            }
        }
    }

    /// The same by a thread that may wait for the disk. `None`: the server is to be asked, which may have another copy asked.
    pub async fn read_local_in_pool(&self, hand_out: Arc<HandOut>, range: ByteRange, op: Op) -> Option<Bytes> {
        let len = buffer_len(range)?;
        let (clock, pool, places) = (self.env.clock.clone(), self.local.pool.clone(), self.local.ahead.clone());
        let reading = async move {
            let place = places.acquire_owned().await.ok()?;
            let read = self.env.blocking(move || {
                // Held by the read itself: one that is stuck is one place less, whoever waits for it.
                let _place = place;
                let mut buffer = pool.take(len);
                let now = || clock.now();
                let read = hand_out.read(range.start, &mut buffer.room()[..len], LocalFetch::Waiting, now);
                (read == Some(LocalRead::Done)).then(|| {
                    buffer.set_len(len);
                    buffer.freeze()
                })
            });
            read.await
        };
        let patience = op.deadline.left(&self.env).min(AHEAD_PATIENCE);
        let bytes = self.env.timeout(patience, reading).await.ok()??;
        self.counters.local_reads.fetch_add(1, Relaxed);
        Some(bytes)
    }

    fn ask_for_local(self: &Arc<Self>, lane: Arc<Lane>, ask: &LocalAsk<'_>) {
        let (core, chunk, token) = (self.clone(), ask.chunk, ask.token);
        let copies = lane.container().is_some();
        let message = OpenLocal { chunk, container: ask.container, cuts: ask.cuts.clone(), copies };
        self.spawn_for("files of a server on this host", braid_api::trace::current(), async move {
            let held = match core.open_local(&lane, token, message, core.own_op()).await {
                Ok(hand_out) => Held::Open(Arc::new(hand_out), token.trunc_gen),
                Err(error) => {
                    tracing::debug!(%chunk, %error, "reads ask");
                    Held::Refused(core.env.clock.now() + REFUSED_FOR)
                }
            };
            core.local.chunks.lock().insert(chunk, held);
        });
    }

    pub async fn open_local(&self, lane: &Lane, token: Token, message: OpenLocal, op: Op) -> Result<HandOut> {
        let chunk = message.chunk;
        let refused = |cause: &dyn std::fmt::Display| Error::new(Code::NotSupported, format!("chunk {chunk}"), cause);
        let (LocalOpened { ticket, socket, word, value, now }, _) =
            self.ask(lane, token, message, Bytes::new(), op).await?;
        let said = Monotonic(Duration::from_nanos(now));
        let own = self.env.clock.now();
        if own < said || own.since(said) > CLOCK_AGE_MAX {
            return Err(refused(&"its server has another clock"));
        }
        let taking = self.env.transport.take(Path::new(&socket), ticket);
        let files = self.env.timeout(op.deadline.left(&self.env), taking).await;
        let files = files.map_err(|late| refused(&late))?.map_err(|error| refused(&error))?;
        HandOut::of(files, word, value).ok_or_else(|| refused(&"what was handed out is something else"))
    }
}
