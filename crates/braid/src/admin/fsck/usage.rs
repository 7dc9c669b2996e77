//! What is charged to directories with quotas, to users and to groups is what they have. Looked at where nothing else is wrong: what is wrong
//! with inodes is wrong with their sum, and is mended first.

use super::ask::Ask;
use super::finding::{Fault, Finding, Remedy};
use braid_api::admin::Repair;
use braid_api::quota::Usage;
use braid_api::{Namespace, Result};

/// What is wrong, or why it could not be looked at.
pub async fn check<N: Namespace>(ask: &Ask<'_, N>) -> Result<(Vec<Finding>, Option<String>)> {
    let found = match ask.miscounts().await {
        Ok(found) => found,
        Err(e) if matches!(e.code, braid_api::Code::TooBig | braid_api::Code::NotSupported) => {
            return Ok((Vec::new(), Some(format!("what quotas count: {e}"))));
        }
        Err(e) => return Err(e),
    };
    let shown = |usage: Usage| format!("{} inodes and {} bytes", usage.inodes, usage.bytes);
    let finding = |miscount: braid_api::quota::Miscount| {
        let what = format!("{} are charged to it, it has {}", shown(miscount.recorded), shown(miscount.counted));
        Finding::new(Fault::Usage, miscount.payer.to_string(), what, Remedy::Row(Repair::Usage(miscount)))
    };
    Ok((found.into_iter().map(finding).collect(), None))
}
