//! Files that the kernel reads without asking (FUSE passthrough; docs/design/0015-sealed-files.md).
//!
//! Promises: of one inode all handles that the kernel has at a time are of one kind, cached or passed through by one registration, because it
//! refuses any other with EIO. None that may write is passed through: it would write below. The file system hears that nobody reads
//! beneath a file when the kernel has forgotten the inode, which it does when neither a handle nor a mapping is left.
//!
//! What is counted is a little more than what the kernel has: a handle from before it is told until after its release, a lookup from
//! before it is told.

use crate::convert::cache_flags;
use crate::handles::number;
use braid_api::{FileSystem, OpenFlags, Opened};
use braid_fuse_kernel::{BackingFile, Notifier, OpenOut};
use braid_types::{Attr, InodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

#[derive(Default)]
pub struct Passing {
    /// Set where the kernel takes part.
    kernel: OnceLock<Notifier>,
    files: Mutex<Files>,
    /// How often the kernel was told of each file and has not forgotten that.
    lookups: Mutex<HashMap<InodeId, u64>>,
}

#[derive(Default)]
struct Files {
    /// With handles, or with something beneath that the kernel may read.
    by_inode: HashMap<InodeId, OpenFile>,
    by_handle: HashMap<u64, (InodeId, Kind)>,
}

#[derive(Default)]
struct OpenFile {
    cached: u32,
    passing: u32,
    /// While handles pass.
    registered: Option<Arc<BackingFile>>,
    /// The file system gave a file, and has not heard that it is left.
    beneath: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cached,
    Passing,
    /// It asks for everything, and is nobody's concern.
    Direct,
}

impl Files {
    fn add(&mut self, id: InodeId, fh: u64, kind: Kind) -> &mut OpenFile {
        self.by_handle.insert(fh, (id, kind));
        let file = self.by_inode.entry(id).or_default();
        match kind {
            Kind::Cached => file.cached += 1,
            Kind::Passing => file.passing += 1,
            Kind::Direct => {}
        }
        file
    }

    fn tidy(&mut self, id: InodeId) {
        if self.by_inode.get(&id).is_some_and(|file| file.cached == 0 && file.passing == 0 && !file.beneath) {
            self.by_inode.remove(&id);
        }
    }

    /// One more handle of a file that is passed through.
    fn join(&mut self, id: InodeId, fh: u64) -> Option<Arc<BackingFile>> {
        let registered = self.by_inode.get(&id)?.registered.clone()?;
        self.add(id, fh, Kind::Passing);
        Some(registered)
    }
}

impl Passing {
    pub fn begin(&self, kernel: &Notifier) {
        let _ = self.kernel.set(kernel.clone());
    }

    fn is_on(&self) -> bool {
        self.kernel.get().is_some()
    }

    /// The answer to an open, and whether it is passed through.
    pub async fn open<F: FileSystem>(&self, fs: &F, id: InodeId, opened: &Opened, flags: OpenFlags) -> OpenOut {
        let fh = number(opened.handle, flags.append);
        if let Some(out) = self.open_beside(id, opened, flags) {
            return out;
        }
        let beneath = fs.beneath(opened.handle).await;
        let mut files = self.files.lock();
        if let Some(registered) = files.join(id, fh) {
            return OpenOut::passthrough(fh, 0, &registered);
        }
        let is_cached = files.by_inode.get(&id).is_some_and(|file| file.cached > 0);
        if let (Some(file), Some(kernel)) = (beneath, self.kernel.get()) {
            // Also if it is not passed through after all: the file system holds it until it hears that it is left.
            files.by_inode.entry(id).or_default().beneath = true;
            match kernel.backing_file(&*file) {
                Ok(registered) if !is_cached => {
                    let registered = Arc::new(registered);
                    files.add(id, fh, Kind::Passing).registered = Some(registered.clone());
                    return OpenOut::passthrough(fh, 0, &registered);
                }
                Ok(_) => {}
                // Without the right to administer the system there is none.
                Err(error) => tracing::debug!(%error, "the kernel reads nothing without asking"),
            }
        }
        let kind = if opened.direct_io { Kind::Direct } else { Kind::Cached };
        files.add(id, fh, kind);
        OpenOut::new(fh, cache_flags(opened))
    }

    /// The same where it is known what the answer must be, because of other handles or of this one.
    fn open_beside(&self, id: InodeId, opened: &Opened, flags: OpenFlags) -> Option<OpenOut> {
        let fh = number(opened.handle, flags.append);
        let plain = OpenOut::new(fh, cache_flags(opened));
        if !self.is_on() {
            return Some(plain);
        }
        let mut files = self.files.lock();
        if !flags.write
            && let Some(registered) = files.join(id, fh)
        {
            return Some(OpenOut::passthrough(fh, 0, &registered));
        }
        let is_cached = files.by_inode.get(&id).is_some_and(|file| file.cached > 0);
        if flags.write || opened.direct_io || is_cached {
            files.add(id, fh, if opened.direct_io { Kind::Direct } else { Kind::Cached });
            return Some(plain);
        }
        None
    }

    /// The same for a file that was opened by its name with the wish to make it: nothing is looked for beneath.
    pub fn open_made(&self, id: InodeId, opened: &Opened, flags: OpenFlags) -> OpenOut {
        self.open_beside(id, opened, flags).unwrap_or_else(|| {
            let fh = number(opened.handle, flags.append);
            self.files.lock().add(id, fh, Kind::Cached);
            OpenOut::new(fh, cache_flags(opened))
        })
    }

    pub fn released(&self, fh: u64) {
        if !self.is_on() {
            return;
        }
        let mut files = self.files.lock();
        let Some((id, kind)) = files.by_handle.remove(&fh) else { return };
        if let Some(file) = files.by_inode.get_mut(&id) {
            match kind {
                Kind::Cached => file.cached -= 1,
                Kind::Passing => file.passing -= 1,
                Kind::Direct => {}
            }
            if file.passing == 0 {
                file.registered = None;
            }
        }
        files.tidy(id);
    }

    /// The kernel is about to be told of a file.
    pub fn told(&self, attr: &Attr) {
        if self.is_on() && attr.is_file() {
            *self.lookups.lock().entry(attr.id).or_default() += 1;
        }
    }

    /// The kernel forgot it as often as that, or was not told after all. True if it does not know it any more, and may have read
    /// beneath it.
    pub fn forgotten(&self, id: InodeId, times: u64) -> bool {
        if !self.is_on() {
            return false;
        }
        let mut lookups = self.lookups.lock();
        let Some(known) = lookups.get_mut(&id) else { return false };
        *known = known.saturating_sub(times);
        if *known > 0 {
            return false;
        }
        lookups.remove(&id);
        drop(lookups);
        let mut files = self.files.lock();
        let was = files.by_inode.get_mut(&id).is_some_and(|file| std::mem::take(&mut file.beneath));
        files.tidy(id);
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_types::{DeviceId, FileKind, Mode};

    #[test]
    fn handles_of_one_inode_are_of_one_kind_until_the_last_is_released() {
        let mut files = Files::default();
        let id = InodeId(7);
        files.add(id, 1, Kind::Cached);
        assert!(files.join(id, 2).is_none(), "nothing is registered");
        files.by_inode.get_mut(&id).unwrap().beneath = true;
        files.tidy(id);
        assert!(files.by_inode.contains_key(&id));
        let off = Passing::default();
        let attr = Attr {
            id,
            kind: FileKind::File,
            mode: Mode(0),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceId(0),
            size: 0,
            blocks: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            btime: Default::default(),
            trunc_gen: Default::default(),
            xattrs: false,
            sealed: true,
        };
        off.told(&attr);
        assert!(off.lookups.lock().is_empty(), "nothing is counted where the kernel takes no part");
    }
}
