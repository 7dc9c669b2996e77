//! Questions in SQL about the metadata, answered page by page: [`AdminQuery::SqlBegin`](crate::admin::AdminQuery::SqlBegin) and what
//! follows it. The tables are in docs/sql-metadata.md.

use serde::{Deserialize, Serialize};

/// A value of a column. Names and paths are bytes: those that are UTF-8 are `Text`, all others `Blob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SqlValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// A query that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlBegun {
    /// Under which it is asked for more. One that nobody asks for within [`SqlBegun::UNASKED_MS_MAX`] is ended.
    pub cursor: u64,
    pub columns: Vec<String>,
}

impl SqlBegun {
    pub const UNASKED_MS_MAX: u64 = 60_000;
}

/// Rows of the page that was asked for. No rows and `more`: none have been found yet, ask again for the same page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SqlPage {
    pub rows: Vec<Vec<SqlValue>>,
    pub more: bool,
}
