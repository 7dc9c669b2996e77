//! Snapshots where the metadata is in a database, with real processes.

use super::database::{Machine, writer};
use super::pattern;
use super::snapshots::{change_tree, make_tree, seen};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

/// Lines of 999 digits, one after the other from 0, as the writer makes them.
fn lines(log: &[u8]) -> usize {
    let whole = log.len() / 1000;
    let expected: Vec<u8> = (0..whole).flat_map(|n| format!("{n:0999}\n").into_bytes()).collect();
    assert!(log[..whole * 1000] == expected, "of {} bytes", log.len());
    whole
}

#[test]
fn snapshots_over_a_database_show_what_was_while_a_mount_writes_and_come_back() {
    let mut m = Machine::new();
    m.serve("metadata", 1);
    m.until("it serves", || m.is_ready("metadata-1"));
    m.serve("data", 1);
    m.serve("data", 2);
    m.until("data servers serve", || m.is_ready("data-1") && m.is_ready("data-2"));
    let at = m.mount_point();
    m.says(&format!("mount {} --log {}", at.display(), m.path("mount.log").display()));
    let (dir, busy) = (at.join("dir"), at.join("busy"));
    make_tree(&dir);
    fs::create_dir(&busy).unwrap();
    // While something is written: there and elsewhere.
    let stop = m.path("stop");
    let mut writer = writer(&busy, &stop);
    let before = seen(&dir);
    m.says("fs snapshot create /dir one");
    let shown = |name: &str| dir.join(".braid/snapshots").join(name);
    assert_eq!(seen(&shown("one")), before);
    change_tree(&dir);
    let after = seen(&dir);
    m.says("fs snapshot create /dir two");
    fs::remove_file(dir.join("large")).unwrap();
    fs::rename(dir.join("sub"), dir.join("moved")).unwrap();

    // What is written in order is so in each of those that come one after the other.
    let kept = |name: &str| busy.join(".braid/snapshots").join(name);
    let has = |at: &Path| (lines(&fs::read(at.join("log")).unwrap()), fs::read_dir(at).unwrap().count());
    let mut last = (0, 0);
    for n in 0..4 {
        let written = fs::metadata(busy.join("log")).unwrap().len() as usize / 1000;
        m.says(&format!("fs snapshot create /busy b{n}"));
        let now = has(&kept(&format!("b{n}")));
        assert!(
            now.0 >= written && now.0 >= last.0 && now.1 >= last.1,
            "{now:?} after {last:?}, {written} were written"
        );
        // A file comes with each tenth line, behind it.
        assert!(now.1 <= now.0 / 10 + 1, "{now:?}");
        last = now;
    }
    m.says("fs snapshot delete /busy b1 b2");
    assert_eq!(has(&kept("b3")), last);
    fs::write(&stop, "").unwrap();
    assert!(writer.0.wait().unwrap().success());

    // Everybody is told the same, also when the metadata server has started anew.
    let listed = m.says("fs snapshot list /dir --json");
    assert_eq!(String::from_utf8_lossy(&listed).lines().count(), 2);
    m.signal("metadata-1", Signal::KILL);
    m.ended("metadata-1");
    m.serve("metadata", 1);
    m.until("it serves again", || m.is_ready("metadata-1"));
    assert_eq!(m.says("fs snapshot list /dir --json"), listed);
    assert_eq!(seen(&shown("one")), before);
    assert_eq!(seen(&shown("two")), after);
    assert_eq!(has(&kept("b3")), last);
    let text = m.says("fs cat /dir/.braid/snapshots/one/large");
    assert!(text == pattern(300_001), "{} bytes", text.len());

    m.says("fs snapshot restore /dir one");
    assert_eq!(seen(&dir), before);
    assert_eq!(seen(&shown("two")), after);
    m.says("fs snapshot delete /dir one two");
    m.says("fs snapshot delete /busy b0 b3");
    assert_eq!(m.says("fs snapshot list --json"), b"");
    assert_eq!(seen(&dir), before);
    m.says("fs rm -r /dir");
    m.is_clean();
}
