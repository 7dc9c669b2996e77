//! Copies of the metadata on data servers: its machine is lost, recovered from them, and returns.

use super::{Cluster, pattern, tree};
use std::time::{Duration, Instant};

/// Until so many members have the metadata.
pub fn wait_for_copies(cluster: &Cluster, members: usize) {
    let begun = Instant::now();
    loop {
        let ran = cluster.run("admin status --json");
        let status: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
        // The metadata server's own is counted too.
        if status["metadata_copies"].as_u64() == Some(1 + members as u64) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}{}", ran.out, ran.err);
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn address(cluster: &Cluster, name: &str) -> String {
    format!("unix:{}", cluster.root().join("run").join(format!("{name}.sock")).display())
}

#[test]
fn the_metadata_is_recovered_from_its_copies_and_the_old_one_is_left_behind() {
    let cluster = Cluster::unmade();
    let ran = cluster.up_with(&["--set", "metadata.copies=2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    wait_for_copies(&cluster, 2);
    let from = cluster.root().parent().unwrap().join("from");
    tree(&from);
    cluster.says(&format!("fs put -r {} /tree", from.display()));
    cluster.says("fs mkdir /afterwards");
    let before = cluster.says("fs find /");
    assert!(cluster.says("admin status").contains("3 copies, those of data servers on 1 host"));

    // A restart on its own disk waits for the data servers' word, and then is as before.
    cluster.kill("metadata");
    assert_eq!(cluster.up_with(&[]).code, 0);
    assert_eq!(cluster.says("fs find /"), before);
    cluster.says("fs mkdir /last");
    let before = cluster.says("fs find /");

    // Its disk is lost.
    wait_for_copies(&cluster, 2);
    cluster.kill("metadata");
    let (dir, old) = (cluster.root().join("metadata"), cluster.root().join("old"));
    std::fs::rename(&dir, &old).unwrap();
    // One of two is no majority.
    cluster.kill("data-2");
    let recover = format!("admin metadata recover --data {}", address(&cluster, "data-1"));
    let told = cluster.fails(&format!("{recover} --patience 1"));
    assert!(told.contains("2 of 2 are needed") && told.contains("data server 2"), "{told}");
    assert!(!dir.join("data.mdb").exists());
    // `up` would begin with the metadata server, on an empty directory: only the data server is started here.
    let mut data = start_data(&cluster, "data-2");
    let told = cluster.says(&format!("{recover} --data {} --json", data.1));
    assert!(told.contains("\"complete\": true"), "{told}");
    let told = cluster.fails(&recover);
    assert!(told.contains("holds metadata already"), "{told}");
    data.0.kill().unwrap();
    data.0.wait().unwrap();
    let ran = cluster.up();
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(cluster.says("fs find /"), before);
    assert_eq!(cluster.bytes("fs cat /tree/d/e/large"), pattern(3_000_001));
    wait_for_copies(&cluster, 2);
    let begun = Instant::now();
    while cluster.run("admin status").code != 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", cluster.run("admin status").out);
    }
    let fsck = cluster.run("admin fsck --data");
    assert!(fsck.code == 0 && fsck.out.starts_with("clean"), "{}{}", fsck.out, fsck.err);

    // The old machine returns.
    cluster.kill("metadata");
    std::fs::rename(&dir, cluster.root().join("new")).unwrap();
    std::fs::rename(&old, &dir).unwrap();
    let told = cluster.run("serve metadata");
    assert!(told.code != 0 && told.err.contains("recovered on another machine"), "{}{}", told.out, told.err);
}

#[test]
fn a_data_server_that_keeps_the_metadata_may_be_away_and_another_takes_its_place() {
    let cluster = Cluster::unmade();
    let ran = cluster.up_with(&["--data-servers=3", "--set", "metadata.copies=2"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    wait_for_copies(&cluster, 2);
    let members = || {
        let status: serde_json::Value = serde_json::from_str(&cluster.run("admin status --json").out).unwrap();
        let copies = status["metadata_copy_servers"].as_array().cloned().unwrap_or_default();
        let members = copies.iter().filter(|copy| copy["member"] == true);
        members.filter_map(|copy| copy["server"].as_u64()).collect::<Vec<_>>()
    };
    let before = members();
    cluster.kill(&format!("data-{}", before[0]));
    let begun = Instant::now();
    cluster.says("fs mkdir /while-one-is-away");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    while members().len() < 2 || members().contains(&before[0]) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{before:?} {:?}", members());
        std::thread::sleep(Duration::from_millis(200));
    }
    // It comes back, and is a member or not; what it had missed is no obstacle to a recovery.
    assert_eq!(cluster.up_with(&["--data-servers=3"]).code, 0);
    cluster.says("fs mkdir /with-another");
    assert!(cluster.says("fs ls /").contains("with-another"));
}

/// A data server alone, and its address.
pub fn start_data(cluster: &Cluster, name: &str) -> (std::process::Child, String) {
    let (socket, dir) = (address(cluster, &format!("{name}-alone")), cluster.root().join(name));
    let set = [format!("data.dir={}", dir.display()), format!("data.listen=[\"{socket}\"]")];
    let arguments = ["serve", "data", "--set", &set[0], "--set", &set[1]].map(std::ffi::OsStr::new);
    (cluster.command(&arguments).stderr(std::process::Stdio::null()).spawn().unwrap(), socket)
}
