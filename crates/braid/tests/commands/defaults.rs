//! What `braid up` makes when nothing is said: four data servers, three copies of every file, two of the metadata beside the
//! metadata server's own; and what of it is left when one of them is lost.

use super::metadata::{start_data, wait_for_copies};
use super::mounted::eventually;
use super::{Cluster, Ran, pattern, ran, say_skipped};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `braid up` with these words alone.
fn up(c: &Cluster, more: &[&str]) -> Ran {
    let root = c.root();
    let mut words = vec!["up".as_ref(), root.as_os_str()];
    words.extend(more.iter().map(OsStr::new));
    let up = ran(c.command(&words).env_remove("BRAID_CONFIG").output().unwrap());
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    up
}

/// A cluster that is mounted, with nothing else said. `None`, and it is said, where nobody may mount.
fn usual() -> Option<(Cluster, PathBuf)> {
    if !Path::new("/dev/fuse").exists() {
        say_skipped("there is no /dev/fuse");
        return None;
    }
    let c = Cluster::unmade();
    let at = c.mount_point();
    up(&c, &["--mount", at.to_str().unwrap()]);
    Some((c, at))
}

fn status(c: &Cluster) -> serde_json::Value {
    serde_json::from_str(&c.run("admin status --json").out).unwrap()
}

/// How many chunks files have; all else is beside its row.
fn chunk_rows(c: &Cluster) -> usize {
    let begun = Instant::now();
    let mut fsck = c.run("admin fsck --data");
    // After a restart of the metadata server data servers are known again with their next heartbeat.
    while fsck.code == 2 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(200));
        fsck = c.run("admin fsck --data");
    }
    assert!(fsck.code == 0 && fsck.out.starts_with("clean: "), "{}{}", fsck.out, fsck.err);
    let words: Vec<&str> = fsck.out.split_whitespace().collect();
    let at = words.windows(2).position(|two| two[0] == "chunk" && two[1].starts_with("rows")).unwrap();
    words[at - 1].parse().unwrap()
}

fn policy(c: &Cluster) -> String {
    c.says("fs policy get /").trim().to_owned()
}

#[test]
fn up_makes_four_data_servers_three_copies_of_files_and_two_of_the_metadata() {
    let c = Cluster::unmade();
    let said = up(&c, &["--no-mount"]);
    assert!(!said.out.contains("note:"), "{}", said.out);
    // At once: what is made from now on has what was promised.
    let json = status(&c);
    assert_eq!((&json["healthy"], json["servers"].as_array().unwrap().len()), (&true.into(), 4), "{json}");
    assert_eq!((&json["metadata_copies"], &json["metadata_copies_wanted"]), (&3.into(), &2.into()), "{json}");
    assert_eq!(json["notes"], serde_json::json!([]));
    assert!(c.says("admin status").contains("3 copies, those of data servers on 1 host"));
    assert_eq!(policy(&c), "/  replica:3");
    c.says("fs put /proc/self/comm /small");
    assert_eq!(chunk_rows(&c), 0, "a small file is beside its row");
    let large = c.root().parent().unwrap().join("large");
    std::fs::write(&large, pattern(300_000)).unwrap();
    c.says(&format!("fs put {} /large", large.display()));
    assert_eq!((chunk_rows(&c), status(&c)["copies"]["containers_short"].as_u64()), (1, Some(0)));
    // It keeps what it is, whatever is said later.
    let again = up(&c, &["--no-mount", "--set", "metadata.policy=plain"]);
    assert_eq!((again.out.matches("runs already").count(), policy(&c).as_str()), (5, "/  replica:3"), "{}", again.out);
}

#[test]
fn up_chooses_what_its_data_servers_can_keep_unless_it_is_said() {
    let c = Cluster::unmade();
    up(&c, &["--no-mount", "--data-servers", "1"]);
    assert_eq!(policy(&c), "/  plain");
    let json = status(&c);
    assert_eq!((&json["healthy"], &json["metadata_copies"]), (&true.into(), &1.into()), "{json}");
    assert!(json["notes"].to_string().contains("others begin with a second data server"), "{json}");
    // So its only data server may be away, and names and small files go on.
    c.kill("data-1");
    std::thread::sleep(Duration::from_secs(6));
    c.says("fs mkdir /without");
    c.says("fs put /proc/self/comm /without/small");
    assert_eq!(c.says("fs cat /without/small"), "braid\n");
    // With a second one copies begin; the policy stays.
    up(&c, &["--no-mount", "--data-servers", "2"]);
    wait_for_copies(&c, 2);
    assert_eq!(policy(&c), "/  plain");

    let c = Cluster::unmade();
    up(&c, &["--no-mount", "--data-servers", "2"]);
    assert_eq!((policy(&c).as_str(), &status(&c)["metadata_copies"]), ("/  replica:2", &3.into()));

    let c = Cluster::unmade();
    let said = ["--set", "metadata.policy=plain,inline=4KiB", "--set", "metadata.copies=0"];
    up(&c, &[["--no-mount", "--data-servers", "3"].as_slice(), &said].concat());
    assert_eq!((policy(&c).as_str(), &status(&c)["metadata_copies"]), ("/  plain,inline=4KiB", &1.into()));
    assert!(status(&c)["notes"].to_string().contains("set metadata.copies"));
}

/// After a kill the metadata waits for its copies 2 s and a record, chunks for a lease and a successor, 6 s; twice that on a
/// busy machine.
const METADATA_STALL: Duration = Duration::from_secs(6);
const CHUNK_STALL: Duration = Duration::from_secs(14);

#[test]
fn any_data_server_may_be_killed_and_small_and_large_files_go_on() {
    let Some((c, at)) = usual() else { return };
    let write = |name: String, len: usize, limit: Duration| {
        let begun = Instant::now();
        let mut file = std::fs::File::create(at.join(&name)).unwrap();
        file.write_all(&pattern(len)).unwrap();
        file.sync_all().unwrap();
        assert!(begun.elapsed() < limit, "{name}: {:?}", begun.elapsed());
    };
    let is_there = |name: String, len: usize| assert!(std::fs::read(at.join(&name)).unwrap() == pattern(len), "{name}");
    write("small-0".to_owned(), 3_000, METADATA_STALL);
    write("large-0".to_owned(), 300_000, METADATA_STALL);
    assert_eq!(chunk_rows(&c), 1, "the small one is beside its row");
    for n in 1..=4 {
        c.kill(&format!("data-{n}"));
        write(format!("small-{n}"), 3_000, METADATA_STALL);
        write(format!("large-{n}"), 300_000, CHUNK_STALL);
        (0..=n).for_each(|n| is_there(format!("small-{n}"), 3_000));
        (0..=n).for_each(|n| is_there(format!("large-{n}"), 300_000));
        // It comes back, and all is whole before the next one goes.
        up(&c, &[]);
        wait_for_copies(&c, 2);
        eventually("health", Duration::from_secs(60), || c.run("admin status").code == 0);
    }
    assert_eq!(chunk_rows(&c), 5);
}

#[test]
fn what_fsync_answered_for_in_a_small_file_survives_the_disk_of_the_metadata_server() {
    let Some((c, at)) = usual() else { return };
    let bytes = |n: usize| pattern(100 + 700 * n);
    for n in 0..20 {
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        // By turns: fsync, and a write that waits by itself.
        if n % 2 == 1 {
            options.custom_flags(rustix::fs::OFlags::SYNC.bits() as i32);
        }
        let mut file = options.open(at.join(format!("f{n}"))).unwrap();
        file.write_all(&bytes(n)).unwrap();
        if n % 2 == 0 {
            file.sync_all().unwrap();
        }
        // Neither has the mount sent it again, nor has anybody closed it.
        std::mem::forget(file);
    }
    // All at once, and the disk of the metadata server does not come back.
    for name in ["mount", "metadata", "data-1", "data-2", "data-3", "data-4"] {
        c.kill(name);
    }
    eventually("the end", Duration::from_secs(20), || !c.is_running("metadata") && !c.is_running("mount"));
    let dir = c.root().join("metadata");
    std::fs::rename(&dir, c.root().join("lost")).unwrap();
    let mut data: Vec<_> = (1..=4).map(|n| start_data(&c, &format!("data-{n}"))).collect();
    let given: String = data.iter().map(|(_, address)| format!(" --data {address}")).collect();
    let told = c.says(&format!("admin metadata recover{given} --json"));
    assert!(told.contains("\"complete\": true"), "{told}");
    for (process, _) in &mut data {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    up(&c, &["--mount", at.to_str().unwrap()]);
    for n in 0..20 {
        assert!(std::fs::read(at.join(format!("f{n}"))).unwrap() == bytes(n), "f{n}");
    }
    assert_eq!(chunk_rows(&c), 0, "they were beside their rows");
}

/// Bytes are beside rows while these are on enough disks. When they are not any more, an open file goes on in a chunk; when they
/// are again, a file that shrinks goes back.
#[test]
fn small_files_leave_their_rows_with_the_copies_and_come_back_with_them() {
    let Some((c, at)) = usual() else { return };
    let set_copies = |from: &str, to: &str| {
        let path = c.root().join("braid.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(&path, text.replace(from, to)).unwrap();
        c.signal("metadata", Signal::TERM);
        eventually("the end on SIGTERM", Duration::from_secs(20), || !c.is_running("metadata"));
        up(&c, &[]);
    };
    let mut expected = pattern(3_000);
    std::fs::write(at.join("other"), &expected).unwrap();
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.join("open")).unwrap();
    open.write_all_at(&expected, 0).unwrap();
    open.sync_all().unwrap();
    assert_eq!(chunk_rows(&c), 0);

    set_copies("copies = 2", "copies = 0");
    wait_for_copies(&c, 0);
    assert_eq!(std::fs::read(at.join("other")).unwrap(), expected, "what lies in rows can be read");
    expected[1_000..1_004].copy_from_slice(b"more");
    open.write_all_at(b"more", 1_000).unwrap();
    open.sync_all().unwrap();
    let new = std::fs::File::create(at.join("new")).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    new.sync_all().unwrap();
    assert_eq!(chunk_rows(&c), 2, "the open one and the new one");
    let notes = status(&c)["notes"].to_string();
    assert!(notes.contains("small files of directories with several copies go to chunks now"), "{notes}");

    set_copies("copies = 0", "copies = 2");
    wait_for_copies(&c, 2);
    assert_eq!(std::fs::read(at.join("open")).unwrap(), expected);
    std::fs::write(at.join("new"), "newer").unwrap();
    assert_eq!(chunk_rows(&c), 1, "what is written anew is beside its row");
    let other = OpenOptions::new().read(true).write(true).open(at.join("other")).unwrap();
    other.write_all_at(&pattern(100_000), 0).unwrap();
    other.sync_all().unwrap();
    assert_eq!(chunk_rows(&c), 2, "it grew out");
    other.set_len(500).unwrap();
    other.sync_all().unwrap();
    assert_eq!(chunk_rows(&c), 1, "and shrank back");
    assert_eq!(std::fs::read(at.join("other")).unwrap(), pattern(100_000)[..500]);
}
