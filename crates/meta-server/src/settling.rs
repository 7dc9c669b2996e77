//! What stands while a transaction may be under way, and its end when whoever asked for it has gone.

use crate::server::MetaServer;
use braid_api::{Code, Error};
use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, EngineError};
use std::time::Duration;

/// Between two questions to an engine that could not tell. A database that stays away ends the server's lead, and with it the process.
const AGAIN: Duration = Duration::from_secs(1);

/// Given up before the end of the transaction is known, what is in it stands until everything that was ordered until then has taken
/// effect or never will: until then it could still make old what is granted.
pub(crate) struct UntilSettled<T: Send + 'static> {
    env: Env,
    engine: AnyEngine,
    /// For the list of tasks.
    of: &'static str,
    stands: Option<T>,
}

impl<T: Send + 'static> UntilSettled<T> {
    /// To be made before the transaction is begun.
    pub fn new(server: &MetaServer, of: &'static str, stands: T) -> Self {
        UntilSettled { env: server.env.clone(), engine: server.engine.clone(), of, stands: Some(stands) }
    }

    /// What became of the transaction is known.
    pub fn end(mut self) -> Option<T> {
        self.stands.take()
    }
}

impl<T: Send + 'static> Drop for UntilSettled<T> {
    fn drop(&mut self) {
        let Some(stands) = self.stands.take() else { return };
        let (env, engine) = (self.env.clone(), self.engine.clone());
        self.env.spawn(self.of, async move {
            settled(env, engine).await;
            drop(stands);
        });
    }
}

/// Whether the change happened is not known yet.
pub(crate) fn is_open(error: &Error) -> bool {
    matches!(error.code, Code::MaybeCommitted | Code::NotServing)
}

async fn settled(env: Env, engine: AnyEngine) {
    let mut said = false;
    loop {
        match engine.settle().await {
            Ok(()) => return,
            // Nothing of it is committed any more.
            Err(EngineError::Closed | EngineError::Fenced(_)) => return,
            Err(error) if !std::mem::replace(&mut said, true) => {
                tracing::warn!(%error, "it is not known what became of a change that was given up: asking until it is")
            }
            Err(_) => {}
        }
        env.sleep(AGAIN).await;
    }
}
