//! `snapshots`: what directories were at some moment.

use crate::QueryError;
use crate::cell::{as_id, number, text, time};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{self, Column, integer, real};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{RowFormat, SnapshotEntry, SnapshotsRow};
use braid_types::InodeId;
use std::collections::VecDeque;

pub struct Snapshots;

/// All of a directory lie in one row.
pub struct Scan {
    pages: Pages,
    of: InodeId,
    left: VecDeque<SnapshotEntry>,
}

impl Relation for Snapshots {
    const NAME: &'static str = "snapshots";
    const ABOUT: &'static str = "snapshots of directories";
    const KEY: &'static str = "directory, number";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 3.0)];
    const ROWS: f64 = 100.0;

    type Scan = Scan;
    type Row = (InodeId, SnapshotEntry);

    fn columns() -> Vec<Column> {
        vec![
            integer("directory", "number of the directory"),
            integer("number", "which of all snapshots it is, from 1: later ones have larger numbers"),
            schema::text("name", "as it is called in .braid/snapshots of the directory"),
            real("made", "when; seconds since 1970"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Scan, QueryError> {
        let pages = Pages::of(Table::Snapshots, way.map(|_| args.first().and_then(as_id)));
        Ok(Scan { pages, of: InodeId(0), left: VecDeque::new() })
    }

    fn next(scan: &mut Scan, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        loop {
            if let Some(snapshot) = scan.left.pop_front() {
                return Ok(Some((scan.of, snapshot)));
            }
            let Some((key, row)) = scan.pages.next(source)? else { return Ok(None) };
            (scan.of, scan.left) = (InodeId(key.partition()), SnapshotsRow::decode(&key, &row)?.kept.into());
        }
    }

    fn cell((dir, snapshot): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(dir.0),
            1 => number(snapshot.number),
            2 => text(&snapshot.name),
            3 => time(snapshot.made),
            _ => SqlValue::Null,
        })
    }
}
