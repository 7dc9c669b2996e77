//! `braid admin drain` and `decommission`, on real processes.

use super::mounted::eventually;
use super::{Cluster, Ends, PLAIN, pattern};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn json(c: &Cluster, line: &str) -> serde_json::Value {
    serde_json::from_str(&c.says(line)).unwrap()
}

/// Files of 3 MiB, each put as `/name`.
pub fn put(c: &Cluster, local: &Path, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let file = local.join("file");
    std::fs::write(&file, pattern(3_000_000)).unwrap();
    let put = |name: String| {
        c.says(&format!("fs put {} /{name}", file.display()));
        name
    };
    names.into_iter().map(put).collect()
}

fn all_read(c: &Cluster, names: &[String]) {
    names.iter().for_each(|name| assert!(c.bytes(&format!("fs cat /{name}")) == pattern(3_000_000), "{name}"));
}

/// Until the drain of the server has ended.
fn drained(c: &Cluster, server: u64) {
    let begun = Instant::now();
    loop {
        let ran = c.run(&format!("admin drain {server} --plan --json"));
        let drain: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
        if drain["duty"] == "drained" {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{}{}", ran.out, ran.err);
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub fn chains(c: &Cluster) -> Vec<Vec<u64>> {
    let lines = c.says("admin containers --json");
    let chain = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        row["chain"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    lines.lines().map(chain).collect()
}

/// A writer goes on all the time: what it wrote is there, byte by byte, when the server is out and its disk is gone.
#[test]
fn a_server_is_drained_while_a_writer_runs_then_decommissioned_and_never_taken_back() {
    let c = Cluster::start_with(&["--data-servers=4"]);
    let local = tempfile::tempdir().unwrap();
    let before = put(&c, local.path(), (0..8).map(|n| format!("before-{n}")));
    let plan = c.says("admin drain 2 --plan");
    assert!(plan.contains("data server 2: serves") && plan.contains("to data server"), "{plan}");
    assert!(chains(&c).iter().any(|chain| chain.contains(&2)), "a plan changes nothing");
    let during = std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&c, local.path(), (0..10).map(|n| format!("during-{n}"))));
        let drain = json(&c, "admin drain 2 --json");
        assert_eq!((&drain["duty"], &drain["done"]), (&"drained".into(), &true.into()), "{drain}");
        writer.join().unwrap()
    });
    assert!(chains(&c).iter().all(|chain| !chain.contains(&2)), "{:?}", chains(&c));
    let servers = c.says("admin servers");
    assert!(servers.contains("duty") && servers.contains("drained"), "{servers}");
    // How many chunks it has comes with its next sign of life.
    eventually("nothing is left at it", Duration::from_secs(10), || {
        let two = c.says("admin servers --json").lines().nth(1).map(|line| serde_json::from_str(line).unwrap());
        let two: serde_json::Value = two.unwrap();
        (&two["duty"], &two["chunks"]) == (&"drained".into(), &0.into())
    });

    assert!(c.says("admin decommission 2").contains("data server 2 is decommissioned"));
    assert_eq!(c.says("admin servers --json").lines().count(), 3);
    assert!(c.fails("admin drain 2").contains("decommissioned"));
    c.kill("data-2");
    let begun = Instant::now();
    while c.is_running("data-2") {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    let dir = c.root().join("data-2");
    let back = c.run(&format!("serve data --set data.dir={} --set data.listen=[\"tcp:127.0.0.1:0\"]", dir.display()));
    assert!(back.code != 0 && back.err.contains("was decommissioned"), "{}{}", back.out, back.err);
    std::fs::remove_dir_all(&dir).unwrap();
    all_read(&c, &before);
    all_read(&c, &during);
    assert!(c.says("admin fsck --data").starts_with("clean: "));
}

/// kill -9 of the metadata server, and of the server that is drained, in the middle.
#[test]
fn a_drain_goes_on_after_the_loss_of_the_metadata_server_and_of_the_drained_one() {
    let c = Cluster::start_with(&["--data-servers=4"]);
    let local = tempfile::tempdir().unwrap();
    let files = put(&c, local.path(), (0..8).map(|n| format!("f{n}")));
    let begun = json(&c, "admin drain 2 --rate 1MiB --no-wait --json");
    assert_eq!(begun["duty"], "draining", "{begun}");
    // Paused and resumed.
    c.says("admin drain 2 --pause");
    let paused = json(&c, "admin decommission 2 --plan --json");
    assert_eq!((&paused["duty"], &paused["done"]), (&"paused".into(), &false.into()), "{paused}");
    assert!(c.fails("admin decommission 2 --rate 1").contains("at least 64KiB"));
    let resumed = json(&c, "admin drain 2 --resume --rate 1MiB --no-wait --json");
    assert_eq!(resumed["duty"], "draining", "{resumed}");
    std::thread::sleep(Duration::from_secs(2));
    c.kill("metadata");
    c.kill("data-2");
    std::thread::sleep(Duration::from_millis(500));
    all_read_after(&c, &files);
    let seen = json(&c, "admin drain 2 --plan --json");
    assert_eq!((&seen["move_bytes_per_s"], seen["duty"] != "serves"), (&(1 << 20).into(), true), "{seen}");
    c.says("admin drain 2 --rate 200MiB --no-wait");
    drained(&c, 2);
    assert!(chains(&c).iter().all(|chain| !chain.contains(&2)), "{:?}", chains(&c));
    all_read(&c, &files);
}

fn all_read_after(c: &Cluster, files: &[String]) {
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    all_read(c, files);
}

#[test]
fn what_cannot_be_is_said_and_changes_nothing() {
    let c = Cluster::start_with(&["--data-servers=3"]);
    let local = tempfile::tempdir().unwrap();
    let files = put(&c, local.path(), (0..2).map(|n| format!("f{n}")));
    assert!(c.fails("admin drain 9").contains("data server 9"));
    assert!(c.fails("admin drain 2 --resume").contains("nothing to resume"));
    assert!(c.fails("admin drain 2 --pause").contains("it is not being drained"));
    assert!(c.fails("admin drain 2 --rate 1").contains("at least 64KiB"));
    // Three copies on three servers: there is no fourth.
    let plan = c.run("admin drain 2 --plan");
    assert!(plan.code == 1 && plan.out.contains("cannot move: container"), "{}{}", plan.out, plan.err);
    assert!(plan.out.contains("1 has a copy, 3 has a copy"), "{}", plan.out);
    let drain = c.run("admin drain 2");
    assert!(drain.code == 1 && drain.out.contains("cannot move"), "{}{}", drain.out, drain.err);
    let refused = c.run("admin decommission 2");
    assert!(refused.code != 0 && refused.err.contains("it stays"), "{}{}", refused.out, refused.err);
    assert!(chains(&c).iter().all(|chain| chain.len() == 3), "{:?}", chains(&c));
    c.says("admin drain 2 --pause");
    assert!(c.fails("admin decommission 2").contains("paused"));
    c.says("admin drain 2 --cancel");
    assert!(!c.says("admin servers").contains("duty"));
    all_read(&c, &files);
}

/// One copy has no chain that could grow: a client in the metadata server's process takes each chunk elsewhere, under its file's lease.
#[test]
fn chunks_with_one_copy_are_moved_while_a_mount_writes_and_the_metadata_server_is_killed() {
    let c = Cluster::unmade();
    let up = c.up_mounted(PLAIN);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let at = c.mount_point();
    let names: Vec<String> = (0..12).map(|n| format!("f{n}")).collect();
    names.iter().for_each(|name| std::fs::write(at.join(name), pattern(3_000_000)).unwrap());
    std::fs::write(at.join("sealed"), pattern(2_000_000)).unwrap();
    c.says("fs seal /sealed");
    let mut sealed = std::fs::File::open(at.join("sealed")).unwrap();
    let before = std::fs::metadata(at.join("f3")).unwrap();
    let plan = c.says("admin drain 1 --plan");
    assert!(plan.contains("to data server 2"), "{plan}");
    // A process of its own: one that has the file open and starts another would wait in that for the metadata server.
    let stop = c.root().join("stop");
    let write = format!(
        "i=0; while [ ! -e {} ]; do printf '%0999d\\n' $i || exit 7; i=$((i+1)); [ $((i % 50)) != 0 ] || sync {log}; sleep 0.005; done > {log}",
        stop.display(),
        log = at.join("log").display()
    );
    let mut writer = Ends(c.shell(&write).spawn().unwrap());
    let begun = json(&c, "admin drain 1 --rate 3MiB --no-wait --json");
    assert_eq!(begun["duty"], "draining", "{begun}");
    std::thread::sleep(Duration::from_secs(3));
    c.kill("metadata");
    std::thread::sleep(Duration::from_millis(300));
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    // The mount sends what it keeps first.
    eventually("the operator is heard", Duration::from_secs(20), || {
        c.run("admin drain 1 --rate 500MiB --no-wait").code == 0
    });
    drained(&c, 1);
    std::fs::write(&stop, "").unwrap();
    assert!(writer.0.wait().unwrap().success());
    assert!(chains(&c).iter().all(|chain| chain == &[2]), "{:?}", chains(&c));
    assert!(c.says("admin decommission 1").contains("is decommissioned"));
    c.kill("data-1");
    std::fs::remove_dir_all(c.root().join("data-1")).unwrap();
    // By the mount, which has had all of them open or cached, and by a session that knows nothing.
    let log = std::fs::read(at.join("log")).unwrap();
    let lines = log.len() as u64 / 1000;
    let expected: Vec<u8> = (0..lines).flat_map(|n| format!("{n:0999}\n").into_bytes()).collect();
    assert!(lines > 100 && log == expected && c.bytes("fs cat /log") == log, "{lines} lines");
    for name in &names {
        assert!(std::fs::read(at.join(name)).unwrap() == pattern(3_000_000), "{name}");
    }
    all_read(&c, &names);
    let mut seen = Vec::new();
    sealed.read_to_end(&mut seen).unwrap();
    assert!(seen == pattern(2_000_000) && c.bytes("fs cat /sealed") == seen);
    let after = std::fs::metadata(at.join("f3")).unwrap();
    assert_eq!((after.modified().unwrap(), after.ctime_nsec()), (before.modified().unwrap(), before.ctime_nsec()));
    assert!(c.says("admin fsck --data").starts_with("clean: "));
}
