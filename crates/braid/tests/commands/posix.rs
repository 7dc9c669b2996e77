//! What programs rely on at a mount of real servers, by system calls. Bytes are read three times: as the kernel keeps them, after
//! it has forgotten all, and at another mount of the cluster, which can have them from the servers alone. `docs/posix.md` says
//! what is different from Linux.

mod bytes;
mod locks;
mod maps;
mod names;
mod rights;
mod waits;

use super::mounted::{eventually, mounted, process_of};
use super::{Cluster, pattern, say_skipped};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

const USER: u32 = 65534;
const OTHER: u32 = 77;
/// More than a file may have beside its inode.
const LARGE: usize = 300_000;
const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);

/// A mount, and a second one of the same cluster.
struct World {
    c: Cluster,
    at: PathBuf,
    second: PathBuf,
    _place: tempfile::TempDir,
}

impl World {
    fn new() -> Option<World> {
        let (c, at) = mounted(&[])?;
        let place = tempfile::tempdir().unwrap();
        // Other users must get there.
        for dir in [at.parent().unwrap(), place.path()] {
            set_mode(dir, 0o755);
        }
        let second = place.path().join("second");
        fs::create_dir(&second).unwrap();
        let w = World { c, at, second, _place: place };
        w.c.says(&format!("mount {}", w.second.display()));
        Some(w)
    }

    /// Each check has a directory of its own, so that one that fails spoils no other.
    fn room(&self, name: &str) -> Room<'_> {
        fs::create_dir(self.at.join(name)).unwrap();
        Room { w: self, dir: self.at.join(name), there: self.second.join(name) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.c.run(&format!("umount {}", self.second.display()));
    }
}

struct Room<'a> {
    w: &'a World,
    dir: PathBuf,
    /// The same at the other mount.
    there: PathBuf,
}

impl Room<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A new file of `len` bytes that another mount sees.
    fn make(&self, name: &str, len: usize) -> File {
        let file = self.open(name, libc::O_CREAT | libc::O_EXCL);
        file.write_all_at(&pattern(len), 0).unwrap();
        file
    }

    fn open(&self, name: &str, flags: i32) -> File {
        open(&self.path(name), libc::O_RDWR | flags).unwrap()
    }

    /// The whole file, the same to whoever asks.
    fn bytes(&self, name: &str) -> Vec<u8> {
        let kept = fs::read(self.path(name)).unwrap();
        forget();
        assert!(fs::read(self.path(name)).unwrap() == kept, "{name} reads otherwise once the kernel has forgotten it");
        assert!(fs::read(self.there.join(name)).unwrap() == kept, "{name} reads otherwise at the other mount");
        kept
    }
}

/// The kernel asks the mount again for everything. Without the right to that, the other mount is the better half of it.
fn forget() {
    if let Err(error) = fs::write("/proc/sys/vm/drop_caches", "3") {
        say_skipped(&format!("reading without the kernel's pages: {error}"));
    }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let access = flags & libc::O_ACCMODE;
    let mut options = OpenOptions::new();
    options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY).mode(0o644);
    options.create(flags & libc::O_CREAT != 0 && flags & libc::O_EXCL == 0);
    options.create_new(flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0);
    options.custom_flags(flags & !(libc::O_ACCMODE | libc::O_CREAT));
    options.open(path)
}

fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}

/// The result of a system call that returns -1.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// On a thread of its own, which alone is this user: the raw system calls change no other.
pub fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: the calls take numbers; of no groups nothing is read.
            unsafe {
                checked(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>())).unwrap();
                checked(libc::syscall(libc::SYS_setresgid, uid, uid, uid)).unwrap();
                checked(libc::syscall(libc::SYS_setresuid, uid, uid, uid)).unwrap();
            }
            act()
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// What `act` returns in a child process, which makes system calls only: it is forked from many threads.
fn in_child(act: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child ends with _exit, and allocates nothing before.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(act());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child ended with {status}");
        libc::WEXITSTATUS(status)
    }
}

extern "C" fn ignore(_signal: i32) {}

/// What `act` returns on a thread that gets signals until it is over or `enough` is so; the first may come before it waits.
fn interrupted<T: Send>(act: impl FnOnce() -> T + Send, mut enough: impl FnMut() -> bool) -> T {
    // SAFETY: a handler that does nothing, without SA_RESTART, so that a system call that can end ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(i32) as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let acting = scope.spawn(move || {
            // SAFETY: no pointers.
            send.send(unsafe { libc::gettid() }).unwrap();
            act()
        });
        let thread = receive.recv().unwrap();
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            if acting.is_finished() || enough() {
                break;
            }
            // SAFETY: a signal to a thread of this process, which the scope keeps from ending unseen.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
        }
        acting.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[repr(align(4096))]
struct Aligned([u8; 16 * PAGE]);

/// Memory that is a file's, unmapped at the end.
pub struct Map {
    pub at: *mut u8,
    len: usize,
}

impl Map {
    fn new(file: &File, len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Map, Errno> {
        // SAFETY: a new mapping where the kernel wants it.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0)? };
        Ok(Map { at: at.cast(), len })
    }

    pub fn shared(file: &File, len: usize) -> Result<Map, Errno> {
        Map::new(file, len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    /// A shared one that is not stored to.
    pub fn reading(file: &File, len: usize) -> Result<Map, Errno> {
        Map::new(file, len, ProtFlags::READ, MapFlags::SHARED)
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: inside the mapping; nobody has a reference into it.
        unsafe { self.at.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping; it is a copy, whoever writes meanwhile.
        unsafe { self.at.add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn sync(&self) {
        // SAFETY: of the whole mapping.
        unsafe { rustix::mm::msync(self.at.cast(), self.len, MsyncFlags::SYNC).unwrap() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and once.
        unsafe { rustix::mm::munmap(self.at.cast(), self.len).unwrap() }
    }
}

macro_rules! checks {
    ($($about:ident: $($name:ident)*;)*) => { [$($((stringify!($name), $about::$name as fn(&Room)),)*)*] };
}

/// One cluster for all of them: to start one takes longer than most checks.
#[test]
fn the_mount_does_what_programs_rely_on() {
    if !rustix::process::geteuid().is_root() {
        return say_skipped("what programs rely on at a mount: other users and devices need root");
    }
    let Some(w) = World::new() else { return };
    // The longest first.
    let checks = checks! {
        waits:
            a_read_is_noted_and_reaches_the_servers
            a_signal_ends_no_read
            what_was_synced_or_waited_a_while_outlives_the_client;
        bytes:
            a_direct_handle_and_a_cached_one_agree
            data_and_holes_are_told_apart
            ranges_are_punched_zeroed_and_allocated
            ranges_are_copied_between_files
            files_are_cut_and_grow_with_zeros
            blocks_count_the_size_with_its_holes;
        rights:
            attributes_are_set_listed_and_removed
            an_access_list_lets_one_more_user_in
            a_default_list_is_inherited
            a_setgid_directory_gives_its_group
            a_sticky_directory_keeps_the_names_of_others
            a_write_of_another_user_takes_setuid;
        names:
            a_temporary_file_has_no_name_until_it_is_linked
            a_rename_replaces_nothing_or_exchanges
            a_position_in_a_directory_outlives_removals
            links_are_counted
            totals_are_told
            pipes_sockets_and_devices_have_names
            limits_are_told;
        locks:
            processes_and_descriptors_lock_ranges
            flock_excludes_until_the_descriptor_is_closed
            locks_of_two_mounts_exclude_each_other;
        maps:
            a_shared_mapping_is_the_file
            a_private_mapping_stays_private
            a_direct_handle_is_mapped_privately_only
            appends_of_two_descriptors_follow_each_other
            an_appending_handle_is_mapped_privately_only;
    };
    // Before any client is killed: a directory that it has listed is not changed until its lease has run out.
    let rooms = checks.map(|(name, check)| (name, check, w.room(name)));
    // Most of the time they wait.
    let (left, failed) = (Mutex::new(rooms.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, check, room)) = next() {
                    let begun = Instant::now();
                    let is_done = catch_unwind(AssertUnwindSafe(|| check(room))).is_ok();
                    println!("{name}: {} in {:?}", if is_done { "done" } else { "FAILED" }, begun.elapsed());
                    if !is_done {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed: {failed:?}");
    let checked = w.c.says("admin fsck --data");
    assert!(checked.starts_with("clean: "), "{checked}");
}
