//! The crate against the running kernel: a small file system is mounted and used through system calls.
//!
//! Needs root and `/dev/fuse`; elsewhere the tests say so and pass. The calls run in a thread of their own with a time limit,
//! and the mount is removed in any case, so that a mistake is a failed test and not a machine that hangs.

#![allow(clippy::unwrap_used)]

use crate::common::{in_time, mounted, with_mount};
use braid_fuse_kernel::{Config, InitFlags, ROOT_ID, clear_stale_mount, set_read_ahead_kb};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn files_are_made_written_read_listed_and_removed() {
    with_mount(Config::default(), |at| {
        let path = |name: &str| at.point.join(name);
        fs::write(path("a"), "hello").unwrap();
        assert_eq!(fs::read_to_string(path("a")).unwrap(), "hello");
        fs::create_dir(path("d")).unwrap();
        fs::hard_link(path("a"), path("d/b")).unwrap();
        symlink("d/b", path("s")).unwrap();
        assert_eq!(fs::read_to_string(path("s")).unwrap(), "hello");
        File::options().write(true).open(path("a")).unwrap().set_len(2).unwrap();
        assert_eq!(fs::metadata(path("d/b")).unwrap().size(), 2);
        fs::set_permissions(path("a"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(path("a")).unwrap().mode(), libc::S_IFREG | 0o640);
        let mut names: Vec<_> = fs::read_dir(&at.point).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "d", "s"]);
        fs::remove_file(path("d/b")).unwrap();
        fs::remove_dir(path("d")).unwrap();
        assert_eq!(fs::metadata(path("d")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        rustix::fs::setxattr(path("a"), "user.k", b"value", rustix::fs::XattrFlags::empty()).unwrap();
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(path("a"), "user.k", &mut value).unwrap(), 5);
        assert_eq!(rustix::fs::getxattr(path("a"), "user.none", &mut value), Err(Errno::NODATA));
        assert_eq!(rustix::fs::statfs(&at.point).unwrap().f_bfree, 600);
    });
}

#[test]
fn a_long_directory_comes_in_pages() {
    with_mount(Config::default(), |at| {
        for number in 0..2000 {
            at.memory.tree().make(ROOT_ID, format!("file-{number:04}").as_bytes(), libc::S_IFREG, 0).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(&at.point).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), 2000);
        assert_eq!(names[1999], "file-1999");
        // With attributes all the way: most who list look at what they listed.
        let (plus, plain) = (at.memory.count("Readdirplus"), at.memory.count("Readdir"));
        assert!(plus > 2 && plain == 0, "{plus} and {plain}");
    });
}

#[test]
fn large_writes_arrive_whole_and_on_page_boundaries() {
    with_mount(Config::default(), |at| {
        let data: Vec<u8> = (0..5u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut file = File::options().create_new(true).read(true).write(true).open(at.point.join("big")).unwrap();
        file.write_all(&data).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(at.point.join("big")).unwrap();
        let mut back = vec![0; data.len()];
        direct.read_exact_at(&mut back, 0).unwrap();
        assert!(back == data, "read without the page cache");
        let mut back = Vec::new();
        file.read_to_end(&mut back).unwrap();
        assert!(back == data, "read through the page cache");
        assert_eq!(at.memory.largest_write.load(Ordering::Relaxed), 1 << 20);
        assert_eq!(at.memory.unaligned_writes.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_file_without_a_name_can_get_one() {
    with_mount(Config::default(), |at| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let mut file = File::from(rustix::fs::open(&at.point, flags, Mode::from(0o600)).unwrap());
        file.write_all(b"nameless").unwrap();
        assert_eq!(fs::read_dir(&at.point).unwrap().count(), 0);
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, source, CWD, at.point.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read_to_string(at.point.join("named")).unwrap(), "nameless");
        assert_eq!(at.memory.count("Tmpfile"), 1);
    });
}

#[test]
fn rename_refuses_and_exchanges() {
    with_mount(Config::default(), |at| {
        let (a, b) = (at.point.join("a"), at.point.join("b"));
        fs::write(&a, "A").unwrap();
        fs::write(&b, "B").unwrap();
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((fs::read_to_string(&a).unwrap(), fs::read_to_string(&b).unwrap()), ("B".into(), "A".into()));
        rename(RenameFlags::empty()).unwrap();
        assert_eq!(fs::read_to_string(&b).unwrap(), "B");
        assert!(!a.exists());
    });
}

#[test]
fn statx_tells_the_time_of_birth() {
    with_mount(Config::default(), |at| {
        fs::write(at.point.join("f"), "123").unwrap();
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let got = rustix::fs::statx(CWD, at.point.join("f"), AtFlags::empty(), mask).unwrap();
        assert_eq!((got.stx_btime.tv_sec, got.stx_btime.tv_nsec, got.stx_size), (86_400, 5, 3));
        assert_eq!(at.memory.count("Statx"), 1);
    });
}

#[test]
fn the_kernel_forgets_what_it_is_told_to() {
    with_mount(Config::default(), |at| {
        let path = at.point.join("f");
        fs::write(&path, "old").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let id = fs::metadata(&path).unwrap().ino();

        at.memory.tree().node_mut(id).data = b"newer".to_vec();
        assert_eq!(fs::metadata(&path).unwrap().size(), 3, "cached");
        at.notifier.inval_inode(id, 0, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");

        at.notifier.store(id, 0, b"N").unwrap();
        let reads = at.memory.count("Read");
        assert_eq!(fs::read_to_string(&path).unwrap(), "Newer", "stored in the page cache alone");
        assert_eq!(at.memory.count("Read"), reads);

        let lookups = at.memory.count("Lookup");
        fs::metadata(&path).unwrap();
        assert_eq!(at.memory.count("Lookup"), lookups, "the name is cached");
        at.notifier.expire_entry(ROOT_ID, b"f").unwrap();
        fs::metadata(&path).unwrap();
        assert_eq!(at.memory.count("Lookup"), lookups + 1);

        at.memory.tree().remove(ROOT_ID, b"f").unwrap();
        assert!(path.exists(), "cached");
        at.notifier.inval_entry(ROOT_ID, b"f").unwrap();
        assert!(!path.exists());
        at.notifier.inval_entry(ROOT_ID, b"never heard of").unwrap();
        at.notifier.inval_inode(4711, 0, 0).unwrap();

        fs::write(&path, "again").unwrap();
        let id = fs::metadata(&path).unwrap().ino();
        at.memory.tree().remove(ROOT_ID, b"f").unwrap();
        at.notifier.delete(ROOT_ID, id, b"f").unwrap();
        assert!(!path.exists());
        assert!(at.notifier.inval_entry(ROOT_ID, b"a\0b").is_err());
    });
}

#[test]
fn a_new_epoch_makes_every_name_ask_again() {
    with_mount(Config::default(), |at| {
        fs::create_dir(at.point.join("d")).unwrap();
        fs::write(at.point.join("d/f"), "x").unwrap();
        let look = || fs::metadata(at.point.join("d/f")).map(drop);
        look().unwrap();
        let lookups = at.memory.count("Lookup");
        look().unwrap();
        assert_eq!(at.memory.count("Lookup"), lookups);
        match at.notifier.inc_epoch() {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                return eprintln!("not tested: Linux before 6.16");
            }
            other => other.unwrap(),
        }
        look().unwrap();
        assert_eq!(at.memory.count("Lookup"), lookups + 2);
    });
}

#[test]
fn callers_and_their_umask_are_known() {
    with_mount(Config::default(), |at| {
        at.memory.tree().node_mut(ROOT_ID).attr.gid = 1234;
        at.notifier.inval_inode(ROOT_ID, -1, 0).unwrap();
        // The umask and the groups belong to this thread alone from here on.
        // SAFETY: unshare(CLONE_FS) and the plain setgroups system call change this thread only.
        let changed = unsafe {
            libc::unshare(libc::CLONE_FS) == 0 && libc::syscall(libc::SYS_setgroups, 1usize, [1234u32].as_ptr()) == 0
        };
        assert!(changed);
        rustix::process::umask(Mode::from(0o027));
        fs::create_dir(at.point.join("d")).unwrap();
        assert_eq!(at.memory.last_umask.load(Ordering::Relaxed), 0o027);
        assert_eq!(*at.memory.last_groups.lock(), [1234]);
        assert_eq!(fs::metadata(at.point.join("d")).unwrap().mode() & 0o777, 0o750);
    });
}

#[test]
fn ranges_locks_and_holes_reach_the_file_system() {
    with_mount(Config::default().with(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS), |at| {
        let open = |name| File::options().create(true).truncate(false).read(true).write(true).open(at.point.join(name));
        let (from, to) = (open("from").unwrap(), open("to").unwrap());
        from.write_all_at(b"0123456789", 0).unwrap();
        rustix::fs::fcntl_lock(&from, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(at.memory.count("Setlkw"), 1);
        rustix::fs::flock(&from, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(at.memory.count("Setlk"), 1);
        let (mut start, mut end) = (2, 0);
        assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut start), &to, Some(&mut end), 4).unwrap(), 4);
        assert_eq!(at.memory.count("CopyFileRange"), 1);
        at.notifier.inval_inode(to.metadata().unwrap().ino(), 0, 0).unwrap();
        assert_eq!(fs::read_to_string(at.point.join("to")).unwrap(), "2345");
        assert_eq!(rustix::fs::seek(&from, rustix::fs::SeekFrom::Hole(3)).unwrap(), 4);
        rustix::fs::fallocate(&to, rustix::fs::FallocateFlags::empty(), 0, 100).unwrap();
        assert_eq!(to.metadata().unwrap().size(), 100);
    });
}

/// And not when the next request comes: others may wait for it.
#[test]
fn what_an_answer_keeps_is_dropped_when_it_is_given() {
    with_mount(Config::default(), |at| {
        for _ in 0..20 {
            rustix::fs::statfs(&at.point).unwrap();
            let end = Instant::now() + Duration::from_secs(10);
            while Arc::strong_count(&at.memory.statfs) > 1 {
                assert!(Instant::now() < end, "nothing else is asked for, and it is still kept");
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

#[test]
fn a_failing_file_system_is_an_io_error() {
    with_mount(Config::default(), |at| {
        for _ in 0..5 {
            for name in ["panic", "dropped"] {
                let error = fs::metadata(at.point.join(name)).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
            }
        }
        let no_list = rustix::fs::listxattr(&at.point, &mut [0u8; 64][..]);
        assert!(matches!(no_list, Err(Errno::OPNOTSUPP | Errno::NOSYS)), "{no_list:?}");
        assert_eq!(fs::read_dir(&at.point).unwrap().count(), 0, "every thread still serves");
    });
}

#[test]
fn read_ahead_is_as_configured() {
    with_mount(Config { read_ahead_kb: Some(2048), ..Config::default() }, |at| {
        let device = fs::metadata(&at.point).unwrap().dev();
        let file = format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device));
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), "2048");
        set_read_ahead_kb(&at.point, 512).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), "512");
    });
}

#[test]
fn unmounting_waits_for_users_and_ends_the_session() {
    let Some((dir, memory, mut session)) = mounted(&Config::default()) else { return };
    let open = File::create(dir.path().join("f")).unwrap();
    assert_eq!(session.unmount().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    drop(open);
    // The kernel lets go of the file a moment after its descriptor is closed.
    while session.unmount().is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(in_time(move || session.join()));
    assert_eq!(memory.destroyed.load(Ordering::Relaxed), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_abort_ends_everything_at_once() {
    let Some((dir, memory, mut session)) = mounted(&Config::default()) else { return };
    assert!(!clear_stale_mount(dir.path()).unwrap(), "a mount that lives is not stale");
    let notifier = session.notifier();
    let mut open = File::create_new(dir.path().join("f")).unwrap();
    session.abort().unwrap();
    assert_eq!(open.write(b"too late").unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(in_time(move || session.join()));
    assert_eq!(memory.destroyed.load(Ordering::Relaxed), 1);
    assert_eq!(notifier.inc_epoch().unwrap_err().kind(), std::io::ErrorKind::NotConnected);
}
