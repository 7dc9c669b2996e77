//! A snapshot: a transaction of its own, on a connection beside the others, that reads one moment until it is dropped.
//!
//! The database keeps old versions of rows while it is open (InnoDB's undo log grows by what is changed meanwhile); its user
//! bounds how long that is.

use crate::engine::SqlEngine;
use crate::failure::Cause;
use crate::read::SNAPSHOT;
use crate::select;
use crate::session::{Done, Message, Session};
use braid_meta_engine::{EngineError, Key, Overlay, Page, Row, ScanRange, Snapshot, Table, not_asked_for};
use tokio::runtime::Handle;

struct SqlSnapshot {
    /// There until it is dropped.
    session: Option<Session>,
    /// That the connection lives in.
    runtime: Handle,
    asked: Vec<Table>,
}

impl SqlEngine {
    pub(crate) async fn take_snapshot(&self, tables: &[Table]) -> Result<Box<dyn Snapshot>, EngineError> {
        if !self.capabilities().snapshots {
            let why = "several statements of its database cannot see one moment";
            return Err(EngineError::Unsupported(why.into()));
        }
        let mut session = self.pool().connect_apart().await.map_err(Cause::into_error)?;
        session.run(&Message::of(SNAPSHOT)).await.map_err(|failed| failed.cause.into_error())?;
        Ok(Box::new(SqlSnapshot { session: Some(session), runtime: Handle::current(), asked: tables.to_vec() }))
    }
}

impl SqlSnapshot {
    fn check(&self, table: Table) -> Result<(), EngineError> {
        self.asked.contains(&table).then_some(()).ok_or_else(|| not_asked_for(table))
    }

    fn ask(&mut self, statement: String) -> Result<Done, EngineError> {
        let lost = || EngineError::Storage("the snapshot was lost with its connection to the database".into());
        // Another connection would see another moment.
        let session = self.session.as_mut().filter(|session| session.is_usable()).ok_or_else(lost)?;
        let done = self.runtime.block_on(session.run(&Message::of([statement])));
        done.map_err(|failed| failed.cause.into_error())?.pop().ok_or_else(lost)
    }
}

impl Snapshot for SqlSnapshot {
    fn get(&mut self, key: &Key) -> Result<Option<Row>, EngineError> {
        self.check(key.table())?;
        let mut done = self.ask(select::plain(std::slice::from_ref(key)))?;
        done.rows.pop().map(|cells| select::decode(cells).map(|(_, row)| row)).transpose()
    }

    fn scan(&mut self, prefix: &Key, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.check(prefix.table())?;
        let text = select::scan(prefix, after, limit.saturating_add(1) as u64, braid_meta_engine::Lock::None);
        let rows = self.ask(text)?.rows.into_iter().map(|cells| select::decode_in(prefix, cells));
        Overlay::default().merge(&ScanRange::prefix(prefix, after), limit, rows)
    }

    fn scan_table(&mut self, table: Table, after: Option<&Key>, limit: usize) -> Result<Page, EngineError> {
        self.check(table)?;
        let done = self.ask(select::whole(table, after, limit.saturating_add(1) as u64))?;
        Overlay::default().merge(&ScanRange::table(table, after), limit, done.rows.into_iter().map(select::decode))
    }
}

impl Drop for SqlSnapshot {
    fn drop(&mut self) {
        // A connection is closed by a task.
        let _inside = self.runtime.enter();
        drop(self.session.take());
    }
}
