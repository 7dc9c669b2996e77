//! Sealed files, by command and by mounts.

use super::mounted::eventually;
use super::two_mounts::Two;
use super::{Cluster, PLAIN, pages, pattern, say_skipped, tree};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Of more than a row, in one chunk, and no whole number of blocks.
const LEN: usize = 300_001;

/// A number that the mount of `up` shows.
fn metric(two: &Two, name: &str) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&two.c.says("admin status --json")).unwrap();
    pages::metric(status["pages"]["mount"].as_str().unwrap(), name)
}

fn passed(two: &Two) -> u64 {
    metric(two, "braid_mount_passthrough_opens_total")
}

fn held(two: &Two) -> u64 {
    metric(two, "braid_mount_sealed_held")
}

/// `None`, and it is said, where the kernel passes nothing through.
fn with_passthrough(settings: &[&str]) -> Option<Two> {
    let two = Two::with(settings)?;
    let words = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = words.split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    if version < (6, 9) || !rustix::process::geteuid().is_root() {
        say_skipped("passthrough needs Linux 6.9 and root");
        return None;
    }
    Some(two)
}

/// Written by one mount, sealed: the bytes.
fn sealed(two: &Two, at: usize, name: &str, len: usize) -> Vec<u8> {
    let bytes = pattern(len);
    fs::write(two.at[at].join(name), &bytes).unwrap();
    two.c.says(&format!("fs seal /{name}"));
    bytes
}

fn read_all(file: &File, len: usize) -> Vec<u8> {
    let mut seen = vec![0; len];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(file.read_at(&mut [0], len as u64).unwrap(), 0, "it ends there");
    seen
}

/// An open that the kernel reads through.
fn open_passed(two: &Two, name: &str) -> File {
    let before = passed(two);
    let file = File::open(two.at[0].join(name)).unwrap();
    assert_eq!(passed(two), before + 1, "{name} is not passed through");
    file
}

#[test]
fn seal_and_unseal_say_what_they_did_and_what_is_in_the_way() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    tree(local.path());
    c.says(&format!("fs put -r {} /t", local.path().display()));
    assert_eq!(c.says("fs seal /t/small"), "");
    assert!(c.says("fs stat /t/small").contains(", sealed\n"));
    let json: serde_json::Value = serde_json::from_str(&c.says("fs stat --json /t/small")).unwrap();
    assert_eq!(json["sealed"], true);
    let refused = c.fails("fs rm /t/small");
    assert!(refused.contains("/t/small") && refused.contains("sealed") && refused.contains("(B128)"), "{refused}");
    assert!(c.fails("fs chmod 600 /t/small").contains("(B128)"));
    assert!(c.fails("fs mv /t/small /t/other").contains("(B128)"));
    assert!(c.fails("fs ln /t/small /t/other").contains("(B128)"));
    let put = c.fails(&format!("fs put {} /t/small", local.path().join("d/e/large").display()));
    assert!(put.contains("small") && put.contains("(B128)"), "{put}");
    assert_eq!(c.bytes("fs cat /t/small"), b"hello\n");
    // A whole tree: what is no file is passed over, and one file that is sealed already is no error.
    assert!(c.fails("fs seal /t").contains("-r"));
    let lines = c.says("fs seal -r --json /t");
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let left = c.run("fs rm -r /t");
    assert_eq!((left.code, left.err.matches("(B128)").count() >= 1), (1, true), "{}", left.err);
    assert_eq!(c.bytes("fs cat /t/d/e/large"), pattern(3_000_001));
    assert!(c.says("admin fsck").starts_with("clean: "));
    c.says("fs unseal -r /t");
    c.says("fs rm -r /t");
    assert!(c.fails("fs seal /absent").contains("/absent"));
    assert!(c.fails("fs seal /").contains("directory"));
}

/// Cycles of it through two mounts: what was written before is what is read, by both, and nothing is written then.
#[test]
fn a_file_that_is_sealed_and_unsealed_reads_as_it_was_written_last() {
    let Some(two) = Two::new() else { return };
    for len in [900, 300_000] {
        let [here, there] = [0, 1].map(|at: usize| two.at[at].join(format!("f{len}")));
        for round in 0..4usize {
            let mut bytes = pattern(len);
            bytes[round] ^= 0xff;
            let (writer, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
            fs::write(writer, &bytes).unwrap();
            two.c.says(&format!("fs seal /f{len}"));
            for path in [other, writer] {
                assert!(fs::read(path).unwrap() == bytes, "{len} bytes, round {round}");
                assert_eq!(fs::write(path, b"new").unwrap_err().raw_os_error(), Some(libc::EPERM));
                assert_eq!(fs::remove_file(path).unwrap_err().raw_os_error(), Some(libc::EPERM));
            }
            two.c.says(&format!("fs unseal /f{len}"));
        }
        fs::remove_file(&here).unwrap();
    }
}

fn many_reads_and_no_request(settings: &[&str]) {
    let Some(two) = with_passthrough(settings) else { return };
    let bytes = sealed(&two, 1, "f", LEN);
    let file = open_passed(&two, "f");
    let before = metric(&two, "braid_mount_read_bytes_total");
    for round in 0..100usize {
        // Not from any page cache.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let at = round * 2_999;
        let mut seen = [0; 3_000];
        file.read_exact_at(&mut seen, at as u64).unwrap();
        assert!(seen[..] == bytes[at..at + 3_000], "round {round}");
    }
    assert!(read_all(&file, LEN) == bytes);
    assert_eq!(metric(&two, "braid_mount_read_bytes_total"), before, "the mount was asked");
    // Beside it all others are passed through as well, whatever they ask for.
    let direct = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(two.at[0].join("f")).unwrap();
    assert_eq!(passed(&two), 2);
    drop((file, direct));
    // The second open finds it verified, and asks no server for it.
    let again = open_passed(&two, "f");
    assert!(read_all(&again, LEN) == bytes);
    assert_eq!(held(&two), 1);
}

#[test]
fn reads_of_a_sealed_file_with_one_copy_send_no_request() {
    many_reads_and_no_request(PLAIN);
}

#[test]
fn reads_of_a_sealed_file_with_two_copies_send_no_request() {
    many_reads_and_no_request(&[]);
}

/// Where the file below is not the file itself, or not sealed, or it is switched off, the mount is asked, and answers right.
#[test]
fn what_cannot_be_passed_through_is_read_by_asking() {
    let small = [PLAIN, &["--set", "metadata.policy=plain,chunk=1MiB"]].concat();
    let Some(two) = with_passthrough(&small) else { return };
    let at = |name: &str| two.at[0].join(name);
    let reads = |name: &str, bytes: &[u8]| {
        let file = File::open(at(name)).unwrap();
        assert!(read_all(&file, bytes.len()) == bytes, "{name}");
        assert_eq!(passed(&two), 0, "{name} is passed through");
    };
    let inline = sealed(&two, 0, "inline", 900);
    reads("inline", &inline);
    let two_chunks = sealed(&two, 0, "chunks", (1 << 20) + 1);
    reads("chunks", &two_chunks);
    // The end of the file is a hole, of which the file below has nothing.
    let bytes = [pattern(LEN), vec![0; 5_000]].concat();
    let file = File::create(at("hole")).unwrap();
    file.write_all_at(&bytes[..LEN], 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    drop(file);
    two.c.says("fs seal /hole");
    reads("hole", &bytes);
    fs::write(at("open"), pattern(LEN)).unwrap();
    reads("open", &pattern(LEN));
    // A handle of before the seal that keeps pages: the kernel takes no other beside it.
    let cached = File::open(at("open")).unwrap();
    two.c.says("fs seal /open");
    reads("open", &pattern(LEN));
    drop(cached);
    eventually("an open that is passed through", Duration::from_secs(10), || {
        let file = File::open(at("open")).unwrap();
        read_all(&file, LEN) == pattern(LEN) && passed(&two) > 0
    });
}

#[test]
fn passthrough_can_be_switched_off() {
    let off = [PLAIN, &["--set", "mount.passthrough=false"]].concat();
    let Some(two) = with_passthrough(&off) else { return };
    let bytes = sealed(&two, 0, "f", LEN);
    let file = File::open(two.at[0].join("f")).unwrap();
    assert!(read_all(&file, LEN) == bytes);
    assert_eq!((passed(&two), held(&two)), (0, 0));
    two.c.says("fs unseal --wait 0 /f");
}

/// Whoever has it open is named; when it is closed the file is unsealed at once, and what is written then the next read sees.
#[test]
fn unsealing_waits_for_handles_and_mappings_and_a_write_is_seen_by_the_next_read() {
    let Some(two) = with_passthrough(PLAIN) else { return };
    let mut bytes = sealed(&two, 1, "f", LEN);
    for round in 0..3usize {
        let file = open_passed(&two, "f");
        let refused = two.c.fails("fs unseal --wait 0 /f");
        assert!(refused.contains("/f") && refused.contains("session") && refused.contains("passthrough"), "{refused}");
        assert!(refused.contains(&two.at[0].display().to_string()), "where it is open is said: {refused}");
        assert!(read_all(&file, LEN) == bytes);
        let before = Instant::now();
        std::thread::scope(|scope| {
            let unsealing = scope.spawn(|| two.c.says("fs unseal /f"));
            std::thread::sleep(Duration::from_millis(700));
            assert!(!unsealing.is_finished());
            assert!(read_all(&file, LEN) == bytes);
            match round {
                0 => drop(file),
                _ => {
                    // A mapping outlives its handle.
                    // SAFETY: a new mapping for reading, of a file that nobody cuts short.
                    let map = unsafe { mmap(std::ptr::null_mut(), LEN, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
                    let map = map.unwrap();
                    drop(file);
                    std::thread::sleep(Duration::from_millis(1500));
                    assert!(!unsealing.is_finished(), "it is mapped");
                    // SAFETY: the mapping is there, and nobody writes the file.
                    let seen = unsafe { std::slice::from_raw_parts(map.cast::<u8>(), LEN) };
                    assert!(seen == bytes);
                    // SAFETY: nobody sees the mapping any more.
                    unsafe { munmap(map, LEN) }.unwrap();
                }
            }
            unsealing.join().unwrap();
        });
        assert!(before.elapsed() < Duration::from_secs(10));
        assert_eq!(held(&two), 0);
        let reader = File::open(two.at[0].join("f")).unwrap();
        for change in 0..10usize {
            bytes[round * 100 + change] ^= 0xff;
            let writer = fs::OpenOptions::new().write(true).open(two.at[1].join("f")).unwrap();
            writer.write_all_at(&bytes[..1_000], 0).unwrap();
            assert!(read_all(&reader, LEN) == bytes, "round {round}, change {change}");
        }
        drop(reader);
        eventually("the seal", Duration::from_secs(10), || two.c.run("fs seal /f").code == 0);
    }
}

/// The mount that had it open is killed: its session ends, and the file is unsealed.
#[test]
fn a_mount_that_is_killed_holds_unsealing_up_for_no_longer_than_its_session() {
    let Some(two) = with_passthrough(PLAIN) else { return };
    sealed(&two, 1, "f", LEN);
    let file = open_passed(&two, "f");
    two.c.kill("mount");
    let before = Instant::now();
    two.c.says("fs unseal /f");
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    drop(file);
    fs::write(two.at[1].join("f"), b"new").unwrap();
}

/// What is held is known to the next start of the metadata server before it unseals anything.
#[test]
fn what_is_held_outlives_a_restart_of_the_metadata_server() {
    let Some(two) = with_passthrough(PLAIN) else { return };
    let bytes = sealed(&two, 1, "f", LEN);
    let file = open_passed(&two, "f");
    for signal in [Signal::KILL, Signal::TERM] {
        two.c.signal("metadata", signal);
        eventually("its end", Duration::from_secs(20), || !two.c.is_running("metadata"));
        assert_eq!(two.c.up_mounted(&[]).code, 0);
        assert!(two.c.fails("fs unseal --wait 1 /f").contains("passthrough"));
        assert!(read_all(&file, LEN) == bytes);
    }
    drop(file);
    two.c.says("fs unseal /f");
}

/// The copy that is read moves away, or its server is killed: what is open is read on, with the same bytes.
#[test]
fn what_is_open_is_read_on_while_data_servers_go_and_come_back() {
    let Some(two) = with_passthrough(&[]) else { return };
    let bytes = sealed(&two, 1, "f", LEN);
    let file = open_passed(&two, "f");
    for name in ["data-1", "data-2"] {
        two.c.kill(name);
        assert!(read_all(&file, LEN) == bytes);
        assert_eq!(two.c.up_mounted(&[]).code, 0);
        assert!(read_all(&file, LEN) == bytes);
    }
}

/// `chattr -i` opens the file itself, which must not be in its way; nor is a kernel that has read it and keeps nothing open.
#[test]
fn chattr_unseals_what_was_read_without_asking() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Some(two) = with_passthrough(PLAIN) else { return };
    let bytes = sealed(&two, 1, "f", LEN);
    let path = two.at[0].join("f");
    let look = || fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    assert!(read_all(&open_passed(&two, "f"), LEN) == bytes);
    eventually("the end of the hold", Duration::from_secs(10), || held(&two) == 0);
    let flags = look();
    assert_eq!(ioctl_getflags(&flags), Ok(IFlags::IMMUTABLE));
    ioctl_setflags(&flags, IFlags::empty()).unwrap();
    drop(flags);
    fs::write(&path, b"new").unwrap();
    let flags = look();
    // The kernel tells of a close behind it.
    eventually("chattr +i", Duration::from_secs(10), || ioctl_setflags(&flags, IFlags::IMMUTABLE).is_ok());
    drop(flags);
    assert!(two.c.says("fs stat /f").contains(", sealed\n"));
    // While another program has it open it is refused, and neither waits for ever.
    fs::write(two.at[1].join("g"), &bytes).unwrap();
    two.c.says("fs seal /g");
    let open = open_passed(&two, "g");
    let flags = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(two.at[1].join("g")).unwrap();
    assert_eq!(ioctl_setflags(&flags, IFlags::empty()), Err(rustix::io::Errno::TXTBSY));
    drop(open);
    eventually("chattr -i", Duration::from_secs(20), || ioctl_setflags(&flags, IFlags::empty()).is_ok());
}
