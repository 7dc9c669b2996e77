use crate::QueryError;
use crate::plan::Way;
use crate::schema::Column;
use crate::source::Source;
use braid_api::admin::SqlValue;

/// A table of the schema over the rows.
pub trait Relation: Sized + 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;
    /// Columns that name a row, for SQLite to tell rows apart.
    const KEY: &'static str;
    /// Ways to less than the whole, the best first.
    const WAYS: &'static [Way] = &[];
    /// Rows in the whole, for the planner to compare tables by.
    const ROWS: f64;

    /// What a cursor keeps between rows.
    type Scan;
    type Row;

    /// In the order of their numbers.
    fn columns() -> Vec<Column>;

    /// Begins to read by one of [`Relation::WAYS`], whose arguments these are, or the whole.
    fn begin(source: &mut Source, way: Option<usize>, args: Vec<SqlValue>) -> Result<Self::Scan, QueryError>;

    fn next(scan: &mut Self::Scan, source: &mut Source) -> Result<Option<Self::Row>, QueryError>;

    /// A column of a row; asked for only where the query uses it.
    fn cell(row: &Self::Row, column: usize, source: &mut Source) -> Result<SqlValue, QueryError>;
}
