//! `policies` and `xattrs`: what lies beside an inode.

use crate::QueryError;
use crate::cell::{self, as_id, number, word};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::{Key, Row, Table};
use braid_meta_namespace::rows::PolicyRow;
use braid_meta_namespace::rows::RowFormat;
use braid_types::{InodeId, Policy};

pub struct Policies;

impl Relation for Policies {
    const NAME: &'static str = "policies";
    const ABOUT: &'static str = "directories with a policy of their own";
    const KEY: &'static str = "directory";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 100.0;

    type Scan = Pages;
    type Row = (InodeId, Policy);

    fn columns() -> Vec<Column> {
        vec![
            integer("directory", "number of the directory"),
            text("policy", "as `braid fs policy` writes it"),
            text("layout", "plain, replica:N"),
            integer("copies", "servers that have each chunk"),
            integer("min_copies", "copies on stable storage that an fsync waits for"),
            integer("inline_bytes", "files up to this size lie beside their row"),
            integer("chunk_bytes", "size of chunks"),
            integer("inline_small_bytes", "and up to this size where a database keeps rows in memory"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Policies, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        let Some((key, row)) = pages.next(source)? else { return Ok(None) };
        Ok(Some((InodeId(key.partition()), PolicyRow::decode(&key, &row)?.policy)))
    }

    fn cell((id, policy): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(id.0),
            1 => word(policy),
            2 => word(policy.layout),
            3 => number(policy.chain_len() as u64),
            4 => number(policy.min_copies() as u64),
            5 => number(policy.inline_bytes.into()),
            6 => number(policy.chunk_bytes),
            7 => number(policy.inline_small_bytes.into()),
            _ => SqlValue::Null,
        })
    }
}

pub struct Xattrs;

impl Relation for Xattrs {
    const NAME: &'static str = "xattrs";
    const ABOUT: &'static str = "extended attributes, access lists among them";
    const KEY: &'static str = "inode, name";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 3.0)];
    const ROWS: f64 = 1e5;

    type Scan = Pages;
    type Row = (Key, Row);

    fn columns() -> Vec<Column> {
        vec![
            integer("inode", "whose they are"),
            text("name", "with what stands before the point: user.colour"),
            text("value", "its bytes"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Xattrs, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        pages.next(source)
    }

    fn cell((key, row): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(key.partition()),
            1 => cell::text(key.rest()),
            2 => cell::text(row),
            _ => SqlValue::Null,
        })
    }
}
