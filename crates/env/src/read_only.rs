//! A file that was opened with [`crate::OpenMode::ReadOnly`]: whatever would change it fails as on a read-only disk, also
//! when the disk takes writes again.

use crate::DiskFile;
use std::io;

pub(crate) struct ReadOnlyFile<F>(pub F);

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl<F: DiskFile> DiskFile for ReadOnlyFile<F> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.0.read_cached_at(buf, offset)
    }

    fn read_once_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_once_at(buf, offset)
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        refused()
    }

    fn sync_data(&self) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn clone_range(&self, _from: &dyn DiskFile, _offset: u64, _len: u64) -> io::Result<()> {
        refused()
    }

    fn occupied(&self) -> io::Result<u64> {
        self.0.occupied()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.descriptor()
    }
}
