//! Reads that ended before what was asked for, as those at the end of a file do.
//!
//! Why: if the kernel was told to doubt the size of a file while such a read of it was under way, it does not take the end of the answer
//! for the end of the file. It fills the page with zeros, keeps it, and shows it as far as the file was long before, so it is to drop
//! the page as soon as it has taken it in (docs/posix.md). Telling it that is a doubt, too: a question for the size that is on its way
//! then is answered in vain, and a read beyond the end that was known ends there. So whoever has the kernel forget what another mount
//! changes waits for those that are under way, before that mount's call returns.
//!
//! A read that the kernel began before it was told, and that was taken up here when it had been, looks like one that came later, and is not
//! doubted. To doubt all that is taken up within 100 ms was tried: then nobody waits for the words that follow, and reads after an
//! append ended where the file had, in one run of a few.
//!
//! A read that was taken up since, while a page was dropped late for one of before, is doubted by the kernel as well, and nobody
//! may be waiting any more. If it ended farther on than that one, the file has grown: what it has is of after the change, the kernel
//! believes in no size beyond it, and asks for the size before it reads on. So its page is good, and nothing is said.
//!
//! Promises: a read is counted from before its answer is given until the kernel has dropped what it made of it, if it has to, and no longer
//! than [`STUCK`] after that was begun. Doubts of one file are not those of another, but for one in 1,024. Nobody waits for longer than
//! [`PATIENCE`].

use crate::asked::Asked;
use crate::invalidator::Invalidator;
use crate::paged::place_of;
use braid_types::{ByteRange, InodeId};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{timeout, timeout_at};

/// Since somebody began to have the kernel forget: pages may be the kernel's until another request is answered, which may wait for this very
/// change. Less than what a recall has for one try (`SHUT_MAX` of the client, 50 ms), or it would try for ever; and as much as a late word
/// may take, [`STUCK`] and the 20 ms for which questions are let in before.
pub const PATIENCE: Duration = Duration::from_millis(40);

/// A page that is not dropped by then belongs to a request that waits, perhaps for this: who comes later is not to wait for it.
const STUCK: Duration = Duration::from_millis(20);

/// 2¹⁰ places of 40 bytes.
const PLACES_LOG2: u32 = 10;

#[derive(Default)]
struct Place {
    /// Notifications that made the kernel doubt the size of some file of this place.
    doubts: AtomicU64,
    /// Notifications that are being given.
    telling: AtomicU64,
    /// Those that have been begun.
    tells: AtomicU64,
    /// Where the farthest answer ended whose page was dropped late since the last of them was begun; 0 if there was none.
    ended: AtomicU64,
    /// Answers that ended early, and what follows from them.
    under_way: AtomicU64,
}

pub struct Ends {
    places: Box<[Place]>,
    over: Notify,
    asked: Arc<Asked>,
    invalidator: OnceLock<Invalidator>,
}

/// The kernel is being told, until dropped.
pub struct Telling(Arc<Ends>, InodeId);

/// A read, to be taken before the file system is asked for the bytes.
pub struct Reading {
    of: Arc<Ends>,
    id: InodeId,
    tells: u64,
    doubts: u64,
}

/// Its answer, until dropped, which is to be done when the kernel has it.
pub struct EndsEarly {
    reading: Reading,
    answered: ByteRange,
    counted: Option<Counted>,
}

struct Counted(Arc<Ends>, InodeId);

impl Ends {
    pub fn new(asked: Arc<Asked>) -> Self {
        let places = (0..1 << PLACES_LOG2).map(|_| Place::default()).collect();
        Ends { places, over: Notify::new(), asked, invalidator: OnceLock::new() }
    }

    pub fn tell_by(&self, invalidator: Invalidator) {
        let _ = self.invalidator.set(invalidator);
    }

    fn place(&self, id: InodeId) -> &Place {
        &self.places[place_of(id, PLACES_LOG2)]
    }

    pub fn reading(self: &Arc<Self>, id: InodeId) -> Reading {
        // In this order: what is told between the two counts as told after.
        let tells = self.place(id).tells.load(SeqCst);
        Reading { of: self.clone(), id, tells, doubts: self.doubts(id) }
    }

    fn doubts(&self, id: InodeId) -> u64 {
        self.place(id).doubts.load(SeqCst)
    }

    /// To be called before the kernel is told. What begins from here on until it has been told is doubted as well.
    pub fn tell(self: &Arc<Self>, id: InodeId) -> Telling {
        let place = self.place(id);
        place.telling.fetch_add(1, SeqCst);
        place.tells.fetch_add(1, SeqCst);
        place.ended.store(0, SeqCst);
        place.doubts.fetch_add(1, SeqCst);
        Telling(self.clone(), id)
    }

    fn is_doubted(&self, id: InodeId, doubts: u64) -> bool {
        let place = self.place(id);
        // In this order: whoever has told counts it as a doubt before it ends.
        place.telling.load(SeqCst) > 0 || place.doubts.load(SeqCst) != doubts
    }

    /// Returns when nothing is under way of these any more, or [`PATIENCE`] after `begun`. To be called after the kernel has been told: it has
    /// then taken in the answers that came before, with the pages that it was to drop.
    pub async fn until_over(&self, ids: impl Iterator<Item = InodeId>, begun: Instant) {
        let over = async {
            for id in ids {
                self.until_over_of(id).await;
            }
        };
        if timeout_at((begun + PATIENCE).into(), over).await.is_err() {
            tracing::debug!("pages at the ends of files are not dropped yet");
        }
    }

    async fn until_over_of(&self, id: InodeId) {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            // Registered before the look, so that nothing between the two is missed.
            over.as_mut().enable();
            if self.place(id).under_way.load(SeqCst) == 0 {
                return;
            }
            over.await;
        }
    }
}

impl Reading {
    /// It is answered with these, fewer than were asked for.
    pub fn ends_early(self, answered: ByteRange) -> EndsEarly {
        self.of.place(self.id).under_way.fetch_add(1, SeqCst);
        let counted = Some(Counted(self.of.clone(), self.id));
        EndsEarly { reading: self, answered, counted }
    }

    /// What it has made of the kernel's page may be of before a change, or be shown farther than the file goes.
    fn is_to_be_dropped(&self, answered: ByteRange) -> bool {
        let place = self.of.place(self.id);
        if !self.of.is_doubted(self.id, self.doubts) {
            return false;
        }
        let ended = place.ended.load(SeqCst);
        let has_grown = ended > 0 && answered.end > ended && !answered.is_empty();
        !has_grown || place.tells.load(SeqCst) != self.tells
    }
}

impl Drop for EndsEarly {
    fn drop(&mut self) {
        let (Reading { of, id, .. }, end) = (&self.reading, self.answered.end);
        if !self.reading.is_to_be_dropped(self.answered) {
            return;
        }
        // Before the doubt: whoever finds that finds this.
        of.place(*id).ended.fetch_max(end, SeqCst);
        // Not as one who tells: what is read again because its page is dropped would be dropped again, for as long as somebody reads.
        of.place(*id).doubts.fetch_add(1, SeqCst);
        let Some(invalidator) = of.invalidator.get().cloned() else { return };
        let (id, counted, asked) = (*id, self.counted.take(), of.asked.clone());
        invalidator.runtime().clone().spawn(async move {
            let _counted = counted;
            asked.until_answered([id].into_iter()).await;
            // Waits for the page, which is the kernel's until it has taken the answer in. It goes on when nobody waits.
            let dropped = timeout(STUCK, invalidator.pages(id, ByteRange::new(end, u64::MAX))).await;
            if let Ok(Err(error)) = dropped {
                tracing::debug!(%error, "the kernel drops no pages");
            }
        });
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let place = self.0.place(self.1);
        place.doubts.fetch_add(1, SeqCst);
        place.telling.fetch_sub(1, SeqCst);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.place(self.1).under_way.fetch_sub(1, SeqCst);
        self.0.over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Waker};

    const FILE: InodeId = InodeId(7);

    fn ends() -> Arc<Ends> {
        Arc::new(Ends::new(Arc::default()))
    }

    fn is_over(ends: &Ends) -> bool {
        let waits = std::pin::pin!(ends.until_over([FILE].into_iter(), Instant::now()));
        waits.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn an_answer_that_ended_early_is_waited_for_until_the_kernel_has_it() {
        let ends = ends();
        let reading = ends.reading(FILE);
        drop(ends.tell(FILE));
        assert!(is_over(&ends), "how it ends is not known yet");
        let early = reading.ends_early(ByteRange::new(0, 5));
        assert!(!is_over(&ends));
        let waiter = ends.clone();
        let waiting = tokio::spawn(async move { waiter.until_over([FILE].into_iter(), Instant::now()).await });
        tokio::task::yield_now().await;
        drop(early);
        waiting.await.unwrap();
        assert!(is_over(&ends));
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let ends = ends();
        let _early = ends.reading(FILE).ends_early(ByteRange::new(0, 5));
        ends.until_over([FILE].into_iter(), Instant::now()).await;
        assert!(!is_over(&ends));
    }

    #[test]
    fn what_is_read_while_the_kernel_is_told_is_doubted() {
        let ends = ends();
        let before = ends.doubts(FILE);
        let telling = ends.tell(FILE);
        let between = ends.doubts(FILE);
        assert!(ends.is_doubted(FILE, before) && ends.is_doubted(FILE, between));
        drop(telling);
        assert!(ends.is_doubted(FILE, between), "it was asked for before the kernel had been told");
        assert!(!ends.is_doubted(FILE, ends.doubts(FILE)));
    }

    #[test]
    fn what_ends_beyond_what_was_dropped_late_is_kept() {
        let ends = ends();
        let before = ends.reading(FILE);
        let telling = ends.tell(FILE);
        let meanwhile = ends.reading(FILE);
        drop(telling);
        let after = ends.reading(FILE);
        let ended = |end| ByteRange::new(0, end);
        assert!(meanwhile.is_to_be_dropped(ended(9)), "the kernel may believe in a size beyond it");
        drop(before.ends_early(ended(5)));
        for reading in [&meanwhile, &after] {
            let dropped = [0, 5, 4, 6].map(|end| reading.is_to_be_dropped(ended(end)));
            assert_eq!(
                dropped,
                [true, true, true, false],
                "the file has grown to 6, or is as long as before, or shorter"
            );
            assert!(reading.is_to_be_dropped(ByteRange::new(6, 6)), "where it ends is not known");
        }
        drop(ends.tell(FILE));
        assert!(meanwhile.is_to_be_dropped(ended(6)), "it may be of before the next change");
    }

    #[test]
    fn doubts_of_one_file_are_not_those_of_others() {
        let ends = ends();
        let readings: Vec<Reading> = (8..1_000).map(|id| ends.reading(InodeId(id))).collect();
        let read = ends.reading(FILE);
        drop(ends.tell(FILE));
        assert!(ends.is_doubted(FILE, read.doubts));
        let doubted = readings.iter().filter(|of| ends.is_doubted(of.id, of.doubts)).count();
        assert!(doubted <= 2, "{doubted} share its place");
    }
}
