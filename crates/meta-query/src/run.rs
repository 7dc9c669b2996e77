//! One query, from its text to its last row, on the thread that calls.

use crate::guard::{self, HEAP_BYTES_MAX, Refused, VALUE_BYTES_MAX};
use crate::module::register;
use crate::source::{Shared, Source};
use crate::{QueryError, cell, tables};
use braid_api::admin::SqlValue;
use braid_api::meta::ServerInfo;
use braid_meta_engine::{EngineError, Snapshot, Table};
use parking_lot::Mutex;
use rusqlite::{Connection, Error, ErrorCode, Statement};
use std::sync::Arc;

/// Tables that the schema is made from; a snapshot needs no others.
pub const TABLES: &[Table] = &[
    Table::Inodes,
    Table::InodeIds,
    Table::Chunks,
    Table::Xattrs,
    Table::Quotas,
    Table::Snapshots,
    Table::Policies,
    Table::Sessions,
    Table::Spares,
    Table::Containers,
    Table::Servers,
    Table::Orphans,
    Table::Reclaim,
];

/// Why to stop, if to. Asked often, from wherever the query is.
pub type Stop = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Whoever the answer is for.
pub trait Asker {
    /// The query can be run: this is what it will answer. Gives the moment that it is about: a snapshot of [`TABLES`].
    fn begin(&mut self, columns: Vec<String>) -> Result<Box<dyn Snapshot>, EngineError>;

    /// The next row. While it waits for room it calls `tick` a few times a second.
    fn row(&mut self, row: Vec<SqlValue>, tick: &mut dyn FnMut() -> Result<(), EngineError>) -> Result<(), QueryError>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows of the answer.
    pub answered: u64,
    /// Rows of the store that were read for it.
    pub read: u64,
}

/// Instructions of SQLite between two looks at whether to stop: some 50 µs.
const STEPS: i32 = 2000;

/// Runs a query. `servers`: what no row says of data servers.
pub fn run(query: &str, servers: Vec<ServerInfo>, stop: Stop, asker: &mut dyn Asker) -> Result<Done, QueryError> {
    let source: Shared = Arc::new(Mutex::new(Source::new(servers, stop.clone())));
    let told = |error| of(error, &source, None, query);
    let mut connection = open(&source, stop).map_err(told)?;
    let refused = guard::allow_looking(&mut connection).map_err(told)?;
    let result = answer(&connection, query, &source, &refused, asker);
    let mut source = source.lock();
    let answered = result.map_err(|error| source.failed.take().unwrap_or(error))?;
    Ok(Done { answered, read: source.rows })
}

fn open(source: &Shared, stop: Stop) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    guard::bound(&connection)?;
    register::<tables::Files>(&connection, source)?;
    register::<tables::Inodes>(&connection, source)?;
    register::<tables::Chunks>(&connection, source)?;
    register::<tables::Containers>(&connection, source)?;
    register::<tables::Replicas>(&connection, source)?;
    register::<tables::Servers>(&connection, source)?;
    register::<tables::Policies>(&connection, source)?;
    register::<tables::Quotas>(&connection, source)?;
    register::<tables::Snapshots>(&connection, source)?;
    register::<tables::Xattrs>(&connection, source)?;
    register::<tables::Sessions>(&connection, source)?;
    register::<tables::Orphans>(&connection, source)?;
    register::<tables::Spares>(&connection, source)?;
    register::<tables::Reclaim>(&connection, source)?;
    let source = source.clone();
    let progress = move || {
        // Where a table is being read, that looks itself.
        let Some(mut source) = source.try_lock() else { return false };
        let failed = stop().map(QueryError::Stopped).or_else(|| source.tick().err().map(QueryError::Engine));
        let ends = failed.is_some();
        if source.failed.is_none() {
            source.failed = failed;
        }
        ends
    };
    connection.progress_handler(STEPS, Some(progress))?;
    Ok(connection)
}

fn answer(
    connection: &Connection,
    query: &str,
    source: &Shared,
    refused: &Refused,
    asker: &mut dyn Asker,
) -> Result<u64, QueryError> {
    let told = |error| of(error, source, Some(refused), query);
    let mut statement = connection.prepare(query).map_err(told)?;
    check(&statement)?;
    let columns = statement.column_names().map(str::to_owned).collect();
    let snapshot = asker.begin(columns)?;
    source.lock().snapshot = Some(snapshot);
    let width = statement.column_count();
    let mut rows = statement.query([]).map_err(told)?;
    let mut answered = 0;
    while let Some(row) = rows.next().map_err(told)? {
        let cells = (0..width).map(|column| row.get_ref(column).map(cell::of)).collect::<Result<_, _>>();
        asker.row(cells.map_err(told)?, &mut || source.lock().tick())?;
        answered += 1;
    }
    Ok(answered)
}

fn check(statement: &Statement<'_>) -> Result<(), QueryError> {
    if statement.column_count() == 0 {
        return Err(QueryError::Wrong { message: "it asks for nothing: it must be a SELECT".into(), at: None });
    }
    match statement.readonly() {
        true => Ok(()),
        false => Err(QueryError::NotAllowed("change something".into())),
    }
}

/// SQLite's errors, at one door.
fn of(error: Error, source: &Shared, refused: Option<&Refused>, query: &str) -> QueryError {
    if let Some(failed) = source.lock().failed.take() {
        return failed;
    }
    if let Some(what) = refused.and_then(|refused| refused.lock().take()) {
        return QueryError::NotAllowed(what);
    }
    let (code, message, at) = match error {
        Error::SqlInputError { error, msg, offset, sql } => {
            // What lies behind a first statement is read by itself.
            let begins = query.strip_suffix(sql.as_str()).map_or(0, str::len);
            let at = usize::try_from(offset).ok().and_then(|offset| query.get(..begins + offset));
            (error.code, msg, at.map(|before| before.chars().count() + 1))
        }
        Error::SqliteFailure(error, message) => (error.code, message.unwrap_or_else(|| error.to_string()), None),
        Error::MultipleStatement => {
            return QueryError::Wrong { message: "these are several statements: ask one at a time".into(), at: None };
        }
        Error::Empty => return QueryError::Wrong { message: "there is no question in it".into(), at: None },
        Error::NulError(_) => return QueryError::Wrong { message: "there is a zero byte in it".into(), at: None },
        other => return QueryError::Sqlite(other.to_string()),
    };
    match code {
        ErrorCode::OutOfMemory => QueryError::TooLarge(format!(
            "it needs more memory than the {} MiB that all queries have",
            HEAP_BYTES_MAX >> 20
        )),
        ErrorCode::TooBig => QueryError::TooLarge(format!(
            "a value or a row has more than the {} KiB that are possible",
            VALUE_BYTES_MAX >> 10
        )),
        ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => QueryError::TooLarge(format!(
            "there is no room for what it sorts, in $SQLITE_TMPDIR, $TMPDIR or /var/tmp: {message}"
        )),
        ErrorCode::OperationInterrupted => QueryError::Stopped("it was told to end".into()),
        ErrorCode::Unknown => QueryError::Wrong { message, at },
        _ => QueryError::Sqlite(message),
    }
}
