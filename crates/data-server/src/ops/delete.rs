//! DeleteChunks: removes chunks for good, after all that came for them before. With a chain epoch it is the leader's word
//! that this server is no member, and copies that are in a newer epoch stay.

use crate::core::{Call, Core};
use braid_api::data::DeleteChunks;
use braid_api::{Code, Error, Result};
use braid_types::{ChunkId, ContainerId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Core {
    pub async fn delete(self: &Arc<Self>, call: &Call, m: DeleteChunks) -> Result<()> {
        self.gate.check(&call.token, ContainerId(0))?;
        // In order of ids, so that two deletions never wait for each other; nobody else holds more than one turn.
        let chunks: Vec<ChunkId> = m.chunks.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut turns = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            turns.push(self.turn(call, &self.lanes.get(*chunk)).await);
        }
        let mut plain = Vec::with_capacity(chunks.len());
        let mut copies = Vec::new();
        for chunk in &chunks {
            match self.chains.remove(*chunk, call.token.chain_epoch) {
                Some(removed) => copies.push(removed),
                None => plain.push(*chunk),
            }
        }
        let working = self.working(call, chunks.first().copied().unwrap_or_default(), "the disk");
        let of_work = *call;
        let delete = move |core: &Core| {
            let _pass = core.gate.enter(&of_work.token, ContainerId(0))?;
            core.deletions.fetch_add(1, SeqCst);
            let deleted = core.store.delete(&plain);
            plain.iter().for_each(|chunk| core.chains.end_local(*chunk));
            turns.iter().for_each(|turn| turn.lane.forget());
            let subject = if let [one] = chunks.as_slice() { *one } else { ChunkId(0) };
            deleted.map_err(|error| core.error(subject, &error))?;
            for chunk in &chunks {
                core.reservations.forget(*chunk);
                // Also of one that nobody has written.
                core.store.unreserve(*chunk, u64::MAX);
            }
            Ok(())
        };
        let mut done = self.on_disk(call, delete).await;
        for removed in copies {
            let stopping = || Error::new(Code::NotServing, format_args!("data server {}", self.id), "it is stopping");
            done = done.and(removed.await.unwrap_or_else(|_| Err(stopping())));
        }
        drop(working);
        done
    }
}
