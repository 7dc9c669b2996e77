//! Queries in SQL about the metadata. This server hands them on: who runs them has threads and clocks of its own, which a simulation has
//! not, so it is given from outside, or there is none.

use crate::server::MetaServer;
use braid_api::admin::{AdminAnswer, SqlBegun, SqlPage};
use braid_api::meta::ServerInfo;
use braid_api::{Code, Error, Result};
use braid_env::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

pub trait Queries: Send + Sync {
    /// Begins one over the moment that is now, and ends it after `timeout`. `servers`: what no row says of them.
    fn begin(&self, query: String, timeout: Duration, servers: Vec<ServerInfo>) -> BoxFuture<'_, Result<SqlBegun>>;

    /// Waits a little for a page. The last one can be had once more: its answer may have been lost.
    fn next(&self, cursor: u64, page: u64) -> BoxFuture<'_, Result<SqlPage>>;

    fn end(&self, cursor: u64);

    /// Begins to read all rows of the moment that is now: [`AdminQuery::RowsBegin`](braid_api::admin::AdminQuery::RowsBegin).
    fn begin_rows(&self, timeout: Duration) -> BoxFuture<'_, Result<SqlBegun>>;
}

impl MetaServer {
    pub(crate) fn queries(&self) -> Result<&Arc<dyn Queries>> {
        let none = || Error::new(Code::NotSupported, "SQL", "this metadata server runs no queries");
        self.queries.as_ref().ok_or_else(none)
    }

    pub(crate) async fn sql_begin(&self, query: String, timeout_ms: u64) -> Result<AdminAnswer> {
        let servers = self.servers.infos(self.env.clock.now());
        let begun = self.queries()?.begin(query, Duration::from_millis(timeout_ms), servers).await?;
        Ok(AdminAnswer::SqlBegin(begun))
    }

    pub(crate) async fn sql_next(&self, cursor: u64, page: u64) -> Result<AdminAnswer> {
        Ok(AdminAnswer::SqlNext(self.queries()?.next(cursor, page).await?))
    }

    pub(crate) fn sql_end(&self, cursor: u64) -> Result<AdminAnswer> {
        self.queries()?.end(cursor);
        Ok(AdminAnswer::SqlEnd(()))
    }
}
