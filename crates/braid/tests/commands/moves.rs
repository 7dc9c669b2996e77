//! Ownership moves to the host that writes (docs/design/0014-migration.md), on real processes: two hosts by name, a mount on each.

use super::mounted::eventually;
use super::pages;
use super::{Cluster, pattern, say_skipped};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// More than the row of a file takes, less than a chunk.
const LEN: usize = 3 << 20;

/// The host of `up`, with two data servers, and another with a third one. Each file has a copy on each.
pub struct Hosts {
    pub c: Cluster,
    pub at: [PathBuf; 2],
    third: Option<Child>,
    _dir: tempfile::TempDir,
}

impl Hosts {
    pub fn new() -> Option<Hosts> {
        if !Path::new("/dev/fuse").exists() {
            say_skipped("there is no /dev/fuse");
            return None;
        }
        let c = Cluster::start_with(&["--data-servers=2", "--set", "metadata.policy=replica:3"]);
        let dir = tempfile::tempdir().unwrap();
        let at = ["here", "there"].map(|name| dir.path().join(name));
        let mut hosts = Hosts { c, at, third: None, _dir: dir };
        hosts.start_third();
        eventually("a third server", Duration::from_secs(20), || {
            hosts.c.says("admin servers --json").lines().filter(|line| line.contains("\"up\"")).count() == 3
        });
        for (at, host) in hosts.at.iter().zip(["", " --set cluster.host=there"]) {
            std::fs::create_dir(at).unwrap();
            hosts.c.says(&format!("mount {}{host}", at.display()));
        }
        Some(hosts)
    }

    fn ready(&self) -> PathBuf {
        self.c.root().join("run/there.ready")
    }

    fn start_third(&mut self) {
        let ready = self.ready();
        let _ = std::fs::remove_file(&ready);
        let dir = self.c.root().join("there");
        let line = format!(
            "serve data --set data.dir={} --set data.listen=[\"tcp:127.0.0.1:0\"] --set cluster.host=there --ready-file {}",
            dir.display(),
            ready.display()
        );
        let words: Vec<_> = line.split(' ').map(AsRef::as_ref).collect();
        self.third = Some(self.c.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("the start of the third server", Duration::from_secs(20), || ready.exists());
    }

    /// As a crash would.
    fn kill_third(&mut self) {
        if let Some(mut third) = self.third.take() {
            let _ = third.kill();
            let _ = third.wait();
        }
    }

    /// Of the third server.
    pub fn metric(&self, name: &str) -> u64 {
        let at = std::fs::read_to_string(self.ready().with_extension("http")).unwrap();
        pages::metric(at.trim(), name)
    }

    fn open(&self, n: usize) -> File {
        let path = self.at[n].join("f");
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for at in &self.at {
            let _ = self.c.run(&format!("umount {}", at.display()));
        }
        self.kill_third();
    }
}

/// Writes a piece and syncs, until the third server has come to own the chunk.
fn written_until_it_moves(hosts: &Hosts, file: &File, bytes: &mut [u8]) {
    let mut round = 0;
    eventually("a move", Duration::from_secs(30), || {
        round += 1;
        let at = round * 4_099 % (bytes.len() - 4_096);
        bytes[at..at + 4_096].iter_mut().for_each(|byte| *byte ^= 0x5a);
        file.write_all_at(&bytes[at..at + 4_096], at as u64).unwrap();
        file.sync_data().unwrap();
        hosts.metric("braid_data_moves_total") > 0
    });
}

fn all(file: &File) -> Vec<u8> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut seen = vec![0; LEN];
    file.read_exact_at(&mut seen, 0).unwrap();
    seen
}

#[test]
fn what_another_host_writes_comes_to_be_owned_there_and_both_see_it() {
    let Some(hosts) = Hosts::new() else { return };
    let [here, there] = [hosts.open(0), hosts.open(1)];
    let mut bytes = pattern(LEN);
    here.write_all_at(&bytes, 0).unwrap();
    here.sync_all().unwrap();
    assert_eq!(hosts.metric("braid_data_moves_total"), 0);
    assert_eq!(hosts.metric("braid_data_writes_total"), 0, "its owner is the server beside who made it");
    written_until_it_moves(&hosts, &there, &mut bytes);
    let writes = hosts.metric("braid_data_writes_total");
    for part in 0..5 {
        bytes[part * 10_000] ^= 0xff;
        there.write_all_at(&bytes, 0).unwrap();
        there.sync_data().unwrap();
        assert!(all(&here) == bytes, "after the move, part {part}");
    }
    assert!(hosts.metric("braid_data_writes_total") >= writes + 5, "written there");
}

/// Its promises hold although whoever came to own the chunk is lost at once; what was written under it is owned elsewhere then.
#[test]
fn the_loss_of_the_server_that_ownership_moved_to_loses_nothing_that_was_synced() {
    let Some(mut hosts) = Hosts::new() else { return };
    let [here, there] = [hosts.open(0), hosts.open(1)];
    let mut bytes = pattern(LEN);
    here.write_all_at(&bytes, 0).unwrap();
    here.sync_all().unwrap();
    written_until_it_moves(&hosts, &there, &mut bytes);
    bytes[77] ^= 0xff;
    there.write_all_at(&bytes, 0).unwrap();
    there.sync_data().unwrap();
    hosts.kill_third();
    // A write that finds no owner waits for one: the lease of the lost server (4 s) and what it takes to go on.
    let begun = Instant::now();
    bytes[5_000] ^= 0xff;
    there.write_all_at(&bytes[..8_192], 0).unwrap();
    there.sync_data().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?} without service", begun.elapsed());
    assert!(all(&here) == bytes, "read beside the servers that are left");
    hosts.start_third();
    bytes[6_000] ^= 0xff;
    there.write_all_at(&bytes[..8_192], 0).unwrap();
    there.sync_data().unwrap();
    assert!(all(&here) == bytes && all(&there) == bytes);
}
