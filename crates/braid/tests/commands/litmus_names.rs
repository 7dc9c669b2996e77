//! What two mounts do to names at once: create/stat, rename/open, unlink, chmod/access.

use super::litmus::{Dice, LEAST, THREADS, WAITS_MAX, goes_on, together};
use super::two_mounts::Two;
use braid_model::linear::Sequential;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Names([Option<u32>; 4]);

#[derive(Clone, Copy, Debug)]
enum NameOp {
    Create(usize, u32),
    Unlink(usize),
    Rename(usize, usize),
    Chmod(usize, u32),
    Stat(usize),
    Open(usize),
}

/// The mode that was seen, if one was; whether it succeeded.
type Seen = (bool, Option<u32>);

impl Sequential for Names {
    type Op = NameOp;
    type Answer = Seen;

    fn apply(&mut self, op: &NameOp) -> Seen {
        match *op {
            NameOp::Create(at, mode) => {
                let is_free = self.0[at].is_none();
                self.0[at] = Some(self.0[at].unwrap_or(mode));
                (is_free, None)
            }
            NameOp::Unlink(at) => (self.0[at].take().is_some(), None),
            NameOp::Rename(from, to) => match self.0[from] {
                Some(mode) => {
                    self.0[from] = None;
                    self.0[to] = Some(mode);
                    (true, None)
                }
                None => (false, None),
            },
            NameOp::Chmod(at, mode) => {
                let is_there = self.0[at].is_some();
                self.0[at] = self.0[at].map(|_| mode);
                (is_there, None)
            }
            NameOp::Stat(at) => (self.0[at].is_some(), self.0[at]),
            NameOp::Open(at) => (self.0[at].is_some(), None),
        }
    }
}

impl NameOp {
    fn thrown(who: usize, dice: &mut Dice) -> Self {
        let (one, mode) = (dice.throw(3) as usize, dice.throw(8) as u32 * 0o100);
        // The last name stays: a path is looked up before its mode is changed, so that the two are not one operation.
        let seen = dice.throw(4) as usize;
        let other = (one + 1) % 3;
        match dice.throw(8) {
            0 | 1 => NameOp::Create(one, mode),
            2 => NameOp::Unlink(one),
            // One mount renames. A kernel that finds the same file under both names when it looks them up one after the other, because
            // another mount has just done this very rename, says yes and asks nobody (docs/posix.md).
            3 if who.is_multiple_of(2) => NameOp::Rename(one, other),
            4 => NameOp::Chmod(3, mode),
            5 => NameOp::Open(one),
            _ => NameOp::Stat(seen),
        }
    }

    fn act(&self, at: &Path) -> Seen {
        let path = |n: usize| at.join(format!("n{n}"));
        match *self {
            NameOp::Create(n, mode) => {
                // The mode comes with the file, whatever the umask is.
                let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path(n));
                (made.is_ok(), None)
            }
            NameOp::Unlink(n) => (std::fs::remove_file(path(n)).is_ok(), None),
            NameOp::Rename(from, to) => (std::fs::rename(path(from), path(to)).is_ok(), None),
            NameOp::Chmod(n, mode) => {
                (std::fs::set_permissions(path(n), std::fs::Permissions::from_mode(mode)).is_ok(), None)
            }
            NameOp::Stat(n) => {
                let seen = std::fs::metadata(path(n)).ok().map(|found| found.mode() & 0o777);
                (seen.is_some(), seen)
            }
            NameOp::Open(n) => (File::open(path(n)).is_ok(), None),
        }
    }
}

#[test]
fn names_made_renamed_removed_and_chmodded_by_two_mounts_have_one_order() {
    let Some(two) = Two::new() else { return };
    File::create(two.at[0].join("n3")).unwrap();
    std::fs::set_permissions(two.at[0].join("n3"), std::fs::Permissions::from_mode(0o0)).unwrap();
    // What a change makes old a kernel shows until it hears that the change is done, and another mount may see it done before
    // (docs/posix.md): what looks at names runs beside what another mount changes, not beside what its own does.
    let of_mount = [RwLock::new(()), RwLock::new(())];
    let initial = Names([None, None, None, Some(0)]);
    let done = together(&two, LEAST, THREADS, initial, |at, who, dice, history| {
        let op = NameOp::thrown(who, dice);
        let (looks, changes) = match op {
            NameOp::Stat(_) | NameOp::Open(_) => (Some(of_mount[who % 2].read().unwrap()), None),
            _ => (None, Some(of_mount[who % 2].write().unwrap())),
        };
        history.run(who, op, || op.act(at));
        drop((looks, changes));
    });
    assert!(done > LEAST, "{done} operations in a minute");
}

/// All at once: nobody waits for a lease to end, and when it is over both mounts show the same.
#[test]
fn names_changed_by_all_threads_of_two_mounts_at_once_are_the_same_on_both() {
    let Some(two) = Two::new() else { return };
    File::create(two.at[0].join("n3")).unwrap();
    let (begun, done) = (Instant::now(), AtomicU64::new(0));
    let mut round = 0;
    while goes_on(begun, done.load(SeqCst), LEAST) {
        round += 1;
        std::thread::scope(|scope| {
            for who in 0..THREADS {
                let (at, done) = (&two.at[who % 2], &done);
                scope.spawn(move || {
                    let mut dice = Dice(round * THREADS as u64 + who as u64);
                    for _ in 0..50 {
                        let (op, begun) = (NameOp::thrown(who, &mut dice), Instant::now());
                        op.act(at);
                        let took = begun.elapsed();
                        assert!(took < WAITS_MAX, "{op:?} took {took:?}: somebody waited for a lease to end");
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        let shown = |at: &Path| -> Vec<Seen> { (0..4).map(|n| NameOp::Stat(n).act(at)).collect() };
        let listed = |at: &Path| -> BTreeSet<_> {
            std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(shown(&two.at[0]), shown(&two.at[1]), "round {round}");
        assert_eq!(listed(&two.at[0]), listed(&two.at[1]), "round {round}");
    }
    let done = done.load(SeqCst);
    assert!(done > LEAST, "{done} operations in a minute");
}
