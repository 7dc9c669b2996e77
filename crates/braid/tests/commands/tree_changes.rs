//! chmod -R, chown -R and setfacl -R: one change of a tree, which is done whoever is killed meanwhile.

use super::Cluster;
use super::database::Machine;
use super::mounted::eventually;
use super::together;
use std::process::Stdio;
use std::time::Duration;

const DIRS: usize = 40;
const FILES: usize = 150;
/// Inodes, the topmost directory among them.
const ALL: u64 = (1 + 5 + DIRS + DIRS * FILES) as u64;

/// A directory on the local disk.
fn tree() -> tempfile::TempDir {
    let local = tempfile::tempdir().unwrap();
    for dir in 0..DIRS {
        let at = local.path().join(format!("d{}/d{dir}", dir % 5));
        std::fs::create_dir_all(&at).unwrap();
        (0..FILES).for_each(|file| std::fs::write(at.join(format!("f{file}")), "").unwrap());
    }
    local
}

/// How many inodes of the tree have which mode and owner.
fn rights(c: &Cluster) -> Vec<(u64, u64, u64)> {
    let sql =
        "select mode, uid, count(*) from files where path = '/t' or path like '/t/%' group by mode, uid order by 3";
    let ran = c.braid(&["admin", "sql", "--json", sql].map(AsRef::as_ref));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let rows =
        ran.out.lines().map(|line| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(line).unwrap());
    rows.map(|row| {
        let number = |key: &str| row[key].as_u64().unwrap();
        (number("mode"), number("uid"), number("count(*)"))
    })
    .collect()
}

#[test]
fn a_tree_is_changed_though_the_command_or_the_metadata_server_is_killed() {
    let c = Cluster::start();
    let local = tree();
    c.says(&format!("fs put -r {} /t", local.path().display()));
    assert_eq!(rights(&c).iter().map(|(_, _, count)| count).sum::<u64>(), ALL);
    let (mut begun, mut halves) = (0, 0);
    for (round, (delay_ms, kills_server)) in
        [(5, false), (20, false), (40, false), (60, false), (20, true), (40, true), (60, true)].into_iter().enumerate()
    {
        let uid = 1000 + round as u64;
        let argument = format!("{uid}:{uid}");
        let mut command = c.command(&["fs", "chown", "-R", &argument, "/t"].map(AsRef::as_ref));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        if kills_server {
            c.kill("metadata");
        }
        let _ = child.kill();
        child.wait().unwrap();
        if kills_server {
            assert_eq!(c.up().code, 0);
        }
        let now = rights(&c);
        if now.iter().any(|(_, of, _)| *of == uid) {
            begun += 1;
            halves += u32::from(now.len() > 1);
            eventually("all to be changed", Duration::from_secs(30), || {
                let now = rights(&c);
                now.iter().all(|(_, of, _)| *of == uid) && now.iter().map(|(_, _, count)| count).sum::<u64>() == ALL
            });
        }
    }
    println!("{begun} had begun when they were killed, {halves} were seen half done");
    // One that nobody disturbs, however many were begun before.
    c.says("fs chown -R 7:8 /t");
    assert!(rights(&c).iter().all(|(_, uid, _)| *uid == 7));
    c.says("fs seal /t/d1/d1/f3");
    let said = c.fails("fs chmod -R u=rwX,go=rX /t");
    assert_eq!(said.trim(), "braid: /t/d1/d1/f3: it is sealed");
    c.says("fs chmod -R u=rwX,go=rX /t/d0");
    c.says("fs setfacl -R -m u:9:rwX,d:u:9:rwX /t/d0");
    assert!(c.says("fs getfacl /t/d0/d0/f0").contains("user:9:rw-"));
    assert!(c.says("fs getfacl /t/d0/d0").contains("default:user:9:rwx"));
    eventually("a clean fsck", Duration::from_secs(30), || c.run("admin fsck").out.starts_with("clean: "));
}

/// Over a database, where two serve: who leads is killed while a tree is changed, counted, given a policy and removed, and the other goes on.
#[test]
fn trees_are_finished_by_the_other_metadata_server_over_a_database() {
    let mut m = Machine::new();
    together::serve(&mut m, 1);
    m.until("the first serves", || m.is_ready("metadata-1"));
    together::serve(&mut m, 2);
    m.serve("data", 1);
    m.until("the data server serves", || m.is_ready("data-1"));
    together::until_members(&m, 1, &[1, 2]);
    // Whatever else is said: a data server may not have been heard of yet.
    let asked = |m: &Machine, words: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&m.braid(words).output().unwrap().stdout).unwrap_or_default()
    };
    let inodes = |m: &Machine| asked(m, &["admin", "status", "--json"])["inodes"].as_u64().unwrap_or_default();
    let empty = inodes(&m);
    let local = tree();
    m.says(&format!("fs put -r {} /t", local.path().display()));
    assert_eq!(inodes(&m), empty + ALL);
    let during = |m: &mut Machine, leader: u32, words: &[&str]| {
        let mut command = m.braid(words).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150));
        let leader = together::leader_is_killed(m, leader);
        assert!(command.wait().unwrap().success(), "{words:?}");
        leader
    };
    let leader = during(&mut m, 1, &["fs", "chown", "-R", "7:8", "/t"]);
    let sql =
        ["admin", "sql", "--csv", "SELECT uid, count(*) FROM files WHERE path = '/t' OR path LIKE '/t/%' GROUP BY uid"];
    let owners = m.braid(&sql).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&owners.stdout), format!("uid,count(*)\n7,{ALL}\n"), "{owners:?}");
    let leader = during(&mut m, leader, &["fs", "policy", "set", "/t", "plain,chunk=8MiB"]);
    let policy = m.says("fs policy get /t/d3/d38");
    assert!(String::from_utf8_lossy(&policy).contains("chunk=8MiB"), "{}", String::from_utf8_lossy(&policy));

    // Both are answered when the directory itself is done; the rest of it is behind that.
    m.says("fs quota set /t --inodes 100000");
    let leader = together::leader_is_killed(&mut m, leader);
    m.until("all of it is counted", || {
        let account = asked(&m, &["fs", "quota", "get", "--json", "/t"]);
        account["counting"].is_null() && account["inodes"].as_u64() == Some(ALL)
    });
    m.says("fs rm -r /t");
    together::leader_is_killed(&mut m, leader);
    m.until("all of it is freed", || inodes(&m) == empty);
    m.is_clean();
}
