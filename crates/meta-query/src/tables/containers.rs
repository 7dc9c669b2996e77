//! `containers`, and `replicas`: which servers a container is on.

use crate::QueryError;
use crate::cell::{as_id, flag, number, word};
use crate::pages::Pages;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::Table;
use braid_meta_namespace::rows::{ContainerRow, RowFormat};
use braid_types::{ContainerId, ServerId};
use std::collections::VecDeque;

pub struct Containers;

impl Relation for Containers {
    const NAME: &'static str = "containers";
    const ABOUT: &'static str = "groups of up to 256 chunks that are on the same servers";
    const KEY: &'static str = "id";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 1.0)];
    const ROWS: f64 = 1e5;

    type Scan = Pages;
    type Row = (ContainerId, ContainerRow);

    fn columns() -> Vec<Column> {
        vec![
            integer("id", "number of the container"),
            integer("epoch", "rises with each change of its servers"),
            text("layout", "plain, replica:N"),
            integer("chunk_bytes", "size of its chunks"),
            integer("given", "chunks that were ever given out of it"),
            integer("freed", "those of them that were freed again"),
            integer("members", "servers it is on"),
            integer("copies", "servers it should be on"),
            integer("min_copies", "copies on stable storage that an fsync waits for"),
            integer("settled", "0 while its servers are being changed"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Pages, QueryError> {
        Ok(Pages::of(Table::Containers, way.map(|_| args.first().and_then(as_id))))
    }

    fn next(pages: &mut Pages, source: &mut Source) -> Result<Option<Self::Row>, QueryError> {
        let Some((key, row)) = pages.next(source)? else { return Ok(None) };
        Ok(Some((ContainerId(key.partition()), ContainerRow::decode(&key, &row)?)))
    }

    fn cell((id, row): &Self::Row, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        let copies = row.copies.as_ref();
        Ok(match column {
            0 => number(id.0),
            1 => number(row.epoch.0.into()),
            2 => word(row.layout),
            3 => number(row.chunk_bytes),
            4 => number(row.given.into()),
            5 => number(row.freed.into()),
            6 => number(row.chain.len() as u64),
            7 => number(copies.map_or(1, |copies| copies.copies.into())),
            8 => number(copies.map_or(1, |copies| copies.min_copies.into())),
            9 => flag(copies.is_none_or(|copies| copies.settled && copies.last_open.is_empty())),
            _ => SqlValue::Null,
        })
    }
}

pub struct Replicas;

pub struct Replica {
    container: ContainerId,
    place: u64,
    server: ServerId,
}

impl Relation for Replicas {
    const NAME: &'static str = "replicas";
    const ABOUT: &'static str = "which servers each container is on";
    const KEY: &'static str = "container, place";
    const WAYS: &'static [Way] = &[Way::new(&[(0, Op::Equal)], 3.0)];
    const ROWS: f64 = 3e5;

    type Scan = (Pages, VecDeque<Replica>);
    type Row = Replica;

    fn columns() -> Vec<Column> {
        vec![
            integer("container", "number of the container"),
            integer("place", "of the server in its chain, from 0"),
            integer("server", "number of the data server"),
        ]
    }

    fn begin(_: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Self::Scan, QueryError> {
        let pages = Pages::of(Table::Containers, way.map(|_| args.first().and_then(as_id)));
        Ok((pages, VecDeque::new()))
    }

    fn next((pages, chain): &mut Self::Scan, source: &mut Source) -> Result<Option<Replica>, QueryError> {
        while chain.is_empty() {
            let Some((key, row)) = pages.next(source)? else { return Ok(None) };
            let servers = ContainerRow::decode(&key, &row)?.chain;
            let container = ContainerId(key.partition());
            chain.extend((0..).zip(servers).map(|(place, server)| Replica { container, place, server }));
        }
        Ok(chain.pop_front())
    }

    fn cell(row: &Replica, column: usize, _: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            0 => number(row.container.0),
            1 => number(row.place),
            2 => number(row.server.0),
            _ => SqlValue::Null,
        })
    }
}
