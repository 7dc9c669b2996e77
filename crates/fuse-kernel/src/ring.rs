//! Requests over io_uring (Linux 6.14 and later, where root has switched it on): they go to a thread of the processor that asks, and the answers
//! of those that came together are one system call, before the one that waits for the next.
//!
//! The kernel has a queue for each processor, and requests of a processor go to slots registered in its queue. Here each thread has a ring and slots of its own
//! in one queue, and registers more when few of them are free: a request that waits (for a lock that another request would free) must not keep others out.
//!
//! Promises: what an answer keeps ([`crate::Reply::holding`]) is dropped when the kernel has the answer, as if it had been written to `/dev/fuse`. A
//! thread ends when the connection is over and the kernel is done with its slots; memory that the kernel may still write to is never given back.
//! FORGET and INTERRUPT come by `/dev/fuse` as ever.

use crate::abi::ring;
use crate::buffers::PAGE_BYTES;
use crate::slot::Slot;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Of a submission queue. More is submitted in several steps.
const SUBMISSIONS: u32 = 64;
/// Of a completion queue: as many of a thread's slots may come back before it looks.
const COMPLETIONS: u32 = 1024;
/// A thread that has fewer free slots registers [`STOCK`] more. What comes while a queue has none waits in the kernel until another answer is given on that processor:
/// to register a slot brings it nothing. So none must be rare, and a burst of as many requests that all wait is.
const FREE_MIN: usize = STOCK / 2;
const STOCK: usize = 64;
/// Of one thread: that many of its requests may wait at once. Each holds what its largest payload took.
const SLOTS_MAX: usize = 4096;
/// Before what the kernel had no memory for is tried again.
const NO_MEMORY: Duration = Duration::from_millis(10);
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
    /// Nobody waits for answers any more; what they kept is dropped.
    fn end(&self) {
        let answers = {
            let mut waiting = self.waiting.lock();
            waiting.is_over = true;
            std::mem::take(&mut waiting.answers)
        };
        drop(answers);
    }

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
    /// Completions that have been taken: the user data and the result.
    done: VecDeque<(u64, i32)>,
}

/// How many queues a connection has: one for each processor that this machine may have.
pub(crate) fn queues() -> io::Result<u16> {
    Ok(processors("possible")?.last().map_or(1, |last| last + 1))
}

/// The processors that are there.
pub(crate) fn online() -> io::Result<Vec<u16>> {
    processors("online")
}

fn processors(which: &str) -> io::Result<Vec<u16>> {
    let listed = std::fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
    numbers(listed.trim()).ok_or_else(|| io::Error::other(format!("{which} processors: {listed:?}")))
}

/// Of a list as Linux writes it, "0-3,8".
fn numbers(listed: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in listed.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?);
    }
    Some(numbers)
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
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(COMPLETIONS).build(SUBMISSIONS)
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
            payload_bytes: (max_write as usize).next_multiple_of(PAGE_BYTES) + PAGE_BYTES,
            slots: Vec::new(),
            with_kernel: 0,
            answers: Arc::new(Answers { waiting, sleeps, wake_up }),
            kept: Vec::new(),
            woken: Box::new(0),
            done: VecDeque::new(),
        };
        stay_on(queue);
        ring.listen()?;
        ring.add_slot()?;
        ring.submit(0)?;
        // What the kernel refuses it refuses at once: its pages may be larger than is known here, and its queues fewer.
        match ring.done.iter().find(|(number, result)| *number != WAKE_UP && *result < 0) {
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
            None => Ok(ring),
        }
    }

    /// Serves until the connection is over. `serve` is given each request and what is to be answered; it copies the first out at once.
    pub fn run(mut self, mut serve: impl FnMut(Asked)) -> io::Result<()> {
        while self.with_kernel > 0 || !self.is_over() {
            self.take_answers()?;
            if !self.kept.is_empty() {
                // The wait below ends with the next request, which may be hours away: others would wait for what this answer keeps.
                // It is a system call more, 0.3 µs of 14.
                self.submit(0)?;
            }
            self.keep_stock();
            self.answers.sleeps.store(true, SeqCst);
            // What was answered before that woke nobody.
            let has_answers = !self.answers.waiting.lock().answers.is_empty();
            self.submit(if has_answers || !self.done.is_empty() { 0 } else { 1 })?;
            self.answers.sleeps.store(false, SeqCst);
            while let Some((number, result)) = self.done.pop_front() {
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
                        if !self.done.is_empty() {
                            // Who asked is not to wait for the others that came with it.
                            self.take_answers()?;
                            self.submit(0)?;
                        }
                    }
                    _ => self.is_lost(-result)?,
                }
            }
        }
        Ok(())
    }

    /// So many free slots that requests which wait keep no others out.
    fn keep_stock(&mut self) {
        if self.with_kernel >= FREE_MIN || self.is_over() {
            return;
        }
        while self.with_kernel < STOCK {
            if let Err(error) = self.add_slot() {
                // It goes on with those that it has, and with what is answered next.
                tracing::debug!(%error, queue = self.queue, "a FUSE thread takes no more for now");
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.answers.waiting.lock().is_over
    }

    /// A slot that comes back with an error. The connection is over, or the kernel takes no answers any more.
    fn is_lost(&mut self, error: i32) -> io::Result<()> {
        if !matches!(error, libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED) {
            // Whoever waits for that answer waits for ever, unless the connection ends.
            return Err(io::Error::from_raw_os_error(error));
        }
        self.answers.end();
        Ok(())
    }

    /// Hands what has been answered to the kernel with the next submission.
    fn take_answers(&mut self) -> io::Result<()> {
        let answers = std::mem::take(&mut self.answers.waiting.lock().answers);
        for Answer { slot, number, kept } in answers {
            let entry = self.command(ring::COMMIT_AND_FETCH, slot.commit_id(), number, None);
            self.slots[number] = Some(slot);
            self.with_kernel += 1;
            self.push(&entry)?;
            self.kept.extend(kept);
        }
        Ok(())
    }

    fn add_slot(&mut self) -> io::Result<()> {
        if self.slots.len() >= SLOTS_MAX {
            return Err(io::Error::other(format!("{SLOTS_MAX} FUSE requests wait for their answers")));
        }
        let (slot, number) = (Slot::new(self.payload_bytes)?, self.slots.len());
        let entry = self.command(ring::REGISTER, 0, number, Some(&slot));
        self.slots.push(Some(slot));
        self.push(&entry)?;
        self.with_kernel += 1;
        Ok(())
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

    /// Hands over what was pushed, waits for so many completions, and takes those that there are.
    fn submit(&mut self, wanted: usize) -> io::Result<()> {
        loop {
            match self.uring.submit_and_wait(wanted) {
                Ok(_) => break,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Completions have to be taken first, which is done below; nothing is lost.
                    Some(libc::EBUSY) => break,
                    // The kernel has no memory for it at the moment. Whoever ended here would leave its callers waiting for ever.
                    Some(libc::EAGAIN) => thread::sleep(NO_MEMORY),
                    _ => return Err(error),
                },
            }
        }
        let done = self.uring.completion().map(|entry| (entry.user_data(), entry.result()));
        self.done.extend(done);
        if self.uring.submission().is_empty() {
            self.kept.clear();
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After a failure the kernel may have slots still, and write to them.
        self.slots.drain(..).flatten().for_each(|slot| _ = Box::leak(slot));
        self.answers.end();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,8,10-11"), Some(vec![0, 1, 2, 8, 10, 11]));
        assert!(numbers("").is_none() && numbers("1-x").is_none());
    }
}
