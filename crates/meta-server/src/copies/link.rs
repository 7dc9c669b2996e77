//! The tasks of one data server.

use super::{CopySet, info};
use braid_api::data::{AppendGroups, DataAnswer, DataRequest, KeeperReport, PutBase, RecordSet, SyncGroups};
use braid_api::{AnyPeers, Carries, Code, Context, DataNode, DataPeers, Result};
use braid_env::Monotonic;
use braid_meta_engine::Copied;
use braid_types::ServerId;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Of one message: fewer than a frame may hold.
const MESSAGE_BYTES: usize = 4 << 20;
const GROUPS_MAX: usize = 1024;
const PAGE_BYTES: usize = 1 << 20;
/// Copies sync at least so often.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// A base of many rows; one page takes no longer.
const PAGE_DEADLINE: Duration = Duration::from_secs(10);

/// The way to one data server. `words` are never behind `content`.
pub struct Link {
    pub set: Arc<CopySet>,
    pub engine: Arc<dyn Copied>,
    pub words: AnyPeers,
    pub content: AnyPeers,
    pub id: ServerId,
}

impl Clone for Link {
    fn clone(&self) -> Self {
        let Link { set, engine, words, content, id } = self;
        let (set, engine, words, content) = (set.clone(), engine.clone(), words.clone(), content.clone());
        Link { set, engine, words, content, id: *id }
    }
}

impl Link {
    pub fn spawn(self) {
        let env = self.set.env.clone();
        let (words, sends, syncs) = (self.clone(), self.clone(), self);
        env.spawn("metadata copies: words", async move { words.keep_word().await });
        env.spawn("metadata copies: groups", async move { sends.send().await });
        env.spawn("metadata copies: syncs", async move { syncs.sync().await });
    }

    async fn ask<M>(
        &self,
        to: &AnyPeers,
        message: M,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<(Monotonic, KeeperReport)>
    where
        M: Carries<DataRequest, DataAnswer, Answer = KeeperReport> + Send,
    {
        let known = self.set.leader.lock().peers().find(|voter| voter.id == self.id).map(info);
        let info = known.ok_or(braid_api::Code::NoServers)?;
        let asked = self.set.env.clock.now();
        let cx = Context { deadline, ..Context::default() };
        let node = to.node(&info);
        // A call is repeated while it may be; what it found in the end was asked for at the beginning.
        let (report, _) = node.call(cx, message, payload).await?;
        Ok((asked, report))
    }

    fn answered(&self, asked: Monotonic, report: &KeeperReport, appended: bool) {
        let now = self.set.env.clock.now().0;
        self.set.leader.lock().answered(self.id, asked.0, now, report, appended);
        self.set.show_progress();
    }

    /// A disk that is full or broken answers so at once: nobody waits until it is taken for one that hangs.
    fn failed(&self, error: &braid_api::Error) {
        if matches!(error.code, Code::DiskError | Code::DiskFull | Code::ReadOnly) {
            tracing::warn!(server = self.id.0, %error, "a data server cannot keep its copy of the metadata");
            self.set.leader.lock().refused(self.id, self.set.env.clock.now().0);
        }
    }

    fn is_over(&self) -> bool {
        self.set.outlet.is_closed()
    }

    /// Tells the newest set, and so asks for the lease.
    async fn keep_word(&self) {
        let mut news = self.set.news.subscribe();
        while !self.is_over() {
            let set = self.set.stored.lock().clone();
            let order = set.order();
            self.set.counters.control_messages.fetch_add(1, Relaxed);
            let deadline = self.set.limits.silent;
            let asked = self.ask(&self.words, RecordSet { set }, Bytes::new(), deadline).await;
            let every = self.set.limits.renew;
            match asked {
                Ok((asked, report)) => self.answered(asked, &report, false),
                Err(error) => tracing::debug!(server = self.id.0, %error, "no word of a data server"),
            }
            let end = self.set.env.clock.now() + every;
            loop {
                let left = end.since(self.set.env.clock.now());
                if left.is_zero() || self.set.stored.lock().order() != order {
                    break;
                }
                self.set.news(&mut news, left).await;
            }
        }
    }

    /// Sends what the copy there lacks.
    async fn send(&self) {
        let mut news = self.set.news.subscribe();
        while !self.is_over() {
            news.mark_unchanged();
            let needs_base = self.set.leader.lock().needs_base(self.id);
            let sent = match needs_base {
                true => self.send_base().await.map(|()| true),
                false => self.send_groups().await,
            };
            match sent {
                Ok(true) => {}
                Ok(false) => self.set.news(&mut news, SYNC_EVERY).await,
                Err(error) => {
                    tracing::debug!(server = self.id.0, %error, "groups do not reach a copy of the metadata");
                    self.failed(&error);
                    self.set.env.sleep(self.set.limits.renew).await;
                }
            }
        }
    }

    /// One message, if there is something to send.
    async fn send_groups(&self) -> Result<bool> {
        let (message, payload) = {
            let leader = self.set.leader.lock();
            let Some(append) = leader.append(self.id, GROUPS_MAX) else { return Ok(false) };
            let remembered = self.set.groups.lock();
            let (mut groups, mut payload) = (Vec::new(), Vec::new());
            for at in append.groups {
                let Some(changes) = remembered.changes.get(&at.number) else { break };
                if !payload.is_empty() && payload.len() + changes.len() > MESSAGE_BYTES {
                    break;
                }
                groups.push((at, changes.len() as u32));
                payload.extend_from_slice(changes);
            }
            let (term, durable) = (leader.term(), append.durable);
            (AppendGroups { term, prev: append.prev, groups, durable }, payload)
        };
        self.set.counters.group_messages.fetch_add(1, Relaxed);
        let deadline = self.set.limits.silent;
        let (asked, report) = self.ask(&self.content, message, payload.into(), deadline).await?;
        self.answered(asked, &report, true);
        Ok(true)
    }

    /// The rows themselves, page by page, each as it is then; groups go on between them.
    async fn send_base(&self) -> Result<()> {
        let (mut next, mut page, mut from) = (None, 0, None);
        loop {
            let engine = self.engine.clone();
            let begin = next.take();
            let read = self.set.env.blocking(move || engine.base_page(begin, PAGE_BYTES)).await;
            let read =
                read.map_err(|error| braid_api::Error::new(Code::Internal, "a base of the metadata's rows", error))?;
            let (term, durable) = {
                let leader = self.set.leader.lock();
                (leader.term(), leader.durable())
            };
            let from = *from.get_or_insert(read.at);
            let upto = read.next.is_none().then_some(read.at.number);
            if page == 0 {
                tracing::info!(server = self.id.0, %from, "a data server gets a copy of the metadata");
            }
            self.set.counters.base_messages.fetch_add(1, Relaxed);
            let message = PutBase { term, from, page, upto, durable };
            let (asked, report) = self.ask(&self.content, message, read.rows.into(), PAGE_DEADLINE).await?;
            self.answered(asked, &report, false);
            while self.send_groups().await? {}
            page += 1;
            match read.next {
                Some(after) => next = Some(after),
                None => return Ok(()),
            }
        }
    }

    /// Asks it to sync when somebody waits for that, and once a second.
    async fn sync(&self) {
        let mut news = self.set.news.subscribe();
        let last = AtomicU64::new(0);
        while !self.is_over() {
            news.mark_unchanged();
            let (unsynced, wanted, term) = {
                let mut leader = self.set.leader.lock();
                let wanted = self.set.sync_wanted.load(Relaxed) > leader.progress().synced;
                (leader.is_unsynced(self.id), wanted, leader.term())
            };
            let now = self.set.env.clock.now().0;
            let due = now.saturating_sub(Duration::from_millis(last.load(Relaxed))) >= SYNC_EVERY;
            if !unsynced || !(wanted || due) {
                self.set.news(&mut news, SYNC_EVERY).await;
                continue;
            }
            last.store(now.as_millis() as u64, Relaxed);
            self.set.counters.sync_messages.fetch_add(1, Relaxed);
            match self.ask(&self.words, SyncGroups { term }, Bytes::new(), PAGE_DEADLINE).await {
                Ok((asked, report)) => self.answered(asked, &report, false),
                Err(error) => {
                    self.failed(&error);
                    self.set.env.sleep(self.set.limits.renew).await;
                }
            }
        }
    }
}
