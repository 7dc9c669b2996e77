use crate::{EngineError, Key, Page, Row, Table};

/// One moment of some tables, for who reads much of them: queries in SQL, copies of the whole. See [`Engine::snapshot`].
///
/// It belongs to nobody but its user and outlives the engine. It blocks, so it is not for threads that run tasks. However
/// long it is kept, it holds up nobody for more than some seconds: where its moment costs others something (pages that cannot be
/// used again), it moves to a copy of its own after a while, in pieces, with each of these calls.
///
/// [`Engine::snapshot`]: crate::Engine::snapshot
pub trait Snapshot: Send {
    fn get(&mut self, key: &Key) -> Result<Option<Row>, EngineError>;

    /// As [`Tx::scan`](crate::Tx::scan).
    fn scan(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError>;

    /// As [`Tx::scan_table`](crate::Tx::scan_table).
    fn scan_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError>;

    /// To be called a few times a second by a user that reads nothing for longer than that.
    fn tick(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// What an engine says of a table that a snapshot was not asked for.
pub fn not_asked_for(table: Table) -> EngineError {
    EngineError::Storage(format!("{table:?} is not among the tables of the snapshot"))
}
