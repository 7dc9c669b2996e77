//! The keys of hash tables, from the seed.
//!
//! `HashMap` draws its keys from the operating system once a thread, and with them the order in which it is walked
//! through. Servers and clients use such maps where the order means nothing, and sometimes it means a little: which
//! message goes first. So a world runs on a thread of its own on which `getrandom` answers from the seed; then the
//! order is part of the history, and other seeds try other orders.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};

thread_local! {
    /// Zero: this thread simulates nothing.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// From now on this thread's entropy is `seed`'s. Call before the thread makes its first hash table.
pub fn simulate(seed: u64) {
    // Any odd number is not zero.
    STATE.set(seed << 1 | 1);
}

/// The next eight bytes (SplitMix64).
fn next(state: &Cell<u64>) -> [u8; 8] {
    state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15) | 1);
    let mut z = state.get();
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Takes the place of the C library's function of this name in the simulator's programs.
///
/// # Safety
///
/// As for getrandom(2): `buf` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buf: *mut c_void, len: usize, flags: c_uint) -> isize {
    STATE.with(|state| {
        if state.get() == 0 {
            // SAFETY: the same call with the same arguments, past the function we replaced.
            return unsafe { libc::syscall(libc::SYS_getrandom, buf, len, flags) } as isize;
        }
        // SAFETY: the caller says that there is room for `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
        bytes.chunks_mut(8).for_each(|piece| piece.copy_from_slice(&next(state)[..piece.len()]));
        len as isize
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    fn order(seed: u64) -> Vec<u32> {
        std::thread::spawn(move || {
            super::simulate(seed);
            HashSet::<u32>::from_iter(0..50).into_iter().collect()
        })
        .join()
        .expect("nothing panics")
    }

    #[test]
    fn hash_tables_are_walked_through_in_the_seeds_order() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
