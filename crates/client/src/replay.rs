//! What was answered before it was durable: sent again to a server that has started anew, and waited for.

use crate::core::{Core, Op};
use braid_api::meta::{Kept, Mark, MetaRequest, Replay, ReplayAnswer, Settle};
use braid_api::{Carries, Code, Context, Error, Result, When};
use braid_types::{RequestId, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A page of kept changes is well below what one message may have.
const PAGE_BYTES: usize = 512 << 10;
/// One change that is larger is not kept: it is answered when it is durable.
pub const KEPT_ONE_MAX: usize = 256 << 10;
/// What is kept for so long is asked for: it has been durable for long, and only nothing else has been said meanwhile.
const ASK_AFTER: Duration = Duration::from_secs(1);

impl Core {
    /// May this be answered early? It must be kept until it is durable.
    pub fn may_keep(&self, request: &MetaRequest) -> bool {
        let bytes = request.kept_bytes();
        request.may_be_early() && bytes <= KEPT_ONE_MAX && self.requests.takes(bytes, self.config.kept_bytes)
    }

    /// Sends the server what is kept of its predecessors' answers, if it was not sent that yet. It answers nothing else
    /// before it has that of all clients.
    pub async fn replay(&self, op: Op) -> Result<()> {
        // Nothing more is told before it is answered by a server that knows nothing of it.
        self.behind.forget();
        let left = op.deadline.left(&self.env);
        let one = self.env.timeout(left, self.replaying.lock()).await;
        let _one = one.map_err(|_| Error::new(Code::DeadlineExceeded, "sending what is kept", ""))?;
        loop {
            // Without content: only to learn which start of the server it is. What its predecessor still answers is not
            // taken any more from here on, so that nothing is kept that was not sent.
            let (_, server) = self.send_replay(Vec::new(), false, op).await?;
            if self.requests.has_replayed_to(server.incarnation) {
                return Ok(());
            }
            let session = self.session.id();
            self.lose(&self.requests.other_sessions(session));
            let kept = self.requests.to_replay(session);
            let count = kept.len() as u64;
            let mut same = true;
            for (page, last) in pages(kept) {
                let (answer, mark) = self.send_replay(page, last, op).await?;
                same = mark.incarnation == server.incarnation && self.session.id() == session;
                if !same {
                    break;
                }
                self.lose(&answer.lost);
            }
            if same {
                self.counters.changes_replayed.fetch_add(count, Relaxed);
                if count > 0 {
                    tracing::info!(count, "sent what the metadata server had answered before it was durable");
                }
                self.requests.replayed(server.incarnation);
                return Ok(());
            }
        }
    }

    async fn send_replay(&self, kept: Vec<Kept>, last: bool, op: Op) -> Result<(ReplayAnswer, Mark)> {
        let token = self.session.token();
        match self.send_page(token, kept, last, op).await {
            Ok((answer, mark)) => {
                self.requests.observe(&mark);
                Ok((answer, mark))
            }
            Err(error) if matches!(error.code, Code::SessionUnknown | Code::SessionFenced) => {
                self.register_again(token, error.code, op).await?;
                // In the next round what was kept under that session is given up.
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn send_page(&self, token: Token, kept: Vec<Kept>, last: bool, op: Op) -> Result<(ReplayAnswer, Mark)> {
        let deadline = op.deadline.left(&self.env).min(self.config.attempt);
        let cx = Context { token, when: When::Marked, trace: op.trace, deadline, ..Context::default() };
        self.counters.message("Replay");
        let sent = self.env.timeout(deadline, self.route.ask_leader(cx, Replay { kept, last }.wrap())).await;
        let timed_out = |_| Error::new(Code::DeadlineExceeded, "sending what is kept", "");
        let (answer, mark) = sent.map_err(timed_out)??;
        Ok((Replay::unwrap(answer).ok_or(Error::bare(Code::BadMessage))?, mark))
    }

    /// Asks what of the former session was durable when it ended: under the new one the server remembers it. What cannot be
    /// asked for now counts as lost when the server starts again.
    pub async fn compare_former(&self, token: Token, op: Op) -> Result<()> {
        for (page, _) in pages(self.requests.of_other_sessions(token.session)) {
            if page.is_empty() {
                continue;
            }
            let asked: Vec<RequestId> = page.iter().map(|kept| kept.request).collect();
            let (answer, _) = self.send_page(token, page, false, op).await?;
            self.lose(&answer.lost);
            self.requests.settled(&asked);
        }
        Ok(())
    }

    fn lose(&self, requests: &[RequestId]) {
        let lost = self.requests.lose(requests);
        if lost > 0 {
            tracing::error!(lost, "changes that the metadata server had answered before they were durable are lost");
            self.counters.changes_lost.fetch_add(lost, Relaxed);
        }
    }

    /// Returns when every change that has been answered is durable.
    pub async fn settle_changes(&self, op: Op) -> Result<()> {
        self.behind.until_all_done(&self.env, op.deadline).await?;
        if let Some(last) = self.requests.last_kept() {
            while self.requests.is_kept_up_to(last) {
                self.call(Settle {}, op).await?;
                if op.deadline.left(&self.env).is_zero() {
                    return Err(Error::new(Code::DeadlineExceeded, "changes of names", "the metadata server's disk"));
                }
            }
        }
        match self.requests.take_lost() {
            0 => Ok(()),
            lost => {
                let cause = format!("{lost} changes were lost with the metadata server and this client's session");
                Err(Error::new(Code::SessionUnknown, "changes of names", cause))
            }
        }
    }

    /// A client that does nothing any more learns that what it keeps is durable, or that its server is gone.
    pub fn keep_settling(self: &Arc<Self>) {
        let (core, stop) = (Arc::downgrade(self), self.stop.listen());
        let env = self.env.clone();
        self.env.spawn("settling", async move {
            let mut before = None;
            loop {
                tokio::select! {
                    biased;
                    () = env.sleep(ASK_AFTER) => {}
                    () = stop.wait() => return,
                }
                let Some(core) = core.upgrade() else { return };
                if before.is_some_and(|last| core.requests.is_kept_up_to(last)) {
                    // The error, if any, is told by the next fsync.
                    if let Err(error) = core.call(Settle {}, core.own_op()).await {
                        tracing::debug!(%error, "what is kept is not known to be durable");
                    }
                }
                before = core.requests.last_kept();
            }
        });
    }
}

/// The last one, which may be empty, is marked.
fn pages(kept: Vec<Kept>) -> Vec<(Vec<Kept>, bool)> {
    let mut pages: Vec<Vec<Kept>> = vec![Vec::new()];
    let mut bytes = 0;
    for one in kept {
        let more = one.message.kept_bytes();
        if bytes + more > PAGE_BYTES {
            pages.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(page) = pages.last_mut() {
            page.push(one);
        }
    }
    let last = pages.len() - 1;
    pages.into_iter().enumerate().map(|(n, page)| (page, n == last)).collect()
}
