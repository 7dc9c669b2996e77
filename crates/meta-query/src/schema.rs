//! What the tables and columns are, for SQLite, for `--schema` and for the page that documents them.

use crate::relation::Relation;
use crate::tables;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Real,
    Text,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Integer => "INTEGER",
            Kind::Real => "REAL",
            Kind::Text => "TEXT",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Not among what `*` stands for; an argument of the table.
    pub is_hidden: bool,
    pub about: &'static str,
}

pub const fn integer(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Integer, is_hidden: false, about }
}

pub const fn real(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Real, is_hidden: false, about }
}

pub const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Text, is_hidden: false, about }
}

/// A table, for people.
#[derive(Clone, Debug)]
pub struct TableDoc {
    pub name: &'static str,
    pub about: &'static str,
    pub columns: Vec<Column>,
}

fn doc<R: Relation>() -> TableDoc {
    TableDoc { name: R::NAME, about: R::ABOUT, columns: R::columns() }
}

/// All tables, in the order of the page.
pub fn schema() -> Vec<TableDoc> {
    vec![
        doc::<tables::Files>(),
        doc::<tables::Inodes>(),
        doc::<tables::Chunks>(),
        doc::<tables::Containers>(),
        doc::<tables::Replicas>(),
        doc::<tables::Servers>(),
        doc::<tables::Policies>(),
        doc::<tables::Quotas>(),
        doc::<tables::Snapshots>(),
        doc::<tables::Xattrs>(),
        doc::<tables::Sessions>(),
        doc::<tables::Orphans>(),
        doc::<tables::Spares>(),
        doc::<tables::Reclaim>(),
    ]
}

/// How SQLite is told of a table.
pub fn declaration<R: Relation>() -> String {
    let column = |column: Column| {
        let hidden = if column.is_hidden { " HIDDEN" } else { "" };
        format!("{} {}{hidden}", column.name, column.kind.word())
    };
    let columns: Vec<String> = R::columns().into_iter().map(column).collect();
    // Without a number of its own a row is told from others by its key, which is the same whichever way it was found.
    format!("CREATE TABLE x({}, PRIMARY KEY({})) WITHOUT ROWID", columns.join(", "), R::KEY)
}
