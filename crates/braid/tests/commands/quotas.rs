//! Quotas as users and programs meet them.

use super::mounted::{eventually, mounted};
use super::{Cluster, PLAIN};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

fn shown(c: &Cluster, command: &str) -> serde_json::Value {
    serde_json::from_str(c.says(command).trim()).unwrap()
}

#[test]
fn quotas_are_set_shown_and_cleared() {
    let c = Cluster::start();
    c.says("fs mkdir -p /p/q");
    c.says("fs put /proc/self/comm /p/q/f");
    c.says("fs quota set /p --inodes 4 --bytes 1MiB");
    let get = "fs quota get --json /p";
    eventually("it is counted", Duration::from_secs(5), || shown(&c, get)["inodes"] == 3);
    eventually("to the end", Duration::from_secs(5), || shown(&c, get).get("counting").is_none());
    let account = shown(&c, get);
    assert_eq!((&account["inodes_max"], &account["bytes_max"]), (&4.into(), &(1 << 20).into()));
    assert!(c.says("fs quota list").contains("/p"));
    assert_eq!(shown(&c, "fs summary --json /p")["inodes"], 3);
    assert_eq!(shown(&c, "fs summary --json /p/q")["files"], 1);
    c.says("fs put /proc/self/comm /p/q/g");
    let said = c.fails("fs put /proc/self/comm /p/q/h");
    assert!(said.contains("quota exceeded"), "{said}");
    c.says("fs put /proc/self/comm /h");
    assert!(c.fails("fs quota get /p/q").contains("no quota of its own"));
    c.says("fs quota clear /p");
    c.says("fs put /proc/self/comm /p/q/h");
    assert!(c.fails("fs quota get /h").to_lowercase().contains("not a directory"));

    c.says("admin quota set --user 4711 --inodes 10");
    let list = c.says("admin quota list --json");
    assert!(list.lines().any(|line| line.contains("user 4711") && line.contains("\"inodes_max\":10")), "{list}");
    assert!(c.fails("admin quota set --user 0 --inodes 10").contains("superuser"));
    let query = "SELECT inodes_max FROM quotas WHERE id = 4711";
    let rows = c.braid(&["admin".as_ref(), "sql".as_ref(), "--json".as_ref(), query.as_ref()]);
    assert!(rows.code == 0 && rows.out.contains("10"), "{}{}", rows.out, rows.err);
    c.says("admin quota clear --user 4711");
    c.says("admin fsck");
}

/// What a directory has is known without looking through it, whatever has been made and moved below it.
#[test]
fn a_directory_is_counted_without_a_limit() {
    let c = Cluster::start();
    c.says("fs mkdir -p /p/q/r /elsewhere/deep");
    c.says("fs put /proc/self/comm /p/q/r/f");
    c.says("fs put /proc/self/comm /elsewhere/deep/f");
    for (command, why) in [("set /p", "--unlimited"), ("set /p --unlimited --inodes 3", "cannot be used with")] {
        let words = format!("fs quota {command}");
        let refused = c.braid(&words.split(' ').map(AsRef::as_ref).collect::<Vec<_>>());
        assert!(refused.code == 2 && refused.err.contains(why), "{command}: {}", refused.err);
    }
    c.says("fs quota set /p --unlimited");
    let known = |inodes: u64| {
        let summary = shown(&c, "fs summary --json /p");
        summary["inodes"] == inodes && summary.get("files").is_none()
    };
    eventually("it is counted", Duration::from_secs(5), || known(4));
    let account = shown(&c, "fs quota get --json /p");
    assert!(account["inodes_max"].is_null() && account["bytes_max"].is_null(), "{account}");
    c.says("fs mkdir /p/q/more");
    assert!(known(5));
    c.says("fs mv /elsewhere/deep /p/q/r/deep");
    eventually("what was moved is counted", Duration::from_secs(5), || known(7));
    c.says("fs rm -r /p/q/r/deep");
    eventually("what was removed is not", Duration::from_secs(5), || known(5));
    c.says("admin fsck");
    c.says("fs quota clear /p");
    assert_eq!(shown(&c, "fs summary --json /p")["files"], 1);
}

#[test]
fn df_below_a_quota_says_what_it_leaves() {
    let Some((c, at)) = mounted(PLAIN) else { return };
    std::fs::create_dir_all(at.join("d/sub")).unwrap();
    std::fs::write(at.join("d/sub/f"), vec![7; 1 << 20]).unwrap();
    c.says("fs quota set /d --bytes 8MiB --inodes 100");
    let free = || {
        let found = rustix::fs::statvfs(at.join("d/sub")).unwrap();
        (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_ffree)
    };
    eventually("what is left", Duration::from_secs(10), || free() == (8 << 20, 7 << 20, 100, 97));
    let whole = rustix::fs::statvfs(&at).unwrap();
    assert!(whole.f_blocks * whole.f_frsize > 8 << 20);
    let df = |path: &str| shown(&c, &format!("fs df --json {path}"));
    assert_eq!((&df("/d")["bytes_total"], &df("/d/sub")["bytes_free"]), (&(8 << 20).into(), &(7 << 20).into()));
    assert!(df("")["bytes_total"].as_u64().unwrap() > 8 << 20);
}

/// The write is refused that goes beyond, while the file is open; what was written before is there, and close and fsync say nothing.
#[test]
fn a_program_is_told_of_a_quota_by_the_write_that_goes_beyond_it() {
    let Some((c, at)) = mounted(PLAIN) else { return };
    std::fs::create_dir(at.join("d")).unwrap();
    c.says("fs quota set /d --bytes 8MiB");
    let path = at.join("d/file");
    let mut file = File::create(&path).unwrap();
    let block = vec![7; 1 << 16];
    let mut written = 0;
    let error = loop {
        match file.write(&block) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
        assert!(written <= 8 << 20, "{written} bytes went beyond the quota");
    };
    assert_eq!(error.raw_os_error(), Some(libc::EDQUOT));
    assert_eq!(written, 8 << 20, "all that it allows");
    file.sync_all().unwrap();
    // Over what is there one writes as before.
    file.write_at(b"again", 0).unwrap();
    drop(file);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 << 20);
    let small = std::fs::write(at.join("d/small"), b"x").unwrap_err();
    assert_eq!(small.raw_os_error(), Some(libc::EDQUOT));
    let grown = File::options().write(true).open(&path).unwrap().set_len((8 << 20) + 1).unwrap_err();
    assert_eq!(grown.raw_os_error(), Some(libc::EDQUOT));
    std::fs::write(at.join("free"), vec![1; 9 << 20]).unwrap();
    let moved = std::fs::rename(at.join("free"), at.join("d/moved")).unwrap_err();
    assert_eq!(moved.raw_os_error(), Some(libc::EDQUOT));

    std::fs::remove_file(&path).unwrap();
    eventually("there is room again", Duration::from_secs(20), || std::fs::write(at.join("d/small"), b"x").is_ok());
    eventually("nothing is kept for who has closed", Duration::from_secs(5), || {
        shown(&c, "fs quota get --json /d")["bytes"] == 1
    });
    c.says("admin fsck");
}
