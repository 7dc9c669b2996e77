//! All rows of one moment, from the metadata server.

use crate::admin::{Cluster, strange};
use anyhow::Result;
use braid_api::Manner;
use braid_api::admin::{AdminAnswer, AdminQuery, SqlPage, SqlValue};
use braid_meta_engine::{Key, Row, Table};
use braid_meta_transfer::{Batch, RowSource, TransferError};
use std::time::Duration;

/// All rows of the largest cluster are read in less.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub struct ServedRows<'c> {
    cluster: &'c Cluster,
    cursor: u64,
    page: u64,
    ended: bool,
}

impl<'c> ServedRows<'c> {
    /// What is changed after this has returned is not among them.
    pub async fn begin(cluster: &'c Cluster) -> Result<ServedRows<'c>> {
        let begin = AdminQuery::RowsBegin { timeout_ms: TIMEOUT.as_millis() as u64 };
        // Once: a second attempt would be a second reader.
        let AdminAnswer::RowsBegin(begun) = cluster.call(begin, Manner::Once).await? else { return strange() };
        Ok(ServedRows { cluster, cursor: begun.cursor, page: 0, ended: false })
    }

    async fn fetch(&mut self) -> Result<Vec<Vec<SqlValue>>> {
        let next = AdminQuery::SqlNext { cursor: self.cursor, page: self.page };
        let AdminAnswer::SqlNext(SqlPage { rows, more }) = self.cluster.ask(next).await? else { return strange() };
        self.page += u64::from(!rows.is_empty());
        self.ended = !more;
        Ok(rows)
    }

    /// The server need not wait for whoever has failed.
    pub async fn end(self) {
        if !self.ended {
            let _ = self.cluster.ask(AdminQuery::SqlEnd { cursor: self.cursor }).await;
        }
    }
}

impl RowSource for ServedRows<'_> {
    async fn next(&mut self) -> Result<Option<Batch>, TransferError> {
        while !self.ended {
            let rows = self.fetch().await.map_err(|error| TransferError::Source(format!("{error:#}")))?;
            if !rows.is_empty() {
                return rows.into_iter().map(row_of).collect::<Option<Batch>>().map(Some).ok_or_else(unreadable);
            }
        }
        Ok(None)
    }
}

fn unreadable() -> TransferError {
    TransferError::Source("the metadata server answered what are no rows; is it of another version?".into())
}

fn row_of(values: Vec<SqlValue>) -> Option<(Key, Row)> {
    match <[SqlValue; 3]>::try_from(values).ok()? {
        [SqlValue::Integer(table), SqlValue::Blob(key), SqlValue::Blob(row)] => {
            let table = Table::from_number(u8::try_from(table).ok()?)?;
            Some((Key::from_bytes(table, &key)?, row))
        }
        _ => None,
    }
}
