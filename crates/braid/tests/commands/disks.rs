//! Disks that fail under running servers.

use super::mounted::eventually;
use super::{Cluster, PLAIN, pattern, ran, say_skipped};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An ext4 on a loop device, which can be made to find an error.
struct Ext4 {
    at: PathBuf,
    device: String,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let ran = ran(Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?);
    if ran.code == 0 { Ok(ran.out) } else { Err(format!("{program} {arguments:?}: {}", ran.err)) }
}

impl Ext4 {
    /// `None`, and it is said, where there are no loop devices or nobody may mount.
    fn at(at: &Path, image: &Path, bytes: u64) -> Option<Ext4> {
        std::fs::create_dir_all(at).unwrap();
        std::fs::File::create(image).unwrap().set_len(bytes).unwrap();
        let (image, text) = (image.to_str().unwrap(), at.to_str().unwrap());
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=1", image]).unwrap();
        if let Err(error) = run("mount", &["-o", "loop,errors=remount-ro", image, text]) {
            say_skipped(&format!("a disk with an ext4 of its own: {error}"));
            return None;
        }
        let device = run("findmnt", &["-no", "SOURCE", text]).unwrap();
        let device = device.trim().trim_start_matches("/dev/").to_owned();
        Some(Ext4 { at: at.to_owned(), device })
    }

    /// As when a block of it cannot be read: the kernel takes no more changes of it.
    fn fail(&self) {
        std::fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", self.device), "1").unwrap();
        eventually("a disk that takes nothing", Duration::from_secs(5), || {
            std::fs::write(self.at.join("probe"), "").is_err()
        });
    }

    /// Checked and mounted anew.
    fn mend(&self, image: &Path) {
        let (image, at) = (image.to_str().unwrap(), self.at.to_str().unwrap());
        run("umount", &[at]).unwrap();
        // 1: mistakes were corrected.
        let checked = Command::new("e2fsck").args(["-fy", image]).output().unwrap();
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&checked.stdout));
        run("mount", &["-o", "loop", image, at]).unwrap();
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.at.to_str().unwrap_or_default()]);
    }
}

/// What is on it is read, new files go elsewhere, who writes into what is on it is told why, and a restart on the mended
/// disk makes all as before.
#[test]
fn a_disk_that_becomes_read_only_is_still_read() {
    let c = Cluster::unmade();
    let local = tempfile::tempdir().unwrap();
    // Of the same size: what is new goes where there is more room.
    let disk = |name: &str| {
        let disk = Ext4::at(&c.root().join(name), &local.path().join(name), 1 << 30)?;
        // A file system's own directory is none of a cluster's.
        std::fs::remove_dir(disk.at.join("lost+found")).unwrap();
        Some(disk)
    };
    let (Some(disk), Some(_other)) = (disk("data-1"), disk("data-2")) else { return };
    let up = c.up_with(&[PLAIN, &["--set", "client.deadline=5s"]].concat());
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let file = local.path().join("file");
    std::fs::write(&file, pattern(1_500_000)).unwrap();
    let put = |name: &str| c.run(&format!("fs put {} /{name}", file.display()));
    let before: Vec<String> = (0..8).map(|n| format!("before-{n}")).collect();
    before.iter().for_each(|name| assert_eq!(put(name).code, 0));
    disk.fail();
    let reads = |names: &[String]| {
        names.iter().for_each(|name| assert!(c.bytes(&format!("fs cat /{name}")) == pattern(1_500_000), "{name}"));
    };
    reads(&before);
    // The first to write there finds it out, and is told.
    let (mut after, mut told) = (Vec::new(), Vec::new());
    for n in 0..12 {
        let (name, ran) = (format!("after-{n}"), put(&format!("after-{n}")));
        if ran.code == 0 {
            after.push(name)
        } else {
            told.push(ran.err)
        }
        // What the metadata server knows of the room there is a heartbeat old.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(!told.is_empty() && told.len() <= 2, "what is new goes elsewhere: {told:?}");
    assert!(told.iter().all(|said| said.contains("data server 1") && said.contains("read-only")), "{told:?}");
    reads(&after);
    let log = std::fs::read_to_string(c.root().join("log/data-1.log")).unwrap();
    assert!(log.contains("has become read-only") && log.contains("restart this server"), "{log}");
    assert!(c.is_running("data-1") && c.is_running("data-2"));
    c.kill("data-1");
    eventually("the end of data-1", Duration::from_secs(10), || !c.is_running("data-1"));
    disk.mend(&local.path().join("data-1"));
    assert_eq!(c.up().code, 0);
    reads(&before);
    reads(&after);
    let again: Vec<String> = (0..8).map(|n| format!("again-{n}")).collect();
    again.iter().for_each(|name| assert_eq!(put(name).code, 0));
    reads(&again);
    c.says("fs rm /before-0");
    assert_eq!(c.run("admin fsck --data").code, 0, "{}", c.run("admin fsck --data").out);
}
