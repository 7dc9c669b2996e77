//! `chunks`: the chunks of files.

use crate::QueryError;
use crate::cell::{as_id, flag, number, or_null};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{ChunkRow, RowFormat, keys};
use braid_types::{ChunkIndex, InodeId};

pub struct Chunks;

pub struct Chunk {
    inode: InodeId,
    number: ChunkIndex,
    row: ChunkRow,
}

impl Relation for Chunks {
    const NAME: &'static str = "chunks";
    const ABOUT: &'static str = "the chunks of files";
    const KEY: &'static str = "inode, number";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 10.0)];
    const ROWS: f64 = 1e7;

    type Scan = Pages;
    type Row = Chunk;

    fn columns() -> Vec<Column> {
        vec![
            integer("inode", "the file"),
            integer("number", "which of its chunks, from 0; one that is missing is a hole"),
            integer("id", "number of the chunk, for ever"),
            integer("container", "the container it is in, which says on which servers it is"),
            integer("stable", "1 if it is known to be on stable storage"),
            integer("bytes", "how many of the file's bytes it has, holes in it among them"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Chunks, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Chunk>, QueryError> {
        while let Some((key, row)) = pages.next(source)? {
            if let Some(number) = keys::chunk_index(&key) {
                return Ok(Some(Chunk { inode: InodeId(key.partition()), number, row: ChunkRow::decode(&key, &row)? }));
            }
        }
        Ok(None)
    }

    fn cell(chunk: &Chunk, column: usize, source: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(chunk.inode.0),
            1 => number(chunk.number.0),
            2 => number(chunk.row.chunk.0),
            3 => number(chunk.row.container.0),
            4 => flag(chunk.row.stable),
            5 => or_null(bytes(chunk, source)?, number),
            _ => SqlValue::Null,
        })
    }
}

fn bytes(chunk: &Chunk, source: &mut Source) -> Result<Option<u64>, QueryError> {
    let Some(inode) = source.inode(chunk.inode)? else { return Ok(None) };
    let policy = match inode.policy {
        Some(policy) => Some(policy),
        None => source.policy_in_force(&inode)?,
    };
    let of = |chunk_bytes: u64| inode.size.saturating_sub(chunk.number.0.saturating_mul(chunk_bytes)).min(chunk_bytes);
    Ok(policy.map(|policy| of(policy.chunk_bytes)))
}
