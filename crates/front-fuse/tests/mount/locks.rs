use crate::world::{World, checked, errno, on_mount, open, with_world};
use braid_front_fuse::{LockMode, MountConfig};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn lock_file(w: &World) -> File {
    open(&w.path("locked"), libc::O_RDWR | libc::O_CREAT).unwrap()
}

fn range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

fn fcntl(fd: RawFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the lock outlives the call, which may write into it.
    checked(unsafe { libc::fcntl(fd, command, std::ptr::from_mut(lock)) }.into()).map(drop)
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    checked(unsafe { libc::flock(file.as_raw_fd(), how) }.into()).map(drop)
}

/// What `act` returns in a child process: locks of fcntl belong to processes.
fn in_child(act: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child makes system calls and ends with _exit, as it must after a fork of many threads.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(act());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::WEXITSTATUS(status)
    }
}

#[test]
fn descriptors_exclude_each_other_by_range() {
    on_mount(|w| {
        let (a, b) = (lock_file(w), lock_file(w));
        let set =
            |file: &File, kind, start, len| fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut range(kind, start, len));
        set(&a, libc::F_WRLCK, 0, 10).unwrap();
        assert_eq!(errno(set(&b, libc::F_RDLCK, 5, 1)), libc::EAGAIN);
        set(&b, libc::F_WRLCK, 10, 0).unwrap();
        let mut found = range(libc::F_WRLCK, 0, 0);
        fcntl(a.as_raw_fd(), libc::F_OFD_GETLK, &mut found).unwrap();
        assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 10, 0));
        set(&a, libc::F_UNLCK, 0, 5).unwrap();
        set(&b, libc::F_RDLCK, 0, 5).unwrap();
    });
}

#[test]
fn a_process_loses_its_locks_with_any_close() {
    on_mount(|w| {
        let file = lock_file(w);
        fcntl(file.as_raw_fd(), libc::F_SETLK, &mut range(libc::F_WRLCK, 0, 0)).unwrap();
        let fd = file.as_raw_fd();
        let blocked = move || errno(fcntl(fd, libc::F_SETLK, &mut range(libc::F_WRLCK, 0, 0)));
        assert_eq!(in_child(blocked), libc::EAGAIN);
        let who = move || {
            let mut found = range(libc::F_WRLCK, 0, 0);
            let _ = fcntl(fd, libc::F_GETLK, &mut found);
            i32::from(found.l_pid as u32 == std::os::unix::process::parent_id())
        };
        assert_eq!(in_child(who), 1, "the holder's process is shown");
        drop(lock_file(w));
        assert_eq!(in_child(blocked), 0);
        // The child is gone, and its lock with it.
        assert_eq!(in_child(blocked), 0);
    });
}

#[test]
fn flock_waits_and_ends_with_the_descriptor() {
    on_mount(|w| {
        let (a, b) = (lock_file(w), lock_file(w));
        flock(&a, libc::LOCK_SH).unwrap();
        flock(&b, libc::LOCK_SH | libc::LOCK_NB).unwrap();
        assert_eq!(errno(flock(&b, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || send.send(flock(&b, libc::LOCK_EX)).unwrap());
            assert!(receive.recv_timeout(Duration::from_millis(200)).is_err());
            drop(a);
            receive.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
        });
        assert!(w.mounted.stats().waited.load(Ordering::Relaxed) > 0);
    });
}

extern "C" fn ignore(_signal: i32) {}

/// The waiting thread gets signals until it has noticed: the first may come before it waits.
fn interrupted(w: &World, wait: impl FnOnce(RawFd) -> io::Result<()> + Send) {
    let b = lock_file(w);
    // SAFETY: a handler that does nothing, without SA_RESTART, so that the system call ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let waiter = scope.spawn(move || {
            // SAFETY: no pointers.
            send.send(unsafe { libc::gettid() }).unwrap();
            wait(b.as_raw_fd())
        });
        let thread = receive.recv().unwrap();
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(200));
        while !waiter.is_finished() && begun.elapsed() < Duration::from_secs(20) {
            // SAFETY: a signal to a thread of this process, which the scope keeps from ending unseen.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(errno(waiter.join().unwrap()), libc::EINTR);
    });
}

#[test]
fn a_signal_ends_a_wait_for_a_range() {
    on_mount(|w| {
        let a = lock_file(w);
        fcntl(a.as_raw_fd(), libc::F_OFD_SETLK, &mut range(libc::F_WRLCK, 0, 0)).unwrap();
        interrupted(w, |fd| fcntl(fd, libc::F_OFD_SETLKW, &mut range(libc::F_WRLCK, 0, 0)));
        // The wait has left the queue: nobody stands in the way once the holder has gone.
        // It ends with the descriptor, of which the kernel tells some time after the close.
        drop(a);
        fcntl(lock_file(w).as_raw_fd(), libc::F_OFD_SETLKW, &mut range(libc::F_WRLCK, 0, 0)).unwrap();
    });
}

#[test]
fn a_signal_ends_a_wait_for_flock() {
    on_mount(|w| {
        let a = lock_file(w);
        flock(&a, libc::LOCK_EX).unwrap();
        // SAFETY: no pointers.
        interrupted(w, |fd| checked(unsafe { libc::flock(fd, libc::LOCK_EX) }.into()).map(drop));
    });
}

/// More than there are threads that serve, and more than a thread has room for at first: who would free the lock has to get in.
#[test]
fn many_that_wait_keep_nobody_out() {
    on_mount(|w| {
        let held = lock_file(w);
        flock(&held, libc::LOCK_EX).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..200 {
                let (send, waits) = (send.clone(), lock_file(w));
                scope.spawn(move || {
                    flock(&waits, libc::LOCK_EX).unwrap();
                    drop(waits);
                    send.send(()).unwrap();
                });
            }
            std::thread::sleep(Duration::from_millis(300));
            assert!(receive.try_recv().is_err(), "nobody has it yet");
            std::fs::write(w.path("beside"), b"others").unwrap();
            assert_eq!(std::fs::read(w.path("beside")).unwrap(), b"others");
            drop(held);
            (0..200).for_each(|_| receive.recv_timeout(Duration::from_secs(20)).unwrap());
        });
    });
}

#[test]
fn the_kernel_can_keep_locks_itself() {
    let config = MountConfig { locks: LockMode::Kernel, ..MountConfig::default() };
    with_world(config, Duration::from_secs(1), |w| {
        let (a, b) = (lock_file(w), lock_file(w));
        flock(&a, libc::LOCK_EX).unwrap();
        assert_eq!(errno(flock(&b, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
        fcntl(a.as_raw_fd(), libc::F_OFD_SETLK, &mut range(libc::F_WRLCK, 0, 1)).unwrap();
        let second = fcntl(b.as_raw_fd(), libc::F_OFD_SETLK, &mut range(libc::F_WRLCK, 0, 1));
        assert_eq!(errno(second), libc::EAGAIN);
    });
}
