//! What people get wrong: each gives one line that says what to do, changes nothing and takes no server down.

use super::{Cluster, PLAIN, pattern, ran, say_skipped};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Everything below a directory with its bytes, to see that nothing changed. Sockets and what processes write while
/// they live are not in it.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let (path, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
        if kind.is_dir() {
            found.extend(contents(&path));
        } else if kind.is_file() {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Runs `braid serve` to its end, which must come by itself: the last line is its complaint.
fn serve_fails(c: &Cluster, role: &str, settings: &[String]) -> String {
    let mut arguments = vec!["serve".to_owned(), role.to_owned()];
    for setting in settings {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    let mut command = c.command(&arguments.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let mut serving = command.env("BRAID_LOG", "off").stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while serving.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            serving.kill().unwrap();
            panic!("serve {role} with {settings:?} goes on: {}", ran(serving.wait_with_output().unwrap()).err);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ran = ran(serving.wait_with_output().unwrap());
    assert!(ran.code == 1 && ran.err.trim_end().lines().count() == 1, "{}: {}", ran.code, ran.err);
    ran.err
}

#[test]
fn names_that_cannot_be_are_refused_before_anybody_is_asked() {
    let c = Cluster::start();
    let long = "x".repeat(256);
    for line in [
        format!("fs mkdir /{long}"),
        format!("fs put /proc/self/comm /{long}"),
        format!("fs mv / /{long}/x"),
        format!("fs ln -s target /{long}"),
        format!("fs stat /{long}"),
    ] {
        let said = c.fails(&line);
        assert!(said.contains("a name has at most 255 bytes, this one has 256"), "{said}");
    }
    let just = "y".repeat(255);
    c.says(&format!("fs mkdir /{just}"));
    assert_eq!(c.says("fs ls /"), format!("{just}/\n"));
}

#[test]
fn directories_of_another_role_or_cluster_stay_as_they_are() {
    let (c, other) = (Cluster::start(), Cluster::start());
    c.says("fs put /proc/self/comm /f");
    for cluster in [&c, &other] {
        assert_eq!(cluster.braid(&["down".as_ref(), cluster.root().as_os_str()]).code, 0);
    }
    let before = (contents(&c.root().join("metadata")), contents(&c.root().join("data-1")));
    let dir = |name: &str| c.root().join(name).display().to_string();

    let said = serve_fails(&c, "data", &[format!("data.dir={}", dir("metadata"))]);
    assert!(said.contains("belongs to a metadata server") && said.contains("set data.dir"), "{said}");
    let said = serve_fails(&c, "metadata", &[format!("metadata.dir={}", dir("data-1"))]);
    assert!(said.contains("belongs to a data server") && said.contains("set metadata.dir"), "{said}");
    let said = serve_fails(&c, "metadata", &[format!("metadata.dir={}", dir("log"))]);
    assert!(said.contains("not empty") && said.contains("set metadata.dir to an empty directory"), "{said}");

    assert_eq!(other.up().code, 0);
    let said = serve_fails(&other, "data", &[format!("data.dir={}", dir("data-1"))]);
    assert!(said.contains("is of another cluster: check data.dir and cluster.metadata"), "{said}");
    assert_eq!((contents(&c.root().join("metadata")), contents(&c.root().join("data-1"))), before);

    // As it was: it serves what it held.
    assert_eq!(c.up().code, 0);
    assert_eq!(c.says("fs cat /f"), "braid\n");
    assert!(other.says("admin status").contains("healthy"));
}

/// As after a configuration was copied from the one to the other.
#[test]
fn a_cluster_whose_configuration_leads_to_another_one_changes_nothing_there() {
    let (c, other) = (Cluster::start(), Cluster::start());
    c.says("fs put /proc/self/comm /f");
    other.says("fs put /proc/self/comm /g");
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    let before = contents(&c.root().join("data-1"));
    let toml = c.root().join("braid.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    let socket = |c: &Cluster| c.root().join("run/metadata.sock").display().to_string();
    // In [cluster] only: the metadata server listens where it did.
    let wrong = text.replacen(&socket(&c), &socket(&other), 1);
    assert_ne!(wrong, text);
    std::fs::write(&toml, wrong).unwrap();
    let up = c.up();
    assert_eq!((up.code, up.err.lines().count()), (1, 1), "{}{}", up.out, up.err);
    assert!(up.err.contains("data-1 is of another cluster: check data.dir and cluster.metadata"), "{}", up.err);
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    assert_eq!(contents(&c.root().join("data-1")), before);
    assert!(other.says("admin status").contains("healthy"));
    assert_eq!(other.says("fs ls /"), "g\n");
    assert_eq!(other.says("fs cat /g"), "braid\n");

    std::fs::write(&toml, text).unwrap();
    assert_eq!(c.up().code, 0);
    assert_eq!(c.says("fs cat /f"), "braid\n");
}

#[test]
fn a_server_of_another_role_is_told_in_one_line() {
    let c = Cluster::start();
    let place = tempfile::tempdir().unwrap();
    let wrong = format!("--set cluster.metadata=['unix:{}']", c.root().join("run/data-1.sock").display());
    let mut lines = vec![format!("fs ls / {wrong}"), format!("admin status {wrong}")];
    if Path::new("/dev/fuse").exists() {
        lines.push(format!("mount {} {wrong}", place.path().display()));
    } else {
        say_skipped("a mount with the address of a data server: there is no /dev/fuse");
    }
    for line in lines {
        let said = c.fails(&line);
        assert!(
            said.contains("data-1.sock") && said.contains("wants a metadata server, this is data server 1"),
            "{said}"
        );
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    assert!(c.is_running("data-1") && c.says("admin status").contains("healthy"));
    assert_eq!(c.says("admin sessions").lines().count(), 1, "no client was started");
}

#[test]
fn a_directory_of_a_newer_version_is_not_touched() {
    let c = Cluster::start();
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    let store = c.root().join("data-1/store.toml");
    let text = std::fs::read_to_string(&store).unwrap();
    let newer: String = text
        .lines()
        .map(|line| if line.starts_with("format") { "format = 99\n".to_owned() } else { format!("{line}\n") })
        .collect();
    assert_ne!(newer, text);
    std::fs::write(&store, &newer).unwrap();
    let before = contents(&c.root().join("data-1"));
    let said = serve_fails(&c, "data", &[format!("data.dir={}", c.root().join("data-1").display())]);
    assert!(said.contains("format 99") && said.contains("upgrade"), "{said}");
    assert_eq!(contents(&c.root().join("data-1")), before);
    let up = c.up();
    assert!(up.code == 1 && up.err.contains("data-1 does not start") && up.err.contains("format 99"), "{}", up.err);
}

/// A tmpfs of `bytes`, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and it is said, for those who may not mount.
    fn at(path: &Path, bytes: u64) -> Option<SmallDisk> {
        std::fs::create_dir_all(path).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        match mount("tmpfs", path, "tmpfs", MountFlags::empty(), options.as_c_str()) {
            Ok(()) => Some(SmallDisk(path.to_owned())),
            Err(rustix::io::Errno::PERM) if !rustix::process::geteuid().is_root() => {
                say_skipped("a disk of its own, which only root can mount");
                None
            }
            Err(error) => panic!("cannot mount a tmpfs at {}: {error}", path.display()),
        }
    }

    fn remount(&self, flags: MountFlags) {
        mount_remount(&self.0, flags, c"").unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_read_only_disk_is_told_in_one_line() {
    let c = Cluster::unmade();
    std::fs::create_dir_all(c.root()).unwrap();
    let Some(disk) = SmallDisk::at(&c.root(), 512 << 20) else { return };
    assert_eq!(c.up().code, 0);
    c.says("fs put /proc/self/comm /f");
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
    let before = contents(&c.root());
    disk.remount(MountFlags::RDONLY);
    let at = |key: &str, name: &str| format!("{key}={}", c.root().join(name).display());
    let said = serve_fails(&c, "metadata", &[at("metadata.dir", "metadata")]);
    assert!(said.contains("metadata is on a read-only disk") && said.contains("remount,rw"), "{said}");
    let said = serve_fails(&c, "data", &[at("data.dir", "data-1")]);
    assert!(said.contains("data-1 is on a read-only disk") && said.contains("remount,rw"), "{said}");
    let up = c.up();
    assert!(up.code == 1 && up.err.trim_end().lines().count() == 1, "{}", up.err);
    assert!(up.err.contains("is on a read-only disk"), "{}", up.err);
    assert_eq!(contents(&c.root()), before);
    disk.remount(MountFlags::empty());
    assert_eq!(c.up().code, 0);
    assert_eq!(c.says("fs cat /f"), "braid\n");
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
}

/// A server gives no new chunk with less than 256 MiB free, so each of these takes a few chunks.
/// The data servers' disks fill up; who writes is told, what was there stays, and room helps at once.
#[test]
fn a_full_data_disk_is_told_and_nothing_else_fails() {
    let c = Cluster::unmade();
    let disks: Option<Vec<SmallDisk>> =
        ["data-1", "data-2"].iter().map(|name| SmallDisk::at(&c.root().join(name), 272 << 20)).collect();
    let Some(_disks) = disks else { return };
    assert_eq!(c.up_with(PLAIN).code, 0);
    let local = tempfile::tempdir().unwrap();
    let (small, large) = (local.path().join("small"), local.path().join("large"));
    std::fs::write(&small, pattern(2_000_000)).unwrap();
    let mut file = File::create(&large).unwrap();
    let mebibyte = pattern(1 << 20);
    (0..600).for_each(|_| file.write_all(&mebibyte).unwrap());
    drop(file);
    c.says(&format!("fs put {} /before", small.display()));
    let told = c.fails(&format!("fs put {} /large", large.display()));
    assert!(told.starts_with("braid: ") && told.contains("no space"), "{told}");
    // Which disk, or that there is none with room for another chunk.
    assert!(
        told.contains("at data server ") || told.contains("data servers that are up and have 256 MiB free"),
        "{told}"
    );
    assert_eq!(c.bytes("fs cat /before"), pattern(2_000_000));
    c.says("fs mkdir /names/go/on -p");
    c.run("fs rm -f /large");
    let begun = Instant::now();
    while c.run(&format!("fs put {} /after", small.display())).code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "freed room is not found: {}", c.run("admin status").out);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(c.bytes("fs cat /after"), pattern(2_000_000));
    assert_eq!(c.run("admin fsck --data").code, 0);
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
}

/// Programs at a mount are told by the error that they know, and find the room that they made.
#[test]
fn a_program_is_told_that_the_disk_is_full() {
    if !Path::new("/dev/fuse").exists() {
        return say_skipped("there is no /dev/fuse");
    }
    let c = Cluster::unmade();
    let disks: Option<Vec<SmallDisk>> =
        ["data-1", "data-2"].iter().map(|name| SmallDisk::at(&c.root().join(name), 272 << 20)).collect();
    let Some(_disks) = disks else { return };
    let up = c.up_mounted(&[]);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let at = c.mount_point();
    let write = |name: &str, mebibytes: usize| {
        let (mut file, piece) = (File::create(at.join(name))?, pattern(1 << 20));
        for _ in 0..mebibytes {
            file.write_all(&piece)?;
        }
        file.sync_all()
    };
    write("before", 2).unwrap();
    let full = (0..10).find_map(|n| write(&format!("large-{n}"), 100).err()).unwrap();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    // What is not for the data servers goes on.
    std::fs::create_dir(at.join("d")).unwrap();
    std::fs::write(at.join("d/small"), "beside its inode").unwrap();
    assert_eq!(std::fs::read(at.join("d/small")).unwrap(), b"beside its inode");
    // How many there are depends on when the servers were last asked for what they have free.
    for n in (0..10).filter(|n| at.join(format!("large-{n}")).exists()) {
        std::fs::remove_file(at.join(format!("large-{n}"))).unwrap();
    }
    let begun = Instant::now();
    while let Err(error) = write("after", 2) {
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(begun.elapsed() < Duration::from_secs(30), "freed room is not found: {}", c.run("admin status").out);
        std::thread::sleep(Duration::from_millis(200));
    }
    for name in ["before", "after"] {
        assert!(std::fs::read(at.join(name)).unwrap() == pattern(1 << 20).repeat(2), "{name}");
        assert!(c.bytes(&format!("fs cat /{name}")) == pattern(1 << 20).repeat(2), "{name} at the servers");
    }
    for name in ["metadata", "data-1", "data-2", "mount"] {
        assert!(c.is_running(name), "{name}");
    }
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
}

/// The metadata's map is full: names are refused with a word for it, reads go on, and removing makes room.
#[test]
fn a_full_metadata_map_is_told_and_nothing_else_fails() {
    let c = Cluster::unmade();
    assert_eq!(c.up_with(&["--set", "metadata.map=4MiB"]).code, 0);
    let local = tempfile::tempdir().unwrap();
    for n in 0..400 {
        std::fs::write(local.path().join(format!("f{n}")), pattern(16_000)).unwrap();
    }
    c.says("fs put /proc/self/comm /before");
    let full = c.run(&format!("fs put -r {} /many", local.path().display()));
    assert!(full.code == 1 && full.err.contains("space"), "{}: {}", full.code, full.err);
    assert!(full.err.contains("less than 1 MiB are free in its map of 4 MiB or on its disk"), "{}", full.err);
    assert_eq!(c.says("fs cat /before"), "braid\n");
    assert_eq!(c.run("admin status").code, 0, "the server is up");
    c.says("fs rm -r /many");
    let begun = Instant::now();
    while c.run("fs put /proc/self/comm /after").code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "removing made no room");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(c.run("admin fsck --data").code, 0);
}

/// The disk under the metadata fills up before its map does.
#[test]
fn a_full_metadata_disk_is_told_and_nothing_else_fails() {
    let c = Cluster::unmade();
    let Some(disk) = SmallDisk::at(&c.root().join("metadata"), 160 << 20) else { return };
    assert_eq!(c.up().code, 0);
    c.says("fs put /proc/self/comm /before");
    c.says("fs put /proc/self/comm /gone");
    // Somebody else takes what is left.
    let hog = disk.0.join("hog");
    let mut file = File::create(&hog).unwrap();
    while file.write_all(&[1; 1 << 16]).is_ok() {}
    drop(file);
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..1_000 {
        std::fs::write(dir.join(format!("f{n}")), pattern(16_000)).unwrap();
    }
    let mut full = c.run(&format!("fs put -r {} /many0", dir.display()));
    for n in 1..20 {
        if full.code != 0 {
            break;
        }
        full = c.run(&format!("fs put -r {} /many{n}", dir.display()));
    }
    assert!(full.code == 1 && full.err.contains("space"), "{}: {}", full.code, full.err);
    // Each is a client of its own, with a session.
    assert_eq!(c.says("fs cat /before"), "braid\n");
    c.says("fs rm /gone");
    assert!(c.is_running("metadata"));
    std::fs::remove_file(&hog).unwrap();
    let begun = Instant::now();
    while c.run("fs put /proc/self/comm /after").code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the room that came back is not used");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(c.run("admin fsck").code, 0);
    assert_eq!(c.braid(&["down".as_ref(), c.root().as_os_str()]).code, 0);
}

#[test]
fn mount_points_that_cannot_be_used_are_told_in_one_line() {
    let c = Cluster::start();
    let dir = tempfile::tempdir().unwrap();
    let (missing, full) = (dir.path().join("missing"), dir.path().join("full"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), "kept").unwrap();
    let said = c.fails(&format!("mount {}", missing.display()));
    assert!(said.contains("mkdir -p") && !missing.exists(), "{said}");
    assert!(c.fails(&format!("mount {}", full.display())).contains("not empty; choose an empty directory"));
    let busy = dir.path().join("busy");
    if let Some(_disk) = SmallDisk::at(&busy, 1 << 20) {
        let said = c.fails(&format!("mount {}", busy.display()));
        assert!(said.contains("is a mount already (tmpfs)") && said.contains("umount"), "{said}");
    }
    assert_eq!(std::fs::read(full.join("mine")).unwrap(), b"kept");
    assert_eq!(c.says("admin sessions").lines().count(), 1, "no client was started");
}

#[test]
fn up_with_a_mount_point_that_cannot_be_used_makes_nothing() {
    let c = Cluster::unmade();
    let dir = tempfile::tempdir().unwrap();
    let (full, busy) = (dir.path().join("full"), dir.path().join("busy"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), "kept").unwrap();
    let disk = SmallDisk::at(&busy, 1 << 20);
    let busy = disk.is_some().then(|| (busy.clone(), "is a mount already (tmpfs)"));
    let points = [
        (full.clone(), "not empty; choose an empty directory"),
        (full.join("mine"), "not a directory"),
        (full.join("mine/below"), "mine is not a directory"),
        (c.root().join("log"), "would hide the cluster's own files"),
    ];
    for (point, words) in points.into_iter().chain(busy) {
        let root = c.root();
        let up = ["up".as_ref(), root.as_os_str(), "--mount".as_ref(), point.as_os_str()];
        let said = ran(c.command(&up).env_remove("BRAID_CONFIG").output().unwrap());
        assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (1, 1, ""), "{}", said.err);
        assert!(said.err.contains(words), "{}", said.err);
        assert!(!c.root().exists(), "nothing was made");
    }
    assert_eq!(std::fs::read(full.join("mine")).unwrap(), b"kept");
}

#[test]
fn up_makes_no_cluster_among_the_files_of_others() {
    let (c, dir) = (Cluster::start(), tempfile::tempdir().unwrap());
    let (full, file) = (dir.path().join("full"), dir.path().join("full/mine"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(&file, "kept").unwrap();
    let new = dir.path().join("new");
    let up = |at: &Path, more: &[&str]| {
        let mut words = vec!["up".as_ref(), at.as_os_str(), "--no-mount".as_ref()];
        words.extend(more.iter().map(std::ffi::OsStr::new));
        let said = ran(c.command(&words).env_remove("BRAID_CONFIG").output().unwrap());
        assert_eq!((said.code, said.err.lines().count(), said.out.as_str()), (1, 1, ""), "{}", said.err);
        said.err
    };
    assert!(up(&full, &[]).contains("is no cluster and not empty (mine is in it)"));
    assert!(up(&file, &[]).contains("cannot"));
    for (below, words) in [
        ("metadata", "is inside the cluster in"),
        ("data-1/chunks", "is inside the directory of a data server"),
        ("metadata/new", "is inside the directory of a metadata server"),
        ("new/deep", "is inside the cluster in"),
    ] {
        let said = up(&c.root().join(below), &[]);
        assert!(said.contains(words), "{said}");
    }
    assert!(!c.root().join("new").exists() && !c.root().join("metadata/run").exists());
    assert!(up(&new, &["--set", "client.deadlin=5s"]).contains("is client.deadline meant?"));
    assert!(!new.exists(), "a bad setting makes nothing");
    assert_eq!(contents(&full), [(file, b"kept".to_vec())]);
}

#[test]
fn up_says_what_it_ignores() {
    let c = Cluster::start();
    let again = c.up_with(&["--set", "client.deadline=5s", "--data-servers", "1"]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    let notes: Vec<&str> = again.out.lines().filter(|line| line.starts_with("note: ")).collect();
    assert!(notes.len() == 2 && notes[0].contains("--set is for a new cluster"), "{}", again.out);
    assert!(notes[1].contains("--data-servers 1 is fewer than the 2"), "{}", again.out);
    assert!(!c.up().out.contains("note: "), "nothing was asked for");
}

/// With the least and the most a setting may be, commands work.
#[test]
fn settings_at_the_ends_of_their_ranges_work() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("f");
    std::fs::write(&file, pattern(3_000_000)).unwrap();
    let least =
        ["write_buffer=1MiB", "retained=1MiB", "prefetch=1048576", "prefetch_window=256KiB", "cache_entries=1000"];
    let most =
        ["write_buffer=1TiB", "retained=1TiB", "prefetch=1TiB", "prefetch_window=1GiB", "cache_entries=1000000000"];
    for (n, settings) in [least, most].into_iter().enumerate() {
        let with: String = settings.iter().map(|setting| format!(" --set client.{setting}")).collect();
        c.says(&format!("fs put {} /f{n}{with} --set client.write_back_after=10ms", file.display()));
        assert!(c.bytes(&format!("fs cat /f{n}{with}")) == pattern(3_000_000), "{with}");
    }
    let said = c.fails("fs ls / --set cluster.metadata=[]");
    assert!(said.contains("cluster.metadata: it needs an address"), "{said}");
}

/// The script for bash is one, and completes with what it is given.
#[test]
fn bash_takes_the_completion_script_and_completes() {
    if !Path::new("/bin/bash").exists() {
        return say_skipped("completion by bash, which is not here");
    }
    let c = Cluster::unmade();
    let script = c.dir.path().join("braid.bash");
    std::fs::write(&script, c.says("completion bash")).unwrap();
    let bash = |arguments: &[&str]| {
        let mut command = std::process::Command::new("bash");
        // Without a configuration or terminal of whoever runs this.
        ran(command.args(["--norc", "--noprofile"]).args(arguments).arg(&script).output().unwrap())
    };
    let parsed = bash(&["-n"]);
    assert_eq!((parsed.code, parsed.err.as_str()), (0, ""));
    // As bash calls it: the command, the word, and the word before.
    let complete = "COMP_WORDS=(braid @@); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); . \"$0\"
        complete -p braid | grep -q _braid || exit 1
        _braid braid \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[@]}\"";
    for (words, expected) in [("ad", "admin\n"), ("fs mk", "mkdir\n"), ("completion ba", "bash\n")] {
        let completed = bash(&["-c", &complete.replace("@@", words)]);
        assert_eq!((completed.code, completed.out.as_str(), completed.err.as_str()), (0, expected, ""), "{words}");
    }
}
