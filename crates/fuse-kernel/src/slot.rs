//! Memory through which one request at a time comes over io_uring, and its answer goes back.
//!
//! A slot is with the kernel, or with whoever has its request: the thread of its ring until the request has been copied out, then the one
//! `Reply` until the answer is in it. Nobody else touches the memory, which is what its raw pointers rely on, and it is dropped only when the kernel
//! is done with it (`ring.rs`).

use crate::abi::{IN_HEADER_BYTES, ring};
use crate::buffers::{PAGE_BYTES, Pages};
use crate::device::out_header;
use std::io::{self, IoSlice};

pub(crate) struct Slot {
    /// One page of headers, then the payload.
    pages: Pages,
    payload_bytes: usize,
    /// The two parts, as the kernel is told of them. It reads this during the call that registers the slot.
    parts: [libc::iovec; 2],
}

// SAFETY: the mapping belongs to this value alone, `parts` points into it, and who may touch it when is said above.
unsafe impl Send for Slot {}
// SAFETY: as above; shared values are only compared and kept.
unsafe impl Sync for Slot {}

impl Slot {
    /// For payloads of up to `payload_bytes`, which take memory when they are first as long.
    pub fn new(payload_bytes: usize) -> io::Result<Box<Slot>> {
        let payload_bytes = payload_bytes.next_multiple_of(PAGE_BYTES);
        let pages = Pages::map(PAGE_BYTES + payload_bytes)?;
        // SAFETY: the second page is within the mapping.
        let payload = unsafe { pages.start().add(PAGE_BYTES) };
        let parts = [
            libc::iovec { iov_base: pages.start().cast(), iov_len: ring::HEADER_BYTES },
            libc::iovec { iov_base: payload.cast(), iov_len: payload_bytes },
        ];
        Ok(Box::new(Slot { pages, payload_bytes, parts }))
    }

    pub fn parts(&self) -> *const libc::iovec {
        self.parts.as_ptr()
    }

    fn headers(&self) -> *mut u8 {
        self.pages.start()
    }

    fn read_u32(&self, at: usize) -> u32 {
        debug_assert!(at + 4 <= ring::HEADER_BYTES);
        // SAFETY: within the page of headers, which the kernel is done with.
        unsafe { self.headers().add(at).cast::<u32>().read_unaligned() }
    }

    /// By what the answer is to name the request.
    pub fn commit_id(&self) -> u64 {
        // SAFETY: as in `read_u32`.
        unsafe { self.headers().add(ring::COMMIT_ID).cast::<u64>().read_unaligned() }
    }

    /// Puts the request together as `/dev/fuse` gives it, and says how long it is. `None` if its parts do not make one.
    pub fn copy_request(&self, space: &mut [u8]) -> Option<usize> {
        let (len, payload) = (self.read_u32(0) as usize, self.read_u32(ring::PAYLOAD_SIZE) as usize);
        let fixed = len.checked_sub(IN_HEADER_BYTES + payload)?;
        if fixed > ring::FIXED_BYTES_MAX || payload > self.payload_bytes || len > space.len() {
            return None;
        }
        let mut put = |at: usize, from: *const u8, bytes: usize| {
            // SAFETY: `from` has so many bytes in the mapping, as was compared above; `space` is another memory.
            space[at..at + bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        };
        put(0, self.headers(), IN_HEADER_BYTES);
        // SAFETY: both lie in the mapping.
        let (fixed_at, payload_at) = unsafe { (self.headers().add(ring::FIXED), self.headers().add(PAGE_BYTES)) };
        put(IN_HEADER_BYTES, fixed_at, fixed);
        put(IN_HEADER_BYTES + fixed, payload_at, payload);
        Some(len)
    }

    /// Puts the answer in. False if it is too long, and nothing is changed then.
    pub fn put_answer(&self, error: i32, unique: u64, body: &[IoSlice<'_>]) -> bool {
        let bytes: usize = body.iter().map(|piece| piece.len()).sum();
        if bytes > self.payload_bytes {
            return false;
        }
        let put = |at: usize, from: &[u8]| {
            // SAFETY: `at` and what follows lie in the mapping, as was compared above, and nobody else has a view of it.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.headers().add(at), from.len()) };
        };
        put(0, &out_header(error, unique, bytes));
        put(ring::PAYLOAD_SIZE, &(bytes as u32).to_ne_bytes());
        let mut at = PAGE_BYTES;
        for piece in body {
            put(at, piece);
            at += piece.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(slot: &Slot, at: usize, bytes: &[u8]) {
        // SAFETY: tests put what fits.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.headers().add(at), bytes.len()) };
    }

    #[test]
    fn a_request_in_parts_is_put_together_and_lengths_that_lie_are_refused() {
        let slot = Slot::new(8192).unwrap();
        let mut space = vec![0; 16384];
        put(&slot, 0, &(40 + 8 + 5_u32).to_ne_bytes());
        put(&slot, ring::FIXED, &7_u64.to_ne_bytes());
        put(&slot, PAGE_BYTES, b"name\0");
        put(&slot, ring::PAYLOAD_SIZE, &5_u32.to_ne_bytes());
        assert_eq!(slot.copy_request(&mut space), Some(53));
        assert_eq!((&space[40..48], &space[48..53]), (&7_u64.to_ne_bytes()[..], &b"name\0"[..]));
        for (len, payload) in [(39_u32, 0_u32), (40 + 129, 0), (u32::MAX, 5), (53, u32::MAX), (40 + 9000, 9000)] {
            put(&slot, 0, &len.to_ne_bytes());
            put(&slot, ring::PAYLOAD_SIZE, &payload.to_ne_bytes());
            assert_eq!(slot.copy_request(&mut space), None, "{len} {payload}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_changes_nothing() {
        let slot = Slot::new(4096).unwrap();
        assert!(slot.put_answer(0, 9, &[IoSlice::new(b"ab"), IoSlice::new(b"c")]));
        assert_eq!(slot.read_u32(ring::PAYLOAD_SIZE), 3);
        assert!(!slot.put_answer(-5, 9, &[IoSlice::new(&[0; 4097])]));
        assert_eq!((slot.read_u32(0), slot.read_u32(4)), (19, 0));
    }
}
