//! `braid fs`.

use super::{Cluster, pattern, ran, tree};
use std::io::Write;
use std::process::Stdio;

#[test]
fn trees_come_back_as_they_were() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    let (from, to) = (local.path().join("from"), local.path().join("to"));
    tree(&from);
    c.says(&format!("fs put -r {} /tree", from.display()));
    c.says(&format!("fs get -r /tree {}", to.display()));
    assert_eq!(std::fs::read(to.join("small")).unwrap(), b"hello\n");
    assert_eq!(std::fs::read(to.join("d/e/large")).unwrap(), pattern(3_000_001));
    assert_eq!(std::fs::read_link(to.join("link")).unwrap().to_str(), Some("d/e/large"));
    // Once more onto what is there: the same, not beside or below it.
    c.says(&format!("fs put -r {}/d /tree", from.display()));
    c.says(&format!("fs put {}/small /tree/d/e/large", from.display()));
    assert_eq!(c.says("fs cat /tree/link /tree/small"), "hello\nhello\n");
    assert_eq!(c.says("fs ls -R /tree/d"), "/tree/d:\ne/\nempty\n\n/tree/d/e:\nlarge\n\n");
    c.says("fs rm -r /tree");
    assert_eq!(c.says("fs ls /"), "");
    c.says("admin fsck --data");
}

#[test]
fn a_pipe_becomes_a_file() {
    let c = Cluster::start();
    let mut put = c.command(&["fs".as_ref(), "put".as_ref(), "-".as_ref(), "/piped".as_ref()]);
    let mut put = put.stdin(Stdio::piped()).spawn().unwrap();
    let bytes = pattern(5_000_000);
    put.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(put.wait().unwrap().success());
    let cat = c.command(&["fs".as_ref(), "cat".as_ref(), "/piped".as_ref()]).output().unwrap();
    assert!(cat.stdout == bytes, "{}", ran(cat).err);
    // A reader that has seen enough is no error.
    let mut cat = c.command(&["fs".as_ref(), "cat".as_ref(), "/piped".as_ref()]);
    let mut cat = cat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(cat.stdout.take());
    let cat = ran(cat.wait_with_output().unwrap());
    assert_eq!((cat.code, cat.err.as_str()), (0, ""));
}

#[test]
fn links_are_followed_where_posix_does() {
    let c = Cluster::start();
    c.says("fs mkdir -p /a/b/c");
    c.says("fs mkdir -p /a/b/c");
    c.says("fs put /proc/self/comm /a/f");
    c.says("fs ln -s /a/b /s");
    c.says("fs ln -s ../f /a/b/up");
    assert_eq!(c.says("fs ls /s"), "c/\nup\n");
    assert_eq!(c.says("fs cat /s/up"), "braid\n");
    assert_eq!(c.says("fs cat /s/c/../up"), "braid\n", "above c is b, whatever led there");
    assert_eq!(c.says("fs cat /s/../f"), "braid\n");
    assert!(c.says("fs ls -l /s").contains("/s -> /a/b"));
    assert!(c.says("fs stat /s").contains("symlink"));
    c.says("fs ln -s loop /loop");
    assert!(c.fails("fs cat /loop").contains("/loop: too many symbolic links"));
    c.says("fs rm /s");
    assert_eq!(c.says("fs ls /a/b"), "c/\nup\n");
}

#[test]
fn names_modes_and_owners_change() {
    let c = Cluster::start();
    c.says("fs mkdir /a /b");
    c.says("fs put /proc/self/comm /a/f");
    c.says("fs ln /a/f /a/hard");
    c.says("fs chmod 640 /a/f");
    c.says("fs chmod g+w,o=r /a/hard");
    c.says("fs chown 12:34 /a/f");
    let stat: serde_json::Value = serde_json::from_str(&c.says("fs stat --json /a/hard")).unwrap();
    assert_eq!(
        (&stat["mode"], &stat["uid"], &stat["gid"], &stat["links"]),
        (&"0664".into(), &12.into(), &34.into(), &2.into())
    );
    c.says("fs mv /a/f /a/hard /b");
    assert_eq!(c.says("fs ls /b"), "f\nhard\n");
    c.says("fs put /proc/self/stat /b/other");
    assert!(c.fails("fs mv -n /b/other /b/f").contains("/b/other to /b/f: exists already"));
    c.says("fs mv --exchange /b/other /b/f");
    assert_eq!(c.says("fs cat /b/other"), "braid\n");
    assert!(c.fails("fs mv /b /b/x").contains("into itself"));
    c.says("fs chmod -R 700 /b");
    assert!(c.says("fs ls -l /b").lines().all(|line| line.starts_with("-rwx------")));
}

#[test]
fn trees_are_searched_and_summed() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    tree(local.path());
    c.says("fs put /proc/self/comm /before");
    c.says(&format!("fs put -r {} /t", local.path().display()));
    c.says("fs put /proc/self/comm /after");
    assert_eq!(c.says("fs find /t --name *l*e"), "/t/d/e/large\n");
    assert_eq!(c.says("fs find /t --type d"), "/t\n/t/d\n/t/d/e\n");
    assert_eq!(c.says("fs find /t --type f --size -1"), "/t/d/empty\n");
    assert_eq!(c.says("fs find /t --size +1MiB --newer /before"), "/t/d/e/large\n");
    assert_eq!(c.says("fs find /t --newer /after"), "");
    let du: Vec<serde_json::Value> =
        c.says("fs du --json -d 1 /t").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(du.len(), 2);
    assert_eq!((&du[1]["path"], &du[1]["files"], &du[1]["directories"]), (&"/t".into(), &4.into(), &3.into()));
    assert_eq!(du[0]["size"], 3_000_001);
    assert!(c.says("fs du /t").contains("2.9 MiB"));
    // Added up by the server, or listed: the same, and what has several names counts once.
    c.says("fs ln /t/d/e/large /t/again");
    c.says("fs ln /t/d/e/large /t/d/too");
    c.says("fs ln -s d /t/other");
    let line = |command: &str| c.says(command).lines().next_back().unwrap().to_owned();
    let shown = line("fs du --json /t");
    let sum: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let size = du[1]["size"].as_u64().unwrap() + 1;
    assert_eq!((&sum["files"], &sum["directories"], &sum["size"]), (&5.into(), &3.into(), &size.into()));
    for depth in 1..4 {
        assert_eq!(line(&format!("fs du --json -d {depth} /t")), line("fs du --json /t"), "{depth} levels listed");
    }
    c.says("fs snapshot create /t s");
    c.says("fs rm /t/again");
    assert_eq!(line("fs du --json /t/.braid/snapshots/s").replace("/.braid/snapshots/s", ""), shown);
    assert!(c.says("fs df").contains('%'));
}

#[test]
fn policies_are_inherited_and_refused() {
    let c = Cluster::start();
    c.says("fs mkdir -p /p/q");
    c.says("fs policy set /p plain,inline=0,durability=close");
    assert_eq!(c.says("fs policy get /p/q"), "/p/q  plain,durability=close,inline=0\n");
    c.says("fs put /proc/self/comm /p/q/f");
    assert!(c.says("admin fsck --data").contains("1 chunk rows"), "nothing is inline there");
    c.says("fs policy clear /p");
    assert_eq!(c.says("fs policy get /p/q"), "/p/q  replica:2\n", "that of the root, with two data servers");
    let said = c.fails("fs policy set /p rain:4+2");
    assert!(said.contains("serves plain and replica:N; rain:4+2 comes with a later one"), "{said}");
}

#[test]
fn errors_name_path_and_cause_and_the_rest_goes_on() {
    let c = Cluster::start();
    c.says("fs put /proc/self/comm /f");
    assert_eq!(c.fails("fs cat /nothing"), "braid: /nothing: no such file or directory\n");
    assert_eq!(c.fails("fs ls /f/x"), "braid: /f/x: not a directory\n");
    assert!(c.fails("fs rm -r /").contains("root directory stays"));
    assert!(c.fails("fs put nofile /").contains("cannot read nofile"));
    assert!(c.fails("fs put /f /no/where").contains("/no/where"));
    let both = c.run("fs cat /nothing /f");
    assert_eq!((both.code, both.out.as_str()), (1, "braid\n"));
    c.says("fs rm -f /nothing");
    assert!(
        c.fails("fs cat /f --set cluster.metadata=[\"tcp:127.0.0.1:1\"] --set client.deadline=1s")
            .contains("127.0.0.1:1")
    );
}

#[test]
fn a_command_leaves_no_session() {
    let c = Cluster::start();
    c.says("fs ls /");
    c.fails("fs cat /nothing");
    assert_eq!(c.says("admin sessions").lines().count(), 1, "only the heading");
}

/// On a terminal, and there alone: other programs read what a command says.
#[test]
fn progress_is_shown_to_people() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    tree(&local.path().join("tree"));
    let put = format!("fs put -r {}", local.path().join("tree").display());
    c.says(&format!("{put} /piped"));
    // `script` gives a program a terminal, and writes what that shows.
    let on_terminal = |line: &str| {
        let script = format!("TERM=xterm script -qec \"$0 {line}\" /dev/null");
        let ran = ran(c.shell(&script).output().unwrap());
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran.out
    };
    let shown = on_terminal(&format!("{put} /shown"));
    assert!(shown.contains("B/s") && shown.contains("/shown/"), "{shown:?}");
    assert_eq!(c.says("fs ls /"), "piped/\nshown/\n");
}
