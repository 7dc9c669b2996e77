//! A file in memory that processes of a host share. It outlives the process that made it, as long as somebody has it open.

use super::SimDisk;
use crate::DiskFile;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Where a board has its time, before its words.
const TIME_BYTES: u64 = 16;

#[derive(Clone)]
pub(super) struct SimMemory {
    pub disk: SimDisk,
    pub bytes: Arc<Mutex<Vec<u8>>>,
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl DiskFile for SimMemory {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock();
        let from = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let len = buf.len().min(bytes.len() - from);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, offset).map(Some)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(target) = from.checked_add(buf.len()).and_then(|end| bytes.get_mut(from..end)) else {
            return Err(io::ErrorKind::PermissionDenied.into());
        };
        let is_first = target.iter().all(|byte| *byte == 0);
        let is_time = offset < TIME_BYTES;
        let (keeps_words, keeps_times) = self.disk.keeps_of_boards();
        if is_first || !(if is_time { keeps_times } else { keeps_words }) {
            target.copy_from_slice(buf);
        }
        // A time that was given once is for ever.
        if is_time && keeps_times && buf.first_chunk::<8>().is_some_and(|time| *time != [0; 8]) {
            let whole = &mut bytes[..TIME_BYTES as usize];
            whole.fill(0);
            whole[..8].fill(0xff);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        unsupported()
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        unsupported()
    }

    fn occupied(&self) -> io::Result<u64> {
        self.len()
    }
}
