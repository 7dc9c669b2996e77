//! What only a snapshot had that is gone is freed, page by page, behind the answer.

use crate::server::MetaServer;
use braid_api::admin::Waiting;
use braid_api::{Error, Result};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::snapshot::SweepSnapshot;
use braid_types::InodeId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Rows that are looked at in one transaction: 10 µs or so each.
const ROWS_A_PAGE: usize = 256;
/// Between two pages: others change things, too.
const BREATH: Duration = Duration::from_millis(1);
/// After an error.
const PAUSE: Duration = Duration::from_secs(1);

impl MetaServer {
    pub(crate) fn sweep_snapshots(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("freeing of snapshots", async move {
            loop {
                self.snapshots.bell.notified().await;
                while let Some((root, number)) = self.snapshots.going().first().copied() {
                    if self.stopping.load(Relaxed) {
                        return;
                    }
                    let swept = match self.recovery.is_open() {
                        true => self.sweep(root, number).await,
                        false => Ok(false),
                    };
                    match swept {
                        Ok(true) => {}
                        Ok(false) => self.env.sleep(PAUSE).await,
                        Err(e) => {
                            tracing::warn!("what a snapshot had is freed later: {e}");
                            self.freeing_waits(Waiting::new("freeing of a snapshot".to_owned(), e.to_string()));
                            self.env.sleep(PAUSE).await;
                        }
                    }
                }
                if self.stopping.load(Relaxed) {
                    return;
                }
            }
        });
    }

    async fn sweep(&self, root: InodeId, number: u64) -> Result<bool> {
        let mut after = None;
        loop {
            let page = SweepSnapshot { root, number, after, limit: ROWS_A_PAGE };
            after = self.engine.transact(root.0, page).await.map_err(Error::from)?;
            if self.stopping.load(Relaxed) {
                return Ok(true);
            }
            if after.is_none() {
                let _alone = self.snapshots.changing.lock().await;
                self.read_snapshots().await?;
                return Ok(true);
            }
            self.env.sleep(BREATH).await;
        }
    }
}
