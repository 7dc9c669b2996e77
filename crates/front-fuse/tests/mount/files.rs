use crate::world::{checked, errno, on_mount, open};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn bytes_written_are_read_back() {
    on_mount(|w| {
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        fs::write(w.path("f"), &data).unwrap();
        assert_eq!(fs::read(w.path("f")).unwrap(), data);
        let file = open(&w.path("f"), libc::O_RDWR).unwrap();
        file.write_all_at(b"middle", 1_500_000).unwrap();
        let mut six = [0; 6];
        file.read_exact_at(&mut six, 1_500_000).unwrap();
        assert_eq!((&six, file.metadata().unwrap().len()), (b"middle", 3_000_000));
        assert_eq!(file.read_at(&mut six, 3_000_000).unwrap(), 0);
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        rustix::fs::syncfs(&file).unwrap();
    });
}

#[test]
fn open_truncates_appends_and_excludes() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(errno(open(&path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)), libc::EEXIST);
        let mut first = open(&path, libc::O_WRONLY | libc::O_APPEND).unwrap();
        let mut second = open(&path, libc::O_WRONLY | libc::O_APPEND).unwrap();
        for i in 0..10 {
            write!(first, "a{i}").unwrap();
            write!(second, "b{i}").unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("12345a0b0a1b1") && text.len() == 45, "{text}");
        open(&path, libc::O_WRONLY | libc::O_TRUNC).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    });
}

#[test]
fn appending_can_be_switched_on_and_off() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, b"12345").unwrap();
        let mut file = open(&path, libc::O_RDWR).unwrap();
        // SAFETY: sets flags of a descriptor this test owns.
        let set = |fd: i32, flags: i32| unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
        assert_eq!(set(file.as_raw_fd(), libc::O_APPEND), 0);
        file.write_all(b"end").unwrap();
        assert_eq!(set(file.as_raw_fd(), 0), 0);
        file.seek(std::io::SeekFrom::Start(0)).unwrap();
        file.write_all(b"A").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"A2345end");
    });
}

/// What is written back from a mapping goes where it was, also under a handle that appends.
#[test]
fn a_shared_mapping_of_an_appending_handle_does_not_append() {
    on_mount(|w| {
        let path = w.path("f");
        fs::write(&path, [b'x'; 8192]).unwrap();
        let file = open(&path, libc::O_RDWR | libc::O_APPEND).unwrap();
        // SAFETY: a new mapping of a file of 8192 bytes; it is written inside its length and unmapped once.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(map, libc::MAP_FAILED);
            *map.cast::<u8>().add(5000) = b'M';
            assert_eq!(libc::msync(map, 8192, libc::MS_SYNC), 0);
            assert_eq!(libc::munmap(map, 8192), 0);
        }
        drop(file);
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len(), bytes[5000], bytes[4999]), (8192, b'M', b'x'));
    });
}

#[test]
fn a_direct_handle_works() {
    on_mount(|w| {
        let file = open(&w.path("f"), libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT).unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, 4050).unwrap();
        assert_eq!(bytes, [7; 100]);
    });
}

#[test]
fn sync_handles_write() {
    on_mount(|w| {
        for flag in [libc::O_SYNC, libc::O_DSYNC] {
            let mut file = open(&w.path("f"), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | flag).unwrap();
            file.write_all(b"durable").unwrap();
            assert_eq!(fs::read(w.path("f")).unwrap(), b"durable");
        }
    });
}

#[test]
fn a_temporary_file_is_linked_by_its_descriptor() {
    on_mount(|w| {
        let file = open(&w.dir, libc::O_RDWR | libc::O_TMPFILE).unwrap();
        file.write_all_at(b"hidden", 0).unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), fs::read_dir(&w.dir).unwrap().count()), (0, 0));
        let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let to = c_path(&w.path("seen"));
        let follow = libc::AT_SYMLINK_FOLLOW;
        // SAFETY: both paths are NUL-terminated and outlive the call.
        let linked = unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), follow) };
        checked(linked.into()).unwrap();
        assert_eq!(fs::read(w.path("seen")).unwrap(), b"hidden");
    });
}

#[test]
fn an_unlinked_file_is_read_until_it_is_closed() {
    on_mount(|w| {
        fs::write(w.path("f"), b"still here").unwrap();
        let mut file = open(&w.path("f"), libc::O_RDONLY).unwrap();
        fs::remove_file(w.path("f")).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("still here", 0));
    });
}

#[test]
fn holes_are_found_punched_and_zeroed() {
    on_mount(|w| {
        let file = open(&w.path("f"), libc::O_RDWR | libc::O_CREAT).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 1 << 20);
        assert_eq!(seek(&file, SeekFrom::Hole(1 << 20)).unwrap(), (1 << 20) + 4096);
        assert_eq!(seek(&file, SeekFrom::Data(2 << 20)), Err(rustix::io::Errno::NXIO));
        fallocate(&file, FallocateFlags::empty(), 0, 4 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 << 20);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 << 20);
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 2048).unwrap();
        let mut bytes = [9; 4];
        file.read_exact_at(&mut bytes, (1 << 20) + 2046).unwrap();
        assert_eq!(bytes, [0, 0, 1, 1]);
        fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 20) + 2048, 4 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (5 << 20) + 2048);
        assert_eq!(seek(&file, SeekFrom::Data(0)).map_err(|e| e.raw_os_error()).unwrap_or(0), 1 << 20);
        let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
        assert_eq!(errno(file.set_len(i64::MAX as u64)), 0);
    });
}

#[test]
fn ranges_are_copied_inside_the_file_system() {
    on_mount(|w| {
        fs::write(w.path("from"), b"0123456789").unwrap();
        let from = open(&w.path("from"), libc::O_RDONLY).unwrap();
        let to = open(&w.path("to"), libc::O_RDWR | libc::O_CREAT).unwrap();
        let (mut from_at, mut to_at) = (2, 1);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 5).unwrap();
        assert_eq!((copied, from_at, to_at), (5, 7, 6));
        assert_eq!(fs::read(w.path("to")).unwrap(), b"\x0023456");
    });
}

#[test]
fn ioctls_but_those_of_inode_flags_mean_nothing() {
    const GET_VERSION: libc::c_ulong = 0x8008_7601;
    on_mount(|w| {
        fs::write(w.path("f"), b"").unwrap();
        let file = open(&w.path("f"), libc::O_RDONLY).unwrap();
        let mut version: libc::c_long = 0;
        // SAFETY: FS_IOC_GETVERSION, which writes a number to where the pointer leads.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION, &raw mut version) };
        assert_eq!(errno(checked(result.into())), libc::ENOTTY);
    });
}

#[test]
fn many_files_at_once() {
    on_mount(|w| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for i in 0..100 {
                        let path = w.path(&format!("{thread}-{i}"));
                        fs::write(&path, format!("{thread} {i}")).unwrap();
                        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{thread} {i}"));
                        fs::remove_file(&path).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&w.dir).unwrap().count(), 0);
    });
}

#[test]
fn a_fifo_and_a_device_are_made() {
    on_mount(|w| {
        let path = c_path(&w.path("null"));
        // SAFETY: the path is NUL-terminated and outlives the calls.
        let fd = unsafe {
            let device = libc::makedev(1, 3);
            checked(libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o666, device).into()).unwrap();
            checked(libc::open(path.as_ptr(), libc::O_WRONLY).into()).unwrap()
        };
        // SAFETY: the descriptor was just opened and has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        let meta = fs::metadata(w.path("null")).unwrap();
        // SAFETY: plain arithmetic.
        assert_eq!((libc::major(meta.rdev()), libc::minor(meta.rdev())), (1, 3));
        let fifo = c_path(&w.path("fifo"));
        // SAFETY: as above.
        checked(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }.into()).unwrap();
    });
}

/// The refused open must not have truncated the program.
#[test]
fn a_running_program_cannot_be_written() {
    on_mount(|w| {
        let path = w.path("program");
        fs::copy("/bin/sleep", &path).unwrap();
        let len = fs::metadata(&path).unwrap().len();
        let mut program = std::process::Command::new(&path).arg("20").spawn().unwrap();
        for flags in [libc::O_WRONLY, libc::O_RDWR | libc::O_TRUNC, libc::O_RDONLY | libc::O_TRUNC] {
            let c_path = c_path(&path);
            // SAFETY: the path is NUL-terminated and outlives the call; the result is no descriptor.
            let opened = checked(unsafe { libc::open(c_path.as_ptr(), flags) }.into());
            assert_eq!((errno(opened), fs::metadata(&path).unwrap().len()), (libc::ETXTBSY, len));
        }
        program.kill().unwrap();
        program.wait().unwrap();
    });
}
