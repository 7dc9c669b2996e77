//! What is done to a directory and all that lies below it: begun here, done by the metadata servers.

use super::path::ClusterPath;
use super::progress::Stage;
use super::session::{Paths, Session, brief};
use anyhow::{Result, anyhow};
use braid_api::admin::{AdminAnswer, AdminQuery};
use braid_api::meta::{LeftInDir, TreeChange};
use braid_types::InodeId;
use std::time::Duration;

/// Between two questions how far it is; doubled up to this.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Changes `dir` and everything below it, in no particular order, and returns when that is done. What was left as it is is noted.
pub async fn change_tree<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, change: TreeChange) -> Result<()> {
    let failed = |e: braid_api::Error| anyhow!("{path}: {}", brief(&e));
    let op = s.fs.change_tree(dir, change).await.map_err(failed)?;
    let progress = Stage::start();
    let (mut after, mut pause) = (None, Duration::from_millis(16));
    loop {
        let answer = s.fs.admin(AdminQuery::TreeOp { op, after: after.take() }).await.map_err(failed)?;
        let AdminAnswer::TreeOp(status) = answer else { return Err(anyhow!("{path}: a strange answer")) };
        if status.waiting > 0 {
            progress.says(&format!("{path}: directories left: {}", status.waiting));
            tokio::time::sleep(pause).await;
            pause = LOOK_MAX.min(2 * pause);
            continue;
        }
        status.left.iter().for_each(|left| note(s, left));
        match status.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn note<F: Paths>(s: &Session<F>, left: &LeftInDir) {
    let path = |name: &[u8]| {
        let names: Vec<String> = left.dir.iter().map(|name| name.escape_ascii().to_string()).collect();
        [names, vec![name.escape_ascii().to_string()]]
            .concat()
            .iter()
            .map(|name| format!("/{name}"))
            .collect::<String>()
    };
    for name in &left.sealed {
        s.note(&anyhow!("{}: it is sealed", path(name)));
    }
    for name in &left.refused {
        s.note(&anyhow!("{}: its access list would have names and no mask, or is damaged", path(name)));
    }
}
