//! What a query may do: look. Everything else is refused when it is prepared, before anything runs.
//!
//! Three locks on one door: the authorizer here, a query that SQLite itself does not call read-only is not begun (`run.rs`), and the
//! database it could write to is empty and in memory.

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use std::sync::Arc;

/// Memory of all queries of the process together, as SQLite counts it.
pub const HEAP_BYTES_MAX: u64 = 256 << 20;
/// One value, and one row where rows are sorted: four of them and more fit a message.
pub const VALUE_BYTES_MAX: i32 = 256 << 10;
/// Of a query's text.
const SQL_BYTES_MAX: i32 = 64 << 10;

/// What was refused.
pub type Refused = Arc<Mutex<Option<String>>>;

/// To be called before the tables are known: from here on nothing but what is asked for can be done.
pub fn bound(connection: &Connection) -> rusqlite::Result<()> {
    // Sorting and grouping keep 8 MiB in memory each, the rest in files without names in $SQLITE_TMPDIR, $TMPDIR or /var/tmp.
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit={HEAP_BYTES_MAX}; PRAGMA cache_size=-8192; PRAGMA temp_store=FILE; \
         PRAGMA trusted_schema=OFF; PRAGMA query_only=ON;"
    ))?;
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (Limit::SQLITE_LIMIT_COLUMN, 500),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    ] {
        connection.set_limit(limit, most)?;
    }
    Ok(())
}

pub fn allow_looking(connection: &mut Connection) -> rusqlite::Result<Refused> {
    let refused = Refused::default();
    let note = refused.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| match refusal(&context.action) {
        None => Authorization::Allow,
        Some(what) => {
            note.lock().get_or_insert(what);
            Authorization::Deny
        }
    }))?;
    Ok(refused)
}

/// In words for whoever asked, as what the query would do; `None`: it may.
fn refusal(action: &AuthAction<'_>) -> Option<String> {
    use AuthAction::*;
    Some(match action {
        Select | Read { .. } | Recursive => return None,
        // Of what is built in only these reach beyond their arguments; they are switched off besides.
        Function { function_name } => match function_name.to_ascii_lowercase().as_str() {
            name @ ("load_extension" | "fts3_tokenizer") => format!("call {name}"),
            _ => return None,
        },
        // Its own list of tables is what SQLite names first.
        Insert { table_name } | Update { table_name, .. } | Delete { table_name }
            if table_name.starts_with("sqlite_") =>
        {
            "change the tables".to_owned()
        }
        Insert { table_name } => format!("insert into {table_name}"),
        Update { table_name, .. } => format!("update {table_name}"),
        Delete { table_name } => format!("delete from {table_name}"),
        Pragma { pragma_name, .. } => format!("use PRAGMA {pragma_name}"),
        Attach { .. } | Detach { .. } => "attach another database".to_owned(),
        Transaction { .. } | Savepoint { .. } => "begin or end a transaction".to_owned(),
        _ => "change the tables".to_owned(),
    })
}
