use crate::body::{Reply, decode, encode, message_number};
use crate::hello::PeerInfo;
use crate::service::{Request, Service};
use braid_api::data::{DataNode, DataRequest};
use braid_api::meta::{MetaRequest, Namespace};
use braid_api::{Code, Error, Result, When};
use bytes::Bytes;
use std::sync::Arc;

/// Puts a [`Namespace`] on the wire.
pub struct NamespaceService<N>(pub Arc<N>);

/// Puts a [`DataNode`] on the wire.
pub struct DataNodeService<D>(pub Arc<D>);

impl<N: Namespace> Service for NamespaceService<N> {
    const NAMES: &'static [&'static str] = MetaRequest::NAMES;

    async fn handle(self: Arc<Self>, _peer: Arc<PeerInfo>, request: Request) -> Result<Reply> {
        let message: MetaRequest = decode(&request.body)?;
        if !request.payload.is_empty() {
            return Err(Error::new(Code::BadMessage, message.name(), "brings a payload, which no such message has"));
        }
        if request.context.when == When::Durable {
            return Reply::new(&self.0.execute(request.context, message).await?, Bytes::new());
        }
        let (answer, mark) = self.0.execute_early(request.context, message).await?;
        Reply::new(&answer, encode(&mark, Vec::new())?.into())
    }

    /// Questions only: behind the commit of a change there is what the server must remember of it.
    fn may_drop(&self, body: &[u8]) -> bool {
        MetaRequest::NAMES.get(message_number(body)).is_some_and(|name| MetaRequest::QUESTIONS.contains(name))
    }
}

impl<D: DataNode> Service for DataNodeService<D> {
    const NAMES: &'static [&'static str] = DataRequest::NAMES;

    async fn handle(self: Arc<Self>, _peer: Arc<PeerInfo>, request: Request) -> Result<Reply> {
        let message: DataRequest = decode(&request.body)?;
        let (answer, payload) = self.0.execute(request.context, message, request.payload).await?;
        Reply::new(&answer, payload)
    }

    /// A data server hands each change to an I/O thread as a whole, with all it holds; see `braid-data-server`.
    fn may_drop(&self, _: &[u8]) -> bool {
        true
    }

    fn answer_bytes(&self, body: &[u8]) -> usize {
        match decode(body) {
            Ok(DataRequest::ReadChunk(read)) => read.len as usize,
            Ok(DataRequest::ReadCopy(read)) => read.len as usize,
            _ => 0,
        }
    }
}
