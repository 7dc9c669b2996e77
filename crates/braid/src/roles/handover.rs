//! Holding changes of the metadata back, while its rows are brought to another store, and the end of this server when they are there.

use braid_api::{Code, Error};
use braid_env::{BoxFuture, Env, Monotonic};
use braid_meta_engine::{AnyEngine, Engine, HeldEngine};
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::handover::{Leave, Stay};
use braid_meta_server::{HOLD_MAX, Handovers};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// For changes under way to come to their end; less than whoever asks waits for an answer.
const BEGIN_MAX: Duration = Duration::from_secs(7);
const AGAIN: Duration = Duration::from_secs(1);
/// No hold has this number.
const GONE: u64 = 0;

pub struct Keeper {
    env: Env,
    /// What the metadata server changes its rows through.
    held: Arc<HeldEngine>,
    /// The same rows, past that.
    engine: AnyEngine,
    state: Mutex<Option<Held>>,
    /// What says that they are elsewhere may be written down.
    leaving: AtomicBool,
    gone: watch::Sender<Option<String>>,
    own: Weak<Keeper>,
}

struct Held {
    number: u64,
    until: Monotonic,
}

impl Keeper {
    pub fn new(env: &Env, held: Arc<HeldEngine>, engine: AnyEngine) -> Arc<Keeper> {
        let (env, state, gone) = (env.clone(), Mutex::default(), watch::Sender::new(None));
        Arc::new_cyclic(|own| Keeper {
            env,
            held,
            engine,
            state,
            leaving: AtomicBool::new(false),
            gone,
            own: own.clone(),
        })
    }

    /// Returns when the rows are served elsewhere: where.
    pub async fn gone(&self) -> String {
        let mut gone = self.gone.subscribe();
        let to = gone.wait_for(Option::is_some).await.map(|to| to.clone());
        match to {
            Ok(Some(to)) => to,
            // Who says so lives as long as this.
            _ => std::future::pending().await,
        }
    }

    /// What says that the rows are elsewhere may still be on its way to a database: it is of an epoch that is over, then.
    async fn stay(&self) -> braid_api::Result<()> {
        self.engine.fence_others().await.map_err(OpError::from)?;
        Ok(self.engine.transact(0, Stay).await?)
    }

    async fn begin(&self, time: Duration) -> braid_api::Result<u64> {
        let mut state = self.state.lock().await;
        if state.is_some() {
            let cause = "somebody else moves the metadata at this moment, or did within the last minute";
            return Err(Error::new(Code::Busy, "the metadata", cause));
        }
        let quiet = self.env.timeout(BEGIN_MAX, self.held.quiet()).await;
        let late =
            |_| Error::new(Code::DeadlineExceeded, "the metadata", "changes under way did not come to their end");
        quiet.map_err(late)?.map_err(OpError::from)?.hold().await.map_err(OpError::from)?;
        let number = self.env.random.u64().max(GONE + 1);
        *state = Some(Held { number, until: self.env.clock.now() + time });
        tracing::info!(number, "changes of the metadata wait: it is being moved");
        if let Some(own) = self.own.upgrade() {
            self.env.spawn("end of a hold", async move { own.end_in_time(number).await });
        }
        Ok(number)
    }

    async fn end_in_time(&self, number: u64) {
        loop {
            let left = {
                let mut state = self.state.lock().await;
                let Some(held) = state.as_ref().filter(|held| held.number == number) else { return };
                let left = held.until.since(self.env.clock.now());
                if left.is_zero() {
                    tracing::warn!(number, "who moves the metadata has not been heard of: changes go on here");
                    *state = None;
                    self.held.release().await;
                    return;
                }
                left
            };
            self.env.sleep(left).await;
        }
    }
}

fn over() -> Error {
    Error::new(
        Code::Interrupted,
        "the metadata",
        "it was not held back for all the time, and may have changed: begin again",
    )
}

impl Handovers for Keeper {
    fn hold(&self, number: u64, time: Duration) -> BoxFuture<'_, braid_api::Result<u64>> {
        Box::pin(async move {
            if number == GONE {
                return self.begin(time.min(HOLD_MAX)).await;
            }
            let mut state = self.state.lock().await;
            let now = self.env.clock.now();
            let held = state.as_mut().filter(|held| held.number == number && held.until > now).ok_or_else(over)?;
            held.until = now + time.min(HOLD_MAX);
            if time.is_zero() {
                *state = None;
                self.held.release().await;
                tracing::info!(number, "changes of the metadata go on");
            }
            Ok(number)
        })
    }

    fn move_away(&self, number: u64, to: String) -> BoxFuture<'_, braid_api::Result<()>> {
        Box::pin(async move {
            // Held from here to the end, so the clock that ends it waits.
            let mut state = self.state.lock().await;
            let now = self.env.clock.now();
            state
                .as_ref()
                .filter(|held| number != GONE && held.number == number && held.until > now)
                .ok_or_else(over)?;
            self.leaving.store(true, SeqCst);
            let left = self.engine.transact(0, Leave { to: to.clone(), now: self.env.clock.wall() }).await;
            if let Err(error) = left {
                // It may have been written all the same: changes go on here only when it is known that it is not there.
                while let Err(error) = self.stay().await {
                    tracing::warn!("it is not known whether the metadata is served here: {error}");
                    self.env.sleep(AGAIN).await;
                }
                self.leaving.store(false, SeqCst);
                *state = None;
                self.held.release().await;
                return Err(error.into());
            }
            // Nothing is let through any more, whatever comes before the end of this process.
            if let Some(held) = state.as_mut() {
                held.number = GONE;
            }
            self.gone.send_replace(Some(to));
            Ok(())
        })
    }

    fn may_have_gone(&self) -> bool {
        self.leaving.load(SeqCst)
    }
}
