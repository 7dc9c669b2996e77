//! `orphans`, `spares` and `reclaim`: what has no name, belongs to no file yet, or to none any more.

use crate::QueryError;
use crate::cell::{as_id, number, or_null, time};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, real};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{OrphanRow, ReclaimRow, RowFormat, SpareRow, keys};
use braid_types::{ChunkId, InodeId, SessionId};

pub struct Orphans;

impl Relation for Orphans {
    const NAME: &'static str = "orphans";
    const ABOUT: &'static str = "inodes without a name that may still be open";
    const KEY: &'static str = "inode";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 1000.0;

    type Scan = Pages;
    type Row = (InodeId, OrphanRow);

    fn columns() -> Vec<Column> {
        vec![
            integer("inode", "number of the inode"),
            integer("session", "who took its last name, or made it without one"),
            real("since", "when; seconds since 1970"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Orphans, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        let Some((key, row)) = pages.next(source)? else { return Ok(None) };
        Ok(Some((InodeId(key.partition()), OrphanRow::decode(&key, &row)?)))
    }

    fn cell((id, row): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(id.0),
            1 => number(row.session.0),
            2 => time(row.since),
            _ => SqlValue::Null,
        })
    }
}

pub struct Spares;

impl Relation for Spares {
    const NAME: &'static str = "spares";
    const ABOUT: &'static str = "chunks that clients hold in advance for files to come";
    const KEY: &'static str = "session, chunk";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 64.0)];
    const ROWS: f64 = 1e4;

    type Scan = Pages;
    type Row = (SessionId, ChunkId, SpareRow);

    fn columns() -> Vec<Column> {
        vec![
            integer("session", "who holds it"),
            integer("chunk", "number of the chunk"),
            integer("container", "the container it is in"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Spares, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        while let Some((key, row)) = pages.next(source)? {
            if let Some(chunk) = keys::trailing_number(&key) {
                return Ok(Some((SessionId(key.partition()), ChunkId(chunk), SpareRow::decode(&key, &row)?)));
            }
        }
        Ok(None)
    }

    fn cell((session, chunk, row): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(session.0),
            1 => number(chunk.0),
            2 => number(row.container.0),
            _ => SqlValue::Null,
        })
    }
}

pub struct Reclaim;

/// A freed inode with chunks, a removed directory, or a chunk.
pub struct Freed {
    inode: Option<InodeId>,
    chunk: Option<ChunkId>,
    row: ReclaimRow,
}

impl Relation for Reclaim {
    const NAME: &'static str = "reclaim";
    const ABOUT: &'static str = "what no file has any more, and data servers are still to free";
    const KEY: &'static str = "inode, chunk";
    const ROWS: f64 = 1e4;

    type Scan = Pages;
    type Row = Freed;

    fn columns() -> Vec<Column> {
        vec![
            integer(
                "inode",
                "a freed inode, whose chunks are in the table chunks, or a removed directory that is to be emptied; 0 for a chunk",
            ),
            integer("chunk", "a chunk that is to be deleted; 0 for an inode"),
            integer("container", "the container that the chunk is in; else NULL"),
        ]
    }

    fn begin(_: &mut Source, _: Option<usize>, _: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::whole(Table::Reclaim))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Freed>, QueryError> {
        while let Some((key, row)) = pages.next(source)? {
            let (inode, chunk) = match keys::reclaimed(&key) {
                Some(keys::Reclaimed::Inode(id) | keys::Reclaimed::Tree(id)) => (Some(id), None),
                Some(keys::Reclaimed::Chunk(id)) => (None, Some(id)),
                None => continue,
            };
            return Ok(Some(Freed { inode, chunk, row: ReclaimRow::decode(&key, &row)? }));
        }
        Ok(None)
    }

    fn cell(row: &Freed, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(row.inode.map_or(0, |id| id.0)),
            1 => number(row.chunk.map_or(0, |id| id.0)),
            2 => or_null(row.chunk, |_| number(row.row.container.0)),
            _ => SqlValue::Null,
        })
    }
}
