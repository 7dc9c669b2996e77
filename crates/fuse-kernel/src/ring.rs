//! Requests over io_uring (Linux 6.14 and later, where root has switched it on): a request and the answer before it are one system call,
//! and go to a thread of the processor that asks.
//!
//! The kernel has a queue for each processor, and requests of a processor go to slots registered in its queue. Here each thread has a ring and slots of its own
//! in one queue; at most one of them is free when the thread goes to sleep, or as many as were answered meanwhile. While none is, the thread
//! registers another: a request that waits (for a lock that another request would free) must not keep others out.
//!
//! Promises: what an answer keeps ([`crate::Reply::holding`]) is dropped when the kernel has the answer, as if it had been written to `/dev/fuse`. A
//! thread ends when the connection is over and the kernel is done with its slots; memory that the kernel may still write to is never given back.
//! FORGET and INTERRUPT come by `/dev/fuse` as ever.

use crate::abi::ring;
use crate::slot::Slot;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Of a submission queue. More is submitted in several steps.
const SUBMISSIONS: u32 = 64;
/// Of one thread: that many of its requests may wait at once. Each holds what its largest payload took.
const SLOTS_MAX: usize = 4096;
/// Stands for the wake-up and for no slot.
const WAKE_UP: u64 = u64::MAX;

/// What is kept until the kernel has an answer.
pub(crate) type Kept = Box<dyn Send>;

/// A request that came by a ring, to be answered once.
pub(crate) struct Asked {
    ring: Arc<Answers>,
    /// With the thread of the ring again when it is answered.
    slot: Box<Slot>,
    number: usize,
}

impl Asked {
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// The answer is in the slot. False if nobody waits for it any more: the connection is over.
    pub fn answered(self, kept: Option<Kept>) -> bool {
        let Asked { ring, slot, number } = self;
        ring.push(Answer { slot, number, kept })
    }
}

struct Answer {
    slot: Box<Slot>,
    number: usize,
    kept: Option<Kept>,
}

/// Answers on their way to the thread of a ring, which alone may hand them to the kernel.
pub(crate) struct Answers {
    waiting: Mutex<Waiting>,
    /// The thread sleeps, or is about to: it is to be woken.
    sleeps: AtomicBool,
    wake_up: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    answers: Vec<Answer>,
    is_over: bool,
}

impl Answers {
    fn push(&self, answer: Answer) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return false;
        }
        waiting.answers.push(answer);
        drop(waiting);
        if self.sleeps.swap(false, SeqCst) {
            // It counts up to 2⁶⁴ and so never blocks.
            let _ = rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes());
        }
        true
    }
}

/// A thread's ring, in one queue of a connection.
pub(crate) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: Arc<OwnedFd>,
    queue: u16,
    payload_bytes: usize,
    /// Those that are with the kernel.
    slots: Vec<Option<Box<Slot>>>,
    with_kernel: usize,
    answers: Arc<Answers>,
    /// Of answers that are about to be submitted.
    kept: Vec<Kept>,
    /// What the wake-up is read into.
    woken: Box<u64>,
}

/// How many queues a connection has: one for each processor that this machine may have.
pub(crate) fn queues() -> io::Result<u16> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("processors {possible:?}")))
}

/// False where rings cannot be had: an older kernel, or they are forbidden here.
pub(crate) fn are_offered() -> bool {
    build().inspect_err(|error| tracing::debug!(%error, "no io_uring")).is_ok()
}

/// Keeps this thread on the processor whose requests it serves: that one is free when somebody on it has asked. Elsewhere another has to be woken,
/// which made an answer at hand take 60 µs and not 14 (and 30 to 40 by `/dev/fuse`).
fn stay_on(queue: u16) {
    let mut processors = CpuSet::new();
    if usize::from(queue) < CpuSet::MAX_CPU {
        processors.set(usize::from(queue));
        // It is not there now, or not for this process: then it asks nothing.
        if let Err(error) = sched_setaffinity(None, &processors) {
            tracing::debug!(%error, queue, "a FUSE thread runs anywhere");
        }
    }
}

fn build() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    // Completions are made in the thread that waits for them, and nowhere else.
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(SUBMISSIONS)
}

impl Ring {
    /// To be called by the thread that is to serve it. Until each queue has a slot the kernel sends nothing.
    pub fn new(device: Arc<OwnedFd>, queue: u16, max_write: u32) -> io::Result<Ring> {
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (waiting, sleeps) = (Mutex::default(), AtomicBool::new(false));
        let mut ring = Ring {
            uring: build()?,
            device,
            queue,
            // As in the pool: what comes with names and extended attributes may be longer than a small WRITE.
            payload_bytes: (max_write as usize).next_multiple_of(4096) + 4096,
            slots: Vec::new(),
            with_kernel: 0,
            answers: Arc::new(Answers { waiting, sleeps, wake_up }),
            kept: Vec::new(),
            woken: Box::new(0),
        };
        stay_on(queue);
        ring.listen()?;
        ring.add_slot()?;
        ring.submit(0)?;
        Ok(ring)
    }

    /// Serves until the connection is over. `serve` is given each request and what is to be answered; it copies the first out at once.
    pub fn run(mut self, mut serve: impl FnMut(Asked)) -> io::Result<()> {
        let mut done = Vec::new();
        while self.with_kernel > 0 || !self.is_over() {
            self.take_answers()?;
            if self.with_kernel == 0 && !self.is_over() {
                self.add_slot()?;
            }
            self.answers.sleeps.store(true, SeqCst);
            // What was answered before that woke nobody.
            let has_answers = !self.answers.waiting.lock().answers.is_empty();
            self.submit(if has_answers { 0 } else { 1 })?;
            self.answers.sleeps.store(false, SeqCst);
            done.extend(self.uring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (number, result) in done.drain(..) {
                if number == WAKE_UP {
                    self.listen()?;
                    continue;
                }
                self.with_kernel -= 1;
                let number = number as usize;
                let Some(slot) = self.slots.get_mut(number).and_then(Option::take) else { continue };
                match result {
                    0.. => {
                        serve(Asked { ring: self.answers.clone(), slot, number });
                        // Who asked is not to wait for the others that came with it.
                        self.take_answers()?;
                    }
                    _ => self.is_lost(-result),
                }
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.answers.waiting.lock().is_over
    }

    fn is_lost(&mut self, error: i32) {
        if !matches!(error, libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED) {
            // The slot is gone, and another takes its place.
            tracing::error!(error = %io::Error::from_raw_os_error(error), "the kernel refused a FUSE answer");
            return;
        }
        let answers = {
            let mut waiting = self.answers.waiting.lock();
            waiting.is_over = true;
            std::mem::take(&mut waiting.answers)
        };
        drop(answers);
    }

    /// Hands what has been answered to the kernel with the next submission.
    fn take_answers(&mut self) -> io::Result<()> {
        let answers = std::mem::take(&mut self.answers.waiting.lock().answers);
        for Answer { slot, number, kept } in answers {
            let entry = self.command(ring::COMMIT_AND_FETCH, slot.commit_id(), number, None);
            self.slots[number] = Some(slot);
            self.with_kernel += 1;
            self.kept.extend(kept);
            self.push(&entry)?;
        }
        Ok(())
    }

    fn add_slot(&mut self) -> io::Result<()> {
        if self.slots.len() >= SLOTS_MAX {
            tracing::warn!(
                "{SLOTS_MAX} FUSE requests wait: no more are taken from this processor until one is answered"
            );
            return Ok(());
        }
        let (slot, number) = (Slot::new(self.payload_bytes)?, self.slots.len());
        let entry = self.command(ring::REGISTER, 0, number, Some(&slot));
        self.slots.push(Some(slot));
        self.with_kernel += 1;
        self.push(&entry)
    }

    fn command(&self, command: u32, commit_id: u64, number: usize, register: Option<&Slot>) -> squeue::Entry128 {
        let mut of = [0; 80];
        of[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        of[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command).cmd(of);
        match register {
            Some(slot) => with_len(entry.addr(Some(slot.parts() as u64)).build(), 2),
            None => entry.build(),
        }
        .user_data(number as u64)
    }

    /// Is woken by whoever answers.
    fn listen(&mut self) -> io::Result<()> {
        let (fd, into) = (types::Fd(self.answers.wake_up.as_raw_fd()), std::ptr::from_mut(&mut *self.woken).cast());
        self.push(&opcode::Read::new(fd, into, 8).build().user_data(WAKE_UP).into())
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what entries point to lives as long as the ring: slots are kept in `slots` while they are with the kernel, and the
            // word that is read into and the descriptors belong to `self`.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
        }
    }

    /// Hands over what was pushed, and waits for so many completions.
    fn submit(&mut self, wanted: usize) -> io::Result<()> {
        loop {
            match self.uring.submit_and_wait(wanted) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Completions have to be taken first; nothing is lost.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => break,
                Err(error) => return Err(error),
            }
        }
        self.kept.clear();
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After a failure the kernel may have slots still, and write to them.
        self.slots.drain(..).flatten().for_each(|slot| _ = Box::leak(slot));
        self.answers.waiting.lock().is_over = true;
    }
}

/// The length of what is at its address, which [`opcode::UringCmd80`] cannot say.
fn with_len(entry: squeue::Entry128, len: u32) -> squeue::Entry128 {
    /// Where a submission has its length.
    const LEN: usize = 24;
    // SAFETY: both are 128 bytes without padding (the kernel's `io_uring_sqe`, which the crate says is `repr(C)`), and any bytes are one.
    let mut bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
    bytes[LEN..LEN + 4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: as above.
    unsafe { std::mem::transmute(bytes) }
}
