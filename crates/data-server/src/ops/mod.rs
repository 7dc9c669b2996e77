//! One file an operation. Each takes its message as it came and checks it before anything is done.

mod beside;
mod clone;
mod copies;
mod cut;
mod delete;
mod fence;
mod list;
mod local;
mod metadata;
mod punch;
mod read;
mod report;
mod reserve;
mod scrub;
pub(crate) mod stat;
mod status;
mod sync;
mod want;
mod write;

use crate::core::{Call, Core};
use braid_api::data::{DataAnswer, DataRequest, Make};
use braid_api::{Code, Error, Result};
use bytes::Bytes;
use std::sync::Arc;

impl Core {
    /// Nothing here waits before the operation has taken its place in the chunk's order.
    pub async fn dispatch(
        self: &Arc<Self>,
        call: &Call,
        request: DataRequest,
        payload: Bytes,
    ) -> Result<(DataAnswer, Bytes)> {
        let brings_payload = matches!(
            request,
            DataRequest::WriteChunk(_)
                | DataRequest::WriteCopies(_)
                | DataRequest::PeerSays(_)
                | DataRequest::LeaderSays(_)
                | DataRequest::AppendGroups(_)
                | DataRequest::PutBase(_)
        );
        if !payload.is_empty() && !brings_payload {
            return Err(Error::new(Code::BadMessage, call.what, "brings a payload, which no such message has"));
        }
        if call.token.snapshot != 0 && changes(&request) {
            let subject = format_args!("data server {}, snapshot {}", self.id, call.token.snapshot);
            return Err(Error::new(Code::ReadOnly, subject, "what is in a snapshot does not change"));
        }
        let answer = match request {
            DataRequest::ReadChunk(m) => {
                let (answer, payload) = self.read(call, m).await?;
                return Ok((DataAnswer::ReadChunk(answer), payload));
            }
            DataRequest::WriteChunk(m) => DataAnswer::WriteChunk(match m.once {
                Some(once) => self.write_beside(call, m, once, payload).await?,
                None => self.write(call, m, payload).await?,
            }),
            DataRequest::SyncChunks(m) => DataAnswer::SyncChunks(self.sync(call, m).await?),
            DataRequest::CutChunk(m) => DataAnswer::CutChunk(self.cut_chunk(call, m).await?),
            DataRequest::PunchChunk(m) => DataAnswer::PunchChunk(self.punch(call, m).await?),
            DataRequest::ReserveChunk(m) => DataAnswer::ReserveChunk(self.reserve(call, m).await?),
            DataRequest::ReserveRoom(m) => DataAnswer::ReserveRoom(self.reserve_room(call, &m)?),
            DataRequest::UnreserveChunks(m) => DataAnswer::UnreserveChunks(self.unreserve(call, &m)?),
            DataRequest::StatChunk(m) => DataAnswer::StatChunk(self.stat(call, m).await?),
            DataRequest::DeleteChunks(m) => DataAnswer::DeleteChunks(self.delete(call, m).await?),
            DataRequest::ListChunks(m) => DataAnswer::ListChunks(self.list(call, m).await?),
            DataRequest::SetAside(m) => DataAnswer::SetAside(self.set_aside(call, m).await?),
            DataRequest::SetChains(m) => DataAnswer::SetChains(self.set_chains(call, m).await?),
            DataRequest::FenceSession(m) => DataAnswer::FenceSession(self.fence(call, m).await?),
            DataRequest::ScrubChunk(m) => DataAnswer::ScrubChunk(self.scrub(call, m).await?),
            DataRequest::GetDataStatus(_) => DataAnswer::GetDataStatus(self.status(call).await?),
            DataRequest::ReadCopy(m) => {
                let (answer, payload) = self.read_copy(call, m).await?;
                return Ok((DataAnswer::ReadCopy(answer), payload));
            }
            DataRequest::WriteCopies(m) => DataAnswer::WriteCopies(match m.write.once {
                Some(once) => self.write_copies_beside(call, m, once, payload).await?,
                None => self.write_copies(call, m, payload).await?,
            }),
            DataRequest::WaitCopies(m) => DataAnswer::WaitCopies(self.wait_copies(call, m).await?),
            DataRequest::PunchCopies(m) => DataAnswer::PunchCopies(self.punch_copies(call, m).await?),
            DataRequest::CutCopies(m) => DataAnswer::CutCopies(self.cut_copies(call, m).await?),
            DataRequest::StatCopy(m) => DataAnswer::StatCopy(self.stat_copy(call, m).await?),
            DataRequest::ReserveCopy(m) => DataAnswer::ReserveCopy(self.reserve_copy(call, m).await?),
            DataRequest::PeerSays(m) => DataAnswer::PeerSays(self.peer_says(&m, payload)?),
            DataRequest::LeaderSays(m) => DataAnswer::LeaderSays(self.leader_says(&m, &payload)?),
            DataRequest::PromiseTerm(m) => DataAnswer::PromiseTerm(self.metadata()?.promise(m).await?),
            DataRequest::RecordSet(m) => DataAnswer::RecordSet(self.metadata()?.record(m).await?),
            DataRequest::AppendGroups(m) => DataAnswer::AppendGroups(self.metadata()?.append(m, payload).await?),
            DataRequest::SyncGroups(m) => DataAnswer::SyncGroups(self.metadata()?.sync(m).await?),
            DataRequest::PutBase(m) => DataAnswer::PutBase(self.metadata()?.put_base(m, payload).await?),
            DataRequest::FetchRows(m) => {
                let (answer, payload) = self.metadata()?.fetch(m).await?;
                return Ok((DataAnswer::FetchRows(answer), payload));
            }
            DataRequest::UnlockRegion(m) => {
                self.unlock_region(call, m);
                DataAnswer::UnlockRegion(())
            }
            DataRequest::CheckRegion(m) => DataAnswer::CheckRegion(self.check_region(call, m)?),
            DataRequest::OpenLocal(m) => DataAnswer::OpenLocal(self.open_local(call, m).await?),
            DataRequest::WantChunk(m) => DataAnswer::WantChunk(self.want(call, m)?),
            DataRequest::GetReport(m) => DataAnswer::GetReport(self.report(call, m).await?),
            DataRequest::LoseChunks(m) => DataAnswer::LoseChunks(self.lose(call, m).await?),
            DataRequest::CloneChunk(m) => DataAnswer::CloneChunk(self.clone_chunk(call, m).await?),
            DataRequest::CloneCopies(m) => DataAnswer::CloneCopies(self.clone_copies(call, m).await?),
            DataRequest::GetCopies(m) => DataAnswer::GetCopies(self.list_copies(&m)),
        };
        Ok((answer, Bytes::new()))
    }
}

/// Asks for something that is different afterwards, for whoever reads a file.
fn changes(request: &DataRequest) -> bool {
    match request {
        DataRequest::WriteChunk(_)
        | DataRequest::PunchChunk(_)
        | DataRequest::CutChunk(_)
        | DataRequest::WriteCopies(_)
        | DataRequest::PunchCopies(_)
        | DataRequest::CutCopies(_)
        | DataRequest::CloneChunk(_)
        | DataRequest::CloneCopies(_) => true,
        DataRequest::ReserveChunk(m) => m.make != Make::No,
        DataRequest::ReserveCopy(m) => m.make != Make::No,
        _ => false,
    }
}
