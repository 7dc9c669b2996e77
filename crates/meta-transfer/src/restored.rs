use crate::TransferError;
use braid_meta_engine::Engine;
use braid_meta_namespace::OpError;
use braid_meta_namespace::ops::restored::{ForgetSpares, LeapIds, RaiseChains, RestartSessions};
use braid_types::Timestamp;

/// Makes rows of a backup ones that can be served beside data servers and mounts that have gone on since. For a store that nobody
/// serves yet; after all rows are there. `now` must not be before that of an earlier restoration beside the same data servers.
pub async fn settle_restored<E: Engine>(target: &E, taken: Timestamp, now: Timestamp) -> Result<(), TransferError> {
    let failed = |error: OpError| TransferError::Rows(error.into());
    target.transact(0, LeapIds { taken, now }).await.map_err(failed)?;
    let mut after = None;
    loop {
        after = target.transact(0, RestartSessions { after, now }).await.map_err(failed)?;
        if after.is_none() {
            break;
        }
    }
    while target.transact(0, ForgetSpares).await.map_err(failed)? {}
    loop {
        after = target.transact(0, RaiseChains { after, now }).await.map_err(failed)?;
        if after.is_none() {
            return Ok(());
        }
    }
}
