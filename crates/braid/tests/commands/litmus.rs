//! Two mounts at once, kernels and page caches included: four threads do what programs do to each other, and there is one order of
//! it all that explains every answer.

use super::posix::Map;
use super::two_mounts::Two;
use braid_model::linear::{Linear, Sequential};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Threads of both mounts.
pub const THREADS: usize = 4;
pub const FOR: Duration = Duration::from_secs(4);
/// Where a machine is so busy that it does not do this many operations in that time, it gets more.
pub const LEAST: u64 = 500;
const LONGEST: Duration = Duration::from_secs(60);

/// Begun then, with so much done, it goes on.
pub fn goes_on(begun: Instant, done: u64, least: u64) -> bool {
    let took = begun.elapsed();
    took < FOR || (done <= least && took < LONGEST)
}

/// Longer only who waits for a lease to end.
pub const WAITS_MAX: Duration = Duration::from_secs(5);

/// A small generator: the seed is in the panic of whoever fails.
pub struct Dice(pub u64);

impl Dice {
    pub fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

pub struct History<S: Sequential> {
    /// With what happened last, for whoever fails.
    linear: Mutex<(Linear<S>, VecDeque<String>)>,
    done: AtomicU64,
}

impl<S: Sequential> History<S>
where
    S::Op: std::fmt::Debug,
    S::Answer: std::fmt::Debug,
{
    fn of(op: S) -> Self {
        History { linear: Mutex::new((Linear::new(op), VecDeque::new())), done: AtomicU64::new(0) }
    }

    fn note(log: &mut VecDeque<String>, what: String) {
        // As short as can be told apart: of a long report only a part may be kept.
        log.push_back(what.replace("Some(", "").replace([' ', ')'], "").replace('(', ":"));
        if log.len() > 400 {
            log.pop_front();
        }
    }

    pub fn run(&self, who: usize, op: S::Op, act: impl FnOnce() -> S::Answer) {
        self.judge(who, op, || Some(act()));
    }

    /// `None` is an answer of which nothing is known.
    fn judge(&self, who: usize, op: S::Op, act: impl FnOnce() -> Option<S::Answer>) {
        let id = {
            let mut linear = self.linear.lock().unwrap();
            Self::note(&mut linear.1, format!("{who} {op:?}…"));
            linear.0.begin(op.clone())
        };
        let begun = Instant::now();
        let answer = act();
        let took = begun.elapsed();
        {
            let mut linear = self.linear.lock().unwrap();
            Self::note(&mut linear.1, format!("{who} {op:?}={answer:?}"));
            let is_explained = match &answer {
                Some(answer) => linear.0.end(id, answer),
                None => {
                    linear.0.forget(id);
                    true
                }
            };
            let log = || linear.1.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            assert!(is_explained, "{who}: {op:?} answered {answer:?}, which no order explains: {}", log());
        }
        assert!(took < WAITS_MAX, "{op:?} took {took:?}: somebody waited for a lease to end");
        self.done.fetch_add(1, SeqCst);
    }
}

/// Runs `act` in threads of both mounts until the time is over; gives how many operations there were.
pub fn together<S>(
    two: &Two,
    least: u64,
    threads: usize,
    initial: S,
    act: impl Fn(&Path, usize, &mut Dice, &History<S>) + Sync,
) -> u64
where
    S: Sequential + Send,
    S::Op: std::fmt::Debug + Send,
    S::Answer: std::fmt::Debug + Send,
{
    let (history, begun) = (History::of(initial), Instant::now());
    std::thread::scope(|scope| {
        for who in 0..threads {
            let (at, act, history) = (&two.at[who % 2], &act, &history);
            scope.spawn(move || {
                let mut dice = Dice(who as u64 + 1);
                while goes_on(begun, history.done.load(SeqCst), least) {
                    act(at, who, &mut dice, history);
                }
            });
        }
    });
    history.done.load(SeqCst)
}

// --- bytes: write/read, append/append, truncate/write, stat ---

const SLOT: u64 = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Slots(Vec<u64>);

#[derive(Clone, Copy, Debug)]
enum ByteOp {
    Write(usize, u64),
    Append(u64),
    Truncate(usize),
    Read(usize),
}

impl Sequential for Slots {
    type Op = ByteOp;
    type Answer = Option<u64>;

    fn apply(&mut self, op: &ByteOp) -> Option<u64> {
        match *op {
            ByteOp::Write(at, value) => {
                self.0.resize(self.0.len().max(at + 1), 0);
                self.0[at] = value;
                None
            }
            ByteOp::Append(value) => {
                self.0.push(value);
                None
            }
            ByteOp::Truncate(slots) => {
                self.0.resize(slots, 0);
                None
            }
            ByteOp::Read(at) => self.0.get(at).copied(),
        }
    }
}

#[test]
fn bytes_written_appended_and_cut_by_two_mounts_have_one_order() {
    let Some(two) = Two::new() else { return };
    File::create(two.at[0].join("bytes")).unwrap();
    let value = AtomicU64::new(0);
    // One of each: what a kernel shows its own programs while a truncation of one of them is under way is not this file system's.
    let threads = 2;
    let opened: Vec<(File, File)> = (0..threads)
        .map(|who| {
            let path = two.at[who % 2].join("bytes");
            let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            (both, OpenOptions::new().append(true).open(&path).unwrap())
        })
        .collect();
    let done = together(&two, 200, threads, Slots::default(), |_, who, dice, history| {
        let (both, append) = &opened[who];
        let slot = dice.throw(6) as usize;
        let op = match dice.throw(8) {
            0 | 1 => ByteOp::Write(slot, value.fetch_add(1, SeqCst) + 1),
            2 => ByteOp::Append(value.fetch_add(1, SeqCst) + 1),
            3 => ByteOp::Truncate(slot),
            _ => ByteOp::Read(slot),
        };
        history.judge(who, op, || match op {
            ByteOp::Write(at, value) => {
                both.write_all_at(&value.to_le_bytes(), at as u64 * SLOT).unwrap();
                Some(None)
            }
            ByteOp::Append(value) => {
                let mut append = append;
                append.write_all(&value.to_le_bytes()).unwrap();
                Some(None)
            }
            ByteOp::Truncate(slots) => {
                both.set_len(slots as u64 * SLOT).unwrap();
                Some(None)
            }
            ByteOp::Read(at) => {
                let mut bytes = [0; SLOT as usize];
                let read = both.read_at(&mut bytes, at as u64 * SLOT).unwrap();
                // Where the file ends while another mount moves its end a kernel may not know for a moment (docs/posix.md): zeros
                // and the end are not judged, what somebody wrote is.
                let value = u64::from_le_bytes(bytes);
                (read == bytes.len() && value > 0).then_some(Some(value))
            }
        });
    });
    assert!(done > 200, "{done} operations in a minute");
}

/// A kernel that believes a file to end where it is cut drops nothing, though it holds pages of bytes after that.
#[test]
fn what_another_mount_added_is_gone_after_a_cut_to_the_size_that_was_known() {
    let Some(two) = Two::new() else { return };
    for appended in [false, true] {
        let name = format!("known-{appended}");
        let open = |who: usize, append: bool| {
            let mut options = OpenOptions::new();
            options.read(true).append(append).write(!append).create(true).open(two.at[who].join(&name)).unwrap()
        };
        let (here, mut end, there) = (open(0, false), open(0, true), open(1, false));
        let known = if appended { 1 } else { 2 };
        here.set_len(known * SLOT).unwrap();
        there.write_all_at(&[7; 4 * SLOT as usize], 0).unwrap();
        if appended {
            // To this kernel it ends at the second slot now.
            end.write_all(&[8; SLOT as usize]).unwrap();
        }
        let mut slot = [0; SLOT as usize];
        here.read_exact_at(&mut slot, 0).unwrap();
        assert_eq!(slot, [7; SLOT as usize]);
        here.set_len(2 * SLOT).unwrap();
        here.write_all_at(&[9; SLOT as usize], 5 * SLOT).unwrap();
        for hole in 2..5 {
            here.read_exact_at(&mut slot, hole * SLOT).unwrap();
            assert_eq!(slot, [0; SLOT as usize], "{name}: slot {hole}");
        }
    }
}

// --- mmap/read ---

#[test]
fn stores_to_mappings_and_reads_of_two_mounts_have_one_order() {
    const SLOTS: usize = 4;
    let Some(two) = Two::new() else { return };
    std::fs::write(two.at[0].join("mapped"), vec![0; SLOTS * SLOT as usize]).unwrap();
    let value = AtomicU64::new(0);
    // One thread of each mount has it mapped and stores to it, the other reads it: what a kernel makes of a store and a write of its
    // own programs to the same bytes at once is not this file system's.
    let opened: Vec<File> = (0..THREADS)
        .map(|who| OpenOptions::new().read(true).write(true).open(two.at[who % 2].join("mapped")).unwrap())
        .collect();
    let maps: Vec<Word> = opened.iter().map(|file| Word(Map::shared(file, SLOTS * SLOT as usize).unwrap())).collect();
    let done = together(&two, 100, THREADS, Slots(vec![0; SLOTS]), |_, who, dice, history| {
        let (file, map) = (&opened[who], &maps[who]);
        let slot = dice.throw(SLOTS as u64) as usize;
        let is_mapped = who < 2;
        let op = match dice.throw(2) {
            0 if is_mapped => ByteOp::Write(slot, value.fetch_add(1, SeqCst) + 1),
            _ => ByteOp::Read(slot),
        };
        history.run(who, op, || match op {
            ByteOp::Write(at, value) if is_mapped => {
                map.word(at).store(value, SeqCst);
                None
            }
            ByteOp::Read(at) if is_mapped => Some(map.word(at).load(SeqCst)),
            ByteOp::Read(at) => {
                let mut bytes = [0; SLOT as usize];
                file.read_exact_at(&mut bytes, at as u64 * SLOT).unwrap();
                Some(u64::from_le_bytes(bytes))
            }
            _ => None,
        });
    });
    assert!(done > 100, "{done} operations in a minute");
}

/// A mapping that threads read and store to by words.
struct Word(Map);

// SAFETY: it is used through atomics only.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: a mapping begins at a page, and has four words.
        unsafe { &*self.0.at.cast::<AtomicU64>().add(at) }
    }
}

// --- lock/unlock ---

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    /// Who holds it, for writing or not.
    flock: BTreeSet<(usize, bool)>,
    bytes: [BTreeSet<(usize, bool)>; 3],
}

#[derive(Clone, Copy, Debug)]
enum LockOp {
    /// Of which bytes (or the flock), by whom, for writing.
    Take(Option<usize>, usize, bool),
    Free(Option<usize>, usize),
    /// An flock that is to be of this kind is given up before it is asked for: not in one moment, so this is the first half.
    Change(usize, bool),
}

impl Sequential for Held {
    type Op = LockOp;
    type Answer = bool;

    fn apply(&mut self, op: &LockOp) -> bool {
        let (at, who) = match *op {
            LockOp::Take(at, who, _) | LockOp::Free(at, who) => (at, who),
            LockOp::Change(who, write) => {
                self.flock.retain(|(holder, had)| *holder != who || *had == write);
                return true;
            }
        };
        let held = match at {
            Some(at) => &mut self.bytes[at],
            None => &mut self.flock,
        };
        let LockOp::Take(_, _, write) = *op else {
            held.retain(|(holder, _)| *holder != who);
            return true;
        };
        let is_free = held.iter().all(|(holder, writes)| *holder == who || !(write || *writes));
        let had = held.iter().any(|(holder, _)| *holder == who);
        // flock gives the old lock up before it asks for another kind; fcntl keeps it.
        if is_free || (at.is_none() && had && !held.contains(&(who, write))) {
            held.retain(|(holder, _)| *holder != who);
        }
        if is_free {
            held.insert((who, write));
        }
        is_free
    }
}

fn lock_bytes(file: &File, slot: usize, kind: i32) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (slot as i64 * 10, 10);
    // SAFETY: an open file and a lock of this frame.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    let error = std::io::Error::last_os_error();
    assert!(done == 0 || error.raw_os_error() == Some(libc::EAGAIN), "{error}");
    done == 0
}

#[test]
fn locks_of_two_mounts_have_one_order() {
    let Some(two) = Two::new() else { return };
    let [opened, _] = two.open("locked");
    drop(opened);
    let opened: Vec<File> = (0..THREADS)
        .map(|who| OpenOptions::new().read(true).write(true).open(two.at[who % 2].join("locked")).unwrap())
        .collect();
    let done = together(&two, LEAST, THREADS, Held::default(), |_, who, dice, history| {
        let at = [None, Some(0), Some(1), Some(2)][dice.throw(4) as usize];
        let write = dice.throw(2) == 0;
        let op = if dice.throw(2) == 0 { LockOp::Take(at, who, write) } else { LockOp::Free(at, who) };
        let act = || match (op, at) {
            (LockOp::Take(..), Some(slot)) => {
                lock_bytes(&opened[who], slot, if write { libc::F_WRLCK } else { libc::F_RDLCK })
            }
            (_, Some(slot)) => lock_bytes(&opened[who], slot, libc::F_UNLCK),
            (LockOp::Take(..), None) => {
                let kind = match write {
                    true => FlockOperation::NonBlockingLockExclusive,
                    false => FlockOperation::NonBlockingLockShared,
                };
                flock(&opened[who], kind).is_ok()
            }
            (_, None) => flock(&opened[who], FlockOperation::Unlock).is_ok(),
        };
        match op {
            LockOp::Take(None, ..) => history.run(who, LockOp::Change(who, write), || {
                history.run(who, op, act);
                true
            }),
            _ => history.run(who, op, act),
        }
    });
    assert!(done > LEAST, "{done} operations in a minute");
}

/// Who waits for a lock gets it when another mount frees it, closes the file, or its process is killed.
#[test]
fn a_lock_that_is_waited_for_comes_from_the_other_mount() {
    let Some(two) = Two::new() else { return };
    let [a, b] = two.open("waited");
    for end in ["freed", "closed", "killed"] {
        let mut held = std::process::Command::new("flock")
            .arg(two.at[0].join("waited"))
            .args(["sh", "-c", "echo held; read -r x; exit 0"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 4];
        std::io::Read::read_exact(held.stdout.as_mut().unwrap(), &mut word).unwrap();
        assert!(flock(&b, FlockOperation::NonBlockingLockExclusive).is_err(), "the other mount holds it");
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                flock(&b, FlockOperation::LockExclusive).unwrap();
                Instant::now()
            });
            std::thread::sleep(Duration::from_millis(200));
            assert!(!waiting.is_finished());
            let begun = Instant::now();
            match end {
                "killed" => {
                    // The shell has it inherited: both go.
                    held.kill().unwrap();
                    drop(held.stdin.take());
                }
                _ => drop(held.stdin.take()),
            }
            let _ = held.wait();
            waiting.join().unwrap().duration_since(begun)
        });
        assert!(waiting < Duration::from_secs(2), "{end}: it took {waiting:?}");
        flock(&b, FlockOperation::Unlock).unwrap();
    }
    drop(a);
    let waits = two.c.run("admin why");
    assert_eq!(waits.code, 0);
}

// --- readdir while changing, unlink/read of an open file ---

#[test]
fn a_listing_while_another_mount_changes_the_directory_has_all_that_stays() {
    const STAY: usize = 600;
    let Some(two) = Two::new() else { return };
    let dir = two.at[0].join("dir");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..STAY {
        File::create(dir.join(format!("stays{n:04}"))).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in &two.at {
            let (dir, over) = (at.join("dir"), &over);
            let who = at.display().to_string().len();
            scope.spawn(move || {
                let mut n = 0;
                while !over.load(SeqCst) {
                    let (one, two) =
                        (dir.join(format!("comes{who}-{}", n % 50)), dir.join(format!("goes{who}-{}", n % 50)));
                    let _ = std::fs::write(&one, b"x").and_then(|()| std::fs::rename(&one, &two));
                    if n % 3 == 0 {
                        let _ = std::fs::remove_file(&two);
                    }
                    n += 1;
                }
            });
        }
        let end = Instant::now() + FOR;
        let mut lists = 0;
        while Instant::now() < end {
            let list = std::fs::read_dir(two.at[lists % 2].join("dir")).unwrap();
            let names: Vec<String> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            let stays: Vec<&String> = names.iter().filter(|name| name.starts_with("stays")).collect();
            let unique: BTreeSet<&String> = stays.iter().copied().collect();
            assert!(
                stays.len() == STAY && unique.len() == STAY,
                "{} of {STAY} names, {} of them once",
                stays.len(),
                unique.len()
            );
            lists += 1;
        }
        over.store(true, SeqCst);
        assert!(lists > 5, "{lists} listings in {FOR:?}");
    });
}

#[test]
fn what_another_mount_removes_stays_readable_and_writable_while_it_is_open() {
    let Some(two) = Two::new() else { return };
    for round in 0..30 {
        // In its row, in a chunk.
        let bytes = vec![round as u8; if round % 2 == 0 { 500 } else { 200_000 }];
        let path = two.at[0].join("gone");
        std::fs::write(&path, &bytes).unwrap();
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let open = File::from(openat(rustix::fs::CWD, &path, flags, Mode::empty()).unwrap());
        match round % 3 {
            0 => std::fs::remove_file(two.at[1].join("gone")).unwrap(),
            1 => {
                std::fs::write(two.at[1].join("other"), b"other").unwrap();
                std::fs::rename(two.at[1].join("other"), two.at[1].join("gone")).unwrap();
            }
            _ => {
                std::fs::remove_file(two.at[1].join("gone")).unwrap();
                std::fs::write(two.at[1].join("gone"), b"another").unwrap();
            }
        }
        let mut seen = vec![0; bytes.len()];
        open.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == bytes, "round {round}");
        open.write_all_at(b"more", bytes.len() as u64).unwrap();
        open.sync_all().unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0, "round {round}");
        assert_eq!(open.metadata().unwrap().len(), bytes.len() as u64 + 4, "round {round}");
        let _ = std::fs::remove_file(two.at[0].join("gone"));
    }
    assert!(two.c.says("admin fsck").starts_with("clean: "));
}
