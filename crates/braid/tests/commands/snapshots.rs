//! Snapshots, by command and through a mount, with real processes.

use super::mounted::{eventually, mounted};
use super::{Cluster, PLAIN, pattern};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// More than is kept in rows.
const LARGE: usize = 300_001;

/// What a program sees of a tree: by path, kind, mode, owner, time of change and content.
pub fn seen(top: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![top.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let of = fs::symlink_metadata(&path).unwrap();
            let mut what = format!(
                "{:o} {} {} {}",
                of.mode(),
                of.uid(),
                of.nlink(),
                of.modified().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos()
            );
            if of.is_dir() {
                dirs.push(path.clone());
            } else if of.is_symlink() {
                what += &format!(" {:?}", fs::read_link(&path).unwrap());
            } else {
                let bytes = fs::read(&path).unwrap();
                assert_eq!(bytes.len() as u64, of.len());
                what += &format!(" {} {:x}", bytes.len(), sum(&bytes));
            }
            found.insert(path.strip_prefix(top).unwrap().display().to_string(), what);
        }
    }
    found
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

pub fn make_tree(at: &Path) {
    fs::create_dir_all(at.join("sub/deep")).unwrap();
    fs::write(at.join("small"), "small").unwrap();
    fs::write(at.join("large"), pattern(LARGE)).unwrap();
    fs::write(at.join("sub/other"), pattern(LARGE)).unwrap();
    fs::hard_link(at.join("small"), at.join("sub/linked")).unwrap();
    symlink("small", at.join("link")).unwrap();
    fs::write(at.join("sub/deep/gone"), "gone").unwrap();
    fs::set_permissions(at.join("sub"), fs::Permissions::from_mode(0o750)).unwrap();
}

pub fn change_tree(at: &Path) {
    fs::write(at.join("small"), "smaller still").unwrap();
    fs::File::options().write(true).open(at.join("large")).unwrap().write_all_at(b"changed", 100_000).unwrap();
    fs::File::options().write(true).open(at.join("sub/other")).unwrap().set_len(1000).unwrap();
    fs::remove_dir_all(at.join("sub/deep")).unwrap();
    fs::remove_file(at.join("link")).unwrap();
    fs::create_dir(at.join("link")).unwrap();
    fs::write(at.join("new"), "new").unwrap();
    fs::set_permissions(at.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
}

fn as_it_was(more: &[&str]) {
    // What data servers have is compared with what rows name all the time.
    let Some((c, at)) = mounted(&[more, &["--set", "metadata.report_every=1s"]].concat()) else { return };
    let dir = at.join("dir");
    make_tree(&dir);
    let before = seen(&dir);
    c.says("fs snapshot create /dir one");
    let shown = dir.join(".braid/snapshots/one");
    assert_eq!(seen(&shown), before, "nothing was stored before it was asked for");
    change_tree(&dir);
    let after = seen(&dir);
    assert_eq!(seen(&shown), before);
    c.says("fs snapshot create /dir two");
    fs::remove_file(dir.join("large")).unwrap();
    assert_eq!(seen(&shown), before);
    assert_eq!(seen(&dir.join(".braid/snapshots/two")), after);
    // Names that are shown and not listed, and what may not be done.
    assert!(fs::read_dir(&dir).unwrap().all(|entry| entry.unwrap().file_name() != ".braid"));
    let names = |path: &Path| -> Vec<String> {
        let mut all: Vec<_> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    };
    assert_eq!(names(&dir.join(".braid")), ["snapshots"]);
    assert_eq!(names(&dir.join(".braid/snapshots")), ["one", "two"]);
    let refused = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EROFS));
    refused(fs::write(shown.join("small"), "x"));
    refused(fs::write(shown.join("new"), "x"));
    refused(fs::remove_file(shown.join("small")));
    refused(fs::create_dir(dir.join(".braid/snapshots/three")));
    refused(fs::rename(shown.join("small"), shown.join("x")));
    let out = fs::rename(dir.join("small"), at.join("small")).unwrap_err();
    assert_eq!(out.raw_os_error(), Some(libc::EXDEV), "what a snapshot has does not leave its directory");
    // Everybody is told the same, also after every process has started anew.
    let listed = c.says("fs snapshot list /dir --json");
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let all: Vec<_> = listed.lines().map(of).collect();
    assert_eq!(
        all.iter().map(|one| (&one["dir"], &one["name"])).collect::<Vec<_>>(),
        [(&"/dir".into(), &"one".into()), (&"/dir".into(), &"two".into())]
    );
    assert!(c.fails("fs snapshot create /dir one").contains("/dir: snapshot one: exists already"));
    assert!(c.fails("fs snapshot create /dir/sub one").contains("it lies below"));
    assert!(c.fails("fs snapshot create / one").contains("has snapshots of its own"));
    assert!(c.fails("fs snapshot delete /dir none").contains("snapshot none"));
    assert!(c.fails("fs snapshot restore /dir none").contains("/dir: it has no snapshot none"));
    c.says("admin fsck --data");
    let compared = reports(&c)["compared"].as_u64().unwrap();
    let rounds = |c: &Cluster| reports(c)["compared"].as_u64().unwrap() > compared + 6;
    eventually("three looks at each of two data servers", Duration::from_secs(30), || rounds(&c));
    assert_eq!(reports(&c)["extra"], 0, "what only snapshots have is no garbage");
    assert_eq!(seen(&shown), before);
    c.signal("metadata", Signal::KILL);
    eventually("its end", Duration::from_secs(10), || !c.is_running("metadata"));
    let up = c.up_mounted(&[]);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    assert_eq!(seen(&shown), before);
    assert_eq!(c.says("fs snapshot list /dir --json"), listed);

    // And it comes back.
    let would = c.says("fs snapshot restore /dir one --dry-run");
    assert!(would.contains("make /dir/large") && would.contains("remove /dir/new"), "{would}");
    assert_eq!(seen(&shown), before);
    c.says("fs snapshot restore /dir one");
    assert_eq!(seen(&dir), before);
    assert_eq!(c.says("fs snapshot restore /dir one"), "made: 0, changed: 0, removed: 0\n");
    assert_eq!(seen(&dir.join(".braid/snapshots/two")), after);
    c.says("admin fsck --data");

    // What only they had is freed when they are let go of.
    c.says("fs snapshot delete /dir one two");
    assert_eq!(c.says("fs snapshot list /dir --json"), "");
    assert!(!shown.exists());
    assert_eq!(seen(&dir), before);
    c.says("fs rm -r /dir");
    eventually("the end of all chunks", Duration::from_secs(30), || chunks(&c) == 0);
    c.says("admin fsck --data");
}

fn status(c: &Cluster) -> serde_json::Value {
    serde_json::from_str(&c.run("admin status --json").out).unwrap()
}

fn reports(c: &Cluster) -> serde_json::Value {
    status(c)["reports"].clone()
}

/// At all data servers.
fn chunks(c: &Cluster) -> usize {
    let status = status(c);
    let servers = status["servers"].as_array().unwrap();
    servers.iter().map(|server| server["chunks"].as_u64().unwrap() as usize).sum()
}

#[test]
fn a_directory_with_one_copy_is_as_it_was_and_comes_back() {
    as_it_was(PLAIN);
}

#[test]
fn a_directory_with_copies_is_as_it_was_and_comes_back() {
    as_it_was(&[]);
}
