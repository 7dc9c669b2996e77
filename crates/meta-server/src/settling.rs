//! The end of changes whose caller has gone.

use braid_env::Env;
use braid_meta_engine::{AnyEngine, Engine, EngineError};
use std::time::Duration;

/// Between two questions to an engine that could not tell. A database that stays away ends the server's lead, and with it the process.
const AGAIN: Duration = Duration::from_secs(1);

/// Returns when whatever was ordered until now has taken effect or never will. Until then it could still make old what is granted.
pub(crate) async fn when_settled(env: Env, engine: AnyEngine) {
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
