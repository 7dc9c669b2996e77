//! A file of memory that shows what is in a simulated one, for readers that want a descriptor.

use super::image::{Image, PAGE_BYTES};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

pub(super) struct Mirror(File);

impl Mirror {
    pub fn new() -> io::Result<Mirror> {
        Ok(Mirror(File::from(rustix::fs::memfd_create("simulated file", MemfdFlags::CLOEXEC)?)))
    }

    /// Nothing but memory running out can fail here, and then no simulation goes on.
    fn put(&self, write: impl FnOnce(&File) -> io::Result<()>) {
        write(&self.0).expect("memory can be written");
    }

    pub fn show_all(&self, image: &Image) {
        self.put(|file| {
            file.set_len(0)?;
            file.set_len(image.len)?;
            for (page, bytes) in &image.pages {
                let at = page * PAGE_BYTES as u64;
                let len = image.len.saturating_sub(at).min(PAGE_BYTES as u64) as usize;
                file.write_all_at(&bytes[..len], at)?;
            }
            Ok(())
        });
    }

    pub fn show(&self, image: &Image, offset: u64, len: u64) {
        self.put(|file| {
            let end = offset.saturating_add(len).min(image.len);
            if file.metadata()?.len() != image.len {
                file.set_len(image.len)?;
            }
            let mut bytes = vec![0; end.saturating_sub(offset) as usize];
            image.read(offset, &mut bytes);
            file.write_all_at(&bytes, offset)
        });
    }
}

impl AsFd for Mirror {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
