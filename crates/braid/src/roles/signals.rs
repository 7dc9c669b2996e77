//! The end on request.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Returns at the first SIGTERM or SIGINT.
pub async fn terminated() -> Result<()> {
    let mut term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
