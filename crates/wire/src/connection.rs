//! One connection of a server: greets, reads requests, runs them, answers.

use crate::body::Reply;
use crate::channel::Reader;
use crate::endpoint::{Endpoint, write_all};
use crate::frame::{FrameError, OutFrame};
use crate::header::{Header, Kind, PREFIX_BYTES};
use crate::hello::{Hello, PeerInfo};
use crate::limits::deadline_or_default;
use crate::outbox::{Outbox, Urgency};
use crate::reader::Frame;
use crate::running::Running;
use crate::service::{Request, Service};
use crate::sink::{Sink, Writer};
use crate::stats::WireStats;
use braid_api::{Code, Context, Error, Result};
use braid_env::Connection;
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use tokio::sync::watch;
use tracing::Instrument;

pub(crate) struct ServerConnection<S> {
    endpoint: Endpoint,
    service: Arc<S>,
    peer: Arc<PeerInfo>,
    outbox: Arc<Outbox>,
    running: Arc<Running>,
    stats: Arc<WireStats>,
}

/// Serves a connection until it ends, is refused, or `stop` turns true and what runs has ended.
pub(crate) async fn serve_connection<S: Service>(
    endpoint: Endpoint,
    service: Arc<S>,
    stats: Arc<WireStats>,
    connection: Connection,
    mut stop: watch::Receiver<bool>,
) {
    let address = connection.peer.clone();
    let greeting = endpoint.env().timeout(endpoint.limits().hello_timeout, greet(&endpoint, connection));
    let greeted = tokio::select! {
        biased;
        greeted = greeting => greeted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    let ((reader, writer), peer) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(error)) => {
            stats.refusals(1);
            tracing::warn!("refused a connection: {error}");
            return;
        }
        Err(_) => {
            stats.refusals(1);
            tracing::warn!("refused a connection: {address} did not say hello in time");
            return;
        }
    };
    stats.connects(1);
    let (outbox, writer_task) = Outbox::start(endpoint.env(), writer, endpoint.limits().outbox_bytes_max);
    let running = Running::new(endpoint.limits());
    let connection = ServerConnection { endpoint, service, peer: Arc::new(peer), outbox, running, stats };
    let _closer = Closer(&connection.outbox, &connection.running, &writer_task);
    connection.run(reader, stop).await;
}

/// Ends everything a connection started, however it ends.
struct Closer<'a>(&'a Outbox, &'a Running, &'a braid_env::TaskHandle);

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        self.1.cancel_all();
        self.0.close("closed here");
        self.2.abort();
    }
}

/// Exchanges hellos. A refusal is told to the peer in an error frame before the connection is closed.
async fn greet(endpoint: &Endpoint, connection: Connection) -> Result<((Reader, Writer), PeerInfo)> {
    let Connection { reader, writer, peer: address } = connection;
    let (mut reader, mut sink) = (endpoint.greeting_reader(reader), Sink::new(writer));
    let ours = endpoint.hello(None);
    let heard = reader.next().await.map_err(|error| error.into_error(&address));
    let accepted = heard.and_then(|frame| ours.accept(&Hello::read(frame, &address)?, &address));
    match accepted {
        Ok(peer) => {
            endpoint.say(&mut sink, &ours).await?;
            reader.set_limits(endpoint.limits().clone());
            Ok(((reader, sink.into_inner()), peer))
        }
        Err(error) => {
            sink.load(&mut VecDeque::from([OutFrame::error(0, &error, endpoint.limits())]));
            let _ = write_all(&mut sink).await;
            let _ = std::future::poll_fn(|cx| sink.poll_shutdown(cx)).await;
            Err(error)
        }
    }
}

impl<S: Service> ServerConnection<S> {
    async fn run(&self, mut reader: Reader, mut stop: watch::Receiver<bool>) {
        let end = tokio::select! {
            biased;
            end = self.read(&mut reader, &mut stop) => end,
            why = self.outbox.failed() => Err(FrameError::Io(why)),
        };
        match end {
            Ok(true) => self.drain().await,
            Ok(false) | Err(FrameError::Io(_) | FrameError::Truncated) => {}
            Err(error) => {
                tracing::warn!("{}: {error}; the connection is closed", self.peer);
                // Said to the peer as well, so that the line is in its log too; answers before it are not lost.
                let error = error.into_error(&self.peer.address);
                let frame = OutFrame::error(0, &error, self.endpoint.limits());
                let _ = self.outbox.send(frame, Urgency::Now).await;
                self.drain().await;
            }
        }
    }

    /// Finishes what runs and writes what is queued, within a bound.
    async fn drain(&self) {
        let drained = async {
            self.running.none().await;
            self.outbox.finish();
            self.outbox.failed().await;
        };
        if self.endpoint.env().timeout(self.endpoint.limits().drain_timeout, drained).await.is_err() {
            tracing::warn!("{}: closed before all requests had ended", self.peer);
        }
    }

    /// Reads requests until the peer ends (false) or the server does (true).
    async fn read(
        &self,
        reader: &mut Reader,
        stop: &mut watch::Receiver<bool>,
    ) -> std::result::Result<bool, FrameError> {
        loop {
            if !reader.has_frame() {
                // The answers to all that arrived together leave together.
                self.outbox.flush();
            }
            let next = async {
                self.running.room().await;
                reader.next().await
            };
            let frame = tokio::select! {
                biased;
                frame = next => frame?,
                _ = stop.wait_for(|stop| *stop) => return Ok(true),
            };
            let Some(Frame { header, body, payload }) = frame else { return Ok(false) };
            match header.kind {
                Kind::Request => self.dispatch(header, body, payload).await?,
                Kind::Cancel => {
                    self.stats.cancels(1);
                    self.running.cancel(header.call);
                }
                kind => return Err(FrameError::Misplaced(kind)),
            }
            // A busy peer must not keep this thread from the other connections.
            tokio::task::consume_budget().await;
        }
    }

    async fn dispatch(&self, header: Header, body: Bytes, payload: Bytes) -> std::result::Result<(), FrameError> {
        let message = self.stats.message(&body);
        self.stats.received(message, PREFIX_BYTES + body.len() + payload.len(), payload.len());
        let context = Context { deadline: deadline_or_default(header.context.deadline), ..header.context };
        let held = payload.len();
        let request = Request { context, body: body.clone(), payload };
        // At the level of errors, so that every line of the log that the request leads to has its trace, whatever is logged.
        let span = tracing::error_span!("call", trace = context.trace.0, what = self.stats.name(message));
        span.in_scope(|| tracing::debug!("a request of {}", self.peer));
        let handling = self.service.clone().handle(self.peer.clone(), request).instrument(span);
        let mut handling = Caught(Box::pin(handling));
        // A second poll by its own task follows, so that no wake-up can get lost here.
        let first = Pin::new(&mut handling).poll(&mut task::Context::from_waker(Waker::noop()));
        if let Poll::Ready(result) = first {
            self.stats.inline(1);
            let answer = self.answer(header.call, message, result);
            let _ = self.outbox.send(answer, Urgency::Later).await;
            return Ok(());
        }
        let held = held + self.service.answer_bytes(&body);
        let (this, call, may_drop) = (self.clone(), header.call, self.service.may_drop(&body));
        let Some(place) = self.running.enter(call, held) else {
            if !may_drop {
                self.endpoint.env().spawn("wire request", async move { drop(handling.await) });
            }
            return Err(FrameError::CallReused(call));
        };
        let task = self.endpoint.env().spawn("wire request", async move {
            let _place = place;
            let handled = this.endpoint.env().timeout(context.deadline, &mut handling).await;
            let rest = (handled.is_err() && !may_drop).then_some(handling);
            let result = handled.unwrap_or_else(|_| Err(this.too_late(message, context)));
            let answer = this.answer(call, message, result);
            // As a request that is alone: nothing is about to follow that could go with it.
            let urgency = if this.running.is_alone() { Urgency::Now } else { Urgency::Soon };
            let send = this.outbox.send(answer, urgency);
            match rest {
                // It has begun and ends, in its place among those that run; its answer is not wanted any more.
                Some(rest) => drop(tokio::join!(send, rest)),
                None => drop(send.await),
            }
        });
        if may_drop {
            self.running.set_task(call, task);
        }
        Ok(())
    }

    fn too_late(&self, message: usize, context: Context) -> Error {
        let cause = format!("not done within {:?}", context.deadline);
        Error::new(Code::DeadlineExceeded, self.stats.name(message), cause)
    }

    fn answer(&self, call: u64, message: usize, result: Result<Reply>) -> OutFrame {
        let limits = self.endpoint.limits();
        let finish = |reply: Reply| {
            let answer = reply.0.finish(Kind::Answer, call, Context::default(), limits);
            answer.map_err(|error| error.into_error(self.stats.name(message)))
        };
        let frame = result.and_then(finish).unwrap_or_else(|error| {
            self.stats.errors(1);
            OutFrame::error(call, &error, limits)
        });
        self.stats.sent(message, frame.len(), frame.payload.len());
        frame
    }
}

impl<S> Clone for ServerConnection<S> {
    fn clone(&self) -> Self {
        ServerConnection {
            endpoint: self.endpoint.clone(),
            service: self.service.clone(),
            peer: self.peer.clone(),
            outbox: self.outbox.clone(),
            running: self.running.clone(),
            stats: self.stats.clone(),
        }
    }
}

/// Turns a panic into an error of the one request that panicked.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future<Output = Result<Reply>>> Future for Caught<F> {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        // The future is never polled again after a panic: the request ends here.
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))).unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            Poll::Ready(Err(Error::new(Code::Internal, "request", "it panicked; the server's log tells where")))
        })
    }
}
