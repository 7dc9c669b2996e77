use crate::body::{Body, decode};
use crate::call::{Answer, Call, Calls};
use crate::endpoint::Endpoint;
use crate::frame::{Draft, FrameError, OutFrame};
use crate::header::Kind;
use crate::hello::PeerInfo;
use crate::limits::deadline_or_default;
use crate::outbox::{Closed, Outbox, Urgency};
use crate::reader::{Frame, FrameReader};
use crate::sink::Writer;
use crate::stats::WireStats;
use crate::waits::{WaitSource, of_call};
use braid_api::admin::Waiting;
use braid_api::{Code, Context, Error, Manner, Result};
use braid_env::{Address, Monotonic, TaskHandle};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::oneshot;

/// A peer that has sent nothing for this long when a call expires is taken for gone: on a connection whose other
/// machine vanished, no error ever arrives.
const SILENCE_MAX: Duration = Duration::from_secs(10);

pub(crate) type Reader = FrameReader<Box<dyn AsyncRead + Send + Sync + Unpin>>;

/// One connection to a server, shared by any number of calls. Cheap to clone; closed when the last clone is gone.
#[derive(Clone)]
pub struct Channel(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    tasks: [TaskHandle; 2],
}

struct Shared {
    endpoint: Endpoint,
    peer: PeerInfo,
    to: Address,
    name: String,
    outbox: Arc<Outbox>,
    calls: Calls,
    stats: Arc<WireStats>,
    heard: Mutex<Monotonic>,
}

/// Takes a call out of the table when its caller is done with it, and tells the server if it never got an answer.
struct CallGuard<'a> {
    shared: &'a Shared,
    id: u64,
    sent: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.shared.calls.end(self.id).is_some() && self.sent {
            self.shared.stats.cancels(1);
            self.shared.outbox.try_send(OutFrame::bare(Kind::Cancel, self.id));
        }
    }
}

impl Channel {
    /// On a connection whose hellos have been exchanged.
    pub(crate) fn start(
        endpoint: &Endpoint,
        (reader, writer): (Reader, Writer),
        peer: PeerInfo,
        to: Address,
        stats: Arc<WireStats>,
    ) -> Channel {
        let env = endpoint.env();
        let (outbox, writer_task) = Outbox::start(env, writer, endpoint.limits().outbox_bytes_max);
        let name = peer.to_string();
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            calls: Calls::new(name.clone()),
            peer,
            to,
            name,
            outbox,
            stats,
            heard: Mutex::new(env.clock.now()),
        });
        let weak = Arc::downgrade(&(shared.clone() as Arc<dyn WaitSource>));
        endpoint.waits().add_source(weak);
        let reader_task = env.spawn("wire reader", shared.clone().read(reader));
        Channel(Arc::new(Handle { shared, tasks: [reader_task, writer_task] }))
    }

    pub fn peer(&self) -> &PeerInfo {
        &self.0.shared.peer
    }

    pub fn address(&self) -> &Address {
        &self.0.shared.to
    }

    /// Nothing can be sent on it any more.
    pub fn is_broken(&self) -> bool {
        self.0.shared.calls.is_broken() || self.0.shared.outbox.is_closed()
    }

    /// Sends a request and waits for its answer: body and payload. Ends at the context's deadline at the latest.
    /// Dropping the future cancels the request at the server, if it has not ended there.
    pub async fn call(&self, cx: Context, body: &impl Body, payload: Bytes) -> Result<(Bytes, Bytes)> {
        self.call_listed(cx, body, payload, cx.manner != Manner::Standing).await
    }

    pub(crate) async fn call_listed(&self, cx: Context, body: &impl Body, payload: Bytes, listed: bool) -> Answer {
        let shared = &*self.0.shared;
        let draft = Draft::new(payload, |frame| body.write(frame))?;
        let message = shared.stats.message(draft.body());
        let (send, receive) = oneshot::channel();
        let since = shared.endpoint.env().clock.now();
        let call = Call { answer: send, message, cx, since, listed };
        let (id, waiting) = shared.calls.begin(call)?;
        let mut guard = CallGuard { shared, id, sent: false };
        let deadline = deadline_or_default(cx.deadline);
        let frame = draft
            .finish(Kind::Request, id, Context { deadline, ..cx }, shared.endpoint.limits())
            .map_err(|error| error.into_error(shared.stats.name(message)))?;
        let answer = shared.endpoint.env().timeout(deadline, async {
            // With others under way more are likely to follow: the writer task sends them together.
            let urgency = if waiting == 1 { Urgency::Now } else { Urgency::Soon };
            let (bytes, payload_bytes) = (frame.len(), frame.payload.len());
            shared.outbox.send(frame, urgency).await.map_err(|Closed| shared.unreachable())?;
            guard.sent = true;
            shared.stats.sent(message, bytes, payload_bytes);
            match receive.await {
                Ok(answer) => answer,
                Err(_) => Err(Error::new(Code::Disconnected, &shared.name, "the connection was given up")),
            }
        });
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(shared.expired(message, since, deadline)),
        }
    }

    /// Gives the connection up: its calls fail.
    pub fn close(&self) {
        self.0.shared.give_up("closed here");
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.give_up("closed here");
        self.tasks.iter().for_each(TaskHandle::abort);
    }
}

impl Shared {
    fn unreachable(&self) -> Error {
        Error::new(Code::Unreachable, &self.name, "the connection is broken")
    }

    fn give_up(&self, why: &str) {
        self.outbox.close(why);
        self.calls.fail(why);
    }

    fn expired(&self, message: usize, since: Monotonic, deadline: Duration) -> Error {
        let now = self.endpoint.env().clock.now();
        let heard = *self.heard.lock();
        if heard <= since && now.since(heard) >= SILENCE_MAX {
            self.give_up("the peer is silent");
        }
        let name = self.stats.name(message);
        Error::new(Code::DeadlineExceeded, &self.name, format!("{name} was not answered within {deadline:?}"))
    }

    async fn read(self: Arc<Self>, mut reader: Reader) {
        let why = tokio::select! {
            biased;
            why = self.read_frames(&mut reader) => why,
            why = self.outbox.failed() => why,
        };
        self.give_up(&why);
    }

    async fn read_frames(&self, reader: &mut Reader) -> String {
        loop {
            match reader.next().await {
                Ok(Some(frame)) => {
                    if !reader.has_frame() {
                        // One look at the clock for all that arrived together.
                        *self.heard.lock() = self.endpoint.env().clock.now();
                    }
                    if let Err(error) = self.take(frame) {
                        tracing::warn!("{}: {error}; the connection is closed", self.name);
                        return error.to_string();
                    }
                }
                Ok(None) => return "the peer closed the connection".to_owned(),
                Err(error @ (FrameError::Io(_) | FrameError::Truncated)) => return error.to_string(),
                Err(error) => {
                    tracing::warn!("{}: {error}; the connection is closed", self.name);
                    return error.to_string();
                }
            }
        }
    }

    fn take(&self, frame: Frame) -> std::result::Result<(), FrameError> {
        let kind = frame.header.kind;
        if !matches!(kind, Kind::Answer | Kind::Error) {
            return Err(FrameError::Misplaced(kind));
        }
        if frame.header.call == 0 {
            return Err(FrameError::Refused(decode::<Error>(&frame.body).unwrap_or_else(|error| error).to_string()));
        }
        // An answer without call came too late: its caller gave up.
        let Some(call) = self.calls.end(frame.header.call) else { return Ok(()) };
        let bytes = crate::PREFIX_BYTES + frame.body.len() + frame.payload.len();
        self.stats.received(call.message, bytes, frame.payload.len());
        let answer = match kind {
            Kind::Error => {
                self.stats.errors(1);
                Err(decode::<Error>(&frame.body).unwrap_or_else(|error| error))
            }
            _ => Ok((frame.body, frame.payload)),
        };
        let _ = call.answer.send(answer);
        Ok(())
    }
}

impl WaitSource for Shared {
    fn waits(&self, show: &mut dyn FnMut(Waiting, Monotonic)) {
        self.calls.each(|call| {
            if call.listed {
                let for_what = format!("{}: no answer yet", self.name);
                let name = self.stats.name(call.message);
                show(of_call(name, &call.cx, (self.peer.role, self.peer.server), for_what), call.since);
            }
        });
    }
}
