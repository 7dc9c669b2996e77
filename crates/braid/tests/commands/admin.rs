//! `braid admin`.

use super::{Cluster, PLAIN, pattern};
use std::time::{Duration, Instant};

#[test]
fn a_cluster_that_is_well_says_so() {
    let c = Cluster::start();
    let status = c.says("admin status");
    assert!(status.contains("healthy") && status.contains("engine embedded"), "{status}");
    let json: serde_json::Value = serde_json::from_str(&c.says("admin status --json")).unwrap();
    assert_eq!((&json["healthy"], json["servers"].as_array().unwrap().len()), (&true.into(), 2));
    assert_eq!(c.says("admin servers --json").lines().count(), 2);
    assert_eq!(c.says("admin why"), "nothing waits\n");
    assert!(c.says("admin fsck --data").starts_with("clean: 1 inodes, 0 names"));
    assert!(c.says("admin scrub").starts_with("sound: 0 chunks"));
}

#[test]
fn a_dead_data_server_is_not_well_and_not_checked() {
    let c = Cluster::start();
    c.kill("data-2");
    let begun = Instant::now();
    let status = loop {
        let status = c.run("admin status");
        if status.out.contains("is down: silent for") {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", status.out);
    };
    assert_eq!(status.code, 1);
    let fsck = c.run("admin fsck --data");
    assert_eq!(fsck.code, 2, "{}{}", fsck.out, fsck.err);
    assert!(fsck.out.contains("not checked: data server 2"), "{}", fsck.out);
    let rows = c.run("admin fsck --metadata-only");
    assert!(
        rows.code == 0 && rows.out.starts_with("no faults in the rows"),
        "the metadata alone is sound: {}",
        rows.out
    );
    assert_eq!(c.run("admin scrub").code, 2);
}

#[test]
fn up_again_starts_the_data_servers_there_are_and_no_others() {
    let c = Cluster::start();
    c.kill("data-2");
    while c.is_running("data-2") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let again = c.up();
    let said = |name: &str| again.out.lines().find(|line| line.starts_with(name)).map(|line| line.contains("started"));
    let all = ["data-1", "data-2", "data-3"].map(said);
    assert_eq!((again.code, all), (0, [Some(false), Some(true), None]), "{}{}", again.out, again.err);
}

#[test]
fn nobody_there_is_one_line() {
    let c = Cluster::start();
    c.kill("metadata");
    while c.is_running("metadata") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    let said = c.fails("admin status");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(said.contains("the metadata server at") && said.contains("does not answer"), "{said}");
    assert_eq!(c.run("admin fsck").code, 2);
}

#[test]
fn a_cluster_at_work_is_reported_clean() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    for n in 0..40 {
        std::fs::create_dir_all(local.path().join(format!("d{}", n % 4))).unwrap();
        std::fs::write(local.path().join(format!("d{}/f{n}", n % 4)), pattern(n * 10_000)).unwrap();
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (c, local, stop) = (&c, local.path(), &stop);
            scope.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    c.says(&format!("fs put -r {} /w{worker}", local.display()));
                    c.says(&format!("fs mv /w{worker}/d1 /w{worker}/d2"));
                    c.says(&format!("fs rm -r /w{worker}"));
                }
            });
        }
        let checks: Vec<_> = (0..8).map(|_| c.run("admin fsck --data --repair")).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for check in checks {
            assert_eq!(check.code, 0, "{}{}", check.out, check.err);
            assert!(check.out.starts_with("clean: "), "{}", check.out);
        }
    });
}

#[test]
fn servers_are_told_in_their_order() {
    let c = Cluster::unmade();
    let names = |out: &str| out.lines().map_while(|line| line.split(' ').next()).map(str::to_owned).collect::<Vec<_>>();
    let started = ["metadata", "data-1", "data-2", "data-3", "data-4"];
    for _ in 0..2 {
        let up = c.up_with(&["--data-servers=4"]);
        assert_eq!(up.code, 0, "{}", up.err);
        assert_eq!(names(&up.out)[..5], started);
        let down = c.braid(&["down".as_ref(), c.root().as_os_str()]);
        assert_eq!(names(&down.out), started, "data servers keep what the metadata server does last: {}", down.err);
        // Its store is one file then.
        for name in ["data.checkpoint", "data.log.0", "data.log.1"] {
            assert!(!c.root().join("metadata").join(name).exists(), "{name} is left");
        }
        assert!(c.root().join("metadata/data.mdb").exists());
    }
}

/// What the file system keeps for others, root or quotas, is not used by anybody.
#[test]
fn used_is_what_df_calls_used() {
    let c = Cluster::start();
    let stat = rustix::fs::statvfs(c.root()).unwrap();
    let used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize;
    for line in c.says("admin servers --json").lines() {
        let server: serde_json::Value = serde_json::from_str(line).unwrap();
        let told = server["bytes_total"].as_u64().unwrap() - server["bytes_free"].as_u64().unwrap();
        assert!(told.abs_diff(used) < 1 << 30, "{server}: used {used}");
    }
}

/// Each in one line that says who does not answer, once, and what to do about it; `why` at once.
#[test]
fn a_metadata_server_that_does_not_run_is_told_with_what_to_do() {
    let c = Cluster::start();
    c.kill("metadata");
    while c.is_running("metadata") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    let why = c.run("admin why");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((why.code, why.err.lines().count()), (0, 1), "{}", why.err);
    let point = tempfile::tempdir().unwrap();
    let mount = format!("mount {} --set client.deadline=1s", point.path().display());
    let told = [why.err, c.fails("admin why /f"), c.fails("fs ls / --set client.deadline=1s"), c.fails(&mount)];
    for said in told {
        assert!(said.contains(&format!("start it: braid up {}", c.root().display())), "{said}");
        for once in ["metadata server", "metadata.sock", "cannot be reached", "(B300)"] {
            assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
        }
    }
    assert_eq!(c.up().code, 0);
    // The data servers are known again with their next heartbeat.
    let begun = Instant::now();
    while !c.run("admin why").err.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", c.run("admin why").err);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(c.says("admin why"), "nothing waits\n");
}

/// Files of chunks of all data servers.
fn chunk_files(c: &Cluster, suffix: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for name in ["data-1", "data-2"] {
        for shard in std::fs::read_dir(c.root().join(name).join("chunks")).unwrap() {
            let files = std::fs::read_dir(shard.unwrap().path()).unwrap().map(|file| file.unwrap().path());
            found.extend(files.filter(|file| file.extension().is_some_and(|it| it == suffix)));
        }
    }
    found.sort();
    found
}

#[test]
fn chunks_damaged_by_hand_are_named_on_running_servers_and_hide_nothing_after_a_restart() {
    let c = Cluster::start_with(PLAIN);
    let local = tempfile::tempdir().unwrap();
    let file = local.path().join("file");
    std::fs::write(&file, pattern(300_000)).unwrap();
    for n in 1..5 {
        c.says(&format!("fs put {} /f{n}", file.display()));
    }
    assert!(c.says("admin fsck").starts_with("clean: "));
    let data = chunk_files(&c, "data");
    assert_eq!(data.len(), 4);
    // Gone, cut, and rotten under the eyes of servers that have them open.
    std::fs::remove_file(&data[0]).unwrap();
    std::fs::OpenOptions::new().write(true).open(&data[1]).unwrap().set_len(5_000).unwrap();
    let found = c.run("admin fsck");
    assert_eq!((found.code, found.out.matches("F405 /f").count()), (1, 2), "{}{}", found.out, found.err);
    assert!(found.out.contains(&format!("{} is missing", data[0].display())), "{}", found.out);
    let mut bytes = std::fs::read(&data[2]).unwrap();
    bytes[70_000..70_064].fill(0x55);
    std::fs::write(&data[2], bytes).unwrap();
    assert_eq!(c.run("admin scrub").code, 1);
    let found = c.run("admin fsck");
    assert_eq!(found.out.matches("F405 /f").count(), 3, "{}", found.out);
    assert!(found.out.contains("1 block is damaged") && found.out.contains("3 faults"), "{}", found.out);

    // A stray header with another chunk's content, and a chunk of which nothing is left, beside them.
    let shards = data[0].parent().unwrap().parent().unwrap();
    let stray = shards.join("00").join("00000000000fff00.meta");
    std::fs::copy(data[3].with_extension("meta"), stray).unwrap();
    let servers = ["data-1", "data-2"];
    servers.iter().for_each(|name| c.kill(name));
    while servers.iter().any(|name| c.is_running(name)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(&data[3]).unwrap();
    std::fs::remove_file(data[3].with_extension("meta")).unwrap();
    assert_eq!(c.up().code, 0);
    let found = c.run("admin fsck --repair");
    let count = |code: &str| found.out.lines().filter(|line| line.starts_with(code)).count();
    assert_eq!((count("F401"), count("F406")), (1, 1), "{}{}", found.out, found.err);
    // The rot of /f3 is known as soon as scrub has been there since the start.
    let damaged = |name: &str| found.out.lines().filter(|line| line.starts_with(&format!("F405 /{name} "))).count();
    let others = count("F405") - damaged("f3");
    assert_eq!((damaged("f1"), damaged("f2"), others), (1, 1, 2), "{}{}", found.out, found.err);
    assert!(damaged("f3") <= 1, "{}", found.out);
    assert!(found.out.contains("repaired: moved the files of chunk") && found.code == 1, "{}", found.out);
    assert!(chunk_files(&c, "meta").iter().all(|file| !file.ends_with("00000000000fff00.meta")));
    // What is damaged can be removed, and then all is well.
    c.says("fs rm /f1 /f2 /f3 /f4");
    let begun = Instant::now();
    while !c.run("admin fsck").out.starts_with("clean: ") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", c.run("admin fsck").out);
    }
}
