//! What this kernel allows with files that it reads without asking (docs/design/0013-local-reads.md builds on each of these).
//!
//! `backed` has ten bytes above, of which the daemon is asked, and others in the file below. This process serves what it maps, so
//! mappings are only read (`braid-powercut` says what becomes of others).

#![allow(clippy::unwrap_used)]

use crate::common::{Fixture, with_mount};
use braid_fuse_kernel::{BackingFile, Config, InitFlags, ROOT_ID, open_flags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

const ABOVE: &[u8; 10] = b"from above";
const BELOW: &[u8; 10] = b"from below";

/// `backed`, not open yet.
struct Backed {
    at: Fixture,
    node: u64,
    path: PathBuf,
    below: File,
}

fn with_backed(work: impl FnOnce(Backed) + Send + 'static) {
    with_mount(Config::default().with(InitFlags::PASSTHROUGH), move |at| {
        if !at.session.lock().negotiated().flags.contains(InitFlags::PASSTHROUGH) {
            return eprintln!("not tested: no passthrough in this kernel");
        }
        let node = at.memory.tree().make(ROOT_ID, b"backed", libc::S_IFREG | 0o600, 0).unwrap();
        at.memory.tree().write(node, 0, ABOVE);
        let path = at.point.join("backed");
        let mut below = tempfile::tempfile().unwrap();
        below.write_all(BELOW).unwrap();
        work(Backed { at, node, path, below });
    });
}

impl Backed {
    fn backing(&self, file: &File) -> Arc<BackingFile> {
        Arc::new(self.at.session.lock().backing_file(file).unwrap())
    }

    /// From now on opens are answered so.
    fn answer(&self, file: Option<Arc<BackingFile>>, flags: u32) {
        let mut backed = self.at.memory.backed.lock();
        (backed.file, backed.flags) = (file, flags);
    }

    fn pass_through(&self) -> Arc<BackingFile> {
        let file = self.backing(&self.below);
        self.answer(Some(file.clone()), 0);
        file
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).unwrap()
    }

    fn refused(&self) -> Option<i32> {
        File::open(&self.path).err().and_then(|error| error.raw_os_error())
    }

    fn reads_asked_for(&self) -> usize {
        self.at.memory.count("Read")
    }
}

fn read(file: &File) -> [u8; 10] {
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// What a shared mapping shows, and the mapping, which outlives the handle.
struct Mapping(*mut std::ffi::c_void);

impl Mapping {
    fn of(file: &File) -> Result<Self, Errno> {
        // SAFETY: a new mapping for reading, of a file that is not cut short while it is there.
        unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, file, 0) }.map(Mapping)
    }

    fn bytes(&self) -> [u8; 10] {
        // SAFETY: inside the mapping, and bytes of a file may be anything.
        unsafe { self.0.cast::<[u8; 10]>().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which nobody sees any more.
        unsafe { munmap(self.0, 4096) }.unwrap();
    }
}

#[test]
fn backed_files_are_read_and_written_without_asking() {
    with_backed(|backed| {
        backed.pass_through();
        let file = backed.open();
        assert_eq!(read(&file), *BELOW);
        file.write_all_at(b"through", 0).unwrap();
        assert_eq!((&read(&backed.below), backed.at.memory.count("Write")), (b"throughlow", 0));
        assert_eq!(backed.reads_asked_for(), 0);
    });
}

/// So a handle that was given out stays valid for what it reads whatever the daemon learns: it is for files that cannot change.
#[test]
fn what_was_given_out_cannot_be_taken_back() {
    with_backed(|backed| {
        backed.pass_through();
        let file = backed.open();
        backed.answer(None, 0);
        backed.at.notifier.inval_inode(backed.node, 0, 0).unwrap();
        assert_eq!(read(&file), *BELOW, "the registration is closed, and the pages are dropped");
        backed.below.write_all_at(b"new", 0).unwrap();
        assert_eq!((&read(&file), backed.reads_asked_for()), (b"newm below", 0));
    });
}

/// The second is refused with EIO, and the program that opened it can do nothing about that.
#[test]
fn one_inode_is_cached_or_passed_through_by_one_registration() {
    with_backed(|backed| {
        let registered = backed.pass_through();
        let passing = backed.open();
        backed.answer(None, 0);
        assert_eq!(backed.refused(), Some(libc::EIO), "cached beside passed through");
        drop(backed.pass_through());
        assert_eq!(backed.refused(), Some(libc::EIO), "the same file, registered once more");
        backed.answer(Some(registered), 0);
        assert_eq!(read(&backed.open()), *BELOW);
        drop(passing);

        backed.answer(None, open_flags::KEEP_CACHE);
        let mut cached = File::open(&backed.path);
        // The last handle is released a moment after its descriptor is closed.
        while cached.is_err() {
            cached = File::open(&backed.path);
        }
        assert_eq!(read(cached.as_ref().unwrap()), *ABOVE, "pages of its own again");
        backed.pass_through();
        assert_eq!(backed.refused(), Some(libc::EIO), "passed through beside cached");
    });
}

/// One that caches nothing is as unwelcome, but may come first; or have the file below, and be asked for all but its mappings.
#[test]
fn a_handle_that_caches_nothing_asks_and_maps_the_file_below() {
    with_backed(|backed| {
        backed.answer(None, open_flags::DIRECT_IO);
        let first = backed.open();
        let registered = backed.pass_through();
        let passing = backed.open();
        assert_eq!((read(&first), read(&passing), backed.reads_asked_for()), (*ABOVE, *BELOW, 1));
        assert_eq!(Mapping::of(&first).err(), Some(Errno::NODEV));
        backed.answer(None, open_flags::DIRECT_IO);
        assert_eq!(backed.refused(), Some(libc::EIO));

        backed.answer(Some(registered), open_flags::DIRECT_IO);
        let both = backed.open();
        assert_eq!((read(&both), Mapping::of(&both).unwrap().bytes()), (*ABOVE, *BELOW));
        assert_eq!(backed.reads_asked_for(), 2);
    });
}

/// The daemon hears of the handle's release while the mapping lives on: it cannot know who still sees the file below.
#[test]
fn a_shared_mapping_is_of_the_file_below_and_outlives_the_handle() {
    with_backed(|backed| {
        backed.pass_through();
        let map = Mapping::of(&backed.open()).unwrap();
        backed.answer(None, 0);
        while backed.at.memory.count("Release") == 0 || backed.refused().is_some() {}
        backed.below.write_all_at(b"new", 0).unwrap();
        backed.at.notifier.inval_inode(backed.node, 0, 0).unwrap();
        assert_eq!((&map.bytes(), &read(&backed.open())), (b"newm below", ABOVE));
    });
}

/// The end of a file is that of the one below for reads, and the daemon's for everybody who asks.
#[test]
fn the_length_that_is_shown_is_not_the_one_that_is_read() {
    with_backed(|backed| {
        backed.below.set_len(4).unwrap();
        backed.pass_through();
        let file = backed.open();
        let mut bytes = [0; 10];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 4);
        assert_eq!(file.metadata().unwrap().len(), 10);
    });
}
