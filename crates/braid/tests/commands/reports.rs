//! Block reports, on real processes: what is removed from a data server's directory by hand comes back from the others.

use super::database::Machine;
use super::growing::put;
use super::mounted::eventually;
use super::{Cluster, PLAIN, pattern};
use std::path::{Path, PathBuf};
use std::time::Duration;

const OFTEN: &[&str] = &["--set", "metadata.report_every=1s"];

/// Whether or not all is well.
fn reports(c: &Cluster) -> serde_json::Value {
    let ran = c.run("admin status --json");
    serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()["reports"].clone()
}

fn headers(data: &Path) -> Vec<PathBuf> {
    let shards = std::fs::read_dir(data.join("chunks")).unwrap();
    let files = shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "meta")).collect()
}

#[test]
fn chunk_files_of_a_member_that_were_removed_by_hand_are_restored_and_counted() {
    chunk_files_of_a_member_come_back(&[]);
}

/// Where two metadata servers serve; one of them compares.
#[test]
fn chunk_files_that_were_removed_by_hand_are_restored_and_counted_over_a_database() {
    let m = Machine::with_database();
    chunk_files_of_a_member_come_back(&["--database", &m.database(), "--together"]);
}

fn chunk_files_of_a_member_come_back(how: &[&str]) {
    let c = Cluster::start_with(&[&["--data-servers=3"], OFTEN, how].concat());
    let local = tempfile::tempdir().unwrap();
    let names = put(&c, local.path(), (0..6).map(|n| format!("f{n}")));
    let data = c.root().join("data-2");
    eventually("a copy of each at data-2", Duration::from_secs(20), || headers(&data).len() >= 6);
    eventually("reports", Duration::from_secs(20), || reports(&c)["compared"].as_u64().unwrap() >= 6);
    std::thread::sleep(Duration::from_secs(2));
    let removed = headers(&data);
    for header in &removed {
        for suffix in ["meta", "data", "chain"] {
            let _ = std::fs::remove_file(header.with_extension(suffix));
        }
    }
    eventually("all of them back", Duration::from_secs(90), || {
        let seen = reports(&c);
        seen["restored"].as_u64().unwrap() >= 6 && seen["missing"] == 0
    });
    let seen = reports(&c);
    assert_eq!((&seen["extra"], &seen["removed"]), (&0.into(), &0.into()), "{seen}");
    assert!(c.says("admin status").contains("lost copies were restored"));
    assert!(headers(&data).len() >= 6);
    // They are read from there alone.
    c.kill("data-1");
    c.kill("data-3");
    assert_eq!(c.up().code, 0);
    for name in &names {
        assert!(c.bytes(&format!("fs cat /{name}")) == pattern(3_000_000), "{name}");
    }
    eventually("a clean fsck", Duration::from_secs(30), || c.run("admin fsck --data").out.starts_with("clean: "));
}

#[test]
fn a_chunk_with_one_copy_that_was_removed_by_hand_is_named() {
    let c = Cluster::start_with(&[PLAIN, OFTEN].concat());
    let local = tempfile::tempdir().unwrap();
    put(&c, local.path(), ["gone".to_owned()]);
    // Its row says that it was stable.
    std::thread::sleep(Duration::from_secs(5));
    let header = headers(&c.root().join("data-1")).into_iter().chain(headers(&c.root().join("data-2"))).next().unwrap();
    ["meta", "data"].into_iter().for_each(|suffix| std::fs::remove_file(header.with_extension(suffix)).unwrap());
    eventually("that it is missed", Duration::from_secs(60), || reports(&c)["missing"] == 1);
    let ran = c.run("admin status");
    assert!(ran.code == 1 && ran.out.contains("1 chunks of files are missing"), "{}", ran.out);
    assert_eq!(reports(&c)["restored"], 0);
    // Its server has the files open, and reads them as long as it lives.
    ["data-1", "data-2"].into_iter().for_each(|name| c.kill(name));
    assert_eq!(c.up().code, 0);
    eventually("that fsck names it", Duration::from_secs(30), || c.run("admin fsck --data").out.contains("F401"));
}
