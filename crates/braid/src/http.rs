//! The health page and metrics of a server: `GET /health` and `GET /metrics`, nothing else.

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// What a page shows, made anew for each request.
pub trait Pages: Send + Sync + 'static {
    /// One line for people, and whether the server is well.
    fn health(&self) -> (bool, String);
    /// Prometheus's text format.
    fn metrics(&self) -> String;
}

/// A client that is slower than this is dropped.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves `pages` at `at`, which `setting` says (nothing, if that is empty), until the process ends. Answers where: the port
/// may be any free one.
pub async fn serve(setting: &str, at: &str, pages: Arc<dyn Pages>) -> Result<Option<SocketAddr>> {
    if at.is_empty() {
        return Ok(None);
    }
    let listener = TcpListener::bind(at).await.with_context(|| {
        format!(
            "cannot serve the health page at {at}: set {setting} to another port, or to port 0 for any that is free"
        )
    })?;
    let served = listener.local_addr().context("cannot tell where the health page is")?;
    tracing::info!("health page and metrics at http://{served}");
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let pages = pages.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(pages.clone(), request));
                // A broken connection to a browser is nobody's concern.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(Some(served))
}

async fn answer(pages: Arc<dyn Pages>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/health") => {
            let (well, line) = pages.health();
            (if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, line + "\n")
        }
        (&Method::GET, "/metrics") => (StatusCode::OK, pages.metrics()),
        (&Method::GET, "/") => (StatusCode::OK, "BraidFS: /health /metrics\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}
