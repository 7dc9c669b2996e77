use crate::{Disk, DiskDirEntry, DiskFile, DiskLock, DiskSpace, OpenMode};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

/// The file systems of this machine. Files are made readable for their owner alone: they hold other people's data.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

struct OsFile(File);

/// `RWF_DONTCACHE`, Linux 6.14 and later: pages that the call brought into the cache leave it with the call.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

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
        // What is free for root alone is not ours to promise.
        Ok(DiskSpace {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = open(path, OFlags::RDWR | OFlags::CREATE)?;
        retry(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Box::new(OsLock { _file: file }))
    }
}

impl DiskFile for OsFile {
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
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let mut rest = [IoSliceMut::new(&mut buf[done..])];
            match rustix::io::preadv2(&self.0, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // Not in the cache, or a file system that cannot tell: both mean that the call could wait.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(done))
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let mut rest = [IoSliceMut::new(&mut buf[done..])];
            match rustix::io::preadv2(&self.0, &mut rest, at, DONT_CACHE) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // A kernel or file system without it says so at once.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    return Ok(done + self.read_at(&mut buf[done..], at)?);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
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
