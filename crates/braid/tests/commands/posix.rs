//! What programs rely on at a mount of real servers, by system calls. Bytes are read three times: as the kernel keeps them, after
//! it has forgotten all, and at another mount of the cluster, which can have them from the servers alone. `docs/posix.md` says
//! what is different from Linux.

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
    ($($name:ident),* $(,)?) => { [$((stringify!($name), $name as fn(&Room)),)*] };
}

/// One cluster for all of them: to start one takes longer than most checks.
#[test]
fn the_mount_does_what_programs_rely_on() {
    if !rustix::process::geteuid().is_root() {
        return say_skipped("what programs rely on at a mount: other users and devices need root");
    }
    let Some(w) = World::new() else { return };
    // The longest first.
    let checks = checks![
        a_read_is_noted_and_reaches_the_servers,
        what_was_synced_or_waited_a_while_outlives_the_client,
        a_direct_handle_and_a_cached_one_agree,
        a_temporary_file_has_no_name_until_it_is_linked,
        data_and_holes_are_told_apart,
        ranges_are_punched_zeroed_and_allocated,
        ranges_are_copied_between_files,
        attributes_are_set_listed_and_removed,
        an_access_list_lets_one_more_user_in,
        a_default_list_is_inherited,
        a_rename_replaces_nothing_or_exchanges,
        processes_and_descriptors_lock_ranges,
        flock_excludes_until_the_descriptor_is_closed,
        locks_of_two_mounts_exclude_each_other,
        a_shared_mapping_is_the_file,
        a_private_mapping_stays_private,
        a_direct_handle_is_mapped_privately_only,
        appends_of_two_descriptors_follow_each_other,
        an_appending_handle_is_mapped_privately_only,
        a_position_in_a_directory_outlives_removals,
        links_are_counted,
        a_setgid_directory_gives_its_group,
        a_sticky_directory_keeps_the_names_of_others,
        a_write_of_another_user_takes_setuid,
        totals_are_told,
        files_are_cut_and_grow_with_zeros,
        pipes_sockets_and_devices_have_names,
        blocks_count_the_size_with_its_holes,
        limits_are_told,
        a_signal_ends_no_read,
    ];
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

#[repr(align(4096))]
struct Aligned([u8; 16 * PAGE]);

fn a_direct_handle_and_a_cached_one_agree(r: &Room) {
    let mut pages = Box::new(Aligned([0; 16 * PAGE]));
    pages.0.copy_from_slice(&pattern(16 * PAGE));
    let direct = r.open("f", libc::O_CREAT | libc::O_DIRECT);
    direct.write_all_at(&pages.0, 0).unwrap();
    direct.write_all_at(&pages.0, LARGE as u64 / PAGE as u64 * PAGE as u64).unwrap();
    let cached = r.open("f", 0);
    let mut bytes = vec![0; 16 * PAGE];
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pages.0, "the cached handle reads what the direct one wrote");
    // Over pages that the kernel now keeps.
    cached.write_all_at(b"cached", 5000).unwrap();
    direct.read_exact_at(&mut pages.0, 0).unwrap();
    assert!(pages.0[5000..5006] == *b"cached", "the direct handle reads what the cached one wrote");
    pages.0[..PAGE].fill(b'd');
    direct.write_all_at(&pages.0[..PAGE], 0).unwrap();
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pages.0, "the kernel's pages of what a direct write changed are gone");
    let all = r.bytes("f");
    assert!(all[..16 * PAGE] == pages.0 && all.len() == LARGE / PAGE * PAGE + 16 * PAGE);
}

fn link_descriptor(file: &File, to: &Path) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, to, AtFlags::SYMLINK_FOLLOW)
}

fn a_temporary_file_has_no_name_until_it_is_linked(r: &Room) {
    let file = open(&r.dir, libc::O_RDWR | libc::O_TMPFILE).unwrap();
    file.write_all_at(&pattern(LARGE), 0).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), fs::read_dir(&r.there).unwrap().count()), (0, 0));
    link_descriptor(&file, &r.path("seen")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(link_descriptor(&file, &r.path("seen")), Err(Errno::EXIST));
    drop(file);
    assert!(r.bytes("seen") == pattern(LARGE));
    // One that is to stay without a name.
    let secret = open(&r.dir, libc::O_RDWR | libc::O_TMPFILE | libc::O_EXCL).unwrap();
    assert_eq!(link_descriptor(&secret, &r.path("secret")), Err(Errno::NOENT));
}

/// Where there is data, as SEEK_DATA and SEEK_HOLE tell it.
fn segments(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => {
                at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
                found.push((start, at));
            }
            Err(error) => {
                assert_eq!(error, Errno::NXIO);
                return found;
            }
        }
    }
}

fn data_and_holes_are_told_apart(r: &Room) {
    const PIECE: u64 = 64 << 10;
    let file = r.open("f", libc::O_CREAT);
    let starts = [0, 3 * MIB, 6 * MIB + PAGE as u64];
    for start in starts {
        file.write_all_at(&pattern(PIECE as usize), start).unwrap();
    }
    file.set_len(8 * MIB).unwrap();
    let expected = starts.map(|start| (start, start + PIECE));
    assert_eq!(segments(&r.path("f")), expected, "as written");
    file.sync_all().unwrap();
    forget();
    assert_eq!(segments(&r.path("f")), expected, "as synced");
    assert_eq!(segments(&r.there.join("f")), expected, "at the other mount");
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(MIB)), Ok(MIB));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(8 * MIB)), Err(Errno::NXIO));
    let mut whole = vec![0; 8 << 20];
    for start in starts {
        whole[start as usize..][..PIECE as usize].copy_from_slice(&pattern(PIECE as usize));
    }
    assert!(r.bytes("f") == whole);
    // And of one that lies beside its inode.
    let small = r.open("small", libc::O_CREAT);
    small.write_all_at(b"end", 2 * PAGE as u64).unwrap();
    assert_eq!(segments(&r.path("small")).last().map(|last| last.1), Some(2 * PAGE as u64 + 3));
}

fn ranges_are_punched_zeroed_and_allocated(r: &Room) {
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
    // Beside the inode, in a chunk, in chunks.
    for (name, len) in [("small", 1000), ("one", LARGE), ("several", 3 << 20)] {
        let (file, mut expected) = (r.make(name, len), pattern(len));
        file.sync_all().unwrap();
        let change = |flags, at: usize, len: usize| rustix::fs::fallocate(&file, flags, at as u64, len as u64);
        let size = || file.metadata().unwrap().len();
        let (part, tail) = (len / 3, len - len / 4);
        change(PUNCH, part, len / 5).unwrap();
        expected[part..part + len / 5].fill(0);
        // Over the end.
        change(PUNCH, tail, len).unwrap();
        expected[tail..].fill(0);
        assert_eq!(size(), len as u64);
        assert!(r.bytes(name) == expected, "{name}: punched");
        change(ZERO, 10, len / 7).unwrap();
        expected[10..10 + len / 7].fill(0);
        change(ZERO | FallocateFlags::KEEP_SIZE, len, len).unwrap();
        change(FallocateFlags::KEEP_SIZE, len, len).unwrap();
        assert_eq!((size(), fs::metadata(r.there.join(name)).unwrap().len()), (len as u64, len as u64), "{name}");
        assert!(r.bytes(name) == expected, "{name}: zeroed");
        change(ZERO, len, 100).unwrap();
        change(FallocateFlags::empty(), 0, len + 777).unwrap();
        expected.resize(len + 777, 0);
        assert!(r.bytes(name) == expected, "{name}: allocated");
        for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(change(flags, 0, PAGE), Err(Errno::OPNOTSUPP));
        }
    }
    let file = r.make("holes", 3 << 20);
    rustix::fs::fallocate(&file, PUNCH, MIB, MIB).unwrap();
    file.sync_all().unwrap();
    assert_eq!(segments(&r.there.join("holes")), [(0, MIB), (2 * MIB, 3 * MIB)], "what was punched is a hole");
}

fn ranges_are_copied_between_files(r: &Room) {
    const LEN: usize = 2_000_001;
    let (from, to) = (r.make("from", LEN), r.make("to", 10));
    let (mut from_at, mut to_at) = (3, 5);
    while from_at < LEN as u64 {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), LEN).unwrap();
        assert!(copied > 0, "at {from_at}");
    }
    assert_eq!((from_at, to_at), (LEN as u64, LEN as u64 + 2), "no more than there is");
    assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 10), Ok(0), "at the end");
    let mut expected = pattern(10);
    expected.truncate(5);
    expected.extend_from_slice(&pattern(LEN)[3..]);
    assert!(r.bytes("to") == expected);
    let overlapping = rustix::fs::copy_file_range(&from, Some(&mut 0), &from, Some(&mut 10), 100);
    assert_eq!(overlapping, Err(Errno::INVAL));
    assert!(r.bytes("from") == pattern(LEN));
}

fn attributes_are_set_listed_and_removed(r: &Room) {
    const ANY: XattrFlags = XattrFlags::empty();
    let get = |path: &Path, name: &str| {
        let mut value = vec![0; 70_000];
        rustix::fs::getxattr(path, name, &mut value).map(|len| value[..len].to_vec())
    };
    let names = |path: &Path| {
        let mut list = vec![0; 1000];
        let len = rustix::fs::listxattr(path, &mut list).unwrap();
        String::from_utf8(list[..len].to_vec()).unwrap()
    };
    r.make("f", 1);
    fs::create_dir(r.path("d")).unwrap();
    for name in ["f", "d"] {
        let path = r.path(name);
        let set = |name, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        assert_eq!(set("user.one", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.one", b"first", XattrFlags::CREATE).unwrap();
        assert_eq!(set("user.one", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
        set("user.one", b"second", XattrFlags::REPLACE).unwrap();
        set("user.two", b"", ANY).unwrap();
        set("trusted.three", &pattern(60_000), ANY).unwrap();
        forget();
        for path in [path.clone(), r.there.join(name)] {
            assert_eq!(get(&path, "user.one").unwrap(), b"second");
            assert_eq!(get(&path, "user.two").unwrap(), b"");
            assert!(get(&path, "trusted.three").unwrap() == pattern(60_000));
            assert_eq!(names(&path), "trusted.three\0user.one\0user.two\0");
            assert_eq!(rustix::fs::getxattr(&path, "user.one", &mut [0; 3]), Err(Errno::RANGE));
            assert_eq!(get(&path, "user.none"), Err(Errno::NODATA));
        }
        rustix::fs::removexattr(&path, "user.one").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.one"), Err(Errno::NODATA));
        assert_eq!(names(&r.there.join(name)), "trusted.three\0user.two\0");
        as_user(USER, || {
            assert_eq!(get(&path, "trusted.three"), Err(Errno::NODATA), "only root sees these");
            assert_eq!(set("user.two", b"x", ANY), Err(Errno::ACCESS));
        });
    }
    symlink("f", r.path("s")).unwrap();
    assert_eq!(rustix::fs::lsetxattr(r.path("s"), "user.one", b"x", ANY), Err(Errno::PERM));
}

/// A list as `system.posix_acl_access` has it: the version, then tag, rights and id of each.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

/// The owner may everything, `USER` what is said, nobody else anything.
fn naming(rights: u16, mask: u16) -> Vec<u8> {
    let (owner, user, group, most, others) = (1, 2, 4, 16, 32);
    list(&[(owner, 7, NOBODY), (user, rights, USER), (group, 0, NOBODY), (most, mask, NOBODY), (others, 0, NOBODY)])
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn an_access_list_lets_one_more_user_in(r: &Room) {
    r.make("f", LARGE);
    set_mode(&r.path("f"), 0o600);
    let (here, there) = (r.path("f"), r.there.join("f"));
    let reads = |uid: u32, path: &Path| as_user(uid, || errno(fs::read(path)));
    for path in [&here, &there] {
        assert_eq!(reads(USER, path), libc::EACCES);
    }
    rustix::fs::setxattr(&here, ACCESS, &naming(4, 4), XattrFlags::empty()).unwrap();
    for _ in 0..2 {
        for path in [&here, &there] {
            assert_eq!((reads(USER, path), reads(OTHER, path)), (0, libc::EACCES));
            assert_eq!(as_user(USER, || errno(open(path, libc::O_WRONLY))), libc::EACCES);
            assert_eq!(mode(path), 0o740, "the mask shows as the group's bits");
        }
        forget();
    }
    // chmod moves the mask, here what the other mount allows too.
    set_mode(&here, 0o700);
    for path in [&here, &there] {
        assert_eq!(reads(USER, path), libc::EACCES);
        let mut value = [0; 100];
        let len = rustix::fs::getxattr(path, ACCESS, &mut value).unwrap();
        assert_eq!(value[..len], naming(4, 0));
    }
    rustix::fs::removexattr(&here, ACCESS).unwrap();
    assert_eq!(rustix::fs::getxattr(&there, ACCESS, &mut [0; 100]), Err(Errno::NODATA));
}

fn a_default_list_is_inherited(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    set_mode(&r.path("d"), 0o755);
    rustix::fs::setxattr(r.path("d"), DEFAULT, &naming(6, 6), XattrFlags::empty()).unwrap();
    // At the other mount, which has only heard of the list.
    fs::write(r.there.join("d/f"), "inherited").unwrap();
    fs::create_dir(r.there.join("d/sub")).unwrap();
    assert_eq!((mode(&r.path("d/f")), mode(&r.path("d/sub"))), (0o660, 0o760), "and no umask");
    assert_eq!(as_user(USER, || fs::read_to_string(r.path("d/f")).unwrap()), "inherited");
    assert_eq!(as_user(OTHER, || errno(fs::read(r.path("d/f")))), libc::EACCES);
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(r.path("d/sub"), DEFAULT, &mut value).unwrap();
    assert_eq!(value[..len], naming(6, 6));
}

fn a_rename_replaces_nothing_or_exchanges(r: &Room) {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    fs::write(r.path("a"), "A").unwrap();
    fs::write(r.path("b"), "B").unwrap();
    fs::create_dir(r.path("d")).unwrap();
    fs::write(r.path("d/below"), "below").unwrap();
    let rename = |from, to, flags| rustix::fs::renameat_with(CWD, r.path(from), CWD, r.path(to), flags);
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!((read(r.path("a")), read(r.there.join("b"))), ("A".to_owned(), "B".to_owned()));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read(r.path("a")), read(r.there.join("b"))), ("B".to_owned(), "A".to_owned()));
    // A file and a directory change places.
    rename("a", "d", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((read(r.path("d")), read(r.there.join("a/below"))), ("B".to_owned(), "below".to_owned()));
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("b", "new", RenameFlags::NOREPLACE).unwrap();
    assert_eq!((read(r.there.join("new")), errno(fs::metadata(r.there.join("b")))), ("A".to_owned(), libc::ENOENT));
    // An open file stays the one it was when another takes its name.
    let mut old = File::open(r.path("new")).unwrap();
    fs::rename(r.path("d"), r.path("new")).unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), old.metadata().unwrap().nlink(), read(r.path("new"))), ("A", 0, "B".to_owned()));
}

fn range(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

/// 0, or the errno.
fn lock(file: &File, command: i32, kind: i32, start: i64, len: i64) -> i32 {
    // SAFETY: the range outlives the call.
    errno(checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut range(kind, start, len)) }.into()))
}

fn processes_and_descriptors_lock_ranges(r: &Room) {
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

fn flock_excludes_until_the_descriptor_is_closed(r: &Room) {
    let (a, b) = (r.make("f", 1), r.open("f", 0));
    assert_eq!((flock(&a, libc::LOCK_SH), flock(&b, libc::LOCK_SH | libc::LOCK_NB)), (0, 0));
    assert_eq!(flock(&b, libc::LOCK_EX | libc::LOCK_NB), libc::EWOULDBLOCK);
    assert_eq!(in_child(|| flock(&b, libc::LOCK_EX | libc::LOCK_NB)), libc::EWOULDBLOCK);
    drop(a);
    // A process that another test starts has copies of all descriptors for a moment.
    eventually("the lock", SOON, || flock(&b, libc::LOCK_EX | libc::LOCK_NB) == 0);
}

fn locks_of_two_mounts_exclude_each_other(r: &Room) {
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

fn a_shared_mapping_is_the_file(r: &Room) {
    let file = r.make("f", LARGE);
    let mut expected = pattern(LARGE);
    let (map, second) = (Map::shared(&file, LARGE).unwrap(), Map::shared(&r.open("f", 0), LARGE).unwrap());
    map.write(5000, b"mapped");
    expected[5000..5006].copy_from_slice(b"mapped");
    assert_eq!(second.read(5000, 6), b"mapped");
    let mut six = [0; 6];
    file.read_exact_at(&mut six, 5000).unwrap();
    assert_eq!(&six, b"mapped");
    map.sync();
    assert!(r.bytes("f") == expected, "synced");
    file.write_all_at(b"written", 200_000).unwrap();
    expected[200_000..200_007].copy_from_slice(b"written");
    assert_eq!(map.read(200_000, 7), b"written", "a write is seen in the mapping");
    // Without msync, and beyond the end in the last page.
    second.write(LARGE - 3, b"end");
    expected[LARGE - 3..].copy_from_slice(b"end");
    drop((map, second));
    drop(file);
    assert!(r.bytes("f") == expected, "unmapped and closed");
    // What the other mount writes is seen where it is mapped.
    let file = r.open("f", 0);
    let map = Map::shared(&file, LARGE).unwrap();
    assert_eq!(map.read(5000, 6), b"mapped");
    open(&r.there.join("f"), libc::O_RDWR).unwrap().write_all_at(b"theirs", 5000).unwrap();
    assert_eq!(map.read(5000, 6), b"theirs");
    map.write(5001, b"H");
    let mut six = [0; 6];
    open(&r.there.join("f"), libc::O_RDONLY).unwrap().read_exact_at(&mut six, 5000).unwrap();
    assert_eq!(&six, b"tHeirs", "and the other way, without msync");
}

fn a_private_mapping_stays_private(r: &Room) {
    let file = r.make("f", LARGE);
    let map = Map::new(&file, LARGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE).unwrap();
    map.write(0, b"mine alone");
    map.sync();
    assert_eq!(map.read(0, 10), b"mine alone");
    drop(map);
    drop(file);
    assert!(r.bytes("f") == pattern(LARGE));
}

fn a_direct_handle_is_mapped_privately_only(r: &Room) {
    r.make("f", LARGE);
    let direct = r.open("f", libc::O_DIRECT);
    let shared = Map::new(&direct, LARGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    assert_eq!(shared.err(), Some(Errno::NODEV), "it keeps no pages");
    let private = Map::new(&direct, LARGE, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
    assert!(private.read(0, LARGE) == pattern(LARGE));
    // A mapping of another handle sees what a direct one writes.
    let map = Map::shared(&r.open("f", 0), LARGE).unwrap();
    assert!(map.read(0, LARGE) == pattern(LARGE));
    map.write(0, b"mapped");
    map.sync();
    let mut page = Box::new(Aligned([0; 16 * PAGE]));
    direct.read_exact_at(&mut page.0, 0).unwrap();
    assert_eq!(&page.0[..6], b"mapped");
    page.0[..6].copy_from_slice(b"direct");
    direct.write_all_at(&page.0, 0).unwrap();
    assert_eq!(map.read(0, 6), b"direct");
    let mut expected = pattern(LARGE);
    expected[..6].copy_from_slice(b"direct");
    drop((map, private));
    assert!(r.bytes("f") == expected);
}

fn appends_of_two_descriptors_follow_each_other(r: &Room) {
    let open = || r.open("f", libc::O_CREAT | libc::O_APPEND);
    let (mut a, mut b) = (open(), open());
    let mut expected = Vec::new();
    for n in 0..100 {
        let line = format!("{n:>4} {}\n", "x".repeat(n * 37));
        // Where they stand in it does not matter, as append has it.
        rustix::fs::seek(&a, SeekFrom::Start(0)).unwrap();
        if n % 2 == 0 { &mut a } else { &mut b }.write_all(line.as_bytes()).unwrap();
        expected.extend(line.into_bytes());
    }
    assert!(r.bytes("f") == expected);
    // Also while another handle cuts the file.
    r.open("f", 0).set_len(3).unwrap();
    a.write_all(b"+").unwrap();
    assert_eq!(r.bytes("f"), [&expected[..3], b"+"].concat());
}

fn an_appending_handle_is_mapped_privately_only(r: &Room) {
    r.make("f", 2 * PAGE);
    let file = r.open("f", libc::O_APPEND);
    for protection in [ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE] {
        let shared = Map::new(&file, 2 * PAGE, protection, MapFlags::SHARED);
        assert_eq!(shared.err(), Some(Errno::NODEV));
    }
    let private = Map::new(&file, 2 * PAGE, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
    assert!(private.read(0, 2 * PAGE) == pattern(2 * PAGE));
    // Of one that only reads, appending says nothing.
    let reading = open(&r.path("f"), libc::O_RDONLY | libc::O_APPEND).unwrap();
    let shared = Map::new(&reading, 2 * PAGE, ProtFlags::READ, MapFlags::SHARED).unwrap();
    assert!(shared.read(0, 2 * PAGE) == pattern(2 * PAGE));
}

fn a_position_in_a_directory_outlives_removals(r: &Room) {
    const NAMES: usize = 600;
    for n in 0..NAMES {
        fs::write(r.path(&format!("a longer name than usual {n:04}")), "").unwrap();
    }
    let names = |dir: &mut rustix::fs::Dir| -> Vec<String> {
        dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
    };
    let mut dir = rustix::fs::Dir::new(File::open(&r.dir).unwrap()).unwrap();
    let mut before = Vec::new();
    for _ in 0..199 {
        before.push(dir.next().unwrap().unwrap().file_name().to_str().unwrap().to_owned());
    }
    let position = dir.next().unwrap().unwrap();
    let rest = names(&mut dir);
    assert_eq!(rest.len(), NAMES + 2 - 200);
    // Some of what came before it and of what comes after, here and at the other mount.
    let gone: Vec<&String> = before[2..].iter().chain(&rest).step_by(3).collect();
    for (n, name) in gone.iter().enumerate() {
        fs::remove_file(if n % 2 == 0 { &r.dir } else { &r.there }.join(name)).unwrap();
    }
    fs::remove_file(r.path(position.file_name().to_str().unwrap())).unwrap();
    dir.seek(position.offset()).unwrap();
    let seen = names(&mut dir);
    // What is gone may still be told until the listing begins anew, what is there must be.
    let left: Vec<&String> = rest.iter().filter(|name| !gone.contains(name)).collect();
    let seen: Vec<&String> = seen.iter().filter(|name| !gone.contains(name)).collect();
    assert!(seen == left, "each of the rest once and nothing else");
    dir.rewind();
    assert_eq!(names(&mut dir).len(), NAMES + 2 - gone.len() - 1);
    let meta = fs::metadata(&r.dir).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (4096, 0), "however many there are");
    // A program that removes what it lists.
    for entry in fs::read_dir(&r.dir).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::read_dir(&r.there).unwrap().count(), 0);
}

fn links_are_counted(r: &Room) {
    r.make("f", LARGE);
    let links = |name: &str| {
        let (here, there) = (fs::metadata(r.path(name)).unwrap(), fs::metadata(r.there.join(name)).unwrap());
        assert_eq!((here.nlink(), here.ino()), (there.nlink(), there.ino()), "{name}");
        here.nlink()
    };
    fs::create_dir(r.path("d")).unwrap();
    fs::hard_link(r.path("f"), r.path("d/g")).unwrap();
    fs::hard_link(r.there.join("f"), r.there.join("h")).unwrap();
    assert_eq!((links("f"), links("d/g"), links("h")), (3, 3, 3));
    // Two names of one file: nothing is to be done.
    fs::rename(r.path("f"), r.path("h")).unwrap();
    assert_eq!(links("f"), 3);
    fs::remove_file(r.there.join("f")).unwrap();
    assert_eq!(links("h"), 2);
    fs::write(r.path("other"), "").unwrap();
    fs::rename(r.path("other"), r.path("h")).unwrap();
    assert_eq!((links("d/g"), links("h")), (1, 1));
    assert!(r.bytes("d/g") == pattern(LARGE));
    let open = File::open(r.path("d/g")).unwrap();
    fs::remove_file(r.path("d/g")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    forget();
    let mut bytes = vec![0; LARGE];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pattern(LARGE), "it is read until it is closed");
    assert_eq!(errno(fs::hard_link(r.path("d"), r.path("e"))), libc::EPERM);
    let before = links("d");
    fs::create_dir(r.path("d/sub")).unwrap();
    assert_eq!(links("d"), before + 1);
}

fn a_setgid_directory_gives_its_group(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    chown(r.path("d"), None, Some(OTHER)).unwrap();
    set_mode(&r.path("d"), 0o2777);
    as_user(USER, || {
        fs::create_dir(r.there.join("d/sub")).unwrap();
        fs::write(r.path("d/f"), "").unwrap();
        fs::write(r.path("d/sub/f"), "").unwrap();
    });
    forget();
    for (name, is_dir) in [("d/sub", true), ("d/f", false), ("d/sub/f", false)] {
        let meta = fs::metadata(r.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o2000 != 0), (USER, OTHER, is_dir), "{name}");
    }
}

fn a_sticky_directory_keeps_the_names_of_others(r: &Room) {
    fs::create_dir(r.path("d")).unwrap();
    set_mode(&r.path("d"), 0o1777);
    for name in ["mine", "kept"] {
        as_user(USER, || fs::write(r.path("d").join(name), "").unwrap());
    }
    for dir in [r.path("d"), r.there.join("d")] {
        as_user(OTHER, || {
            fs::write(dir.join("other"), "").unwrap();
            assert_eq!(errno(fs::remove_file(dir.join("mine"))), libc::EPERM);
            assert_eq!(errno(fs::rename(dir.join("mine"), dir.join("moved"))), libc::EPERM);
            assert_eq!(errno(fs::rename(dir.join("other"), dir.join("mine"))), libc::EPERM);
            fs::remove_file(dir.join("other")).unwrap();
        });
    }
    as_user(USER, || fs::remove_file(r.there.join("d/mine")).unwrap());
    fs::remove_file(r.path("d/kept")).unwrap();
}

fn a_write_of_another_user_takes_setuid(r: &Room) {
    for (name, len) in [("small", 10), ("large", LARGE)] {
        r.make(name, len);
        set_mode(&r.path(name), 0o6777);
        as_user(USER, || open(&r.path(name), libc::O_WRONLY).unwrap().write_all_at(b"x", 1).unwrap());
        assert_eq!((mode(&r.path(name)), mode(&r.there.join(name))), (0o777, 0o777), "{name}");
    }
}

fn totals_are_told(r: &Room) {
    let totals = rustix::fs::statvfs(&r.dir).unwrap();
    assert!(totals.f_blocks >= totals.f_bfree && totals.f_bfree > 0 && totals.f_bavail > 0);
    assert!(totals.f_bsize > 0 && totals.f_frsize > 0 && totals.f_namemax == 255);
    // As `df` tells file systems apart.
    assert_eq!(rustix::fs::statfs(&r.dir).unwrap().f_type, 0x6573_5546, "FUSE");
}

fn files_are_cut_and_grow_with_zeros(r: &Room) {
    for (name, len) in [("small", 1000), ("large", LARGE), ("chunks", 3 << 20)] {
        let (file, mut expected) = (r.make(name, len), pattern(len));
        for (n, size) in [len / 2 + 1, len, len / 3, 2 * len + 5, len / 2, 10, len].into_iter().enumerate() {
            // Sometimes of what the servers have, sometimes of what they do not have yet.
            if n % 2 == 0 {
                file.sync_data().unwrap();
            }
            file.set_len(size as u64).unwrap();
            expected.resize(size, 0);
            assert_eq!(fs::metadata(r.there.join(name)).unwrap().len(), size as u64);
            assert!(r.bytes(name) == expected, "{name}: {size}");
            file.write_all_at(b"w", size as u64 / 2).unwrap();
            expected[size / 2] = b'w';
        }
        let cut = rustix::fs::ftruncate(File::open(r.path(name)).unwrap(), 0);
        assert_eq!(cut, Err(Errno::INVAL), "a handle that only reads");
        drop(r.open(name, libc::O_TRUNC));
        assert_eq!(r.bytes(name), b"");
    }
    let file = r.open("huge", libc::O_CREAT);
    file.set_len(1 << 42).unwrap();
    file.write_all_at(b"far", (1 << 42) - 3).unwrap();
    let mut four = [9; 4];
    open(&r.there.join("huge"), libc::O_RDONLY).unwrap().read_exact_at(&mut four, (1 << 42) - 4).unwrap();
    assert_eq!(&four, b"\0far");
}

fn pipes_sockets_and_devices_have_names(r: &Room) {
    let make = |name: &str, kind: u32, device| {
        let path = std::ffi::CString::new(r.path(name).as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with NUL and outlives the call.
        checked(unsafe { libc::mknod(path.as_ptr(), kind | 0o644, device) }.into()).unwrap();
        fs::symlink_metadata(r.there.join(name)).unwrap()
    };
    assert!(make("pipe", libc::S_IFIFO, 0).file_type().is_fifo());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| fs::read(r.path("pipe")).unwrap());
        fs::write(r.path("pipe"), "through the pipe").unwrap();
        assert_eq!(reading.join().unwrap(), b"through the pipe");
    });
    let device = make("null", libc::S_IFCHR, libc::makedev(1, 3));
    assert!(device.file_type().is_char_device() && device.rdev() == libc::makedev(1, 3));
    // A socket's address has room for some hundred bytes: by a short name.
    let dir = File::open(&r.dir).unwrap();
    let short = PathBuf::from(format!("/proc/self/fd/{}/socket", dir.as_raw_fd()));
    let listening = std::os::unix::net::UnixListener::bind(&short).unwrap();
    let mut calling = std::os::unix::net::UnixStream::connect(&short).unwrap();
    calling.write_all(b"!").unwrap();
    listening.accept().unwrap().0.read_exact(&mut [0]).unwrap();
    assert!(fs::symlink_metadata(r.there.join("socket")).unwrap().file_type().is_socket());
}

fn blocks_count_the_size_with_its_holes(r: &Room) {
    let file = r.open("f", libc::O_CREAT);
    file.set_len(8 * MIB).unwrap();
    file.sync_all().unwrap();
    forget();
    for path in [r.path("f"), r.there.join("f")] {
        assert_eq!(fs::metadata(path).unwrap().blocks(), 8 * MIB / 512);
    }
    r.make("small", 1).sync_all().unwrap();
    assert_eq!(fs::metadata(r.there.join("small")).unwrap().blocks(), 8, "whole blocks of 4 KiB");
}

/// If it comes to the mount: what the kernel answers from its own pages nobody hears of.
fn a_read_is_noted_and_reaches_the_servers(r: &Room) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let seen = |dir: &Path, name: &str| fs::metadata(dir.join(name)).unwrap().accessed().unwrap();
    for name in ["read", "not-read"] {
        r.make(name, LARGE).sync_all().unwrap();
        r.open(name, 0).set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
        assert_eq!((seen(&r.dir, name), seen(&r.there, name)), (old, old));
    }
    forget();
    fs::read(r.path("read")).unwrap();
    eventually("the time of the read at the other mount", SOON, || seen(&r.there, "read") > old);
    assert_eq!(seen(&r.dir, "read"), seen(&r.there, "read"));
    assert_eq!(seen(&r.there, "not-read"), old);
    // Once a day is enough, if nothing was written since.
    let first = seen(&r.there, "read");
    forget();
    fs::read(r.path("read")).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(seen(&r.there, "read"), first);
}

fn limits_are_told(r: &Room) {
    fs::write(r.path(&"n".repeat(255)), "").unwrap();
    assert_eq!(errno(fs::write(r.path(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
    symlink("s".repeat(4095), r.path("s")).unwrap();
    assert_eq!(fs::read_link(r.there.join("s")).unwrap().as_os_str().len(), 4095);
    assert_eq!(errno(symlink("s".repeat(4096), r.path("t"))), libc::ENAMETOOLONG);
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let file = File::open(r.path(&"n".repeat(255))).unwrap();
    assert_eq!(ioctl_getflags(&file), Ok(IFlags::empty()));
    assert_eq!(ioctl_setflags(&file, IFlags::APPEND), Err(Errno::OPNOTSUPP), "immutable is the only one");
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

/// It waits for a server, and goes on to its end when the server does.
fn a_signal_ends_no_read(r: &Room) {
    r.make("f", LARGE).sync_all().unwrap();
    // Where nothing of it was read.
    let file = open(&r.there.join("f"), libc::O_RDONLY).unwrap();
    for name in ["data-1", "data-2"] {
        r.w.c.signal(name, Signal::STOP);
    }
    let go_on = || ["data-1", "data-2"].iter().for_each(|name| r.w.c.signal(name, Signal::CONT));
    let begun = Instant::now();
    let enough = || {
        let is_enough = begun.elapsed() > Duration::from_secs(1);
        is_enough.then(go_on);
        is_enough
    };
    let read = || {
        let mut bytes = vec![0; LARGE];
        file.read_at(&mut bytes, 0).map(|len| (len, bytes))
    };
    let read = interrupted(read, enough);
    let waited = begun.elapsed();
    // Also if it has failed: what comes next needs them.
    go_on();
    assert!(waited > Duration::from_secs(1), "it did not wait for a server: {:?}", read.map(|read| read.0));
    let (len, bytes) = read.unwrap();
    assert!((len, &bytes) == (LARGE, &pattern(LARGE)), "{len} bytes");
}

/// `fsync` and its like promise; the rest is sent after a second at the latest. A third mount is killed, nothing is unmounted.
fn what_was_synced_or_waited_a_while_outlives_the_client(r: &Room) {
    let place = tempfile::tempdir().unwrap();
    let log = r.w.c.root().join("log/third.log");
    r.w.c.says(&format!("mount {} --log {}", place.path().display(), log.display()));
    let dir = place.path().join(r.dir.file_name().unwrap());
    let make = |name: &str, flags| open(&dir.join(name), libc::O_RDWR | libc::O_CREAT | flags).unwrap();
    let mut kept = Vec::new();
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        let bytes = pattern(len);
        let waited = make(&format!("{size}-waited"), 0);
        waited.write_all_at(&bytes, 0).unwrap();
        let mapped = make(&format!("{size}-msync"), 0);
        mapped.set_len(len as u64).unwrap();
        let map = Map::shared(&mapped, len).unwrap();
        map.write(0, &bytes);
        kept.extend([waited, mapped]);
    }
    // What waits is sent meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        let bytes = pattern(len);
        let write = |name: &str, flags| {
            let file = make(&format!("{size}-{name}"), flags);
            file.write_all_at(&bytes, 0).unwrap();
            file
        };
        let (sync, dsync) = (write("o-sync", libc::O_SYNC), write("o-dsync", libc::O_DSYNC));
        let (whole, data) = (write("fsync", 0), write("fdatasync", 0));
        whole.sync_all().unwrap();
        data.sync_data().unwrap();
        let mapped = make(&format!("{size}-msync"), 0);
        Map::shared(&mapped, len).unwrap().sync();
        kept.extend([sync, dsync, whole, data, mapped]);
    }
    rustix::process::kill_process(process_of(place.path()), Signal::KILL).unwrap();
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        for name in ["waited", "o-sync", "o-dsync", "fsync", "fdatasync", "msync"] {
            let path = r.path(&format!("{size}-{name}"));
            assert!(fs::read(&path).unwrap() == pattern(len), "{}", path.display());
        }
    }
    drop(kept);
    let _ = rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH);
}
