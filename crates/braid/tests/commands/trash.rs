//! What is put into the trash comes back, is listed, and goes when its time is over.

use super::Cluster;
use super::mounted::eventually;
use std::time::Duration;

fn items(c: &Cluster) -> Vec<serde_json::Value> {
    c.says("fs trash list --json").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_was_put_there_comes_back_as_it_was() {
    let c = Cluster::start();
    assert_eq!(c.says("fs trash list").lines().count(), 1, "the head of a table, before anything was put there");
    c.says("fs mkdir -p /a/b/c");
    c.says("fs put /proc/self/comm /a/b/c/f");
    c.says("fs chmod 750 /a/b");
    let before = c.says("fs stat --json /a/b /a/b/c /a/b/c/f");
    let tree = c.says("fs trash put /a/b");
    assert_eq!(c.says("fs ls /a"), "");
    let listed = items(&c);
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["from"], &listed[0]["kind"]), (&"/a/b".into(), &"directory".into()));
    assert_eq!(listed[0]["item"].as_str().unwrap(), tree.trim());
    // Another one of the same path, and one of a file: the newest comes back first.
    c.says("fs mkdir /a/b");
    c.says("fs trash put /a/b");
    c.says("fs put /proc/self/comm /a/file");
    c.says("fs trash put /a/file");
    assert_eq!(items(&c).len(), 3);
    c.says("fs trash restore /a/b");
    assert_eq!(c.says("fs ls /a/b"), "");
    let refused = c.fails(&format!("fs trash restore {}", tree.trim()));
    assert!(refused.contains("/a/b: is there; --to PATH restores to another place"), "{refused}");
    c.says("fs rm -r /a/b");
    c.says(&format!("fs trash restore {}", tree.trim()));
    let ctime_less = |text: &str| -> Vec<serde_json::Value> {
        let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.map(|mut row: serde_json::Value| {
            row.as_object_mut().unwrap().remove("ctime_ns");
            row
        })
        .collect()
    };
    assert_eq!(ctime_less(&c.says("fs stat --json /a/b /a/b/c /a/b/c/f")), ctime_less(&before));
    c.says("fs trash restore /a/file --to /a/other");
    assert_eq!(c.says("fs cat /a/other"), "braid\n");
    assert_eq!(items(&c).len(), 0);
    assert!(c.fails("fs trash restore /a/file").contains("/a/file: is not in the trash"));
    assert!(c.fails("fs trash put /none").contains("/none: no such file or directory"));
    assert!(c.fails("fs trash put /").contains("the root directory stays"));
    assert!(c.fails("fs trash put /.braid/trash").contains("is in the trash, or has it in it"));
    assert!(c.fails("fs trash put /a/../a").contains("write it without `..`"));
    // Nobody else may enter what one user has thrown away.
    let own = format!("/.braid/trash/{}", rustix::process::getuid().as_raw());
    let stat: serde_json::Value = serde_json::from_str(&c.says(&format!("fs stat --json {own}"))).unwrap();
    assert_eq!(stat["mode"], "0700");
    c.says("admin fsck");
    c.says(&format!("fs chmod 777 {own}"));
    assert!(c.fails("fs trash put /a").contains("somebody else made it, or opened it"));
}

#[test]
fn what_is_there_for_long_enough_goes() {
    let c = Cluster::start_with(&["--set", "metadata.trash_keep=3s"]);
    c.says("fs mkdir -p /a/kept /a/sealed /a/gone/sub");
    c.says("fs put /proc/self/comm /a/gone/sub/f");
    c.says("fs put /proc/self/comm /a/sealed/f");
    c.says("fs seal /a/sealed/f");
    c.says("fs trash put /a/sealed /a/gone");
    // Not by the command: nobody has said that it may go.
    c.says("fs mkdir /.braid/trash/0/by-hand");
    c.says("fs put /proc/self/comm /.braid/trash/0/by-hand/f");
    let is_left = |path: &str| items(&c).iter().any(|item| item["from"] == path);
    assert!(is_left("/a/gone"));
    eventually("its time", Duration::from_secs(15), || !is_left("/a/gone"));
    assert!(is_left("/a/sealed"), "nothing of a sealed file changes until it is unsealed");
    c.says("fs trash put /a/kept");
    let refused = c.fails("fs trash empty");
    assert!(refused.contains("/a/sealed: /.braid/trash/") && refused.contains("/sealed/f: "), "{refused}");
    assert_eq!(items(&c).len(), 1, "what can go has gone");
    assert_eq!(c.says("fs ls /.braid/trash/0/by-hand"), "f\n");
    c.says("fs trash restore /a/sealed");
    assert_eq!(c.says("fs cat /a/sealed/f"), "braid\n");
    c.says("fs trash empty --older-than 1h");
    c.says("admin fsck");
}
