//! Serving: threads that read requests and hand them to the file system.
//!
//! Each thread has its own descriptor of the connection and its own buffer. A thread serves one request at a time; a file system
//! that has to wait moves the `Reply` elsewhere and returns. A panic in the file system is one EIO and one line in the log.

use crate::abi::opcode;
use crate::buffers::{Buffer, Pool};
use crate::channel::Channel;
use crate::decode::{Dialect, Header, decode};
use crate::device::{clone_device, read_request};
use crate::init::{Config, InitFlags, Negotiated};
use crate::mount::Mount;
use crate::mountinfo::{DeviceNumber, set_device_read_ahead_kb};
use crate::notify::Notifier;
use crate::passthrough::BackingFile;
use crate::reply::{Reply, Way};
use crate::request::Request;
use crate::ring::{self, Ring};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Buffers beside those of the threads that stay when they are not needed: enough for the writes the kernel has under way by itself.
const IDLE_BUFFERS_MAX: usize = 64;

/// A file system that answers requests.
pub trait Dispatch: Send + Sync + 'static {
    /// Before the first request.
    fn init(&self, _negotiated: &Negotiated, _notifier: &Notifier) {}

    /// One request. What is borrowed in it ends with the call; the reply may live on.
    fn dispatch(&self, request: Request<'_>, reply: Reply);

    /// After the last request, once.
    fn destroy(&self) {}
}

/// A mount that is being served. Dropping it detaches the mount and does not wait for the threads.
pub struct Session {
    mount: Mount,
    device: Arc<OwnedFd>,
    negotiated: Negotiated,
    threads: Vec<JoinHandle<()>>,
}

/// Agrees with the kernel on the protocol and starts `threads` threads that serve `file_system`.
pub fn serve<D: Dispatch>(
    channel: Channel,
    config: &Config,
    threads: usize,
    file_system: Arc<D>,
) -> io::Result<Session> {
    let kept = (config.kept_bytes / u64::from(config.max_write.max(1))).min(IDLE_BUFFERS_MAX as u64);
    let pool = Pool::new(config.max_write, threads + kept as usize);
    let mut config = config.clone();
    if config.want.contains(InitFlags::OVER_IO_URING) && !ring::are_offered() {
        config = config.without(InitFlags::OVER_IO_URING);
    }
    let mut negotiated = channel.handshake(&config, &pool)?;
    if negotiated.flags.contains(InitFlags::OVER_IO_URING) {
        // Two at least: one may wait for a disk.
        negotiated.threads = (threads / ring::online()?.len().max(1)).max(2);
    } else {
        negotiated.threads = threads.max(1);
    }
    let Channel { mount, device } = channel;
    if let (Some(kb), Some(number)) = (config.read_ahead_kb, mount.device)
        && let Err(error) = set_device_read_ahead_kb(number, kb)
    {
        tracing::debug!(%error, "read-ahead stays as it is");
    }
    file_system.init(&negotiated, &Notifier::new(&device));
    let dialect = Dialect { setxattr_ext: negotiated.flags.contains(InitFlags::SETXATTR_EXT) };
    let served = Arc::new(Served { file_system });
    let mut session = Session { mount, device, negotiated, threads: Vec::with_capacity(threads) };
    let rings = negotiated.flags.contains(InitFlags::OVER_IO_URING);
    // By the device come FORGET and INTERRUPT alone then.
    for number in 0..if rings { 2 } else { negotiated.threads } {
        // The first thread has the descriptor of the mount, the others one of their own.
        let device = if number == 0 { session.device.clone() } else { Arc::new(clone_device(&session.device)?) };
        let (pool, served) = (pool.clone(), served.clone());
        let run = move || Worker { device, pool, dialect, served }.run();
        session.threads.push(thread::Builder::new().name(format!("fuse-{number}")).spawn(run)?);
    }
    if rings {
        let worker = |device, pool| Worker { device, pool, dialect, served: served.clone() };
        if let Err(error) = session.start_rings(&pool, worker) {
            // Until each queue is there the kernel answers nobody. Who waits for it is told.
            let _ = session.abort();
            return Err(error);
        }
    }
    Ok(session)
}

impl Session {
    /// Threads of which each processor has its own.
    fn start_rings<D: Dispatch>(
        &mut self,
        pool: &Arc<Pool>,
        worker: impl Fn(Arc<OwnedFd>, Arc<Pool>) -> Worker<D>,
    ) -> io::Result<()> {
        let (queues, online) = (ring::queues()?, ring::online()?);
        let (send, started) = mpsc::channel();
        // Of a processor that is not there nobody asks, but its queue has to be there.
        let each = |queue| if online.contains(&queue) { self.negotiated.threads } else { 1 };
        for (queue, number) in (0..queues).flat_map(|queue| (0..each(queue)).map(move |number| (queue, number))) {
            let (worker, send) = (worker(self.device.clone(), pool.clone()), send.clone());
            let (max_write, abort) = (self.negotiated.max_write, self.mount.abort_by_others());
            let run = move || {
                let (ring, is_there) = match Ring::new(worker.device.clone(), queue, max_write) {
                    Ok(ring) => (Some(ring), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = send.send(is_there);
                // Whoever waits for the last of them is not to wait for this thread's end.
                drop(send);
                let Some(ring) = ring else { return };
                if let Err(error) = worker.serve_ring(ring) {
                    tracing::error!(%error, "FUSE over io_uring failed (was it switched off in the kernel?): the mount ends");
                    // Else what this processor asks would wait for ever.
                    let _ = abort.abort();
                }
            };
            self.threads.push(thread::Builder::new().name(format!("fuse-{queue}.{number}")).spawn(run)?);
        }
        drop(send);
        started.into_iter().collect()
    }

    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    pub fn mount_point(&self) -> &Path {
        &self.mount.point
    }

    /// The number of the mounted file system, where it could be found out.
    pub fn device_number(&self) -> Option<DeviceNumber> {
        self.mount.device
    }

    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// Registers an open file for passthrough.
    pub fn backing_file(&self, file: impl AsFd) -> io::Result<BackingFile> {
        BackingFile::open(&self.device, file.as_fd())
    }

    /// Unmounts; `ResourceBusy` while the mount is in use. The threads end when the kernel is done.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.mount.unmount()
    }

    /// Takes the mount out of sight now; it is served until its last user is gone.
    pub fn detach(&mut self) -> io::Result<()> {
        self.mount.detach()
    }

    /// Ends the connection at once: every request under way and to come fails, and the mount is gone.
    pub fn abort(&mut self) -> io::Result<()> {
        self.mount.abort()
    }

    /// Waits until the file system is unmounted, by whomever, and the last request is served.
    pub fn join(mut self) {
        for thread in self.threads.drain(..) {
            // A worker does not panic: the file system's panics are caught.
            let _ = thread.join();
        }
    }
}

/// The file system, told of its end by the last thread.
struct Served<D: Dispatch> {
    file_system: Arc<D>,
}

impl<D: Dispatch> Drop for Served<D> {
    fn drop(&mut self) {
        self.file_system.destroy();
    }
}

struct Worker<D: Dispatch> {
    device: Arc<OwnedFd>,
    pool: Arc<Pool>,
    dialect: Dialect,
    served: Arc<Served<D>>,
}

impl<D: Dispatch> Worker<D> {
    fn run(self) {
        if let Err(error) = self.serve_all() {
            tracing::error!(%error, "a FUSE thread ends");
        }
    }

    fn serve_all(&self) -> io::Result<()> {
        let mut buffer = self.pool.take()?;
        loop {
            let read = read_request(&self.device, self.room(&mut buffer)?)?;
            let Some(bytes) = read else { return Ok(()) };
            self.serve_one(&buffer, bytes, Way::Device(self.device.clone()));
        }
    }

    /// The same by a ring.
    fn serve_ring(&self, ring: Ring) -> io::Result<()> {
        let mut buffer = self.pool.take()?;
        ring.run(|asked| {
            let copied = self.room(&mut buffer).map(|space| asked.slot().copy_request(space));
            match copied {
                Ok(Some(bytes)) => self.serve_one(&buffer, bytes, Way::Ring(asked)),
                broken => {
                    tracing::error!(?broken, "a FUSE request that cannot be taken");
                    let unique = asked.slot().commit_id();
                    Reply::new(Way::Ring(asked), unique, 0).error(libc::EIO);
                }
            }
        })
    }

    /// Where the next request is to be put. Another buffer if the last payload was kept.
    fn room<'a>(&self, buffer: &'a mut Arc<Buffer>) -> io::Result<&'a mut [u8]> {
        if Arc::get_mut(buffer).is_none() {
            *buffer = self.pool.take()?;
        }
        Ok(Arc::get_mut(buffer).ok_or(io::ErrorKind::OutOfMemory)?.space())
    }

    fn serve_one(&self, buffer: &Arc<Buffer>, bytes: usize, way: Way) {
        let request = buffer.request(bytes);
        let Ok(header) = Header::decode(request) else {
            tracing::error!(bytes, "a FUSE request without a header");
            return;
        };
        let reply = Reply::new(way, header.unique, header.opcode);
        match decode(&header, request, Some(buffer), self.dialect) {
            Ok(Some(request)) => {
                let call = AssertUnwindSafe(|| self.served.file_system.dispatch(request, reply));
                if catch_unwind(call).is_err() {
                    tracing::error!(opcode = header.opcode, "the file system panicked");
                }
            }
            // The kernel's answer to a question this crate never asks.
            Ok(None) if header.opcode == opcode::NOTIFY_REPLY => reply.none(),
            Ok(None) => reply.error(libc::ENOSYS),
            Err(malformed) => {
                tracing::error!(opcode = header.opcode, bytes, "{malformed}");
                reply.error(libc::EIO);
            }
        }
    }
}
