//! Scrub: every data server reads all its chunks and compares them with their checksums.
//!
//! Promises: each server works on a few chunks at a time, so that others get at its disk; what is damaged is named
//! with its file, if it has one; a server that cannot be asked is said, and does not stop the others.

use super::fsck::ask::Ask;
use braid_api::data::{DamagedChunk, ListChunks, ScrubChunk};
use braid_api::meta::{ServerInfo, ServerState};
use braid_api::{Code, Context, DataNode, DataPeers, Namespace, Result};
use braid_types::{ChunkId, ServerId};
use bytes::Bytes;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// Chunks in one list.
const PAGE: u32 = 1024;
/// A chunk may have up to 1 TiB: at 100 MB/s that is three hours.
const DEADLINE: Duration = Duration::from_secs(4 * 3600);

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    pub chunks: u64,
    pub blocks: u64,
    pub damaged: Vec<Damaged>,
    pub unchecked: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    pub server: u64,
    pub chunk: u64,
    /// `/a/b chunk 3`, once it is known.
    pub place: Option<String>,
    /// Where the damaged blocks begin in the chunk.
    pub offsets: Vec<u64>,
    /// Why nothing of the chunk can be read, if that is so.
    pub cause: Option<String>,
}

impl Damaged {
    pub fn line(&self) -> String {
        let place = self.place.as_deref().unwrap_or("in no file");
        if let Some(cause) = &self.cause {
            return format!("data server {} chunk {} ({place}): {cause}", self.server, self.chunk);
        }
        let offsets: Vec<String> = self.offsets.iter().take(4).map(ToString::to_string).collect();
        let more = if self.offsets.len() > 4 { ", …" } else { "" };
        let (count, at) = (self.offsets.len(), offsets.join(", "));
        format!("data server {} chunk {} ({place}): {count} damaged blocks, at {at}{more}", self.server, self.chunk)
    }
}

impl Scrubbed {
    /// As fsck: 0 clean, 1 damage, 2 not all was looked at.
    pub fn exit_code(&self) -> u8 {
        match (self.damaged.is_empty(), self.unchecked.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }
}

/// Scrubs all servers, or one. `progress` hears of each chunk.
pub async fn scrub<N: Namespace, P: DataPeers>(
    namespace: &N,
    peers: &P,
    only: Option<ServerId>,
    progress: &(dyn Fn() + Sync),
) -> Result<Scrubbed> {
    let ask = Ask::new(namespace);
    let mut done = Scrubbed::default();
    let servers = ask.servers().await?;
    if let Some(id) = only.filter(|id| !servers.iter().any(|s| s.id == *id)) {
        return Err(braid_api::Error::new(
            Code::NotFound,
            format_args!("data server {id}"),
            "braid admin servers lists them",
        ));
    }
    for info in servers.iter().filter(|s| only.is_none_or(|id| s.id == id)) {
        if info.state == ServerState::Down {
            done.unchecked.push(format!("data server {} on {} is down", info.id, info.host));
        } else if let Err(e) = scrub_server(peers, info, progress, &mut done).await {
            done.unchecked.push(format!("data server {} on {}: {e}", info.id, info.host));
        }
    }
    name_files(&ask, &mut done).await?;
    Ok(done)
}

async fn scrub_server<P: DataPeers>(
    peers: &P,
    info: &ServerInfo,
    progress: &(dyn Fn() + Sync),
    done: &mut Scrubbed,
) -> Result<()> {
    let node = peers.node(info);
    let mut after = ChunkId(0);
    loop {
        let (page, _) = node.call(Context::default(), ListChunks { after, limit: PAGE }, Bytes::new()).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last;
        // What cannot even be opened. The rest of what is damaged shows when it is read.
        let unreadable = |d: &&DamagedChunk| !page.chunks.iter().any(|c| c.chunk == d.chunk);
        for damaged in page.damaged.iter().filter(unreadable) {
            let (server, chunk, cause) = (info.id.0, damaged.chunk.0, Some(damaged.cause.clone()));
            done.damaged.push(Damaged { server, chunk, place: None, offsets: Vec::new(), cause });
        }
        for listed in &page.chunks {
            let cx = Context { deadline: DEADLINE, ..Context::default() };
            match node.call(cx, ScrubChunk { chunk: listed.chunk }, Bytes::new()).await {
                Ok((answer, _)) => {
                    done.chunks += 1;
                    done.blocks += answer.blocks;
                    if !answer.bad.is_empty() {
                        let (server, chunk) = (info.id.0, listed.chunk.0);
                        done.damaged.push(Damaged { server, chunk, place: None, offsets: answer.bad, cause: None });
                    }
                }
                // Deleted since it was listed.
                Err(e) if e.code == Code::ChunkUnknown => {}
                // Its files are gone or cannot be read: of it that is what is found, and the others are looked at.
                Err(e) if e.code == Code::BadBlock => {
                    let (server, chunk, cause) = (info.id.0, listed.chunk.0, Some(e.cause().to_owned()));
                    done.damaged.push(Damaged { server, chunk, place: None, offsets: Vec::new(), cause });
                }
                Err(e) => return Err(e),
            }
            progress();
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// Looks up the files of damaged chunks: one pass over the chunk rows, if there are any.
async fn name_files<N: Namespace>(ask: &Ask<'_, N>, done: &mut Scrubbed) -> Result<()> {
    let mut wanted: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, damaged) in done.damaged.iter().enumerate() {
        wanted.entry(damaged.chunk).or_default().push(i);
    }
    let mut after = None;
    while !wanted.is_empty() {
        let page = ask.chunk_rows(after).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some((last.inode, last.index));
        for row in page {
            for i in wanted.remove(&row.chunk.0).unwrap_or_default() {
                let path = ask.path(row.inode).await?;
                done.damaged[i].place = Some(format!("{path} chunk {}", row.index.0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::fsck::tests::world::World;

    #[tokio::test]
    async fn damage_is_named_with_its_file() {
        let w = World::new().await;
        let sound = scrub(&*w.server, &w.peers, None, &|| {}).await.unwrap();
        assert_eq!((sound.chunks, sound.exit_code()), (3, 0));
        let server = *w.peers.0.lock().iter().find(|(_, node)| !node.chunks.lock().is_empty()).unwrap().0;
        let node = w.peers.get(server);
        let chunk = *node.chunks.lock().keys().next().unwrap();
        node.bad.lock().insert(chunk, vec![0, 8192]);
        let found = scrub(&*w.server, &w.peers, None, &|| {}).await.unwrap();
        assert_eq!((found.damaged.len(), found.exit_code()), (1, 1));
        let line = found.damaged[0].line();
        assert!(line.contains("/a/b/data chunk") && line.ends_with("2 damaged blocks, at 0, 8192"), "{line}");
        let other = ServerId(3 - server.0);
        assert_eq!(scrub(&*w.server, &w.peers, Some(other), &|| {}).await.unwrap().exit_code(), 0);
        assert!(scrub(&*w.server, &w.peers, Some(ServerId(9)), &|| {}).await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_asked_is_said() {
        let w = World::new().await;
        *w.peers.get(ServerId(1)).broken.lock() = true;
        let done = scrub(&*w.server, &w.peers, None, &|| {}).await.unwrap();
        assert_eq!((done.unchecked.len(), done.exit_code()), (1, 2));
    }
}
