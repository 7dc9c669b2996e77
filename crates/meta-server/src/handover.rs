//! Rows that go to another store, or come from a backup. Holding changes back is the engine's, so who can do that is given from outside,
//! or there is nobody.

use crate::server::MetaServer;
use braid_api::admin::AdminAnswer;
use braid_api::{Code, Error, Result};
use braid_env::BoxFuture;
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::restored;
use std::sync::Arc;
use std::time::Duration;

/// However long somebody wants changes held back, nobody needs it for longer without saying so once more.
pub const HOLD_MAX: Duration = Duration::from_secs(60);

pub trait Handovers: Send + Sync {
    /// Holds all changes back for so long from now, or goes on with `hold`, or ends it where the time is 0. Refused where another one
    /// holds them, and where `hold` is over. Answers its number.
    fn hold(&self, hold: u64, time: Duration) -> BoxFuture<'_, Result<u64>>;

    /// Writes down that the rows are at `to`, if they have been held by `hold` until now. The server ends.
    fn move_away(&self, hold: u64, to: String) -> BoxFuture<'_, Result<()>>;

    /// They may be served elsewhere by now.
    fn may_have_gone(&self) -> bool;
}

impl MetaServer {
    fn handovers(&self) -> Result<&Arc<dyn Handovers>> {
        let none = || Error::new(Code::NotSupported, "the metadata", "this metadata server cannot hold changes back");
        self.handovers.as_ref().ok_or_else(none)
    }

    pub(crate) async fn rows_begin(&self, timeout_ms: u64) -> Result<AdminAnswer> {
        Ok(AdminAnswer::RowsBegin(self.queries()?.begin_rows(Duration::from_millis(timeout_ms)).await?))
    }

    pub(crate) async fn hold(&self, hold: u64, ms: u64) -> Result<AdminAnswer> {
        // For as long as it is held nothing changes; who serves beside this one could change something. Refused until they have stopped.
        let time = Duration::from_millis(ms).min(HOLD_MAX);
        if !time.is_zero() {
            self.stay_apart(time);
        }
        let _apart = self.apart("holding the metadata still")?;
        let held = self.handovers()?.hold(hold, time).await?;
        match time.is_zero() {
            true => self.end_apart(),
            // It is held for so long from now.
            false => self.stay_apart(time),
        }
        Ok(AdminAnswer::Hold(held))
    }

    pub(crate) async fn move_away(&self, hold: u64, to: String) -> Result<AdminAnswer> {
        let _apart = self.apart("moving the metadata")?;
        Ok(AdminAnswer::MoveAway(self.handovers()?.move_away(hold, to).await?))
    }

    pub(crate) async fn confirm_restored(&self) -> Result<AdminAnswer> {
        let is_new = self.engine.transact(0, restored::Confirm).await.map_err(Error::from)?;
        *self.restored.lock() = None;
        Ok(AdminAnswer::ConfirmRestored(is_new))
    }
}
