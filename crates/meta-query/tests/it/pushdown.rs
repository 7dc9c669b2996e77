//! What is named is read alone, and is the same as if everything had been read.

use super::{ask, asked, lines, runtime, tree};
use braid_meta_engine::{MemEngine, MemStore};

/// The condition reads at most so many rows, and finds what the same finds behind something that no table understands.
fn reads_at_most(condition: &str, rows: u64) {
    let answer = asked(&format!("SELECT path, id FROM files WHERE {condition} ORDER BY path"));
    let hidden = condition.replace("path ", "(path || '') ").replace("id ", "+id ").replace("parent ", "+parent ");
    let whole = asked(&format!("SELECT path, id FROM files WHERE {hidden} ORDER BY path"));
    assert_eq!(lines(&answer), lines(&whole), "{condition}");
    assert!(answer.done.read <= rows, "{condition} reads {:?}", answer.done);
    assert!(whole.done.read >= tree::NAMES, "{hidden} reads {:?}", whole.done);
}

fn one(query: &str) -> String {
    lines(&asked(query)).remove(0)
}

#[test]
fn what_is_named_is_read_alone() {
    let data = one("SELECT id FROM files WHERE path = '/data'");
    // A path: its components, and again for the path that is shown.
    reads_at_most("path = '/home/ben/Copy/notes.txt'", 10);
    reads_at_most("path = '/'", 1);
    reads_at_most("path = '/home/nobody'", 3);
    reads_at_most("path = '/home/ben/'", 4);
    reads_at_most("path = '/home/anna/video.mp4/x'", 5);
    reads_at_most("path IN ('/home', '/data', '/none', NULL)", 10);
    reads_at_most(&format!("parent = {data}"), 26);
    // A column of numbers is compared as one.
    let as_text = asked(&format!("SELECT name FROM files WHERE parent = '{data}.0'"));
    assert_eq!((as_text.rows.len(), as_text.done.read), (24, 24));
    reads_at_most(&format!("parent = {data} AND name = 'short'"), 3);
    reads_at_most("parent = 'x'", 0);
    reads_at_most(&format!("id = {data}"), 3);
    reads_at_most("id = 4096", 1);
    // The directory, its ancestors, what is below, and the places of directories for their paths.
    reads_at_most("path GLOB '/home/ben/*'", 12);
    reads_at_most("path GLOB '/home/b*'", 20);
    reads_at_most("path GLOB '/home/*/report.txt'", 20);
    reads_at_most("path GLOB '/data/part-0[1-3]'", 30);
    reads_at_most("path GLOB '/home'", 30);
    reads_at_most("path GLOB '/HOME/*'", 2);
    reads_at_most("path LIKE '/HOME/ben/copy/%'", 16);
    reads_at_most("path LIKE '/home/BEN/%o%'", 20);
    reads_at_most("path LIKE '/h%'", 20);
    for everything in [
        "path GLOB '/*'",
        "path LIKE '%report%'",
        "path GLOB '*report*'",
        "path LIKE '/%'",
        "path BETWEEN '/home' AND '/home/b'",
    ] {
        reads_at_most(everything, u64::MAX);
    }
}

#[test]
fn a_directory_is_an_argument() {
    let below = |query: &str| lines(&asked(query));
    let home = below("SELECT path FROM files('/home') ORDER BY path");
    assert_eq!(home.len(), 11);
    assert_eq!(home, below("SELECT path FROM files WHERE path GLOB '/home/*' ORDER BY path"));
    assert_eq!(home, below("SELECT path FROM files WHERE under = '/home/' ORDER BY path"));
    assert_eq!(
        below("SELECT count(*) FROM files('/')"),
        [(tree::NAMES - 2).to_string()],
        "all but the root and what is lost"
    );
    for nothing in ["'/none'", "'/home/anna/video.mp4'", "'home'", "NULL", "5"] {
        assert_eq!(below(&format!("SELECT path FROM files({nothing})")), [""; 0], "{nothing}");
    }
    assert!(asked("SELECT name FROM files('/home/ben/Copy')").done.read <= 6);
    // From another table, a directory a row.
    let sums = "SELECT d.path, (SELECT sum(size) FROM files(d.path)) FROM files d WHERE d.parent = 4096 ORDER BY 1";
    assert_eq!(below(sums), ["/data|22992530", "/home|262157909"]);
    let each =
        "SELECT d.name, count(*) FROM files d JOIN files(d.path) f WHERE d.path GLOB '/home/*' GROUP BY 1 ORDER BY 1";
    assert_eq!(below(each), ["Copy|2", "anna|4", "ben|5"]);
}

/// Two ways to one row do not show it twice, and a name that is equal only for the case is found by reading on.
#[test]
fn ways_do_not_change_what_is_found() {
    let either = "SELECT count(*), count(DISTINCT name) FROM files WHERE path = '/home' OR id = (SELECT id FROM files WHERE path = '/home')";
    assert_eq!(lines(&asked(either)), ["1|1"]);
    let nocase = "SELECT path FROM files WHERE path = '/HOME/ANNA' COLLATE NOCASE";
    assert_eq!(lines(&asked(nocase)), ["/home/anna"]);
    let linked = "SELECT path FROM files WHERE id = (SELECT id FROM files WHERE path = '/data/the-same') ORDER BY 1";
    assert_eq!(lines(&asked(linked)), ["/data/the-same", "/home/ben/linked"]);
    assert_eq!(lines(&asked("SELECT size FROM inodes WHERE id = 4096 OR id = 4096")), ["0"]);
    assert_eq!(lines(&asked("SELECT count(*) FROM chunks WHERE inode = -1")), ["0"]);
}

/// Paths of many files in many directories cost a look for each directory, not for each file.
#[test]
fn a_whole_scan_reads_every_row_once() {
    let engine = MemEngine::new(MemStore::new());
    runtime().block_on(async {
        tree::fill(&engine).await;
        tree::fill_many(&engine, 100, 20).await;
    });
    let names = tree::NAMES + 1 + 100 * 21;
    let answer = ask(runtime(), &engine, "SELECT count(path) FROM files").unwrap();
    assert_eq!(lines(&answer), [(names - 1).to_string()]);
    assert!((names..names + 120).contains(&answer.done.read), "{:?}", answer.done);
    let count = ask(runtime(), &engine, "SELECT count(*) FROM files").unwrap();
    assert_eq!(count.done.read, names);
}
