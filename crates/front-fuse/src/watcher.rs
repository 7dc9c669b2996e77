//! Has the kernel forget what the file system says is not to be shown any more.

use crate::asked::Asked;
use crate::ends::{Ends, Telling};
use crate::invalidator::Invalidator;
use crate::paged::Paged;
use crate::told::Told;
use braid_api::{Shown, Watcher};
use braid_types::{ByteRange, InodeId, Name};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// An answer that was at hand is with the kernel by then.
const ARRIVES: Duration = Duration::from_millis(5);
/// Before the kernel is asked again whether it has forgotten a name, where names can not be ended all at once.
const AGAIN: Duration = Duration::from_millis(20);

/// Answers that may be on their way to the kernel.
pub struct Replies {
    open: AtomicU64,
    /// Of them, pages of directories.
    listings: AtomicU64,
    started: Instant,
    /// When the last one was given, in microseconds since `started`.
    last: AtomicU64,
}

/// One of them, until dropped.
pub struct OnItsWay {
    of: Arc<Replies>,
    is_listing: bool,
}

impl Default for Replies {
    fn default() -> Self {
        let (open, listings, last) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Replies { open, listings, started: Instant::now(), last }
    }
}

impl Replies {
    pub fn begin(self: &Arc<Self>) -> OnItsWay {
        self.open.fetch_add(1, SeqCst);
        OnItsWay { of: self.clone(), is_listing: false }
    }

    /// A page of a directory, during which the kernel keeps changes out of the directory: it waits for nobody.
    pub fn begin_listing(self: &Arc<Self>) -> OnItsWay {
        let mut one = self.begin();
        self.listings.fetch_add(1, SeqCst);
        one.is_listing = true;
        one
    }

    /// Nothing is under way that could wait for another mount while the kernel keeps a directory locked for it.
    fn only_listings(&self) -> bool {
        self.open.load(SeqCst) <= self.listings.load(SeqCst)
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn some(&self) -> bool {
        self.open.load(SeqCst) > 0 || self.now() < self.last.load(SeqCst) + ARRIVES.as_micros() as u64
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.of.last.store(self.of.now(), SeqCst);
        if self.is_listing {
            self.of.listings.fetch_sub(1, SeqCst);
        }
        self.of.open.fetch_sub(1, SeqCst);
    }
}

/// See the module.
pub struct KernelWatcher {
    invalidator: Invalidator,
    replies: Arc<Replies>,
    paged: Arc<Paged>,
    asked: Arc<Asked>,
    told: Arc<Told>,
    ends: Arc<Ends>,
}

impl KernelWatcher {
    pub fn new(
        invalidator: Invalidator,
        replies: Arc<Replies>,
        paged: Arc<Paged>,
        asked: Arc<Asked>,
        told: Arc<Told>,
        ends: Arc<Ends>,
    ) -> Self {
        ends.tell_by(invalidator.clone());
        KernelWatcher { invalidator, replies, paged, asked, told, ends }
    }
}

impl Watcher for KernelWatcher {
    fn leave(&self, id: InodeId, name: Option<(InodeId, Name)>) {
        self.invalidator.leave(id, name);
    }

    /// Names first: their invalidation waits for lookups under way, and with those come attributes. The kernel drops attributes
    /// that were on their way to an inode it has, so what it asked for is let in before; if it is about to hear of the inode they are
    /// dropped once more, when no thread is left that has looked it up and not yet run since.
    /// Of a file that was only opened there are no pages.
    fn forget(&self, mut shown: Vec<Shown>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (invalidator, replies, asked) = (self.invalidator.clone(), self.replies.clone(), self.asked.clone());
        let (told, ends) = (self.told.clone(), self.ends.clone());
        shown.retain(|shown| !matches!(shown, Shown::Pages(id, ..) if !self.paged.may_have(*id)));
        for what in &shown {
            if let Shown::Attr(id) = what {
                told.forget(*id);
            }
        }
        Box::pin(async move {
            forget_names(&invalidator, &replies, &shown).await;
            let begun = Instant::now();
            let doubted = shown.iter().filter_map(|what| match what {
                Shown::Attr(id) | Shown::Pages(id, ..) => Some(*id),
                _ => None,
            });
            let telling: Vec<Telling> = doubted.clone().map(|id| ends.tell(id)).collect();
            asked.until_answered(doubted.clone()).await;
            let attributes = shown.iter().filter_map(|what| if let Shown::Attr(id) = what { Some(*id) } else { None });
            let mut unknown = forget_attributes(&invalidator, attributes.collect()).await;
            let parents: BTreeSet<InodeId> = unknown.iter().filter_map(|id| told.parent(*id)).collect();
            if !parents.is_empty() {
                invalidator.lookups_end(parents).await;
                unknown = forget_attributes(&invalidator, unknown).await;
            }
            forget_pages(&invalidator, &shown).await;
            drop(telling);
            ends.until_over(doubted, begun).await;
            forget_listings(&invalidator, &shown).await;
            let listings = shown.iter().any(|shown| matches!(shown, Shown::Listing(_)));
            if replies.some() && (listings || !unknown.is_empty()) {
                tokio::time::sleep(ARRIVES).await;
                let telling: Vec<Telling> = unknown.iter().map(|id| ends.tell(*id)).collect();
                forget_attributes(&invalidator, unknown.clone()).await;
                drop(telling);
                ends.until_over(unknown.into_iter(), begun).await;
                forget_listings(&invalidator, &shown).await;
            }
        })
    }
}

async fn forget_names(invalidator: &Invalidator, replies: &Replies, shown: &[Shown]) {
    if shown.contains(&Shown::Entries) && invalidator.all_entries().is_ok() {
        return;
    }
    let names: Vec<(InodeId, Name)> = shown
        .iter()
        .filter_map(|what| if let Shown::Entry(parent, name) = what { Some((*parent, name.clone())) } else { None })
        .collect();
    if names.is_empty() {
        return;
    }
    // With an error the mount is gone; without all at once (before Linux 6.16) it takes until the directory is free, and
    // whoever waits for this gives up first.
    while let Err(error) = invalidator.entries(names.clone(), || replies.only_listings()).await {
        if error.kind() != std::io::ErrorKind::Unsupported {
            tracing::debug!(%error, "the kernel forgets no name");
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn forget_pages(invalidator: &Invalidator, shown: &[Shown]) {
    for what in shown {
        let Shown::Pages(id, from, to) = what else { continue };
        if let Err(error) = invalidator.pages(*id, ByteRange::new(*from, *to)).await {
            // What the kernel does not know of it shows nothing of.
            tracing::debug!(%error, "the kernel drops no pages");
        }
    }
}

async fn forget_listings(invalidator: &Invalidator, shown: &[Shown]) {
    let dirs: Vec<InodeId> =
        shown.iter().filter_map(|what| if let Shown::Listing(id) = what { Some(*id) } else { None }).collect();
    if !dirs.is_empty()
        && let Err(error) = invalidator.listings(dirs).await
    {
        tracing::debug!(%error, "the kernel forgets no listing");
    }
}

/// Gives those of which the kernel does not know yet.
async fn forget_attributes(invalidator: &Invalidator, ids: Vec<InodeId>) -> Vec<InodeId> {
    if ids.is_empty() {
        return ids;
    }
    invalidator.attributes(ids).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the kernel forgets no attributes");
        Vec::new()
    })
}
