//! A [`Relation`] as a virtual table of SQLite. All that is unsafe is here.

use crate::cell;
use crate::plan::{Comparison, Op, Plan, choose};
use crate::relation::Relation;
use crate::schema::{Kind, declaration};
use crate::source::Shared;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor, sqlite3_vtab,
    sqlite3_vtab_cursor,
};
use rusqlite::{Connection, Result};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;

/// Makes the table known under its name.
pub fn register<R: Relation>(connection: &Connection, source: &Shared) -> Result<()> {
    connection.create_module(R::NAME, Registered::<R>::MODULE, Some(source.clone()))
}

struct Registered<R>(PhantomData<R>);

impl<R: Relation> Registered<R> {
    const MODULE: &'static Module<'static, Tab<R>> = &Module::eponymous_only_module();
}

/// Nothing unwinds through SQLite, which is C: there it would end the process.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = || rusqlite::Error::ModuleError("a table panicked: see the metadata server's log".into());
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

#[repr(C)]
struct Tab<R> {
    base: sqlite3_vtab,
    source: Shared,
    relation: PhantomData<R>,
}

/// The whole table, for the planner's number of a way.
const ALL: c_int = -1;

// SAFETY: `repr(C)`, and SQLite's own part comes first.
unsafe impl<'vtab, R: Relation> VTab<'vtab> for Tab<R> {
    type Aux = Shared;
    type Cursor = Cursor<R>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Shared>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let source = aux.cloned().ok_or_else(|| rusqlite::Error::ModuleError("there is nothing to read".into()))?;
        db.config(VTabConfig::Innocuous)?;
        let text = CString::new(declaration::<R>())?;
        Ok((Cow::Owned(text), Tab { base: sqlite3_vtab::default(), source, relation: PhantomData }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        guarded(|| best_index::<R>(info))
    }

    fn open(&'vtab mut self) -> Result<Cursor<R>> {
        Ok(Cursor { base: sqlite3_vtab_cursor::default(), source: self.source.clone(), scan: None, row: None })
    }
}

fn best_index<R: Relation>(info: &mut IndexInfo) -> Result<bool> {
    let columns = R::columns();
    let mut comparisons = Vec::new();
    for (number, constraint) in info.constraints().enumerate() {
        let column = usize::try_from(constraint.column()).unwrap_or(usize::MAX);
        let op = match constraint.operator() {
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Op::Equal,
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GLOB => Op::Glob,
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LIKE => Op::Like,
            _ => Op::Other,
        };
        // Names that are equal but for the case are not found under one key.
        let is_text = columns.get(column).is_some_and(|column| column.kind == Kind::Text);
        let op = match op {
            Op::Equal if is_text && info.collation(number)? != "BINARY" => Op::Other,
            op => op,
        };
        comparisons.push(Comparison { column, op, is_usable: constraint.is_usable() });
    }
    let (way, rows) = match choose(R::WAYS, &comparisons) {
        Plan::Impossible => return Ok(false),
        Plan::All => (ALL, R::ROWS),
        Plan::By(way, args) => {
            for (place, comparison) in args.into_iter().enumerate() {
                // What was found this way is compared once more: it costs little.
                info.constraint_usage(comparison).set_argv_index(place as c_int + 1);
            }
            (way as c_int, R::WAYS[way].rows)
        }
    };
    info.set_idx_num(way);
    info.set_estimated_rows(rows as i64);
    // Beginning costs some rows too: a table by key a million times is dearer than once the whole.
    info.set_estimated_cost(rows + 3.0);
    Ok(true)
}

#[repr(C)]
struct Cursor<R: Relation> {
    base: sqlite3_vtab_cursor,
    source: Shared,
    scan: Option<R::Scan>,
    row: Option<R::Row>,
}

impl<R: Relation> Cursor<R> {
    fn begin(&mut self, way: c_int, args: &Filters<'_>) -> Result<()> {
        let args = args.iter().map(cell::of).collect();
        let begun = {
            let mut source = self.source.lock();
            R::begin(&mut source, usize::try_from(way).ok(), args).map_err(|error| source.fail(error))
        };
        self.scan = Some(begun?);
        self.go_on()
    }

    fn go_on(&mut self) -> Result<()> {
        self.row = None;
        if let Some(scan) = &mut self.scan {
            let mut source = self.source.lock();
            self.row = R::next(scan, &mut source).map_err(|error| source.fail(error))?;
        }
        Ok(())
    }

    fn cell(&self, cx: &mut Context, column: c_int) -> Result<()> {
        let Some(row) = &self.row else { return Ok(()) };
        let mut source = self.source.lock();
        let found = R::cell(row, usize::try_from(column).unwrap_or(usize::MAX), &mut source);
        cell::set(cx, found.map_err(|error| source.fail(error))?)
    }
}

// SAFETY: `repr(C)`, and SQLite's own part comes first.
unsafe impl<R: Relation> VTabCursor for Cursor<R> {
    fn filter(&mut self, way: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        guarded(|| self.begin(way, args))
    }

    fn next(&mut self) -> Result<()> {
        guarded(|| self.go_on())
    }

    fn eof(&self) -> bool {
        self.row.is_none()
    }

    fn column(&self, cx: &mut Context, column: c_int) -> Result<()> {
        guarded(|| self.cell(cx, column))
    }

    fn rowid(&self) -> Result<i64> {
        Err(rusqlite::Error::ModuleError("rows have no numbers".into()))
    }
}
