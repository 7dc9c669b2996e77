//! Locks of ranges and of whole files.

use super::*;

fn range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

/// 0, or the errno.
fn lock(file: &File, command: i32, kind: i32, start: i64, len: i64) -> i32 {
    // SAFETY: the range outlives the call.
    errno(checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut range(kind, start, len)) }.into()))
}

pub fn processes_and_descriptors_lock_ranges(r: &Room) {
    let (mine, theirs) = (r.make("f", 100), r.open("f", 0));
    let set = |start, len| lock(&mine, libc::F_SETLK, libc::F_WRLCK, start, len);
    let child = |kind, start, len| in_child(|| lock(&theirs, libc::F_SETLK, kind, start, len));
    assert_eq!(set(0, 10), 0);
    assert_eq!(child(libc::F_WRLCK, 9, 1), libc::EAGAIN);
    assert_eq!(child(libc::F_RDLCK, 0, 1), libc::EAGAIN);
    assert_eq!(child(libc::F_WRLCK, 10, 0), 0, "and its end takes the lock from it");
    assert_eq!(set(10, 0), 0);
    assert_eq!(lock(&mine, libc::F_SETLK, libc::F_UNLCK, 0, 0), 0);
    assert_eq!(child(libc::F_WRLCK, 0, 0), 0);
    // Those of descriptors, in one process.
    let of = |file: &File, kind| lock(file, libc::F_OFD_SETLK, kind, 0, 10);
    assert_eq!((of(&mine, libc::F_RDLCK), of(&theirs, libc::F_RDLCK)), (0, 0));
    assert_eq!(of(&theirs, libc::F_WRLCK), libc::EAGAIN);
    assert_eq!((of(&mine, libc::F_UNLCK), of(&theirs, libc::F_WRLCK)), (0, 0));
    // Who waits gets it when the holder lets go.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&mine, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 10));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        assert_eq!(of(&theirs, libc::F_UNLCK), 0);
        assert_eq!(waiting.join().unwrap(), 0);
    });
    // A signal ends the wait.
    let waited = interrupted(|| lock(&theirs, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 10), || false);
    assert_eq!(waited, libc::EINTR);
}

fn flock(file: &File, how: i32) -> i32 {
    // SAFETY: no pointers.
    errno(checked(unsafe { libc::flock(file.as_raw_fd(), how) }.into()))
}

pub fn flock_excludes_until_the_descriptor_is_closed(r: &Room) {
    let (a, b) = (r.make("f", 1), r.open("f", 0));
    assert_eq!((flock(&a, libc::LOCK_SH), flock(&b, libc::LOCK_SH | libc::LOCK_NB)), (0, 0));
    assert_eq!(flock(&b, libc::LOCK_EX | libc::LOCK_NB), libc::EWOULDBLOCK);
    assert_eq!(in_child(|| flock(&b, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    drop(a);
    // A process that another test starts has copies of all descriptors for a moment.
    eventually("the lock", SOON, || flock(&b, libc::LOCK_EX | libc::LOCK_NB) == 0);
}

pub fn locks_of_two_mounts_exclude_each_other(r: &Room) {
    let (here, there) = (r.make("f", 1), open(&r.there.join("f"), libc::O_RDWR).unwrap());
    assert_eq!(flock(&here, libc::LOCK_EX | libc::LOCK_NB), 0);
    assert_eq!(lock(&there, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10), 0, "flock and fcntl do not see each other");
    assert_eq!(flock(&there, libc::LOCK_SH | libc::LOCK_NB), libc::EWOULDBLOCK);
    assert_eq!(lock(&here, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 10), libc::EAGAIN);
    assert_eq!(lock(&here, libc::F_OFD_SETLK, libc::F_WRLCK, 10, 10), 0);
    assert_eq!(flock(&here, libc::LOCK_UN), 0);
    assert_eq!(flock(&there, libc::LOCK_SH | libc::LOCK_NB), 0);
    drop(here);
    eventually("the lock", SOON, || lock(&there, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0) == 0);
}
