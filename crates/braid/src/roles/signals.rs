//! The end on request.

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM or SIGINT, from [`Asked::listen`] on: also one that comes while nobody waits for it. Before that either ends the process
/// at once; from then on nothing but this does, for what tokio has once taken over stays with it.
pub struct Asked {
    term: Signal,
    int: Signal,
}

impl Asked {
    pub fn listen() -> Result<Asked> {
        let term = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let int = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        Ok(Asked { term, int })
    }

    /// Returns when the end was asked for and no wait has returned for it yet. Forgets nothing when it is dropped.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn what_comes_while_nobody_waits_is_not_lost() {
        let mut asked = Asked::listen().unwrap();
        let soon = Duration::from_millis(20);
        tokio::time::timeout(soon, asked.wait()).await.expect_err("nothing was asked for");
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        tokio::time::sleep(soon).await;
        tokio::time::timeout(Duration::from_secs(10), asked.wait()).await.unwrap();
    }
}
