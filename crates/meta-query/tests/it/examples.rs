//! The page of the schema says what is so: its tables are those of the program, and its examples answer what they say.

use super::{asked, lines};
use braid_meta_query::schema;

const PAGE: &str = include_str!("../../../../docs/sql-metadata.md");

/// Titles of examples with their queries.
pub fn examples() -> Vec<(&'static str, &'static str)> {
    let of = |section: &'static str| {
        let (title, rest) = section.split_once('\n')?;
        let query = rest.split_once("```sql\n")?.1.split_once("```")?.0;
        Some((title, query))
    };
    PAGE.split("\n### ").skip(1).filter_map(of).collect()
}

/// What each answers about the tree of `tree.rs`.
const ANSWERS: &[(&str, &[&str])] = &[
    (
        "The largest files of a user that nobody has read for half a year",
        &["/home/anna/video.mp4|157286400|400", "/home/anna/old.iso|104857600|200"],
    ),
    ("How many files are how small", &["empty|1|0", "below 4 KiB|6|3", "below 64 KiB|1|1", "1 MiB or more|23|0"]),
    ("Bytes by policy", &["plain|9|262157978", "replica:2,chunk=1MiB|23|22991530"]),
    ("Bytes by owner", &["1001|3|262144300", "1003|23|22991530", "1002|5|13677", "0|1|1"]),
    ("What may be there twice: files of the same name and size", &["report.txt|300|3|/home/anna/report.txt"]),
    ("What a data server holds, by owner", &["1003|42|22040106"]),
    ("Directories with the most entries", &["/data|24", "/home/anna|4", "/home/ben|3"]),
    (
        "Files below a directory that were changed within a day",
        &["/home/ben/Copy/notes.txt|12000", "/home/ben/Copy/report.txt|300"],
    ),
    ("Hard links", &["2|1000|/data/the-same /home/ben/linked"]),
    ("Snapshots that are older than a month", &["/data|before"]),
    ("Files with chunks on fewer live servers than they should be on", &["/data/on-a-dead-server", "/data/short"]),
];

#[test]
fn every_example_of_the_page_answers_what_it_says() {
    let examples = examples();
    let titles: Vec<&str> = examples.iter().map(|(title, _)| *title).collect();
    assert_eq!(titles, ANSWERS.iter().map(|(title, _)| *title).collect::<Vec<_>>());
    for ((title, query), (_, expected)) in examples.iter().zip(ANSWERS) {
        let answer = asked(query);
        assert_eq!(lines(&answer), *expected, "{title}");
        // However tables are joined, none is read again for each row of another.
        assert!(answer.done.read < 700, "{title}: {:?}", answer.done);
    }
}

#[test]
fn the_page_shows_the_tables_and_columns_that_there_are() {
    let mut text = String::new();
    for table in schema() {
        text += &format!("### `{}`: {}\n\n| column | | |\n| --- | --- | --- |\n", table.name, table.about);
        for column in &table.columns {
            let hidden = if column.is_hidden { ", not in `*`" } else { "" };
            text += &format!("| `{}` | {}{hidden} | {} |\n", column.name, column.kind.word(), column.about);
        }
        text.push('\n');
    }
    assert!(PAGE.contains(&text), "docs/sql-metadata.md does not have, as a whole:\n{text}");
    assert_eq!(PAGE.matches("\n### `").count(), schema().len());
}

/// Who has written a question may ask it of later versions: tables and columns are added and never renamed, removed or given another type.
#[test]
fn what_there_was_in_version_0_1_is_there() {
    let mut there = std::collections::BTreeSet::new();
    for table in schema() {
        there.extend(
            table.columns.iter().map(|column| format!("{}.{} {}", table.name, column.name, column.kind.word())),
        );
    }
    let gone: Vec<&str> = include_str!("schema-0.1.txt").lines().filter(|line| !there.contains(*line)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn every_column_of_every_table_can_be_asked_for() {
    let rows = |name: &str| asked(&format!("SELECT count(*) FROM {name}")).rows.remove(0).remove(0);
    for table in schema() {
        let answer = asked(&format!("SELECT * FROM {}", table.name));
        let shown: Vec<&str> =
            table.columns.iter().filter(|column| !column.is_hidden).map(|column| column.name).collect();
        assert_eq!(answer.columns, shown);
        assert!(!answer.rows.is_empty(), "{}", table.name);
        assert_eq!(rows(table.name), braid_api::admin::SqlValue::Integer(answer.rows.len() as i64), "{}", table.name);
    }
    let one = |query: &str| lines(&asked(query)).remove(0);
    assert_eq!(one("SELECT path, name, parent, entries, size, target FROM files WHERE path = '/'"), "/||0|2|0|-");
    let link = "SELECT kind, mode_octal, size, target, policy FROM files WHERE name = 'latest'";
    assert_eq!(one(link), "symlink|0640|9|video.mp4|-");
    assert_eq!(one("SELECT path, size FROM files WHERE name = 'lost'"), "-|1");
    assert_eq!(
        one("SELECT name, path FROM files WHERE path = X'2f646174612ffffe'"),
        "X'\\xff\\xfe'|X'/data/\\xff\\xfe'"
    );
    assert_eq!(one("SELECT name, value FROM xattrs"), "user.colour|blue");
    assert_eq!(one("SELECT host, state, bytes_free, addresses FROM servers WHERE id = 3"), "h3|down|300|tcp:h3:7401");
    assert_eq!(one("SELECT size, nlink FROM inodes JOIN orphans ON orphans.inode = inodes.id"), "77|0");
    let quotas = asked("SELECT kind, id, inodes, bytes, inodes_max, bytes_max FROM quotas");
    assert_eq!(lines(&quotas), ["user|1001|6|2097152|-|1073741824", "directory|4096|40|5|-|-"]);
    let snapshots = asked("SELECT number, name, unixepoch() - made > 86400 FROM snapshots ORDER BY number");
    assert_eq!(lines(&snapshots), ["1|before|1", "3|after|1"], "2 is being removed");
    let half = "SELECT mtime - CAST(mtime AS INTEGER), datetime(0, 'unixepoch') FROM files WHERE path = '/home'";
    assert_eq!(one(half), "0.5|1970-01-01 00:00:00");
}
