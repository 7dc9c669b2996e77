//! Names that are replaced so often that a kernel opens them too late: it looks a name up, then opens what it stood for, and by then that has
//! lost its last name.
//!
//! Promises, where a kernel is above (`pages_above`): whoever came too late is told so once; what the next lookup of that name finds is opened with it, and stays open for
//! [`HELD`], so that a kernel, which looks the name up again when it hears `ESTALE`, and gives up when it hears it twice, opens it.

use crate::core::{Core, Op};
use crate::lru::Lru;
use braid_api::{Code, Result};
use braid_env::Monotonic;
use braid_lease::Want;
use braid_types::{InodeId, Name};
use parking_lot::Mutex;
use std::time::Duration;

/// From a lookup to the open that it is for are two messages of the kernel.
const HELD: Duration = Duration::from_secs(1);
/// For so long a name that came too late is opened with each lookup, which is a message more.
const LATE: Duration = Duration::from_secs(1);
const NAMES_MAX: usize = 256;

pub struct Reopens {
    /// The last names that files lost here.
    lost: Mutex<Lru<InodeId, (InodeId, Name)>>,
    /// Names that were opened too late, and until when that counts.
    late: Mutex<Lru<(InodeId, Name), Monotonic>>,
}

impl Default for Reopens {
    fn default() -> Self {
        Reopens { lost: Mutex::new(Lru::new(NAMES_MAX)), late: Mutex::new(Lru::new(NAMES_MAX)) }
    }
}

impl Reopens {
    /// This client took a file's last name away.
    pub fn has_lost(&self, id: InodeId, dir: InodeId, name: &Name) {
        self.lost.lock().insert(id, (dir, name.clone()));
    }

    fn lost_name(&self, id: InodeId) -> Option<(InodeId, Name)> {
        self.lost.lock().get(&id).cloned()
    }

    fn came_late(&self, place: (InodeId, Name), now: Monotonic) {
        self.late.lock().insert(place, now + LATE);
    }

    fn is_late(&self, dir: InodeId, name: &Name, now: Monotonic) -> bool {
        let mut late = self.late.lock();
        !late.is_empty() && late.get(&(dir, name.clone())).is_some_and(|until| now < *until)
    }
}

impl Core {
    /// A file that was to be opened is not there any more.
    pub(crate) fn opened_too_late(&self, id: InodeId) {
        // Whoever else looks a name up and opens what it found hears what became of it.
        if !self.config.pages_above {
            return;
        }
        let place = self.cache.inode(id).hint.or_else(|| self.reopens.lost_name(id));
        if let Some(place) = place {
            self.reopens.came_late(place, self.now());
        }
    }

    /// A name was looked up. False if what was found has gone, and it is to be looked up again.
    pub(crate) async fn is_there_to_open(&self, dir: InodeId, name: &Name, id: InodeId, op: Op) -> Result<bool> {
        let Some(core) = self.this.upgrade().filter(|_| self.reopens.is_late(dir, name, self.now())) else {
            return Ok(true);
        };
        let known = core.inodes.get(id).is_some_and(|inode| inode.state.lock().handles > 0);
        let (inode, answer) = match core.open_inode(id, Want::Read, false, op).await {
            Ok(opened) => opened,
            Err(error) => {
                let has_gone = matches!(error.code, Code::Stale | Code::NotFound);
                // Whatever else it is, the open itself says so.
                return Ok(!has_gone || op.deadline.left(&self.env).is_zero());
            }
        };
        if answer.attr.nlink == 0 && !known {
            core.close_inode(&inode);
            return Ok(op.deadline.left(&self.env).is_zero());
        }
        let (env, stop) = (self.env.clone(), self.stop.listen());
        self.env.spawn("holding a file for its open", async move {
            tokio::select! {
                biased;
                () = env.sleep(HELD) => {}
                () = stop.wait() => {}
            }
            core.close_inode(&inode);
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_as_late_for_a_while() {
        let (reopens, dir) = (Reopens::default(), InodeId::ROOT);
        let name: Name = "n".parse().unwrap();
        let at = |ms| Monotonic(Duration::from_millis(ms));
        assert!(!reopens.is_late(dir, &name, at(0)));
        reopens.has_lost(InodeId(7), dir, &name);
        let place = reopens.lost_name(InodeId(7)).unwrap();
        assert_eq!((&place, reopens.lost_name(InodeId(8))), (&(dir, name.clone()), None));
        reopens.came_late(place, at(100));
        assert!(reopens.is_late(dir, &name, at(1099)) && !reopens.is_late(dir, &name, at(1100)));
        assert!(!reopens.is_late(InodeId(9), &name, at(200)));
    }
}
