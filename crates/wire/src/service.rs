use crate::body::Reply;
use crate::hello::PeerInfo;
use braid_api::{Context, Result};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// As the caller gave it; the deadline is never zero.
    pub context: Context,
    pub body: Bytes,
    /// Lies in a pooled buffer: kept for long, it keeps that from being used again.
    pub payload: Bytes,
}

/// What answers requests.
///
/// The future of a request is first polled in the task that reads the connection, where a request that needs no
/// waiting costs least; it must not block there, nor compute for long. If it is not ready it goes on in a task of its
/// own, and to its end: also when its caller cancels, its deadline passes or the connection breaks, for between two
/// awaits of a change there is work that nobody else would do. Only what [`Service::may_drop`] names is dropped then.
/// A panic becomes an internal error of that request.
pub trait Service: Send + Sync + 'static {
    /// Names of the messages by their number, for counters and spans.
    const NAMES: &'static [&'static str];

    fn handle(self: Arc<Self>, peer: Arc<PeerInfo>, request: Request) -> impl Future<Output = Result<Reply>> + Send;

    /// The request changes nothing, or nothing that is left half done when its future is dropped at any await. Then it
    /// is dropped as soon as nobody waits for its answer.
    fn may_drop(&self, body: &[u8]) -> bool {
        let _ = body;
        false
    }

    /// Payload bytes the answer may have, as far as the request tells; they count as held while it runs.
    fn answer_bytes(&self, body: &[u8]) -> usize {
        let _ = body;
        0
    }
}
