use crate::TransferError;
use braid_meta_engine::{Engine, EngineError, Key, Operation, Page, Row, Table, Tx};
use std::collections::VecDeque;
use std::future::Future;

/// Rows of a store in one read.
pub(crate) const PAGE_ROWS: usize = 1024;

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

    /// As [`RowSource::next`], with the engine's own errors.
    pub(crate) async fn page(&mut self) -> Result<Option<Batch>, EngineError> {
        while let Some(table) = self.left.front().copied() {
            let read = ReadPage { table, after: self.after.take() };
            let Page { rows, more } = self.engine.read(0, read).await?;
            match rows.last() {
                Some((last, _)) if more => self.after = Some(last.clone()),
                _ => _ = self.left.pop_front(),
            }
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }
}

impl<E: Engine> RowSource for StoredRows<'_, E> {
    async fn next(&mut self) -> Result<Option<Batch>, TransferError> {
        self.page().await.map_err(|error| TransferError::Source(format!("the store that is left: {error}")))
    }
}

struct ReadPage {
    table: Table,
    after: Option<Key>,
}

impl Operation for ReadPage {
    type Output = Page;
    type Error = EngineError;

    async fn run(&self, tx: &mut dyn Tx) -> Result<Page, EngineError> {
        tx.scan_table(self.table, self.after.as_ref(), PAGE_ROWS).await
    }
}
