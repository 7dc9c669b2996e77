//! `files`: every name once, with its path and what it stands for.

use super::inodes;
use super::walk::{Pattern, Walk};
use crate::QueryError;
use crate::cell::{self, as_bytes, as_id, number, or_null, word};
use crate::pages::Pages;
use crate::paths::join;
use crate::plan::{Op, Way};
use crate::relation::Relation;
use crate::schema::{Column, integer, text};
use crate::source::Source;
use braid_api::admin::SqlValue;
use braid_meta_engine::{Key, Table};
use braid_meta_namespace::rows::{Entry, IdRow, Inode, RowFormat, keys};
use braid_types::InodeId;
use std::cell::OnceCell;

/// Columns of the name; behind them those of the inode.
const OWN: &[Column] = &[
    text(
        "path",
        "from the root; NULL if it cannot be reached from there, as what a removal of a tree has left to be freed, or has more than 64 KiB",
    ),
    text("name", "last component of the path; empty for the root"),
    integer("parent", "number of the directory it is in; 0 for the root"),
];
const PATH: usize = 0;
const NAME: usize = 1;
const PARENT: usize = 2;
const ID: usize = 3;
const KIND: usize = 4;
const UNDER: usize = OWN.len() + inodes::COLUMNS.len();

pub struct Files;

/// A name.
pub struct NameRow {
    pub parent: InodeId,
    pub name: Vec<u8>,
    pub entry: Entry,
    /// Of a file whose attributes are not beside its name, when they are asked for.
    pub apart: OnceCell<Option<Box<Inode>>>,
    /// What the table's argument was.
    under: Option<SqlValue>,
}

impl NameRow {
    pub fn new(parent: InodeId, name: Vec<u8>, entry: Entry) -> NameRow {
        NameRow { parent, name, entry, apart: OnceCell::new(), under: None }
    }

    pub fn decode(key: &Key, row: &[u8]) -> Result<NameRow, QueryError> {
        Ok(NameRow::new(InodeId(key.partition()), key.rest().to_vec(), Entry::decode(key, row)?))
    }
}

pub enum Scan {
    One(Option<Box<NameRow>>),
    Pages(Pages),
    /// Names of one inode, which nothing leads to: so many are still to be found.
    NamesOf {
        id: InodeId,
        left: u32,
        pages: Pages,
    },
    Walk {
        walk: Walk,
        under: Option<SqlValue>,
    },
}

/// The numbers of the ways.
const BY_UNDER: usize = 0;
const BY_ID: usize = 1;
const BY_ENTRY: usize = 2;
const BY_PATH: usize = 3;
const BY_PARENT: usize = 4;
const BY_GLOB: usize = 5;
const BY_LIKE: usize = 6;

impl Relation for Files {
    const NAME: &'static str = "files";
    const ABOUT: &'static str = "every name once, with its path and its inode; files('/a') is what lies below /a";
    const KEY: &'static str = "parent, name";
    const WAYS: &'static [Way] = &[
        Way { is_argument: true, ..Way::new(&[(UNDER, Op::Equal)], 1e4) },
        Way::new(&[(ID, Op::Equal)], 1.0),
        Way::new(&[(PARENT, Op::Equal), (NAME, Op::Equal)], 1.0),
        Way::new(&[(PATH, Op::Equal)], 1.0),
        Way::new(&[(PARENT, Op::Equal)], 100.0),
        Way::new(&[(PATH, Op::Glob)], 2e4),
        Way::new(&[(PATH, Op::Like)], 3e4),
    ];
    const ROWS: f64 = 1e7;

    type Scan = Scan;
    type Row = Box<NameRow>;

    fn columns() -> Vec<Column> {
        let under = Column {
            is_hidden: true,
            ..text("under", "a directory: only what lies below it; files('/a') says the same")
        };
        OWN.iter().chain(inodes::COLUMNS).copied().chain([under]).collect()
    }

    fn begin(source: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Scan, QueryError> {
        let mut args = args.into_iter();
        let first = args.next().unwrap_or(SqlValue::Null);
        let nothing = Ok(Scan::One(None));
        match way {
            Some(BY_UNDER) => {
                let dir = match as_bytes(&first) {
                    Some(path) => source.dir_at(path.strip_suffix(b"/").unwrap_or(path))?,
                    None => None,
                };
                Ok(Scan::Walk { walk: Walk::below(dir), under: Some(first) })
            }
            Some(BY_ID) => match as_id(&first) {
                Some(id) => by_id(source, InodeId(id)),
                None => nothing,
            },
            Some(BY_ENTRY) => match (as_id(&first), args.next()) {
                // Compared with a text it is one, of which SQLite alone knows how it is written.
                (parent, Some(SqlValue::Integer(_) | SqlValue::Real(_))) => {
                    Ok(Scan::Pages(Pages::of(Table::Inodes, Some(parent))))
                }
                (Some(parent), Some(name)) => match as_bytes(&name) {
                    Some(name) => by_entry(source, InodeId(parent), name),
                    None => nothing,
                },
                _ => nothing,
            },
            Some(BY_PATH) => match as_bytes(&first) {
                Some(path) => {
                    let found = source.at_path(path)?;
                    Ok(Scan::One(found.map(|(parent, name, entry)| Box::new(NameRow::new(parent, name, entry)))))
                }
                None => nothing,
            },
            Some(BY_PARENT) => Ok(Scan::Pages(Pages::of(Table::Inodes, Some(as_id(&first))))),
            Some(way @ (BY_GLOB | BY_LIKE)) => {
                let pattern = as_bytes(&first).and_then(|text| Pattern::new(text, way == BY_LIKE));
                match pattern {
                    Some(pattern) => Ok(Scan::Walk { walk: pattern.walk(source)?, under: None }),
                    None => Ok(Scan::Pages(Pages::whole(Table::Inodes))),
                }
            }
            _ => Ok(Scan::Pages(Pages::whole(Table::Inodes))),
        }
    }

    fn next(scan: &mut Scan, source: &mut Source) -> Result<Option<Box<NameRow>>, QueryError> {
        Ok(match scan {
            Scan::One(row) => row.take(),
            Scan::Pages(pages) => match pages.next(source)? {
                Some((key, row)) => Some(Box::new(NameRow::decode(&key, &row)?)),
                None => None,
            },
            Scan::NamesOf { left: 0, .. } => None,
            Scan::NamesOf { id, left, pages } => loop {
                let Some((key, row)) = pages.next(source)? else { break None };
                let row = NameRow::decode(&key, &row)?;
                if row.entry.id() == *id {
                    *left -= 1;
                    break Some(Box::new(row));
                }
            },
            Scan::Walk { walk, under } => {
                walk.next(source)?.map(|row| Box::new(NameRow { under: under.clone(), ..row }))
            }
        })
    }

    fn cell(row: &Box<NameRow>, column: usize, source: &mut Source) -> Result<SqlValue, QueryError> {
        Ok(match column {
            PATH => path(row, source)?,
            NAME => cell::text(&row.name),
            PARENT => number(row.parent.0),
            ID => number(row.entry.id().0),
            KIND => word(row.entry.kind().word()),
            UNDER => row.under.clone().unwrap_or(SqlValue::Null),
            _ => match &row.entry {
                Entry::Here(inode) => inodes::cell(inode, column - OWN.len(), source)?,
                Entry::Elsewhere { id, .. } => {
                    if row.apart.get().is_none() {
                        let inode = source.inode(*id)?;
                        let _ = row.apart.set(inode.map(Box::new));
                    }
                    match row.apart.get() {
                        Some(Some(inode)) => inodes::cell(inode, column - OWN.len(), source)?,
                        _ => SqlValue::Null,
                    }
                }
            },
        })
    }
}

fn path(row: &NameRow, source: &mut Source) -> Result<SqlValue, QueryError> {
    if row.parent == keys::NO_PARENT {
        return Ok(word("/"));
    }
    let dir = source.dir_path(row.parent)?;
    Ok(or_null(dir, |dir| cell::text(&join(&dir, &row.name))))
}

fn by_entry(source: &mut Source, parent: InodeId, name: &[u8]) -> Result<Scan, QueryError> {
    let entry = source.entry(parent, name)?;
    Ok(Scan::One(entry.map(|entry| Box::new(NameRow::new(parent, name.to_vec(), entry)))))
}

/// A file that has had several names has no row that says which.
fn by_id(source: &mut Source, id: InodeId) -> Result<Scan, QueryError> {
    if id == InodeId::ROOT {
        return by_entry(source, keys::NO_PARENT, b"");
    }
    match source.get::<IdRow>(&keys::inode_id(id))? {
        None => Ok(Scan::One(None)),
        Some(IdRow::At { parent, name }) => by_entry(source, parent, &name),
        Some(IdRow::Attributes(inode)) => {
            Ok(Scan::NamesOf { id, left: inode.nlink, pages: Pages::whole(Table::Inodes) })
        }
    }
}
