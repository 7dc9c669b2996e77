use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE_BYTES: usize = 4096;
/// 4 KiB, 16 KiB, … 64 MiB: a payload is in a buffer of at most four times its size.
const CLASSES: usize = 8;

/// Aligned so that a payload can be written to a disk as it is, whatever way the disk is opened.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Recycled, page-aligned buffers in a few sizes: a fresh one costs its page faults, which at 1 MiB take longer
/// than the copy from the socket. Free buffers are kept up to a bound, over which they are really freed.
pub struct BufferPool {
    free: [Mutex<Vec<Box<[Page]>>>; CLASSES],
    free_bytes: AtomicUsize,
    free_bytes_max: usize,
}

/// A buffer from a pool, to which it returns when dropped, also as a [`Bytes`].
pub struct Buffer {
    pages: Box<[Page]>,
    len: usize,
    pool: Arc<BufferPool>,
}

fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << (2 * class)
}

fn class_of(bytes: usize) -> usize {
    (0..CLASSES).find(|&class| bytes <= class_bytes(class)).unwrap_or(CLASSES - 1)
}

impl BufferPool {
    pub const BUFFER_BYTES_MAX: usize = PAGE_BYTES << (2 * (CLASSES - 1));

    pub fn new(free_bytes_max: usize) -> Arc<Self> {
        Arc::new(BufferPool { free: Default::default(), free_bytes: AtomicUsize::new(0), free_bytes_max })
    }

    /// A buffer of length 0 with room for `bytes`, at most [`BufferPool::BUFFER_BYTES_MAX`].
    pub fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let class = class_of(bytes);
        let found = self.free[class].lock().pop();
        let pages = match found {
            Some(pages) => {
                self.free_bytes.fetch_sub(class_bytes(class), Relaxed);
                pages
            }
            None => vec![Page([0; PAGE_BYTES]); class_bytes(class) / PAGE_BYTES].into(),
        };
        Buffer { pages, len: 0, pool: self.clone() }
    }

    /// Bytes in buffers that wait for use.
    pub fn free_bytes(&self) -> usize {
        self.free_bytes.load(Relaxed)
    }

    fn give_back(&self, pages: Box<[Page]>) {
        let bytes = pages.len() * PAGE_BYTES;
        if bytes == 0 {
            return;
        }
        if self.free_bytes.fetch_add(bytes, Relaxed) + bytes > self.free_bytes_max {
            self.free_bytes.fetch_sub(bytes, Relaxed);
            return;
        }
        self.free[class_of(bytes)].lock().push(pages);
    }
}

impl Buffer {
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// All of it, filled or not. What was not filled holds zeros or bytes of an earlier use.
    pub fn room(&mut self) -> &mut [u8] {
        let bytes = self.capacity();
        // SAFETY: the pages are one allocation of `bytes` initialised bytes without padding, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), bytes) }
    }

    /// How many bytes are filled; at most the capacity.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }

    /// The filled bytes, without a copy; the buffer returns to its pool with the last clone.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` never exceeds the pages, which are initialised bytes without padding, borrowed shared.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_bytes_are_dropped() {
        let pool = BufferPool::new(8 << 20);
        let mut buffer = pool.take(1 << 20);
        assert_eq!((buffer.capacity(), buffer.room().as_ptr() as usize % PAGE_BYTES), (1 << 20, 0));
        buffer.room()[..3].copy_from_slice(b"abc");
        buffer.set_len(3);
        let bytes = buffer.freeze();
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!((&part[..], pool.free_bytes()), (&b"bc"[..], 0));
        let at = part.as_ptr() as usize - 1;
        drop(part);
        assert_eq!(pool.free_bytes(), 1 << 20);
        assert_eq!(pool.take(1 << 20).room().as_ptr() as usize, at);
    }

    #[test]
    fn free_buffers_are_bounded() {
        let pool = BufferPool::new(2 << 20);
        let taken: Vec<_> = (0..5).map(|_| pool.take(1 << 20)).collect();
        drop(taken);
        assert_eq!(pool.free_bytes(), 2 << 20);
    }

    #[test]
    fn small_payloads_take_small_buffers() {
        let pool = BufferPool::new(0);
        for (bytes, capacity) in [(0, 4096), (4096, 4096), (4097, 16384), (1 << 20, 1 << 20), (5 << 20, 16 << 20)] {
            assert_eq!(pool.take(bytes).capacity(), capacity);
        }
        assert_eq!(BufferPool::BUFFER_BYTES_MAX, 64 << 20);
    }
}
