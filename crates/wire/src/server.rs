use crate::connection::serve_connection;
use crate::endpoint::Endpoint;
use crate::service::Service;
use crate::stats::WireStats;
use braid_env::Listener;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

/// After an accept that failed, which is mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One of the connections a server counts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Serves what connects to `listener` until `shutdown` is ready; then stops accepting and reading, finishes what
/// runs within [`crate::Limits::drain_timeout`], closes, and returns. Dropping the future stops accepting; the
/// connections end as soon as they notice.
///
/// `stats` must have been made with `S::NAMES`.
pub async fn serve<S: Service>(
    endpoint: Endpoint,
    listener: Box<dyn Listener>,
    service: Arc<S>,
    stats: Arc<WireStats>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let stop = StopOnDrop(watch::Sender::new(false));
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!("cannot accept on {}: {error}", listener.local());
                endpoint.env().sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if open.fetch_add(1, Relaxed) >= endpoint.limits().connections_max {
            open.fetch_sub(1, Relaxed);
            stats.refusals(1);
            tracing::warn!("refused {}: {} connections are open", connection.peer, open.load(Relaxed));
            continue;
        }
        let counted = Counted(open.clone());
        let serving =
            serve_connection(endpoint.clone(), service.clone(), stats.clone(), connection, stop.0.subscribe());
        endpoint.env().spawn("wire connection", async move {
            serving.await;
            drop(counted);
        });
    }
    drop(listener);
    stop.0.send_replace(true);
    // Each connection holds a receiver until it has ended.
    stop.0.closed().await;
}

struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
