//! What takes a while: times of reads, signals, clients that are killed.

use super::*;

/// If it comes to the mount: what the kernel answers from its own pages nobody hears of.
pub fn a_read_is_noted_and_reaches_the_servers(r: &Room) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let seen = |dir: &Path, name: &str| fs::metadata(dir.join(name)).unwrap().accessed().unwrap();
    for name in ["read", "not-read"] {
        r.make(name, LARGE).sync_all().unwrap();
        r.open(name, 0).set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
        assert_eq!((seen(&r.dir, name), seen(&r.there, name)), (old, old));
    }
    forget();
    fs::read(r.path("read")).unwrap();
    eventually("the time of the read at the other mount", SOON, || seen(&r.there, "read") > old);
    assert_eq!(seen(&r.dir, "read"), seen(&r.there, "read"));
    assert_eq!(seen(&r.there, "not-read"), old);
    // Once a day is enough, if nothing was written since.
    let first = seen(&r.there, "read");
    forget();
    fs::read(r.path("read")).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(seen(&r.there, "read"), first);
}

/// It waits for a server, and goes on to its end when the server does.
pub fn a_signal_ends_no_read(r: &Room) {
    r.make("f", LARGE).sync_all().unwrap();
    // Where nothing of it was read.
    let file = open(&r.there.join("f"), libc::O_RDONLY).unwrap();
    for name in ["data-1", "data-2"] {
        r.w.c.signal(name, Signal::STOP);
    }
    let go_on = || ["data-1", "data-2"].iter().for_each(|name| r.w.c.signal(name, Signal::CONT));
    let begun = Instant::now();
    let enough = || {
        let is_enough = begun.elapsed() > Duration::from_secs(1);
        is_enough.then(go_on);
        is_enough
    };
    let read = || {
        let mut bytes = vec![0; LARGE];
        file.read_at(&mut bytes, 0).map(|len| (len, bytes))
    };
    let read = interrupted(read, enough);
    let waited = begun.elapsed();
    // Also if it has failed: what comes next needs them.
    go_on();
    assert!(waited > Duration::from_secs(1), "it did not wait for a server: {:?}", read.map(|read| read.0));
    let (len, bytes) = read.unwrap();
    assert!((len, &bytes) == (LARGE, &pattern(LARGE)), "{len} bytes");
}

/// `fsync` and its like promise; the rest is sent after a second at the latest. A third mount is killed, nothing is unmounted.
pub fn what_was_synced_or_waited_a_while_outlives_the_client(r: &Room) {
    let place = tempfile::tempdir().unwrap();
    let log = r.w.c.root().join("log/third.log");
    r.w.c.says(&format!("mount {} --log {}", place.path().display(), log.display()));
    let dir = place.path().join(r.dir.file_name().unwrap());
    let make = |name: &str, flags| open(&dir.join(name), libc::O_RDWR | libc::O_CREAT | flags).unwrap();
    let mut kept = Vec::new();
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        let bytes = pattern(len);
        let waited = make(&format!("{size}-waited"), 0);
        waited.write_all_at(&bytes, 0).unwrap();
        let mapped = make(&format!("{size}-msync"), 0);
        mapped.set_len(len as u64).unwrap();
        let map = Map::shared(&mapped, len).unwrap();
        map.write(0, &bytes);
        kept.extend([waited, mapped]);
    }
    // What waits is sent meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        let bytes = pattern(len);
        let write = |name: &str, flags| {
            let file = make(&format!("{size}-{name}"), flags);
            file.write_all_at(&bytes, 0).unwrap();
            file
        };
        let (sync, dsync) = (write("o-sync", libc::O_SYNC), write("o-dsync", libc::O_DSYNC));
        let (whole, data) = (write("fsync", 0), write("fdatasync", 0));
        whole.sync_all().unwrap();
        data.sync_data().unwrap();
        let mapped = make(&format!("{size}-msync"), 0);
        Map::shared(&mapped, len).unwrap().sync();
        kept.extend([sync, dsync, whole, data, mapped]);
    }
    rustix::process::kill_process(process_of(place.path()), Signal::KILL).unwrap();
    for (size, len) in [("small", 1000), ("large", LARGE)] {
        for name in ["waited", "o-sync", "o-dsync", "fsync", "fdatasync", "msync"] {
            let path = r.path(&format!("{size}-{name}"));
            assert!(fs::read(&path).unwrap() == pattern(len), "{}", path.display());
        }
    }
    drop(kept);
    let _ = rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH);
}
