//! Files that the kernel reads without asking (FUSE passthrough; docs/design/0015-sealed-files.md).
//!
//! Promises: of one inode all handles that the kernel has at a time are of one kind, cached or passed through by one registration, because it
//! refuses any other with EIO. None that may write is passed through: it would write below. The file system hears that nobody reads
//! beneath a file when the kernel has forgotten the inode, which it does when neither a handle nor a mapping is left.
//!
//! What is counted is a little more than what the kernel has: a handle from before it is told until after its release, a lookup from
//! before it is told.

use crate::convert::{cache_flags, node_of};
use crate::handles::number;
use braid_api::{FileSystem, OpenFlags, Opened};
use braid_fuse_kernel::{BackingFile, Notifier, OpenOut, Reply};
use braid_types::{Attr, InodeId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// A program that opens one file after the other opens the same one again within this.
const IDLE: Duration = Duration::from_secs(1);

/// Set where the kernel takes part.
struct Kernel {
    notifier: Notifier,
    left: Box<dyn Fn(InodeId) + Send + Sync>,
}

#[derive(Default)]
pub struct Passing {
    kernel: OnceLock<Kernel>,
    /// It does not register files after all: that needs the right to administer the system.
    is_refused: AtomicBool,
    /// Opens that were answered so.
    pub opens: AtomicU64,
    files: Mutex<Files>,
    lookups: Mutex<Lookups>,
}

/// How often the kernel was told of each file and has not forgotten that.
#[derive(Default)]
struct Lookups(HashMap<InodeId, u64>);

impl Lookups {
    fn told(&mut self, id: InodeId) {
        *self.0.entry(id).or_default() += 1;
    }

    /// True if it does not know the file any more.
    fn forgotten(&mut self, id: InodeId, times: u64) -> bool {
        let Some(known) = self.0.get_mut(&id) else { return false };
        *known = known.saturating_sub(times);
        let is_over = *known == 0;
        if is_over {
            self.0.remove(&id);
        }
        is_over
    }
}

/// What a handle is for, as the flags of its open tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Reads,
    /// O_NONBLOCK says nothing of a file, and is how `lsattr` and `chattr` open one: who reads without asking would be in the
    /// way of its own `chattr -i`.
    Look,
    /// The kernel's own, through which it passes on that somebody asks for flags: it reads nothing, and counts among no handles.
    Flags,
}

/// What every open of a program has on a 64 bit system and no open of the kernel's own; elsewhere that is not known.
const LARGE_FILE: u32 = match () {
    () if cfg!(target_arch = "x86_64") => 0o100_000,
    () if cfg!(target_arch = "aarch64") => 0o400_000,
    () => 0,
};

impl Purpose {
    pub fn of(flags: u32) -> Self {
        match flags {
            _ if LARGE_FILE != 0 && flags & LARGE_FILE == 0 => Purpose::Flags,
            _ if flags & libc::O_NONBLOCK as u32 != 0 => Purpose::Look,
            _ => Purpose::Reads,
        }
    }
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

    /// The file, if it was the last handle that passed.
    fn close(&mut self, fh: u64) -> Option<InodeId> {
        let (id, kind) = self.by_handle.remove(&fh)?;
        if let Some(file) = self.by_inode.get_mut(&id) {
            match kind {
                Kind::Cached => file.cached -= 1,
                Kind::Passing => file.passing -= 1,
                Kind::Direct => {}
            }
            if file.passing == 0 {
                file.registered = None;
            }
        }
        self.tidy(id);
        (kind == Kind::Passing && self.is_idle(id)).then_some(id)
    }

    fn is_idle(&self, id: InodeId) -> bool {
        self.by_inode.get(&id).is_some_and(|file| file.beneath && file.passing == 0)
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
    /// `left` is called when the kernel has forgotten a file beneath which it may have read.
    pub fn begin(&self, notifier: Notifier, left: impl Fn(InodeId) + Send + Sync + 'static) {
        let _ = self.kernel.set(Kernel { notifier, left: Box::new(left) });
    }

    fn pass(&self, fh: u64, registered: &BackingFile) -> OpenOut {
        self.opens.fetch_add(1, Relaxed);
        OpenOut::passthrough(fh, 0, registered)
    }

    fn is_on(&self) -> bool {
        self.kernel.get().is_some()
    }

    /// The answer to an open.
    pub async fn open<F: FileSystem>(
        &self,
        fs: &F,
        id: InodeId,
        opened: &Opened,
        flags: OpenFlags,
        purpose: Purpose,
    ) -> OpenOut {
        let fh = number(opened.handle, flags.append);
        if purpose == Purpose::Flags {
            return OpenOut::new(fh, cache_flags(opened));
        }
        if let Some(out) = self.open_beside(id, opened, flags) {
            return out;
        }
        if purpose == Purpose::Look {
            return self.open_made(id, opened, flags);
        }
        let beneath = match self.is_refused.load(Relaxed) {
            true => None,
            false => fs.beneath(opened.handle).await,
        };
        let mut files = self.files.lock();
        if let Some(registered) = files.join(id, fh) {
            return self.pass(fh, &registered);
        }
        let is_cached = files.by_inode.get(&id).is_some_and(|file| file.cached > 0);
        if let (Some(file), Some(kernel)) = (beneath, self.kernel.get()) {
            // Also if it is not passed through after all: the file system holds it until it hears that it is left.
            files.by_inode.entry(id).or_default().beneath = true;
            match kernel.notifier.backing_file(&*file) {
                Ok(registered) if !is_cached => {
                    let registered = Arc::new(registered);
                    files.add(id, fh, Kind::Passing).registered = Some(registered.clone());
                    return self.pass(fh, &registered);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::info!(%error, "sealed files are read by asking: passthrough needs CAP_SYS_ADMIN");
                    self.is_refused.store(true, Relaxed);
                }
                Err(error) => tracing::debug!(%error, "a sealed file is read by asking"),
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
            return Some(self.pass(fh, &registered));
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

    /// When the last handle of a file has passed, the kernel is asked to forget the file soon: only then it is known that nobody maps it.
    pub fn released(self: &Arc<Self>, fh: u64, runtime: &Handle) {
        if !self.is_on() {
            return;
        }
        let Some(id) = self.files.lock().close(fh) else { return };
        let passing = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(IDLE).await;
            let is_idle = passing.files.lock().is_idle(id);
            if let Some(kernel) = passing.kernel.get().filter(|_| is_idle) {
                let notifier = kernel.notifier.clone();
                // Where it cannot be asked, it forgets when memory is short, or a name is.
                let pruned = tokio::task::spawn_blocking(move || notifier.prune(node_of(id))).await;
                tracing::debug!(inode = id.0, ?pruned, "nobody reads a sealed file any more");
            }
        });
    }

    /// The kernel is about to be told of a file by this answer.
    pub fn telling(self: &Arc<Self>, reply: Reply, attr: &Attr) -> Reply {
        self.telling_all(reply, std::slice::from_ref(attr))
    }

    /// The same of several.
    pub fn telling_all(self: &Arc<Self>, reply: Reply, told: &[Attr]) -> Reply {
        if !self.is_on() || !told.iter().any(Attr::is_file) {
            return reply;
        }
        let files: Vec<InodeId> = told.iter().filter(|attr| attr.is_file()).map(|attr| attr.id).collect();
        let mut lookups = self.lookups.lock();
        files.iter().for_each(|id| lookups.told(*id));
        drop(lookups);
        let passing = self.clone();
        reply.if_lost(move || files.into_iter().for_each(|id| passing.forgotten(id, 1)))
    }

    /// The kernel forgot that it was told of it, so many times.
    pub fn forgotten(&self, id: InodeId, times: u64) {
        let Some(kernel) = self.kernel.get() else { return };
        if !self.lookups.lock().forgotten(id, times) {
            return;
        }
        let mut files = self.files.lock();
        let was_beneath = files.by_inode.get_mut(&id).is_some_and(|file| std::mem::take(&mut file.beneath));
        files.tidy(id);
        drop(files);
        if was_beneath {
            (kernel.left)(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_forgotten_as_often_as_it_was_told_of() {
        let (mut lookups, id) = (Lookups::default(), InodeId(7));
        assert!(!lookups.forgotten(id, 1), "it was never told of");
        (0..3).for_each(|_| lookups.told(id));
        assert!(!lookups.forgotten(id, 2));
        // A lookup that overtook what the kernel says of the ones before.
        lookups.told(id);
        assert!(!lookups.forgotten(id, 1) && lookups.forgotten(id, 1) && lookups.0.is_empty());
    }

    #[test]
    fn handles_are_counted_by_kind_and_nothing_is_left_of_the_last() {
        let passing = Passing::default();
        let id = InodeId(7);
        let mut files = passing.files.lock();
        files.add(id, 1, Kind::Cached);
        files.add(id, 2, Kind::Direct);
        assert!(files.join(id, 3).is_none(), "nothing is registered");
        assert_eq!(files.by_inode[&id].cached, 1);
        let _ = [1, 2, 2].map(|fh| assert!(files.close(fh).is_none()));
        assert!(files.by_inode.is_empty() && files.by_handle.is_empty());
        files.by_inode.entry(id).or_default().beneath = true;
        files.tidy(id);
        assert!(files.by_inode.contains_key(&id), "somebody may read beneath");
        [4, 5].iter().for_each(|fh| _ = files.add(id, *fh, Kind::Passing));
        assert_eq!((files.close(4), files.close(5)), (None, Some(id)), "the last one is told of");
    }

    #[test]
    fn what_a_handle_is_for_is_told_by_its_flags() {
        let flags = |flags: i32| Purpose::of(flags as u32 | LARGE_FILE);
        assert_eq!((flags(libc::O_RDONLY), flags(libc::O_NONBLOCK)), (Purpose::Reads, Purpose::Look));
        if LARGE_FILE != 0 {
            assert_eq!(Purpose::of(libc::O_RDONLY as u32), Purpose::Flags);
        }
    }
}
