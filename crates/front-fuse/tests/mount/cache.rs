//! What the kernel keeps, and how it is made to forget: changes behind the mount's back, as another mount makes them.

use crate::world::{World, errno, with_world};
use braid_api::{Caller, FileSystem, NewNode, NodeKind, OpenFlags, SetAttr, Shown};
use braid_front_fuse::MountConfig;
use braid_types::{ByteRange, InodeId, Mode, Name};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

/// When dropped.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn make_behind(w: &World, text: &str) {
    let new = NewNode { kind: NodeKind::File, mode: Mode(0o644) };
    w.runtime.block_on(w.model.make_node(&Caller::default(), InodeId::ROOT, &name(text), new)).unwrap();
}

fn overwrite_behind(w: &World, id: InodeId, data: &'static str) {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    w.runtime.block_on(async {
        let handle = w.model.open(&Caller::default(), id, flags).await.unwrap().handle;
        w.model.write(handle, 0, data.into()).await.unwrap();
        w.model.release(handle).await;
    });
}

#[test]
fn an_absence_is_remembered_until_it_is_told() {
    with_world(MountConfig::default(), LONG, |w| {
        let path = w.path("f");
        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
        make_behind(w, "f");
        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
        w.runtime.block_on(w.mounted.notifier().entries(vec![(InodeId::ROOT, name("f"))], || false)).unwrap();
        assert_eq!(errno(fs::metadata(&path)), 0);
        let asked = || w.mounted.stats().requests.load(Ordering::Relaxed);
        let before = asked();
        for _ in 0..100 {
            fs::metadata(&path).unwrap();
        }
        assert_eq!(asked(), before, "a kept answer is not asked for");
    });
}

#[test]
fn many_names_and_attributes_are_forgotten_together() {
    with_world(MountConfig::default(), LONG, |w| {
        let names: Vec<String> = (0..500).map(|i| format!("f{i}")).collect();
        names.iter().for_each(|text| assert_eq!(errno(fs::metadata(w.path(text))), libc::ENOENT));
        names.iter().for_each(|text| make_behind(w, text));
        let all = names.iter().map(|text| (InodeId::ROOT, name(text))).collect();
        w.runtime.block_on(w.mounted.notifier().entries(all, || false)).unwrap();
        let id = |text: &String| InodeId(fs::metadata(w.path(text)).unwrap().ino());
        let ids: Vec<InodeId> = names.iter().map(id).collect();
        ids.iter().for_each(|id| overwrite_behind(w, *id, "12345"));
        w.runtime.block_on(w.mounted.notifier().attributes(ids)).unwrap();
        names.iter().for_each(|text| assert_eq!(fs::metadata(w.path(text)).unwrap().len(), 5, "{text}"));
    });
}

#[test]
fn a_removed_name_is_forgotten() {
    with_world(MountConfig::default(), LONG, |w| {
        let path = w.path("f");
        fs::write(&path, b"x").unwrap();
        let id = InodeId(fs::metadata(&path).unwrap().ino());
        w.runtime.block_on(w.model.unlink(&Caller::default(), InodeId::ROOT, &name("f"))).unwrap();
        assert_eq!(errno(fs::metadata(&path)), 0);
        w.runtime.block_on(w.mounted.notifier().removed(InodeId::ROOT, id, name("f"))).unwrap();
        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    });
}

#[test]
fn pages_and_attributes_are_forgotten() {
    with_world(MountConfig::default(), LONG, |w| {
        let path = w.path("f");
        fs::write(&path, b"old content").unwrap();
        let id = InodeId(fs::metadata(&path).unwrap().ino());
        assert_eq!(fs::read(&path).unwrap(), b"old content");
        overwrite_behind(w, id, "new content, longer");
        // The size may be asked for, pages are kept: nobody told.
        assert!(fs::read(&path).unwrap().starts_with(b"old content"));
        let whole = ByteRange::new(0, u64::MAX);
        w.runtime.block_on(w.mounted.notifier().pages(id, whole)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new content, longer");
        w.runtime.block_on(w.mounted.notifier().attributes(vec![id])).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 19);
    });
}

#[test]
fn every_name_can_be_ended_at_once() {
    with_world(MountConfig::default(), LONG, |w| {
        assert_eq!(errno(fs::metadata(w.path("f"))), libc::ENOENT);
        make_behind(w, "f");
        match w.mounted.notifier().all_entries() {
            Ok(()) => assert_eq!(errno(fs::metadata(w.path("f"))), 0),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => eprintln!("not tested: older kernel"),
            Err(error) => panic!("{error}"),
        }
    });
}

/// The kernel holds a directory's lock until a create in it is answered; an invalidation there cannot wait for that.
#[test]
fn an_invalidation_under_load_always_returns() {
    with_world(MountConfig::default(), LONG, |w| {
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for i in 0..200 {
                        let path = w.path(&format!("{thread}-{i}"));
                        fs::write(&path, b"x").unwrap();
                        fs::remove_file(&path).unwrap();
                    }
                });
            }
            for i in 0..200 {
                w.runtime
                    .block_on(
                        w.mounted.notifier().entries(vec![(InodeId::ROOT, name(&format!("0-{i}")))], || i % 2 == 0),
                    )
                    .unwrap();
            }
        });
    });
}

#[test]
fn nothing_is_kept_for_no_time() {
    with_world(MountConfig::default(), Duration::ZERO, |w| {
        assert_eq!(errno(fs::metadata(w.path("f"))), libc::ENOENT);
        make_behind(w, "f");
        let id = InodeId(fs::metadata(w.path("f")).unwrap().ino());
        overwrite_behind(w, id, "four");
        assert_eq!(fs::metadata(w.path("f")).unwrap().len(), 4);
    });
}

/// The answer was right when it was made, and the kernel has no inode yet that could forget anything.
#[test]
fn a_late_answer_is_not_kept() {
    with_world(MountConfig::default(), LONG, |w| {
        let path = w.path("f");
        // Without the time of birth, which a lookup does not bring: `fs::metadata` asks once more for it.
        let mode = || rustix::fs::stat(&path).unwrap().st_mode & 0o7777;
        make_behind(w, "f");
        let found = w.runtime.block_on(w.model.lookup(&Caller::default(), InodeId::ROOT, &name("f"))).unwrap();
        let id = found.attr.expect("it has been made").id;
        let made = w.model.lookups().made();
        std::thread::scope(|scope| {
            let held = w.model.lookups().hold();
            let looks = scope.spawn(mode);
            while w.model.lookups().made() == made {
                std::thread::yield_now();
            }
            let change = SetAttr { mode: Some(Mode(0o600)), ..SetAttr::default() };
            w.runtime.block_on(w.model.set_attr(&Caller::default(), id, None, change)).unwrap();
            w.runtime.block_on(w.model.watcher().expect("the door watches").forget(vec![Shown::Attr(id)]));
            drop(held);
            looks.join().unwrap();
        });
        assert_eq!(mode(), 0o600);
    });
}

/// A read is under way up to the end when another mount moves the end. Whatever the kernel has to be told of that is told when the change
/// is over: the next read beyond the end asks for the size, and the answer counts.
#[test]
fn the_next_read_after_an_append_ends_where_it_does() {
    const ROUNDS: usize = 200;
    with_world(MountConfig::default(), LONG, |w| {
        let path = w.path("f");
        let mut content = vec![b'x'; 5_000];
        fs::write(&path, &content).unwrap();
        let id = InodeId(fs::metadata(&path).unwrap().ino());
        let watcher = w.model.watcher().expect("the door watches");
        for round in 0..ROUNDS {
            let file = fs::File::open(&path).unwrap();
            let read = || {
                let mut bytes = vec![0; content.len() + 10_000];
                let len = file.read_at(&mut bytes, 0).unwrap();
                bytes.truncate(len);
                bytes
            };
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let made = w.model.reads().made();
            let end = content.len() as u64;
            std::thread::scope(|scope| {
                let held = w.model.reads().hold();
                let reads = scope.spawn(read);
                while w.model.reads().made() == made {
                    std::thread::yield_now();
                }
                w.runtime.block_on(async {
                    let flags = OpenFlags { write: true, ..OpenFlags::default() };
                    let handle = w.model.open(&Caller::default(), id, flags).await.unwrap().handle;
                    w.model.write(handle, end, vec![b'y'; 100].into()).await.unwrap();
                    w.model.release(handle).await;
                });
                let forget = watcher.forget(vec![Shown::Attr(id), Shown::Pages(id, end, u64::MAX)]);
                let begun = Instant::now();
                let forgets = scope.spawn(|| w.runtime.block_on(forget));
                // That the read is still under way when the kernel is told is what this is about; nothing fails if it is not.
                std::thread::sleep(Duration::from_millis(2));
                drop(held);
                forgets.join().unwrap();
                let waited = begun.elapsed();
                let bytes = read();
                assert_eq!(bytes.len(), content.len() + 100, "round {round}, waited {waited:?}");
                assert!(bytes.ends_with(&[b'y'; 100]), "round {round}");
                reads.join().unwrap();
            });
            content.extend([b'y'; 100]);
        }
    });
}

/// As another mount's changes come: the file system says what is not to be shown any more, while programs here ask for it all
/// the time.
#[test]
fn what_the_file_system_takes_back_is_not_shown_again() {
    with_world(MountConfig::default(), LONG, |w| {
        let (over, asking) = (AtomicBool::new(false), RwLock::new(()));
        let (path, absent) = (w.path("f"), w.path("absent"));
        let forget = |shown| w.runtime.block_on(w.model.watcher().expect("the door watches").forget(shown));
        std::thread::scope(|scope| {
            // Also when a look fails: else the others ask for ever, and nobody learns of it.
            let _over = Sets(&over);
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _asking = asking.read();
                        let _ = (fs::metadata(&path), fs::metadata(&absent));
                    }
                });
            }
            for i in 0..100 {
                make_behind(w, "f");
                forget(vec![Shown::Entry(InodeId::ROOT, name("f"))]);
                let id = InodeId(fs::metadata(&path).expect("it has been made").ino());
                let mode = 0o600 + i % 0o100;
                let change = SetAttr { mode: Some(Mode(mode)), ..SetAttr::default() };
                w.runtime.block_on(w.model.set_attr(&Caller::default(), id, None, change)).unwrap();
                forget(vec![Shown::Attr(id)]);
                let shown = || fs::metadata(&path).unwrap().mode() & 0o7777;
                if shown() != mode {
                    // A kernel that takes an answer in says that it is up to date before it is, and who looks between the two sees
                    // what was before (docs/posix.md). When nobody asks, nothing is taken in: what is shown then is kept.
                    let _quiet = asking.write();
                    assert_eq!(shown(), mode, "round {i}");
                }
                w.runtime.block_on(w.model.unlink(&Caller::default(), InodeId::ROOT, &name("f"))).unwrap();
                forget(vec![Shown::Entry(InodeId::ROOT, name("f")), Shown::Attr(id)]);
                assert_eq!(errno(fs::metadata(&path)), libc::ENOENT, "round {i}");
            }
        });
    });
}
