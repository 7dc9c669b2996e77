//! Do copies come on, while a call that waits for them has no answer?
//!
//! Over a slow link what one `fsync` waits for can take minutes. Nothing is answered meanwhile, and nobody is gone.
//!
//! Promises: what has reached a copy since the look before counts, blocks that it lacked or a version that it has now, or has on stable
//! storage; and content that has its place in the queue to a server that takes what comes, unless it has been sent some times and nothing
//! came of it. Who does not answer has not come on.

use super::Copies;
use crate::wait::join_all;
use braid_api::data::{CopyState, DataAnswer, DataRequest, GetCopies};
use braid_api::erased::Node;
use braid_api::{Context, Manner};
use braid_types::{ChunkId, RequestId, ServerId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Behind content on the same link.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of those that are waited for. A sync asks for those of one file in one container, which are few.
const CHUNKS_MAX: usize = 16;
/// What is taken and cannot be stored, because a disk is full, is sent again and again: that is not waited for without end. Twice is for
/// what was lost on its way or had changed by then.
const SENT_MAX: u64 = 3;

fn has_more(now: &CopyState, before: &CopyState) -> bool {
    let lacks_less = now.epoch == before.epoch && now.invalid_blocks < before.invalid_blocks;
    lacks_less || now.complete > before.complete || now.stable > before.stable
}

impl Copies {
    /// Looks at this chunk and at those that are not known to be stable.
    pub async fn come_on(&self, cx: Context, chunk: ChunkId) -> bool {
        let mut chunks = BTreeSet::from([chunk]);
        chunks.extend(self.state.lock().open.values().map(|(chunk, _)| *chunk).take(CHUNKS_MAX));
        let cx = Context { deadline: PATIENCE, manner: Manner::Once, request: RequestId(0), behind: 0, ..cx };
        let all: Vec<ChunkId> = chunks.iter().copied().collect();
        let ask = |(id, node): (ServerId, Arc<dyn Node>)| {
            let get = DataRequest::GetCopies(GetCopies::of(all.clone()));
            async move { (id, node.execute(cx, get, Bytes::new()).await) }
        };
        let looked = self.env.timeout(PATIENCE, join_all(self.members(None).into_iter().map(ask).collect())).await;
        let mut state = self.state.lock();
        state.looked.retain(|(_, chunk), _| chunks.contains(chunk));
        let mut copies = Vec::new();
        for (id, answer) in looked.into_iter().flatten() {
            let Ok((DataAnswer::GetCopies(found), _)) = answer else { continue };
            copies.extend(found.into_iter().map(|now| ((id, now.chunk), now)));
        }
        let before = |key, now: &CopyState| state.looked.get(key).is_some_and(|(before, _)| has_more(now, before));
        let has_come = copies.iter().any(|(key, now)| before(key, now));
        let mut is_sent = false;
        for (key, now) in copies {
            let known = state.looked.get(&key).filter(|(before, _)| !has_come && before.sent <= now.sent);
            let sent = known.map_or(now.sent, |(_, sent)| *sent);
            is_sent |= now.is_sent && now.sent < sent + SENT_MAX;
            state.looked.insert(key, (now, sent));
        }
        has_come || is_sent
    }
}
