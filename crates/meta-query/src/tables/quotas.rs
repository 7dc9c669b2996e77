//! `quotas`: what directories with quotas, users and groups have, and may have.

use crate::QueryError;
use crate::cell::{number, or_null, word};
use crate::pages::Pages;
use crate::plan::Way;
use crate::relation::Relation;
use crate::schema::{Column, integer, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_api::quota::{Limits, Payer};
use braid_meta_engine::{Counts, Key, Row, Table};
use braid_meta_namespace::rows::keys::{self, Account};
use braid_meta_namespace::rows::{LimitRow, RowFormat};

pub struct Quotas;

/// The rows of one account follow each other.
pub struct Scan {
    pages: Pages,
    next: Option<(Payer, Key, Row)>,
}

pub struct Quota {
    payer: Payer,
    has: Counts,
    limits: Limits,
}

impl Scan {
    fn take(&mut self, source: &mut Source) -> Result<Option<(Payer, Key, Row)>, QueryError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        while let Some((key, row)) = self.pages.next(source)? {
            if let Some(Account::Limit(payer) | Account::Usage(payer)) = keys::account(&key) {
                return Ok(Some((payer, key, row)));
            }
        }
        Ok(None)
    }
}

impl Relation for Quotas {
    const NAME: &'static str = "quotas";
    const ABOUT: &'static str = "what directories with quotas, users and groups have and may have";
    const KEY: &'static str = "kind, id";
    const WAYS: &'static [Way] = &[];
    const ROWS: f64 = 100.0;

    type Scan = Scan;
    type Row = Quota;

    fn columns() -> Vec<Column> {
        vec![
            text("kind", "directory, user, group"),
            integer("id", "number of the directory, the user, the group"),
            integer("inodes", "how many it has"),
            integer("bytes", "sizes of its files, and what their writers have asked for in advance"),
            integer("inodes_max", "how many it may have"),
            integer("bytes_max", "how many it may have"),
        ]
    }

    fn begin(_: &mut Source, _: Option<usize>, _: Vec<SqlValue>) -> Result<Scan, QueryError> {
        Ok(Scan { pages: Pages::whole(Table::Quotas), next: None })
    }

    fn next(scan: &mut Scan, source: &mut Source) -> Result<Option<Quota>, QueryError> {
        let mut found: Option<Quota> = None;
        while let Some((payer, key, row)) = scan.take(source)? {
            if found.as_ref().is_some_and(|quota| quota.payer != payer) {
                scan.next = Some((payer, key, row));
                break;
            }
            let empty = Quota { payer, has: Counts::default(), limits: Limits::default() };
            let quota = found.get_or_insert(empty);
            match keys::account(&key) {
                Some(Account::Limit(_)) => quota.limits = LimitRow::decode(&key, &row)?.0,
                _ => quota.has.add(Counts::from_row(&row).unwrap_or_default()),
            }
        }
        Ok(found)
    }

    fn cell(quota: &Quota, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        let (kind, id) = match quota.payer {
            Payer::Dir(id) => ("directory", id.0),
            Payer::User(id) => ("user", id.into()),
            Payer::Group(id) => ("group", id.into()),
        };
        Ok(match column {
            0 => word(kind),
            1 => number(id),
            2 => SqlValue::Integer(quota.has.shown()[0]),
            3 => SqlValue::Integer(quota.has.shown()[1]),
            4 => or_null(quota.limits.inodes, number),
            5 => or_null(quota.limits.bytes, number),
            _ => SqlValue::Null,
        })
    }
}
