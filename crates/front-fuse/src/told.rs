//! Inodes that the kernel is being told of by a name.
//!
//! Why: a thread that looks a name up makes the kernel's inode from the answer when it runs again, which on a busy machine may be
//! long after the answer was made. Until then the kernel, told to forget the attributes of that inode, does not know of any; what it makes
//! then it shows until its time is over, though another mount has changed it. So an answer that is not given yet when its attributes are
//! to be forgotten is given with no time at all. One that was given a moment ago is waited for: until its thread has run, the kernel
//! keeps the directory's lock, for which an invalidation of a name waits, so it is enough to know in which directory that was
//! (0005 *The kernel's copy*).
//!
//! Promises: nobody waits here. An answer begun before [`Told::forget`] is either told without time or found by [`Told::parent`] for a
//! second. Of two inodes in one place within that second only the later is found.

use crate::paged::place_of;
use braid_types::InodeId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// An answer given before that has arrived, or the machine stands still.
const MOMENT: Duration = Duration::from_secs(1);

/// 2¹⁰ places of 48 bytes. At 10,000 names looked up in a second it is the last tenth of it that is found.
const PLACES_LOG2: u32 = 10;

#[derive(Default)]
struct Place {
    /// The number of the last `forget` of an inode of this place.
    forgotten: AtomicU64,
    last: Mutex<Option<Last>>,
}

#[derive(Clone, Copy)]
struct Last {
    id: InodeId,
    parent: InodeId,
    at: Instant,
}

pub struct Told {
    places: Box<[Place]>,
    forgets: AtomicU64,
}

/// An answer that is being made.
pub struct Telling {
    of: Arc<Told>,
    parent: InodeId,
    begun: u64,
}

impl Default for Told {
    fn default() -> Self {
        Told { places: (0..1 << PLACES_LOG2).map(|_| Place::default()).collect(), forgets: AtomicU64::new(0) }
    }
}

impl Told {
    fn place(&self, id: InodeId) -> &Place {
        &self.places[place_of(id, PLACES_LOG2)]
    }

    /// To be called before the file system is asked for what is in `parent`.
    pub fn begin(self: &Arc<Self>, parent: InodeId) -> Telling {
        Telling { of: self.clone(), parent, begun: self.forgets.load(SeqCst) }
    }

    /// What is known of its attributes is not to be shown any more. To be called before the kernel is told, and before
    /// [`Told::parent`].
    pub fn forget(&self, id: InodeId) {
        let number = self.forgets.fetch_add(1, SeqCst) + 1;
        self.place(id).forgotten.fetch_max(number, SeqCst);
    }

    /// The directory in which an answer may still be on its way.
    pub fn parent(&self, id: InodeId) -> Option<InodeId> {
        let last = *self.place(id).last.lock();
        last.filter(|last| last.id == id && last.at.elapsed() < MOMENT).map(|last| last.parent)
    }
}

impl Telling {
    /// The time for which the kernel may keep what it is told now of this inode.
    pub fn valid(&self, id: InodeId, valid: Duration) -> Duration {
        let place = self.of.place(id);
        *place.last.lock() = Some(Last { id, parent: self.parent, at: Instant::now() });
        // After the lock: whoever has looked for the last before this has forgotten before that.
        if place.forgotten.load(SeqCst) > self.begun { Duration::ZERO } else { valid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const DIR: InodeId = InodeId(7);

    #[test]
    fn what_was_just_told_is_found_with_its_directory() {
        let told = Arc::new(Told::default());
        let (telling, elsewhere) = (told.begin(DIR), told.begin(InodeId(8)));
        assert_eq!(told.parent(InodeId(1)), None);
        assert!((100..600).all(|n| telling.valid(InodeId(n), LONG) == LONG));
        elsewhere.valid(InodeId(599), LONG);
        assert_eq!(told.parent(InodeId(599)), Some(InodeId(8)), "where it was looked up last");
        assert_eq!(told.parent(InodeId(600)), None);
        let found = (100..599).filter(|n| told.parent(InodeId(*n)) == Some(DIR)).count();
        assert_eq!(found, 499, "numbers that follow each other do not share places");
    }

    #[test]
    fn what_is_forgotten_while_an_answer_is_made_is_told_without_time() {
        let told = Arc::new(Told::default());
        let (id, other) = (InodeId(100), InodeId(101));
        let before = told.begin(DIR);
        told.forget(id);
        let after = told.begin(DIR);
        assert_eq!((before.valid(id, LONG), before.valid(other, LONG)), (Duration::ZERO, LONG));
        assert_eq!(after.valid(id, LONG), LONG);
        told.forget(other);
        assert_eq!((after.valid(id, LONG), after.valid(other, LONG)), (LONG, Duration::ZERO));
    }
}
