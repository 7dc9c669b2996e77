//! What only snapshots have: chunks that were in files, and the rows of chunks of files that have gone.

use super::ask::Ask;
use super::chunks::{Chunks, Use};
use super::finding::{Fault, Finding, Remedy};
use super::held::stat;
use braid_api::admin::KeptRow;
use braid_api::{DataPeers, Namespace, Result};
use braid_types::{ChunkId, InodeId};
use std::collections::HashSet;

#[derive(Default)]
pub struct Kept {
    pub chunks: Vec<Use>,
    pub inodes: HashSet<InodeId>,
}

impl Kept {
    pub async fn read<N: Namespace>(ask: &Ask<'_, N>) -> Result<Kept> {
        let (mut kept, mut after) = (Kept::default(), None);
        loop {
            let page = ask.kept_rows(after).await?;
            for row in page.rows {
                match row {
                    KeptRow::Chunk(row) => kept.chunks.push(Use {
                        chunk: row.chunk,
                        inode: row.inode,
                        index: row.index,
                        container: row.container,
                    }),
                    KeptRow::Inode(inode) => _ = kept.inodes.insert(inode),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(kept);
            }
        }
    }
}

impl<N: Namespace, P: DataPeers> Chunks<'_, N, P> {
    /// Chunks of snapshots that their servers lack.
    pub(super) async fn lost_to_snapshots(&mut self) -> Result<()> {
        let of_gone = self.uses.iter().filter(|used| self.kept.inodes.contains(&used.inode));
        let (mut lost, mut unchecked) = (Vec::new(), Vec::new());
        for used in self.kept.chunks.iter().chain(of_gone) {
            for server in self.chain(used.container) {
                let Some(listing) = self.listings.get(server).filter(|l| !l.has(used.chunk)) else { continue };
                match stat(self.peers, &listing.info, used.chunk, used.container).await {
                    Ok(None) => lost.push((*used, *server)),
                    Ok(Some(_)) => {}
                    Err(e) => unchecked.push(format!("chunk {} at data server {server}: {e}", used.chunk)),
                }
            }
        }
        self.unchecked.append(&mut unchecked);
        if lost.is_empty() {
            return Ok(());
        }
        // Snapshots may have been let go of meanwhile, and what they had be freed.
        let now = Kept::read(self.ask).await?;
        let chunks: HashSet<ChunkId> = now.chunks.iter().map(|used| used.chunk).collect();
        for (used, server) in lost {
            if !chunks.contains(&used.chunk) && !now.inodes.contains(&used.inode) {
                continue;
            }
            let what = format!("data server {server} does not have chunk {}: these bytes are lost", used.chunk);
            let place = format!("a snapshot: inode {} chunk {}", used.inode, used.index.0);
            let remedy = Remedy::ByHand("let go of the snapshots that have it");
            self.findings.push(Finding::new(Fault::ChunkLost, place, what, remedy));
        }
        Ok(())
    }
}
