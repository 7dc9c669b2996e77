//! What a server writes to its log. A process of its own: while there is one subscriber, the first thread to pass a place
//! that logs decides for all threads whether it is logged, so that a test beside this one, which has no subscriber,
//! would silence the server here.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what helps it")]

#[path = "it/support/mod.rs"]
mod support;

use braid_api::Context;
use braid_types::TraceId;
use braid_wire::*;
use bytes::Bytes;
use std::sync::Arc;
use support::*;

#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_trace_id_is_in_the_servers_log() {
    let log = Log::default();
    let to_log = log.clone();
    let subscriber = tracing_subscriber::fmt()
        // What a server logs unless it is told to log more.
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || to_log.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        run(async {
            let (env, _) = world();
            let server = Server::start(&env, &at("a:1"), Arc::default(), Limits::default()).await;
            let client = endpoint(&env, Role::Client, 0, Limits::default());
            let cx = Context { trace: TraceId(4711), ..Context::default() };
            remote(&client, &server.at).call(cx, &Raw(&[ECHO]), Bytes::new()).await.unwrap();
        });
    });
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let handled = text.lines().find(|line| line.contains("handled")).unwrap();
    assert!(handled.contains("trace=4711 what=\"Echo\""), "{text}");
}
