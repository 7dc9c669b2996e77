//! `braid admin rebalance` and `add`, on real processes.

use super::growing::{chains, json, put};
use super::mounted::eventually;
use super::{Cluster, PLAIN, pattern};
use std::path::Path;
use std::time::{Duration, Instant};

fn lines(c: &Cluster, line: &str) -> Vec<serde_json::Value> {
    c.says(line).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A tree of files of 1 MB, from one session, which has its chunks in all containers in turn.
fn put_tree(c: &Cluster, local: &Path, files: usize) {
    let tree = local.join("tree");
    std::fs::create_dir(&tree).unwrap();
    (0..files).for_each(|n| std::fs::write(tree.join(format!("f{n}")), pattern(1_000_000 + n)).unwrap());
    c.says(&format!("fs put -r {} /tree", tree.display()));
}

fn tree_is_there(c: &Cluster, files: usize) {
    (0..files).for_each(|n| assert!(c.bytes(&format!("fs cat /tree/f{n}")) == pattern(1_000_000 + n), "f{n}"));
}

/// A server that has just started is `up` with its first heartbeat.
fn all_are_up(c: &Cluster, count: usize) {
    eventually("the heartbeats of all", Duration::from_secs(20), || {
        lines(c, "admin servers --json").iter().filter(|it| it["state"] == "up").count() == count
    });
}

/// What has moved is deleted where it was a moment after it is whole where it is.
fn nothing_stays_behind(c: &Cluster) {
    eventually("a clean fsck", Duration::from_secs(30), || c.run("admin fsck --data").out.starts_with("clean: "));
}

fn held(seen: &serde_json::Value, server: u64) -> u64 {
    let all = seen["servers"].as_array().unwrap();
    all.iter().find(|fill| fill["server"] == server).unwrap()["bytes_now"].as_u64().unwrap()
}

/// Two servers come and get their part while a writer runs; they are there again after the next up.
#[test]
fn a_cluster_grows_by_two_servers_and_is_evened_out_while_a_writer_runs() {
    let c = Cluster::start_with(&["--data-servers=4"]);
    let local = tempfile::tempdir().unwrap();
    put_tree(&c, local.path(), 24);
    let added = lines(&c, "admin add --count 2 --json");
    let names: Vec<(u64, &str)> =
        added.iter().map(|it| (it["server"].as_u64().unwrap(), it["name"].as_str().unwrap())).collect();
    assert_eq!(names, [(5, "data-5"), (6, "data-6")]);
    assert!(added.iter().all(|it| it["bytes_free"].as_u64().unwrap() > 0), "{added:?}");
    let plan = json(&c, "admin rebalance --plan --json");
    assert_eq!((&plan["state"], held(&plan, 5), held(&plan, 6)), (&"off".into(), 0, 0), "{plan}");
    assert!(plan["left"]["bytes"].as_u64().unwrap() > 1 << 20, "{plan}");
    let shown = c.says("admin rebalance --plan");
    assert!(shown.contains("share") && shown.contains("planned") && shown.contains("to move: "), "{shown}");
    assert!(chains(&c).iter().flatten().all(|server| *server < 5), "a plan changes nothing");
    let during = std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&c, local.path(), (0..6).map(|n| format!("during-{n}"))));
        let ran = c.run("admin rebalance --json");
        let seen: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(seen["state"], "done", "{}{}", ran.out, ran.err);
        assert!(seen["moved"]["copies"].as_u64().unwrap() > 0 && held(&seen, 5) > 0 && held(&seen, 6) > 0, "{seen}");
        writer.join().unwrap()
    });
    let again = json(&c, "admin rebalance --plan --json");
    assert!(held(&again, 1) < held(&plan, 1) + 6 * 3_100_000, "{again}");
    assert!(chains(&c).iter().all(|chain| chain.len() == 3), "{:?}", chains(&c));
    assert!(chains(&c).iter().any(|chain| chain.contains(&5)));
    assert_eq!(c.run(&format!("down {}", c.root().display())).code, 0);
    let up = c.up();
    assert!(up.code == 0 && up.out.contains("data-6"), "{}{}", up.out, up.err);
    all_are_up(&c, 6);
    tree_is_there(&c, 24);
    for name in during {
        assert!(c.bytes(&format!("fs cat /{name}")) == pattern(3_000_000), "{name}");
    }
    // The way back.
    assert!(c.says("admin decommission 5").contains("is decommissioned"));
    assert_eq!(c.run(&format!("down {}", c.root().display())).code, 0);
    let up = c.up();
    assert!(up.code == 0 && up.out.contains("data-5     was decommissioned"), "{}{}", up.out, up.err);
    tree_is_there(&c, 24);
    nothing_stays_behind(&c);
}

#[test]
fn evening_out_goes_on_after_the_loss_of_the_metadata_server_and_stands_still_while_it_is_paused() {
    let c = Cluster::start_with(&["--data-servers=4"]);
    let local = tempfile::tempdir().unwrap();
    put_tree(&c, local.path(), 24);
    c.says("admin add --json");
    assert!(c.fails("admin rebalance --pause").contains("none is under way"));
    assert!(c.fails("admin rebalance --within 0").contains("0.1 to 100"));
    let begun = json(&c, "admin rebalance --rate 256KiB --no-wait --json");
    assert_eq!(begun["state"], "running", "{begun}");
    std::thread::sleep(Duration::from_secs(2));
    c.says("admin rebalance --pause --json");
    c.kill("metadata");
    std::thread::sleep(Duration::from_millis(500));
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let paused = json(&c, "admin rebalance --plan --json");
    assert_eq!((&paused["state"], &paused["move_bytes_per_s"]), (&"paused".into(), &(256 << 10).into()), "{paused}");
    c.says("admin rebalance --resume --no-wait --rate 200MiB");
    let begun = Instant::now();
    loop {
        let seen = json(&c, "admin rebalance --plan --json");
        if seen["state"] == "done" {
            assert!(seen["moved"]["copies"].as_u64().unwrap() > 0, "{seen}");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{seen}");
        std::thread::sleep(Duration::from_millis(200));
    }
    let fsck = c.run("admin fsck --data");
    assert!(fsck.out.starts_with("clean: "), "done is when nothing is left at its old place: {}", fsck.out);
    tree_is_there(&c, 24);
}

/// On a disk of its own and in a rack: both are remembered, and a disk that is not mounted is no new server.
/// Chunks with one copy are moved by a client in the metadata server's process, under the leases of their files.
#[test]
fn chunks_with_one_copy_get_a_new_server_too_and_the_metadata_server_is_killed() {
    let c = Cluster::unmade();
    let up = c.up_mounted(PLAIN);
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    let at = c.mount_point();
    (0..16).for_each(|n| std::fs::write(at.join(format!("f{n}")), pattern(3_000_000 + n)).unwrap());
    assert_eq!(lines(&c, "admin add --json")[0]["server"], 3);
    all_are_up(&c, 3);
    let plan = json(&c, "admin rebalance --plan --json");
    let chunks = plan["chunks"].as_array().unwrap();
    assert!(!chunks.is_empty() && chunks.iter().all(|it| it["to"] == 3), "{plan}");
    assert!(plan["left"]["copies"] == 0 && held(&plan, 3) == 0, "{plan}");
    let shown = c.says("admin rebalance --plan");
    assert!(shown.contains("chunks with one copy") && shown.contains("from 1"), "{shown}");
    c.says("admin rebalance --rate 4MiB --no-wait");
    eventually("some have moved", Duration::from_secs(30), || {
        json(&c, "admin rebalance --no-wait --json")["moved"]["bytes"].as_u64().unwrap() > 0
    });
    c.kill("metadata");
    std::thread::sleep(Duration::from_millis(300));
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    eventually("the operator is heard", Duration::from_secs(20), || {
        c.run("admin rebalance --rate 500MiB --no-wait").code == 0
    });
    let ran = c.run("admin rebalance --json");
    let seen: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(seen["state"] == "done" && seen["chunks"].as_array().unwrap().is_empty(), "{}{}", ran.out, ran.err);
    // Of 48 MB a third, but for what each of the two givers still has too much, of which a chunk would be more.
    assert!((11_500_000..20_000_000).contains(&held(&seen, 3)), "{seen}");
    for n in 0..16 {
        assert!(std::fs::read(at.join(format!("f{n}"))).unwrap() == pattern(3_000_000 + n), "f{n}");
        assert!(c.bytes(&format!("fs cat /f{n}")) == pattern(3_000_000 + n), "f{n}");
    }
    nothing_stays_behind(&c);
}

#[test]
fn a_server_that_is_added_in_a_directory_elsewhere_comes_up_there_again() {
    let c = Cluster::start_with(PLAIN);
    let local = tempfile::tempdir().unwrap();
    let dir = local.path().join("disk");
    let add = format!("admin add --dir {} --rack r2 --disk sdb --json", dir.display());
    let planned = lines(&c, &format!("{add} --plan"));
    assert_eq!((&planned[0]["name"], &planned[0]["disk"]), (&"data-3".into(), &"sdb".into()), "{planned:?}");
    assert!(!dir.exists() && lines(&c, "admin servers --json").len() == 2, "a plan changes nothing");
    let added = lines(&c, &add);
    assert_eq!((&added[0]["server"], &added[0]["rack"]), (&3.into(), &"r2".into()), "{added:?}");
    assert!(dir.join("store.toml").exists() && !c.root().join("data-3").exists());
    let down = || assert_eq!(c.run(&format!("down {}", c.root().display())).code, 0);
    down();
    let away = local.path().join("away");
    std::fs::rename(&dir, &away).unwrap();
    let up = c.up();
    assert!(up.code != 0 && up.err.contains("is its disk mounted?"), "{}{}", up.out, up.err);
    std::fs::rename(&away, &dir).unwrap();
    assert_eq!(c.up().code, 0);
    let servers = lines(&c, "admin servers --json");
    assert!(servers.len() == 3 && servers[2]["rack"] == "r2", "{servers:?}");
    // It says that it is on another disk, with its second sign of life. It is on the file system of the others all the same, which placement
    // sees (`unite_disks`).
    eventually("numbers of disks", Duration::from_secs(20), || {
        let disks: Vec<u64> = lines(&c, "admin servers --json").iter().map(|it| it["disk"].as_u64().unwrap()).collect();
        disks.iter().all(|disk| *disk != 0) && disks[0] == disks[1] && disks[0] != disks[2]
    });
    all_are_up(&c, 3);
}

#[test]
fn an_add_that_cannot_be_changes_nothing() {
    let c = Cluster::start_with(PLAIN);
    let local = tempfile::tempdir().unwrap();
    let used = c.root().join("data-1");
    assert!(c.fails(&format!("admin add --dir {}", used.display())).contains("has the chunks of data server 1"));
    let inside = used.join("new");
    assert!(c.fails(&format!("admin add --dir {}", inside.display())).contains("is inside the directory of another"));
    std::fs::write(local.path().join("mine"), "").unwrap();
    assert!(c.fails(&format!("admin add --dir {}", local.path().display())).contains("not empty (mine is in it)"));
    assert!(c.fails("admin add --count 0").contains("--count 0"));
    assert!(c.fails("admin add --plan --count 0").contains("--count 0"));
    let plan = c.says("admin add --plan --count 2");
    assert!(plan.contains("data-3") && plan.contains("data-4") && plan.contains("Nothing was done"), "{plan}");
    assert!(c.fails("admin add --count 63").contains("64 are the most"));
    assert!(c.fails("admin add --elsewhere").contains("from this machine only"));
    let entries = || std::fs::read_dir(c.root()).unwrap().count();
    let before = entries();
    assert!(!inside.exists() && std::fs::read_dir(local.path()).unwrap().count() == 1);
    // Another cluster's directory.
    let other = Cluster::start_with(PLAIN);
    let theirs = other.root().join("data-2");
    assert!(c.fails(&format!("admin add --dir {}", theirs.display())).contains("has the chunks of data server 2"));
    // Nobody is there to take it in.
    c.kill("metadata");
    assert_ne!(c.run("admin add").code, 0);
    assert_eq!((entries(), lines_after_up(&c)), (before, 2));
}

fn lines_after_up(c: &Cluster) -> usize {
    let up = c.up();
    assert_eq!(up.code, 0, "{}{}", up.out, up.err);
    lines(c, "admin servers --json").len()
}
