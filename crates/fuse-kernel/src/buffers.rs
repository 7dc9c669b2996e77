//! Request buffers: page-aligned, as large as the largest request, and used again.
//!
//! A reader thread owns one buffer and reads every request into it. Whoever wants to keep the payload of a WRITE takes a share
//! of the buffer; the thread then takes another from the pool, and the buffer comes back when the last share is dropped.
//! A request is read at such an offset that the payload of a WRITE begins on a page.
//!
//! Promises: a payload that is kept holds no more memory than its own pages and the page before them, however large the requests were
//! that were read into the buffer earlier. Buffers that wait to be used again are in memory only as long as there are no more buffers in
//! all than the pool was made for.

use crate::abi::{IN_HEADER_BYTES, WRITE_IN_BYTES};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

pub(crate) const PAGE_BYTES: usize = 4096;
/// Where the request begins, so that what follows the two fixed parts of a WRITE stands on the second page.
const REQUEST_START: usize = PAGE_BYTES - IN_HEADER_BYTES - WRITE_IN_BYTES;
/// A payload below this is copied when it is to be kept: a few microseconds against holding a whole buffer for few bytes.
const KEEP_BYTES_MIN: usize = 16 * 1024;

/// Memory behind a payload is given back from here on: below it the call costs more than it saves.
const GIVE_BACK_BYTES_MIN: usize = 16 * 1024;

/// A private anonymous mapping.
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
    /// What of it may be in memory: nothing was read beyond.
    touched: AtomicUsize,
}

// SAFETY: the mapping belongs to this value alone, and nothing about it is tied to the thread that made it.
unsafe impl Send for Pages {}
// SAFETY: a shared `Pages` only gives shared slices; writing needs `&mut`.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn map(len: usize) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, touched: AtomicUsize::new(0) })
    }

    /// Where they begin, for who sees to it that nobody has a slice of what is written through it.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Gives back what lies beyond `end`, of which nobody may have a slice.
    fn give_back_from(&self, end: usize) {
        let end = end.next_multiple_of(PAGE_BYTES).min(self.len);
        if self.touched.load(Relaxed) < end + GIVE_BACK_BYTES_MIN {
            return;
        }
        self.touched.store(end, Relaxed);
        // SAFETY: the range lies within the mapping, and the caller says that no slice of it is in use; it reads as zeros then.
        let given = unsafe { madvise(self.start.as_ptr().add(end).cast(), self.len - end, Advice::LinuxDontNeed) };
        debug_assert!(given.is_ok(), "{given:?}");
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `len` readable bytes, zeroed by the kernel, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and no slice of it can outlive `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Where buffers wait to be used again.
pub(crate) struct Pool {
    free: Mutex<Free>,
    buffers_max: usize,
    buffer_bytes: usize,
}

#[derive(Default)]
struct Free {
    idle: Vec<Pages>,
    /// Buffers that there are, also those in use.
    all: usize,
}

impl Pool {
    /// A pool of buffers for requests with payloads of up to `max_write`. As many are in use as are needed; one that comes back while there
    /// are more than `buffers_max` is given up.
    pub fn new(max_write: u32, buffers_max: usize) -> Arc<Self> {
        // One page before the payload, one behind it for what comes with names and extended attributes.
        let buffer_bytes = PAGE_BYTES + (max_write as usize).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        Arc::new(Self { free: Mutex::default(), buffers_max, buffer_bytes })
    }

    pub fn take(self: &Arc<Self>) -> io::Result<Arc<Buffer>> {
        let idle = self.free.lock().idle.pop();
        let pages = match idle {
            Some(pages) => pages,
            None => {
                let pages = Pages::map(self.buffer_bytes)?;
                self.free.lock().all += 1;
                pages
            }
        };
        Ok(Arc::new(Buffer { pages: Some(pages), pool: Arc::downgrade(self) }))
    }
}

/// A buffer that returns to its pool when the last share is dropped.
pub(crate) struct Buffer {
    /// Present until `drop`.
    pages: Option<Pages>,
    pool: Weak<Pool>,
}

impl Buffer {
    fn whole(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], Pages::as_slice)
    }

    /// The first `len` bytes of the request.
    pub fn request(&self, len: usize) -> &[u8] {
        if let Some(pages) = &self.pages {
            pages.touched.fetch_max(REQUEST_START + len, Relaxed);
        }
        self.whole().get(REQUEST_START..REQUEST_START + len).unwrap_or(&[])
    }

    /// Where the next request is to be read.
    pub fn space(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], |pages| &mut pages.as_mut_slice()[REQUEST_START..])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(pages), Some(pool)) = (self.pages.take(), self.pool.upgrade()) {
            let mut free = pool.free.lock();
            if free.all <= pool.buffers_max {
                free.idle.push(pages);
            } else {
                free.all -= 1;
                drop(free);
                drop(pages);
            }
        }
    }
}

/// The bytes a WRITE brought: to look at for the length of the call, or to keep.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    buffer: Option<&'a Arc<Buffer>>,
}

impl<'a> Payload<'a> {
    pub(crate) fn new(bytes: &'a [u8], buffer: Option<&'a Arc<Buffer>>) -> Self {
        Self { bytes, buffer }
    }

    pub fn as_slice(&self) -> &'a [u8] {
        self.bytes
    }

    /// The payload to keep. Without a copy from 16 KiB up: the request's buffer then belongs to it until it is dropped.
    pub fn to_bytes(&self) -> Bytes {
        match self.buffer {
            Some(buffer) if self.bytes.len() >= KEEP_BYTES_MIN => {
                let start = self.bytes.as_ptr() as usize - buffer.whole().as_ptr() as usize;
                if let Some(pages) = &buffer.pages {
                    // A WRITE has nothing behind its payload.
                    pages.give_back_from(start + self.bytes.len());
                }
                Bytes::from_owner(Share { buffer: buffer.clone(), start, len: self.bytes.len() })
            }
            _ => Bytes::copy_from_slice(self.bytes),
        }
    }
}

impl std::fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

struct Share {
    buffer: Arc<Buffer>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.whole()[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_payload_is_not_copied_and_returns_its_buffer() {
        let pool = Pool::new(1 << 20, 4);
        let mut buffer = pool.take().unwrap();
        Arc::get_mut(&mut buffer).unwrap().space()[80..80 + 65536].fill(7);
        let payload = Payload::new(&buffer.request(80 + 65536)[80..], Some(&buffer));
        assert_eq!(payload.as_slice().as_ptr() as usize % PAGE_BYTES, 0);
        let kept = payload.to_bytes();
        assert_eq!(kept.as_ptr(), payload.as_slice().as_ptr());
        let part = kept.slice(100..200);
        drop(kept);
        assert!(Arc::get_mut(&mut buffer).is_none(), "the thread sees that its buffer is in use");
        drop(buffer);
        assert_eq!(part[..], [7; 100]);
        assert_eq!(pool.free.lock().idle.len(), 0);
        drop(part);
        assert_eq!(pool.free.lock().idle.len(), 1);
    }

    #[test]
    fn small_payloads_are_copied_and_the_pool_is_bounded() {
        let pool = Pool::new(65536, 2);
        let mut buffers: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let kept = Payload::new(&buffers[0].request(100)[80..], Some(&buffers[0])).to_bytes();
        assert!(Arc::get_mut(&mut buffers[0]).is_some());
        assert_eq!(kept.len(), 20);
        drop(buffers);
        assert_eq!(counts(&pool), (2, 2));
        let again: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        drop(again);
        assert_eq!(counts(&pool), (2, 2));
    }

    /// Idle buffers, and all.
    fn counts(pool: &Pool) -> (usize, usize) {
        let free = pool.free.lock();
        (free.idle.len(), free.all)
    }

    /// Pages of the buffer that are in memory.
    fn resident(buffer: &Buffer) -> usize {
        let mut pages = vec![0u8; buffer.whole().len() / PAGE_BYTES];
        // SAFETY: `pages` has a byte for each page of the mapping.
        let asked = unsafe {
            libc::mincore(buffer.whole().as_ptr().cast_mut().cast(), buffer.whole().len(), pages.as_mut_ptr())
        };
        assert_eq!(asked, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn a_small_payload_does_not_hold_the_memory_of_a_large_request() {
        let pool = Pool::new(1 << 20, 4);
        let mut large = pool.take().unwrap();
        Arc::get_mut(&mut large).unwrap().space()[..80 + (1 << 20)].fill(7);
        drop(Payload::new(&large.request(80 + (1 << 20))[80..], Some(&large)).to_bytes());
        assert_eq!(resident(&large), 1 + 256);
        drop(large);
        let mut small = pool.take().unwrap();
        assert_eq!(resident(&small), 1 + 256, "it is the same");
        Arc::get_mut(&mut small).unwrap().space()[..80 + 65536].fill(9);
        let kept = Payload::new(&small.request(80 + 65536)[80..], Some(&small)).to_bytes();
        assert_eq!((resident(&small), &kept[..]), (1 + 16, &[9; 65536][..]));
    }
}
