//! A mount on a cluster of real processes: what programs see while servers stop, go and come back.

use super::two_mounts::Two;
use super::{Cluster, PLAIN, pattern, ran, say_skipped};
use rustix::process::Signal;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `None`, and it is said, where nobody may mount.
pub fn mounted(more: &[&str]) -> Option<(Cluster, PathBuf)> {
    if !Path::new("/dev/fuse").exists() {
        say_skipped("there is no /dev/fuse");
        return None;
    }
    let c = Cluster::unmade();
    let up = c.up_mounted(more);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let at = c.mount_point();
    Some((c, at))
}

fn log(c: &Cluster, name: &str) -> String {
    std::fs::read_to_string(c.root().join("log").join(format!("{name}.log"))).unwrap()
}

pub fn eventually(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what} did not happen within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes, syncs, renames and reads back; ends at the first error. A process of its own: one that has files of the
/// mount open must not start the servers it waits for, since a child that it starts closes copies of them first.
const LOAD: &str = r#"
n=0
while [ ! -e "$1/stop" ]; do
    n=$((n + 1))
    source=$1/large; [ $((n % 3)) = 0 ] && source=$1/small
    dd if="$source" of="$2/new$n" bs=64k conv=fsync status=none || exit 1
    mv "$2/new$n" "$2/file$n" || exit 1
    cmp "$source" "$2/file$n" || exit 1
    echo "$2/file$n $source" >>"$1/list" || exit 1
done
"#;

/// As an upgrade does it: each server in turn is told to stop and started again, while programs write.
#[test]
fn servers_that_are_stopped_and_started_in_turn_lose_and_fail_nothing() {
    let Some((c, at)) = mounted(PLAIN) else { return };
    let work = tempfile::tempdir().unwrap();
    // One inline, one in a chunk.
    std::fs::write(work.path().join("small"), pattern(3_000)).unwrap();
    std::fs::write(work.path().join("large"), pattern(300_000)).unwrap();
    let mut load = std::process::Command::new("sh")
        .args(["-c", LOAD, "load"])
        .args([work.path(), at.as_path()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        for name in ["metadata", "data-1", "data-2"] {
            std::thread::sleep(Duration::from_millis(500));
            c.signal(name, Signal::TERM);
            eventually("the end on SIGTERM", Duration::from_secs(20), || !c.is_running(name));
            let up = c.up_mounted(&[]);
            assert_eq!(up.code, 0, "{}{}", up.out, up.err);
            assert!(load.try_wait().unwrap().is_none(), "{}", ran(load.wait_with_output().unwrap()).err);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(work.path().join("stop"), "").unwrap();
    let loaded = ran(load.wait_with_output().unwrap());
    assert_eq!((loaded.code, loaded.err.as_str()), (0, ""));
    let list = std::fs::read_to_string(work.path().join("list")).unwrap();
    let written: Vec<(&Path, &Path)> = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(file, source)| (Path::new(file), Path::new(source)))
        .collect();
    assert!(written.len() > 5, "the load did {} files only", written.len());
    for name in ["data-1", "data-2"] {
        assert!(log(&c, name).contains("data server stops: everything is synced"), "{name}");
        assert!(!log(&c, name).contains("the stop was not clean"), "{name}");
    }
    // Not from what the mount remembers: a new mount reads what the servers have.
    assert_eq!(c.run(&format!("umount {}", at.display())).code, 0);
    eventually("the end of the mount", Duration::from_secs(20), || !c.is_running("mount"));
    assert_eq!(c.up_mounted(&[]).code, 0);
    for (path, source) in &written {
        assert!(std::fs::read(path).unwrap() == std::fs::read(source).unwrap(), "{} differs", path.display());
    }
    assert!(c.says("admin fsck --data").starts_with("clean: "));
}

/// Where a mount was killed every access fails until it is unmounted: `down` does, whoever made the mount. It leaves alone what lives.
#[test]
fn down_takes_away_what_killed_mounts_have_left() {
    let Some(two) = Two::with(PLAIN) else { return };
    let Some((_other, lives)) = mounted(PLAIN) else { return };
    let run = std::fs::read_dir(two.c.root().join("run")).unwrap();
    let made = run.flatten().map(|entry| entry.file_name().into_string().unwrap());
    let made: Vec<String> = made.filter_map(|name| name.strip_suffix(".pid").map(str::to_owned)).collect();
    let mounts: Vec<&String> = made.iter().filter(|name| name.starts_with("mount")).collect();
    assert_eq!(mounts.len(), 2, "{made:?}");
    for name in &mounts {
        two.c.kill(name);
        eventually("the end of the mount", Duration::from_secs(20), || !two.c.is_running(name));
    }
    for at in &two.at {
        // Another error (ECONNABORTED) while the kernel still ends what had been asked of it.
        let not_connected = rustix::io::Errno::NOTCONN.raw_os_error();
        eventually("that nobody serves it", Duration::from_secs(20), || {
            std::fs::read_dir(at).expect_err("nobody answers").raw_os_error() == Some(not_connected)
        });
    }
    let status = two.c.run("admin status");
    assert_eq!(status.code, 1, "{}", status.out);
    for (at, again) in two.at.iter().zip(["braid up ", "braid mount "]) {
        let problem = format!("NOT WELL: the mount at {} has died: {again}", at.display());
        assert!(status.out.contains(&problem), "{}", status.out);
    }
    let said = two.c.says(&format!("down {}", two.c.root().display()));
    for at in &two.at {
        assert!(said.contains(&format!("had been killed: unmounted {}\n", at.display())), "{said}");
        assert_eq!(std::fs::read_dir(at).unwrap().count(), 0, "an empty directory again");
    }
    std::fs::write(lives.join("f"), "served").unwrap();
}

/// Also while the kernel is still ending what the killed one had under way: over io_uring calls are told `ECANCELED` for a moment then.
#[test]
fn a_killed_mount_is_mounted_again_at_once() {
    let Some((c, at)) = mounted(PLAIN) else { return };
    std::fs::write(at.join("kept"), "kept").unwrap();
    std::fs::File::open(at.join("kept")).unwrap().sync_all().unwrap();
    for _ in 0..8 {
        c.kill("mount");
        c.says(&format!("up {} --mount {}", c.root().display(), at.display()));
        assert_eq!(std::fs::read(at.join("kept")).unwrap(), b"kept");
    }
}

/// A thread that waits in the kernel for its own mount keeps the connection of a process that was killed; here another process does.
/// Whoever waits for an answer is told that there will be none, and `up` mounts anew.
#[test]
fn a_killed_mount_whose_connection_stays_is_ended_and_mounted_again() {
    let Some((c, at)) = mounted(PLAIN) else { return };
    std::fs::write(at.join("kept"), "kept").unwrap();
    std::fs::File::open(at.join("kept")).unwrap().sync_all().unwrap();
    if !c.root().join("run/mount.identity").exists() {
        say_skipped("the kernel (before Linux 6.8) does not say which mount is which");
        return;
    }
    let pid = process_of(&at);
    let fds = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().flatten();
    let of_kernel = fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("/dev/fuse")));
    let numbers: Vec<i32> = of_kernel.map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let take = |number| rustix::process::pidfd_getfd(&process, number, rustix::process::PidfdGetfdFlags::empty());
    let held: Vec<_> = numbers.into_iter().map(|number| take(number).unwrap()).collect();
    assert!(!held.is_empty());
    c.kill("mount");
    eventually("the end of the mount", Duration::from_secs(20), || !c.is_running("mount"));
    let waits = std::thread::spawn({
        let at = at.clone();
        move || std::fs::read_dir(at.join("none")).map(drop)
    });
    let said = c.says(&format!("up {} --mount {}", c.root().display(), at.display()));
    assert!(said.contains(&format!("BraidFS is mounted at {}", at.display())), "{said}");
    assert!(waits.join().unwrap().is_err());
    assert_eq!(std::fs::read(at.join("kept")).unwrap(), b"kept");
    drop(held);
}

/// Calls wait while the server that they need stands still, and go on when it does.
#[test]
fn calls_wait_for_servers_that_stand_still_and_go_on() {
    let Some((c, at)) = mounted(&[]) else { return };
    for name in ["metadata", "data-1", "data-2"] {
        std::fs::write(at.join("before"), pattern(500_000)).unwrap();
        c.signal(name, Signal::STOP);
        let (path, begun) = (at.join(format!("during-{name}")), Instant::now());
        let waiting = std::thread::spawn(move || {
            // Chunks of one file lie on both data servers in turn.
            for n in 0..4 {
                let mut file = std::fs::File::create(path.with_extension(n.to_string())).unwrap();
                file.write_all(&pattern(400_000)).unwrap();
                file.sync_all().unwrap();
            }
        });
        std::thread::sleep(Duration::from_secs(3));
        assert!(!waiting.is_finished(), "{name} was not needed");
        c.signal(name, Signal::CONT);
        waiting.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}: {:?}", begun.elapsed());
    }
    for name in ["metadata", "data-1", "data-2"] {
        for n in 0..4 {
            assert!(std::fs::read(at.join(format!("during-{name}.{n}"))).unwrap() == pattern(400_000));
        }
    }
}

/// All go on before the first is ended: the mount has bytes for those that stand still.
#[test]
fn down_ends_servers_that_stand_still_and_nothing_is_lost() {
    let Some((c, at)) = mounted(&[]) else { return };
    std::fs::write(at.join("before"), b"x").unwrap();
    let mut file = std::fs::File::create(at.join("unsaved")).unwrap();
    file.write_all(&pattern(500_000)).unwrap();
    for name in ["data-1", "data-2", "metadata"] {
        c.signal(name, Signal::STOP);
    }
    let closing = std::thread::spawn(move || drop(file));
    std::thread::sleep(Duration::from_secs(1));
    assert!(!closing.is_finished(), "its bytes wait for the servers");
    let begun = Instant::now();
    let said = c.says(&format!("down {}", c.root().display()));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}: {said}", begun.elapsed());
    closing.join().unwrap();
    for name in ["mount", "metadata", "data-1", "data-2"] {
        assert!(said.lines().any(|line| line.split_whitespace().eq([name, "stopped"])), "{said}");
    }
    assert_eq!(c.up_mounted(&[]).code, 0);
    assert!(std::fs::read(at.join("unsaved")).unwrap() == pattern(500_000));
}

/// A laptop that was closed, a virtual machine that was paused: as soon as it goes on the metadata server's clock says that all
/// sessions are over, before it has read what their mounts said meanwhile.
#[test]
fn a_metadata_server_that_stood_still_for_longer_than_sessions_last_ends_none() {
    let times = ["--set", "metadata.session_lease=3s", "--set", "metadata.session_renew=1s"];
    let more = [&times[..], &["--set", "metadata.session_expiry=6s", "--set", "metadata.server_lease=3s"]].concat();
    let Some((c, at)) = mounted(&more) else { return };
    let mut file = std::fs::File::create(at.join("unsaved")).unwrap();
    for round in 0..2 {
        file.write_all(&pattern(200_000)).unwrap();
        c.signal("metadata", Signal::STOP);
        std::thread::sleep(Duration::from_secs(10));
        c.signal("metadata", Signal::CONT);
        // Nothing of it was saved before.
        file.sync_all().unwrap_or_else(|e| panic!("round {round}: {e}: {}", log(&c, "metadata")));
    }
    drop(file);
    let expected = [pattern(200_000), pattern(200_000)].concat();
    assert!(std::fs::read(at.join("unsaved")).unwrap() == expected);
    let said = log(&c, "metadata");
    assert!(said.contains("stood still for") && !said.contains("session is silent and ends"), "{said}");
}

/// Past the deadline: EIO, once to each handle, with a name for what was waited for; what was written is kept, and is
/// there when the server is back.
#[test]
fn past_the_deadline_is_an_error_that_names_the_server_and_loses_nothing() {
    let Some((c, at)) = mounted(&["--set", "client.deadline=8s"]) else { return };
    let path = at.join("file");
    std::fs::write(&path, pattern(400_000)).unwrap();
    let asked = c.root().join("log/why.log");
    let asking = c.asks_why_over_and_over(&asked);
    let open = || std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (one, two) = (open(), open());
    one.sync_all().unwrap();
    for name in ["data-1", "data-2"] {
        c.signal(name, Signal::STOP);
    }
    one.write_all_at(b"written while the server stands still", 1000).unwrap();
    let begun = Instant::now();
    let syncing = {
        let one = one.try_clone().unwrap();
        std::thread::spawn(move || one.sync_all())
    };
    let error = syncing.join().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(7) && waited < Duration::from_secs(30), "{waited:?}");
    let said = log(&c, "mount");
    let line = said.lines().find(|line| line.contains("a file operation failed")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("data server") && line.contains("deadline"), "{line}");
    for name in ["data-1", "data-2"] {
        c.signal(name, Signal::CONT);
    }
    eventually("a word of why", Duration::from_secs(30), || {
        let why = std::fs::read_to_string(&asked).unwrap_or_default();
        why.lines().any(|line| line.contains("data server") && line.contains("mount"))
    });
    drop(asking);
    // The bytes were kept, and go out by themselves or with the next fsync.
    eventually("a sync that succeeds", Duration::from_secs(20), || one.sync_all().is_ok());
    two.sync_all().ok();
    assert!(two.sync_all().is_ok(), "an error is told once to a handle");
    drop((one, two));
    c.kill("mount");
    eventually("the end of the mount", Duration::from_secs(20), || !c.is_running("mount"));
    assert_eq!(c.up_mounted(&[]).code, 0);
    let mut back = vec![0; 37];
    let mut file = std::fs::File::open(&path).unwrap();
    file.seek(SeekFrom::Start(1000)).unwrap();
    file.read_exact(&mut back).unwrap();
    assert_eq!(back, b"written while the server stands still");
}

/// The same of names, while the metadata server stands still; when it goes on, so does all.
#[test]
fn past_the_deadline_changes_of_names_fail_and_the_metadata_server_is_named() {
    let Some((c, at)) = mounted(&["--set", "client.deadline=15s"]) else { return };
    std::fs::create_dir(at.join("before")).unwrap();
    let asked = c.root().join("log/why.log");
    let asking = c.asks_why_over_and_over(&asked);
    c.signal("metadata", Signal::STOP);
    let begun = Instant::now();
    let refused = std::fs::create_dir(at.join("during")).unwrap_err();
    let waited = begun.elapsed();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(waited > Duration::from_secs(14) && waited < Duration::from_secs(40), "{waited:?}");
    let said = log(&c, "mount");
    let line = said.lines().find(|line| line.contains("a file operation failed")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("metadata server") && line.contains("deadline"), "{line}");
    let why = std::fs::read_to_string(&asked).unwrap_or_default();
    assert!(why.lines().any(|line| line.contains("metadata server") && line.contains("mount")), "{why}");
    c.signal("metadata", Signal::CONT);
    drop(asking);
    // Whether the one that failed took effect after all is open, as with any file system; nothing else is.
    eventually("a change of names", Duration::from_secs(20), || std::fs::create_dir(at.join("after")).is_ok());
    let mut names: Vec<_> = std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name != "during");
    names.sort();
    assert_eq!(names, ["after", "before"]);
}

/// Memory of the process that is its own, without what the page cache has of its files.
fn memory_of(pid: rustix::process::Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Whatever programs write, read and look at: 20 MiB of buffers, 12 of names, 24 of eight threads (a request of 1 MiB, its bytes once more
/// on their way, a buffer for reading), 24 of all else. With the defaults, whose buffers take 128 MiB each, this fails.
#[test]
fn the_memory_of_a_mount_is_bounded_by_its_settings() {
    const FILES: usize = 8;
    const MIB: u64 = 1 << 20;
    let settings =
        ["client.write_buffer=8MiB", "client.retained=8MiB", "client.prefetch=4MiB", "client.cache_entries=4000"];
    let Some((c, at)) = mounted(&settings.map(|setting| ["--set", setting]).concat()) else { return };
    let mount = c.pid("mount");
    let before = memory_of(mount);
    // Names and attributes beyond what it may remember.
    for n in 0..6_000 {
        std::fs::create_dir(at.join(format!("d{n:05}"))).unwrap();
    }
    assert_eq!(
        std::fs::read_dir(&at).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok()).count(),
        6_000
    );
    let names = memory_of(mount);
    // Nobody takes what is written: it stays in the mount, as much as may.
    for name in ["data-1", "data-2"] {
        c.signal(name, Signal::STOP);
    }
    let path = |n: usize| at.join(format!("file-{n}"));
    let writers: Vec<_> = (0..FILES)
        .map(|n| (n, path(n)))
        .map(|(n, path)| std::thread::spawn(move || std::fs::write(path, pattern((24 << 20) + n))))
        .collect();
    let mut most = 0;
    let mut sample = |seconds: u64| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            most = most.max(memory_of(mount));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    sample(3);
    assert!(writers.iter().all(|writer| !writer.is_finished()), "there was room for {} MiB", 24 * FILES);
    for name in ["data-1", "data-2"] {
        c.signal(name, Signal::CONT);
    }
    let readers: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(n, writer)| {
            let path = path(n);
            std::thread::spawn(move || {
                writer.join().unwrap().unwrap();
                // Of the servers, not of the kernel's pages of the file.
                let file = std::fs::File::open(&path).unwrap();
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                assert!(std::fs::read(&path).unwrap() == pattern((24 << 20) + n), "file {n}");
            })
        })
        .collect();
    while !readers.iter().all(|reader| reader.is_finished()) {
        sample(1);
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let taken = most - before;
    eprintln!("{} MiB at first, {} with names, {} at most", before / MIB, names / MIB, most / MIB);
    assert!(taken < 80 * MIB, "{} MiB at first, {} with names, {} at most", before / MIB, names / MIB, most / MIB);
}

/// `braid mount` again brings back the mount of a client that was killed.
#[test]
fn the_same_command_mounts_again_after_the_client_was_killed() {
    let Some((c, at)) = mounted(&[]) else { return };
    let place = c.root().join("second");
    std::fs::create_dir(&place).unwrap();
    let line = format!("mount {} --log {}", place.display(), c.root().join("log/second.log").display());
    c.says(&line);
    std::fs::write(place.join("kept"), "kept").unwrap();
    assert!(c.fails(&line).contains("is mounted already"));
    let pid = process_of(&place);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    eventually("a dead mount", Duration::from_secs(10), || {
        std::fs::read_dir(&place).is_err_and(|e| e.raw_os_error() == Some(107))
    });
    c.says(&line);
    assert_eq!(std::fs::read(place.join("kept")).unwrap(), b"kept");
    assert_eq!(std::fs::read(at.join("kept")).unwrap(), b"kept");
    c.says(&format!("umount {}", place.display()));
}

/// The process that serves a mount: its command line names the place.
pub fn process_of(place: &Path) -> rustix::process::Pid {
    let wanted = place.as_os_str().as_encoded_bytes();
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let serves = |pid: &i32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|&b| b == 0).any(|word| word == wanted) && command.windows(12).any(|w| w == b"--foreground")
    };
    rustix::process::Pid::from_raw(pids.into_iter().find(serves).unwrap()).unwrap()
}

/// One fsync, followed from the kernel's request to the disk write by its number.
#[test]
fn one_trace_leads_from_the_operation_to_the_disk() {
    let Some((c, at)) = mounted(&[PLAIN, &["--set", "log.level=debug"]].concat()) else { return };
    let mut file = std::fs::File::create(at.join("file")).unwrap();
    file.write_all(&pattern(100_000)).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let client = log(&c, "mount");
    let trace_of = |line: &str| {
        let rest = line.split_once("trace=")?.1;
        rest.split(|ch: char| !ch.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let servers: Vec<String> = ["metadata", "data-1", "data-2"].map(|name| log(&c, name)).into_iter().collect();
    // The traces under which a chunk was written or synced on a disk.
    let stored = |what: &str| {
        let lines = servers[1..].iter().flat_map(|text| text.lines());
        let of_store = lines.filter(move |line| line.contains("braid_data_store") && line.contains(what));
        of_store.filter_map(trace_of).filter(|trace| *trace != 0).collect::<Vec<u64>>()
    };
    let (written, synced) = (stored("written"), stored(" sync"));
    let trace = *written
        .iter()
        .find(|trace| synced.contains(trace))
        .unwrap_or_else(|| panic!("no write and sync under one trace: {written:?} {synced:?}\n{}", servers[1]));
    let has = |text: &str, words: &[&str]| {
        let is_it = |line: &str| trace_of(line) == Some(trace) && words.iter().all(|word| line.contains(word));
        assert!(text.lines().any(is_it), "no line of trace {trace} with {words:?} in\n{text}");
    };
    has(&client, &["file operation"]);
    has(&client, &["a request to data server"]);
    has(&client, &["a request to metadata server"]);
    has(&servers[0], &["CommitFile"]);
    let data = servers[1..].iter().find(|text| text.lines().any(|line| trace_of(line) == Some(trace))).unwrap();
    has(data, &["what=\"WriteChunk\"", "a request of"]);
    has(data, &["what=\"SyncChunks\"", "a request of"]);
}

/// A mount is at one place: another is refused with the word for it, and nobody claims what is not so.
#[test]
fn up_knows_where_the_mount_is() {
    let Some((c, at)) = mounted(&[]) else { return };
    let (root, elsewhere) = (c.root(), c.root().with_file_name("elsewhere"));
    let up = |more: &[&std::ffi::OsStr]| {
        let words = [&["up".as_ref(), root.as_os_str()], more].concat();
        ran(c.command(&words).env_remove("BRAID_CONFIG").output().unwrap())
    };
    c.kill("data-2");
    let said = up(&["--mount".as_ref(), elsewhere.as_os_str()]);
    assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (1, 1, ""), "{}", said.err);
    assert!(said.err.contains(&format!("is mounted at {}", at.display())), "{}", said.err);
    assert!(!elsewhere.exists(), "nothing was made");
    eventually("its end", Duration::from_secs(10), || !c.is_running("data-2"));
    // Without a word of where, it stays where it is.
    let said = up(&[]);
    assert!(said.code == 0 && said.out.contains(&format!("BraidFS is mounted at {}", at.display())), "{}", said.out);
    assert!(c.is_running("data-2") && !root.join("mnt").exists());
    // As the complaint says: there too, which `up` knows then.
    std::fs::create_dir(&elsewhere).unwrap();
    c.says(&format!("mount {} --cluster {}", elsewhere.display(), root.display()));
    let said = up(&["--mount".as_ref(), elsewhere.as_os_str()]);
    assert!(said.code == 0 && said.out.contains("mount      runs already"), "{}{}", said.out, said.err);
    assert_eq!(c.run(&format!("umount {}", at.display())).code, 0);
    let third = c.root().with_file_name("third");
    assert_eq!(up(&["--mount".as_ref(), third.as_os_str()]).code, 0);
    std::fs::write(third.join("f"), "one file").unwrap();
    assert_eq!(std::fs::read(elsewhere.join("f")).unwrap(), b"one file");
}
