//! What is done to all that lies below a directory: a message a page, many directories at once.

use super::path::ClusterPath;
use super::session::{Paths, Session, brief};
use anyhow::anyhow;
use braid_api::meta::TreeChange;
use braid_types::{InodeId, Name};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Directories under way at once: their transactions share syncs.
const AT_ONCE: usize = 32;

/// A page of a directory.
struct Page {
    path: ClusterPath,
    dir: InodeId,
    after: Option<Name>,
}

/// Changes everything below `dir`, a directory at a time, in no particular order. What goes wrong is noted, the rest is done.
pub async fn change_below<F: Paths>(s: &Session<F>, path: &ClusterPath, dir: InodeId, change: &TreeChange) {
    let mut waiting = vec![Page { path: path.clone(), dir, after: None }];
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(page) = waiting.pop()
        {
            under_way.push(async move {
                let done = s.fs.change_entries(page.dir, page.after.clone(), change.clone()).await;
                (page, done)
            });
        }
        let Some((page, done)) = under_way.next().await else { return };
        let Page { path, dir, .. } = page;
        match done {
            Ok(done) => {
                for name in done.sealed {
                    s.note(&anyhow!("{}: it is sealed", path.join(&name)));
                }
                for name in done.refused {
                    s.note(&anyhow!(
                        "{}: its access list would have names and no mask, or is damaged",
                        path.join(&name)
                    ));
                }
                waiting.extend(done.dirs.into_iter().map(|(name, dir)| Page {
                    path: path.join(&name),
                    dir,
                    after: None,
                }));
                waiting.extend(done.next.map(|after| Page { path, dir, after: Some(after) }));
            }
            Err(e) => s.note(&anyhow!("{path}: {}", brief(&e))),
        }
    }
}
