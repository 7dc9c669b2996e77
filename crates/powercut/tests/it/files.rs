//! The disk through system calls: what survives a cut, what may not, and that the kernel's caches tell nothing else.

#![allow(clippy::unwrap_used)]

use crate::common::{disk, process, sync_dir};
use braid_powercut::{Options, Order};
use rustix::fs::{FallocateFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::time::{Duration, Instant};

fn read_write(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn it_is_a_file_system() {
    let Some(at) = disk(&Options::default()) else { return };
    fs::create_dir(at.path("d")).unwrap();
    fs::write(at.path("d/f"), "hello").unwrap();
    fs::hard_link(at.path("d/f"), at.path("g")).unwrap();
    symlink("d/f", at.path("l")).unwrap();
    assert_eq!(
        (fs::read_to_string(at.path("l")).unwrap(), fs::metadata(at.path("g")).unwrap().nlink()),
        ("hello".into(), 2)
    );
    let names: BTreeSet<_> = fs::read_dir(at.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["d", "g", "l"].map(Into::into).into());
    assert_eq!(fs::remove_dir(at.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    let root = File::open(at.path("")).unwrap();
    let noreplace = rustix::fs::renameat_with(&root, "g", &root, "l", RenameFlags::NOREPLACE);
    assert_eq!(noreplace, Err(Errno::EXIST));
    rustix::fs::renameat_with(&root, "g", &root, "d", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(at.path("d")).unwrap(), "hello");
    fs::remove_dir_all(at.path("g")).unwrap();
    let file = read_write(&at.path("big"));
    file.write_all_at(&[7; 3 << 20], 100).unwrap();
    file.set_len(1 << 20).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
    let mut bytes = Vec::new();
    read_write(&at.path("big")).read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), bytes[99], bytes[100], bytes[4096], bytes[12288]), (1 << 20, 0, 7, 0, 7));
    assert_eq!(file.metadata().unwrap().blocks() * 512, (2 << 20) - 8192);
    let (one, two) = (read_write(&at.path("lock")), read_write(&at.path("lock")));
    rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
}

#[test]
fn what_was_synced_survives_hundreds_of_cuts() {
    let Some(at) = disk(&Options::default()) else { return };
    let mut orders = BTreeSet::new();
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..400u64 {
        let (path, byte) = (at.path("f"), seed as u8);
        let file = read_write(&path);
        let len = 4096 + (seed % 7) * 1000;
        file.set_len(0).unwrap();
        file.write_all_at(&vec![byte; len as usize], 0).unwrap();
        file.sync_data().unwrap();
        fs::write(at.path(&format!("new-{seed}")), "a name").unwrap();
        File::open(at.path(&format!("new-{seed}"))).unwrap().sync_all().unwrap();
        sync_dir(&at.path(""));
        // And what was not.
        file.write_all_at(&[!byte; 4096], len).unwrap();
        let report = at.disk.cut(seed);
        orders.insert(format!("{:?}", report.order));
        (lost, kept, torn) = (lost + report.writes.dropped, kept + report.writes.kept, torn + report.writes.torn);
        assert_eq!(file.read_at(&mut [0], 100_000).err().map(|error| error.raw_os_error()), Some(Some(libc::EIO)));
        let found = fs::read(&path).unwrap();
        assert!(found.len() as u64 >= len && found[..len as usize].iter().all(|found| *found == byte), "seed {seed}");
        assert_eq!(fs::read(at.path(&format!("new-{seed}"))).unwrap(), b"a name", "seed {seed}");
    }
    assert_eq!(orders.len(), 2, "both orders are drawn");
    assert!(lost > 50 && kept > 50 && torn > 10, "lost {lost} kept {kept} torn {torn}");
    assert_eq!(at.disk.stats().cuts, 400);
}

#[test]
fn a_rename_without_a_sync_of_its_directory_can_vanish() {
    for order in [Order::Journal, Order::Posix] {
        let Some(at) = disk(&Options { order: Some(order), ..Options::default() }) else { return };
        let (mut old, mut new) = (0, 0);
        for seed in 0..60 {
            fs::write(at.path("config"), "old").unwrap();
            File::open(at.path("config")).unwrap().sync_all().unwrap();
            sync_dir(&at.path(""));
            let mut file = File::create(at.path("config.new")).unwrap();
            file.write_all(b"new").unwrap();
            file.sync_all().unwrap();
            fs::rename(at.path("config.new"), at.path("config")).unwrap();
            at.disk.cut(seed);
            match fs::read_to_string(at.path("config")).unwrap().as_str() {
                "old" => old += 1,
                "new" => new += 1,
                other => panic!("a synced file was replaced by a synced file, and there is {other:?}"),
            }
        }
        assert!(old > 5 && new > 5, "{order:?}: old {old} new {new}");
    }
}

/// Appends checked records and answers how many it may call durable.
fn append_records(path: &std::path::Path, from: u64, count: u64, syncs: bool) -> u64 {
    let log = read_write(path);
    for number in from..from + count {
        let mut record = [number as u8; 700];
        record[..8].copy_from_slice(&number.to_le_bytes());
        log.write_all_at(&record, number * 700).unwrap();
        if syncs {
            log.sync_data().unwrap();
        }
    }
    from + count
}

/// How many whole records there are from the start.
fn recover(path: &std::path::Path) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    let whole = |(number, record): &(usize, &[u8])| {
        record.len() == 700
            && record[..8] == (*number as u64).to_le_bytes()
            && record[8..].iter().all(|byte| *byte == *number as u8)
    };
    bytes.chunks(700).enumerate().take_while(whole).count() as u64
}

#[test]
fn a_log_that_syncs_loses_nothing_and_one_that_does_not_is_caught() {
    const CAUGHT_WITHIN: u64 = 10;
    for (syncs, lies) in [(true, false), (false, false), (true, true)] {
        let Some(at) = disk(&Options::default()) else { return };
        let path = at.path("log");
        File::create(&path).unwrap().sync_all().unwrap();
        sync_dir(&at.path(""));
        at.disk.lose_syncs(lies);
        let (mut durable, mut caught) = (0, None);
        for seed in 0..if syncs && !lies { 100 } else { CAUGHT_WITHIN } {
            durable = append_records(&path, durable, 1 + seed % 5, syncs);
            at.disk.cut(seed);
            let found = recover(&path);
            if found < durable {
                caught.get_or_insert(seed);
            }
            durable = found;
        }
        assert_eq!(caught.is_some(), !syncs || lies, "syncs {syncs}, lies {lies}: caught at {caught:?}");
    }
}

#[test]
fn a_shared_mapping_sees_what_is_written_and_the_next_life_what_survived() {
    let Some(at) = process::start() else { return };
    let path = at.point.join("data");
    let file = read_write(&path);
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    sync_dir(&at.point);
    // SAFETY: a new shared read-only mapping of a file of two pages, which nothing cuts short while it is read.
    let map = unsafe { mmap(std::ptr::null_mut(), 8192, ProtFlags::READ, MapFlags::SHARED, &file, 0) }.unwrap();
    // SAFETY: `offset` is inside the mapping, which lives until the end of the test.
    let mapped = |offset: usize| unsafe { map.cast::<u8>().add(offset).read_volatile() };
    assert_eq!(mapped(4096), 1);
    for value in 2..200 {
        file.write_all_at(&[value; 100], 4096).unwrap();
        assert_eq!((mapped(4096), mapped(4195), mapped(4196)), (value, value, 1));
    }
    let lost = (0..50).find(|seed| {
        let file = read_write(&path);
        file.write_all_at(&[9; 4096], 0).unwrap();
        assert_eq!(fs::read(&path).unwrap()[0], 9);
        at.cut(*seed);
        // Whatever the kernel cached of the former life, this is what the platter has.
        fs::read(&path).unwrap()[0] == 1
    });
    assert!(lost.is_some());
    // SAFETY: the mapping made above, which nobody uses from here on.
    unsafe { munmap(map, 8192) }.unwrap();
}

#[test]
fn a_store_to_a_shared_mapping_arrives_with_msync() {
    let Some(at) = process::start() else { return };
    let path = at.point.join("lock.mdb");
    let file = read_write(&path);
    file.set_len(4096).unwrap();
    sync_dir(&at.point);
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new shared mapping of a file of one page, unmapped below.
    let map = unsafe { mmap(std::ptr::null_mut(), 4096, writable, MapFlags::SHARED, &file, 0) }.unwrap();
    // SAFETY: inside the mapping, and nobody else uses it; then the same range is synced and unmapped.
    unsafe {
        map.cast::<u8>().write_volatile(5);
        rustix::mm::msync(map, 4096, rustix::mm::MsyncFlags::SYNC).unwrap();
        munmap(map, 4096).unwrap();
    }
    at.cut(1);
    assert_eq!(fs::read(&path).unwrap()[0], 5);
}

#[test]
fn an_o_dsync_write_is_a_synced_write() {
    let Some(at) = disk(&Options::default()) else { return };
    for seed in 0..50 {
        let path = at.path(&format!("{seed}"));
        let file = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
        sync_dir(&at.path(""));
        file.write_all_at(&[7; 5000], 0).unwrap();
        at.disk.cut(seed);
        assert_eq!(fs::read(&path).unwrap(), [7; 5000], "seed {seed}");
    }
}

#[test]
fn errors_come_when_asked_for() {
    let Some(at) = disk(&Options { capacity: Some(64 << 10), ..Options::default() }) else { return };
    let file = read_write(&at.path("f"));
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    assert_eq!(errno(file.write_all_at(&[1; 128 << 10], 0)), Some(libc::ENOSPC));
    file.set_len(0).unwrap();
    file.write_all_at(&[1; 64 << 10], 0).unwrap();
    assert_eq!(rustix::fs::statvfs(at.path("")).unwrap().f_bavail, 0);
    at.disk.set_capacity(None);
    at.disk.fail_writes(1);
    assert_eq!(errno(file.write_all_at(b"x", 0)), Some(libc::EIO));
    file.write_all_at(b"x", 0).unwrap();
    at.disk.fail_syncs(1);
    assert_eq!(errno(file.sync_all()), Some(libc::EIO));
    file.sync_all().unwrap();
    at.disk.slow_syncs(Duration::from_millis(50));
    let start = Instant::now();
    file.sync_all().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn the_disk_stops_at_any_change_and_comes_back_with_the_cut() {
    let Some(at) = disk(&Options::default()) else { return };
    let replace = || -> std::io::Result<()> {
        let mut file = File::create(at.path("new"))?;
        file.write_all(b"content")?;
        file.sync_all()?;
        fs::rename(at.path("new"), at.path("old"))?;
        File::open(at.path(""))?.sync_all()
    };
    let mut failures = 0;
    for changes in 0.. {
        at.disk.stop_after(Some(changes));
        let outcome = replace();
        at.disk.cut(changes);
        match fs::read(at.path("old")) {
            Ok(bytes) => assert_eq!(bytes, b"content"),
            Err(error) => assert!(error.kind() == ErrorKind::NotFound && outcome.is_err(), "{changes}: {error}"),
        }
        match outcome {
            Ok(()) => break,
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
        }
        failures += 1;
    }
    assert!((4..20).contains(&failures), "{failures}");
}

#[test]
fn nothing_stays_mounted() {
    let Some(at) = disk(&Options::default()) else { return };
    let path = at.path("");
    let open = File::create(at.path("f")).unwrap();
    let here = fs::metadata(&path).unwrap().dev();
    assert_ne!(here, fs::metadata(path.parent().unwrap()).unwrap().dev());
    let guard = at.disk.watchdog(Duration::from_millis(20)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::metadata(&path).unwrap().dev(), fs::metadata(path.parent().unwrap()).unwrap().dev());
    assert!(open.sync_all().is_err(), "who used it gets errors and does not hang");
    drop(guard);
}
