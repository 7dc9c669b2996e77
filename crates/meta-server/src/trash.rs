//! Removes what has been in the trash for longer than it is to be kept there.
//!
//! Promises: an item that `braid fs trash` made goes when it was put there longer ago than `trash_keep`, some minutes later at the latest; an
//! item with a sealed file in it stays; what somebody put there by hand is not looked at; one that cannot be removed keeps no other.

use crate::call::Call;
use crate::server::MetaServer;
use braid_api::meta::{GetXattr, Lookup, MetaAnswer, ReadDir, RemoveDir};
use braid_api::{Code, Error, Result, trash};
use braid_env::Monotonic;
use braid_lease::Key;
use braid_meta_engine::Engine;
use braid_meta_namespace::{OpContext, Recorded};
use braid_types::{Attr, InodeId, Name, SessionId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Between two looks: a tenth of the time for which things are kept, within these.
const LOOK_MIN: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(600);

/// Before an item that could not be removed is looked at again: it may be large, with one sealed file in it.
const AGAIN: Duration = Duration::from_secs(3600);

/// Entries read at once.
const PAGE: u32 = 1024;

/// Items that could not be removed, and when.
type Refused = BTreeMap<InodeId, Monotonic>;

impl MetaServer {
    pub(crate) fn keep_trash(self: Arc<Self>) {
        let keep = self.config.trash_keep;
        if keep.is_zero() {
            return;
        }
        // It sleeps for long: nobody who has stopped this server waits for it.
        let (env, server) = (self.env.clone(), Arc::downgrade(&self));
        env.clone().spawn("trash", async move {
            let mut refused = Refused::new();
            loop {
                env.sleep((keep / 10).clamp(LOOK_MIN, LOOK_MAX)).await;
                let Some(server) = server.upgrade().filter(|server| !server.stopping.load(Relaxed)) else { return };
                if !server.recovery.is_open() {
                    continue;
                }
                if let Err(e) = server.expire_trash(&mut refused).await {
                    tracing::warn!("the trash is looked through later: {e}");
                }
            }
        });
    }

    async fn expire_trash(&self, refused: &mut Refused) -> Result<()> {
        // What is in it by a backup may be elsewhere by the next.
        if self.restored.lock().is_some() {
            return Ok(());
        }
        let mut call = Call::new(None);
        let mut trash = InodeId::ROOT;
        for name in trash::PLACE {
            let name: Name = name.parse().map_err(|e| Error::new(Code::Internal, "the trash", e))?;
            match self.ask(&mut call, trash, Lookup { parent: trash, name }).await?.attr {
                Some(attr) if attr.is_dir() => trash = attr.id,
                _ => return Ok(()),
            }
        }
        let now = self.env.clock.now();
        refused.retain(|_, at| now.since(*at) < AGAIN);
        for (_, user) in self.directories(trash).await? {
            for (name, item) in self.directories(user.id).await? {
                if item.btime.until(self.env.clock.wall()) < self.config.trash_keep || refused.contains_key(&item.id) {
                    continue;
                }
                if let Err(e) = self.remove_expired(user.id, &name, item.id).await {
                    tracing::debug!(item = item.id.0, "stays in the trash: {e}");
                    refused.insert(item.id, now);
                }
            }
        }
        Ok(())
    }

    async fn directories(&self, inode: InodeId) -> Result<Vec<(Name, Attr)>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = ReadDir { inode, after, limit: PAGE, plus: true, knows: Vec::new() };
            let page = self.ask(&mut Call::new(None), inode, page).await?;
            after = page.entries.last().filter(|_| page.more).map(|(name, ..)| name.clone());
            let dirs = page.entries.into_iter().filter_map(|(name, _, _, attr)| Some((name, attr?)));
            found.extend(dirs.filter(|(_, attr)| attr.is_dir()));
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    async fn remove_expired(&self, user: InodeId, name: &Name, item: InodeId) -> Result<()> {
        let mut call = Call::new(None);
        let from = GetXattr { inode: item.into(), name: Bytes::from_static(trash::FROM) };
        self.ask(&mut call, item, from).await?;
        let mutation = RemoveDir { parent: user.into(), name: name.clone(), tree: true };
        self.expect_no_seals(&mut call, None, &mutation).await?;
        let keys =
            vec![Key::Dir(user), Key::Name(user, name.clone()), Key::Attr(user), Key::Dir(item), Key::Attr(item)];
        let cx =
            OpContext { now: self.env.clock.wall(), ..OpContext::default() }.expecting(item).map_err(Error::from)?;
        let remove = Recorded { cx, mutation, message: 0, answer: MetaAnswer::RemoveDir };
        let change = async { self.engine.transact(user.0, remove).await.map_err(Error::from) };
        self.announced_keys(SessionId(0), keys, change).await?;
        self.tree_listed(item);
        tracing::info!(item = item.0, "has been in the trash for long enough");
        Ok(())
    }
}
