//! `braid admin sql` against a cluster of processes.

use super::{Cluster, ran};
use rustix::process::{Pid, Signal};
use std::io::Read;
use std::process::Stdio;

impl Cluster {
    fn sql(&self, words: &[&str]) -> super::Ran {
        let words: Vec<_> = ["admin", "sql"].iter().chain(words).map(AsRef::as_ref).collect();
        self.braid(&words)
    }

    fn answers(&self, words: &[&str]) -> String {
        let ran = self.sql(words);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}: {}", ran.out);
        ran.out
    }
}

#[test]
fn questions_in_sql_are_answered() {
    let c = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    super::tree(local.path());
    c.says(&format!("fs put -r {} /t", local.path().display()));

    let find = "SELECT path, kind, size FROM files('/t') ORDER BY path";
    let table = "path          kind          size\n/t/d          directory        0\n/t/d/e        directory        0\n\
                 /t/d/e/large  file       3000001\n/t/d/empty    file             0\n/t/link       symlink          9\n\
                 /t/small      file             6\n";
    assert_eq!(c.answers(&[find]), table);
    assert_eq!(c.answers(&["--csv", find]).lines().nth(3), Some("/t/d/e/large,file,3000001"));
    let json = c.answers(&["--json", find]);
    let found: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found[2], serde_json::json!({ "path": "/t/d/e/large", "kind": "file", "size": 3_000_001 }));
    assert_eq!(found.len(), 6);
    let chunks = "SELECT sum(c.bytes), count(DISTINCT s.host), min(s.state), min(k.copies) FROM files f JOIN chunks c ON c.inode = f.id \
                  JOIN replicas r ON r.container = c.container JOIN servers s ON s.id = r.server \
                  JOIN containers k ON k.id = c.container WHERE f.path = '/t/d/e/large'";
    // Two servers, so two copies.
    assert_eq!(c.answers(&["--csv", chunks]).lines().nth(1), Some("6000002,1,up,2"));
    assert!(c.answers(&["--schema"]).contains("files: every name once"));

    // Many pages.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000) SELECT i, hex(zeroblob(50)) FROM n";
    let rows = c.answers(&["--csv", many]);
    let firsts: Vec<u64> = rows.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(firsts == (1..=50_000).collect::<Vec<_>>(), "{} rows", firsts.len());
    // Read by who has enough after a few, and after a while.
    let head = ran(c.shell(&format!("\"$0\" admin sql --csv \"{many}\" | (sleep 1; head -3)")).output().unwrap());
    assert_eq!((head.out.lines().count(), head.err.as_str()), (3, ""));

    for (query, told) in [
        (
            "SELECT sizee FROM files",
            "braid: the query: invalid argument: at character 8: no such column: sizee (B109)\n",
        ),
        ("DELETE FROM files", "braid: the query: invalid argument: table files may not be modified (B109)\n"),
        (
            "SELECT 1; SELECT 2",
            "braid: the query: invalid argument: these are several statements: ask one at a time (B109)\n",
        ),
        (
            "ATTACH '/tmp/x' AS x",
            "braid: the query: operation not permitted: it would attach another database: only SELECT, WITH and EXPLAIN are possible (B105)\n",
        ),
    ] {
        let ran = c.sql(&[query]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", told));
    }
    let late = c.sql(&[
        "--timeout",
        "300ms",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    ]);
    assert!(late.code == 1 && late.err.contains("it ran for longer than 300 ms"), "{}", late.err);
    assert_eq!(c.answers(&[find]), table, "and nothing was changed");
    four_at_once(&c);
}

/// A fifth query is told so; one whose asker is ended with Ctrl-C ends at once, and makes room.
fn four_at_once(c: &Cluster) {
    // The first row comes at once, and is shown.
    let query =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000000) SELECT i FROM n WHERE i = 1";
    let words = ["admin", "sql", "--csv", query].map(AsRef::as_ref);
    let mut askers = Vec::new();
    for _ in 0..4 {
        let mut asker = super::Ends(c.command(&words).stdout(Stdio::piped()).spawn().unwrap());
        let mut begin = [0; 4];
        asker.0.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"i\n1\n");
        askers.push(asker);
    }
    let refused = c.fails("admin sql SELECT+1");
    assert!(refused.contains("busy: 4 others run"), "{refused}");
    let asker = &mut askers[0].0;
    rustix::process::kill_process(Pid::from_child(asker), Signal::INT).unwrap();
    assert_eq!(asker.wait().unwrap().code(), Some(130));
    assert_eq!(c.answers(&["--csv", "SELECT 1 AS one"]), "one\n1\n");
}
