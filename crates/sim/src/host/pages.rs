//! The pages that a kernel keeps of files above a mount, as far as programs that map files see them.
//!
//! Promises: a page that is here is shown without a word to the mount, until [`Watcher::forget`] is done; a page that is being read is
//! locked until it has come, and whoever is to forget it waits, as Linux does. A whole page that is written is here from the first
//! moment, and not locked (fuse_fill_write_pages).

use crate::bug::Bug;
use crate::cluster::Process;
use crate::host::Mount;
use braid_api::{FileSystem, HandleId, Result, Shown, Watcher};
use braid_types::InodeId;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;

/// x86-64.
pub const PAGE_BYTES: usize = 4096;

enum Page {
    /// It is being read.
    Locked,
    Has(Bytes),
}

#[derive(Default)]
struct Pages {
    kept: Mutex<BTreeMap<(InodeId, u64), Page>>,
    unlocked: Notify,
}

/// One file's, through one handle.
pub struct Mapping {
    file: InodeId,
    handle: HandleId,
    pages: Arc<Pages>,
    process: Process,
}

struct Kernel {
    pages: Arc<Pages>,
    forgets: bool,
}

impl Mapping {
    /// Of the only file that is mapped on this mount.
    pub fn new(process: &Process, fs: &Mount, file: InodeId, handle: HandleId) -> Mapping {
        let pages: Arc<Pages> = Arc::default();
        let forgets = process.cluster.settings.bug != Some(Bug::PagesKept);
        fs.watch(Arc::new(Kernel { pages: pages.clone(), forgets }));
        Mapping { file, handle, pages, process: process.clone() }
    }

    /// A load from the mapping.
    pub async fn load(&self, fs: &Mount, page: u64) -> Result<Bytes> {
        let key = (self.file, page);
        loop {
            let unlocked = self.pages.unlocked.notified();
            let mut unlocked = std::pin::pin!(unlocked);
            // Registered before the look, so that nothing between the two is missed.
            unlocked.as_mut().enable();
            {
                let mut kept = self.pages.kept.lock();
                match kept.get(&key) {
                    Some(Page::Has(bytes)) => {
                        self.process.cluster.coverage.count("mapped page shown without asking the mount");
                        return Ok(bytes.clone());
                    }
                    Some(Page::Locked) => {}
                    None => {
                        kept.insert(key, Page::Locked);
                        break;
                    }
                }
            }
            unlocked.await;
        }
        let read = fs.read(self.handle, page * PAGE_BYTES as u64, PAGE_BYTES as u32).await;
        let read = read.map(|pieces| Bytes::from(pieces.concat()));
        let mut kept = self.pages.kept.lock();
        match &read {
            Ok(bytes) => _ = kept.insert(key, Page::Has(bytes.clone())),
            Err(_) => _ = kept.remove(&key),
        }
        drop(kept);
        self.pages.unlocked.notify_waiters();
        read
    }

    /// write(2) of a whole page.
    pub async fn write(&self, fs: &Mount, page: u64, bytes: Bytes) -> Result<()> {
        self.pages.kept.lock().insert((self.file, page), Page::Has(bytes.clone()));
        let written = fs.write(self.handle, page * PAGE_BYTES as u64, bytes).await;
        if written.is_err() {
            self.pages.kept.lock().remove(&(self.file, page));
        }
        written.map(|_| ())
    }
}

impl Pages {
    async fn forget(&self, file: InodeId, from: u64, to: u64) {
        let page = PAGE_BYTES as u64;
        let range = (file, from / page)..(file, to.div_ceil(page));
        loop {
            let unlocked = self.unlocked.notified();
            let mut unlocked = std::pin::pin!(unlocked);
            unlocked.as_mut().enable();
            {
                let mut kept = self.kept.lock();
                kept.retain(|key, page| !range.contains(key) || matches!(page, Page::Locked));
                if kept.range(range.clone()).next().is_none() {
                    return;
                }
            }
            unlocked.await;
        }
    }
}

impl Watcher for Kernel {
    fn forget(&self, shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (pages, forgets) = (self.pages.clone(), self.forgets);
        Box::pin(async move {
            for what in shown {
                if let (Shown::Pages(file, from, to), true) = (what, forgets) {
                    pages.forget(file, from, to).await;
                }
            }
        })
    }
}
