//! Values on their way into SQLite and out of it.

use braid_api::admin::SqlValue;
use braid_types::Timestamp;
use rusqlite::types::{Null, ValueRef};
use rusqlite::vtab::Context;

/// A name or a path: text where it is text.
pub fn text(bytes: &[u8]) -> SqlValue {
    match std::str::from_utf8(bytes) {
        Ok(text) => SqlValue::Text(text.to_owned()),
        Err(_) => SqlValue::Blob(bytes.to_vec()),
    }
}

/// Sizes and ids: SQLite's integers have a sign, and none of ours comes near it.
pub fn number(n: u64) -> SqlValue {
    SqlValue::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

pub fn flag(is: bool) -> SqlValue {
    SqlValue::Integer(i64::from(is))
}

pub fn word(word: impl ToString) -> SqlValue {
    SqlValue::Text(word.to_string())
}

/// Seconds since 1970, as SQLite's functions of time take them.
pub fn time(at: Timestamp) -> SqlValue {
    SqlValue::Real(at.secs() as f64 + f64::from(at.subsec_nanos()) / 1e9)
}

pub fn or_null<T>(value: Option<T>, cell: impl FnOnce(T) -> SqlValue) -> SqlValue {
    value.map_or(SqlValue::Null, cell)
}

pub fn of(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(n) => SqlValue::Integer(n),
        ValueRef::Real(n) => SqlValue::Real(n),
        ValueRef::Text(bytes) => text(bytes),
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
    }
}

pub fn set(cx: &mut Context, value: SqlValue) -> rusqlite::Result<()> {
    match value {
        SqlValue::Null => cx.set_result(Null),
        SqlValue::Integer(n) => cx.set_result(n),
        SqlValue::Real(n) => cx.set_result(n),
        SqlValue::Text(text) => cx.set_result(text),
        SqlValue::Blob(bytes) => cx.set_result(bytes),
    }
}

/// The id that a column of ids is compared with; `None`: it equals none. SQLite hands the other side of `=` over as it is, and
/// compares it with numbers as numbers.
pub fn as_id(value: &SqlValue) -> Option<u64> {
    match value {
        SqlValue::Integer(n) => u64::try_from(*n).ok(),
        SqlValue::Real(n) if *n >= 0.0 && n.fract() == 0.0 && *n < 9e18 => Some(*n as u64),
        SqlValue::Text(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse().ok().and_then(|n| as_id(&SqlValue::Real(n))))
        }
        _ => None,
    }
}

/// The name or path that a column is compared with.
pub fn as_bytes(value: &SqlValue) -> Option<&[u8]> {
    match value {
        SqlValue::Text(text) => Some(text.as_bytes()),
        SqlValue::Blob(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_in_what_compares_equal_to_it() {
        let of = |text: &str| as_id(&SqlValue::Text(text.into()));
        assert_eq!(
            [of("4096"), of(" 4096 "), of("4096.0"), of("x"), of("-1")],
            [Some(4096), Some(4096), Some(4096), None, None]
        );
        assert_eq!(as_id(&SqlValue::Real(7.0)), Some(7));
        assert_eq!([as_id(&SqlValue::Real(7.5)), as_id(&SqlValue::Integer(-7)), as_id(&SqlValue::Null)], [None; 3]);
    }
}
