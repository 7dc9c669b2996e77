//! `servers` and `sessions`: who stores, and who uses.

use crate::QueryError;
use crate::cell::{as_id, flag, number, or_null, time, word};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, real, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_api::meta::ServerState;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{RowFormat, ServerRow, SessionRow};
use braid_types::{ServerId, SessionId};

pub struct Servers;

impl Relation for Servers {
    const NAME: &'static str = "servers";
    const ABOUT: &'static str = "data servers; what no row has is as the metadata server knew it when the query began";
    const KEY: &'static str = "id";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 100.0;

    type Scan = Pages;
    type Row = (ServerId, ServerRow);

    fn columns() -> Vec<Column> {
        vec![
            integer("id", "number of the data server"),
            text("host", "its machine"),
            text("rack", "as configured; empty where it is not"),
            text("duty", "serves, draining, drain paused, drained or decommissioned"),
            text("addresses", "where it listens, with spaces between"),
            text("state", "up or down; NULL if nothing is known of it"),
            integer("bytes_total", "of its disk"),
            integer("bytes_free", "of its disk"),
            integer("chunks", "chunks it says that it has"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Servers, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        let Some((key, row)) = pages.next(source)? else { return Ok(None) };
        Ok(Some((ServerId(key.partition()), ServerRow::decode(&key, &row)?)))
    }

    fn cell((id, row): &Self::Row, column: usize, source: &mut Source) -> Result<SqlValue, QueryError> {
        let seen = source.servers.iter().find(|seen| seen.id == *id);
        let state = |state: ServerState| word(if state == ServerState::Up { "up" } else { "down" });
        Ok(match column {
            0 => number(id.0),
            1 => word(&row.host),
            2 => word(&row.rack),
            3 => word(row.duty),
            4 => word(row.addresses.join(" ")),
            5 => or_null(seen, |seen| state(seen.state)),
            6 => or_null(seen, |seen| number(seen.bytes_total)),
            7 => or_null(seen, |seen| number(seen.bytes_free)),
            8 => or_null(seen, |seen| number(seen.chunks)),
            _ => SqlValue::Null,
        })
    }
}

pub struct Sessions;

impl Relation for Sessions {
    const NAME: &'static str = "sessions";
    const ABOUT: &'static str = "clients, mounts among them";
    const KEY: &'static str = "id";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 1000.0;

    type Scan = Pages;
    type Row = (SessionId, SessionRow);

    fn columns() -> Vec<Column> {
        vec![
            integer("id", "number of the session, for ever"),
            text("description", "what the client says of itself"),
            text("host", "its machine"),
            real("since", "when it began; seconds since 1970"),
            integer("ended", "1 if it has ended, and its last answers are kept for a while"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Sessions, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        let Some((key, row)) = pages.next(source)? else { return Ok(None) };
        Ok(Some((SessionId(key.partition()), SessionRow::decode(&key, &row)?)))
    }

    fn cell((id, row): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(id.0),
            1 => word(&row.description),
            2 => word(&row.host),
            3 => time(row.since),
            4 => flag(row.has_ended()),
            _ => SqlValue::Null,
        })
    }
}
