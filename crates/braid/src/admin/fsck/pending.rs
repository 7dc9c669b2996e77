//! What belongs to no file: unlinked files, chunks of sessions, chunks that wait to be freed. A million files that were removed
//! while open take 8 MB here.

use super::ask::Ask;
use braid_api::admin::Pending as Row;
use braid_api::{Namespace, Result};
use braid_types::{ChunkId, InodeId, SessionId};

#[derive(Default)]
pub struct Pending {
    pub orphans: Vec<InodeId>,
    pub spares: Vec<(ChunkId, SessionId)>,
    pub chunks: Vec<ChunkId>,
}

pub async fn read<N: Namespace>(ask: &Ask<'_, N>, seen: &dyn Fn(u64)) -> Result<Pending> {
    let (mut all, mut after) = (Pending::default(), None);
    loop {
        let page = ask.pending(after).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(*last);
        seen(page.len() as u64);
        for row in page {
            match row {
                Row::Orphan(inode) => all.orphans.push(inode),
                Row::Spare(session, chunk, _) => all.spares.push((chunk, session)),
                Row::Chunk(chunk, _) => all.chunks.push(chunk),
                // Its rows of chunks are looked at one by one.
                Row::Inode(_) => {}
                // What is in it has names still, and is looked at as everything else.
                Row::Tree(_) => {}
            }
        }
    }
}
