use crate::read_only::ReadOnlyFile;
use crate::{Disk, DiskDirEntry, DiskFile, DiskLock, DiskSpace, OpenMode};
use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::ioctl::{Opcode, Setter};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// The file systems of this machine. Files are made readable for their owner alone: they hold other people's data.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

/// A file that is open.
pub struct OsFile(File);

impl OsFile {
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(File::from(descriptor))
    }
}

/// What `FICLONERANGE` takes.
#[repr(C)]
#[derive(Clone, Copy)]
struct CloneRange {
    source: i64,
    from: u64,
    len: u64,
    to: u64,
}

const FICLONERANGE: Opcode = rustix::ioctl::opcode::write::<CloneRange>(0x94, 13);

/// `RWF_DONTCACHE`: pages that the call brought into the cache leave it with the
/// call, or, written, as soon as they are on the disk, to which they are sent at once.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Linux 6.14 has the flag and frees pages that are still in use; 6.15 refuses it; from 6.16 on it is right.
fn knows_dont_cache() -> bool {
    static KNOWS: LazyLock<bool> = LazyLock::new(|| {
        let uname = rustix::system::uname();
        is_at_least(&uname.release().to_string_lossy(), (6, 16))
    });
    *KNOWS
}

/// Whether the release of a kernel, as `6.18.44-generic`, is not older than that.
fn is_at_least(release: &str, version: (u32, u32)) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= version
}

enum Read {
    /// So many bytes: fewer than asked for only at the end of the file.
    All(usize),
    /// The kernel or the file system does not do that, or not now; so many bytes are there.
    Refused(usize),
}

fn read_by(file: &File, buf: &mut [u8], offset: u64, flags: ReadWriteFlags) -> io::Result<Read> {
    let mut done = 0;
    while done < buf.len() {
        let mut rest = [IoSliceMut::new(&mut buf[done..])];
        match rustix::io::preadv2(file, &mut rest, offset + done as u64, flags) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(Read::Refused(done)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Read::All(done))
}

struct OsLock {
    /// The lock lives as long as the descriptor.
    _file: File,
}

impl DiskLock for OsLock {}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    loop {
        match rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => return Ok(File::from(fd)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let flags = match mode {
            OpenMode::Existing => OFlags::empty(),
            OpenMode::OrCreate => OFlags::CREATE,
            OpenMode::CreateNew => OFlags::CREATE | OFlags::EXCL,
            OpenMode::ReadOnly => return Ok(Arc::new(ReadOnlyFile(OsFile(open(path, OFlags::RDONLY)?)))),
        };
        Ok(Arc::new(OsFile(open(path, OFlags::RDWR | flags)?)))
    }

    /// Also removes an empty directory.
    fn remove(&self, path: &Path) -> io::Result<()> {
        match rustix::fs::unlink(path) {
            Err(Errno::ISDIR) => Ok(rustix::fs::rmdir(path)?),
            result => Ok(result?),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(rustix::fs::rename(from, to)?)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DiskDirEntry>> {
        std::fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(DiskDirEntry { name: entry.file_name(), is_dir: entry.file_type()?.is_dir() })
            })
            .collect()
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        retry(|| rustix::fs::fsync(&dir))
    }

    fn space(&self, path: &Path) -> io::Result<DiskSpace> {
        let stat = retry(|| rustix::fs::statvfs(path))?;
        // Only for counting: who cannot say it has a disk of its own.
        let disk = retry(|| rustix::fs::stat(path)).map_or(0, |s| s.st_dev);
        // What is free for root alone is not ours to promise.
        Ok(DiskSpace {
            disk,
            total: (stat.f_blocks.saturating_sub(stat.f_bfree) + stat.f_bavail).saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }

    fn memory_file(&self, bytes: u64) -> io::Result<[Arc<dyn DiskFile>; 2]> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("braid", flags)?);
        file.set_len(bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        let again = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let reads = open(&again, OFlags::RDONLY)?;
        Ok([Arc::new(OsFile(file)), Arc::new(ReadOnlyFile(OsFile(reads)))])
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = open(path, OFlags::RDWR | OFlags::CREATE)?;
        retry(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Box::new(OsLock { _file: file }))
    }
}

impl DiskFile for OsFile {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match retry(|| rustix::io::pread(&self.0, &mut buf[done..], offset + done as u64))? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        match read_by(&self.0, buf, offset, ReadWriteFlags::NOWAIT)? {
            Read::All(n) => Ok(Some(n)),
            // Not in the cache, or a file system that cannot tell: both mean that the call could wait.
            Read::Refused(_) => Ok(None),
        }
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let done = match knows_dont_cache() {
            true => match read_by(&self.0, buf, offset, DONT_CACHE)? {
                Read::All(n) => return Ok(n),
                Read::Refused(done) => done,
            },
            false => 0,
        };
        Ok(done + self.read_at(&mut buf[done..], offset + done as u64)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match retry(|| rustix::io::pwrite(&self.0, &buf[done..], offset + done as u64))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => done += n,
            }
        }
        Ok(())
    }

    fn write_once_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            if !knows_dont_cache() {
                return self.write_at(&buf[done..], at);
            }
            match rustix::io::pwritev2(&self.0, &[IoSlice::new(&buf[done..])], at, DONT_CACHE) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return self.write_at(&buf[done..], at),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        // Not repeated on an error: Linux reports a failed write-back once and forgets the pages.
        retry(|| rustix::fs::fdatasync(&self.0))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_size as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        retry(|| rustix::fs::ftruncate(&self.0, len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        retry(|| rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry(|| rustix::fs::fallocate(&self.0, flags, offset, len))
    }

    fn clone_range(&self, from: &dyn DiskFile, offset: u64, len: u64) -> io::Result<()> {
        let Some(source) = from.descriptor() else { return Err(io::ErrorKind::Unsupported.into()) };
        let range = CloneRange { source: source.as_raw_fd().into(), from: offset, len, to: offset };
        let cloned = retry(|| {
            // SAFETY: FICLONERANGE takes a `struct file_clone_range`, which `CloneRange` is laid out as, and only reads it.
            let call = unsafe { Setter::<FICLONERANGE, CloneRange>::new(range) };
            // SAFETY: the call touches no memory but the structure above, and both descriptors are open.
            unsafe { rustix::ioctl::ioctl(&self.0, call) }
        });
        cloned.map_err(|error| match Errno::from_io_error(&error) {
            // Another file system, one that does not share, or a range that it does not share.
            Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::XDEV | Errno::INVAL) => {
                io::ErrorKind::Unsupported.into()
            }
            _ => error,
        })
    }

    fn occupied(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_blocks as u64 * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_is_written_and_frees_what_is_punched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert_eq!(OsDisk.open(&path, OpenMode::Existing).err().unwrap().kind(), io::ErrorKind::NotFound);
        let file = OsDisk.open(&path, OpenMode::CreateNew).unwrap();
        assert_eq!(OsDisk.open(&path, OpenMode::CreateNew).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        file.write_at(&[7; 20_000], 100).unwrap();
        file.sync_data().unwrap();
        OsDisk.sync_dir(dir.path()).unwrap();
        let mut buf = [1; 30_000];
        assert_eq!((file.read_at(&mut buf, 0).unwrap(), file.len().unwrap()), (20_100, 20_100));
        assert!(buf[..100].iter().all(|&b| b == 0) && buf[100..20_100].iter().all(|&b| b == 7));
        if let Some(n) = file.read_cached_at(&mut buf[..4096], 4096).unwrap() {
            assert_eq!(n, 4096);
        }
        assert_eq!(file.read_once_at(&mut buf[..], 100).unwrap(), 20_000);
        assert!(buf[..20_000].iter().all(|&b| b == 7));
        file.write_once_at(&[8; 300], 20_000).unwrap();
        assert_eq!((file.read_at(&mut buf[..500], 19_900).unwrap(), file.len().unwrap()), (400, 20_300));
        assert!(buf[..100].iter().all(|&b| b == 7) && buf[100..400].iter().all(|&b| b == 8));
        match file.punch_hole(4096, 4096) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
            Ok(()) => {
                file.read_at(&mut buf, 4096).unwrap();
                assert!(buf[..4096].iter().all(|&b| b == 0) && buf[4096] == 7);
            }
        }
        assert!(file.occupied().unwrap() >= 8192);
        file.set_len(10).unwrap();
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 10);
        let space = OsDisk.space(dir.path()).unwrap();
        assert!(space.free > 0 && space.free <= space.total);
        // As `df` has it, but for what others write meanwhile.
        let stat = rustix::fs::statvfs(dir.path()).unwrap();
        let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
        assert!((space.total - space.free).abs_diff(used) < 1 << 30, "{space:?}, used {used}");
    }

    /// Where the file system can; else it says that it cannot, and changes nothing.
    #[test]
    fn a_range_is_shared_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["a", "b"].map(|name| OsDisk.open(&dir.path().join(name), OpenMode::CreateNew).unwrap());
        from.write_at(&[7; 12_288], 0).unwrap();
        to.write_at(&[1; 100], 0).unwrap();
        let mut buf = [0; 12_288];
        match to.clone_range(&*from, 4_096, 8_192) {
            Ok(()) => {
                assert_eq!((to.len().unwrap(), to.read_at(&mut buf, 0).unwrap()), (12_288, 12_288));
                assert!(buf[..100] == [1; 100] && buf[100..4_096] == [0; 3_996] && buf[4_096..] == [7; 8_192]);
                to.write_at(&[2; 10], 5_000).unwrap();
                from.read_at(&mut buf, 0).unwrap();
                assert!(buf == [7; 12_288]);
            }
            Err(error) => {
                assert_eq!((error.kind(), to.len().unwrap()), (io::ErrorKind::Unsupported, 100));
            }
        }
        let refused = to.clone_range(&*from, 1, 7).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported, "{refused}");
    }

    #[test]
    fn kernels_are_told_apart_by_their_release() {
        for (release, is) in
            [("6.18.44-fc-v669", true), ("6.16", true), ("7.0.1", true), ("6.15.11", false), ("5.99", false)]
        {
            assert_eq!(is_at_least(release, (6, 16)), is, "{release}");
        }
        assert!(!is_at_least("", (6, 16)) && !is_at_least("unknown", (6, 16)));
    }

    #[test]
    fn names_move_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("x/y/a"), dir.path().join("x/y/b"));
        OsDisk.create_dir_all(a.parent().unwrap()).unwrap();
        OsDisk.open(&a, OpenMode::OrCreate).unwrap();
        OsDisk.rename(&a, &b).unwrap();
        let entries = OsDisk.list(a.parent().unwrap()).unwrap();
        assert_eq!(entries, [DiskDirEntry { name: "b".into(), is_dir: false }]);
        OsDisk.remove(&b).unwrap();
        OsDisk.remove(b.parent().unwrap()).unwrap();
        assert!(OsDisk.list(&dir.path().join("x")).unwrap().is_empty());
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsDisk.lock(&path).unwrap();
        assert_eq!(OsDisk.lock(&path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        OsDisk.lock(&path).unwrap();
    }
}
