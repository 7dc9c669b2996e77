//! The tables in the database: one for each [`Table`], and three of the engine's own.
//!
//! A row is (part, rest, val): the partition of the key as a number, the rest of it as bytes that sort as bytes, the row.
//! Partitioned by `part`, so what is in one directory is on one server of a database that spreads its tables.

use crate::capabilities::Kind;
use braid_meta_engine::{EngineError, Key, Table};
use std::fmt::Write;

/// 1: the tables below.
pub const FORMAT: u64 = 1;

/// Longest rest of a key: a name of 255 bytes and a snapshot number are 263; some room for another number or two. With the
/// partition it is far below the 3,072 bytes that InnoDB, NDB and TiDB allow a primary key.
pub(crate) const REST_BYTES_MAX: usize = 320;

/// Longest row of a hot table. NDB keeps rows of up to 30,000 bytes in memory, the key and its lengths counted: 8 + 2 + 320 + 2 +
/// 29,000 fit. (InnoDB's limit for all columns that are no BLOB is 65,535; what is over half a page goes to pages of its own.)
const HOT_BYTES_MAX: usize = 29_000;

/// The rest: values of xattrs and inline files reach 64 KiB and a little. The type holds 16 MiB.
const LARGE_BYTES_MAX: usize = 1 << 20;

/// The engine's own tables. `about`: what there is one of. `marks`: `settle.rs`. `fences`: `fence.rs`.
const OWN: [&str; 3] = [
    "about (name VARBINARY(32) NOT NULL, num BIGINT UNSIGNED NOT NULL, txt VARBINARY(255) NOT NULL, PRIMARY KEY (name))",
    "marks (slot BIGINT UNSIGNED NOT NULL, op BIGINT UNSIGNED NOT NULL, closed TINYINT UNSIGNED NOT NULL, \
     born BIGINT UNSIGNED NOT NULL, PRIMARY KEY (slot))",
    "fences (slot BIGINT UNSIGNED NOT NULL, epoch BIGINT UNSIGNED NOT NULL, hits BIGINT UNSIGNED NOT NULL, \
     PRIMARY KEY (slot))",
];

pub(crate) fn name(table: Table) -> &'static str {
    match table {
        Table::Globals => "globals",
        Table::Inodes => "inodes",
        Table::InodeIds => "inode_ids",
        Table::Chunks => "chunks",
        Table::InlineSmall => "inline_small",
        Table::InlineLarge => "inline_large",
        Table::Xattrs => "xattrs",
        Table::Quotas => "quotas",
        Table::Policies => "policies",
        Table::Snapshots => "snapshots",
        Table::OldRows => "old_rows",
        Table::Sessions => "sessions",
        Table::Requests => "requests",
        Table::Spares => "spares",
        Table::Containers => "containers",
        Table::Servers => "servers",
        Table::Elections => "elections",
        Table::SubtreeOps => "subtree_ops",
        Table::Orphans => "orphans",
        Table::Reclaim => "reclaim",
    }
}

/// Whether rows may be larger than a hot table's. `requests` is hot, but keeps an answer, and that may hold an inline file.
fn is_large(table: Table) -> bool {
    matches!(table, Table::Globals | Table::InlineLarge | Table::Xattrs | Table::OldRows | Table::Requests)
}

/// What would be cut off or refused by the database in its words is refused in ours, before it is sent.
pub(crate) fn check_size(key: &Key, row: &[u8]) -> Result<(), EngineError> {
    let row_max = if is_large(key.table()) { LARGE_BYTES_MAX } else { HOT_BYTES_MAX };
    let too_long = |what: &str, bytes: usize, max: usize| {
        let table = name(key.table());
        Err(EngineError::Storage(format!("{what} of {bytes} bytes in the table {table}, which takes {max}: {key:?}")))
    };
    match (key.rest().len(), row.len()) {
        (rest, _) if rest > REST_BYTES_MAX => too_long("a key", rest, REST_BYTES_MAX),
        (_, bytes) if bytes > row_max => too_long("a row", bytes, row_max),
        _ => Ok(()),
    }
}

/// The statements that make all tables where they are not, the smallest last: when that is there, all are. The first is one with `partitions`,
/// if there are to be any.
pub(crate) fn create(kind: Kind, partitions: Option<u16>) -> Vec<String> {
    let mut statements = Vec::new();
    for table in Table::ALL {
        let val = if is_large(table) { "MEDIUMBLOB".to_owned() } else { format!("VARBINARY({HOT_BYTES_MAX})") };
        let mut text = format!(
            "CREATE TABLE IF NOT EXISTS {} (part BIGINT UNSIGNED NOT NULL, rest VARBINARY({REST_BYTES_MAX}) NOT NULL, \
             val {val} NOT NULL, PRIMARY KEY (part, rest)) {}",
            name(table),
            tail(kind)
        );
        if let Some(partitions) = partitions {
            text.push_str(" PARTITION BY KEY (part)");
            if kind != Kind::Ndb {
                let _ = write!(text, " PARTITIONS {partitions}");
            }
        }
        statements.push(text);
    }
    statements.extend(OWN.iter().map(|own| format!("CREATE TABLE IF NOT EXISTS {own} {}", tail(kind))));
    statements
}

/// All that differs between the databases.
fn tail(kind: Kind) -> &'static str {
    match kind {
        // Without a binary character set names of columns and messages would do, but nothing here is text.
        Kind::MariaDb | Kind::MySql => "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=binary",
        Kind::Ndb => "ENGINE=NDBCLUSTER DEFAULT CHARSET=binary",
        Kind::TiDb => "DEFAULT CHARSET=binary",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tail_differs_by_engine() {
        for kind in [Kind::MariaDb, Kind::MySql, Kind::Ndb, Kind::TiDb] {
            let statements = create(kind, Some(8));
            assert_eq!(statements.len(), Table::ALL.len() + OWN.len());
            let partitioned = statements.iter().filter(|text| text.contains("PARTITION BY KEY (part)")).count();
            assert_eq!(partitioned, Table::ALL.len());
            assert!(statements[0].starts_with("CREATE TABLE IF NOT EXISTS globals (part BIGINT UNSIGNED NOT NULL"));
        }
        assert!(!create(Kind::Ndb, Some(8))[0].contains("PARTITIONS"), "it spreads over its data nodes by itself");
        assert!(!create(Kind::MariaDb, None).iter().any(|text| text.contains("PARTITION")));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let key = Key::new(Table::Inodes, 7, b"name");
        assert!(check_size(&key, &[0; HOT_BYTES_MAX]).is_ok());
        let error = check_size(&key, &[0; HOT_BYTES_MAX + 1]).unwrap_err().to_string();
        assert!(error.contains("inodes") && error.contains("name"), "{error}");
        assert!(check_size(&Key::new(Table::OldRows, 7, &[0; REST_BYTES_MAX + 1]), &[]).is_err());
    }
}
