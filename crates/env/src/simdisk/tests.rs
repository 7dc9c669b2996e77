use super::*;

fn path(text: &str) -> PathBuf {
    PathBuf::from(text)
}

fn file(disk: &SimDisk, text: &str) -> Arc<dyn DiskFile> {
    disk.open(&path(text), OpenMode::OrCreate).unwrap()
}

fn synced(disk: &SimDisk, text: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = file(disk, text);
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file
}

fn content(disk: &SimDisk, text: &str) -> Vec<u8> {
    let file = disk.open(&path(text), OpenMode::Existing).unwrap();
    let mut buf = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), buf.len());
    buf
}

#[test]
fn synced_bytes_survive_and_the_others_survive_whole_torn_or_not_at_all() {
    let (mut old, mut new, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new();
        let handle = synced(&disk, "/f", &[1; 8192]);
        handle.write_at(&[2; 4096], 4096).unwrap();
        disk.crash(seed);
        assert!(handle.read_at(&mut [0], 0).is_err(), "the process is dead");
        let bytes = content(&disk, "/f");
        assert_eq!((bytes.len(), &bytes[..4096]), (8192, &[1; 4096][..]));
        let sectors = bytes[4096..].chunks(SECTOR_BYTES);
        assert!(sectors.clone().all(|s| s.iter().all(|&b| b == s[0])), "a sector is never torn inside");
        match sectors.filter(|s| s[0] == 2).count() {
            0 => old += 1,
            8 => new += 1,
            _ => torn += 1,
        }
    }
    assert!(old > 20 && new > 20 && torn > 20, "{old} {new} {torn}");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let after = |seed| {
        let disk = SimDisk::new();
        let handle = synced(&disk, "/f", &[1; 8192]);
        for n in 0..20u64 {
            handle.write_at(&[n as u8; 1000], n * 300).unwrap();
        }
        disk.crash(seed);
        content(&disk, "/f")
    };
    assert_eq!(after(7), after(7));
    assert!((0..20).any(|seed| after(seed) != after(seed + 1)));
}

#[test]
fn unsynced_names_come_and_go() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..60 {
        let disk = SimDisk::new();
        synced(&disk, "/old", b"x");
        disk.create_dir_all(Path::new("/d/e")).unwrap();
        file(&disk, "/d/e/new").sync_data().unwrap();
        disk.sync_dir(Path::new("/d/e")).unwrap();
        disk.rename(Path::new("/old"), Path::new("/moved")).unwrap();
        disk.crash(seed);
        let names: Vec<_> = disk.list(Path::new("/")).unwrap().into_iter().map(|e| e.name).collect();
        let has = |name: &str| names.iter().any(|n| n == name);
        assert!(has("old") != has("moved"), "a rename is one change: {names:?}");
        match disk.open(Path::new("/d/e/new"), OpenMode::Existing) {
            Ok(_) => kept += 1,
            Err(_) => lost += 1,
        }
    }
    assert!(kept > 5 && lost > 5, "a synced name needs a synced directory: {kept} {lost}");
}

#[test]
fn a_killed_process_loses_its_handles_and_no_byte() {
    let disk = SimDisk::new();
    let lock = disk.lock(Path::new("/lock")).unwrap();
    assert_eq!(disk.lock(Path::new("/lock")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    file(&disk, "/f").write_at(b"unsynced", 0).unwrap();
    disk.kill_process();
    let again = disk.lock(Path::new("/lock")).unwrap();
    drop(lock);
    assert!(disk.lock(Path::new("/lock")).is_err(), "a dead lock frees nothing");
    drop(again);
    assert_eq!(content(&disk, "/f"), b"unsynced");
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let lost = (0..40).any(|n| {
        let disk = SimDisk::new();
        let handle = synced(&disk, "/f", &[1; 512]);
        (0..=n).for_each(|_| handle.write_at(&[2; 512], 0).unwrap());
        disk.fail_next_sync(SyncFault::Error);
        assert!(handle.sync_data().is_err());
        handle.sync_data().unwrap();
        let mut now = [0];
        handle.read_at(&mut now, 0).unwrap();
        assert_eq!(now, [2], "the cache still shows it");
        disk.crash(n);
        content(&disk, "/f")[0] == 1
    });
    assert!(lost);
}

#[test]
fn lost_and_skipped_syncs_do_nothing() {
    for skip in [true, false] {
        let lost = (0..20).any(|seed| {
            let disk = SimDisk::new();
            let handle = synced(&disk, "/f", &[1; 512]);
            handle.write_at(&[2; 512], 0).unwrap();
            disk.skip_syncs(skip);
            if !skip {
                disk.fail_next_sync(SyncFault::Lost);
            }
            handle.sync_data().unwrap();
            disk.crash(seed);
            content(&disk, "/f")[0] == 1
        });
        assert!(lost, "skip {skip}");
    }
}

#[test]
fn bad_sectors_read_as_errors_until_written() {
    let disk = SimDisk::new();
    let handle = synced(&disk, "/f", &[1; 8192]);
    disk.bad_range(Path::new("/f"), 4096..4608).unwrap();
    let mut buf = [0; 4096];
    handle.read_at(&mut buf, 0).unwrap();
    assert_eq!(handle.read_at(&mut buf, 4096).unwrap_err().raw_os_error(), Some(libc::EIO));
    handle.write_at(&[3; 4096], 4096).unwrap();
    handle.read_at(&mut buf, 4096).unwrap();
    disk.corrupt(Path::new("/f"), 10, 0x80).unwrap();
    handle.read_at(&mut buf, 0).unwrap();
    assert_eq!(buf[10], 0x81);
}

#[test]
fn a_full_disk_takes_no_more_and_gives_back() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(16384));
    let handle = file(&disk, "/f");
    handle.write_at(&[1; 8192], 0).unwrap();
    handle.allocate(8192, 4096).unwrap();
    assert_eq!(disk.space(Path::new("/")).unwrap(), DiskSpace { total: 16384, free: 4096, ..DiskSpace::default() });
    assert_eq!(handle.write_at(&[1; 8192], 12288).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(handle.len().unwrap(), 16384, "the part that fits was written");
    handle.write_at(&[2; 4096], 8192).unwrap();
    handle.punch_hole(0, 8192).unwrap();
    assert_eq!(handle.occupied().unwrap(), 8192);
    file(&disk, "/g").write_at(&[1; 4096], 0).unwrap();
}

#[test]
fn a_read_only_disk_and_failing_writes_say_so() {
    let disk = SimDisk::new();
    let handle = file(&disk, "/f");
    disk.fail_writes(1);
    assert!(handle.write_at(&[1; 512], 0).is_err());
    handle.write_at(&[1; 512], 0).unwrap();
    assert!(!disk.space(Path::new("/")).unwrap().read_only);
    disk.read_only(true);
    assert!(disk.space(Path::new("/")).unwrap().read_only);
    assert_eq!(handle.write_at(&[1], 0).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    for mode in [OpenMode::OrCreate, OpenMode::Existing] {
        assert!(disk.open(Path::new("/f"), mode).is_err(), "{mode:?}");
    }
    let reader = disk.open(Path::new("/f"), OpenMode::ReadOnly).unwrap();
    assert_eq!(disk.open(Path::new("/g"), OpenMode::ReadOnly).err().unwrap().kind(), io::ErrorKind::NotFound);
    let mut byte = [0];
    assert_eq!((reader.read_at(&mut byte, 511).unwrap(), byte), (1, [1]));
    disk.read_only(false);
    assert_eq!(reader.write_at(&[2], 0).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    handle.write_at(&[2], 0).unwrap();
}

#[test]
fn a_disk_can_stop_at_any_change() {
    let disk = SimDisk::new();
    let handle = file(&disk, "/f");
    disk.stop_after(Some(1));
    handle.write_at(b"a", 0).unwrap();
    assert!(handle.write_at(b"b", 1).is_err());
    assert!(handle.read_at(&mut [0], 0).is_err());
    disk.crash(1);
    file(&disk, "/g").write_at(b"c", 0).unwrap();
}

#[test]
fn what_is_read_once_does_not_stay_unless_it_was_there() {
    let disk = SimDisk::new();
    let handle = synced(&disk, "/f", &[1; 8192]);
    let mut buf = [0; 8192];
    let stays = |offset| handle.read_cached_at(&mut [0; 100], offset).unwrap().is_some();
    disk.drop_caches();
    handle.read_at(&mut buf[..100], 0).unwrap();
    assert_eq!(handle.read_once_at(&mut buf, 0).unwrap(), 8192);
    assert_eq!((stays(0), stays(4096)), (true, false));
    assert!(buf == [1; 8192]);
    disk.drop_caches();
    handle.read_at(&mut buf[..100], 0).unwrap();
    handle.write_once_at(&[2; 8192], 0).unwrap();
    assert_eq!((stays(0), stays(4096)), (true, false));
    handle.read_at(&mut buf, 0).unwrap();
    assert!(buf == [2; 8192]);
}

#[test]
fn caches_and_counters_are_kept() {
    let disk = SimDisk::new();
    let handle = synced(&disk, "/f", &[1; 8192]);
    let mut buf = [0; 100];
    assert_eq!(handle.read_cached_at(&mut buf, 4090).unwrap(), Some(100));
    disk.drop_caches();
    assert_eq!(handle.read_cached_at(&mut buf, 4090).unwrap(), None);
    handle.read_at(&mut buf, 4090).unwrap();
    assert_eq!(handle.read_cached_at(&mut buf, 4090).unwrap(), Some(100));
    let counters = disk.counters();
    assert_eq!((counters.reads, counters.writes, counters.bytes_written, counters.syncs), (3, 1, 8192, 2));
}

#[test]
fn a_shrunk_file_grows_zeros() {
    let disk = SimDisk::new();
    let handle = synced(&disk, "/f", &[1; 10_000]);
    handle.set_len(5_000).unwrap();
    handle.set_len(10_000).unwrap();
    let bytes = content(&disk, "/f");
    assert!(bytes[..5_000].iter().all(|&b| b == 1) && bytes[5_000..].iter().all(|&b| b == 0));
}

#[test]
fn a_descriptor_shows_what_is_in_the_file_and_outlives_its_process() {
    let disk = SimDisk::new();
    let opened = synced(&disk, "/f", b"before");
    let shown = std::fs::File::from(opened.descriptor().unwrap().try_clone_to_owned().unwrap());
    let all = || {
        let mut bytes = vec![0; shown.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&shown, &mut bytes, 0).unwrap();
        bytes
    };
    assert_eq!(all(), b"before");
    opened.write_at(b"after, and longer", 0).unwrap();
    assert_eq!(all(), b"after, and longer");
    opened.set_len(5).unwrap();
    opened.write_at(b"x", 9).unwrap();
    assert_eq!(all(), b"after\0\0\0\0x");
    opened.punch_hole(0, 2).unwrap();
    assert_eq!(all(), b"\0\0ter\0\0\0\0x");
    disk.kill_process();
    assert!(opened.write_at(b"late", 0).is_err());
    file(&disk, "/f").write_at(b"of the next", 0).unwrap();
    assert_eq!(all(), b"of the next");
    drop(opened);
    assert_eq!(all(), b"of the next");
}
