//! SIGINT and SIGTERM as something a thread waits for, so that the mount goes before the process does.

use std::io;
use std::mem::MaybeUninit;

fn ending_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set that `sigaddset` adds valid signals to, and neither can fail then.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        set.assume_init()
    }
}

/// Keeps the signals from ending the process; threads begun later inherit it.
pub fn block() -> io::Result<()> {
    let set = ending_signals();
    // SAFETY: the set is initialized, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits until one comes.
pub fn wait() {
    let set = ending_signals();
    let mut signal = 0;
    // SAFETY: both pointers are to initialized values that outlive the call.
    while unsafe { libc::sigwait(&set, &mut signal) } == libc::EINTR {}
}
