use crate::TransferError;
use crate::merge::ReadPage;
use braid_meta_engine::{Engine, Key, Row, Table};
use std::collections::VecDeque;
use std::future::Future;

/// Some rows, in the order of their keys.
pub type Batch = Vec<(Key, Row)>;

/// Rows of one moment in the order of their keys, each once.
pub trait RowSource: Send {
    /// The next rows; `None` after the last. Never an empty batch.
    fn next(&mut self) -> impl Future<Output = Result<Option<Batch>, TransferError>> + Send;
}

/// A store that nobody changes meanwhile.
pub struct StoredRows<'e, E> {
    engine: &'e E,
    /// Still to be read, the first one from after `after` on.
    left: VecDeque<Table>,
    after: Option<Key>,
}

impl<'e, E: Engine> StoredRows<'e, E> {
    pub fn of(engine: &'e E) -> Self {
        StoredRows { engine, left: Table::ALL.into(), after: None }
    }
}

impl<E: Engine> RowSource for StoredRows<'_, E> {
    async fn next(&mut self) -> Result<Option<Batch>, TransferError> {
        while let Some(table) = self.left.front().copied() {
            let read = ReadPage { table, after: self.after.take() };
            let failed = |error| TransferError::Source(format!("the store that is left: {error}"));
            let page = self.engine.read(0, read).await.map_err(failed)?;
            match page.rows.last() {
                Some((last, _)) if page.more => self.after = Some(last.clone()),
                _ => _ = self.left.pop_front(),
            }
            if !page.rows.is_empty() {
                return Ok(Some(page.rows));
            }
        }
        Ok(None)
    }
}
