//! A policy is set or cleared, and told to the directories below (`meta_namespace::ops::spread`).
//!
//! Promises: what is set holds in the directory itself when it is answered, whatever dies then it comes to hold in all below that have none
//! of their own, and the answer waits for that for as long as a call may take.

use crate::server::MetaServer;
use crate::subtree_ops::BREATH;
use braid_api::{Error, Result};
use braid_meta_engine::Engine;
use braid_meta_namespace::ops::spread::SpreadPolicy;
use braid_meta_namespace::ops::subtree_ops::{ENTRIES_A_PAGE, Listed};
use braid_types::InodeId;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Less than a client waits (`client.deadline` is 60 s, unless set): one that gives up earlier is told so, and the policy holds.
const WAIT_MAX: Duration = Duration::from_secs(30);

impl MetaServer {
    pub(crate) async fn policy_is_told(&self, top: InodeId) -> Result<()> {
        self.until_looked_through(WAIT_MAX, |listed| matches!(listed, Listed::Spread(_, of) if *of == top)).await
    }

    pub(crate) async fn spread_policy(&self, dir: InodeId) -> Result<()> {
        let page = SpreadPolicy { dir, limit: ENTRIES_A_PAGE };
        while self.engine.transact(dir.0, page.clone()).await.map_err(Error::from)? && !self.stopping.load(Relaxed) {
            self.env.sleep(BREATH).await;
        }
        Ok(())
    }
}
