//! One file an operation. Each takes its message as it came and checks it before anything is done.

mod cut;
mod delete;
mod fence;
mod list;
mod punch;
mod read;
mod reserve;
mod scrub;
mod stat;
mod status;
mod sync;
mod write;

use crate::core::{Call, Core};
use braid_api::data::{DataAnswer, DataRequest};
use braid_api::{Code, Error, Result};
use braid_data_store::ChunkStore;
use bytes::Bytes;
use std::sync::Arc;

impl<S: ChunkStore + 'static> Core<S> {
    /// Nothing here waits before the operation has taken its place in the chunk's order.
    pub async fn dispatch(
        self: &Arc<Self>,
        call: &Call,
        request: DataRequest,
        payload: Bytes,
    ) -> Result<(DataAnswer, Bytes)> {
        if !payload.is_empty() && !matches!(request, DataRequest::WriteChunk(_)) {
            return Err(Error::new(Code::BadMessage, call.what, "brings a payload, which no such message has"));
        }
        let answer = match request {
            DataRequest::ReadChunk(m) => {
                let (answer, payload) = self.read(call, m).await?;
                return Ok((DataAnswer::ReadChunk(answer), payload));
            }
            DataRequest::WriteChunk(m) => DataAnswer::WriteChunk(self.write(call, m, payload).await?),
            DataRequest::SyncChunks(m) => DataAnswer::SyncChunks(self.sync(call, m).await?),
            DataRequest::CutChunk(m) => DataAnswer::CutChunk(self.cut_chunk(call, m).await?),
            DataRequest::PunchChunk(m) => DataAnswer::PunchChunk(self.punch(call, m).await?),
            DataRequest::ReserveChunk(m) => DataAnswer::ReserveChunk(self.reserve(call, m).await?),
            DataRequest::UnreserveChunks(m) => DataAnswer::UnreserveChunks(self.unreserve(call, &m)?),
            DataRequest::StatChunk(m) => DataAnswer::StatChunk(self.stat(call, m).await?),
            DataRequest::DeleteChunks(m) => DataAnswer::DeleteChunks(self.delete(call, m).await?),
            DataRequest::ListChunks(m) => DataAnswer::ListChunks(self.list(call, m).await?),
            DataRequest::SetChains(m) => DataAnswer::SetChains(self.set_chains(call, m).await?),
            DataRequest::FenceSession(m) => DataAnswer::FenceSession(self.fence(call, m).await?),
            DataRequest::ScrubChunk(m) => DataAnswer::ScrubChunk(self.scrub(call, m).await?),
            DataRequest::GetDataStatus(_) => DataAnswer::GetDataStatus(self.status(call).await?),
        };
        Ok((answer, Bytes::new()))
    }
}
