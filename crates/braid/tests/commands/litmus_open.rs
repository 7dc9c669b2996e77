//! Files that are open: rename/open, unlink/read of an open file, writes to a file without a name that the other mount has open.

use super::litmus::{Dice, LEAST, THREADS, together};
use super::two_mounts::Two;
use braid_model::linear::Sequential;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};

const NAMES: usize = 2;

/// Files by the number they were made with: what each has in it. Who has which file open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    names: [Option<u64>; NAMES],
    handles: [Option<u64>; THREADS],
    bytes: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
enum OpenOp {
    /// A new file under the name, in the place of what was there.
    Put(usize, u64),
    Unlink(usize),
    /// By whom: what was open is closed before.
    Open(usize, usize),
    Read(usize),
    Write(usize, u64),
    /// How many names the open file has.
    Links(usize),
}

impl Open {
    /// What nobody can reach any more is no part of the state.
    fn forget(&mut self) {
        let (names, handles) = (self.names, self.handles);
        self.bytes.retain(|file, _| names.contains(&Some(*file)) || handles.contains(&Some(*file)));
    }
}

impl Sequential for Open {
    type Op = OpenOp;
    type Answer = Option<u64>;

    fn apply(&mut self, op: &OpenOp) -> Option<u64> {
        let answer = match *op {
            OpenOp::Put(at, file) => {
                self.names[at] = Some(file);
                self.bytes.insert(file, file);
                None
            }
            OpenOp::Unlink(at) => self.names[at].take().map(|_| 1),
            OpenOp::Open(who, at) => {
                self.handles[who] = self.names[at];
                self.names[at].map(|_| 1)
            }
            OpenOp::Read(who) => self.handles[who].and_then(|file| self.bytes.get(&file).copied()),
            OpenOp::Write(who, value) => {
                if let Some(bytes) = self.handles[who].and_then(|file| self.bytes.get_mut(&file)) {
                    *bytes = value;
                }
                None
            }
            OpenOp::Links(who) => {
                self.handles[who].map(|file| self.names.iter().flatten().filter(|n| **n == file).count() as u64)
            }
        };
        self.forget();
        answer
    }
}

impl OpenOp {
    fn thrown(who: usize, dice: &mut Dice, value: &AtomicU64) -> Self {
        let at = dice.throw(NAMES as u64) as usize;
        let new = || value.fetch_add(1, SeqCst) + 1;
        match dice.throw(10) {
            0 => OpenOp::Put(at, new()),
            1 => OpenOp::Unlink(at),
            2 | 3 => OpenOp::Open(who, at),
            4 | 5 => OpenOp::Write(who, new()),
            6 => OpenOp::Links(who),
            _ => OpenOp::Read(who),
        }
    }

    fn act(&self, at: &Path, who: usize, handle: &mut Option<File>) -> Option<u64> {
        let path = |n: usize| at.join(format!("n{n}"));
        match *self {
            OpenOp::Put(n, file) => {
                let new = at.join(format!("new{who}"));
                std::fs::write(&new, file.to_le_bytes()).unwrap();
                std::fs::rename(new, path(n)).unwrap();
                None
            }
            OpenOp::Unlink(n) => std::fs::remove_file(path(n)).ok().map(|()| 1),
            OpenOp::Open(_, n) => {
                *handle = match OpenOptions::new().read(true).write(true).open(path(n)) {
                    Ok(file) => Some(file),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(error) => panic!("n{n}: {error}"),
                };
                handle.as_ref().map(|_| 1)
            }
            OpenOp::Read(_) => handle.as_ref().map(|file| {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).unwrap();
                u64::from_le_bytes(bytes)
            }),
            OpenOp::Write(_, value) => {
                if let Some(file) = handle {
                    file.write_all_at(&value.to_le_bytes(), 0).unwrap();
                }
                None
            }
            OpenOp::Links(_) => handle.as_ref().map(|file| file.metadata().unwrap().nlink()),
        }
    }
}

#[test]
fn files_opened_replaced_removed_read_and_written_by_two_mounts_have_one_order() {
    let Some(two) = Two::new() else { return };
    let (value, handles) = (AtomicU64::new(0), [const { Mutex::new(None) }; THREADS]);
    // As in `litmus_names`: what looks runs beside what another mount changes, not beside what its own does. A kernel shows its own
    // programs what is being written before the write has returned.
    let of_mount = [RwLock::new(()), RwLock::new(())];
    let done = together(&two, LEAST, THREADS, Open::default(), |at, who, dice, history| {
        let op = OpenOp::thrown(who, dice, &value);
        let lock = &of_mount[who % 2];
        let (looks, changes) = match op {
            OpenOp::Put(..) | OpenOp::Unlink(_) | OpenOp::Write(..) => (None, Some(lock.write().unwrap())),
            OpenOp::Open(..) | OpenOp::Links(_) | OpenOp::Read(_) => (Some(lock.read().unwrap()), None),
        };
        let mut handle = handles[who].lock().unwrap();
        history.run(who, op, || op.act(at, who, &mut handle));
        drop((looks, changes));
    });
    drop(handles);
    assert!(done > LEAST, "{done} operations in a minute");
    assert!(two.c.says("admin fsck").starts_with("clean: "));
}

/// A file of that name is there at any moment, so nobody who opens it hears anything else, however often it is replaced.
#[test]
fn a_name_that_is_replaced_all_the_time_is_always_opened() {
    let Some(two) = Two::new() else { return };
    let put = |number: u64| {
        let new = two.at[0].join("new");
        std::fs::write(&new, number.to_le_bytes()).unwrap();
        std::fs::rename(new, two.at[0].join("name")).unwrap();
    };
    put(0);
    let opens = [AtomicU64::new(0), AtomicU64::new(0)];
    let begun = std::time::Instant::now();
    let goes_on = || {
        let done = opens.iter().all(|opens| opens.load(SeqCst) >= 300);
        !done && begun.elapsed() < std::time::Duration::from_secs(60)
    };
    std::thread::scope(|scope| {
        for (at, opens) in two.at.iter().zip(&opens) {
            let goes_on = &goes_on;
            scope.spawn(move || {
                let mut last = 0;
                while goes_on() {
                    let mut bytes = [0; 8];
                    let file = File::open(at.join("name")).unwrap_or_else(|e| panic!("after {opens:?} opens: {e}"));
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    let number = u64::from_le_bytes(bytes);
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    opens.fetch_add(1, SeqCst);
                }
            });
        }
        (1..).take_while(|_| goes_on()).for_each(put);
    });
    assert!(opens.iter().all(|opens| opens.load(SeqCst) >= 300), "{opens:?} in a minute");
}
