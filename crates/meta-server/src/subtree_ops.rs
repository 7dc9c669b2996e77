//! Trees that are looked through behind what made that necessary: they are charged to others, another policy holds in them, or all that is
//! in them is changed.
//!
//! Promises: what is listed is done whoever listed it, and what a start finds listed is gone on with; a directory that cannot be looked
//! through keeps none of the others waiting, and is named by `braid admin why`; memory is bounded by a page of the list.

use crate::server::MetaServer;
use crate::tree_changes::LEFT_KEPT;
use braid_api::admin::Waiting;
use braid_api::{Error, Result};
use braid_meta_engine::{Engine, Key};
use braid_meta_namespace::ops::subtree_ops::{ListSubtreeOps, Listed};
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Notify;

/// Listed directories that are read at once.
const LISTED_A_PAGE: usize = 64;
/// Directories looked through at once: their transactions share syncs.
const AT_ONCE: usize = 16;
/// Between two looks whether all have been; doubled up to this.
const LOOK_MAX: Duration = Duration::from_millis(64);
/// After an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two pages of a tree: others change things, too.
pub(crate) const BREATH: Duration = Duration::from_millis(1);

pub(crate) struct SubtreeOps {
    /// There may be something listed, or all is over.
    bell: Notify,
}

impl Default for SubtreeOps {
    fn default() -> Self {
        let ops = SubtreeOps { bell: Notify::new() };
        // What an older server has left.
        ops.look();
        ops
    }
}

impl SubtreeOps {
    /// There may be something listed; or all is over.
    pub(crate) fn look(&self) {
        self.bell.notify_one();
    }
}

impl MetaServer {
    pub(crate) fn look_through_trees(self: Arc<Self>) {
        let env = self.env.clone();
        env.spawn("looking through trees", async move {
            loop {
                // What changes have left as it is is told for an hour, and nobody rings when that is over.
                let _ = self.env.timeout(LEFT_KEPT, self.subtree_ops.bell.notified()).await;
                while !self.stopping.load(Relaxed) {
                    if !self.recovery.is_open() {
                        self.env.sleep(PAUSE).await;
                        continue;
                    }
                    match self.look_through_listed().await {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(e) => {
                            tracing::warn!("a tree is looked through later: {e}");
                            self.freeing_waits(Waiting::new(
                                "quotas, policies or rights of a tree to be told to what is in it".to_owned(),
                                e.to_string(),
                            ));
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

    async fn listed_behind(&self, after: Option<Key>) -> Result<Vec<(Key, Listed)>> {
        self.engine.read(0, ListSubtreeOps { after, limit: LISTED_A_PAGE }).await.map_err(Error::from)
    }

    /// Some of what is listed; false: there was nothing.
    async fn look_through_listed(&self) -> Result<bool> {
        let (mut after, mut found, mut failed) = (None, false, None);
        loop {
            let page = self.listed_behind(after.clone()).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            found |= page.iter().any(|(_, listed)| !matches!(listed, Listed::Left(_)));
            let each = page.into_iter().map(|(key, listed)| self.look_through(key, listed));
            let mut under_way = futures_util::stream::iter(each).buffer_unordered(AT_ONCE);
            while let Some(done) = under_way.next().await {
                if let Err(e) = done {
                    failed.get_or_insert(e);
                }
            }
            if self.stopping.load(Relaxed) {
                return Ok(true);
            }
        }
        match failed {
            Some(e) => return Err(e),
            None if found => return Ok(true),
            None => {}
        }
        self.all_are_charged().await?;
        Ok(false)
    }

    async fn look_through(&self, key: Key, listed: Listed) -> Result<()> {
        match listed {
            _ if self.stopping.load(Relaxed) => Ok(()),
            Listed::Restamp(dir, roots) => self.charge_entries(dir, &roots).await,
            Listed::Spread(dir, _) => self.spread_policy(dir).await,
            Listed::Change(dir, op) => self.change_entries(dir, op).await,
            Listed::Left(at) => self.forget_left(key, at).await,
        }
    }

    pub(crate) async fn any_listed(&self, is_it: impl Fn(&Listed) -> bool) -> Result<bool> {
        Ok(self.count_listed(1, is_it).await? > 0)
    }

    /// How many are listed of some kind: no more than `most` are counted. The list is read in pages, and one that was listed behind the last page
    /// by one that has gone before the next is in neither: where there seem to be none it is looked again.
    pub(crate) async fn count_listed(&self, most: u64, is_it: impl Fn(&Listed) -> bool) -> Result<u64> {
        match self.count_once(most, &is_it).await? {
            0 => self.count_once(most, &is_it).await,
            count => Ok(count),
        }
    }

    async fn count_once(&self, most: u64, is_it: &impl Fn(&Listed) -> bool) -> Result<u64> {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.listed_behind(after).await?;
            count += page.iter().filter(|(_, listed)| is_it(listed)).count() as u64;
            match page.into_iter().next_back() {
                Some((last, _)) if count < most => after = Some(last),
                _ => return Ok(count.min(most)),
            }
        }
    }

    /// Returns when none of some kind is listed, or after a time.
    pub(crate) async fn until_looked_through(&self, wait_max: Duration, is_it: impl Fn(&Listed) -> bool) -> Result<()> {
        let until = self.env.clock.now().0.saturating_add(wait_max);
        let mut pause = BREATH;
        while self.any_listed(&is_it).await? && self.env.clock.now().0 < until && !self.stopping.load(Relaxed) {
            self.env.sleep(pause).await;
            pause = LOOK_MAX.min(2 * pause);
        }
        Ok(())
    }
}
